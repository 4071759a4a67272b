"""Worlds that share everything but one device: their events, and every output that others may see.

A ``Course`` is what both worlds share: policies and when they begin, restarts, takeovers, crashes, losses, backfills,
and when connectors and sources are silent. ``drawn_course`` draws one from a seed. A ``World`` leads its people through
it: their traps go through the product's own connector, its messages through the product's own partition, and a
``History`` holds what leaves it. Two histories are compared under ``coupled_noise``, where released values are equal.

    one, other = twins(seed)
    assert first_difference(one, other) is None

``BY_DESIGN`` lists what may depend on people, with the reason; everything else has to be equal.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

import orjson
import pytest

from connectors.sources.ingest import ingest
from connectors.sources.ingest.ingest import Ingest
from connectors.sources.ingest.sighting import Kind, Sighting
from connectors.sources.recordings.playback import Playback, Range
from stream.accounting import account
from stream.accounting.costs import UnitCost
from stream.encoding import encode_message
from stream.engine.backfill import Backfill
from stream.engine.outputs import OutputRecord
from stream.engine.partition import PartitionEngine
from stream.errors import FinalityError, TacetError
from stream.pipeline import Options
from stream.policy.counts import CountRelease
from stream.policy.document import PolicyDocument
from stream.policy.people import People as PeopleTable
from stream.policy.people import level_of, published_nodes
from stream.policy.sites import Site
from stream.pseudonyms.derivation import names_by_site
from stream.records import DAY, HOUR, MINUTE, SECOND, CountedWindow, Heartbeat, Message, Micros, ObservationBatch
from stream.release.state import ReleaseState, encode_release_state
from stream.release.validation import Policy, validate
from stream.schemas import AUDIT, OCCUPANCY, PRESENCE, QUARANTINE, parse_time, rfc3339
from stream.sensing import watermark
from stream.sensing.counter_feed import COUNTERS
from stream.sensing.state import SensingState
from tests.support.coupled_noise import coupled_noise
from tests.support.people_models import CURVE, LEVEL, model_of
from tests.support.policy_edits import (
    CHANGES,
    RELEASES,
    SITE,
    Document,
    count_logins,
    edited,
    first_document,
    policy_of,
    radio,
    whole_document,
)
from tests.support.small_building import laboratory

BEGIN = parse_time("2026-03-02T20:00:00-08:00")
SPAN = 44 * HOUR
SOURCES = ("127.0.0.1", "127.0.0.2")
GRID = 10 * MINUTE
"""Heartbeats are so far apart here, not five seconds: a day of them would take a minute."""
PEOPLE = 2
"""Devices that both worlds have; few, so that at times nobody is there."""
RADIOS = tuple(map(radio, "abcxmno"))
KEY = bytes(32)
LOGINS = (b"", b"anne", b"bert")
"""Of messages; sites that count devices do not read them."""

BY_DESIGN: Mapping[str, str] = {
    PRESENCE: "true stays: restricted, encrypted, for the engine alone",
    OCCUPANCY: "true counts: restricted, encrypted, for the engine alone",
    QUARANTINE: "what was wrong with a received message: for operators, who are trusted",
    "audit commitment": "keyed digest of the counts, under a key that is destroyed with its day",
    "audit previous, hash, mac": "follow from the commitments",
    "observations": "what was received: restricted, encrypted",
    "snapshots": "hold all of the above: restricted, encrypted; sizes are padded",
    "a backfill that is refused since its recording does not hold what was heard": "another file is at fault, and its "
    "operator is told so; what comes after is not compared",
}
"""What may depend on people, and why."""
_PEOPLES = (PRESENCE, OCCUPANCY, QUARANTINE)
_MASKED = ("commitment", "previous", "hash", "mac")


class Seen(NamedTuple):
    """A device at an access point."""

    time: Micros
    device: int
    radio: str
    left: bool = False
    """Whether it leaves the access point."""


People = Sequence[Seen]


class Happening(NamedTuple):
    """Something that is done to both worlds at one moment."""

    at: Micros
    what: str
    """``policy``, ``restart``, ``crash``, ``loss`` or ``backfill``."""
    policy: int = 0
    """Number of the policy that goes on."""
    back: int = 0
    """How many checkpoints a crash undoes."""
    span: tuple[Micros, Micros] = (0, 0)
    """Messages that are lost, or windows of a backfill."""
    attempt: int = 1


@dataclass(frozen=True)
class Course:
    """What both worlds share."""

    seed: int
    policies: tuple[Policy, ...]
    edits: tuple[str, ...]
    """Keys that each policy changes in the one before; the first has none."""
    happenings: tuple[Happening, ...]
    connectors: tuple[tuple[Micros, int], ...]
    """When a connector begins anew, and under which policy."""
    silences: tuple[tuple[str, Micros, Micros], ...]
    """Source that cannot be heard, or '' where the connector itself is away."""
    stamped: bool
    """Whether the log stamps messages, as live; otherwise it is a recording."""

    def __repr__(self) -> str:
        events = [f"{rfc3339(each.at)} {each.what} {each[2:]}" for each in self.happenings]
        return f"Course {self.seed}: edits {list(self.edits)}; " + "; ".join(events)


# ---- what is drawn ------------------------------------------------------------------------------------

_OFTEN = (
    "Site.day_starts",
    "Site.day_starts",
    "Site.timezone",
    "Site.contribution",
    "Site.tick",
    "Site.feed",
    "Policy.site",
    "Policy.release",
    "Site.identity",
    "Site.others",
)
"""Keys that decide which windows and days there are: every other edit is one of them."""


What = Literal["sessions", "changes", "logins", "people"]
"""What sites of the first policy count; edits may change it. ``people``: models estimate people wherever one fits."""


def drawn_course(rng: random.Random, seed: int, edits: int = 6, *, having: Collection[What] = ()) -> Course:
    """Draw what happens under policies, the first of which counts what is named."""
    document = _first(rng, having)
    policies, keys, happenings, connectors = [policy_of(document)], [""], list[Happening](), [(BEGIN, 0)]
    for at in sorted(_moment(rng) for _ in range(edits)):
        changed = list[str]()
        for _ in range(rng.choice([1, 1, 2, 4])):
            key, document, policy = edited(rng, document, _OFTEN if rng.random() < 0.5 else ())
            changed.append(key)
        policies.append(policy)
        keys.append(" ".join(changed))
        number = len(policies) - 1
        happenings.append(Happening(at, rng.choice(["policy", "policy", "crash"]), number, rng.randrange(1, 4)))
        connectors.append((max(BEGIN, at + rng.choice([0, 0, 0, -20 * MINUTE, 20 * MINUTE, 3 * HOUR])), number))
    happenings += [
        _drawn(rng, what) for what in ("restart", "crash", "loss", "backfill") for _ in range(rng.randrange(3))
    ]
    silences = [_silence(rng) for _ in range(rng.randrange(4))]
    ordered = _in_force(sorted(happenings))
    policies = [with_people(each) for each in policies] if "people" in having else policies
    return Course(seed, (*policies,), (*keys,), ordered, (*sorted(connectors),), (*silences,), rng.random() < 0.5)


def _first(rng: random.Random, having: Collection[What]) -> Document:
    """Return the first policy; where changes or logins are counted, everything is paid for by the day."""
    document: Document = whole_document() if {"changes", "logins"} & {*having} else first_document(rng)
    site = document["site"][SITE]
    if "changes" in having:
        document["release"] = [copy.deepcopy(RELEASES[name]) for name in ("plain", "by-day", "crowded")]
        document["release"].append(copy.deepcopy(CHANGES))
        site |= {"residents": "ignore", "visits": 2, "gap": "60min"}
    if "logins" in having:
        count_logins(rng, document)
    if "sessions" in having:
        del site["validity"]
        site |= {"presence": "sessions", "session_limit": "2h"}
    return document


def with_people(policy: Policy) -> Policy:
    """Return a policy with models of people for its first release and audience at each site where one fits."""
    if SITE not in policy.site:
        return policy
    for release in (each for each in policy.release if isinstance(each, CountRelease)):
        audience, published = next(iter(release.epsilon)), set(published_nodes(policy.site[SITE], release))
        nodes = dict.fromkeys(sorted(published & {"zone:a", "zone:b", "building"}), CURVE)
        if not nodes:
            continue
        levels = {level_of(node): LEVEL for node in nodes}
        model = model_of(policy, release=release.name, audience=audience, levels=levels, nodes=nodes)
        plain = PolicyDocument.from_document(policy.document())
        return validate(plain.model_copy(update={"people": (PeopleTable(model=model, digest=model.digest),)}))
    return policy


def _moment(rng: random.Random) -> Micros:
    """Draw an instant that lies on no tick."""
    return BEGIN + rng.randrange(1 * HOUR, SPAN - 2 * HOUR, MINUTE) + 1


def _drawn(rng: random.Random, what: str) -> Happening:
    at = _moment(rng)
    first = at - rng.randrange(1, 30 * 60) * MINUTE
    span = (
        (first, first + rng.randrange(30, 20 * 60) * MINUTE)
        if what == "backfill"
        else (at, at + rng.randrange(4) * HOUR)
    )
    return Happening(at, what, 0, rng.randrange(1, 4), span, rng.choice([1, 1, 2]))


def _silence(rng: random.Random) -> tuple[str, Micros, Micros]:
    begin = _moment(rng)
    return rng.choice(["", *SOURCES]), begin, begin + rng.choice([20, 60, 300]) * MINUTE


def _in_force(happenings: Sequence[Happening]) -> tuple[Happening, ...]:
    """Give each event the policy that is in force at its time."""
    found, policy = list[Happening](), 0
    for each in happenings:
        policy = max(policy, each.policy)
        found.append(each._replace(policy=policy))
    return tuple(found)


def drawn_people(rng: random.Random, course: Course, *, having: Collection[What] = ()) -> tuple[People, People]:
    """Draw the people whom both worlds have, and what one device more does in the other.

    It is seen near what happens, most of all before: then what an engine holds differs when it begins anew.
    """
    sessions = "sessions" in having
    people = [each for device in range(PEOPLE) for each in _walk(rng, device, rng.randrange(1, 3))]
    mine = [each for _ in range(rng.choice([0, 0, 1, 2])) for each in _walk(rng, PEOPLE, 1)]
    for moment in (each.at for each in course.happenings):
        if rng.random() < 0.7:
            before = rng.choice([1, SECOND, 5 * MINUTE, 15 * MINUTE, -SECOND, -10 * MINUTE])
            left = sessions and rng.random() < 0.3
            mine.append(Seen(moment - before, PEOPLE, rng.choice(RADIOS), left))
    if sessions:
        people, mine = ([*each, *_departures(rng, each)] for each in (people, mine))
    return sorted(people), sorted(mine)


def _departures(rng: random.Random, people: People) -> Iterator[Seen]:
    """Draw who leaves, at once or long after."""
    for each in people:
        if rng.random() < 0.4:
            yield each._replace(time=each.time + rng.choice([SECOND, 7 * MINUTE, HOUR]), left=True)


def _walk(rng: random.Random, device: int, stays: int) -> Iterator[Seen]:
    for _ in range(stays):
        time = BEGIN + rng.randrange(SPAN)
        until = time + rng.choice([10, 60, 200]) * MINUTE
        at = rng.choice(RADIOS)
        while time < until:
            yield Seen(time, device, at)
            at = rng.choice(RADIOS) if rng.random() < 0.2 else at
            time += rng.randrange(5, 45) * MINUTE + rng.randrange(60) * SECOND


# ---- what a connector sends ---------------------------------------------------------------------------


class Sent(NamedTuple):
    """A message, and when its log took it."""

    at: Micros
    message: Message


def connector_log(course: Course, people: People) -> list[Sent]:
    """Return what connectors send of these people, in the order in which the log takes it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingest, "GRID", GRID)
        patch.setattr(ingest, "OUTAGE", 3 * GRID)
        return sorted(_heard(course, people) + _counted(course, people), key=lambda sent: sent.at)


