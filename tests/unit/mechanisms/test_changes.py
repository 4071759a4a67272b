"""The mechanism of changes: what it publishes is a function of the measured sums, whatever happens to windows."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from stream.errors import DataError, UsageError
from stream.mechanisms.base import Values
from stream.mechanisms.changes import mechanism as module
from stream.mechanisms.changes.factor import ORDERS
from stream.mechanisms.changes.filter import (
    LEARNT_SHARE,
    POLES,
    SIZE,
    NoiseLaw,
    _applied,
    _applied_left,
    _dot,
    learn,
    no_days,
    prior_of,
    smooth,
)
from stream.mechanisms.changes.mechanism import ChangeSums, DayTick
from stream.mechanisms.changes.noise import change_noise, check_chain
from stream.mechanisms.noise import Ints
from stream.mechanisms.noise_labels import Context, counts_digest
from tests.support.changed_days import Run, item, mechanism

F = Fraction
OFFICE = np.concatenate([np.zeros(20), np.linspace(0, 200, 20), np.full(80, 200), np.linspace(200, 0, 20)])


def counts(position: int, nodes: int = 2) -> Ints:
    return np.full(nodes, int(OFFICE[position]), np.int64) // np.arange(1, nodes + 1)


def bytes_of(values: Values) -> bytes:
    assert values.noisy is not None
    return b"".join(each.astype("<i8").tobytes() for each in (values.values, values.half_width, values.noisy))


def without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(
        _key: bytes, _context: Context, _digest: bytes, variances: list[Fraction], n: int
    ) -> dict[Fraction, Ints]:
        return {variance: np.zeros(n, np.int64) for variance in variances}

    monkeypatch.setattr(module, "change_noise", nothing)


def test_values_follow_the_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    without_noise(monkeypatch)
    run = Run(mechanism(2))
    for position in range(len(OFFICE)):
        made = run.tick(0, position, counts(position))
        assert made.noisy is not None
        assert made.noisy.tolist() == counts(position).tolist()


def test_values_are_a_function_of_the_measured_sums_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other counts, with noise that makes up for them, give the same bytes and the same state."""
    plain, other = Run(mechanism(2)), Run(mechanism(2))
    first = [plain.tick(0, position, counts(position)) for position in range(60)]
    made_up = iter(range(60))

    def compensated(
        key: bytes, context: Context, digest: bytes, variances: list[Fraction], n: int
    ) -> dict[Fraction, Ints]:
        position = next(made_up)
        drawn = real(key, item_of[position].context, digests[position], variances, n)
        return {variance: noise + shifts[position] for variance, noise in drawn.items()}

    real, sums = change_noise, ChangeSums(plain.mechanism.factor, 2)
    item_of, digests, shifts = [], [], []
    state, changed = sums.initial(), sums.initial()
    for position in range(60):
        state, [true] = sums.step(state, DayTick(0, position, counts(position)))
        changed, [shifted] = sums.step(changed, DayTick(0, position, counts(position) + (position >= 30)))
        item_of.append(item(plain.mechanism, 0, position, true))
        digests.append(counts_digest(true))
        shifts.append(true - shifted)
    monkeypatch.setattr(module, "change_noise", compensated)
    second = [other.tick(0, position, counts(position) + (position >= 30)) for position in range(60)]
    assert [bytes_of(each) for each in first] == [bytes_of(each) for each in second]
    assert plain.mechanism.encode(plain.state) == other.mechanism.encode(other.state)


def test_restart_within_the_day_changes_nothing() -> None:
    whole, broken = Run(mechanism(2)), Run(mechanism(2))
    for day in (0, 1):
        for position in range(140):
            first = whole.tick(day, position, counts(position))
            if position in (0, 50, 51, 139):
                broken.restart()
            second = broken.tick(day, position, counts(position))
            assert bytes_of(first) == bytes_of(second)
    assert whole.mechanism.encode(whole.state) == broken.mechanism.encode(broken.state)


def test_lost_windows_are_part_of_the_next_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts may do what they like where no window is released; the noisy count returns to the truth with the next."""
    without_noise(monkeypatch)
    run = Run(mechanism(2))
    for position in [*range(35), *range(70, 130)]:
        made = run.tick(0, position, counts(position))
        assert made.noisy is not None
        assert made.noisy.tolist() == counts(position).tolist()
    assert not any(run.state.released[35:70])


def test_rows_keep_their_position_where_windows_are_lost() -> None:
    """What is measured is a part of the rows of C'd for a day that holds still meanwhile: it is no larger."""
    sums = ChangeSums(mechanism(1).factor, 1)
    lossy, stored = sums.initial(), sums.initial()
    for position in range(60):
        kept = position < 30 or position > 44
        stored, [every] = sums.step(stored, DayTick(0, position, counts(position if kept else 29, 1)))
        if kept:
            lossy, [some] = sums.step(lossy, DayTick(0, position, counts(position, 1)))
            assert some.tolist() == every.tolist()


def test_day_begins_with_nothing_of_the_day_before(monkeypatch: pytest.MonkeyPatch) -> None:
    without_noise(monkeypatch)
    run = Run(mechanism(1))
    for position in range(60):
        run.tick(0, position, counts(position, 1))
    made = run.tick(1, 0, np.array([77]))
    assert made.noisy is not None
    assert made.noisy.tolist() == [77]
    assert run.exact.changes.tolist() == [[77]]
    assert run.state.measured.shape == (1, 1)


def test_noise_of_a_day_is_fresh() -> None:
    run = Run(mechanism(1))
    noisy = [[run.tick(day, position, counts(0, 1)).noisy for position in range(5)] for day in (0, 1)]
    assert np.array(noisy[0]).tolist() != np.array(noisy[1]).tolist()


