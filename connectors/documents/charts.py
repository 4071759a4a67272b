"""Drawings of a report as inline SVG, without scripts, fonts or colours.

A drawing repeats in colour what its document says in words and tables; it has a name for screen readers.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

INK, PALE, GRID, BAND = "#1f5fa8", "#9db8d6", "#d5d9de", "#5b6470"
WIDTH = 680
LEFT, BOTTOM, TOP = 38, 22, 10
_TEXT = 'font-family="system-ui, sans-serif" font-size="11" fill="#3c434b"'


def _svg(name: str, height: float, body: Sequence[str]) -> str:
    label = html.escape(name, quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{label}">'
        f"<title>{label}</title>{''.join(body)}</svg>"
    )


def _label(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {_TEXT}>{html.escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width:g}"/>'


def _steps(most: float) -> list[float]:
    """Return up to five round numbers from 0 to at least the largest value; 0 alone if noise made all negative."""
    step = 1.0
    while most > 4 * step:
        step *= 2.5 if f"{step:g}"[0] == "2" else 2
    return [0.0, *(step * each for each in range(1, 5) if step * each < most + step)]


def bars(name: str, labels: Sequence[str], bands: Sequence[tuple[float, float, float] | None]) -> str:
    """Return bars with the ends of their bands (mean, low, high); a missing one leaves its place empty."""
    height, most = 190.0, max((band[2] for band in bands if band is not None), default=1.0)
    steps = _steps(most)
    top, scale = steps[-1] or 1.0, height - BOTTOM - TOP
    width = (WIDTH - LEFT) / max(1, len(labels))

    def at(value: float) -> float:
        return TOP + scale * (1 - value / top)

    body = [part for step in steps for part in (
        _line(LEFT, at(step), WIDTH, at(step), GRID), _label(LEFT - 5, at(step) + 4, f"{step:g}", "end"),
    )]  # fmt: skip
    for place, (label, band) in enumerate(zip(labels, bands, strict=True)):
        x = LEFT + width * place
        body.append(_label(x + width / 2, height - 7, label))
        if band is not None:
            mean, low, high = (max(0.0, each) for each in band)
            body.append(
                f'<rect x="{x + width * 0.15:.1f}" y="{at(mean):.1f}" width="{width * 0.7:.1f}" '
                f'height="{at(0) - at(mean):.1f}" fill="{PALE}"/>'
            )
            body.append(_line(x + width / 2, at(high), x + width / 2, at(low), BAND, 1.5))
            body += [_line(x + width * 0.35, at(end), x + width * 0.65, at(end), BAND, 1.5) for end in (low, high)]
    return _svg(name, height, body)


def week(name: str, weekdays: Sequence[str], means: Sequence[float | None]) -> str:
    """Return a week as seven rows of 24 hours, the darker the fuller; the largest value has the darkest colour."""
    cell, row = (WIDTH - LEFT) / 24, 20.0
    most = max((mean for mean in means if mean is not None), default=0.0) or 1.0
    body = [_label(LEFT + cell * hour, TOP + 4, str(hour), "start") for hour in range(0, 24, 3)]
    for place, mean in enumerate(means):
        day, hour = divmod(place, 24)
        if mean is not None:
            strength = min(1.0, max(0.0, mean) / most)
            body.append(
                f'<rect x="{LEFT + cell * hour:.1f}" y="{TOP + 9 + row * day:.1f}" width="{cell - 1:.1f}" '
                f'height="{row - 1:.1f}" fill="{INK}" fill-opacity="{0.05 + 0.95 * strength:.3f}"/>'
            )
    body += [_label(LEFT - 5, TOP + 23 + row * day, text, "end") for day, text in enumerate(weekdays)]
    return _svg(name, TOP + 9 + 7 * row + 4, body)


def two_days(name: str, now: Sequence[float | None], before: Sequence[float | None]) -> str:
    """Return a day by hours, of this month as a strong line, of the month before as a thin dashed one."""
    height = 170.0
    steps = _steps(max((each for each in (*now, *before) if each is not None), default=1.0))
    top, scale, cell = steps[-1] or 1.0, height - BOTTOM - TOP, (WIDTH - LEFT) / 24

    def at(value: float) -> float:
        return TOP + scale * (1 - max(0.0, value) / top)

    body = [part for step in steps for part in (
        _line(LEFT, at(step), WIDTH, at(step), GRID), _label(LEFT - 5, at(step) + 4, f"{step:g}", "end"),
    )]  # fmt: skip
    body += [_label(LEFT + cell * (hour + 0.5), height - 7, str(hour)) for hour in range(0, 24, 3)]
    for line, style in ((before, f'stroke="{BAND}" stroke-width="1.2" stroke-dasharray="4 3"'),
                        (now, f'stroke="{INK}" stroke-width="2.2"')):  # fmt: skip
        points = [
            f"{LEFT + cell * (hour + 0.5):.1f},{at(mean):.1f}" for hour, mean in enumerate(line) if mean is not None
        ]
        if points:
            body.append(f'<polyline points="{" ".join(points)}" fill="none" {style}/>')
    return _svg(name, height, body)
