"""Estimators of a calibration: curves, factors of hours, widths of bands. Pure functions.

**Error in the devices.** A released value is the true number of devices plus noise of a known law. A regression on
released values would give too flat a curve (Fuller, Measurement Error Models, 1987, chapter 1). So the regression is
on the expected true number given the released one (regression calibration: Carroll, Ruppert, Stefanski and Crainiceanu,
Measurement Error in Nonlinear Models, 2006, chapter 4). The distribution of true numbers is the nonparametric maximum
likelihood estimate of a node's whole history (``expected_devices``).

**Curve.** Median regression of people on ramps between powers of two, ascending; each day weighs the same, because
windows of a day depend on each other.

**Bands.** Split conformal prediction with whole days as units: the curve comes from some days, the quantile from
others. Each day has weight 1 / (k + 1), divided among its windows, and one more day would be infinitely far away (Dunn,
Wasserman and Ramdas, 2023; Lee, Barber and Willett, 2024). If days are exchangeable, a window of a new day is then
covered with the stated probability. The larger quantile counts of that for all windows and that for windows with
people: elsewhere empty nights would pay for errors of the day.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

STEPS = 200
"""Of the expectation-maximisation, after which no estimate on real counts changes by a tenth of a device."""
FEWEST_DAYS_OF_HOUR = 5
"""An hour has a factor of its own if people were counted in it on so many days."""
CREDIBLE_DAYS = 10
"""A node's own curve weighs n / (n + 10) with n days with people; the rest is its floor's, or its building's."""
LEAST_CONSTANT = 0.5
"""Least standard deviation of people at a quiet place; below it a whole number is rounding."""


class Noise(NamedTuple):
    """The law of the noise in released values."""

    kind: str
    """``laplace`` or ``gaussian``."""
    deviation: float
    """Standard deviation, in devices."""

    def probabilities(self, away: Floats) -> Floats:
        """Return the probability of each whole number of noise, not normalised."""
        if self.kind == "laplace":
            return np.asarray(np.exp(-np.abs(away) * np.sqrt(2) / self.deviation))
        return np.asarray(np.exp(-(away**2) / (2 * self.deviation**2)))


def expected_devices(history: Ints, noise: Noise | None) -> dict[int, float]:
    """Return the expected true number of devices for each released value of a node's history, ascending.

    Args:
        history: all released values of the node.
        noise: None if the values are true, or estimates that contain no such noise.
    """
    values, windows = np.unique(history, return_counts=True)
    if noise is None or noise.deviation == 0:
        return {int(value): float(max(0, value)) for value in values}
    grid = np.arange(0, max(1, int(values.max())) + 1, dtype=np.float64)
    likelihood = noise.probabilities(values[:, None] - grid)
    share = np.full(len(grid), 1 / len(grid))
    for _ in range(STEPS):
        joint = likelihood * share
        joint /= joint.sum(axis=1, keepdims=True)
        share = windows @ joint / windows.sum()
    joint = likelihood * share
    means = np.maximum.accumulate(joint @ grid / joint.sum(axis=1))
    return dict(zip(values.tolist(), means.tolist(), strict=True))


# --- curves -------------------------------------------------------------------------------------------


class Curve(NamedTuple):
    """People by devices: ramps between knots."""

    knots: Floats
    heights: Floats
    """People at each knot, ascending."""

    def people(self, devices: Floats) -> Floats:
        """Return people; beyond the last knot its height."""
        return np.asarray(np.interp(devices, self.knots, self.heights))


def day_weights(days: Ints) -> Floats:
    """Return weights with which each day weighs the same, shape [windows]."""
    _, of, windows = np.unique(days, return_inverse=True, return_counts=True)
    return np.asarray(1 / windows[of], dtype=np.float64)


