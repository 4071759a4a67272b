"""Figures of a command's results, as PNG and SVG.

The same numbers give the same bytes.

Matplotlib (the extra ``plots``) draws them; it is loaded when a figure is requested. Series differ in colour, line and
marker, in the page's colours, so that they can also be distinguished in grey. Files contain neither date nor version:
with one version of Matplotlib the same numbers make the same files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from stream.errors import OPTIONAL, UsageError

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT, LINE, GRID, CARD = "#16212b", "#4d5c69", "#d9e0e6", "#e5eaee", "#ffffff"
SERIES = ("#14506e", "#b04a00", "#00755a", "#98447f", "#697680", "#4a55b8")
"""The light ones of ``connectors/serve/static/theme.css``."""
_LINES = ("-", "--", "-.", ":", "-", "--")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_PANEL = (4.6, 3.2)
"""Inches of one panel."""


class Drawing(NamedTuple):
    """A figure and its panels."""

    figure: Figure
    panels: list[Axes]
    """Row by row."""

    def legend(self) -> None:
        """Add one legend with each series, below all panels."""
        named: dict[str, Artist] = {}
        for panel in self.panels:
            for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
                named.setdefault(label, handle)
        self.figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=min(6, len(named)))


def need_matplotlib(option: str) -> None:
    """Raise an error before any work is done if Matplotlib is not installed.

    Args:
        asked: the option that needs it, as the error names it.

    Raises:
        UsageError: Matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        msg = f"{option}: needs matplotlib; {OPTIONAL}"
        raise UsageError(msg)


@contextmanager
def drawing(
    folder: Path,
    name: str,
    *,
    rows: int = 1,
    columns: int = 1,
    panel: tuple[float, float] = _PANEL,
    share_y: bool = False,
) -> Iterator[Drawing]:
    """Draw a figure, and write it at the end of the block: ``folder/name.png`` and ``folder/name.svg``.

    Args:
        folder: an existing folder for both files; files with their names are overwritten.
        name: without an ending.
        rows: of panels.
        columns: of panels.
        panel: width and height of one panel, in inches.
        share_y: whether all panels have the same vertical axis.

    Raises:
        UsageError: Matplotlib is not installed.
    """
    need_matplotlib(f"{name}.png")
    from matplotlib import rc_context  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with rc_context(_style()):
        figure = Figure(figsize=(panel[0] * columns, panel[1] * rows), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False, sharey=share_y)
        yield Drawing(figure, list(panels.flat))
        figure.savefig(folder / f"{name}.png", metadata={"Software": None})
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None, "Creator": None})


def _style() -> Any:
    from matplotlib.rcsetup import cycler  # noqa: PLC0415

    series = cycler(color=SERIES) + cycler(linestyle=_LINES) + cycler(marker=_MARKERS)
    return {
        "axes.prop_cycle": series, "axes.edgecolor": LINE, "axes.labelcolor": INK, "axes.titlecolor": INK,
        "axes.facecolor": CARD, "figure.facecolor": CARD, "savefig.facecolor": CARD, "text.color": INK,
        "xtick.color": SOFT, "ytick.color": SOFT, "grid.color": GRID, "axes.grid": True, "axes.axisbelow": True,
        "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": "medium", "axes.titlelocation": "left",
        "font.family": "DejaVu Sans", "font.size": 10, "lines.linewidth": 1.6, "lines.markersize": 4.5,
        "legend.frameon": False, "savefig.dpi": 150, "svg.hashsalt": "tacet", "svg.fonttype": "path",
    }  # fmt: skip
