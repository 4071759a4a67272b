"""Noise and nothing else: values may be negative, and there is no state."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stream.errors import DataError, UsageError
from stream.mechanisms.base import Parameters, TickInput, Values, WeekSlot, noisy_of, whole
from stream.mechanisms.laplace import Laplace, laplace
from stream.mechanisms.noise_parameters import laplace_noise


def test_a_value_is_the_count_plus_the_noise_even_below_zero() -> None:
    mechanism = laplace(Parameters(noise := laplace_noise(Fraction(1)), (9, 9)))
    item: Any = SimpleNamespace(counts=np.array([3, 0]), noise=np.array([2, -4]))
    state, (made,) = mechanism.step(None, item)
    assert (state, made.values.tolist(), made.exact.numerator.tolist()) == (None, [5, -4], [5, -4])
    assert made.exact.denominator.tolist() == [1, 1]
    assert made.half_width.tolist() == [noise.half_width_95] * 2


def test_its_state_is_empty_and_other_bytes_are_refused() -> None:
    mechanism = Laplace(1, laplace_noise(Fraction(1)))
    mechanism.initial()
    assert mechanism.encode(None) == b""
    mechanism.decode(b"")
    with pytest.raises(DataError, match="laplace state: must be empty"):
        mechanism.decode(b"\0")


def test_values_that_may_be_revised_have_noisy_values() -> None:
    plain = Values(np.array([1]), np.array([1]), whole(np.array([1])))
    assert noisy_of(plain._replace(noisy=np.array([7]))).tolist() == [7]
    with pytest.raises(UsageError, match="must return noisy values"):
        noisy_of(plain)


def test_parameters_have_the_price_and_the_zones_of_their_fields() -> None:
    parameters = Parameters(laplace_noise(Fraction(1, 2)), (9, 20, 5))
    assert (parameters.epsilon, parameters.zones, parameters.windows) == (Fraction(1, 2), 3, 1)
    assert (WeekSlot(0, 0, False).day, TickInput._field_defaults["position"]) == (0, 0)