def test_audiences_share_a_chain() -> None:
    """A coarser audience's sums are a finer one's plus noise that does not depend on the counts' noise."""
    fine, coarse = mechanism(2, F(2), [F(1)]), mechanism(2, F(1), [F(2)])
    alone = mechanism(2, F(2))
    a, b, c = Run(fine), Run(coarse), Run(alone)
    for position in range(3):
        for run in (a, b, c):
            run.tick(0, position, counts(position))
    assert a.state.measured.tolist() == c.state.measured.tolist()
    difference = b.state.measured - a.state.measured
    assert (difference != 0).all()
    spread = float(coarse.variance - fine.variance) ** 0.5
    assert np.abs(difference).max() < 6 * spread


def test_variances_that_are_too_close_are_refused() -> None:
    check_chain([F(10**9), F(10**9), F(10**9 + 16)])
    with pytest.raises(UsageError, match="must be equal or differ by at least 16"):
        check_chain([F(10**9), F(10**9 + 15)])


@pytest.mark.parametrize("position", [300, -1])
def test_position_beyond_the_longest_day_is_refused(position: int) -> None:
    run = Run(mechanism(1))
    with pytest.raises(UsageError, match="position must be 0 to 299, within a day of 25 hours"):
        run.tick(0, position, np.array([1]))


def test_position_must_ascend() -> None:
    run = Run(mechanism(1))
    run.tick(0, 7, np.array([1]))
    with pytest.raises(UsageError, match="position must be after that of the day's last tick, 7, got 7"):
        run.tick(0, 7, np.array([1]))


def test_day_of_25_hours_is_released_to_its_end() -> None:
    run = Run(mechanism(1))
    for position in range(300):
        run.tick(0, position, np.array([5]))
    assert run.state.measured.shape == (300, 1)


def test_revised_day_comes_with_the_next_one() -> None:
    run = Run(mechanism(2))
    for position in [*range(30), *range(40, 140)]:
        assert run.tick(0, position, counts(position)).histories == []
    [history] = run.tick(1, 0, counts(0)).histories
    assert (history.day, history.is_last, history.zones.tolist()) == (0, True, [0, 1])
    assert history.median.shape == history.half_width.shape == (130, 2)
    assert np.abs(history.median[70:90, 0] - 200).mean() < 15
    assert run.state.usual[0].days == 1
    assert run.tick(1, 1, counts(1)).histories == []


def test_nothing_is_learnt_without_calendar() -> None:
    run = Run(replace(mechanism(1), calendar=False))
    for day in (0, 1):
        run.tick(day, 0, np.array([10]))
    assert run.state.usual[0].days == 0


def test_weekends_are_learnt_separately() -> None:
    run = Run(mechanism(1))
    for day in range(7):  # a Tuesday to the next Monday
        run.tick(day, 0, np.array([100 if (day + 1) % 7 < 5 else 0]))
    assert [each.days for each in run.state.usual] == [4, 2]
    assert run.state.usual[0].mean[0, 0] > 60 > run.state.usual[1].mean[0, 0]


def test_estimates_stay_within_the_largest_count() -> None:
    run = Run(replace(mechanism(1), max_counts=(3,)))
    made = [int(run.tick(0, position, np.array([3])).values[0]) for position in range(40)]
    assert min(made) >= 0
    assert max(made) <= 3


@pytest.mark.parametrize("data", [b"", b"CHM1", b"xxxx{}"])
def test_other_bytes_are_no_state(data: bytes) -> None:
    run = Run(mechanism(1))
    with pytest.raises(DataError):
        run.mechanism.decode(data)
    with pytest.raises(DataError):
        run.sums.decode(data)


def test_the_first_day_is_learnt_whole_and_a_later_one_in_part() -> None:
    ticks, law = 300, NoiseLaw(Fraction(6, 10), 1.0)
    blank = no_days(ticks, 1)
    day = [np.array([float(20 + tick % 7)]) for tick in range(100)]
    unknown = prior_of(law, blank, blank)
    first, counted = learn(law, blank, unknown, day, smooth(law, unknown, day))
    assert first.days == 1
    assert np.allclose(first.mean[:100], counted.mean)
    other = learn(law, blank._replace(steps=blank.steps + 1e6), unknown, day, smooth(law, unknown, day))[0]
    assert np.allclose(first.steps, other.steps), "nothing of what was there before the first day is left"
    prior = prior_of(law, first, blank)
    later = [np.array([80.0])] * 100
    second, counted = learn(law, first, prior, later, smooth(law, prior, later))
    assert np.allclose(second.mean[:100], prior.mean[:100] + LEARNT_SHARE * (counted.mean - prior.mean[:100]))
    assert np.allclose(second.mean[100:], prior.mean[100:]), "ticks that were not released keep what was expected"


def test_every_order_has_its_poles() -> None:
    assert set(POLES) == set(ORDERS.values())
    assert all(len(poles) == SIZE - 2 for poles in POLES.values())


def test_products_of_each_node_are_those_of_matrices() -> None:
    rng = np.random.default_rng(7)
    matrix, vector = rng.normal(size=(SIZE, SIZE, 3)), rng.normal(size=(SIZE, 3))
    assert _applied(matrix, vector) == pytest.approx(np.einsum("ijn,jn->in", matrix, vector))
    assert _applied_left(vector, matrix) == pytest.approx(np.einsum("in,ijn->jn", vector, matrix))
    assert _dot(vector, matrix[0]) == pytest.approx((vector * matrix[0]).sum(axis=0))
