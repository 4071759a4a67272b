"""compose: what a list of noisy releases costs together, as one asks it.

A release is an object: ``noise`` ("laplace" with ``epsilon``, "gaussian" with ``sigma``, "pure" with ``epsilon``) and
``times``, how many of its values the change alters, each by one; by default 1. Epsilons and sigmas are numbers or, kept
to the last digit, decimal strings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from stream.accounting import composition
from stream.accounting.composition import Gaussian, Laplace, Noise, Pure
from stream.accounting.leakage.entries import items, number, shown, whole
from stream.errors import UsageError
from stream.policy.fields import decimal_string

__all__ = ["compose"]

#: Most entries of a list of releases; equal ones are better written once, with ``times``.
MOST_RELEASES = 10_000

_DECIMAL = re.compile(r"[0-9]{1,20}(\.[0-9]{1,40})?(e-?[0-9]{1,2})?")

#: Noise -> the field that says how much of it there is, and what is made of that and of ``times``.
_NOISES: dict[str, tuple[str, Callable[[Decimal, int], Noise]]] = {
    "laplace": ("epsilon", Laplace),
    "gaussian": ("sigma", lambda sigma, times: Gaussian(Fraction(sigma) ** 2, times)),
    "pure": ("epsilon", Pure),
}


def compose(*, delta: object, releases: object, group: object = 1) -> dict[str, Any]:
    """Return what releases cost together, pure and at ``delta``.

    Args:
        delta: 1e-10 to 0.01.
        releases: a list of objects as above.
        group: devices that change together, at the same values.

    Returns:
        ``epsilon`` with ``pure`` (a decimal string: the epsilons added up; "inf" beside Gaussian noise) and
        ``approximate`` (nats, at ``delta``, at most ``pure``), and that ``delta``.
    """
    entries = items(releases, "releases")
    if len(entries) > MOST_RELEASES:
        raise UsageError(f"releases must have at most {MOST_RELEASES} entries, got {len(entries)}")
    noises = [_noise(entry, f"releases[{i}]") for i, entry in enumerate(entries)]
    together = whole(group, "group", low=1, high=composition.MOST_GROUP)
    price = composition.compose(noises, _decimal(delta, "delta"), together)
    pure = decimal_string(Fraction(price.pure)) if price.pure.is_finite() else "inf"
    return {"epsilon": {"pure": pure, "approximate": price.approximate}, "delta": price.delta}


def _noise(entry: object, where: str) -> Noise:
    if not isinstance(entry, Mapping):
        raise UsageError(f"{where} must be an object, got {shown(entry)}")
    kind = entry.get("noise")
    if not isinstance(kind, str) or kind not in _NOISES:
        raise UsageError(f"{where}.noise must be {', '.join(_NOISES)}, got {shown(kind)}")
    name, made = _NOISES[kind]
    for key in entry:
        if key not in ("noise", name, "times"):
            raise UsageError(f"{where} must not hold {shown(key)}; known are noise, {name}, times")
    if name not in entry:
        raise UsageError(f"{where}.{name} must be given")
    size = _decimal(entry[name], f"{where}.{name}")
    times = whole(entry.get("times", 1), f"{where}.times", low=1, high=composition.MOST_TIMES)
    try:
        return made(size, times)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


def _decimal(value: object, where: str) -> Decimal:
    """Return a number, or a decimal string to its last digit."""
    if not isinstance(value, str):
        return Decimal(repr(number(value, where, low=0.0)))
    if not _DECIMAL.fullmatch(value):
        raise UsageError(f'{where} must be a number or a decimal string such as "0.1", got {shown(value)}')
    return Decimal(value)
