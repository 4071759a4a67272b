"""A filter's state as it is remembered: half of its size, and the same in memory as in bytes."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import numpy as np
import pytest

from stream.errors import DataError
from stream.mechanisms.filter import FilterItem, FilterState, RegimeFilter, marginal
from stream.mechanisms.filter_calendar import Slot
from stream.mechanisms.filter_memory import decode_rounded, encode_rounded, remembered_size, rounded
from stream.mechanisms.parameter import laplace_noise

F = Fraction


def lived(stage: RegimeFilter, ticks: int = 200) -> FilterState:
    state, rng = stage.initial(), Random(3)
    for tick in range(ticks):
        noisy = np.array([rng.randrange(-3, capacity + 4) for capacity in stage.capacities])
        state, _ = stage.step(state, FilterItem(noisy, Slot(tick // 6 % 48, tick // 12 % 24, False)))
    return state


@pytest.mark.parametrize("calendar", [True, False])
@pytest.mark.parametrize("ticks", [0, 1, 200])
def test_a_rounded_state_is_what_its_bytes_say(calendar: bool, ticks: int) -> None:
    stage = RegimeFilter((12, 40, 12), laplace_noise(F(1, 4)), calendar)
    state = rounded(lived(stage, ticks))
    data = encode_rounded(state)
    again = decode_rounded(stage, data)
    assert (again.started, encode_rounded(again)) == (ticks > 0, data)
    assert stage.encode(again) == stage.encode(state) == stage.encode(rounded(state))


def test_a_rounded_state_says_nearly_the_same_of_counts_and_regimes() -> None:
    stage = RegimeFilter((40,), laplace_noise(F(1, 4)))
    state = lived(stage)
    for part in (marginal(stage.dense(state)[0]), stage.dense(state)[0].sum(axis=(1, 2))):
        assert part.sum() == pytest.approx(1, abs=1e-3)
    whole, half = (marginal(stage.dense(each)[0])[:, 0].astype(float) for each in (state, rounded(state)))
    assert np.abs(whole / whole.sum() - half / half.sum()).max() < 2e-3
    assert np.abs(state.calendars[0].history - rounded(state).calendars[0].history).max() < 1e-3
    assert (state.calendars[0].sums == rounded(state).calendars[0].sums).all()


def test_it_takes_two_bytes_a_cell_that_is_held_and_no_more_than_is_foretold() -> None:
    core = RegimeFilter((63,) * 10, laplace_noise(F(1)), calendar=False)
    assert remembered_size(core) == 1 + 10 * 8 + 10 * 64 * 16 * 2
    state = rounded(lived(core, 3))
    assert len(encode_rounded(state)) == 1 + 10 * 8 + int(state.posterior.width.sum()) * 16 * 2
    stage = RegimeFilter((12, 63, 12), laplace_noise(F("0.01")))
    assert len(encode_rounded(rounded(lived(stage, 1)))) == remembered_size(stage), "where every count is left"


@pytest.mark.parametrize("spoil", [lambda b: b[:-1], lambda b: b + b"\0", lambda _: b""])
def test_bytes_that_are_no_remembered_state_are_refused(spoil: object) -> None:
    stage = RegimeFilter((12,), laplace_noise(F(1)))
    with pytest.raises(DataError, match="remembered filter state"):
        decode_rounded(stage, spoil(encode_rounded(rounded(stage.initial()))))  # type: ignore[operator]