def _heard(course: Course, people: People) -> list[Sent]:
    starts, todo, sent = [*course.connectors], [*people], list[Sent]()
    core, state, policy = None, None, 0
    for now in range(BEGIN, BEGIN + SPAN, GRID):
        while starts and starts[0][0] <= now:
            policy, core = starts.pop(0)[1], None
        here = [todo.pop(0) for _ in range(sum(each.time <= now for each in todo))]
        if _is_silent(course, "", now):
            core = None
            continue
        if core is None or state is None:
            core = Ingest.of_policy(course.policies[policy], KEY)
            state = core.initial(now)
        for each in (each for each in here if each.time > now - GRID):
            source = SOURCES[each.device % len(SOURCES)]
            core.observe(state, each.time, source, source, _sighting(each))
            sent += [Sent(each.time, message) for message in core.poll(state, each.time)]
        core.record_running(state, now)
        sent += [Sent(now, message) for message in core.poll(state, now)]
    return [each for each in sent if not _is_silent(course, each.message.source, each.at)]


def _is_silent(course: Course, source: str, at: Micros) -> bool:
    return any(name == source and begin <= at < end for name, begin, end in course.silences)


def _sighting(seen: Seen) -> Sighting:
    kind = Kind.LEAVE if seen.left else Kind.ASSOCIATE
    login = LOGINS[seen.time // SECOND % len(LOGINS)]
    radio = bytes.fromhex(seen.radio.replace(":", ""))
    return Sighting(kind, _address(seen.device), radio, user_name=login, cui=login)


def _address(device: int) -> bytes:
    return (0xA4 << 40 | device).to_bytes(6, "big")


def _counted(course: Course, people: People) -> list[Sent]:
    """Return what counters say at the sites that are told counts."""
    starts, sent, session = [*course.connectors], list[Sent](), BEGIN
    policy = course.policies[0]
    for tick in range(BEGIN, BEGIN + SPAN, MINUTE):
        while starts and starts[0][0] <= tick:
            policy, session = course.policies[starts.pop(0)[1]], tick
        for name, site in policy.site.items():
            if site.feed == "counts" and tick % site.tick == 0 and not _is_silent(course, "", tick):
                here = [each.device for each in people if tick - HOUR < each.time <= tick]
                counts = tuple((zone.id, len(set(here)) if n == 0 else 0) for n, zone in enumerate(site.zones))
                sent.append(Sent(tick, CountedWindow(name, COUNTERS, session, tick, counts)))
    return sent


# ---- what comes out -----------------------------------------------------------------------------------


class Record(NamedTuple):
    """A record as others see it, and when it came."""

    at: Micros
    topic: str
    key: bytes
    id: str
    time: int
    checkpoint: bool
    value: bytes
    """What depends on people by design is masked."""
    size: int


@dataclass
class History:
    """All that came of one world."""

    course: Course
    records: list[Record] = field(default_factory=list)
    standing: list[tuple[Micros, str, Any]] = field(default_factory=list)
    """After each moment: what is told of a site that is not in a record."""
    errors: list[tuple[Micros, str, str]] = field(default_factory=list)
    heartbeats: list[Heartbeat] = field(default_factory=list)
    backfills: list[tuple[Micros, Any]] = field(default_factory=list)
    refused: Micros = BEGIN + SPAN + DAY
    """When a backfill was refused because its recording does not hold what was heard."""
    commitments: list[str] = field(default_factory=list)
    """Of the audit entries: they may differ, and show that the worlds do."""

    def audit(self) -> list[dict[str, Any]]:
        """Return the audit entries, without what is masked."""
        return [orjson.loads(record.value) for record in self.records if record.topic == AUDIT]


def visible(at: Micros, emitted: OutputRecord) -> Record | None:
    """Return a record as others see it; None where nobody but the engine and operators does."""
    if emitted.topic in _PEOPLES:
        return None
    return Record(
        at, emitted.topic, emitted.key, emitted.id, emitted.timestamp_ms, emitted.checkpoint,
        masked(emitted.topic, emitted.value), len(emitted.value),
    )  # fmt: skip


def masked(topic: str, value: bytes) -> bytes:
    """Return a record with what depends on people by design left blank, each blank as long as what it stands for."""
    if topic != AUDIT:
        return value
    entry = orjson.loads(value)
    return orjson.dumps(entry | {name: "*" * len(str(entry[name])) for name in _MASKED if name in entry})


# ---- one world ----------------------------------------------------------------------------------------


def _when(sense: SensingState) -> tuple[object, ...]:
    """Return what of a site's sensing decides which windows there are, and which have bounded counts."""
    tally = sense.tally
    days = None if tally is None else (tally.definition, tally.day, tally.resumes)
    return sense.next_tick, sense.closed, days


def _books(books: ReleaseState) -> bytes:
    """Return the books of a site, without what mechanisms remember, and the hash that follows from commitments."""
    return encode_release_state(replace(books, ledger=replace(books.ledger, head="")), {})


class _Checkpoint(NamedTuple):
    position: int
    snapshot: bytes


class World:
    """One engine on its log, as it is led through a course."""

    def __init__(self, course: Course, people: People) -> None:
        self.course, self.people, self.made = course, people, History(course)
        self.now = BEGIN
        self._log: list[tuple[bytes, Micros | None]] = []
        self._read = 0
        self._audit: list[bytes] = []
        self._audit_known = 0
        self._published: dict[str, bytes] = {}
        self._lost_until: Micros | None = None
        self._stood: dict[str, Any] = {}
        self._partition = self._opened(0)
        self._checkpoints = [_Checkpoint(0, self._partition.snapshot(0, 0))]

    def run(self) -> History:
        """Lead the world through its course; it ends where its engine stops."""
        todo = [*self.course.happenings]
        try:
            for sent in connector_log(self.course, self.people):
                while todo and todo[0].at < sent.at:
                    self.now = todo[0].at
                    self._happens(todo.pop(0))
                self.now = sent.at
                self._take(sent)
            for event in todo:  # also where no message of another device comes after it
                self.now = event.at
                self._happens(event)
        except TacetError as error:
            self._note(error)
        return self.made

    def _note(self, error: TacetError) -> None:
        self.made.errors.append((self.now, type(error).__name__, str(error)))

    # --- the log ----------------------------------------------------------------------------------------

    def _take(self, sent: Sent) -> None:
        if isinstance(sent.message, Heartbeat):
            self.made.heartbeats.append(sent.message)
        if self._lost_until is not None:
            if sent.at < self._lost_until:
                return
            self._lost_until = None
            self._partition.resume_after_loss(len(self._log))
            self._save(self._read)
            self._checkpoints = self._checkpoints[-1:]  # who begins before it is told of the loss once more
        self._log.append((encode_message(sent.message), sent.at if self.course.stamped else None))
        self._catch_up()
        if not isinstance(sent.message, ObservationBatch):
            self._stand()

    def _catch_up(self) -> None:
        while self._read < len(self._log):
            value, stamp = self._log[self._read]
            for outputs, last in self._partition.process_in_steps(self._read, None, value, stamp):
                self._emit(outputs)
                if any(output.checkpoint for output in outputs):
                    self._save(self._read + 1 if last else self._read)
            self._read += 1

    def _emit(self, outputs: Sequence[OutputRecord]) -> None:
        for output in outputs:
            if output.topic == AUDIT:
                self._audit.append(output.value)
                self.made.commitments.append(orjson.loads(output.value)["commitment"])
            elif output.id:
                self._published[output.id] = output.value
            if (record := visible(self.now, output)) is not None:
                self.made.records.append(record)

    def _save(self, position: int) -> None:
        if not self._partition.has_unreplayed_entries():
            self._audit_known = len(self._audit)
        self._checkpoints.append(_Checkpoint(position, self._partition.snapshot(position, self._audit_known)))

    def _stand(self) -> None:
        """Note what is told of each site besides its records."""
        sites = self._partition.sites
        for name, mark in sites.watermarks().items():
            held = sites.get(name)
            assert held is not None
            if not watermark.has_begun(held.sensing.clock):
                continue
            place = (
                held.chain[0],
                held.released_through(),
                held.oldest_start(),
                held.is_suspended,
                _when(held.sensing),
            )
            if self._stood.get(name) != place:
                self._stood[name] = place
                self.made.standing.append(
                    (self.now, name, (mark, place, _books(held.release_state()), sites.current_account(name)))
                )

    # --- what happens -----------------------------------------------------------------------------------

    def _happens(self, event: Happening) -> None:
        if event.what == "loss":
            self._lost_until = event.span[1]
        elif event.what == "backfill":
            self._backfill(event)
        else:
            if event.what != "crash":
                self._save(self._read)
            undone = min(event.back, len(self._checkpoints) - 1) if event.what == "crash" else 0
            self._take_over(event.policy, self._checkpoints[len(self._checkpoints) - 1 - undone])

    def _opened(self, policy: int) -> PartitionEngine:
        known = self.course.policies[: policy + 1]
        return PartitionEngine(known[-1], laboratory(), Options(), accept_policy=True, accepted=known)

    def _take_over(self, policy: int, checkpoint: _Checkpoint) -> None:
        """Let another worker go on from a checkpoint, which knows what was published beyond it."""
        other = self._opened(policy)
        try:
            other.restore(checkpoint.snapshot)
            other.expect_replay(self._audit[other.audit_offset() :])
        except TacetError as error:
            self._note(error)
            return
        self._partition, self._read = other, checkpoint.position
        self._audit_known = other.audit_offset()
        self._checkpoints = [checkpoint]
        self._catch_up()
        self._stand()

    def _backfill(self, event: Happening) -> None:
        """Read a recording of the same people again."""
        if self._partition.has_unreplayed_entries():
            return
        self._save(self._read)
        policy = self._partition.policy
        names = [each.name for each in policy.release if isinstance(each, CountRelease) and not each.declared.carries]
        options = Options(attempt=event.attempt, first_window=event.span[0], last_window=event.span[1])
        earlier = [each for each in self.course.policies if each.version != policy.version]
        try:
            settled = Backfill(
                policy, laboratory(), self._partition, self, options, earlier, names[:1] if event.attempt > 1 else []
            )
            for message in recorded(policy, self.people, self.now):
                settled.process(message)
            prices = settled.price()
            settled.close()
        except TacetError as error:
            if isinstance(error, FinalityError):
                self.made.refused = min(self.made.refused, self.now)
            self._note(error)
            self._take_over(event.policy, self._checkpoints[-1])
            return
        made = settled.made
        self.made.backfills.append(
            (self.now, (prices, made.again, made.unchecked, made.released, made.ahead, made.stored))
        )
        self._emit(made.emitted)
        self._save(self._read)
        self._checkpoints = self._checkpoints[-1:]  # what it released comes from no log
        self._stand()

    def record(self, release_id: str) -> bytes | None:
        """Return a released record (``Book``)."""
        return self._published.get(release_id)

    def entries(self, site: str) -> list[dict[str, Any]]:
        """Return a site's ledger in order, copies left out (``Book``)."""
        found = {entry["sequence"]: entry for entry in map(orjson.loads, self._audit) if entry["site"] == site}
        return [found[number] for number in sorted(found)]


def recorded(policy: Policy, people: People, until: Micros) -> Iterator[ObservationBatch | Heartbeat]:
    """Return a recording of people up to an instant, as a file of observations gives it."""
    sites = {name: site for name, site in policy.site.items() if site.feed == "devices"}
    if not sites or len(sites) < len(policy.site):
        return
    names, since = names_by_site(policy, KEY), BEGIN - DAY
    places = [(radio, name) for name, site in sites.items() for radio in _radios(site)]
    number = {radio: place for place, (radio, _) in enumerate(places)}
    playback = Playback(policy, names, places, Range(since, until), since)
    yield from playback.begin()
    for line, seen in enumerate(people):
        if seen.time <= until and seen.radio in number and not seen.left:
            place = number[seen.radio]
            called = names[places[place][1]]
            name = bytes.fromhex(called.name(_address(seen.device), called.epoch(seen.time)))
            yield from playback.advance(seen.time)
            yield from playback.process((seen.time, place, name, line, seen.device))
    yield from playback.finish(until)


def _radios(site: Site) -> list[str]:
    return [radio for zone in site.zones for radio in zone.radios]


# ---- two worlds ---------------------------------------------------------------------------------------


def twins(seed: int, *, having: Collection[What] = ()) -> tuple[History, History]:
    """Return what comes of two worlds that differ in one device."""
    rng = random.Random(seed)
    course = drawn_course(rng, seed, having=having)
    people, mine = drawn_people(rng, course, having=having)
    with coupled_noise(), unpriced_accounts():
        return World(course, sorted([*people, *mine])).run(), World(course, people).run()


@contextmanager
def unpriced_accounts() -> Iterator[None]:
    """Let accounts tell what was charged, noise by noise, instead of the prices that follow from it.

    Working these out takes two thirds of the time.
    """

    def charged(units: Mapping[str, UnitCost], delta: Fraction, *, exact: bool) -> dict[str, Any]:
        return {unit: [str(held.pure), repr(held.cost.noises), held.group] for unit, held in units.items()} | {
            "delta": [str(delta), exact]
        }

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(account, "written", charged)
        yield


def first_difference(one: History, other: History) -> str | None:
    """Return where two histories differ first, in what may not depend on people; None where they do not."""
    if one.heartbeats != other.heartbeats:
        return f"{one.course}\nheartbeats"
    until = min(one.refused, other.refused)
    for name in ("errors", "records", "standing", "backfills"):
        both = ([each for each in getattr(world, name) if each[0] < until] for world in (one, other))
        for number, (mine, others) in enumerate(zip_longest(*both)):
            if mine != others:
                return f"{one.course}\n{name}[{number}]:\n  {mine}\n  {others}"
    return None
