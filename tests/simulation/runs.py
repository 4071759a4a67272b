"""Runs of a schedule: the product's programs go through it, everything is mended, and the checker reads the final log.

``WireRun`` runs ingest and workers, Faust included, on simulated brokers; ``PortRun`` runs partition tasks and engines
over a simulated log behind the product's interface.
"""

from __future__ import annotations

import json
import signal
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import orjson

from stream.engine.snapshot import chains, open_snapshot
from stream.pipeline import Options
from stream.records import DAY
from stream.release.validation import Policy
from stream.schemas import AUDIT, CONTROL, LEAKAGE, METADATA, OBSERVATIONS, QUARANTINE, SNAPSHOT, rfc3339
from tests.simulation import occupancy, port, readers, recovery
from tests.simulation.checker import Record, Topics, misindexed, misread, problems
from tests.simulation.kafka_brokers import Cluster
from tests.simulation.network import Network
from tests.simulation.processes import Globals, Process, World, guarded
from tests.simulation.schedules import (
    AIMED,
    BROKERS,
    COMPACTED,
    LOSSES,
    OPERATOR,
    PACE,
    READERS,
    STARTS,
    WINDOWS,
    WORKERS,
    Event,
    Kept,
    Outcome,
    Schedule,
    clock_of,
    draw,
)
from tests.support.later_mechanism_version import LATER

LIVENESS = 120.0
"""Seconds after the last fault within which every window must be out: the longest of the product's waits is 60 s."""
ENDING = 20.0
"""Seconds within which a worker that is told to stop has stopped."""
DELAYS = ("pause", "pause at", "starve")
"""Faults during which a worker cannot be expected to stop in time."""
STARVED = 300.0
"""Factor by which the callbacks of a process that starves take longer."""
TOPICS = Topics(AUDIT, LEAKAGE, QUARANTINE, occupancy.PRIVATE)
RESULTS = (AUDIT, LEAKAGE, QUARANTINE, *occupancy.PRIVATE)
KILLED = -9
FORMER = "former"
"""A worker with a copy of a key that was retired."""
STOPPED = " stopped: "
WAY_OUT, ACCEPT = "'tacet recover", "--accept-loss"
"""What a worker names that cannot go on after a loss, and what it names if an order lets it go on."""
AWAY = "no Kafka broker answers"
"""What a program says that ends as it starts, because it reaches no broker; a supervisor starts it again."""
(PRIVATE,) = occupancy.PRIVATE
TOO_EARLY = "told to stop while"
"""What a worker says that is told to stop before its partitions have opened; it ends with 1."""
ADMIN = "admin"
"""Who reads ``tacet recover`` and follows it."""
RIVAL, TAKEN = "rival", "another ingest"
"""The second ingest, and what the one says whose sources belong to another."""
APART = "clock: must agree with the broker's"
OTHER_VERSION = "UsageError: mechanism version"
"""What a worker says that is refused because the cluster works under another mechanism version."""
ONCE_MORE = 4.0
"""Seconds for which a former mechanism version works once more."""
FULL = "No space left on device"
CLOCKS_APART = 30
"""Seconds by which one clock may be wrong: two of them together are no minute apart, from which on an ingest ends."""
SLOW_DISK = 4.0
"""Seconds that a sync of a slow disk takes."""
LOST_BATCHES = 6
"""How many batches of each partition are lost with its last records."""
_TOPICS = {
    "observations": OBSERVATIONS, "audit": AUDIT, "snapshot": SNAPSHOT, "control": CONTROL, "metadata": METADATA,
    "private": occupancy.PRIVATE[0], "account": LEAKAGE, "quarantine": QUARANTINE,
}  # fmt: skip
"""By the names that events have for them."""
End = Callable[[], None]


def _end(record: Record) -> str:
    """Return the end of a released window."""
    return str(orjson.loads(record.value or b"{}").get("window_end"))


def _nothing() -> None:
    """End nothing: the fault is over at once."""


