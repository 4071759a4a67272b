"""The account of a month of both kinds of release, recomputed from the audit log with dp-accounting.

``Recomputed`` reads ledger entries, the scales that records name, and the few numbers of the policy that stand below;
it shares no code with the account. Its estimates are on both sides of the true price, so that the account may be
neither too small nor much too large: what the stream says by at most 7 %, what is asked for exactly by half a percent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import orjson
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from stream.pipeline import Pipeline
from stream.records import MINUTE
from stream.release.account_stage import rebuild_account
from stream.release.validation import Policy
from stream.schemas import LEAKAGE
from tests.support.day_policies import day_release, day_site, shared
from tests.support.small_building import SITE, audit_of, bodies, building, laboratory, messages, people, run

K = 8
"""Four hours of ticks of half an hour."""
OBSERVED = 1
"""Ticks at which one observation counts: 10 minutes."""
DELTA = 1e-6
DEVICES = 3
WINDOW = 0.05
PERTURBED, GROUPED = 0.008, 0.002
"""PeGaSus spends four fifths of its epsilon on Laplace noise; the rest is a grouper's, and added at face value."""
READERS = {"public": {"public"}, "facilities": {"facilities"}, "all": {"public", "facilities"}}
RELEASES = day_release(public="1", facilities="2", more=shared(floor="0.25", building="0.75"))
RELEASES += f"""
[[release]]
name = "window"
query = "count"
mechanism = "plain"
epsilon = {{ public = "{WINDOW}" }}
daily_budget = {{ public = "2" }}

[[release]]
name = "grouped"
query = "count"
mechanism = "pegasus"
epsilon = {{ facilities = "0.01" }}
"""
POLICY: Policy = building(releases=RELEASES, tick="30min", site=day_site("4h"))


class Month(NamedTuple):
    """What came of some days."""

    days: int
    entries: list[dict[str, Any]]
    """Of the ledger."""
    records: list[dict[str, Any]]
    """Of the account."""
    scales: dict[str, dict[str, float]]
    """Audience -> scale of each level's noise, as records name it."""


@pytest.fixture(scope="module", params=[4, pytest.param(30, marks=pytest.mark.long)], ids=["days", "month"])
def month(request: pytest.FixtureRequest) -> Month:
    """Return four days, and each night a month."""
    seen = people(hours=24 * request.param - 9, devices=2, every=25 * MINUTE)
    outputs = run(Pipeline(POLICY, SITE, laboratory()), messages(seen, POLICY))
    scales = {
        body["audience"]: {
            "building": body["levels_noise_scale"]["building"], "floor": body["levels_noise_scale"]["floor"]["1"]
        }
        for body in bodies(outputs, "private")
        if body["release"] == "day" and body["released"]
    }  # fmt: skip
    return Month(request.param, audit_of(outputs), bodies(outputs, LEAKAGE), scales)


class Price(NamedTuple):
    """What lies on either side of a true epsilon at delta."""

    least: float
    most: float


class Recomputed:
    """What the ledger adds up to for a reader, up to and with the window of its last entry."""

    def __init__(self, entries: Iterable[Mapping[str, Any]], scales: Mapping[str, Mapping[str, float]], reader: str):
        paid = [e for e in entries if e["audience"] in READERS[reader] and e["outcome"] == "released"]
        self._last = max(e["window_end"] for e in entries)
        self._windows = [e["window_end"] for e in paid if e["release"] == "window"]
        self._grouped = [e["window_end"] for e in paid if e["release"] == "grouped"]
        self._days = {privacy_day(e["window_end"]) for e in paid if e["release"] == "day" and e["nano"]}
        finest = min((scales[audience] for audience in READERS[reader]), key=lambda each: each["building"])
        self._scales = [finest["floor"], finest["building"]]

    def units(self) -> dict[str, Price]:
        today = privacy_day(self._last)
        windows, grouped = (self._of_day(ends, today) for ends in (self._windows, self._grouped))
        now = [sum(end == self._last for end in ends) for ends in (self._windows, self._grouped)]
        total = len(self._days), len(self._windows), len(self._grouped)
        return {
            "device_total": self._price(K * total[0], *total[1:]),
            "person_total": self._price(K * total[0], *total[1:], group=DEVICES),
            "device_day": self._price(K * (today in self._days), windows, grouped),
            "device_day_moved": self._price(2 * K * (today in self._days), 2 * windows, 2 * grouped),
            "observation": self._price(2 * K * (today in self._days), *(2 * OBSERVED * n for n in now)),
        }

    @staticmethod
    def _of_day(ends: Iterable[str], today: str) -> int:
        """Every tick of the day so far, and the first ones twice, where one of the day before counts, too."""
        own = sum(privacy_day(end) == today for end in ends)
        return own + min(own, OBSERVED)

    def _price(self, cells: int, windows: int, grouped: int, group: int = 1) -> Price:
        noise = {WINDOW: windows, PERTURBED: grouped}
        added = group * grouped * GROUPED
        return Price(*(composed(self._scales, cells, noise, group, sure) + added for sure in (False, True)))


