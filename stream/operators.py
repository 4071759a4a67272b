"""The interface of an operator: a stage of the stream, or a part of a stage that has a state of its own.

An operator is an immutable configuration with two functions: ``initial`` returns the state before the first item, and
``step`` maps a state and an item to the next state and the outputs. No operator reads a clock, a file, the network or a
global random generator. Time and keys are arguments, so the outputs depend on state and item alone.

``step`` may change the state in place. It returns that state or a new one, and the caller must not use the former state
again. A caller that needs a state twice keeps its byte form.

The byte form of a state (``encode`` / ``decode``) is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

S = TypeVar("S")
I_contra = TypeVar("I_contra", contravariant=True)
Produced = TypeVar("Produced")


class Operator(Protocol[S, I_contra, Produced]):
    """``initial`` and ``step``, and the byte form of the state."""

    def initial(self) -> S:
        """Return the state before the first item."""

    def step(self, state: S, item: I_contra) -> tuple[S, list[Produced]]:
        """Process one item; return the next state and the outputs, in order."""

    def encode(self, state: S) -> bytes:
        """Return the stable byte form of a state."""

    def decode(self, data: bytes) -> S:
        """Return the state whose byte form is ``data``."""


Item = TypeVar("Item")
Out = TypeVar("Out")


def scan(operator: Operator[S, Item, Out], items: Iterable[Item], state: S | None = None) -> tuple[S, list[Out]]:
    """Run one operator over items; return the last state and all outputs, in order."""
    current = operator.initial() if state is None else state
    outputs: list[Out] = []
    for item in items:
        current, produced = operator.step(current, item)
        outputs.extend(produced)
    return current, outputs
