"""What a stage is.

A stage is a configuration that does not change, with two functions: ``initial`` gives the state before the first
item, ``step`` takes a state and an item and gives the next state and the outputs. No stage reads a clock,
a file, the network or a global generator; time and keys are arguments, so what comes out depends on state and item
alone. States are changed in place: the caller hands its state over, ``step`` changes it and returns it, or another
in its stead, and the old one must not be used again. Who needs a state twice keeps its byte form.

States survive a byte form (``encode`` / ``decode``) that is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

S = TypeVar("S")
I_contra = TypeVar("I_contra", contravariant=True)
Produced = TypeVar("Produced")


class Operator(Protocol[S, I_contra, Produced]):
    """One stage of the stream: ``initial`` and ``step``, and the byte form of its state."""

    def initial(self) -> S:
        """Return the state before the first item."""

    def step(self, state: S, item: I_contra) -> tuple[S, list[Produced]]:
        """Fold one item into the state; return the next state and what comes out, in order."""

    def encode(self, state: S) -> bytes:
        """Return the stable byte form of a state."""

    def decode(self, data: bytes) -> S:
        """Return the state whose byte form is ``data``."""


Item = TypeVar("Item")
Out = TypeVar("Out")


def scan(operator: Operator[S, Item, Out], items: Iterable[Item], state: S | None = None) -> tuple[S, list[Out]]:
    """Drive one operator over items; return the last state and all outputs in order."""
    current = operator.initial() if state is None else state
    outputs: list[Out] = []
    for item in items:
        current, produced = operator.step(current, item)
        outputs.extend(produced)
    return current, outputs
