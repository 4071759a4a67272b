"""What the release stage really shows, counted, against the factors that the account streams.

Days are drawn from a joint distribution, zone by zone, and go through the stages as they run: release, ledger,
account. For every pattern of shown and withheld attributes that an audience, or all together, can see, the
share of zone-days whose attribute j was sensitive is a draw of Binomial(days with this pattern, q), where
q / (1 - q) = prior odds x the factor streamed. Prior odds are those of the joint that the days were drawn
from, so neither the formula nor the declared model is used twice.

The keys and the generator are seeded: a run always gives the same answer. Over seeds, each comparison would
fail by chance with probability at most ALPHA; there are fewer than 100 in this file: below 1e-6 in all. The
99.9 % intervals (z = 3.3) of which these are wider ones (z = 5.7) are counted too: at most one in twenty misses.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import orjson
import pytest
from scipy.stats import beta

import stream.release.attribute_stage
from stream.keys import LaboratoryKeys
from stream.mechanisms import osdprr
from stream.records import DAY, DayAttribute, DayClosed, Published, WindowCharges
from stream.release.account_stage import account_stage
from stream.release.stage import ReleaseStage
from stream.release.validation import Policy, load_policy
from stream.schemas import parse_time, rfc3339

ALPHA = 1e-8
ENOUGH = 120
"""Zone-days that a pattern needs to be compared."""
START = parse_time("2026-03-02T00:00:00Z")
ZONES, DAYS = 10, 20
"""Of each building. A ledger is looked through zone by zone: many small buildings are done sooner than a large one."""

VALUES: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "arrival": (("10:30",), ("09:00",)),
    "departure": (("15:00",), ("18:00",)),
    "breaks": ((5,), (1,)),
}
"""Attribute -> (values that are sensitive, values that are not)."""
SENSITIVE = {"arrival": '{ after = "10:00" }', "departure": '{ before = "16:00" }', "breaks": "{ above = 2 }"}
EPSILONS = {"arrival": ("1", "0.4"), "departure": ("0.5", "0.8"), "breaks": ("0.7", "0.3")}

ONE = {"0": 0.4, "1": 0.6}
TWO = {"00": 0.3, "01": 0.2, "10": 0.1, "11": 0.4}
THREE = {
    "000": 0.20, "001": 0.05, "010": 0.08, "011": 0.07, "100": 0.06, "101": 0.09, "110": 0.05, "111": 0.40,
}  # fmt: skip


def policy_of(joint: Mapping[str, float], *, cuts: str = "") -> Policy:
    """Return a policy of one release with as many attributes as the joint has digits, and two audiences."""
    names = list(VALUES)[: len(next(iter(joint)))]
    parts = ['[site.s]\nsources = ["127.0.0.1"]\n']
    for zone in range(ZONES):
        mac = f"02:00:00:00:00:{zone:02x}"
        parts.append(f'[[site.s.zones]]\nid = "z{zone}"\nkind = "office"\ncapacity = 1\naccess_points = ["{mac}"]\n')
    parts.append('[[audience]]\nname = "fine"\n[[audience]]\nname = "coarse"\n[[release]]\nname = "day"\n')
    patterns = ", ".join(f'"{pattern}" = {p}' for pattern, p in joint.items())
    parts.append(f'query = "attributes"\n[release.model]\njoint = {{ {patterns} }}\n{cuts}\n')
    for name in names:
        fine, coarse = EPSILONS[name]
        parts.append(
            f'[release.attributes.{name}]\nepsilon = {{ fine = "{fine}", coarse = "{coarse}" }}\n'
            f"sensitive = {SENSITIVE[name]}\n"
        )
    return load_policy("".join(parts))


Drawn = list[dict[str, tuple[str, Mapping[str, Any]]]]
"""Per day: zone -> (its pattern, its attributes' values)."""


Draws = Mapping[tuple[str, tuple[Any, ...]], float]
"""(pattern, values) -> probability."""


def days_of(policy: Policy, draws: Draws, rng: random.Random) -> Drawn:
    """Draw (pattern, values) for every zone and day of a building."""
    names = list(policy.release[0].attributes)  # type: ignore[union-attr]
    zones = [zone.id for zone in policy.site["s"].zones]
    chosen = rng.choices(list(draws), list(draws.values()), k=DAYS * len(zones))
    taken = iter(chosen)
    return [
        {zone: (pattern, dict(zip(names, values, strict=True))) for zone, (pattern, values) in zip(zones, taken)}  # noqa: B905
        for _ in range(DAYS)
    ]


def by_pattern(joint: Mapping[str, float]) -> Draws:
    """Return the draws of a joint with one value per class."""
    names = list(VALUES)
    return {
        (pattern, tuple(VALUES[name][int(digit)][0] for name, digit in zip(names, pattern, strict=False))): p
        for pattern, p in joint.items()
    }


def closed(drawn: Drawn) -> Iterator[DayClosed]:
    """Yield the days as the attribute stage would."""
    for number, zones in enumerate(drawn):
        end = START + (number + 1) * DAY
        day = rfc3339(end - DAY)[:10]
        records = tuple(
            DayAttribute("s", zone, day, name, value, end)
            for zone, (_, values) in zones.items()
            for name, value in values.items()
        )
        yield DayClosed("s", day, end, records)


Cells = dict[tuple[str, tuple[Any, ...], int], list[Any]]
"""(reader, what it saw of each attribute, attribute) -> [sensitive days, other days, streamed factor]."""


def observe(policy: Policy, draws: Draws, *, buildings: int, seed: int) -> Cells:
    """Run release and account over the days of some buildings; count what each reader saw and what was true."""
    cells: Cells = defaultdict(lambda: [0, 0, None])
    rng = random.Random(seed)
    for number in range(buildings):
        keys = LaboratoryKeys(bytes([7, number]) * 16, "ledger", b"\10" * 32)
        watch(policy, keys, days_of(policy, draws, rng), cells)
    return cells


def watch(policy: Policy, keys: LaboratoryKeys, drawn: Drawn, cells: Cells) -> None:
    """Count into the cells what is seen of one building."""
    release, account = ReleaseStage(policy, "s", keys), account_stage(policy, "s", laboratory=True)
    state, books = release.initial(), account.initial()
    for zones, day in zip(drawn, closed(drawn), strict=True):
        state, outputs = release.step(state, day)
        seen: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
        report: dict[str, Any] = {}
        for output in outputs:
            if isinstance(output, WindowCharges):
                books, [record] = account.step(books, output)
                report = orjson.loads(record.value)["attributes"]
            elif isinstance(output, Published) and ".private." in output.topic:
                body = orjson.loads(output.value)
                for reader in (body["audience"], "all"):
                    stored = seen[reader, body["zone"]]
                    stored[body["attribute"]] = body.get("value", stored.get(body["attribute"]))
        for (reader, zone), outcome in seen.items():
            pattern = zones[zone][0]
            for place, name in enumerate(outcome):
                cell = cells[reader, tuple(outcome.values()), place]
                cell[int(pattern[place])] += 1
                factor = report[f"{day.local_day}/{zone}/{name}"]["exact"][reader]
                assert cell[2] in (None, factor), "equal outcomes have equal factors"
                cell[2] = factor


def misses(cells: Cells, joint: Mapping[str, float], alpha: float) -> tuple[list[str], int]:
    """Return which cells lie outside their interval of confidence 1 - alpha, and how many were compared."""
    wrong, compared = [], 0
    for (reader, outcome, place), (sensitive, other, factor) in sorted(cells.items(), key=str):
        if sensitive + other < ENOUGH or outcome[place] is not None:
            assert outcome[place] is None or (sensitive, factor) == (0, 0.0)
            continue
        compared += 1
        prior = sum(p for pattern, p in joint.items() if pattern[place] == "0")
        low = beta.ppf(alpha / 2, sensitive, other + 1) if sensitive else 0.0
        high = beta.ppf(1 - alpha / 2, sensitive + 1, other) if other else 1.0
        odds = prior / (1 - prior) * (math.inf if factor == "inf" else factor)
        expected = 1.0 if math.isinf(odds) else odds / (1 + odds)
        if not low <= expected <= high:
            wrong.append(f"{reader} saw {outcome}: attribute {place} is {expected:.4f}, not in {low:.4f}..{high:.4f}")
    return wrong, compared


def compare(cells: Cells, joint: Mapping[str, float], least: int) -> None:
    """Assert that the factors streamed are those that happen, in at least so many comparisons."""
    wrong, compared = misses(cells, joint, ALPHA)
    assert not wrong
    assert least <= compared <= 36
    assert len(misses(cells, joint, 1e-3)[0]) <= max(1, compared // 20)


@pytest.mark.parametrize(
    ("joint", "buildings", "least"),
    [
        pytest.param(ONE, 4, 3, id="one"),
        pytest.param(TWO, 8, 3 * 4, id="two"),
        pytest.param(ONE, 24, 3, id="one, many days", marks=pytest.mark.long),
        pytest.param(TWO, 24, 3 * 4, id="two, many days", marks=pytest.mark.long),
        pytest.param(THREE, 45, 34, id="three attributes", marks=pytest.mark.long),
    ],
)
def test_odds_after_what_each_audience_and_all_together_saw_are_the_streamed_ones(
    joint: Mapping[str, float], buildings: int, least: int
) -> None:
    """Eight buildings are enough to find what the tests of coins below put in."""
    cells = observe(policy_of(joint), by_pattern(joint), buildings=buildings, seed=1)
    assert {reader for reader, _, _ in cells} == {"fine", "coarse", "all"}
    compare(cells, joint, least)


CUTS = '[release.model.cuts]\narrival = ["08:00", "10:01"]'
CLASSES = {"00": 0.05, "01": 0.25, "10": 0.20, "11": 0.20, "20": 0.25, "21": 0.05}
"""Arrival before 8, by 10 or late (sensitive), and departure: who comes early stays long."""


@pytest.mark.parametrize("buildings", [8, pytest.param(30, marks=pytest.mark.long)])
def test_a_shown_value_moves_the_odds_of_another_attribute_as_streamed(buildings: int) -> None:
    arrival = {"0": "07:30", "1": "09:00", "2": "11:00"}
    departure = {"0": "15:00", "1": "18:00"}
    binary = {"00": 0.25, "01": 0.05, "10": 0.25, "11": 0.45}
    draws = {
        (("0" if a == "2" else "1") + d, (arrival[a], departure[d])): CLASSES[a + d] for a, d in product("012", "01")
    }
    cells = observe(policy_of(CLASSES, cuts=CUTS), draws, buildings=buildings, seed=2)
    compare(cells, binary, 3 * 4)
    early, later = (cells["all", (value, None), 1][2] for value in ("07:30", "09:00"))
    # Departure is withheld at 0.8: e^0.8 times the odds that the shown class alone leaves, over the prior ones.
    assert early == pytest.approx(math.exp(0.8) * (0.05 / 0.25) / (0.5 / 0.5), abs=1e-8)
    assert later == pytest.approx(math.exp(0.8) * (0.20 / 0.20) / (0.5 / 0.5), abs=1e-8)


def test_coins_of_its_own_for_every_audience_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def own_coins(key: Any, *, site: Any, zone: Any, attribute: Any, day: Any, epsilon: Any) -> Any:
        return osdprr.released(key, site=site, zone=f"{zone}/{epsilon}", attribute=attribute, day=day, epsilon=epsilon)

    monkeypatch.setattr(stream.release.attribute_stage, "released", own_coins)
    wrong, _ = misses(observe(policy_of(TWO), by_pattern(TWO), buildings=8, seed=1), TWO, ALPHA)
    assert wrong
    assert all(line.startswith("all ") for line in wrong)


def test_one_coin_for_all_attributes_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_coin(key: Any, *, site: Any, zone: Any, attribute: Any, day: Any, epsilon: Any) -> Any:
        return osdprr.released(key, site=site, zone=zone, attribute="any", day=day, epsilon=epsilon)

    monkeypatch.setattr(stream.release.attribute_stage, "released", one_coin)
    assert misses(observe(policy_of(TWO), by_pattern(TWO), buildings=5, seed=1), TWO, ALPHA)[0]