class _Run(ABC):
    """What the runs of both levels have in common."""

    own_globals: ClassVar[Globals] = {}

    def __init__(self, seed: int, events: Schedule, folder: Path) -> None:
        self.world = World(seed)
        self.events = events
        self.key = folder / "key"
        self.processes: dict[str, Process] = {}
        self.faults: list[str] = []
        self._stopping = False
        self._told: list[Process] = []
        """Workers that were told to stop."""
        self._aims: dict[Any, Callable[[], bool]] = {}
        """Faults that wait for a moment."""
        self._restarted = {1}
        """Exit codes after which a program is started again."""
        self._machines: defaultdict[str, dict[str, float]] = defaultdict(dict)
        """By process, what is the matter with its machine: attributes that a process started there has."""

    # --- processes ------------------------------------------------------------------------------------

    @abstractmethod
    def _program(self, name: str) -> Coroutine[Any, Any, int]:
        """Return the program of a process."""

    def _start(self, name: str) -> None:
        process = self.processes[name] = Process(self.world, name, self._globals_of(name))
        process.ended = lambda: self._ended(process)
        for attribute, value in self._machines[name].items():
            setattr(process, attribute, value)
        process.start(lambda: self._program(name))

    def _globals_of(self, name: str) -> Globals:
        """Return what a process has for itself."""
        return self.own_globals

    def _ended(self, process: Process) -> None:
        """Start a program again that has ended by itself, as a supervisor does."""
        if self._stopping or process.exit_code == KILLED:
            return
        stopped = process in self._told and process.exit_code == 0
        if process.exit_code not in self._restarted and not stopped:
            self.faults.append(f"exit: {process.name} ended with {process.exit_code}: {process.failure!r}")
        self.world.after(1.0 + self.world.random.random(), lambda: self._restart(process))

    def _restart(self, process: Process) -> None:
        if not self._stopping and self.processes[process.name] is process and not process.alive:
            self._start(process.name)

    # --- faults ---------------------------------------------------------------------------------------

    def _begin(self, event: Event) -> None:
        name = event.target.partition(" ")[0]
        if name in READERS and name not in self.processes and not event.kind.endswith((*STARTS.values(), AIMED)):
            return  # it has not started
        self.world.log("fault", str(event))
        if event.kind.endswith(AIMED):
            self._aim(event)
            return
        end: End = getattr(self, "_" + event.kind.replace(" ", "_"))(event.target)
        self.world.after(event.length, end)

    @abstractmethod
    def _aim(self, event: Event) -> None:
        """Let a fault happen when its process comes to the moment that its target names."""

    def _strike(self, event: Event) -> bool:
        """Let an aimed fault happen; return whether the request, or its answer, is lost."""
        kind, process = event.kind.removesuffix(AIMED), event.target.split()[0]
        self.world.log("fault", f"{event.target}: {kind}")
        if kind == "lose":
            return True
        end: End = getattr(self, "_" + kind)(process)
        self.world.after(event.length, end)
        return kind == "kill"

    def _kill(self, target: str) -> End:
        process = self.processes[target]
        process.kill()
        return lambda: self._restart(process)

    def _stop(self, target: str) -> End:
        process = self.processes[target]
        self._told.append(process)
        process.signal(signal.SIGTERM)
        if not any(event.kind in DELAYS and target in event.target for event in self.events):
            self.world.after(ENDING, lambda: self._check_ended(process))
        return lambda: self._restart(process)

    def _check_ended(self, process: Process) -> None:
        if process.alive:
            self.faults.append(f"ending: {process.name} runs {ENDING:.0f} s after it was told to stop")

    def _pause(self, target: str) -> End:
        process = self.processes[target]
        process.pause()
        return process.resume

    def _starve(self, target: str) -> End:
        process = self.processes[target]
        process.slowness = STARVED
        return lambda: setattr(process, "slowness", 1.0)

    def _afflict(self, target: str, attribute: str, value: float, mended: float) -> End:
        """Change something of a machine, for whatever process runs there."""
        machine = self._machines[target]
        machine[attribute] = value
        setattr(self.processes[target], attribute, value)

        def mend() -> None:
            machine[attribute] = mended
            setattr(self.processes[target], attribute, mended)

        return mend

    # --- the run --------------------------------------------------------------------------------------

    @abstractmethod
    def _prepare(self) -> None:
        """Start everything."""

    @abstractmethod
    def _sent(self) -> bool:
        """Return whether all messages are in the log."""

    @abstractmethod
    def _visible(self, topic: str) -> int:
        """Return how many committed records a topic has."""

    @abstractmethod
    def _logs(self) -> Mapping[str, Sequence[Sequence[Record]]]:
        """Return the final records of the results."""

    @abstractmethod
    def _input(self) -> Mapping[int, occupancy.Log]:
        """Return the final records of the input."""

    def run(self) -> Outcome:
        """Run, and check."""
        with guarded(self.world):
            settled = self._play()
            logs, sent = self._logs(), self._input()
        self._close()
        begun = {
            (entry["site"], entry["window_end"]): entry["policy_version"]
            for partition in logs[AUDIT]
            for entry in (orjson.loads(each.value) for each in partition if each.value and each.committed)
        }
        found = [*self.faults, *self._judged(logs, lambda: self._expected(sent, begun))]
        trace = self.world.trace
        return Outcome(found, trace.digest(), trace.lines, self.world.now - 1000.0, settled, self.events)

    def _expected(self, sent: Mapping[int, occupancy.Log], begun: occupancy.Begun) -> dict[str, list[bytes]]:
        """Return what must be visible."""
        return occupancy.expected(sent, self.key, begun)

    @abstractmethod
    def _close(self) -> None:
        """Close what a killed process has left open."""

    def _judged(
        self, logs: Mapping[str, Sequence[Sequence[Record]]], expected: Callable[[], dict[str, list[bytes]]]
    ) -> list[str]:
        """Return what is wrong with the final log."""
        return problems(logs, TOPICS, expected())

    def _play(self) -> float:
        """Let everything happen; return how long it took after the last fault until all was out."""
        world = self.world
        self._prepare()
        begin = world.now
        for event in self.events:
            world.at(begin + event.at, lambda event=event: self._begin(event))  # type: ignore[misc]
        calm = max([event.at + event.length for event in self.events], default=0.0)
        world.run(lambda: False, calm + 0.1)
        self._aims.clear()
        world.log("faults", "are over")
        over = world.now
        if not world.run(self._complete, LIVENESS + WINDOWS * PACE):
            self.faults.append(f"stalled: {self._late()} {LIVENESS:.0f} s after the last fault")
        settled = world.now - over
        self._stop_all()
        return settled

    def _complete(self) -> bool:
        return self._sent() and self._left() <= 0

    def _late(self) -> str:
        """Return what is not complete."""
        return f"{self._left()} windows are not out"

    def _left(self) -> int:
        """Return how many windows are not out yet."""
        due = len(occupancy.SITES) * (WINDOWS + 1)
        return due - min(map(self._visible, occupancy.PRIVATE))

    def _stop_all(self) -> None:
        """Tell the workers, and who reads what they release, to stop."""
        self._stopping = True
        running = [process for name, process in self.processes.items() if name != "ingest" and process.alive]
        for process in running:
            process.signal(signal.SIGTERM)
        self.world.run(lambda: not any(process.alive for process in running), ENDING)
        self.faults += [
            f"ending: {process.name} ended with {process.exit_code} when it was told to stop"
            for process in running
            if process.exit_code not in (0, KILLED)  # SIGTERM kills what has only just started
        ]


