"""Every view of what was charged follows from the entries of the ledger, across budgets, attempts and policies."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import orjson
import pytest

from connectors.cli import policy_tables
from connectors.operations.policy import contracts, guarantees
from connectors.operations.policy import diff as policy_diff
from stream.accounting.account_state import AccountState
from stream.accounting.composition import EpsilonEvent, Laplace
from stream.accounting.costs import Cost
from stream.accounting.ledger import BudgetView, chain_hash
from stream.accounting.state_json import decode_totals, encode_totals
from stream.accounting.units import UNITS, Neighbours, Scope
from stream.pipeline import Options, Pipeline
from stream.records import MINUTE, Published
from stream.release.account_stage import AccountProgress, extend_account, rebuild_account
from stream.release.backfill import count_as_published
from stream.release.state import ReleaseState
from stream.schemas import AUDIT, parse_record
from tests.support.day_policies import day_release, day_site
from tests.support.small_building import ATTRIBUTES, COUNTS, EVENING, SITE, building, laboratory, messages, people

EACH_HOUR = """
[[release]]
name = "hourly"
query = "count"
mechanism = "ba"
w = 4
zones = { kind = "hall" }
epsilon = { board = "1" }
"""
STREAM = """
[[release]]
name = "crowded"
query = "threshold"
zones = { kind = "lobby" }
threshold = 4
events = 2
within = "30min"
unit = "run"
epsilon = { public = "0.5" }
daily_budget = { public = "4" }
"""
BY_DAY = day_release("whole-day", more='zones = { kind = ["hall", "lobby"] }\n')
POLICIES = (
    building(releases=COUNTS + ATTRIBUTES + EACH_HOUR, tick="30min"),
    building(releases=COUNTS + ATTRIBUTES + BY_DAY + STREAM, site=day_site(), tick="30min"),
    building(releases=COUNTS + BY_DAY + STREAM, site=day_site(day_starts="20:00"), tick="30min"),
)
"""Denials by budget, a release that pays for w windows, days that are paid whole and by runs, days defined anew."""


class Released:
    """The end state of a site under these policies one after another, and what it published."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.shown: dict[str, Any] = {}
        data: dict[str, bytes] | None = None
        hours = (0.0, 33.0, 48.0, 62.0)
        for policy, first, last in zip(POLICIES, hours, hours[1:], strict=False):
            start = EVENING + int(first * 60) * MINUTE
            pipeline = Pipeline(policy, SITE, laboratory(), Options())
            self.state = pipeline.initial() if data is None else pipeline.migrate(data)
            log = messages(people(hours=last - first, start=start, devices=8, every=20 * MINUTE), policy)
            for message in log:
                self.state, made = pipeline.step(self.state, message)
                self._read(made)
            data = pipeline.encode(self.state)
            self.state = pipeline.decode(data)

    def _read(self, made: list[Any]) -> None:
        for out in made:
            if isinstance(out, Published) and out.topic == AUDIT:
                self.entries.append(orjson.loads(out.value))
            elif isinstance(out, Published) and ".private." in out.topic:
                body = parse_record(out.value)
                if body["released"] and "value" in body:
                    self.shown[body["release_id"]] = body["value"]


@pytest.fixture(scope="module")
def released() -> Released:
    return Released()


def test_the_ledger_has_charges_and_denials_of_every_kind_of_release(released: Released) -> None:
    charged = {entry["release"] for entry in released.entries if entry["nano"]}
    assert charged == {"grouped", "plain", "smooth", "office-day", "hourly", "whole-day", "crowded"}
    assert {"released", "budget"} < {entry["outcome"] for entry in released.entries}
    assert {entry["audience"] for entry in released.entries} == {"facilities", "public", "board"}
    assert {entry["policy_version"] for entry in released.entries} == {policy.version for policy in POLICIES}


def test_the_head_of_the_chain_is_that_of_the_last_entry(released: Released) -> None:
    ledger, last = released.state.release.ledger, released.entries[-1]
    assert (ledger.sequence, ledger.head) == (last["sequence"] + 1, last["hash"])
    assert last["hash"] == chain_hash(last)


