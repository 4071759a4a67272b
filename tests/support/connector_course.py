"""What a connector sends of messages that it hears, while its clock goes on in large steps."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import NamedTuple

import pytest

from connectors.sources.ingest import ingest
from connectors.sources.ingest.ingest import Ingest
from connectors.sources.ingest.sighting import Message, Sighting
from stream.records import SECOND, Micros
from tests.support.small_building import SOURCES


class Heard(NamedTuple):
    """A sighting, when the connector hears it, and which time it is given."""

    came: Micros
    sighting: Sighting
    time: Micros


def heard(time: Micros, sighting: Sighting) -> Heard:
    """Return a sighting that is heard at its time."""
    return Heard(time, sighting, time)


def sent_by_step(
    core: Ingest,
    messages: Iterable[Heard],
    steps: range,
    *,
    grid: Micros,
    restarts: Sequence[Micros] = (),
    silent: Container[Micros] = (),
) -> Iterator[tuple[Micros, list[Message]]]:
    """Yield each step's time, and what is sent then; the last time is the end, at which the rest is sent.

    Args:
        core: the connector's core.
        messages: what it hears, in any order.
        steps: the times at which its clock is looked at.
        grid: of its heartbeats; those every five seconds would take long.
        restarts: when it begins anew.
        silent: the steps at which it does not run.
    """
    state, todo, again = core.initial(steps.start), sorted(messages, key=lambda each: each.came), sorted(restarts)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("GRID", "OUTAGE"):
            patch.setattr(ingest, name, grid)
        for now in steps:
            while todo and todo[0].came <= now:
                _, sighting, time = todo.pop(0)
                core.observe(state, time, SOURCES[0], SOURCES[0], sighting)
            if now in silent:
                continue
            core.record_running(state, now)
            sent = core.poll(state, now + SECOND)
            if again and again[0] <= now:
                again.pop(0)
                sent += core.drain(state)
                state = core.initial(now, state.session)
            yield now, sent
        yield steps.stop, core.drain(state)