class WireRun(_Run):
    """The product's programs on simulated brokers."""

    own_globals = occupancy.GLOBALS

    def __init__(self, seed: int, events: Schedule, folder: Path) -> None:
        super().__init__(seed, events, folder)
        self.network = Network(self.world)
        self.cluster = Cluster(self.world, self.network, BROKERS)
        self._usual = {name: getattr(self.cluster, name) for name in ("lost_answers", "service_time", "copy_time")}
        self._feed = occupancy.Feed(seed, WINDOWS, PACE)
        self._aims = self.cluster.aims
        self._changed = False
        """Whether workers are started under the other policy."""
        self._mirror = recovery.Mirror(self.cluster)
        self._lost = self._mirror.lost
        self._grown = False
        """Whether a topic has had more partitions than the cluster."""
        self._cut_by: Counter[tuple[str, str]] = Counter()
        """How many faults have cut a link."""
        self._keys = [self.key]
        """The keys of the cluster; each but the last one was retired."""
        self._admin = recovery.Operator(self.cluster.bootstrap, self._mirror, folder, self._keys)
        self._resting = False
        """Whether everything rests while an operator works."""
        self._upgraded: set[str] = set()
        """The workers of the later mechanism version."""
        self._upgrading = False
        """Whether all workers are to be of the later mechanism version."""
        self._begins: dict[int, int] = {}
        """By partition, the first message that the later key reads."""
        self._folder = folder
        self._reading = readers.Reading(None)
        self._service_files = readers.ServiceFiles(folder)
        self._browsing = readers.Browsing()

    def _program(self, name: str) -> Coroutine[Any, Any, int]:
        bootstrap, keys = self.cluster.bootstrap, self._keys
        programs: dict[str, Callable[[], Coroutine[Any, Any, int]]] = {
            "ingest": lambda: occupancy.ingest(bootstrap, self._feed, keys[-1]),
            RIVAL: lambda: occupancy.ingest(bootstrap, occupancy.NOTHING, keys[-1]),
            "subscriber": lambda: readers.subscriber(bootstrap, self._reading),
            "service": lambda: readers.service(bootstrap, self._service_files, self._browsing),
            OPERATOR: lambda: occupancy.retire_key(bootstrap, keys[-2], keys[-1]),
            FORMER: lambda: occupancy.worker(bootstrap, occupancy.copy_of(keys[-2])),
            ADMIN: lambda: self._admin.act(self._policy, self._key_of(WORKERS[0])),
        }
        if name in programs:
            return programs[name]()
        return occupancy.worker(
            self.cluster.bootstrap,
            self._key_of(name),
            self._policy,
            accept_policy=self._changed or name in self._upgraded,
            accept_loss=self._admin.accept_loss,
            options=self._options,
        )

    @property
    def _policy(self) -> Policy:
        return occupancy.CHANGED if self._changed else occupancy.POLICY

    @property
    def _options(self) -> Options:
        return Options(first_window=self._admin.first_window)

    def _globals_of(self, name: str) -> Globals:
        if name == ADMIN:
            return recovery.GLOBALS
        if name == "service":
            return readers.GLOBALS
        return occupancy.globals_of_a_later_version() if name in self._upgraded else self.own_globals

    def _distribute_key(self) -> None:
        for name in WORKERS:
            copyfile(self._keys[-1], self._key_of(name))
            self._key_of(name).chmod(0o600)

    def _key_of(self, name: str) -> Path:
        """Return the key file on a worker's machine."""
        return self._keys[-1].with_name(f"{self._keys[-1].name}-{name}")

    def _ended(self, process: Process) -> None:
        end = self._end_of(process)
        if process.name == RIVAL:
            if process.exit_code == 0 and all(event.kind == "second ingest" for event in self.events):
                self.faults.append("displaced: a second ingest took the sources of one that lives")
            return
        if process.name in (OPERATOR, FORMER):
            self._rotation_ended(process, end)
            return
        if process.name == ADMIN:
            self._admin_ended(process)
            return
        if process.name in READERS and PRIVATE in self._lost and PRIVATE in end:
            self._begin_anew(process.name)
            end = ""
        if self._is_operators and self._waits_for_operator(process.name):
            self._call_admin()
            return
        if self._upgrading and OTHER_VERSION in end:
            self._change_version_of(process)
        if self._lost and ACCEPT in end:
            self._admin.accept_loss, self._admin.gaps = True, True
        elif end and not self._may_end(process.name, end):
            self.faults.append(f"stopped: {process.name}: {end}")
        if process.name != "ingest" or not self._feed.done:
            super()._ended(process)

    def _kept_secrets(self) -> list[str]:
        """Return which retired keys are still there."""
        parts = {"noise", "data", "audit", "pseudonym", "opt_out"}
        return [f"key: {path.name} was retired and is there" for path in self._keys[:-1]
                if parts & json.loads(path.read_bytes()).keys()]  # fmt: skip

    def _begin_anew(self, reader: str) -> None:
        """Do what a reader asks for whose topic has lost records: remove its cursor or its index."""
        if reader == "service":
            self._service_files.forget()
            self._browsing.forget()
        else:
            self._reading.forget()

    def _may_end(self, name: str, end: str) -> bool:
        """Return whether a program may end by itself for this reason."""
        apart = any(
            event.kind == "set clock" and abs(clock_of(event.target)[1]) > CLOCKS_APART for event in self.events
        )
        other = self._changed or self._upgrading or len(self._keys) > 1  # policy, mechanism version or key
        return (
            AWAY in end
            or TOO_EARLY in end
            or (other and "UsageError" in end)
            or (bool(self._lost) and name == "ingest")
            or (apart and name == "ingest" and APART in end)
            or (RIVAL in self.processes and name == "ingest" and TAKEN in end)
            or (FULL in end and any(event.kind == "fill disk" for event in self.events))
        )

    @property
    def _is_operators(self) -> bool:
        """Whether an operator may have to act."""
        return bool(self._lost) or self._grown

    def _end_of(self, process: Process) -> str:
        """Return why a worker says that it has stopped; nothing if it has not said so."""
        if process.exit_code in (None, 0, KILLED):
            return ""
        said = (line.partition(STOPPED) for line in reversed(self.world.trace.lines) if process.name in line)
        return next((reason for _, found, reason in said if found), "")

    def _complete(self) -> bool:
        if self._upgrading and not self._upgraded.issuperset(WORKERS):
            return False
        if not super()._complete() or self._resting or not self._key_day_is_over() or self._unread():
            return False
        if self._is_operators and not self._admin.idle:
            self._call_admin()
            return False
        return True

    def _key_day_is_over(self) -> bool:
        """Return whether the day before this one has no key any more; files of keys are read as JSON."""
        if self._resting:
            return False
        stored = [json.loads(path.read_bytes()) for path in self._key_files()]
        days = [each[name]["day"] for each in stored for name in ("noise", "data")]
        return self._is_operators or min(days) > occupancy.BEGIN // DAY

    def _key_files(self) -> list[Path]:
        """Return the key files of all workers."""
        return [self._key_of(name) for name in WORKERS]

    def _unread(self) -> list[str]:
        """Return which readers have not got every visible record."""
        due = sum(record.committed for each in self.cluster.topics.get(PRIVATE, []) for record in each.records())
        got = {"subscriber": [self._reading.given], "service": [self._service_files.count, self._browsing.given]}
        return [name for name in READERS if name in self.processes and any(count() != due for count in got[name])]

    def _late(self) -> str:
        unread = [f"{name} has not got every record" for name in self._unread()]
        key = [] if self._key_day_is_over() else ["a day that is over has its key"]
        former = [f"{name} is of the former version" for name in WORKERS if self._upgrading - (name in self._upgraded)]
        retired = ["the operator is not done"] if self._resting else []
        return "; ".join([super()._late(), *unread, *key, *former, *retired])

    def _waits_for_operator(self, name: str) -> bool:
        """Return whether a worker has ended because of a loss, and named a way out that takes more than an order."""
        end = "" if self.processes[name].alive else self._end_of(self.processes[name])
        return WAY_OUT in end and ACCEPT not in end

    def _judged(
        self, logs: Mapping[str, Sequence[Sequence[Record]]], expected: Callable[[], dict[str, list[bytes]]]
    ) -> list[str]:
        """Compare a topic of which something was lost with all that it ever held, unless it was put back.

        Where observations were lost, nobody knows the bytes of the windows that lack them. Where states were lost, what
        follows from the ledger comes again, with the same bytes.
        """
        partial = set(logs) if SNAPSHOT in self._mirror.behind else self._mirror.behind
        final = {name: self._ever(name, logs[name]) if name in partial else logs[name] for name in logs}
        due = {} if self._admin.gaps else expected()
        return [*problems(final, TOPICS, due, self._lost), *self._misread(), *self._kept_secrets()]

    def _ever(self, topic: str, partitions: Sequence[Sequence[Record]]) -> list[list[Record]]:
        """Return what a topic has ever held, each record once."""
        seen: dict[tuple[bytes | None, bool], Record] = {}
        for record in (record for records in [*self._lost.get(topic, []), *partitions] for record in records):
            seen.setdefault((record.value, record.committed), record)
        return [sorted(seen.values(), key=lambda record: record.appended_ms)]

    def _expected(self, sent: Mapping[int, occupancy.Log], begun: occupancy.Begun) -> dict[str, list[bytes]]:
        after = {number: self._succession(number) for number in sent} if len(self._keys) > 1 else None
        return occupancy.expected(sent, self._keys[0], begun, after, self._options, self._versions())

    def _versions(self) -> dict[str, int]:
        """Return how many entries of each site the present mechanism version has made, where a later one goes on."""
        entries: dict[str, int] = {}
        for partition in self.cluster.topics[SNAPSHOT] if self._upgrading else []:
            states = [each.value for each in partition.history() if each.committed and each.value]
            made_by = [open_snapshot(state)[0]["mechanisms"] for state in states]
            if LATER in made_by:
                before = made_by.index(LATER)
                known = chains(states[before - 1]) if before else {}
                sites = (
                    name
                    for name in occupancy.SITES
                    if occupancy.partition_of(name, occupancy.PARTITIONS) == partition.number
                )
                entries |= {site: known.get(site, (0, ""))[0] for site in sites}
        return entries

    def _succession(self, number: int) -> occupancy.Succession:
        """Return where the retired key's ledger ends on a partition, by the log."""
        former = json.loads(self._keys[0].read_bytes())["ledger"]
        snapshots = (each.value for each in self.cluster.topics[SNAPSHOT][number].history() if each.committed)
        states = [(open_snapshot(value)[0], value) for value in snapshots if value]
        key = states[0][0]["key"]
        last, state = [each for each in states if each[0]["key"] == key][-1]
        first, _ = next(each for each in states if each[0]["key"] != key)
        audit = (each.value for each in self.cluster.topics[AUDIT][number].history() if each.committed)
        entries = Counter(
            entry["site"] for value in audit if value and (entry := orjson.loads(value))["ledger"] == former
        )
        known = {site: count for site, (count, _) in chains(state).items()}
        return occupancy.Succession(self._keys[-1], last["next"], known, entries, first["next"])

    def _misread(self) -> list[str]:
        """Return what readers have got that they should not, or not got that they should."""
        found: list[str] = []
        log = [list(each.records()) for each in self.cluster.topics.get(PRIVATE, [])]
        if "subscriber" in self.processes:
            found += misread(self._reading.lives, log, resumes=self._reading.cursor is not None)
        if "service" in self.processes:
            found += misindexed(self._service_files.records(), [log])
            found += [f"stream: {each}" for each in misread(self._browsing.lives, log, resumes=True)]
            found += self._browsing.refused
        return found

    def _prepare(self) -> None:
        operator = Process(self.world, "operator", occupancy.GLOBALS)

        async def prepare() -> int:
            occupancy.create_key(self.key)
            return await occupancy.create(self.cluster.bootstrap)

        operator.start(prepare)
        self.world.run(lambda: operator.exit_code is not None, 60.0)
        if operator.exit_code != 0:
            self.faults.append(f"preparing: topics are not created within a minute: {operator.failure!r}")
            operator.kill()
        self._distribute_key()
        for name in ("ingest", *WORKERS):
            self._start(name)

    def _sent(self) -> bool:
        return self._feed.done

    def _close(self) -> None:
        self._service_files.close()

    def _visible(self, topic: str) -> int:
        return len({record.value for record in self._shown(topic)})

    def _shown(self, topic: str) -> Iterator[Record]:
        """Yield every committed record that a topic has ever shown."""
        for records in [*self._lost.get(topic, []), *(each.history() for each in self.cluster.topics.get(topic, []))]:
            yield from (record for record in records if record.committed)

    def _left(self) -> int:
        if self._resting:
            return 1
        if len(self._keys) == 1 and OBSERVATIONS not in self._lost:
            return super()._left()
        # What a former key had begun or not read, or was lost, is not released: the last window, where its end can be
        # read.
        last = occupancy.BEGIN + WINDOWS * occupancy.TICK
        if (self._admin.first_window or 0) > last:
            return 0
        out = {record.key for record in self._shown(PRIVATE) if rfc3339(last) == _end(record)}
        return len(self._awaited() - out)

    def _awaited(self) -> set[bytes | None]:
        """Return the sites of which there is a message to read."""
        parts = self.cluster.topics.get(OBSERVATIONS, [])
        if len(self._keys) > 1 and not self._begins:
            self._begins = {number: self._succession(number).next for number in range(occupancy.PARTITIONS)}
        return {
            each.key for part in parts for each in part.records() if each.offset >= self._begins.get(part.number, 0)
        }

    def _logs(self) -> Mapping[str, Sequence[Sequence[Record]]]:
        return {topic: [each.history() for each in self.cluster.topics.get(topic, [])] for topic in RESULTS}

    def _input(self) -> Mapping[int, occupancy.Log]:
        return {
            each.number: [(one.offset, one.key, one.value or b"", one.timestamp * 1000) for one in each.history()]
            for each in self.cluster.topics.get(OBSERVATIONS, [])
        }

    # --- faults ---------------------------------------------------------------------------------------

    def _kill_broker(self, target: str) -> End:
        broker = self.cluster.named(target)
        if not broker.serves:
            return _nothing
        broker.kill()
        return broker.recover

    def _hang_broker(self, target: str) -> End:
        broker = self.cluster.named(target)
        if not broker.serves:
            return _nothing
        broker.hang()
        return broker.recover

    def _cut(self, target: str) -> End:
        name, host = target.split()
        return self._cut_links([(name, host)])

    def _isolate(self, target: str) -> End:
        return self._cut_links([(target, broker.host) for broker in self.cluster.brokers.values()])

    def _cut_links(self, links: Sequence[tuple[str, str]]) -> End:
        for link in links:
            self._cut_by[link] += 1
            self.network.cut_link(*link)

        def mend() -> None:
            for link in links:
                self._cut_by[link] -= 1
                if not self._cut_by[link]:
                    self.network.mend_link(*link)

        return mend

    def _aim(self, event: Event) -> None:
        process, request, side = event.target.split()
        self.cluster.aims[process, request, side] = lambda: self._strike(event)

    def _foreign_transaction(self, target: str) -> End:
        return self.cluster.hold_open(OBSERVATIONS, int(target))

    def _compact(self, target: str) -> End:
        """Let the log cleaner run; a topic that must keep every record loses some of them."""
        topic = _TOPICS[target] if target in COMPACTED else self._destroy(target)
        for partition in self.cluster.topics[topic]:
            before = len(partition.removed)
            partition.compact()
            self.world.log("cluster", f"{topic}-{partition.number} loses {len(partition.removed) - before} records")
        return _nothing

    def _expire(self, target: str) -> End:
        """Let old segments expire, as settings allow it: of observations, those that the last state covers."""
        topic = _TOPICS[target]
        for partition in self.cluster.topics[topic]:
            end = partition.high_watermark
            if topic == OBSERVATIONS:
                states = [each.value for each in self.cluster.topics[SNAPSHOT][partition.number].records()
                          if each.committed and each.value]  # fmt: skip
                end = open_snapshot(states[-1])[0]["next"] if states else 0
            partition.delete_before(end - self.world.random.choice((0, 0, 1, 10)))
            self.world.log("cluster", f"{topic}-{partition.number} begins at {partition.start}")
        return _nothing

    def _set_clock(self, target: str) -> End:
        """Set the clock of a machine; it is set right again afterwards."""
        name, seconds = clock_of(target)
        if name in self.processes:
            return self._afflict(name, "clock_offset", seconds, 0.0)
        broker = self.cluster.named(name)
        broker.clock_offset = seconds
        return lambda: setattr(broker, "clock_offset", 0.0)

    def _fill_disk(self, target: str) -> End:
        return self._afflict(target, "full_disk", True, False)

    def _slow_disk(self, target: str) -> End:
        return self._afflict(target, "slow_disk", SLOW_DISK, 0.0)

    def _second_ingest(self, target: str) -> End:
        """Start another ingest for the same sources; it is refused while the first one lives."""
        if RIVAL not in self.processes:
            self._start(RIVAL)
        return _nothing

    def _grow(self, target: str) -> End:
        """Give a topic a partition more; nobody can take it away again."""
        name, _, self._admin.preferred = target.partition(" ")
        self._restarted, self._grown, self._admin.idle = {0, 1, 2}, True, False
        self.cluster.grow(_TOPICS[name])
        return _nothing

    def _destroy(self, target: str) -> str:
        """Remember what a topic holds of which something is about to be destroyed, and how it is to be mended."""
        name, _, self._admin.preferred = target.partition(" ")
        self._restarted, self._admin.idle = {0, 1, 2}, False
        self._mirror.before_loss(_TOPICS[name])
        return _TOPICS[name]

    def _delete_records(self, target: str) -> End:
        """Delete everything that a topic holds, as retention does."""
        topic = self._destroy(target)
        for partition in self.cluster.topics[topic]:
            self.world.log("cluster", f"{topic}-{partition.number} loses its records before {partition.high_watermark}")
            partition.delete_before(partition.high_watermark)
        self._mirror.after_loss(topic)
        return _nothing

    def _lose_end(self, target: str) -> End:
        """Lose the last records of a topic, as an unclean election does."""
        topic = self._destroy(target)
        for partition in self.cluster.topics[topic]:
            partition.lose_end(LOST_BATCHES)
            self.world.log("cluster", f"{topic}-{partition.number} loses its records from {partition.end} on")
        self._mirror.after_loss(topic)
        return _nothing

    def _make_anew(self, target: str) -> End:
        topic = self._destroy(target)
        self.cluster.make_anew(topic)
        self._mirror.after_loss(topic)
        return _nothing

    def _subscribe(self, target: str) -> End:
        if "subscriber" not in self.processes:
            self._reading.cursor = self._folder / "cursor" if target == "cursor" else None
            self._start("subscriber")
        return _nothing

    def _serve(self, target: str) -> End:
        if "service" not in self.processes:
            self._start("service")
        return _nothing

    def _retire_key(self, target: str) -> End:
        """Stop everything, retire the key, and start everything with another one.

        A paused worker is taken for dead, and wakes while others work with the other key.
        """
        if len(self._keys) > 1 or any(event.kind in (*LOSSES, "change version") for event in self.events):
            return _nothing
        self._keys.append(self.key.with_name("later"))
        self._rest(OPERATOR)

        def interrupt() -> None:
            if OPERATOR in self.processes:
                self._kill(OPERATOR)

        return interrupt

    def _rest(self, operator: str) -> None:
        """Stop everything, and start an operator when it has stopped."""
        self._resting, self._restarted = True, {0, 1, 2}
        there = [self.processes[name] for name in ("ingest", *WORKERS) if name in self.processes]
        for process in (each for each in there if each.alive and not each.paused):
            self._told.append(process)
            process.signal(signal.SIGTERM)

        def look() -> None:
            if any(process.alive and not process.paused for process in there):
                self.world.after(0.5, look)
                return
            self._start(operator)

        look()

    def _call_admin(self) -> None:
        """Let everything rest while an operator reads ``tacet recover`` and follows it."""
        if not self._resting and not self._stopping:
            self._resting = True
            self.world.after(1.0, lambda: self._rest(ADMIN))

    def _admin_ended(self, process: Process) -> None:
        if process.exit_code != 0:
            self.world.after(1.0, lambda: self._start(ADMIN))
            return
        self._resting = False
        self._distribute_key()
        for name in ("ingest", *WORKERS):
            if not self.processes[name].alive and (name != "ingest" or not self._feed.done):
                self._start(name)

    def _rotation_ended(self, process: Process, end: str) -> None:
        if process.name == FORMER:
            if process.exit_code not in (2, KILLED) and AWAY not in end:
                self.faults.append(f"key: a worker with the retired key ended with {process.exit_code}: {end}")
        elif process.exit_code != 0:
            self.world.after(1.0, lambda: self._start(OPERATOR))
        else:
            self._resting = False
            self._distribute_key()
            for name in ("ingest", *WORKERS, FORMER):
                if name not in self.processes or not self.processes[name].alive:
                    self._start(name)

    def _restart(self, process: Process) -> None:
        if not self._resting or process.name in READERS:
            super()._restart(process)

    def _change_policy(self, target: str) -> End:
        """Start a worker with another policy; who works under the one before ends with 2, and is started so too."""
        self._changed, self._restarted = True, {0, 1, 2}
        self.processes[target].signal(signal.SIGTERM)
        return _nothing

    def _change_version(self, target: str) -> End:
        """Upgrade a worker; the others follow as soon as they are refused."""
        if any(event.kind in (*LOSSES, "retire key") for event in self.events):
            return _nothing
        self._upgrading, self._restarted = True, {0, 1, 2}
        self._upgrade(target)
        return _nothing

    def _upgrade(self, name: str) -> None:
        self._upgraded.add(name)
        self._told.append(self.processes[name])
        self.processes[name].signal(signal.SIGTERM)

    def _change_version_of(self, process: Process) -> None:
        """Start a worker that was refused under the other mechanism version; under the former one only for a while."""
        name = process.name
        if name not in self._upgraded:
            self._upgraded.add(name)
            return
        self._upgraded.remove(name)
        self.world.after(
            ONCE_MORE + self.world.random.random(), lambda: None if self._stopping else self._upgrade(name)
        )

    def _reset(self, target: str) -> End:
        for connection in list(self.processes[target].connections):
            connection.lost(ConnectionResetError("connection reset"))
        return _nothing

    def _set(self, name: str, value: float) -> End:
        setattr(self.cluster, name, value)
        return lambda: setattr(self.cluster, name, self._usual[name])

    def _lose_answers(self, target: str) -> End:
        return self._set("lost_answers", 0.02)

    def _slow_brokers(self, target: str) -> End:
        return self._set("service_time", 0.8)

    def _slow_copies(self, target: str) -> End:
        return self._set("copy_time", 2.0)

    def _move_coordinators(self, target: str) -> End:
        self.cluster.move_coordinators()
        return _nothing