def composed(scales: Iterable[float], cells: int, noise: Mapping[float, int], group: int, sure: bool) -> float:
    """Return epsilon at delta of so many cells of every level, and of Laplace noise of each epsilon."""
    return _composed(tuple(scales), cells, tuple(noise.items()), group, sure)


@cache
def _composed(
    scales: tuple[float, ...], cells: int, noise: tuple[tuple[float, int], ...], group: int, sure: bool
) -> float:
    parts = [_times(_gaussian, scale, cells, group, sure) for scale in scales if cells]
    parts += [_times(_laplace, epsilon, times, group, sure) for epsilon, times in noise if times]
    total = parts[0]
    for part in parts[1:]:
        total = total.compose(part)
    return float(total.get_epsilon_for_delta(DELTA))


@cache
def _times(law: Callable[[float, int, bool], Any], size: float, times: int, group: int, sure: bool) -> Any:
    """Return a law composed with itself: readers, units and times share many of these."""
    one = law(size, group, sure)
    return one.self_compose(times) if times > 1 else one


STEP = 1e-4
"""Of the loss; a whole fraction of what a window of Laplace noise loses, which therefore is not rounded."""


@cache
def _gaussian(scale: float, group: int, sure: bool) -> Any:
    return pld.from_discrete_gaussian_mechanism(
        scale, sensitivity=group, value_discretization_interval=STEP, pessimistic_estimate=sure
    )


@cache
def _laplace(epsilon: float, group: int, sure: bool) -> Any:
    return pld.from_discrete_laplace_mechanism(
        epsilon, sensitivity=group, value_discretization_interval=STEP, pessimistic_estimate=sure
    )


def privacy_day(end: str) -> str:
    """Return the date of the privacy day whose window ends then: from four, local time, to four."""
    local = (datetime.fromisoformat(end) - timedelta(seconds=1)).astimezone(ZoneInfo("America/Los_Angeles"))
    return (local - timedelta(hours=4)).date().isoformat()


# ---- comparison ----------------------------------------------------------------------------------------


def test_the_month_has_days_that_were_paid_and_windows_that_were_denied(month: Month) -> None:
    days_in_all, entries, _, _ = month
    days = [e for e in entries if e["release"] == "day" and e["audience"] == "public"]
    assert days_in_all <= sum(e["nano"] > 0 for e in days) <= days_in_all + 1
    assert {e["nano"] for e in days} == {0, 10**9}
    assert {e["outcome"] for e in entries if e["release"] == "window"} == {"released", "budget"}


@pytest.mark.parametrize("reader", READERS)
def test_the_scales_of_a_day_cost_its_price(month: Month, reader: str) -> None:
    scales = month.scales
    levels = min((scales[audience] for audience in READERS[reader]), key=lambda each: each["building"])
    epsilon = 1 if reader == "public" else 2
    assert composed(levels.values(), K, {}, 1, sure=False) <= epsilon
    assert composed(levels.values(), K, {}, 1, sure=True) >= 0.99 * epsilon


@pytest.mark.parametrize("reader", READERS)
def test_the_account_is_what_the_log_adds_up_to(month: Month, reader: str) -> None:
    """In the middle of a day, at the end of the month, and exactly where that is asked for."""
    _, entries, records, scales = month
    for record in (records[100], records[-1]):
        until = [e for e in entries if e["window_end"] <= record["window_end"]]
        output = (record["coalition"] if reader == "all" else record["audiences"][reader])["tight"]
        for unit, price in Recomputed(until, scales, reader).units().items():
            assert price.least - 1e-6 <= output[unit]["epsilon"] <= 1.07 * price.most, unit
            assert output[unit]["delta"] == DELTA


def test_the_account_made_exactly_is_no_more_than_half_a_percent_above(month: Month) -> None:
    _, entries, _, scales = month
    _, made = rebuild_account([POLICY], SITE, entries, {}, exact=True)
    last = orjson.loads(made[-1].value)
    for reader in READERS:
        output = (last["coalition"] if reader == "all" else last["audiences"][reader])["tight"]
        for unit, price in Recomputed(entries, scales, reader).units().items():
            assert price.least - 1e-6 <= output[unit]["epsilon"] <= 1.005 * price.most, unit
