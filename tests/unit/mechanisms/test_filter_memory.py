"""A filter's posterior as it is remembered: half of its size, and the same in memory as in bytes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from stream.errors import DataError
from stream.mechanisms.base import WeekSlot
from stream.mechanisms.filter.posterior import Posterior
from stream.mechanisms.filter.state import (
    FilterState,
    decode_rounded,
    encode_rounded,
    restarted_state,
    rounded,
    rounded_size,
)
from stream.mechanisms.filter.step import FilterItem, RegimeFilter
from stream.mechanisms.filter.updates import marginal
from stream.mechanisms.noise_parameters import laplace_noise

F = Fraction


def lived(stage: RegimeFilter, ticks: int = 200) -> FilterState:
    state, rng = stage.initial(), Random(3)
    for tick in range(ticks):
        noisy = np.array([rng.randrange(-3, capacity + 4) for capacity in stage.capacities])
        state, _ = stage.step(state, FilterItem(noisy, WeekSlot(tick // 6 % 48, tick // 12 % 24, False)))
    return state


@pytest.mark.parametrize("calendar", [True, False])
@pytest.mark.parametrize("ticks", [0, 1, 200])
def test_a_rounded_posterior_is_what_its_bytes_say(calendar: bool, ticks: int) -> None:
    stage = RegimeFilter((12, 40, 12), laplace_noise(F(1, 4)), calendar)
    posterior = rounded(lived(stage, ticks))
    data = encode_rounded(posterior)
    again = decode_rounded(stage.form, data)
    assert _bytes(again) == _bytes(posterior)
    assert (again is not None) == (ticks > 0)


def _bytes(posterior: Posterior | None) -> list[bytes]:
    if posterior is None:
        return []
    return [posterior.low.tobytes(), posterior.width.tobytes(), posterior.values.tobytes()]


def test_what_begins_again_has_the_posterior_that_was_remembered_and_goes_by_what_was_learnt_since() -> None:
    stage = RegimeFilter((12,), laplace_noise(F(1, 4)))
    then, now = lived(stage, 20), lived(stage, 60)
    state = restarted_state(rounded(then), now, stage.initial())
    assert (state.started, state.learnt is now.learnt) == (True, True)
    assert _bytes(state.posterior) == _bytes(rounded(then))
    state = restarted_state(None, now, stage.initial())
    assert (state.started, state.learnt is now.learnt) == (False, True)
    assert _bytes(state.posterior) == _bytes(stage.initial().posterior)


def test_a_rounded_posterior_says_nearly_the_same_of_counts_and_regimes() -> None:
    stage = RegimeFilter((40,), laplace_noise(F(1, 4)))
    state = lived(stage)
    held = rounded(state)
    assert held is not None
    whole, half = (
        [part.astype(float) / part.sum(dtype=float) for part in (marginal(cells)[:, 0], cells.sum(axis=(1, 2, 3)))]
        for (cells,) in (stage.dense(state), stage.dense(replace(state, posterior=held)))
    )
    for one, other in zip(whole, half, strict=True):
        assert np.abs(one - other).max() < 2e-3


def test_it_takes_two_bytes_a_cell_that_is_held_and_no_more_than_is_foretold() -> None:
    core = RegimeFilter((63,) * 10, laplace_noise(F(1)), calendar=False)
    assert rounded_size(core.form) == 10 * 8 + 10 * 64 * 16 * 2
    held = rounded(lived(core, 3))
    assert held is not None
    assert len(encode_rounded(held)) == 10 * 8 + int(held.width.sum()) * 16 * 2
    stage = RegimeFilter((12, 63, 12), laplace_noise(F("0.01")))
    assert len(encode_rounded(rounded(lived(stage, 1)))) == rounded_size(stage.form), "where every count is left"


@pytest.mark.parametrize("spoil", [lambda b: b[:-1], lambda b: b + b"\0", lambda b: b[:2]])
def test_bytes_that_are_no_remembered_posterior_are_refused(spoil: object) -> None:
    stage = RegimeFilter((12,), laplace_noise(F(1)))
    with pytest.raises(DataError, match="remembered filter state"):
        decode_rounded(stage.form, spoil(encode_rounded(rounded(lived(stage, 2)))))  # type: ignore[operator]
