"""Counts with noise and nothing else; values may be negative."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stream.errors import DataError
from stream.mechanisms.base import Parameters, TickInput, Values, whole
from stream.mechanisms.noise_parameters import NoiseParameter
from stream.schemas import HalfWidthKind


@dataclass(frozen=True)
class Laplace:
    """Counts plus noise. Its state is None."""

    zones: int
    noise: NoiseParameter
    half_width_kind: HalfWidthKind = "noise"

    def initial(self) -> None:
        """Return None."""

    def step(self, state: None, item: TickInput) -> tuple[None, list[Values]]:
        """Add the noise."""
        noisy = item.counts + item.noise
        return None, [Values(noisy, np.full(self.zones, self.noise.half_width_95), whole(noisy))]

    def pause(self, state: None) -> None:
        """Return None."""

    def encode(self, state: None) -> bytes:
        """Return no bytes."""
        return b""

    def decode(self, data: bytes) -> None:
        """Return None; DataError where there are bytes."""
        if data:
            raise DataError("laplace state: must be empty")


def laplace(parameters: Parameters) -> Laplace:
    """Return the mechanism for these parameters."""
    return Laplace(parameters.zones, parameters.noise)
