"""The status of a site before and after its first window, read from a state without any key."""

from __future__ import annotations

from connectors.operations.status import SiteStatus, describe
from stream.engine.snapshot import SnapshotHead, seal_site, seal_snapshot
from stream.pipeline import Pipeline
from stream.records import Heartbeat, ObservationBatch
from stream.release.stage import MECHANISM_VERSION
from stream.schemas import rfc3339
from tests.support.small_building import COUNTS, EVENING, SITE, building, laboratory, messages, people

POLICY = building(releases=COUNTS)
HEAD = SnapshotHead(7, 0, POLICY.version, MECHANISM_VERSION, "key", None)


def status_after(log: list[ObservationBatch | Heartbeat]) -> SiteStatus:
    """Return what is known of the site once these messages have been processed."""
    pipeline = Pipeline(POLICY, SITE, laboratory())
    state = pipeline.initial()
    for message in log:
        state, _ = pipeline.step(state, message)
    status = describe(seal_snapshot(HEAD, {SITE: seal_site(SITE, pipeline.encode(state))}), POLICY)
    assert (status["next"], status["policy_version"]) == (7, POLICY.version)
    return status["sites"][SITE]


def test_a_site_that_nothing_was_heard_from_has_no_times_and_its_whole_budget() -> None:
    status = status_after([])
    assert (status["watermark"], status["last_window"]) == (None, None)
    assert (status["ledger_entries"], status["closed"]) == (0, False)
    assert status["releases_left_today"]["plain/board"] == 40, "a budget of 10 pays for 40 windows at 0.25"
    assert status["releases_left_today"]["plain/facilities"] is None


def test_a_site_that_was_heard_has_the_times_that_it_reached() -> None:
    status = status_after(list(messages(people(hours=1, devices=2), POLICY)))
    assert status["watermark"] is not None
    assert status["last_window"] is not None
    assert rfc3339(EVENING) < status["last_window"] <= status["watermark"]
    assert status["ledger_entries"] > 0
