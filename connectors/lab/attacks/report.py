"""The results of an attack as JSON, as tables for people, and as figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich import box
from rich.table import Table

from connectors.lab.attacks.membership import MembershipTrial
from connectors.lab.attacks.study import Attack, FoundPeople
from connectors.lab.attacks.tracking import TrackingResult
from connectors.lab.plots import drawing
from stream.lab.attackers.beliefs import Floats
from stream.lab.attackers.localised import CLASSES, Success
from stream.lab.attackers.membership import LEVEL, most_shown
from stream.records import JsonObject
from stream.schemas import json_float

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NOTICE = "Restricted: these files contain findings about people. Do not pass them on."
SURE = ("#9dc3dc", "#5b9bc4", "#f0c987", "#e8924a", "#c8442c", "#7a1420")
"""Classes of confidence, light to dark: blues up to a quarter, reds from three quarters on."""
COLUMNS = 3
"""Panels beside each other."""


def report(attack: Attack, attacker: str, span_minutes: int) -> JsonObject:
    """Return all results as plain objects; restricted."""
    return {
        "restricted": True,
        "laboratory": True,
        "attacker": attacker,
        "day": attack.date,
        "training_days": attack.training,
        "span_minutes": span_minutes,
        "open_zones": int(attack.is_open.sum()),
        "zones": len(attack.is_open),
        "people": attack.people.tolist(),
        "classes": list(CLASSES),
        "baseline": _success(attack.baseline),
        "attacks": [_people_found(each) for each in attack.found],
        "followed": [_tracking_entry(each) for each in attack.tracking],
    }


def _people_found(found: FoundPeople) -> JsonObject:
    return {
        **found.reads,
        "title": found.title,
        "runs": found.runs,
        "found": {"by_guess": _rounded(found.by_guess), "by_confidence": _rounded(found.by_confidence)},
        "single_run": found.single.tolist(),
        "success": _success(found.success),
        "control": _success(found.control),
    }


def _rounded(people: Floats) -> list[list[float]]:
    return [[round(float(each), 4) for each in row] for row in people]


def _success(success: Success) -> dict[str, float]:
    return {**success._asdict(), "share": success.share}


def _tracking_entry(followed: TrackingResult) -> JsonObject:
    one, two, three = followed.believed
    return {
        **followed.channel._asdict(),
        "victims": followed.victims,
        "mobility": {**_success(followed.mobility), "believed": one},
        "alike": {**_success(followed.alike), "believed": two},
        "knowing": {**_success(followed.knowing), "believed": three},
        "believed_at_most": followed.bound,
        "backward_leakage": None if followed.leakage is None else json_float(followed.leakage),
    }


def tables(attack: Attack, attacker: str) -> Iterator[Table]:
    """Yield the printed tables: whom each channel lets the attacker find, and the results of tracking."""
    table = _table(
        f"{attacker}, {attack.date}: {int(attack.is_open.sum())} of {len(attack.is_open)} zones open, in the others"
        f" {attack.people.mean():.0f} people on average.\n"
        "found: people found by right guesses, without those that the prior finds.\n"
        "> .25, > .5: people whose true place has such a probability. Means over time.",
        ["releases read"],
        ["found", "> .25", "> .5", "right", "95 %", "control"],
    )
    for each in attack.found:
        sure = each.by_confidence.mean(axis=0)
        table.add_row(
            each.title, _brief(each.by_guess.sum(axis=1).mean()), *(_brief(sure[k:].sum()) for k in (2, 3)),
            f"{each.success.share:.0%}", f"{each.success.low:.0%}-{each.success.high:.0%}", f"{each.control.share:.0%}",
        )  # fmt: skip
    table.add_row("a zone at random", "", "", "", f"{attack.baseline.share:.0%}", "", "")
    yield table
    if attack.tracking:
        yield _following(attack.tracking)


def _table(title: str, words: Sequence[str], numbers: Sequence[str]) -> Table:
    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False, padding=(0, 1, 0, 0))
    for name in words:
        made.add_column(name, overflow="fold", min_width=24)
    for name in numbers:
        made.add_column(name, justify="right")
    return made


def _following(followed: Sequence[TrackingResult]) -> Table:
    columns = ["mobility", "alike", "all others", "believed", "at most"]
    title = (
        "People tracked through the day: share of right guesses of an attacker who knows how people\n"
        "move and reads nothing (mobility), treats all people alike (alike), or knows where all others\n"
        "are (all others); that attacker's probability of the true place (believed), and its bound (at most)."
    )
    table = _table(title, ["releases read"], columns)
    for each in followed:
        shares = [f"{one.share:.0%}" for one in (each.mobility, each.alike, each.knowing)]
        bound = "-" if each.bound is None else f"{each.bound:.0%}"
        table.add_row(each.channel.title, *shares, f"{each.believed[2]:.0%}", bound)
    return table


def _brief(people: float) -> str:
    return f"{people:.2g}" if people < 10 else f"{people:.0f}"


def draw(attack: Attack, folder: Path, span_minutes: int) -> None:
    """Draw people found by time and class, as mean over runs and for single runs: two figures, each PNG and SVG."""
    means = [(each.title, each.by_confidence) for each in attack.found]
    _panels(folder, "found", means, span_minutes)
    singles = [(each.title, each.single.astype(np.float64)) for each in attack.found if each.runs > 1]
    if singles:
        _panels(folder, "found-single-run", singles, span_minutes)
    if attack.tracking:
        _draw_tracking(attack.tracking, folder)


def _panels(folder: Path, name: str, shown: Sequence[tuple[str, Floats]], span_minutes: int) -> None:
    rows = -(-len(shown) // COLUMNS)
    with drawing(folder, name, rows=rows, columns=COLUMNS, panel=(4.4, 2.6), share_y=True) as made:
        for panel, (title, people) in zip(made.panels, shown, strict=False):
            _stack(panel, title, people, span_minutes)
        for panel in made.panels[len(shown) :]:
            panel.set_visible(False)
        for panel in made.panels[::COLUMNS]:
            panel.set_ylabel("people")
        made.legend()


def _stack(panel: Axes, title: str, people: Floats, span_minutes: int) -> None:
    hours = np.arange(len(people)) * span_minutes / 60
    below = np.zeros(len(people))
    for place, colour in enumerate(SURE):
        least = 0.0 if place == 0 else CLASSES[place - 1]
        label = f"{least:g} < belief ≤ {CLASSES[place]:g}"
        drawn = slice(None) if people[:, place].any() else slice(0, 1)  # an empty class needs one label for the legend
        top = below + people[:, place]
        panel.fill_between(
            hours[drawn], below[drawn], top[drawn], color=colour, label=label, step="post", linewidth=0
        )  # fmt: skip
        below = top
    panel.set_title(title, fontsize="small")
    panel.set_xlim(0, 24)
    panel.set_xticks(range(0, 25, 6), [f"{hour}:00" for hour in range(0, 25, 6)])
    panel.set_ylim(bottom=0)


def _draw_tracking(followed: Sequence[TrackingResult], folder: Path) -> None:
    with drawing(folder, "followed", panel=(8.4, 3.8)) as made:
        (panel,) = made.panels
        places, width = np.arange(len(followed)), 0.2
        series = ("mobility alone", "all people alike", "knows all others")
        for number, label in enumerate(series):
            shares = [100 * (each.mobility, each.alike, each.knowing)[number].share for each in followed]
            panel.bar(places + (number - 1.5) * width, shares, width, label=label)
        bounds = [np.nan if each.bound is None else 100 * each.bound for each in followed]
        panel.bar(places + 1.5 * width, bounds, width, label="belief at most")
        panel.set_xticks(places, [each.channel.title.replace(", ", "\n") for each in followed])
        panel.set_ylabel("% right")
        made.legend()


def membership_report(tried: Sequence[MembershipTrial], runs: int) -> JsonObject:
    """Return the results of membership trials as plain objects."""
    level = LEVEL / max(1, len(tried))
    rows = [
        {
            **each.guarantee._asdict(), "shown": each.bound.epsilon, "exceeded": each.exceeded,
            "largest_ratio": each.largest_ratio, "score": each.score, "threshold": each.bound.threshold,
            "rate_there": each.bound.there, "rate_away": each.bound.away,
        }
        for each in tried
    ]  # fmt: skip
    return {
        "laboratory": True, "runs": runs, "confidence": 1 - LEVEL, "releases": len(tried),
        "most_that_can_be_shown": most_shown(runs, level), "tried": rows,
    }  # fmt: skip
