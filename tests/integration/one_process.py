"""Simulated movement in ten buildings, and what one process makes of it alone: what a storm must come out as.

The reference is the embedded runner over the same messages, under the same policy at each window, and with the same
losses where an operator has consented to them.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from connectors.keys.key_files import FileKeys
from connectors.storage.kafka.topic_tail import Record, by_release_id, by_sequence
from stream.encoding import encode_message
from stream.engine.outputs import OutputRecord
from stream.engine.partition import PartitionEngine
from stream.policy.privacy_days import PrivacyDays
from stream.records import MINUTE, SECOND, Heartbeat, Micros, ObservationBatch, Row
from stream.release.validation import Policy
from stream.runners.embedded import Chains, Embedded
from stream.schemas import AUDIT, LEAKAGE, private_topic, rfc3339

START: Micros = 1_772_452_800 * SECOND  # 2026-03-02T12:00Z: half a day later the attributes' day closes
TICK = 5 * MINUTE
PRIVACY_DAYS = PrivacyDays("13:00", "UTC")
"""One of them begins an hour after the start."""
Message = ObservationBatch | Heartbeat
SOURCE = "10.0.0.1"
SITES = [f"building-{number}" for number in range(10)]
AUDIENCES = ("facilities", "public")

_SITE = """
[site.{site}]
sources = ["10.0.0.1"]
day_starts = "13:00"
contribution = "2h"
zones = [
    {{ id = "101", floor = "1", kind = "classroom", capacity = 60, access_points = ["02:00:00:00:{n:02x}:01"] }},
    {{ id = "102", floor = "1", kind = "classroom", capacity = 60, access_points = ["02:00:00:00:{n:02x}:02"] }},
    {{ id = "201", floor = "2", kind = "office", capacity = 1, access_points = ["02:00:00:00:{n:02x}:03"] }},
]
"""
_RELEASES = """
[[audience]]
name = "facilities"
[[audience]]
name = "public"

[[release]]
name = "occupancy"
query = "count"
mechanism = "pegasus"
zones = { kind = "classroom" }
levels = ["zone", "floor"]
epsilon = { facilities = "1", public = "0.1" }
daily_budget = { facilities = "100", public = "10" }

[[release]]
name = "day"
query = "count"
mechanism = "plain"
noise = "gaussian"
unit = "device_day"
zones = { kind = "classroom" }
levels = ["zone", "building"]
shares = { zone = "0.5", building = "0.5" }
epsilon = { facilities = "4", public = "2" }

