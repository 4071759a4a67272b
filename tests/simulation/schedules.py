"""Schedules of faults: drawn from a seed, shrunk, kept as lists of events."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tests.simulation import occupancy
from tests.simulation.recovery import WAYS

WINDOWS = 10
PACE = 2.0
"""Seconds of virtual time between two windows."""
WORKERS = ("worker-1", "worker-2")
READERS = ("subscriber", "service")
OPERATOR = "operator"
"""Who retires a key."""
BROKERS = 3


@dataclass(frozen=True, slots=True)
class Event:
    """A fault: when it begins, what it hits, how long it lasts."""

    at: float
    """Seconds after the start of the programs."""
    kind: str
    target: str
    length: float

    def __str__(self) -> str:
        """Return the fault without its time."""
        return f"{self.kind} {self.target}" + (f" for {self.length:.3f} s" if self.length else "")


Schedule = Sequence[Event]

LENGTHS: dict[str, dict[str, tuple[float, float]]] = {
    "wire": {
        "kill": (0.1, 4.0), "stop": (0.5, 4.0), "pause": (0.05, 14.0), "starve": (1.0, 12.0),
        "kill broker": (0.2, 14.0), "hang broker": (0.2, 16.0), "cut": (0.1, 12.0), "isolate": (0.1, 12.0),
        "reset": (0.0, 0.0), "lose answers": (0.5, 5.0), "slow brokers": (0.5, 28.0), "slow copies": (0.5, 8.0),
        "move coordinators": (0.0, 0.0), "change policy": (0.0, 0.0), "change version": (0.0, 0.0),
        "foreign transaction": (0.5, 20.0), "second ingest": (0.0, 0.0),
        "kill at": (0.1, 4.0), "pause at": (0.5, 14.0), "lose at": (0.0, 0.0),
        "compact": (0.0, 0.0), "expire": (0.0, 0.0), "set clock": (0.5, 20.0),
        "fill disk": (0.5, 14.0), "slow disk": (0.5, 14.0),
        "delete records": (0.0, 0.0), "lose end": (0.0, 0.0), "make anew": (0.0, 0.0), "grow": (0.0, 0.0),
        "subscribe": (0.0, 0.0), "serve": (0.0, 0.0), "retire key": (0.0, 16.0),
    },
    "port": {
        "kill": (0.1, 4.0), "stop": (0.5, 4.0), "pause": (0.05, 14.0), "starve": (1.0, 12.0),
        "lose answers": (0.5, 5.0),
        "slow log": (0.5, 8.0), "outage": (0.1, 12.0), "move": (0.0, 0.0),
        "kill at": (0.1, 4.0), "pause at": (0.5, 14.0), "lose at": (0.0, 0.0),
    },
}  # fmt: skip
"""By level, the kinds of faults, and how long they may last in seconds. Those "at" wait for a moment."""
AIMED = " at"
LOSSES = ("delete records", "lose end", "make anew", "grow")
"""Faults after which an operator has to act: they destroy what was acknowledged, or move sites to other partitions."""
OF_A_PROCESS = ("kill", "pause", "starve", "isolate", "reset", "fill disk", "slow disk")
DESTROYED = ("observations", "observations", "audit", "snapshot", "control", "private", "account")
COMPACTED = ("control", "snapshot", "metadata")
"""What brokers compact as the product sets up its topics."""
EXPIRING = ("observations", "observations", "private", "account", "quarantine")
"""What retention deletes as the product sets up its topics, or as an operator may choose."""
CLOCKS = (-1800, -70, -20, -2, 2, 20, 70, 5400)
"""Seconds by which a clock is set. A broker's clock that is set back further than the windows lie in the past makes
messages ones of the future, which the engine must refuse.
"""
STARTS = {"subscriber": "subscribe", "service": "serve"}
"""What starts each reader; it happens once in a schedule."""
READ = 0.25
"""The share of the schedules in which a reader runs."""
ALLOWED = ("delete records", "grow", "expire")
"""What is not done to the private topic while it is read: who reads it later, rightly misses something, or is refused.
"""
MOMENTS = {
    "wire": ("EndTxn", "EndTxn", "InitProducerId", "AddPartitionsToTxn", "Produce", "JoinGroup", "SyncGroup", "Offset"),
    "port": ("opening", "records", "snapshot", "commit", "answer"),
    "reader": ("Fetch", "Fetch", "Metadata", "Offset"),
}
"""By level, the moments at which processes are vulnerable: requests on the wire, steps of a commit at the port;
``reader``: requests of those who read released records.
"""


def draw(seed: int, level: str, *, most: int = 8) -> list[Event]:
    """Draw a schedule: a random subset of the faults that a level knows, and so many of them."""
    chance = random.Random(f"schedule {seed}")
    lengths = LENGTHS[level]
    kinds = [kind for kind in lengths if chance.random() < _share(kind)] or ["kill"]
    readers = [name for name in READERS if level == "wire" and chance.random() < READ]
    events = [_start(chance, name) for name in readers]
    for _ in range(chance.randint(1, most)):
        kind = chance.choice(kinds)
        shortest, longest = lengths[kind]
        length = round(shortest + (longest - shortest) * chance.random() ** 2, 3)
        at = round(chance.uniform(0.5, WINDOWS * PACE), 3)
        events.append(Event(at, kind, _target(chance, kind, level, readers), length))
    return sorted(events, key=lambda event: event.at)


def _share(kind: str) -> float:
    """Return in how many of the schedules a kind of fault occurs: what is aimed finds most."""
    if kind in STARTS.values():
        return 0.0
    if kind in ("retire key", "change version"):
        return 0.06
    return 0.015 if kind in LOSSES else 0.6 if kind.endswith(AIMED) else 0.4


def _start(chance: random.Random, reader: str) -> Event:
    """Draw when a reader starts; two of three subscribers have a cursor."""
    target = chance.choice(("cursor", "cursor", "beginning")) if reader == "subscriber" else reader
    return Event(round(chance.uniform(0.0, WINDOWS * PACE / 2), 3), STARTS[reader], target, 0.0)


def _target(chance: random.Random, kind: str, level: str, readers: Sequence[str]) -> str:
    """Draw what a fault hits."""
    broker = f"broker-{chance.randint(1, BROKERS)}"
    process = chance.choice(WORKERS if level == "port" else [*WORKERS, *WORKERS, "ingest", *readers, *readers])
    partition = str(chance.randrange(occupancy.PARTITIONS))
    if kind in LOSSES:
        topic = chance.choice([name for name in DESTROYED if not (readers and kind in ALLOWED and name == "private")])
        return f"{topic} {chance.choice(WAYS)}"
    if kind == "set clock":
        return f"{chance.choice((process, broker))} {chance.choice(CLOCKS):+}"
    if kind.endswith(AIMED):
        moment = f"{process} {chance.choice(MOMENTS['reader' if process in readers else level])}"
        return moment if level == "port" else f"{moment} {chance.choice(('before', 'after'))}"
    targets = {
        "kill broker": broker, "hang broker": broker, "cut": f"{process} {broker}", "move": partition,
        "foreign transaction": partition, "change policy": chance.choice(WORKERS),
        "change version": chance.choice(WORKERS),
        "stop": chance.choice([*WORKERS, *readers]), "retire key": OPERATOR, "compact": chance.choice(COMPACTED),
        "expire": chance.choice([name for name in EXPIRING if not (readers and name == "private")]),
    }  # fmt: skip
    return targets.get(kind, process if kind in OF_A_PROCESS else "cluster")


def clock_of(target: str) -> tuple[str, float]:
    """Return whose clock an event sets, and by how many seconds."""
    name, _, seconds = target.partition(" ")
    return name, float(seconds)


@dataclass
class Outcome:
    """What a run has shown."""

    problems: list[str]
    digest: str = ""
    lines: list[str] = field(default_factory=list)
    seconds: float = 0.0
    """Virtual time."""
    settled_after: float = 0.0
    """Seconds from the end of the last fault until everything was out."""
    events: Schedule = ()

    def classes(self) -> set[str]:
        """Return the classes of the problems: their first words."""
        return {problem.partition(":")[0] for problem in self.problems}


Run = Callable[[int, Schedule], Outcome]


def shrink(seed: int, events: Schedule, run: Run, tries: int = 60) -> list[Event]:
    """Return a shorter schedule that still fails in the same class of problem."""
    kept = list(events)
    wanted = run(seed, kept).classes()
    left = tries

    def fails(some: list[Event]) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and bool(run(seed, some).classes() & wanted)

    size = max(len(kept) // 2, 1)
    while size:
        at = 0
        while at < len(kept):
            without = kept[:at] + kept[at + size :]
            if fails(without):
                kept = without
            else:
                at += size
        size //= 2
    for at, event in enumerate(kept):
        shorter = replace(event, length=round(event.length / 2, 3))
        if event.length > 0.2 and fails([*kept[:at], shorter, *kept[at + 1 :]]):
            kept[at] = shorter
    return kept


@dataclass(frozen=True, slots=True)
class Kept:
    """A schedule that has found something."""

    name: str
    level: str
    seed: int
    found: str
    """What it found when it was kept."""
    finds: tuple[str, ...]
    """Mutants that it finds."""
    events: Schedule
    nightly: bool = False
    """Whether an ordinary run leaves it out."""
    says: str = ""
    """What a program must say in it."""
    within: float | None = None
    """Seconds after the start of the programs within which everything must be out, though faults last."""


def kept_schedules() -> list[Kept]:
    """Return the kept schedules."""
    listed = json.loads((Path(__file__).parent / "kept_schedules.json").read_text())
    return [
        Kept(**each | {"finds": tuple(each["finds"]), "events": [Event(**event) for event in each["events"]]})
        for each in listed
    ]


def as_json(events: Schedule) -> list[dict[str, object]]:
    """Return a schedule in the form in which it is kept."""
    return [asdict(event) for event in events]
