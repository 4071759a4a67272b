"""States of the version before, in the form of this one.

A state is upgraded once, by ``tacet store upgrade``, and then adopted as under an accepted change of policy.
What the form before did not know is filled in so that no promise becomes weaker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import orjson

from stream.accounting.charged import ChargedWindows, encode_charged
from stream.envelope import join_parts, split_parts
from stream.mechanisms.wevent import is_publication
from stream.policy.queries import LONGEST_W
from stream.records import HOUR
from stream.release.asked import all_zones_asked, encode_asked


def upgraded_stages(stages: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the states of a site's stages, by name, that version 1 has written."""
    return {name: _FORMS.get(name, _as_it_is)(data) for name, data in stages.items()}


def _as_it_is(data: bytes) -> bytes:
    return data


def _account(data: bytes) -> bytes:
    """Let a device's day know its edges, and a habit its attribute, but not its zones: it may be of any."""
    body = orjson.loads(data)
    body["sums"] = {reader: _sums(*fields) for reader, fields in body["sums"].items()}
    body["runs"] = {name: _run(*fields) for name, fields in body["runs"].items()}
    body["habits"] = [
        [[], attribute, reader, *fields]
        for name, fields in body["habits"].items()
        for _, attribute, reader in (name.split("/"),)
    ]
    return orjson.dumps(body | {"charged": encode_charged(ChargedWindows())})


def _sums(key_day: int, today: str, total: str, largest: str, recent: list[tuple[int, str]]) -> list[Any]:
    """Count every window of the day so far twice, though only the first ones do, and the one that ended at midnight."""
    return [[[key_day, str(2 * (Fraction(today) + Fraction(largest)))]], total, largest, recent]


def _run(epsilon: str, w: int, key_day: int, today: int, total: int) -> list[Any]:
    return [epsilon, w, total, [[key_day, today + 1, today + 1]]]


def _release(data: bytes) -> bytes:
    """Let no publication go on that does not say whose it is, and ask nothing of a day that may have been asked.

    What carries a publication waits for the longest w. What counts were charged was not noted: the local day at
    hand, to which it matters, is not asked, since a day that is adopted is seen in part only.
    """
    head, parts = split_parts(data)
    recent = head["ledger"]["recent"]
    head["ledger"]["recent"] = {name: [[end, 0, 1, nano] for end, nano in rows] for name, rows in recent.items()}
    carries = any(is_publication(part) for part in parts.values())
    waits = head["through"] + LONGEST_W * HOUR if carries else -1
    asked = all_zones_asked(day for days in head["asked"].values() for day in days)
    new = {"asked": encode_asked(asked), "charged": encode_charged(ChargedWindows()), "closed": ""}
    return join_parts(head | new | {"carried": {}, "waits": waits}, parts)


_FORMS: Mapping[str, Callable[[bytes], bytes]] = {"account": _account, "release": _release}
"""Stage -> what brings its state to the present form."""
