"""What is not known to be well is not well."""

from __future__ import annotations

from connectors.monitoring.monitor import STALL, Health


class Clock:
    """Seconds that go on when they are told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def broken() -> bool:
    raise OSError


def made(**checks: bool) -> tuple[Health, Clock]:
    clock = Clock()
    health = Health(clock)
    for name, well in checks.items():
        health.require(name, lambda well=well: well)  # type: ignore[misc]
    return health, clock


def test_a_service_is_ready_once_everything_was_found_well() -> None:
    health, _ = made(feed=True, key=True)
    assert (health.is_alive(), health.has_started(), health.is_ready()) == (True, False, False)
    health.check()
    assert (health.is_alive(), health.has_started(), health.is_ready()) == (True, True, True)


def test_one_check_that_fails_makes_it_not_ready_and_leaves_it_alive() -> None:
    health, _ = made(feed=True)
    health.check()
    health.require("broker", lambda: False)
    health.check()
    assert health.checks() == {"feed": True, "broker": False}
    assert (health.is_alive(), health.has_started(), health.is_ready()) == (True, True, False)


def test_a_check_that_cannot_say_is_not_well() -> None:
    health, _ = made()
    health.require("store", broken)
    health.check()
    assert health.checks() == {"store": False}
    assert not health.has_started()


def test_a_check_that_nobody_has_made_yet_is_not_well() -> None:
    health, _ = made(feed=True)
    health.check()
    health.require("broker", lambda: True)
    assert not health.is_ready()


def test_a_loop_that_hangs_is_neither_ready_nor_alive() -> None:
    health, clock = made(feed=True)
    health.check()
    clock.now += STALL
    assert (health.is_alive(), health.is_ready(), health.checks()) == (False, False, {"feed": False})
    health.check()
    assert (health.is_alive(), health.is_ready()) == (True, True)


def test_a_service_that_has_ended_is_nothing() -> None:
    health, _ = made(feed=True)
    health.check()
    assert not health.has_ended()
    health.end()
    health.check()
    assert health.has_ended()
    assert (health.is_alive(), health.has_started(), health.is_ready()) == (False, False, False)