def fit_curve(devices: Floats, people: Floats, weights: Floats) -> Curve:
    """Return the ascending curve with the least weighted sum of absolute errors."""
    from scipy.optimize import linprog  # noqa: PLC0415 - slow to load, and no other command needs it
    from scipy.sparse import csr_array, eye_array, hstack  # noqa: PLC0415

    largest = max(2.0, float(devices.max()))
    inner = 2.0 ** np.arange(1, 1 + max(1, int(np.ceil(np.log2(largest / 1.2)))))
    knots = np.concatenate([[0.0], inner[inner < largest / 1.2], [largest]])
    rows, of = np.unique(np.stack([devices, people]), axis=1, return_inverse=True)
    weight = np.bincount(of.ravel(), weights)
    ramps = np.clip(rows[0][:, None] - knots[:-1], 0, np.diff(knots))
    base = csr_array(np.column_stack([np.ones(len(weight)), ramps]))
    unit, n = eye_array(len(weight)), base.shape[1]
    equations: Any = hstack([base, unit, -unit])
    solved = linprog(
        np.concatenate([np.zeros(n), weight, weight]), A_eq=equations, b_eq=rows[1],
        bounds=[(0, None)] * (n + 2 * len(weight)), method="highs",
    )  # fmt: skip
    slopes = np.asarray(solved.x)[:n]
    return Curve(knots, slopes[0] + np.concatenate([[0.0], np.cumsum(slopes[1:] * np.diff(knots))]))


def blended(own: Curve, parent: Curve, days: int) -> Curve:
    """Return a node's curve, shrunk to its parent's where few days have people."""
    share = days / (days + CREDIBLE_DAYS)
    knots = np.union1d(own.knots, parent.knots)
    return Curve(knots, share * own.people(knots) + (1 - share) * parent.people(knots))


def hour_factors(hours: Ints, days: Ints, people: Floats, estimates: Floats) -> dict[int, float]:
    """Return the factor of each hour in which people were counted on enough days; other hours have none.

    The ratio of an hour, less 1, is shrunk by 1 - s²/r² (at least 0) with the variance s² of the ratio r between days.
    An hour without people tells nothing about people per device, however many days it has.
    """
    found = dict[int, float]()
    for hour in np.unique(hours).tolist():
        here = hours == hour
        names, of = np.unique(days[here], return_inverse=True)
        truth, estimated = np.bincount(of, people[here]), np.bincount(of, estimates[here])
        if int(((truth > 0) & (estimated > 0)).sum()) < FEWEST_DAYS_OF_HOUR:
            continue
        excess, whole, n = truth - estimated, estimated.sum(), len(names)
        ratio = excess.sum() / whole
        variance = float(((excess - ratio * estimated) ** 2).sum() / whole**2 * n / (n - 1))
        if ratio:
            found[int(hour)] = float(max(0.0, 1 + ratio * max(0.0, 1 - variance / ratio**2)))
    return found


def times_factors(estimates: Floats, hours: Ints, factors: Mapping[int, float]) -> Floats:
    """Return estimates times the factor of their hour; 1 where an hour has none."""
    table = np.array([factors.get(hour, 1.0) for hour in range(24)])
    return np.asarray(estimates * table[hours])


# --- bands --------------------------------------------------------------------------------------------


class Spread(NamedTuple):
    """Standard deviation sqrt(constant² + (relative d)²) of people around an estimate from d released devices.

    At few devices the error is additive, at many it is multiplicative.
    """

    constant: float
    relative: float

    def of(self, released: Ints) -> Floats:
        """Return the standard deviation for each released value."""
        return np.asarray(np.sqrt(self.constant**2 + (self.relative * np.maximum(0, released)) ** 2))


def fit_spread(errors: Floats, released: Ints) -> Spread:
    """Return the spread with the least squared error of squared errors."""
    from scipy.optimize import nnls  # noqa: PLC0415 - as above

    present = np.maximum(0.0, released)
    squares, _ = nnls(np.column_stack([np.ones(len(errors)), present**2]), errors**2)
    return Spread(max(LEAST_CONSTANT, float(np.sqrt(squares[0]))), float(np.sqrt(squares[1])))


def conformal_quantile(scores: Floats, days: Ints, level: float) -> float:
    """Return the quantile of scores that a window of a new day exceeds with probability 1 - level at most.

    Infinite if there are fewer days than level / (1 - level).
    """
    order = np.argsort(scores, kind="stable")
    weights = day_weights(days)[order] / (len(np.unique(days)) + 1)
    place = int(np.searchsorted(np.cumsum(weights), level - 1e-9))
    return float(scores[order][place]) if place < len(scores) else float("inf")


def fixed_factor(devices: Floats, people: Floats) -> float:
    """Return the factor of devices with the least mean absolute error: a weighted median of the ratios."""
    present = devices > 0
    if not present.any():
        return 0.0
    ratio, weight = people[present] / devices[present], devices[present]
    order = np.argsort(ratio, kind="stable")
    total = np.cumsum(weight[order])
    return float(ratio[order][np.searchsorted(total, total[-1] / 2)])
