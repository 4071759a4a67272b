"""What a search found, as tables for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from connectors.commands.tables import table

NOTICE = (
    "Restricted: made from a recording of people, by comparing released with true counts. Keep it like the raw data. "
    "An epsilon that is chosen by it and then published tells of these people, which no guarantee covers: choose from "
    "simulated or public data."
)
_NUMBERS = ("utility", "mean", "spread", "runs", "next\nbelow")


def show(report: dict[str, Any], console: Console) -> None:
    """Print the answers, what attackers make of them, and how sure they are."""
    _answers(report, console)
    _attackers(report, console)
    if any(row["status"] == "boundary" for row in report["answers"]):
        console.print("* At the boundary: the most private of all that were to be tried reaches it.")
    for row in report["answers"]:
        if row["open_below"]:
            names = ", ".join(_named(each) for each in row["open_below"])
            console.print(f"{_line(row)}: runs have not told of {names}.")
    sure = f"Of each line all verdicts hold together with confidence {report['confidence']:g}."
    console.print(f"{sure} Of candidates that were not tried nothing is said.")
    console.print(f"[bold]{NOTICE}[/bold]")


def _answers(report: dict[str, Any], console: Console) -> None:
    pays = "a device's day" if report["unit"] == "device_day" else "a window"
    title = f"The most private for {report['task']} at {report['site']}, epsilon of {pays}"
    beside = any(row["thesis"] for row in report["answers"])
    words = ("mechanism", "period", "found")
    found = table(title, words, (*_NUMBERS, "thesis", "its\nspread") if beside else _NUMBERS)
    for row in report["answers"]:
        measured, thesis = row["measured"] or {}, row["thesis"]
        cells = [row["mechanism"], row["period"], _found(row), f"{row['utility']:.0%}"]
        cells += [_percent(measured.get("utility")), _percent(measured.get("spread")), str(measured.get("runs", "-"))]
        cells += [_named(row["next_below"])]
        cells += [_named(thesis), _percent(thesis and thesis["spread"])] if beside else []
        found.add_row(*cells)
    console.print(found)


def _attackers(report: dict[str, Any], console: Console) -> None:
    """Print the share of people whom each attacker guesses right, beside what it guesses without what was released."""
    rows = [row for row in report["answers"] if row["attackers"]]
    if not rows:
        return
    names = list(rows[0]["attackers"])
    found = table("People guessed right there, and by the prior alone", ("mechanism", "period", "utility"), names)
    for row in rows:
        shares = [row["attackers"][name] for name in names]
        cells = [f"{each['success']:.1%} ({each['prior']:.1%})" for each in shares]
        found.add_row(row["mechanism"], row["period"], f"{row['utility']:.0%}", *cells)
    console.print(found)


def _line(row: dict[str, Any]) -> str:
    return f"{row['mechanism']}, {row['period']}, {row['utility']:.0%}"


def _found(row: dict[str, Any]) -> str:
    named = _named(row)
    if row["status"] == "found":
        return named
    return f"{named} *" if row["status"] == "boundary" else str(row["status"])


def _named(value: dict[str, Any] | None) -> str:
    """Return a candidate in words."""
    if value is None:
        return "-"
    if "ttl_seconds" in value:
        seconds = value["ttl_seconds"]
        if seconds is None:
            return "-"
        unit, size = next((pair for pair in (("h", 3600), ("min", 60)) if seconds % pair[1] == 0), ("s", 1))
        return f"{seconds / size:g} {unit}"
    return "-" if value["epsilon"] is None else str(value["epsilon"])


def _percent(part: float | None) -> str:
    return "-" if part is None else f"{100 * part:.1f}%"
