"""Republished records have the same bytes, as far as the ledger proves it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import orjson
import pytest

from stream.encoding import encode_message
from stream.engine.outputs import OutputRecord
from stream.engine.partition import PartitionEngine
from stream.engine.republication import Republication
from stream.errors import AuditError, UsageError
from stream.pipeline import DEFAULTS
from stream.records import Heartbeat, ObservationBatch
from stream.release.stage import MECHANISM_VERSION
from stream.release.validation import Policy
from stream.schemas import AUDIT, is_private
from tests.support.small_building import SITE, Seen, building, laboratory, messages, people

RELEASES = """
[[release]]
name = "smooth"
query = "count"
mechanism = "filter"
epsilon = { board = "1" }
revise = ["1h"]
queries = [{ name = "hourly", kind = "window-sum", windows = 4 }]
[[release]]
name = "plain"
query = "count"
mechanism = "laplace"
zones = { kind = "office" }
epsilon = { public = "0.5" }
daily_budget = { public = "10" }
"""
POLICY = building(releases=RELEASES)
SEEN = people(hours=18, devices=6)


def log_of(seen: Sequence[Seen], policy: Policy = POLICY) -> list[bytes]:
    return [encode_message(message) for message in messages(seen, policy)]


def live(log: Iterable[bytes]) -> list[OutputRecord]:
    engine = PartitionEngine(POLICY, laboratory())
    return [output for offset, value in enumerate(log) for output in engine.process(offset, None, value)]


LOG = log_of(SEEN)


@cache
def outputs() -> list[OutputRecord]:
    """What was published before the observations came to their end."""
    return live(LOG[: len(LOG) * 3 // 4])


@cache
def entries() -> list[bytes]:
    return [output.value for output in outputs() if output.topic == AUDIT]


@cache
def records() -> dict[str, bytes]:
    return {output.id: output.value for output in outputs() if is_private(output.topic)}


def made(
    log: Iterable[bytes] = LOG, published: dict[str, bytes] | None = None, lost: Iterable[str] = (),
    versions: Sequence[str] = (MECHANISM_VERSION,),
) -> Republication:  # fmt: skip
    kept = {name: value for name, value in (published or records()).items() if name not in set(lost)}
    republication = Republication(POLICY, [], laboratory(), DEFAULTS, entries(), kept, versions)
    for value in log:
        republication.take(SITE, value)
    republication.finish()
    return republication


def as_published(republication: Republication) -> dict[str, bytes]:
    return {output.id: output.value for output in republication.lost}


@pytest.mark.parametrize("every", [1, 7, *(pytest.param(each, marks=pytest.mark.long) for each in (2, 1000))])
def test_what_is_lost_is_made_again_with_its_bytes_and_nothing_more(every: int) -> None:
    """Free records too: revisions and answers to queries, which have no entries."""
    lost = [*records()][::every]
    republication = made(lost=lost)
    assert as_published(republication) == {name: records()[name] for name in lost}
    assert republication.stopped == {}
    assert {name.split("/")[1] for name in records()} == {"smooth", "smooth-revised", "hourly", "plain"}


def test_what_the_ledger_has_not_come_to_is_not_published() -> None:
    republication = made(lost=records())
    assert as_published(republication) == records()


def test_behind_an_entry_of_other_observations_nothing_is_made() -> None:
    half = len(SEEN) // 2
    republication = made(log_of([*SEEN[:half], *SEEN[half + 40 :]]), lost=records())
    again = as_published(republication)
    assert 0 < len(again) < len(records())
    assert again.items() <= records().items()
    assert "made from other observations" in republication.stopped[SITE]


def test_observations_that_end_early_are_said() -> None:
    republication = made(LOG[: len(LOG) // 2], lost=records())
    assert as_published(republication).items() <= records().items()
    assert republication.stopped == {SITE: "the observations end before its ledger does"}


def test_a_record_that_is_there_with_other_bytes_ends_it() -> None:
    name = [*records()][3]
    with pytest.raises(AuditError, match=f"{name}: was published and would now differ"):
        made(published=records() | {name: b"{}"})


def test_what_another_mechanism_version_may_have_made_is_not_made_again() -> None:
    """An entry does not show the noise, so equal entries would not prove equal records."""
    with pytest.raises(UsageError, match="which of them made the entries is not known"):
        made(lost=records(), versions=["another", MECHANISM_VERSION])


def test_what_was_released_under_an_earlier_policy_is_made_again_under_it() -> None:
    earlier = building(releases=RELEASES.replace('public = "0.5"', 'public = "0.25"'))
    log = LOG[: len(LOG) // 2]
    half = len(log) // 2
    first, then = PartitionEngine(earlier, laboratory()), PartitionEngine(POLICY, laboratory(), accept_policy=True)
    outputs = [output for offset, value in enumerate(log[:half]) for output in first.process(offset, None, value)]
    then.restore(first.snapshot(half, 0))
    outputs += [output for value in log[half:-40] for output in then.process(half, None, value)]
    entries = [output.value for output in outputs if output.topic == AUDIT]
    assert {orjson.loads(value)["policy_version"] for value in entries} == {earlier.version, POLICY.version}
    republication = Republication(POLICY, [earlier, POLICY], laboratory(), DEFAULTS, entries, {}, [MECHANISM_VERSION])
    for value in log:
        republication.take(SITE, value)
    republication.finish()
    assert as_published(republication) == {output.id: output.value for output in outputs if is_private(output.topic)}
    assert republication.stopped == {}


def test_sites_without_a_ledger_are_left_alone() -> None:
    republication = Republication(POLICY, [], laboratory(), DEFAULTS, [], {}, [MECHANISM_VERSION])
    for value in LOG:
        republication.take(SITE, value)
    republication.finish()
    assert (republication.lost, republication.stopped) == ([], {})
    assert all(orjson.loads(value)["site"] == SITE for value in entries())


def test_a_message_that_closes_windows_beyond_the_ledger_publishes_none_of_these() -> None:
    """A heartbeat after an outage closes many windows; a run may have stopped between two of them."""
    of_an_outage = [item for item in messages(SEEN[:60], POLICY) if not isinstance(item, Heartbeat)]
    beats = [item for item in messages(SEEN[:60], POLICY) if isinstance(item, Heartbeat)]
    together: list[ObservationBatch | Heartbeat] = [*beats[:2], *of_an_outage, *beats[-2:]]
    log = [encode_message(item) for item in together]
    outputs = live(log)
    times = sorted({output.timestamp_ms for output in outputs if output.topic == AUDIT})
    entries = [out.value for out in outputs if out.topic == AUDIT and out.timestamp_ms <= times[1]]
    republication = Republication(POLICY, [], laboratory(), DEFAULTS, entries, {}, [MECHANISM_VERSION])
    for value in log:
        republication.take(SITE, value)
    republication.finish()
    assert len(times) > 4
    assert {output.timestamp_ms for output in republication.lost} == {*times[:2]}