class PortRun(_Run):
    """Partition tasks and engines over a simulated log."""

    def __init__(self, seed: int, events: Schedule, folder: Path) -> None:
        super().__init__(seed, events, folder)
        self.log = port.Log(self.world)
        self._aims = self.log.aims
        self.assignment = port.Assignment()
        self._waiting = occupancy.Movement(seed, WINDOWS).messages()

    def _program(self, name: str) -> Coroutine[Any, Any, int]:
        return port.worker(self.log, self.assignment, name, self.key)

    def _prepare(self) -> None:
        occupancy.create_key(self.key)
        for name in WORKERS:
            self._start(name)
        self._balance()
        self._send()

    def _ended(self, process: Process) -> None:
        super()._ended(process)
        self.world.after(occupancy.SESSION_TIMEOUT * self.world.random.random(), self._balance)

    def _restart(self, process: Process) -> None:
        super()._restart(process)
        self.world.after(0.5, self._balance)

    def _balance(self) -> None:
        """Give partitions to workers that are there, one each if there are enough."""
        there = [name for name, process in self.processes.items() if process.alive and not process.paused]
        for partition in range(occupancy.PARTITIONS):
            owner = there[partition % len(there)] if there else None
            if owner is not None and self.assignment.owners.get(partition) != owner:
                self.assignment.give(partition, owner)

    def _send(self) -> None:
        """Send a window; sometimes a message comes twice, because its acknowledgement was lost."""
        for message in self._waiting.pop(0):
            self.log.send(message)
            if self.world.random.random() < 0.05:
                self.log.send(message)
        if self._waiting:
            self.world.after(PACE, self._send)

    def _sent(self) -> bool:
        return not self._waiting

    def _close(self) -> None:
        """Nothing is open."""

    def _visible(self, topic: str) -> int:
        return sum(
            entry.committed
            for number in range(occupancy.PARTITIONS)
            for entry in self.log.partition(topic, number)
        )  # fmt: skip

    def _logs(self) -> Mapping[str, Sequence[Sequence[Record]]]:
        return {
            topic: [self.log.partition(topic, number) for number in range(occupancy.PARTITIONS)] for topic in RESULTS
        }

    def _input(self) -> Mapping[int, occupancy.Log]:
        return {
            number: [(one.offset, one.key, one.value, one.stamp) for one in messages]
            for number, messages in enumerate(self.log.input)
        }

    # --- faults ---------------------------------------------------------------------------------------

    def _aim(self, event: Event) -> None:
        process, moment = event.target.split()
        self.log.aims[process, moment] = lambda: self._strike(event)

    def _pause(self, target: str) -> End:
        end = super()._pause(target)
        self.world.after(occupancy.SESSION_TIMEOUT * self.world.random.random(), self._balance)

        def resume() -> None:
            end()
            self.world.after(0.5, self._balance)

        return resume

    def _lose_answers(self, target: str) -> End:
        self.log.lost = 0.1
        return lambda: setattr(self.log, "lost", 0.0)

    def _slow_log(self, target: str) -> End:
        self.log.latency = 0.4
        return lambda: setattr(self.log, "latency", 0.002)

    def _outage(self, target: str) -> End:
        self.log.available = False
        return lambda: setattr(self.log, "available", True)

    def _move(self, target: str) -> End:
        partition = int(target)
        other = next(name for name in WORKERS if name != self.assignment.owners.get(partition))
        self.assignment.give(partition, other)
        return _nothing


def _runner(kind: type[_Run], level: str) -> Callable[[int, Schedule | None], Outcome]:
    def run(seed: int, events: Schedule | None = None) -> Outcome:
        """Run a schedule, by default the one that the seed draws."""
        with TemporaryDirectory() as folder:
            return kind(seed, draw(seed, level) if events is None else events, Path(folder)).run()

    return run


def run_kept(kept: Kept) -> Outcome:
    """Run a kept schedule; what must be said and is not is a problem too."""
    outcome = LEVELS[kept.level](kept.seed, kept.events)
    if not any(kept.says in line for line in outcome.lines):
        outcome.problems.append(f"silent: nobody says {kept.says!r}")
    return outcome


LEVELS = {"port": _runner(PortRun, "port"), "wire": _runner(WireRun, "wire")}
"""By name, what runs a schedule at a level."""
