"""What the options of 'tacet release' pay for, and the noise that this leaves for each time."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from stream.errors import UsageError
from stream.mechanisms.parameter import NoiseParameter, laplace_noise
from stream.policy.fields import decimal_string, parse_delta, parse_epsilon
from stream.policy.mechanisms import MECHANISMS, names_where
from stream.records import NoiseKind
from stream.release.paid_by_day import DayPrice

DELTA = "1e-6"


class Price(NamedTuple):
    """What is paid, as it was given."""

    mechanism: str
    epsilon: str
    noise: NoiseKind
    unit: str
    ticks: int | None
    delta: str | None


def noise_of_table(price: Price) -> NoiseParameter:
    """Return the noise of each time; UsageError where options do not go together, or are out of range."""
    by_day = price.unit == "device_day"
    rules = (
        (by_day == (price.ticks is not None), "--ticks: must go with --unit device_day, and only with it"),
        (
            by_day or price.noise == "laplace",
            "--noise: gaussian must go with --unit device_day, whose price it keeps to",
        ),
        (price.noise == "gaussian" or price.delta is None, "--delta: must go with --noise gaussian"),
        (
            not by_day or MECHANISMS[price.mechanism].by_day,
            f"--unit: device_day must go with {' or '.join(names_where('by_day'))}, got {price.mechanism}",
        ),
    )
    for holds, rule in rules:
        if not holds:
            raise UsageError(rule)
    epsilon = _epsilon(price)
    if price.ticks is None:
        return laplace_noise(epsilon)
    delta = _delta(price.delta or DELTA) if price.noise == "gaussian" else Fraction(0)
    return NoiseParameter(price.noise, DayPrice(price.noise, epsilon, delta, price.ticks).parameters[0])


def _epsilon(price: Price) -> Fraction:
    try:
        exact = parse_epsilon(price.epsilon)
    except ValueError as error:
        msg = f"--epsilon: {error}, got {price.epsilon!r}"
        raise UsageError(msg) from None
    least = MECHANISMS[price.mechanism].smallest * (price.ticks or 1)
    if exact < least:
        msg = f"--epsilon: must be at least {decimal_string(least)} with {price.mechanism}, got {price.epsilon!r}"
        raise UsageError(msg)
    return exact


def _delta(text: str) -> Fraction:
    try:
        return parse_delta(text)
    except ValueError as error:
        msg = f"--delta: {error}, got {text!r}"
        raise UsageError(msg) from None
