"""Drawings of a report: places and sizes follow from values, and texts are escaped."""

from __future__ import annotations

import re

import pytest

from connectors.documents.charts import BAND, BOTTOM, INK, LEFT, PALE, TOP, WIDTH, _steps, bars, two_days, week

BASE = 190.0 - BOTTOM


def numbers(pattern: str, drawing: str) -> list[tuple[float, ...]]:
    found = re.findall(pattern, drawing)
    return [tuple(map(float, (each,) if isinstance(each, str) else each)) for each in found]


@pytest.mark.parametrize(
    ("most", "steps"),
    [
        (-9, [0]),
        (0, [0]),
        (1, [0, 1]),
        (4, [0, 1, 2, 3, 4]),
        (7, [0, 2, 4, 6, 8]),
        (12, [0, 5, 10, 15]),
        (100, [0, 50, 100]),
    ],
)
def test_an_axis_has_round_numbers_up_to_the_largest_value(most: float, steps: list[float]) -> None:
    assert _steps(most) == steps


def test_a_bar_reaches_from_zero_to_its_mean_and_its_band_from_end_to_end() -> None:
    drawing = bars("Days", ["Mon", "Tue"], [(4.0, 2.0, 8.0), None])
    scale = BASE - TOP
    rectangle = rf'<rect x="([\d.]+)" y="([\d.]+)" width="[\d.]+" height="([\d.]+)" fill="{PALE}"/>'
    [(_, top, height)] = numbers(rectangle, drawing)
    assert (top, height) == pytest.approx((TOP + scale / 2, scale / 2), abs=0.1)
    [vertical, *ends] = numbers(rf'y1="([\d.]+)" x2="[\d.]+" y2="([\d.]+)" stroke="{BAND}"', drawing)
    assert vertical == pytest.approx((TOP, TOP + scale * 0.75), abs=0.1)
    assert len(ends) == 2
    assert ">Tue<" in drawing, "a day without a band has its place"


def test_a_band_below_zero_ends_at_zero() -> None:
    """Noise may have made every mean and band of a quiet month negative."""
    assert f'y2="{BASE:.1f}" stroke="{BAND}"' in bars("Days", ["Mon"], [(-9.0, -12.0, -5.0)])
    drawing = bars("Days", ["Mon"], [(-3.0, -8.0, 4.0)])
    assert f'y2="{BASE:.1f}" stroke="{BAND}"' in drawing
    assert 'height="0.0"' in drawing


def test_bars_share_the_width_and_nothing_is_divided_by_none_of_them() -> None:
    x = [at for (at,) in numbers(rf'<rect x="([\d.]+)"[^>]*fill="{PALE}"', bars("n", ["a", "b"], [(1, 1, 1)] * 2))]
    assert x[1] - x[0] == pytest.approx((WIDTH - LEFT) / 2, abs=0.1)
    assert bars("n", [], []).startswith("<svg")


def test_the_fullest_hour_of_a_week_is_the_darkest_and_a_missing_one_is_not_drawn() -> None:
    means: list[float | None] = [None] * (7 * 24)
    means[8], means[24 + 8], means[24 + 9] = 10.0, 5.0, -2.0
    drawing = week("Week", ["Mon", "Tue"], means)
    cells = numbers(rf'<rect x="([\d.]+)" y="([\d.]+)"[^>]*fill="{INK}" fill-opacity="([\d.]+)"', drawing)
    assert [opacity for *_, opacity in cells] == [1.0, 0.525, 0.05]
    assert cells[0][0] == cells[1][0] != cells[2][0]
    assert cells[1][1] - cells[0][1] == 20


def test_this_month_is_a_strong_line_and_the_one_before_a_dashed_one() -> None:
    drawing = two_days("Day", [4.0, None, 2.0], [1.0])
    lines = re.findall(r'<polyline points="([^"]+)" fill="none" stroke="(#\w+)" stroke-width="[\d.]+"( \S+)?', drawing)
    assert [(len(points.split()), colour, bool(dashed)) for points, colour, dashed in lines] == [
        (1, BAND, True), (2, INK, False)
    ]  # fmt: skip
    assert "<polyline" not in two_days("Day", [None], [None])


def test_a_name_is_text_wherever_it_stands() -> None:
    drawing = bars('<b>"x"', ["<i>"], [None])
    assert "<b>" not in drawing
    assert "<i>" not in drawing
    assert 'aria-label="&lt;b&gt;&quot;x&quot;"' in drawing