def test_what_budgets_and_attribute_limits_read_follows_from_the_entries(released: Released) -> None:
    found, live = ReleaseState(), released.state.release
    count_as_published(found, released.entries, {policy.version: policy for policy in POLICIES}, POLICIES[-1], SITE)
    assert found.ledger.budgets == live.ledger.budgets
    assert found.charged == live.charged
    assert found.queried_days == live.queried_days
    assert (found.closed, found.released_until) == (live.closed, live.released_until)


def test_the_account_follows_from_the_entries(released: Released) -> None:
    found, _ = rebuild_account(POLICIES, SITE, released.entries, released.shown)
    live = released.state.account
    for view in ("totals", "runs", "charged", "day_spend", "habits", "days"):
        assert getattr(found, view) == getattr(live, view), view


def test_the_total_of_each_reader_is_what_its_entries_cost(released: Released) -> None:
    """Of releases that pay by the window and have one audience only, the sum is that of the entries."""
    total = sum(Fraction(entry["nano"], 10**9) for entry in released.entries if entry["release"] == "smooth")
    windows = {
        (entry["release"], entry["window_end"]): Fraction(entry["epsilon"])
        for entry in released.entries
        if entry["audience"] == "public" and entry["release"] in {"grouped", "smooth"} and entry["nano"]
    }
    assert total > 0
    assert released.state.account.totals["public"].total.pure == sum(windows.values())


def test_each_unit_has_one_scope_and_neighbouring_relation() -> None:
    assert len(set(UNITS.values())) == len(UNITS)
    assert {unit.scope for unit in UNITS.values()} == set(Scope)
    replaced = {unit.scope for unit in UNITS.values() if unit.neighbours is Neighbours.REPLACE}
    assert replaced == set(Scope) - {Scope.TOTAL}


def test_the_budgets_of_the_rebuilt_account_are_those_of_the_releases(released: Released) -> None:
    """Attributes too are paid from the day on which their local day begins; budgets of counts may come to read it."""
    view = BudgetView()
    extend_account(AccountProgress(AccountState(), view, {}), POLICIES, SITE, released.entries, released.shown)
    assert view == released.state.release.ledger.budgets


def test_stored_totals_whose_epsilons_and_noise_change_at_different_windows_are_read_together() -> None:
    """Windows 1 and 2 cost one epsilon each, of different noise; the stored rows are those of an earlier version."""
    totals = decode_totals(
        ("3", "1", [(10, 10, 3, 20, "1")]), ({"pure 1": 2, "laplace 1": 1}, [(10, 0, 1, 20, {"laplace 1": 1}),
        (20, 10, 2, 20, {"pure 1": 1})]),
    )  # fmt: skip
    assert [(end, charge) for end, charge in totals.latest.windows()] == [
        (10, (20, Cost(Fraction(1), {Laplace(Decimal(1)): 1}))),
        (20, (20, Cost(Fraction(1), {EpsilonEvent(Decimal(1)): 1}))),
        (30, (20, Cost(Fraction(1), {EpsilonEvent(Decimal(1)): 1}))),
    ]
    assert decode_totals(*encode_totals(totals)) == totals


def test_reports_describe_every_unit_and_name_no_other() -> None:
    informed = {"temporal", "meeting"}
    assert (
        guarantees.UNITS.keys() - informed == UNITS.keys() == contracts.Units.model_fields.keys() - informed - {"tight"}
    )
    assert len(set(guarantees.UNITS.values())) == len(guarantees.UNITS)
    assert guarantees.UNITS["person_w_event"] == "one person, {w} windows"
    assert guarantees.UNITS["tuple_moved"] == "one device at one tick, elsewhere instead"
    assert guarantees.COUNTED["device_w_event"] == "one person, one cell in each of {w} windows"
    assert {*policy_diff.COMPARED, *policy_tables._SHOWN} < UNITS.keys()
