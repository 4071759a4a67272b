"""People, estimated from the published records of a count release.

This is post-processing: ``PeopleStream`` receives bytes of published records, and nothing else about a window. So a
record of people costs nothing, has no ledger entry, and is a function of what its audience has already received.

**State** (``FeedState``): the sums of each node's released values in the current local day, and the nodes at which the
last complete day was unlike those from which the model was made. There the feed has changed, for example by new access
points, and no number is published until a day is usual again.

**Provisional models.** Their records say so (``provisional``), and promise no share of windows (``band`` is 0). After
the model's last day, by the windows' own dates, every node is unknown (``expired``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import orjson

from stream.errors import DataError, PolicyError
from stream.policy.document import PolicyDocument
from stream.policy.people import MIXED, Band, People
from stream.records import DAY, EPOCH, JsonObject, Micros, Published, ReleaseId
from stream.schemas import Levels, PeopleRecord, parse_record, private_topic

LEAST_SHARE = 2
"""A day is judged if it has a window for at least one in so many ticks."""


@dataclass(slots=True)
class FeedState:
    """Sums of released values of a local day, and the nodes whose last complete day was unusual."""

    day: int = -1
    """Number of the local day since 1970."""
    windows: int = 0
    sums: dict[str, int] = field(default_factory=dict)
    changed: frozenset[str] = frozenset()


class PeopleStream:
    """The estimates of people from one release to one audience at a site."""

    def __init__(self, people: People, timezone: str, tick: Micros) -> None:
        self._model, self._digest = people.model, people.digest
        self.release, self.audience = people.model.release, people.model.audience
        """The count release, and its audience."""
        self.name = people.release_name
        self.state_name = f"{self.name}/{self.audience}"
        self._timezone = ZoneInfo(timezone)
        self._day_windows = DAY // tick

    # --- the operator of the state ----------------------------------------------------------------

    def initial(self) -> FeedState:
        """Return the state before the first window."""
        return FeedState()

    def step(self, state: FeedState, item: Published) -> tuple[FeedState, list[Published]]:
        """Return the next state and the record of people for a published record of counts."""
        record = parse_record(item.value)
        local = (EPOCH + timedelta(microseconds=item.time)).astimezone(self._timezone)
        day = (local.date() - EPOCH.date()).days
        if day > state.day:
            state = self._next_day(state, day)
        counts = dict(_nodes(record))
        if day == state.day and counts:
            state.windows += 1
            for node, value in counts.items():
                state.sums[node] = state.sums.get(node, 0) + value
        found = self._record(record, counts, local, state)
        topic = private_topic(self.audience, self.name)
        return state, [Published(topic, item.key, found.to_bytes(), item.time, found.release_id)]

    def _next_day(self, state: FeedState, day: int) -> FeedState:
        """Return the state of a new day; a day with too few windows judges nothing."""
        changed = state.changed
        if state.windows * LEAST_SHARE >= self._day_windows:
            model = self._model
            changed = frozenset(
                node for node, total in state.sums.items()
                if node in model.nodes and not model.is_usual(node, total, state.windows)
            )  # fmt: skip
        return FeedState(day, 0, {}, changed)

    def _record(
        self, record: JsonObject, counts: dict[str, int], local: datetime, state: FeedState
    ) -> PeopleRecord:  # fmt: skip
        model, unknown, bands = self._model, dict[str, str](), dict[str, Band]()
        for node, value in counts.items():
            why = model.unknown(node, value, local.hour, record["coverage"])
            if why is None and node in state.changed:
                why = "feed"
            if model.has_expired(local.date()):
                why = "expired"
            if why is None:
                bands[node] = model.estimate(node, value, local.hour)
            else:
                unknown[node] = why
        identity = ReleaseId.parse(record["release_id"])._replace(release=self.name)
        reasons = set(unknown.values())
        reason = record["reason"] or (None if bands else reasons.pop() if len(reasons) == 1 else MIXED)
        found = PeopleRecord(
            release_id=str(identity),
            site=record["site"],
            audience=record["audience"],
            release=self.name,
            window_start=record["window_start"],
            window_end=record["window_end"],
            counted="people",
            values=_zones(bands, 0) if bands else None,
            low=_zones(bands, 1) if bands else None,
            high=_zones(bands, 2) if bands else None,
            unknown=unknown,
            released=bool(bands),
            reason=reason,
            band=model.band,
            of=record["release_id"],
            model=self._digest,
            mechanism=f"{record['mechanism']}/people",
            epsilon=record["epsilon"],
            spend="0",
            coverage=record["coverage"],
            policy_version=record["policy_version"],
            laboratory=record["laboratory"],
        )
        levels = {name: _levels(bands, place) for place, name in enumerate(("levels", "levels_low", "levels_high"))}
        update: dict[str, Levels | bool] = {**levels} if any(levels.values()) else {}
        if model.provisional is not None:
            update = update | {"provisional": True}
        return found.model_copy(update=update) if update else found

    def encode(self, state: FeedState) -> bytes:
        """Return the state's bytes: JSON."""
        return orjson.dumps([state.day, state.windows, dict(sorted(state.sums.items())), sorted(state.changed)])

    def decode(self, data: bytes) -> FeedState:
        """Return the state of a byte form; DataError if it is none."""
        try:
            day, windows, sums, changed = orjson.loads(data)
            return FeedState(int(day), int(windows), {str(k): int(v) for k, v in sums.items()}, frozenset(changed))
        except (ValueError, TypeError, AttributeError):
            raise DataError("people state: must be a day, its windows, sums and changed nodes") from None


def _nodes(record: JsonObject) -> Iterator[tuple[str, int]]:
    """Yield the nodes of a count record with their released values; nothing for a denied window."""
    yield from ((f"zone:{name}", value) for name, value in (record["values"] or {}).items())
    levels = record.get("levels") or {}
    yield from ((f"floor:{name}", value) for name, value in levels.get("floor", {}).items())
    if "building" in levels:
        yield "building", levels["building"]


def _zones(bands: dict[str, Band], place: int) -> dict[str, int]:
    return {node.removeprefix("zone:"): band[place] for node, band in bands.items() if node.startswith("zone:")}


def _levels(bands: dict[str, Band], place: int) -> Levels:
    floors = {node.removeprefix("floor:"): band[place] for node, band in bands.items() if node.startswith("floor:")}
    levels: Levels = {"floor": floors} if floors else {}
    return levels | ({"building": bands["building"][place]} if "building" in bands else {})


def people_streams(policy: PolicyDocument, site: str, *, laboratory: bool) -> tuple[PeopleStream, ...]:
    """Return the streams of people of a site.

    Raises:
        PolicyError: the key is a production key, and a model was made in a laboratory.
    """
    streams = []
    for people in policy.people:
        if people.model.site != site:
            continue
        if people.model.laboratory and not laboratory:
            raise PolicyError(
                f"people: the model of release '{people.model.release}' at {site} was made in a laboratory or from a "
                "file of unknown origin; a production key needs one from this key's own history"
            )
        streams.append(PeopleStream(people, policy.site[site].timezone, policy.site[site].tick))
    return tuple(streams)
