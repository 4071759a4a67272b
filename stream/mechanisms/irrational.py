"""Exact integer parts of irrational numbers.

The probabilities of exponential noise with a rational epsilon are transcendental (Lindemann-Weierstrass),
so a decimal expansion that is long enough always shows on which side of a binary fraction they lie. The
functions here take as many digits as the question needs and no decision is left to a rounding error.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal, localcontext
from fractions import Fraction

Irrational = Callable[[], Decimal]
"""Evaluates one irrational number under the decimal context in force.

The error must stay below ``10**GUARD`` units of the last digit of 1 (the numbers here are made of a few
correctly rounded operations, of a size below 10**15).
"""

GUARD = 20
_LEAST_DIGITS = 120


def evaluate(value: Irrational, digits: int) -> Decimal:
    """Return ``value`` evaluated with ``digits`` significant digits, whatever context the caller is in."""
    with localcontext(Context(prec=digits, rounding=ROUND_HALF_EVEN, Emin=MIN_EMIN, Emax=MAX_EMAX)):
        return value()


def floor_scaled(value: Irrational, bits: int = 0) -> int:
    """Return ⌊2**bits · value⌋ exactly; digits are doubled until the answer is beyond doubt."""
    digits = _LEAST_DIGITS + bits
    while True:
        with localcontext(Context(prec=2 * digits, rounding=ROUND_HALF_EVEN, Emin=MIN_EMIN, Emax=MAX_EMAX)):
            scaled = evaluate(value, digits) * (1 << bits)
            floor = scaled.to_integral_value(rounding=ROUND_FLOOR)
            doubt = Decimal(10) ** (GUARD - digits) * (1 << bits)
            if doubt < scaled - floor < 1 - doubt:
                return int(floor)
        digits *= 2


def decimal(value: Fraction) -> Decimal:
    """Return ``value`` rounded to the decimal context in force."""
    return Decimal(value.numerator) / Decimal(value.denominator)


def exp_minus(value: Fraction) -> Decimal:
    """Return e**-value, rounded to the decimal context in force."""
    return (-decimal(value)).exp()
