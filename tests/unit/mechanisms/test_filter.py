from dataclasses import replace
from fractions import Fraction
from hashlib import sha256
from random import Random

import numpy as np
import pytest

from stream.errors import DataError, UsageError
from stream.mechanisms.base import WeekSlot
from stream.mechanisms.exact import Floats, quantiles
from stream.mechanisms.filter.calendar import Calendar, empty, learnt, take_in
from stream.mechanisms.filter.model import Cells, bin_edges, kernels, moves, stationary, transitions
from stream.mechanisms.filter.state import FilterState
from stream.mechanisms.filter.step import Estimate, FilterItem, RegimeFilter
from stream.mechanisms.filter.updates import marginal
from stream.mechanisms.noise import discrete_laplace
from stream.mechanisms.noise_parameters import gaussian_noise, laplace_noise
from tests.support.reference_filter import by_tick

F = Fraction
MORNING = WeekSlot(18, 9, False)
CORE = RegimeFilter((6,), laplace_noise(F(1)), calendar=False)
CALENDAR = RegimeFilter((12,), laplace_noise(F(1, 2)))


def run(
    stage: RegimeFilter, stream: list[list[int]], slot: WeekSlot = MORNING
) -> tuple[list[FilterState], list[Estimate]]:
    """Return states and estimates of each tick, the calendar fed with each by the filter itself."""
    made = list(by_tick(stage, (FilterItem(np.array(noisy), slot) for noisy in stream)))
    return [state for state, _ in made], [estimate for _, estimate in made]


def single(*stream: int) -> list[list[int]]:
    return [[noisy] for noisy in stream]


def dense(state: FilterState, capacity: int) -> Cells:
    return state.posterior.dense(np.array([0]), capacity)


def posterior(state: FilterState, capacity: int = 6) -> Floats:
    return marginal(dense(state, capacity))[:, 0].astype(np.float64)


def means(states: list[FilterState], capacity: int = 6) -> list[float]:
    return [float((posterior(s, capacity) * np.arange(capacity + 1)).sum()) for s in states]


# The model


def test_kernels_have_their_published_values() -> None:
    kernel = kernels(6)
    found = [kernel.up[10, 5], kernel.down[10, 4], kernel.norm[10, 3], kernel.norm[15, 0]]
    assert found == pytest.approx([0.506948, 0.480976, 0.376472, 0.207177], abs=5e-7)


def test_every_row_of_the_transition_matrix_adds_up_to_one_exactly() -> None:
    assert [sum(row) for row in transitions()] == [1] * 16
    assert len(moves()) == 76


def test_stationary_distribution_has_its_published_values() -> None:
    pi = stationary()
    assert pi[[0, 8, 15]] == pytest.approx([0.0625, 0.191664, 0.014986], abs=5e-7)
    assert np.abs(pi @ np.array(transitions(), dtype=float) - pi).max() < 1e-16


def test_bins_of_the_calendar_have_their_published_widths() -> None:
    assert np.diff(bin_edges(12)).tolist() == [1, 1, 1, 1, 1, 2, 2, 3, 1]


# Published runs


def test_core_gives_the_published_estimates() -> None:
    states, estimates = run(CORE, single(2, 3, -1, 9, 4))
    assert [int(e.median[0]) for e in estimates] == [2, 3, 1, 5, 4]
    ranges = [[int(q[0]) for q in quantiles(posterior(s)[:, None], 0.025, 0.975)] for s in states]
    assert ranges == [[0, 5], [1, 4], [0, 3], [1, 6], [2, 6]]
    assert means(states) == pytest.approx([2.107313, 2.621927, 1.306396, 4.219363, 4.025878], abs=1e-6)
    first = [0.065237, 0.177331, 0.482036, 0.177331, 0.065237, 0.023999, 0.008829]
    last = [0.001897, 0.009435, 0.058110, 0.194738, 0.450686, 0.197538, 0.087596]
    assert posterior(states[0]) == pytest.approx(first, abs=6e-7)
    assert posterior(states[-1]) == pytest.approx(last, abs=6e-7)


def test_calendar_that_is_fed_with_each_tick_gives_the_published_estimates() -> None:
    states, estimates = run(CALENDAR, single(3, 5, 2, 4, 11, 9, 10, -2))
    assert [int(e.median[0]) for e in estimates] == [3, 4, 3, 4, 5, 9, 10, 5]
    expected = [3.459005, 4.175165, 3.142160, 3.497006, 6.123593, 8.010673, 9.387753, 4.997757]
    assert means(states, 12) == pytest.approx(expected, abs=1e-6)
    copies = [float(dense(s, 12)[:, :, 1].sum(dtype=np.float64)) for s in states]
    expected = [0.5, 0.500778, 0.511063, 0.520400, 0.468873, 0.393423, 0.339450, 0.392697]
    assert copies == pytest.approx(expected, abs=6e-7)
    levels = [float(calendar_of(s).sums[0, 0, 18, 0]) for s in states]
    expected = [0.174, 0.395908, 0.546945, 0.747223, 1.051884, 1.512874, 2.005128, 2.178830]
    assert levels == pytest.approx(expected, abs=6e-7)


