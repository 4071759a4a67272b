"""What a policy says of adversaries and persons, whatever is released: bounds, and models that are declared."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Annotated

from pydantic import Field, FiniteFloat, field_validator

from stream.policy.fields import Delta, Frozen
from stream.policy.queries import LONGEST_W


class Mobility(Frozen):
    """How a person moves from one tick to the next, as an adversary may know it; declared, and so public."""

    forward: tuple[tuple[Annotated[float, Field(ge=0, le=1)], ...], ...] = Field(min_length=2, max_length=512)
    """Row a: probabilities of the state at the next tick for one who is in state a; each row adds up to 1."""

    @field_validator("forward")
    @classmethod
    def _stochastic(cls, value: tuple[tuple[float, ...], ...]) -> tuple[tuple[float, ...], ...]:
        for number, row in enumerate(value):
            if len(row) != len(value) or abs(sum(row) - 1) > 1e-9:
                msg = f"row {number} must have {len(value)} probabilities that add up to 1, got {list(row)}"
                raise ValueError(msg)
        return value


class Meeting(Frozen):
    """People who come and go together: each of the others is there with ``correlation`` to the first."""

    size: int = Field(ge=2, le=10_000, strict=True)
    correlation: float = Field(ge=0, le=1, strict=True)
    presence: float = Field(gt=0, lt=1, strict=True)
    """Probability that one of them is there at a tick."""


class Privacy(Frozen):
    """Bounds that hold for every release."""

    devices_per_person: int = Field(default=3, ge=1, le=100, strict=True)
    max_factor: FiniteFloat = Field(default=math.exp(3), gt=1, strict=True)
    """Largest posterior-odds factor any coalition may reach on one attribute, with counts of the same zone only."""
    ticks_per_attribute: int = Field(default=12, ge=1, le=1440, strict=True)
    """Ticks by which a sensitive and a non-sensitive value may differ in the counts."""
    w: int = Field(default=12, ge=1, le=LONGEST_W, strict=True)
    """Windows of the sliding w-event unit."""
    delta: Delta = Fraction(1, 1_000_000)
    """Of every figure that is (epsilon, delta), unless a release has its own; public."""
    factor_delta: Delta | None = None
    """Probability with which ``max_factor`` may fail beside counts whose loss has no bound; None: it may not."""
    mobility: Mobility | None = None
    meetings: tuple[Meeting, ...] = ()
