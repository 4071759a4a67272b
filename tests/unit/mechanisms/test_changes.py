"""The mechanism of changes: what it publishes is a function of the measured sums, whatever happens to windows."""

from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from stream.domains import Draw
from stream.errors import DataError, UsageError
from stream.mechanisms.base import Values
from stream.mechanisms.changes import mechanism as module
from stream.mechanisms.changes.calibration import changes_variances, squared_shift
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
from stream.mechanisms.changes.levels import LevelChanges
from stream.mechanisms.changes.mechanism import ChangeSums, DayTick
from stream.mechanisms.changes.noise import change_noise, check_chain
from stream.mechanisms.consistency import site_tree
from stream.mechanisms.exact import Ints
from stream.mechanisms.gaussian import discrete_gaussian
from stream.mechanisms.noise_labels import Context, counts_digest
from tests.support.changed_days import MILLIONTH, Run, item, mechanism

F = Fraction
KEY, CONTEXT = b"k" * 32, Context("site", "counts", 1, 1, ("n",))
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


def drawn(*variances: Fraction, nodes: int = 4000) -> dict[Fraction, Ints]:
    return change_noise(KEY, CONTEXT, b"", variances, nodes)


def test_a_coarser_audience_has_the_noise_of_its_own_variance_and_no_more() -> None:
    """Within five deviations of the mean square of 4,000 draws: 11 %."""
    fine, coarse = F(10**9), F(11 * 10**8)
    noise = drawn(coarse, fine)
    assert np.mean((noise[coarse] - noise[fine]) ** 2.0) == pytest.approx(10**8, rel=0.11)


def test_noise_of_a_variance_up_to_two_to_the_24_is_one_draw_and_wider_noise_has_places_of_base_256() -> None:
    one, low = F(1 << 24), F(1280**2)
    wide = low + 256**2 * F(400)
    label = partial(CONTEXT.label, Draw.CHANGES, digest=b"")
    assert drawn(one, nodes=9)[one].tolist() == discrete_gaussian(KEY, label(one, F(0)), one, 9).tolist()
    places = discrete_gaussian(KEY, label(wide, F(0)), low, 9), discrete_gaussian(KEY, label(wide, F(1)), F(400), 9)
    assert drawn(wide, nodes=9)[wide].tolist() == (places[0] + 256 * places[1]).tolist()


def test_variances_that_are_too_close_are_refused() -> None:
    check_chain([F(10**9), F(10**9), F(10**9 + 16)])
    for variances in ([F(10**9), F(10**9 + 15)], [F(15)]):
        for refuse in (check_chain, lambda each: drawn(*each)):
            with pytest.raises(UsageError, match="must be equal or differ by at least 16"):
                refuse(variances)


def test_levels_whose_size_is_not_known_are_paid_for_as_levels_of_several_nodes() -> None:
    halves, factor = (F(1, 2), F(1, 2)), mechanism(1).factor
    variances = changes_variances(F(2), MILLIONTH, factor, halves)
    assert variances == changes_variances(F(2), MILLIONTH, factor, halves, (2, 40))
    assert squared_shift(factor, variances) == squared_shift(factor, variances, (2, 40))


@pytest.mark.parametrize("shares", [(F(1, 2), F(1, 4)), (F(1), F(1)), (F(0), F(1)), (F(2), F(-1))])
def test_shares_that_are_not_all_of_a_price_are_refused(shares: tuple[Fraction, ...]) -> None:
    with pytest.raises(UsageError, match="shares must each be above 0 and add up to 1"):
        changes_variances(F(2), MILLIONTH, mechanism(1).factor, shares)


@pytest.mark.pinned
def test_the_noise_of_a_price_is_the_same_on_every_machine() -> None:
    variances = changes_variances(F(2), MILLIONTH, mechanism(1).factor, (F(1, 4), F(3, 4)), (9, 1))
    assert variances == (F(3_297_328_482_417), F(807_524_061_262))


def test_the_filter_knows_the_noise_of_a_days_first_count() -> None:
    made = mechanism(1)
    assert made.law == NoiseLaw(made.factor.order, float(made.variance) / 2**32)


def test_an_audience_whose_variance_is_not_the_releases_is_refused() -> None:
    with pytest.raises(UsageError, match="must contain the audience's own variance"):
        replace(mechanism(1), variance=F(10**9))


def test_levels_are_those_of_the_tree_and_the_noise_is_that_of_the_leaves() -> None:
    tree = site_tree(["a", "b"], ["1", "1"], ["zone", "building"])
    zones, building = mechanism(2), mechanism(1)
    made = LevelChanges(tree, (zones, building))
    assert made.noise == zones.noise != building.noise
    with pytest.raises(UsageError, match="levels must be 2, one a level of the tree, got 1"):
        LevelChanges(tree, (zones,))


def test_the_rest_of_a_day_is_told_of_the_nodes_of_all_levels() -> None:
    made = LevelChanges(site_tree(["a", "b"], ["1", "1"], ["zone", "building"]), (mechanism(2), mechanism(1)))
    sums, state = ChangeSums(mechanism(1).factor, 3), made.initial()
    exact = sums.initial()
    assert made.rest(state) == []
    for position in range(4):
        exact, [row] = sums.step(exact, DayTick(0, position, np.array([7, 5, 12])))
        state, _ = made.step(state, item(mechanism(3), 0, position, row))
    [told] = made.rest(state)
    assert (told.day, told.zones.tolist(), told.median.shape) == (0, [0, 1, 2], (4, 3))
    assert made.levels[1].rest(state[1])[0].median.tolist() == told.median[:, 2:].tolist()


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
