"""Machines of the simulated building that are always on, and counts where residents are ignored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from connectors.operations.policy.quality import sensed
from stream.errors import UsageError
from stream.lab.simulator.events import DAY_SHOWN, Simulation, SimulatorConfig, simulate
from stream.lab.simulator.radio import IDLE_TIMEOUT, NEXT_FRAME
from stream.lab.simulator.visits import DeviceClass
from stream.records import HOUR, MINUTE, SECOND, OccupancyWindow
from stream.sensing.contribution import ContributionBound

MACHINES = 75
CONFIG = SimulatorConfig(days=2, seed=1, scale=0.45, always_on=MACHINES)
WITHOUT = SimulatorConfig(days=2, seed=1, scale=0.45)
V, T = 10 * MINUTE, 5 * MINUTE


@pytest.fixture(scope="module")
def made() -> Simulation:
    return simulate(CONFIG)


def machines(run: Simulation) -> np.ndarray:
    """Indices of the devices that are always on: the first static ones."""
    static: np.ndarray = np.flatnonzero(run.device_class == DeviceClass.STATIC)[:MACHINES]
    return static


def by_day(*, ignore: bool) -> ContributionBound:
    return ContributionBound("04:00", "America/Los_Angeles", 288, ignore, T, V)


def whole_day(run: Simulation, definition: ContributionBound) -> list[OccupancyWindow]:
    """Windows of the privacy day from 04:00 to 04:00, the first that a run has whole."""
    start = run.start + 4 * HOUR
    windows = sensed(run, T, V, definition).windows
    return [window for window in windows if start < window.window_end <= start + 24 * HOUR]


def counts(run: Simulation, definition: ContributionBound) -> np.ndarray:
    """Bounded counts of every zone at each tick of that day."""
    return np.array([window.bounded for window in whole_day(run, definition)])


def without_machines(run: Simulation) -> Simulation:
    """The same run, of whose machines nothing was heard."""
    rows = np.isin(run.device, machines(run), invert=True)
    return replace(run, time=run.time[rows], device=run.device[rows], access_point=run.access_point[rows])


def test_a_machine_is_heard_again_before_it_is_forgotten_and_present_at_every_tick(made: Simulation) -> None:
    ticks = np.arange(made.start + T, made.end + 1, T)
    for device in machines(made):
        times = made.time[made.device == device]
        assert np.diff(times).max() <= (IDLE_TIMEOUT + NEXT_FRAME) * SECOND < V
        last = times[np.searchsorted(times, ticks, side="right") - 1]
        assert (ticks - last < V).all()


def test_a_machine_is_present_at_99_of_100_ticks_of_a_privacy_day(made: Simulation) -> None:
    """An observation of before 04:00 does not count after it: at the first tick not all have been heard again."""
    start = made.start + 4 * HOUR
    ticks = np.arange(start + T, start + 24 * HOUR + 1, T)
    for device in machines(made):
        times = made.time[(made.device == device) & (made.time > start)]
        received = np.searchsorted(times, ticks, side="right") > 0
        assert received.mean() >= 0.99
        assert received[1:].all()


def test_all_other_events_are_the_same_with_machines_and_without(made: Simulation) -> None:
    plain = simulate(WITHOUT)
    rows = {run: set(zip(run.time.tolist(), run.device.tolist(), run.access_point.tolist(), strict=True))
            for run in (made, plain)}  # fmt: skip
    assert made.devices == plain.devices
    assert rows[plain] < rows[made]
    assert {device for _, device, _ in rows[made] - rows[plain]} == set(machines(made).tolist())


def test_ignoring_residents_takes_exactly_the_machines_out_of_the_counts(made: Simulation) -> None:
    """What is counted of each zone is what would be without them; counted, they are all there from the second tick."""
    people = without_machines(made)
    assert (counts(made, by_day(ignore=True)) == counts(people, by_day(ignore=True))).all()
    more = counts(made, by_day(ignore=False)).sum(axis=1) - counts(people, by_day(ignore=False)).sum(axis=1)
    assert more[1:].tolist() == [MACHINES] * 287


def test_of_the_day_shown_about_half_are_machines() -> None:
    """Public zones, over the day from 04:00 on: some 140 with machines, 70 without, as few stay longer than 8 h."""
    shown = simulate(replace(DAY_SHOWN, days=2))
    public = shown.building.popularity > 0
    windows = whole_day(shown, by_day(ignore=True)._replace(most=96))
    everybody, bounded = (
        np.array([getattr(window, which) for window in windows])[:, public].sum(axis=1).mean()
        for which in ("counts", "bounded")
    )
    assert everybody == pytest.approx(145, rel=0.1)
    assert bounded == pytest.approx(70, rel=0.1)
    assert everybody - bounded >= DAY_SHOWN.always_on


@pytest.mark.parametrize(
    ("wrong", "named"),
    [(-1, "must not be negative"), (82, "must be at most 81, the devices that never leave at this --scale, not 82")],
)
def test_more_machines_than_static_devices_are_refused(wrong: int, named: str) -> None:
    with pytest.raises(UsageError, match=f"^--always-on: {named}"):
        simulate(SimulatorConfig(seed=1, scale=0.45, always_on=wrong))


def test_a_day_of_no_machines_has_no_events_of_any() -> None:
    run = simulate(SimulatorConfig(seed=1, zones=2, scale=0.1))
    assert len(run.time) == len(set(zip(run.time.tolist(), run.device.tolist(), strict=True)))