def calendar_of(state: FilterState) -> Calendar:
    calendar = state.learnt[0].calendar
    assert calendar is not None
    return calendar


def test_half_width_is_the_smallest_that_has_96_percent_of_the_posterior() -> None:
    states, estimates = run(CORE, single(2, 3, -1, 9, 4))
    for state, estimate in zip(states, estimates, strict=True):
        distance = np.abs(np.arange(len(posterior(state))) - estimate.median[0])
        within = [posterior(state)[distance <= width].sum() for width in range(len(distance))]
        assert estimate.half_width[0] == next(width for width, share in enumerate(within) if share >= 0.96 - 1e-6)


# Gaussian noise


@pytest.mark.parametrize("noisy", [3, 0, 6, -9, 14])
def test_first_tick_with_gaussian_noise_is_the_normal_posterior_of_even_counts(noisy: int) -> None:
    """At σ = 2, also where the noisy value lies beyond the grid 0 … 6: the farther, the more sure of its end."""
    state, _ = RegimeFilter((6,), gaussian_noise(F(4)), calendar=False).step(
        RegimeFilter((6,), gaussian_noise(F(4)), calendar=False).initial(), FilterItem(np.array([noisy]), MORNING)
    )
    weights = np.exp(-((noisy - np.arange(7)) ** 2) / 8)
    assert posterior(state) == pytest.approx(weights / weights.sum(), rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("noisy", [-(1 << 62), 1 << 62, -40_000, 40_000])
def test_gaussian_noise_far_beyond_the_grid_leaves_its_end(noisy: int) -> None:
    stage = RegimeFilter((30,), gaussian_noise(F(400)), calendar=False)
    _, [estimate] = run(stage, single(noisy))
    assert (estimate.median[0], estimate.half_width[0]) == ((30 if noisy > 0 else 0), 0)


def test_calendar_pulls_no_harder_than_one_standard_deviation_of_gaussian_noise_allows() -> None:
    """A week at 9 of 12, then one noisy 0: at σ = 1/4 it is believed, where the calendar could else outweigh it."""
    stage = RegimeFilter((12,), gaussian_noise(F(1, 16)))
    _, estimates = run(stage, single(*[9] * 200, 0))
    assert (estimates[-2].median[0], estimates[-1].median[0]) == (9, 0)


@pytest.mark.pinned
def test_state_under_gaussian_noise_is_the_same_bytes_on_every_machine() -> None:
    stage, rng = RegimeFilter((40, 12), gaussian_noise(F("21.854") ** 2)), Random(1)
    stream = [
        FilterItem(
            np.array([rng.randrange(-60, 100), rng.randrange(-60, 70)]),
            WeekSlot(tick // 6 % 48, tick // 12 % 24, False),
        )
        for tick in range(200)
    ]
    *_, (state, _) = by_tick(stage, stream)
    assert sha256(stage.encode(state)).hexdigest() == PINNED_GAUSSIAN


PINNED_GAUSSIAN = "e3b63a41db76307d37ac548f9d082b28624e328dc4cc741eee10ba59932a2a8d"


# Behaviour


@pytest.mark.parametrize("days", [1, pytest.param(7, marks=pytest.mark.long)])
def test_jump_after_a_long_time_at_zero_is_followed_at_once(days: int) -> None:
    stage, state = RegimeFilter((1000,), laplace_noise(F(1))), RegimeFilter((1000,), laplace_noise(F(1))).initial()
    noise = discrete_laplace(b"k" * 32, b"a week at zero", F(1), days * 288)
    medians = []
    for tick in range(days * 288):
        slot = WeekSlot(tick // 6 % 48, tick // 12 % 24, tick >= 5 * 288)
        state, [estimate] = stage.step(state, FilterItem(noise[tick : tick + 1], slot))
        medians.append(int(estimate.median[0]))
    assert np.mean(medians) < 0.05
    for noisy in (851, 849, 850):
        state, [estimate] = stage.step(state, FilterItem(np.array([noisy]), MORNING))
        assert abs(int(estimate.median[0]) - noisy) <= 5
    for noisy in (1, 0, -1):
        state, [estimate] = stage.step(state, FilterItem(np.array([noisy]), MORNING))
        assert estimate.median[0] <= 3


def test_noisy_values_beyond_the_grid_weigh_like_its_ends() -> None:
    beyond, _ = run(CORE, single(2, -50, 700))
    within, _ = run(CORE, single(2, 0, 6))
    assert CORE.encode(beyond[-1]) == CORE.encode(within[-1])


def test_estimates_stay_within_the_grid() -> None:
    _, estimates = run(CORE, single(-100, 900, 900, -100))
    assert all(0 <= e.median[0] <= 6 for e in estimates)


@pytest.mark.parametrize("calendar", [True, False])
def test_zones_of_any_capacity_do_not_influence_each_other(calendar: bool) -> None:
    """Not by a bit: what stands beside a zone, and how far it is filled up to the width of others, changes nothing."""
    rng, capacities = Random(5), (12, 300, 12, 7, 300, 90)
    stream = [[rng.randrange(-3, c + 4) if rng.random() < 0.2 else c // 3 for c in capacities] for _ in range(40)]
    stage = RegimeFilter(capacities, laplace_noise(F(1, 2)), calendar)
    states, together = run(stage, stream)
    for zone, capacity in enumerate(capacities):
        few = RegimeFilter((capacity,), laplace_noise(F(1, 2)), calendar)
        own, alone = run(few, [[row[zone]] for row in stream])
        assert [int(e.median[zone]) for e in together] == [int(e.median[0]) for e in alone]
        assert [int(e.half_width[zone]) for e in together] == [int(e.half_width[0]) for e in alone]
        for state, other in zip(states, own, strict=True):
            part = state.posterior.dense(np.array([zone]), capacity)
            assert part.tobytes() == dense(other, capacity).tobytes()


def sure(count: int, capacity: int = 12) -> Floats:
    """Weights of a count that is known."""
    return np.asarray(np.arange(capacity + 1) == count, dtype=np.float64)[:, None]


def test_calendar_keeps_weekdays_and_weekends_and_half_hours_apart() -> None:
    memory = empty(12, 1)
    take_in(memory, WeekSlot(47, 23, True), sure(5))
    assert np.argwhere(memory.sums[1, :, :, 0] > 0).tolist() == [[1, 47]]
    assert np.argwhere(memory.history.sum(axis=(2, 3)) > 0).tolist() == [[1, 23], [2, 23]]


def test_filter_leans_to_what_an_hour_is_like() -> None:
    night, noon = WeekSlot(4, 2, False), WeekSlot(24, 12, False)
    slots = [slot for _ in range(20) for slot in [night] * 12 + [noon] * 12]
    memory = learnt(empty(12, 1), slots, [sure(0 if slot == night else 9) for slot in slots])
    state = CALENDAR.initial()
    state = replace(state, learnt=(state.learnt[0]._replace(calendar=memory),))
    state, _ = CALENDAR.step(state, FilterItem(np.array([5]), noon))
    at_noon, at_night = (CALENDAR.step(state, FilterItem(np.array([5]), slot))[0] for slot in (noon, night))
    assert means([at_noon], 12)[0] > means([at_night], 12)[0] + 0.5


def test_what_is_learnt_and_each_half_hour_count_from_the_next_tick_on() -> None:
    """A state keeps what its last tick has computed from them; one that was decoded has nothing of it."""
    night, noon, counted = WeekSlot(4, 2, False), WeekSlot(24, 12, False), np.ones((76, 1), np.float32)
    memory = learnt(empty(12, 1), [noon, night] * 20, [sure(9), sure(0)] * 20)
    state, _ = CALENDAR.step(CALENDAR.initial(), FilterItem(np.array([5]), night))
    for slot, known in [
        (night, state.learnt),
        (night, (state.learnt[0]._replace(calendar=memory),)),
        (noon, (state.learnt[0]._replace(calendar=memory),)),
        (noon, (state.learnt[0]._replace(calendar=memory, counted=30 * counted),)),
    ]:
        state = replace(state, learnt=known)
        item, decoded = FilterItem(np.array([5]), slot), CALENDAR.decode(CALENDAR.encode(state))
        state, _ = CALENDAR.step(state, item)
        assert CALENDAR.encode(state) == CALENDAR.encode(CALENDAR.step(decoded, item)[0])


def test_what_a_calendar_says_of_counts_on_a_shorter_grid_is_what_it_says_on_the_whole_one() -> None:
    """Weights of 0 … 9 of at most 40, and the same with zeros behind them."""
    weights = np.random.default_rng(1).random((10, 2))
    whole = np.concatenate([weights, np.zeros((31, 2))])
    made = [learnt(empty(40, 2), [MORNING] * 5, [each] * 5) for each in (weights, whole)]
    assert np.abs(made[0].history - made[1].history).max() < 1e-3
    assert (made[0].sums == made[1].sums).all()


def test_learning_leaves_the_calendar_before_as_it_is_and_keeps_eleven_digits() -> None:
    before = empty(12, 1)
    after = learnt(before, [MORNING] * 3, [sure(4)] * 3)
    assert not before.history.any()
    assert not before.sums.any()
    assert (after.history == after.history.astype(np.float16)).all()


# Byte form


@pytest.mark.parametrize("calendar", [True, False])
def test_state_survives_its_byte_form_at_every_step(calendar: bool) -> None:
    stage, rng = RegimeFilter((12, 5, 12), laplace_noise(F(1, 2)), calendar), Random(9)
    plain, through = stage.initial(), stage.initial()
    for tick in range(40):
        item = FilterItem(
            np.array([rng.randrange(-3, 15) for _ in range(3)]), WeekSlot(tick % 48, tick // 2, tick % 5 == 0)
        )
        plain, [expected] = stage.step(plain, item)
        through, [estimate] = stage.step(stage.decode(stage.encode(through)), item)
        assert estimate.median.tolist() == expected.median.tolist()
        assert stage.encode(plain) == stage.encode(through)


@pytest.mark.pinned
def test_state_is_the_same_bytes_on_every_machine() -> None:
    stage, rng = RegimeFilter((40, 12), laplace_noise(F(3, 10))), Random(1)
    stream = [
        FilterItem(
            np.array([rng.randrange(-5, 45), rng.randrange(-5, 15)]), WeekSlot(tick // 6 % 48, tick // 12 % 24, False)
        )
        for tick in range(200)
    ]
    *_, (state, _) = by_tick(stage, stream)
    assert sha256(stage.encode(state)).hexdigest() == PINNED_STATE


PINNED_STATE = "00fe78e827bf630f2e53a417ff96f33e529e1cf177c03032a5d57087926b0fae"


def test_a_state_holds_no_negligible_cell_and_of_the_counts_only_those_that_are_left() -> None:
    states, _ = run(RegimeFilter((300,), laplace_noise(F(2))), single(*[7] * 12))
    cells = dense(states[-1], 300)
    assert cells.dtype == np.float32
    assert cells[cells > 0].min() >= np.float32(1e-9 / 301)
    left = np.flatnonzero(cells.any(axis=(0, 2, 3)))
    held = states[-1].posterior
    assert (held.low[0], held.low[0] + held.width[0]) == (left[0], left[-1] + 1)
    assert held.width[0] < 30


def test_state_takes_four_bytes_and_a_bit_for_each_cell_that_is_not_zero() -> None:
    stage = RegimeFilter((63,) * 10, laplace_noise(F(2)), calendar=False)
    counted = 10 * 76 // 8
    assert len(stage.encode(stage.initial())) == 10 + 10 * 8 + 2 + counted, "nothing is held before the first tick"
    states, _ = run(stage, [[0] * 10] * 12)
    held = states[-1].posterior
    kept = int(np.count_nonzero(held.values))
    assert kept < 10 * 64 * 16 / 4
    assert len(stage.encode(states[-1])) == 10 + 10 * 8 + -(-16 * (int(held.width.sum()) + 1) // 8) + kept * 4 + counted


@pytest.mark.parametrize("spoil", [lambda b: b[:-1], lambda b: b + b"\0", lambda b: b"X" + b[1:], lambda _: b""])
def test_bytes_that_are_no_state_are_refused(spoil: object) -> None:
    with pytest.raises(DataError, match=r"filter state|packed array"):
        CORE.decode(spoil(CORE.encode(CORE.initial())))  # type: ignore[operator]


@pytest.mark.parametrize(("low", "width"), [(-1, 3), (0, 8), (5, 3), (0, -1)])
def test_windows_beyond_the_grid_are_refused(low: int, width: int) -> None:
    data = bytearray(CORE.encode(run(CORE, single(3))[0][0]))
    data[10:18] = np.array([low, width], "<i4").tobytes()
    with pytest.raises(DataError, match="ranges must lie within the grids"):
        CORE.decode(bytes(data))


def test_state_of_another_configuration_is_refused() -> None:
    with pytest.raises(DataError):
        replace(CORE, calendar=True).decode(CORE.encode(CORE.initial()))


@pytest.mark.parametrize("capacities", [(), (0,), (5, -1), ((1 << 20) + 1,)])
def test_capacities_out_of_range_are_refused(capacities: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="capacities"):
        RegimeFilter(capacities, laplace_noise(F(1)))


def test_a_zone_may_have_a_million_counts() -> None:
    assert RegimeFilter((1, 1 << 20), laplace_noise(F(1))).capacities == (1, 1 << 20)
