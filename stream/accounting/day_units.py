"""Privacy units of a release that is paid by the day: how many noisy values each can change, and what that costs.

    symbol   here         meaning
    K        terms.ticks  windows of a privacy day at which one device counts at most
    d        days         privacy days that a unit may touch

Add or take away a device's whole privacy day, and at most K values of each level change by one each: the unit that
the price is for. Whatever is less than a day (one presence, one observation, w windows) may decide which of the
device's ticks count at all: it is priced as each day that it touches replaced, by 2 K values. A person's devices
change the same values: a shift of as many as there are, at worst.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import NamedTuple

from stream.accounting.calibration import likely_loss
from stream.accounting.composition import Gaussian, Laplace, Noise
from stream.accounting.exposure import CERTAIN
from stream.records import DAY, HOUR, DayTerms, Micros

SHORTEST_DAY: Micros = DAY - HOUR
"""A privacy day in which the clocks are put forward."""
_DIGITS = Context(prec=18, rounding=ROUND_CEILING)

Epsilon = Fraction | float
"""Infinite where the noise has no pure epsilon."""


class UnitCost(NamedTuple):
    """What a unit costs: by adding up, and what to compose for the cost at a delta."""

    pure: Epsilon
    noise: tuple[Noise, ...]
    """The noisy values that change, by one each."""
    group: int
    """Devices that change them together."""


def day_units(terms: DayTerms, w_span: Micros, devices_per_person: int) -> dict[str, UnitCost]:
    """Return unit -> cost of one day's price.

    Args:
        terms: of the day.
        w_span: of w windows.
        devices_per_person: how many devices a person carries.
    """
    day, changed = cost_of(terms, 1), cost_of(terms, 2)
    sliding = cost_of(terms, 2 * days_touched(w_span))
    return {
        "presence_tuple": changed,
        "tuple_moved": changed,
        "observation": changed,
        "observation_moved": changed,
        "device_w_event": sliding,
        "device_w_event_moved": sliding,
        "person_w_event": _group(sliding, devices_per_person),
        "device_day": day,
        "device_day_moved": changed,
        "person_day": _group(day, devices_per_person),
    }


def cost_of(terms: DayTerms, times_ticks: int) -> UnitCost:
    """Return what it costs that so many times K values of each level change."""
    cells = times_ticks * terms.ticks
    if terms.noise == "gaussian":
        return UnitCost(math.inf, tuple(Gaussian(variance, cells) for variance in terms.parameters), 1)
    noise = tuple(Laplace(as_decimal(epsilon), cells) for epsilon in terms.parameters)
    return UnitCost(cells * sum(terms.parameters, Fraction(0)), noise, 1)


def changed_loss(
    noise: str, parameters: tuple[Fraction, ...], ticks: int, probability: Fraction | None, devices: int
) -> Fraction:
    """Return what each device of a person adds to the loss that changed parts of their day do not exceed together.

    Args:
        noise: ``laplace`` or ``gaussian``.
        parameters: as ``DayTerms`` has them.
        ticks: K.
        probability: with which Gaussian noise may pass it, 1e-10 to 0.01; without one nothing bounds it (``CERTAIN``).
        devices: of one person.
    """
    if noise == "laplace":
        return 2 * ticks * sum(parameters, Fraction(0))
    if probability is None:
        return CERTAIN
    return likely_loss(parameters, 2 * ticks, probability, devices) / devices


def days_touched(span: Micros) -> int:
    """Return how many privacy days a stretch of time may touch, at most."""
    return 1 + -(-span // SHORTEST_DAY)


def finest(terms: Iterable[DayTerms]) -> DayTerms:
    """Return the terms with the least noise: what readers of one release, who share its chain, know together."""
    return min(terms, key=lambda one: one.parameters if one.noise == "gaussian" else tuple(-p for p in one.parameters))


def _group(cost: UnitCost, devices: int) -> UnitCost:
    return UnitCost(devices * cost.pure, cost.noise, devices)


def as_decimal(epsilon: Fraction) -> Decimal:
    """Return an epsilon in 18 digits, rounded up."""
    return _DIGITS.divide(Decimal(epsilon.numerator), Decimal(epsilon.denominator))
