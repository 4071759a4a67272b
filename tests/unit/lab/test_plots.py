"""Plots: two files for each, equal for equal numbers, in the page's colours, loaded late."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from connectors.lab import plots
from connectors.lab.experiments import decisions
from stream.errors import OPTIONAL, UsageError
from tests.acceptance.command_line import run
from tests.support.documents import ROOT

THEME = (ROOT / "connectors/serve/static/theme.css").read_text()


def drawn(folder: Path, height: float = 2.0) -> tuple[bytes, bytes]:
    folder.mkdir()
    with plots.drawing(folder, "rates", rows=1, columns=2) as sheet:
        for panel in sheet.panels:
            panel.plot([1, 2, 3], [1, 4, height], label="tslm")
            panel.plot([1, 2, 3], [2, 1, height], label="dppwlm")
        sheet.legend()
    return (folder / "rates.png").read_bytes(), (folder / "rates.svg").read_bytes()


def test_the_same_numbers_make_the_same_files_and_others_others(tmp_path: Path) -> None:
    first = drawn(tmp_path / "a")
    assert first == drawn(tmp_path / "b")
    assert all(one != other for one, other in zip(first, drawn(tmp_path / "c", 2.5), strict=True))


def test_files_hold_no_date_and_no_version(tmp_path: Path) -> None:
    png, svg = drawn(tmp_path / "a")
    assert png.startswith(b"\x89PNG")
    assert b"atplotlib" not in png
    assert not re.search(rb"20\d\d-\d\d-\d\d|[Mm]atplotlib v?\d", svg)
    assert ET.fromstring(svg).tag.endswith("svg")


def test_every_series_is_named_once_below_all_panels(tmp_path: Path) -> None:
    with plots.drawing(tmp_path, "x", columns=2) as sheet:
        for panel in sheet.panels:
            panel.plot([0, 1], label="tslm")
        sheet.legend()
        (legend,) = sheet.figure.legends
        assert [text.get_text() for text in legend.get_texts()] == ["tslm"]


def test_a_figure_has_one_panel_if_no_more_are_asked_for(tmp_path: Path) -> None:
    with plots.drawing(tmp_path, "x") as sheet:
        assert len(sheet.panels) == 1


def test_colours_are_those_of_the_page() -> None:
    light = dict(re.findall(r"--([a-z0-9-]+): light-dark\((#[0-9a-f]{6})", THEME))
    assert [light[f"c{i}"] for i in range(6)] == list(plots.SERIES)
    named = ("ink", "soft", "line", "grid", "card")
    assert [light[name] for name in named] == [plots.INK, plots.SOFT, plots.LINE, plots.GRID, plots.CARD]


def test_series_differ_by_line_or_marker_too(tmp_path: Path) -> None:
    with plots.drawing(tmp_path, "x") as sheet:
        lines = [sheet.panels[0].plot([0, 1])[0] for _ in plots.SERIES]
        looks = {(line.get_linestyle(), line.get_marker()) for line in lines}
    assert len(looks) == len(lines)


def test_a_figure_that_failed_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), plots.drawing(tmp_path, "x"):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_matplotlib_is_loaded_when_a_figure_is_asked_for() -> None:
    modules = "connectors.lab.attacks.report, connectors.lab.experiments.decision_report, connectors.cli.evaluate"
    program = f"import sys, {modules}; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_without_matplotlib_the_extra_is_named_before_any_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    output = f"'evaluate decisions': needs matplotlib; {OPTIONAL}"
    with pytest.raises(UsageError, match=re.escape(output)):
        plots.need_matplotlib("'evaluate decisions'")
    with pytest.raises(UsageError, match=r"rates\.png: needs matplotlib"), plots.drawing(tmp_path, "rates"):
        pytest.fail("nothing to draw on")  # pragma: no cover


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("evaluate", "decisions", "--quick", "--runs", "1", "--out", "out"), "evaluate decisions"),
        (("attack", "--observations", "o.csv", "--policy", "p.toml", "--attacker", "student", "--out", "o"), "attack"),
        (("calibrate", "heads.csv", "--policy", "p.toml", "--release", "occupancy", "--audience", "public", "--history",
          "h.csv", "--truth", "public", "--out", "out", "--figures", "figures"), "--figures"),
    ],
)  # fmt: skip
def test_a_verb_that_draws_needs_matplotlib_before_it_reads_or_writes_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...], named: str
) -> None:
    monkeypatch.setattr(plots, "find_spec", lambda _: None)
    monkeypatch.setattr(decisions, "results", lambda *_: pytest.fail("nothing can be drawn of it"))
    monkeypatch.chdir(tmp_path)
    done = run(*words)
    assert (done.code, f"{named}: needs matplotlib; {OPTIONAL}" in done.problem) == (2, True), done.problem
    assert list(tmp_path.iterdir()) == []
