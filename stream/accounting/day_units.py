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
from fractions import Fraction
from functools import reduce

from stream.accounting.calibration import likely_loss
from stream.accounting.composition import Gaussian, Laplace
from stream.accounting.costs import Cost, UnitCost
from stream.accounting.exposure import CERTAIN
from stream.accounting.tallies import all_of, as_decimal, pure
from stream.records import DAY, HOUR, PURE, DayTerms, Micros

SHORTEST_DAY: Micros = DAY - HOUR
"""A privacy day in which the clocks are put forward."""


def day_units(terms: DayTerms, w_span: Micros, devices_per_person: int) -> dict[str, UnitCost]:
    """Return unit -> cost of one day's price.

    Args:
        terms: of the day.
        w_span: of w windows.
        devices_per_person: how many devices a person carries.
    """
    day, changed, sliding = (UnitCost(cost_of(terms, n)) for n in (1, 2, 2 * days_touched(w_span)))
    return {
        "presence_tuple": changed,
        "tuple_moved": changed,
        "observation": changed,
        "observation_moved": changed,
        "device_w_event": sliding,
        "device_w_event_moved": sliding,
        "person_w_event": sliding._replace(group=devices_per_person),
        "device_day": day,
        "device_day_moved": changed,
        "person_day": day._replace(group=devices_per_person),
    }


def cost_of(terms: DayTerms, times_ticks: int) -> Cost:
    """Return what it costs that so many times K values of each level change."""
    cells = times_ticks * terms.ticks
    if terms.noise == PURE:
        return Cost(cells * sum(terms.parameters, Fraction(0)), all_of(pure(each, cells) for each in terms.parameters))
    if terms.noise == "gaussian":
        return Cost(math.inf, all_of({Gaussian(variance): cells} for variance in terms.parameters))
    noise = all_of({Laplace(as_decimal(epsilon)): cells} for epsilon in terms.parameters)
    return Cost(cells * sum(terms.parameters, Fraction(0)), noise)


def cost_of_days(terms: Iterable[DayTerms], times_ticks: int) -> Cost:
    """Return what it costs that so many times K values of each level change, on each of these days."""
    return reduce(Cost.plus, (cost_of(each, times_ticks) for each in terms), Cost())


def changed_loss(
    noise: str, parameters: tuple[Fraction, ...], ticks: int, probability: Fraction | None, devices: int
) -> Fraction:
    """Return what each device of a person adds to the loss that changed parts of their day do not exceed together.

    Args:
        noise: ``laplace``, ``gaussian``, or ``PURE``.
        parameters: as ``DayTerms`` has them.
        ticks: K.
        probability: with which Gaussian noise may pass it, 1e-10 to 0.01; without one nothing bounds it (``CERTAIN``).
        devices: of one person.
    """
    if noise in ("laplace", PURE):
        return 2 * ticks * sum(parameters, Fraction(0))
    if probability is None:
        return CERTAIN
    return likely_loss(parameters, 2 * ticks, probability, devices) / devices


def days_touched(span: Micros) -> int:
    """Return how many privacy days a stretch of time may touch, at most."""
    return 1 + -(-span // SHORTEST_DAY)


def finest(terms: Iterable[DayTerms]) -> DayTerms:
    """Return the terms with the least noise: what readers of one release, who share its chain, know together."""
    return min(terms, key=lambda one: one.parameters if one.noise == "gaussian" else _dearest_first(one))


def _dearest_first(terms: DayTerms) -> tuple[Fraction, ...]:
    return (*(-each for each in terms.parameters), Fraction(-terms.ticks))
