"""States of the version before, in the form of this one.

A state is upgraded once, by ``tacet store upgrade``, and then adopted as under an accepted change of policy.
What the form before did not know is filled in so that no promise becomes weaker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import orjson


def upgraded_stages(stages: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the states of a site's stages, by name, that version 1 has written."""
    return {name: _FORMS.get(name, _as_it_is)(data) for name, data in stages.items()}


def _as_it_is(data: bytes) -> bytes:
    return data


def _account(data: bytes) -> bytes:
    """Know what a device's day costs at its edges too: what the last windows cost is more than these do."""
    body = orjson.loads(data)
    body["sums"] = {reader: _sums(*fields) for reader, fields in body["sums"].items()}
    body["runs"] = {name: _run(*fields) for name, fields in body["runs"].items()}
    return orjson.dumps(body)


def _sums(day: int, today: str, total: str, largest: str, recent: list[tuple[int, str]]) -> list[Any]:
    edges = sum((Fraction(cost) for _, cost in recent), Fraction(0))
    return [[[day, str(Fraction(today) + edges)]], total, largest, recent]


def _run(epsilon: str, w: int, day: int, today: int, total: int) -> list[Any]:
    return [epsilon, w, total, [[day, today + w, 0]]]


_FORMS: Mapping[str, Callable[[bytes], bytes]] = {"account": _account}
"""Stage -> what brings its state to the present form."""
