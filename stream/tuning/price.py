"""What a candidate's epsilon pays for, and the noise that it buys."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from stream.accounting.charged import coalition_cost
from stream.accounting.device_day import whole_day
from stream.errors import UsageError
from stream.mechanisms.contract import CountMechanism, Parameters
from stream.mechanisms.counts import mechanism_of
from stream.mechanisms.parameter import NoiseParameter, gaussian_noise, laplace_noise
from stream.policy.fields import decimal_string
from stream.policy.mechanisms import mechanism_named
from stream.records import Micros
from stream.release.paid_by_day import DayPrice

Unit = Literal["window", "device_day"]
DELTA = Fraction(1, 1_000_000)


@dataclass(frozen=True, slots=True)
class Terms:
    """How a mechanism is paid at a site."""

    mechanism: str
    unit: Unit
    tick: Micros
    reach: int
    """Ticks at which one observation counts."""
    ticks: int = 0
    """K: windows of a day at which one device counts at most; 0 where nothing bounds them."""
    delta: Fraction = DELTA
    """With which the epsilon of a day holds, of gaussian noise."""

    @property
    def bounded(self) -> bool:
        """Whether what is released are counts to which a device adds for part of its day."""
        return self.unit == "device_day" and mechanism_named(self.mechanism).by_day

    @property
    def cells(self) -> int:
        """How many epsilons of a window a device's day costs, where nothing better is proven."""
        cells = whole_day(self.tick, self.reach)
        return cells.epsilons(1)

    def noise(self, epsilon: Fraction) -> NoiseParameter:
        """Return the noise of a window that an epsilon of the unit buys.

        A day that is paid at once has gaussian noise. A mechanism without a proof for that is paid by the window: a day
        then costs the windows it may change.

        Raises:
            UsageError: it buys none that can be made.
        """
        if self.bounded:
            return gaussian_noise(DayPrice("gaussian", epsilon, self.delta, self.ticks).parameters[0])
        part = epsilon if self.unit == "window" else epsilon / self.cells
        least = mechanism_named(self.mechanism).smallest
        if part < least:
            raise UsageError(f"epsilon of a window must be at least {decimal_string(least)} with {self.mechanism}")
        return laplace_noise(part)

    def of_day(self, epsilon: Fraction) -> Fraction:
        """Return what a device's day costs at an epsilon of the unit."""
        if self.unit == "device_day":
            return epsilon
        return self.cells * coalition_cost(self.mechanism, [epsilon])

    def made(self, epsilon: Fraction, max_counts: tuple[int, ...]) -> CountMechanism:
        """Return the mechanism over zones with these largest counts; UsageError as for ``noise``."""
        return mechanism_of(self.mechanism, Parameters(self.noise(epsilon), max_counts))
