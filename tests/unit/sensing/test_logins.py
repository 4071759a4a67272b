"""The state of logins: what is stored, what another policy keeps of it, and which batches a site takes."""

from __future__ import annotations

from typing import Any

import pytest

from stream.pipeline import Pipeline
from stream.records import DAY, HOUR, MINUTE, Columns, Heartbeat, ObservationBatch, OccupancyWindow, Rejected, Row
from stream.release.validation import Policy, load_policy
from stream.sensing.logins import LoginState
from stream.sensing.occupancy import ROWS_A_DEVICE
from tests.support.day_policies import day_release
from tests.support.small_building import SITE, SOURCES, access_point, laboratory, policy_text

NOON = 20_000 * DAY + 20 * HOUR
ANNE, BERT = "a" * 16, "b" * 16


def site(keys: str = "", residents: str = "count", identity: str = "login") -> Policy:
    given = f'day_starts = "04:00"\ncontribution = "8h"\nresidents = "{residents}"\nidentity = "{identity}"\n{keys}'
    return load_policy(policy_text(day_release(), site=given))


class Engine:
    """The first stage of a site, and its state."""

    def __init__(self, policy: Policy, state: bytes | None = None) -> None:
        self.policy = policy
        self.stage = Pipeline(policy, SITE, laboratory()).stages.occupancy
        self.state = self.stage.initial() if state is None else self.stage.decode(state)
        self.sequence = 0

    def hear(self, *rows: tuple[int, int, str, str | None], identity: str | None = "") -> list[Any]:
        """Take rows of (minute, device, zone, login)."""
        heard = [Row(f"{device:016x}", access_point(zone), NOON + minute * MINUTE) for minute, device, zone, _ in rows]
        columns = Columns.of(heard).with_logins([login for *_, login in rows])
        terms = self.policy.site[SITE].login_terms if identity == "" else identity
        days = self.policy.site[SITE].privacy_days
        assert days is not None
        batch = ObservationBatch(SITE, SOURCES[0], NOON, self.sequence, columns, days.at(NOON), terms)
        self.sequence += 1
        return self.stage.step(self.state, batch)[1]

    def until(self, minute: int) -> list[OccupancyWindow]:
        found = []
        for source in SOURCES:
            beat = Heartbeat(SITE, source, NOON, NOON + minute * MINUTE)
            found += [each for each in self.stage.step(self.state, beat)[1] if isinstance(each, OccupancyWindow)]
        return found

    def again(self, policy: Policy | None = None) -> Engine:
        """Return an engine that goes on from the stored state."""
        engine = Engine(policy or self.policy, self.stage.encode(self.state))
        engine.sequence = self.sequence
        return engine


def test_a_batch_by_other_rules_or_by_none_is_refused() -> None:
    engine = Engine(site())
    for identity in (None, "0" * 16):
        assert engine.hear((1, 1, "a", ANNE), identity=identity) == [Rejected(SOURCES[0], "epoch", "identity")]
    devices = Engine(site(identity="device"))
    assert devices.hear((1, 1, "a", ANNE), identity="0" * 16) == [Rejected(SOURCES[0], "epoch", "identity")]


def test_the_state_goes_on_where_it_was_and_its_bytes_do_not_depend_on_the_order_of_rows() -> None:
    rows = [(1, 1, "a", ANNE), (2, 2, "b", ANNE), (3, 1, "b", None), (4, 3, "c", None), (16, 1, "c", BERT)]
    one, other = Engine(site('others = "count"\n')), Engine(site('others = "count"\n'))
    one.until(0), other.until(0)
    one.hear(*rows)
    other.hear(*rows[::-1])
    assert one.again().state == one.state
    one, other = one.again(), other.again()
    assert [window.counts for window in one.until(20)] == [window.counts for window in other.until(20)]
    assert one.state.logins is not None
    assert one.state.logins.bound == {"1".zfill(16): ANNE, "2".zfill(16): ANNE}
    assert one.again().state == one.state


@pytest.mark.parametrize(
    "other", [site('others = "count"\n'), site(identity="device"), site('shared_logins = ["x"]\n')]
)
def test_under_other_rules_nobody_is_present_and_nothing_bounded_is_counted_until_the_next_day(other: Policy) -> None:
    engine = Engine(site())
    engine.until(0)
    engine.hear((10, 1, "a", ANNE), (20, 2, "a", BERT))
    assert [window.bounded and sum(window.bounded) for window in engine.until(16)] == [0, 1]
    later = engine.again(other)
    windows = later.until(46)
    assert windows
    assert all(window.bounded is None and not sum(window.counts) for window in windows)
    assert (later.state.logins is None) is (other.site[SITE].identity == "device")


def test_more_devices_of_logins_than_a_site_may_have_suspend_it() -> None:
    engine = Engine(site("max_devices = 3\n"))
    engine.until(0)
    assert engine.hear(*((1, device, "a", ANNE) for device in range(3))) == []
    [refused] = engine.hear((2, 0, "a", BERT))
    assert (refused.reason, engine.state.suspended) == ("site_shut", True)
    assert engine.state.logins is not None
    assert not [*engine.state.logins.devices()]


def test_more_rows_of_logins_than_a_site_may_buffer_suspend_it() -> None:
    """Not the number of devices alone is bounded: one device may send any number of rows."""
    engine = Engine(site("max_devices = 3\n"))
    engine.until(0)
    assert engine.hear(*[(1, 1, "a", ANNE)] * (3 * ROWS_A_DEVICE)) == []
    [refused] = engine.hear((1, 1, "a", ANNE))
    assert (refused.reason, engine.state.suspended) == ("site_shut", True)


def test_residents_are_stored() -> None:
    policy = site(residents="ignore")
    engine = Engine(policy)
    engine.until(0)
    engine.hear((10, 1, "a", ANNE))
    engine.until(16)
    assert engine.state.logins is not None
    engine.state.logins.residents = {next(iter(engine.state.logins.seen)): 2}
    assert engine.again().state == engine.state


def test_a_day_begins_with_nobody_present_and_no_device_bound() -> None:
    engine = Engine(site(residents="ignore"))
    engine.until(0)
    engine.hear((10, 1, "a", ANNE))
    engine.until(16)
    held = engine.state.logins
    assert held is not None
    assert (len(held.current), len(held.bound), len(held.seen)) == (1, 1, 1)
    assert held.day is not None
    tomorrow = held.day._replace(number=held.day.number + 1)
    held.begin(tomorrow)
    assert held == LoginState(tomorrow)
