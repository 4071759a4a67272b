"""What a threshold is compared with: counts that a file has, or sums and means of values that are held within bounds.

A file of values has a row for each contribution. Each value is rounded to a whole number of steps of the declared
resolution and held within the declared bounds, so that one row more or less changes what is compared by as much as is
declared, whatever the file says. A mean is above c where the deviations from c add up to more than 0, so that it takes
no second noise for the number of rows; one of no rows is at its threshold.

| aggregate | compared with 0 or the threshold | one row changes it by |
|---|---|---|
| count | count | 1 |
| sum | sum of values | the bound that is larger in magnitude |
| mean | sum of deviations from the threshold | the bound that is further from any threshold |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal

from connectors.files.predicates import LARGEST, read_counts, read_values
from stream.errors import DataError, UsageError

Aggregate = Literal["count", "sum", "mean"]


@dataclass(frozen=True, slots=True)
class Measure:
    """What is compared. UsageError where bounds or resolution are missing, too many or make no sense."""

    aggregate: Aggregate = "count"
    bounds: tuple[Fraction, Fraction] | None = None
    """Within which every value is held."""
    resolution: Fraction | None = None
    """The step to which values are rounded; both bounds are multiples of it."""

    def __post_init__(self) -> None:
        if self.aggregate == "count":
            if self.bounds is not None or self.resolution is not None:
                raise UsageError("bounds and resolution go with sums and means, not with counts")
            return
        if self.bounds is None or self.resolution is None:
            raise UsageError(f"a {self.aggregate} must have bounds and a resolution")
        low, high = self.bounds
        if self.resolution <= 0:
            raise UsageError(f"resolution must be above 0, got {float(self.resolution):g}")
        if low >= high:
            raise UsageError(f"bounds must be two numbers, the lower one first, got {float(low):g} and {float(high):g}")
        if any((bound / self.resolution).denominator > 1 for bound in self.bounds):
            raise UsageError(f"bounds must be multiples of the resolution {float(self.resolution):g}")
        if max(abs(low), abs(high)) / self.resolution > LARGEST:
            raise UsageError(f"bounds must be at most {LARGEST} times the resolution")

    @property
    def step(self) -> Fraction:
        """What one unit of all that is compared is worth."""
        return self.resolution or Fraction(1)

    def sensitivity(self, thresholds: Iterable[Fraction]) -> int:
        """Return by how many steps one row more or less changes what is compared, at most."""
        if self.bounds is None:
            return 1
        centres = thresholds if self.aggregate == "mean" else [Fraction(0)]
        return max(int(abs(bound - centre) / self.step) for centre in centres for bound in self.bounds)

    def limits(self, thresholds: Mapping[str, Fraction]) -> dict[str, Fraction]:
        """Return, in steps, what each predicate is compared with.

        Raises:
            DataError: the threshold of a mean is no multiple of the resolution.
        """
        if self.aggregate != "mean":
            return {name: threshold / self.step for name, threshold in thresholds.items()}
        if any((threshold / self.step).denominator > 1 for threshold in thresholds.values()):
            raise DataError(f"thresholds of means must be multiples of the resolution {float(self.step):g}")
        return dict.fromkeys(thresholds, Fraction(0))

    def read(self, path: Path, thresholds: Mapping[str, Fraction]) -> dict[str, int]:
        """Return, in steps, what is compared of each predicate; restricted.

        Raises:
            UsageError: the file cannot be read or has other columns.
            DataError: a row is bad, or the file has other predicates than there are thresholds.
        """
        if self.bounds is None:
            return read_counts(path)
        low, high = self.bounds
        totals = dict.fromkeys(thresholds, 0)
        for name, value in read_values(path):
            if name not in totals:
                raise DataError("values must be of predicates that have a threshold; nothing is decided")
            held = round(min(max(value, low), high) / self.step)
            totals[name] += held - (int(thresholds[name] / self.step) if self.aggregate == "mean" else 0)
        return totals