[[release]]
name = "office-day"
query = "attributes"
mechanism = "osdprr"
zones = { kind = "office" }
[release.attributes.arrival]
epsilon = { facilities = "1" }
sensitive = { after = "10:00" }
"""


def policy_text(capacity: int = 60) -> str:
    """Return a policy of ten buildings; its budgets run out within the day, so that refusals happen too."""
    sites = "".join(_SITE.format(site=site, n=number) for number, site in enumerate(SITES))
    return sites.replace("capacity = 60", f"capacity = {capacity}") + _RELEASES


@dataclass
class Movement:
    """Seeded people in ten buildings; remembers every message that was made, in order."""

    policy: Policy
    seed: int
    made: list[Message] = field(default_factory=list)
    tick: int = 0
    anew: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """By site, the numbers of the messages before which the log began anew."""
    lost: set[bytes] = field(default_factory=set)
    """The messages that were lost when it did."""

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._sequence: defaultdict[str, int] = defaultdict(int)
        self._points = {name: [zone.access_points[0] for zone in site.zones] for name, site in self.policy.site.items()}
        self.made += [Heartbeat(site, SOURCE, 1, START, 0) for site in SITES]

    def next_tick(self) -> Iterator[Message]:
        """Make five minutes of every building: batches, then the heartbeat that closes the window."""
        begin = START + self.tick * TICK
        self.tick += 1
        for site in SITES:
            for part in range(self._random.randint(0, 2)):
                rows = sorted((self._row(site, begin + part * TICK // 2) for _ in range(12)), key=lambda row: row.time)
                day = PRIVACY_DAYS.at(rows[0].time)
                yield self._keep(ObservationBatch(site, SOURCE, 1, self._sequence[site], tuple(rows), day))
                self._sequence[site] += 1
            yield self._keep(Heartbeat(site, SOURCE, 1, begin + TICK + 31 * SECOND, 0))

    def begin_anew(self, made: int, unread: Collection[bytes], *, kept: bool) -> None:
        """Take note that the log began anew after so many messages; those not read then were put back, or lost."""
        for site in SITES:
            own = ((number, each) for number, each in enumerate(self.made[:made]) if each.site == site)
            waiting = (number for number, each in own if encode_message(each) in unread)
            self.anew[site].add(next(waiting, made) if kept else made)
        if not kept:
            self.lost |= set(unread)

    def _row(self, site: str, begin: Micros) -> Row:
        device = f"{self._random.randrange(40):016x}"
        time = begin + 1 + self._random.randrange(TICK // 2)  # what is seen when a day begins is of the day before
        return Row(device, self._random.choice(self._points[site]), time)

    def _keep(self, message: Message) -> Message:
        self.made.append(message)
        return message


@dataclass
class Reference:
    """What one process makes of the same messages, by topic and identity."""

    topics: dict[str, dict[Hashable, bytes]]


class MemoryStore:
    """A store that forgets at its end: the same runner without a disk, for storms of many hours of events."""

    def __init__(self) -> None:
        self.outputs: list[OutputRecord] = []
        self._snapshot: bytes | None = None

    def append(self, value: bytes, stamp: Micros | None) -> int:
        return 0

    def snapshot(self) -> bytes | None:
        return self._snapshot

    def pending_messages(self, start: int) -> list[tuple[int, bytes, Micros | None]]:
        return []

    def commit(self, outputs: Sequence[OutputRecord], snapshot: bytes, position: int) -> None:
        self.outputs += outputs
        self._snapshot = snapshot

    def keep_policy(self, version: str, document: bytes) -> None:
        pass

    def chain_hash(self, site: str, sequence: int) -> str | None:
        return None

    def deliver(self) -> None:
        pass


class MemoryMark:
    def read(self) -> Chains:
        return {}

    def mechanism_version(self) -> str | None:
        return None

    def check_unmoved(self) -> None:
        pass

    def advance(self, chains: Chains) -> None:
        pass


Begun = Mapping[tuple[str, str], str]
"""The version of the policy under which a window (site, end) was released."""


def reference(policies: Mapping[str, Policy], key: Path, movement: Movement, begun: Begun) -> Reference:
    """Run the embedded runner over the messages of each site, with another policy from where another was taken.

    What was lost it is not given, and it is told so where the log began anew.
    """
    keys = FileKeys(key)
    outputs: list[OutputRecord] = []
    for site in SITES:
        store, runner = MemoryStore(), None
        version = begun.get((site, rfc3339(START + TICK)), next(iter(policies)))
        for number, message in enumerate(movement.made):
            if number in movement.anew[site] and runner is not None:
                runner.partition.resume_after_loss(0)
            if message.site != site or (movement.lost and encode_message(message) in movement.lost):
                continue
            if isinstance(message, Heartbeat):
                due = begun.get((site, rfc3339(message.watermark // TICK * TICK)), version)
                if runner is not None and due != version:
                    runner.stop()
                    runner = None
                version = due
            if runner is None:
                runner = Embedded(
                    PartitionEngine(policies[version], keys, accept_policy=True), store, MemoryMark(), keys
                )
                runner.start()
            runner.process(message, durable=False)
        if runner is not None:
            runner.stop()
        outputs += store.outputs
    return _by_identity((output.topic, output.value) for output in outputs if output.topic in _compared())


def _compared() -> list[str]:
    named = {"occupancy": AUDIENCES, "day": AUDIENCES, "office-day": AUDIENCES[:1]}
    return [AUDIT, LEAKAGE, *(private_topic(reader, name) for name, readers in named.items() for reader in readers)]


def _by_identity(records: Iterable[tuple[str, bytes]]) -> Reference:
    topics: defaultdict[str, dict[Hashable, bytes]] = defaultdict(dict)
    for topic, value in records:
        record = Record(0, 0, orjson.loads(value)["site"].encode(), value, 0)
        topics[topic][identity_in(topic)(record)] = value
    return Reference(dict(topics))


def by_account_window(record: Record) -> Hashable:
    """Identify a leakage record: one of each kind follows each window of a site."""
    body = orjson.loads(record.value)
    return body["site"], body["window_end"], body["kind"]


def identity_in(topic: str) -> Callable[[Record], Hashable]:
    """Return what tells the records of a topic apart."""
    return {AUDIT: by_sequence, LEAKAGE: by_account_window}.get(topic, by_release_id)
