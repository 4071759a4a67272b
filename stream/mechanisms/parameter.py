"""Which noise a value bears: its kind, and its exact parameter. What differs from kind to kind stands here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from stream.errors import UsageError
from stream.mechanisms import gaussian, gaussian_chain, noise
from stream.mechanisms.chain import chain
from stream.mechanisms.inversion import Ints
from stream.mechanisms.labels import Context
from stream.records import NoiseKind


class _Law(NamedTuple):
    """What is known of a kind of noise; each takes the exact parameter."""

    check: Callable[[Fraction], Fraction]
    half_width_95: Callable[[Fraction], int]
    sum_half_width_95: Callable[[Fraction, int], int]
    deviation: Callable[[Fraction], float]
    scale: Callable[[Fraction], float]


_LAWS: dict[NoiseKind, _Law] = {
    "laplace": _Law(
        noise.check_epsilon, noise.half_width_95, noise.sum_half_width_95, noise.std, lambda epsilon: float(1 / epsilon)
    ),
    "gaussian": _Law(
        gaussian.check_variance, gaussian.half_width_95, gaussian_chain.sum_half_width_95, gaussian.scale,
        gaussian.scale,
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class NoiseParameter:
    """The law of one noise. Raises UsageError where the sampler cannot make it."""

    kind: NoiseKind
    exact: Fraction
    """Laplace: ε divided by the sensitivity. Gaussian: σ²."""

    def __post_init__(self) -> None:
        _LAWS[self.kind].check(self.exact)

    @property
    def epsilon(self) -> Fraction:
        """ε of Laplace noise; UsageError for another, of which no ε holds without a δ."""
        if self.kind != "laplace":
            raise UsageError(f"noise must be laplace where a pure epsilon is asked for, got {self.kind}")
        return self.exact

    @property
    def scale(self) -> float:
        """What records name ``noise_scale``: 1/ε, or σ."""
        return _LAWS[self.kind].scale(self.exact)

    @property
    def deviation(self) -> float:
        """Standard deviation; of Gaussian noise σ, which is never less."""
        return _LAWS[self.kind].deviation(self.exact)

    @property
    def steepest(self) -> float:
        """Largest weight, per person, that the filter's calendar may have against the noise: ε, or 1/σ."""
        return float(self.exact) if self.kind == "laplace" else 1 / self.scale

    @property
    def half_width_95(self) -> int:
        """The smallest w that a draw exceeds with probability 0.05 at most."""
        return _LAWS[self.kind].half_width_95(self.exact)

    def sum_half_width_95(self, n: int) -> int:
        """Return a w that the sum of ``n`` independent draws exceeds with probability 0.05 at most."""
        return _LAWS[self.kind].sum_half_width_95(self.exact, n)


def laplace_noise(epsilon: Fraction) -> NoiseParameter:
    """Return discrete Laplace noise at an epsilon (divided by the sensitivity)."""
    return NoiseParameter("laplace", epsilon)


def gaussian_noise(variance: Fraction) -> NoiseParameter:
    """Return discrete Gaussian noise of a variance σ²."""
    return NoiseParameter("gaussian", variance)


def noise_chain(
    key: bytes, context: Context, digest: bytes, parameters: Sequence[NoiseParameter], n: int
) -> dict[NoiseParameter, Ints]:
    """Return the noise of every parameter from one chain, equal ones sharing one value.

    Args:
        key: the day's secret.
        context: the window's release; the audience is not part of it.
        digest: digest of the counts that the noise is for.
        parameters: at least one, all of one kind.
        n: number of zones.

    Raises:
        UsageError: no parameter, or parameters of several kinds, which no chain joins.
    """
    kinds = {each.kind for each in parameters}
    if len(kinds) != 1:
        raise UsageError(f"parameters must be of one kind, got {', '.join(sorted(kinds)) or 'none'}")
    (kind,) = kinds
    exact = [each.exact for each in parameters]
    made = (chain if kind == "laplace" else gaussian_chain.gaussian_chain)(key, context, digest, exact, n)
    return {NoiseParameter(kind, each): drawn for each, drawn in made.items()}
