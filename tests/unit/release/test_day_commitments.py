"""Commitments of releases that are paid by the day refer to bounded counts."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.operations.audit.verification import compare_commitments
from stream.errors import AuditError
from stream.pipeline import Options, Pipeline
from stream.release.validation import Policy
from stream.schemas import OCCUPANCY
from tests.support.day_policies import day_release, day_site
from tests.support.small_building import PLAIN, SITE, audit_of, bodies, building, laboratory, messages, people, run

DAYS = day_site("2h")
RELEASES = day_release(public="2", more='zones = { kind = "hall" }\n')
RELEASES += """
[[release]]
name = "window"
query = "count"
mechanism = "laplace"
zones = { kind = "hall" }
epsilon = { facilities = "1" }
"""


def outputs_of(policy: Policy) -> list[Any]:
    return run(Pipeline(policy, SITE, laboratory(), Options(occupancy=True)), messages(people(), policy))


@pytest.fixture(scope="module")
def made() -> Any:
    """A policy, what a run under it wrote into the ledger, and the restricted records of its true counts."""
    policy = building(releases=RELEASES, site=DAYS)
    outputs = outputs_of(policy)
    return policy, audit_of(outputs), bodies(outputs, OCCUPANCY)


def test_restricted_records_hold_bounded_counts_beside_the_others(made: Any) -> None:
    device_ticks = {which: sum(sum(body[which].values()) for body in made[2]) for which in ("bounded", "counts")}
    assert 0 < device_ticks["bounded"] < device_ticks["counts"]
    assert not any("bounded" in body for body in bodies(outputs_of(building(releases=PLAIN)), OCCUPANCY))


def test_every_commitment_fits_the_counts_that_are_kept(made: Any) -> None:
    policy, entries, counted = made
    assert compare_commitments(entries, counted, [policy], laboratory()) == len(entries)


@pytest.mark.parametrize(("which", "release"), [("bounded", "day"), ("counts", "window")])
def test_changed_counts_are_noticed_by_the_release_that_reads_them(made: Any, which: str, release: str) -> None:
    policy, entries, counted = made
    first = counted[40]
    changed = {**first, which: {**first[which], "a": first[which]["a"] + 1}}
    with pytest.raises(AuditError, match="must have a commitment to the stored counts"):
        compare_commitments(entries, [changed], [policy], laboratory())
    others = [entry for entry in entries if entry["release"] != release]
    assert compare_commitments(others, [changed], [policy], laboratory()) == 1


@pytest.mark.parametrize("site", [SITE, "annex"])
def test_counts_of_other_zones_and_of_another_site_are_not_compared(made: Any, site: str) -> None:
    """A policy may come back after another one, and a site may have left it."""
    policy, entries, counted = made
    of_one = [{**entry, "site": site} for entry in entries]
    others = [{**body, "site": site, "counts": {"elsewhere": 9}} for body in counted]
    assert compare_commitments(of_one, others, [policy], laboratory()) == 0
