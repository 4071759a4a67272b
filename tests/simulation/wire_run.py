"""Runs on the wire: ingest, workers, Faust included, readers and operators on simulated brokers."""

from __future__ import annotations

import json
import math
import signal
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from shutil import copyfile
from typing import Any

import orjson

from connectors.storage.kafka.client import partition_of
from stream.engine.snapshot import chains, open_snapshot
from stream.pipeline import Options
from stream.records import DAY
from stream.release.validation import Policy
from stream.schemas import AUDIT, CONTROL, LEAKAGE, METADATA, OBSERVATIONS, QUARANTINE, SNAPSHOT, rfc3339
from tests.simulation import occupancy, readers, recovery
from tests.simulation.checker import Record, misindexed, misread, problems
from tests.simulation.kafka_brokers import Cluster
from tests.simulation.kafka_logs import Record as LogRecord
from tests.simulation.network import Network
from tests.simulation.processes import Globals, Process
from tests.simulation.run import KILLED, RESULTS, TOPICS, End, Run, nothing
from tests.simulation.schedules import (
    BROKERS,
    COMPACTED,
    LOSSES,
    OPERATOR,
    PACE,
    READERS,
    WINDOWS,
    WORKERS,
    Event,
    Schedule,
    clock_of,
)
from tests.support.later_mechanism_version import LATER

FORMER = "former"
"""A worker with a copy of a key that was retired."""
EMPTIED = "control topic: must keep its records"
"""What a program says whose control topic was emptied."""
STOPPED = " stopped: "
WAY_OUT, ACCEPT = "'tacet recover", "--accept-loss"
"""What a worker names that cannot go on after a loss, and what it names if an order lets it go on."""
AWAY = "no Kafka broker answers"
"""What a program says that ends as it starts, because it reaches no broker; a supervisor starts it again."""
(PRIVATE,) = occupancy.PRIVATE
TOO_EARLY = "stopped while"
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
FULL = ("No space left on device", "disk full")
"""What a program says that cannot write a file, in the words of the system or in its own."""
CLOCKS_APART = 30
"""Seconds by which one clock may be wrong: two of them together are no minute apart, from which on an ingest ends."""
SLOW_DISK = 4.0
"""Seconds that a sync of a slow disk takes."""
OPENING = 10.0
"""Seconds for which an operator lets workers open their partitions before it looks again."""
LOST_BATCHES = 6
"""How many batches of each partition are lost with its last records."""
LAST_WINDOW = occupancy.BEGIN + WINDOWS * occupancy.TICK
"""The end of the last window that is due."""
_TOPICS = {
    "observations": OBSERVATIONS, "audit": AUDIT, "snapshot": SNAPSHOT, "control": CONTROL, "metadata": METADATA,
    "private": occupancy.PRIVATE[0], "account": LEAKAGE, "quarantine": QUARANTINE,
}  # fmt: skip
"""By the names that events have for them."""


def _end(record: Record) -> str:
    """Return the end of a released window."""
    return str(orjson.loads(record.value or b"{}").get("window_end"))


def _watermark(record: Record) -> float:
    """Return the watermark of a heartbeat; of what is none, later than any."""
    value = record.value or b""
    return float(orjson.loads(value)["watermark"]) if value.startswith(b"{") and b'"heartbeat"' in value else math.inf


class WireRun(Run):
    """The product's programs on simulated brokers."""

    own_globals = occupancy.GLOBALS

    def __init__(self, seed: int, events: Schedule, folder: Path, within: float | None = None) -> None:
        super().__init__(seed, events, folder, within)
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
        self._of_former_key: list[Process] = []
        """Workers that were paused while their key was retired; they must end."""
        self._admin = recovery.Operator(self.cluster.bootstrap, self._mirror, folder, self._keys)
        self._resting = False
        """Whether everything rests while an operator works."""
        self._looks_again = 0.0
        """When the operator may look again, in the world's time: workers have opened what can be opened."""
        self._upgraded: set[str] = set()
        """The workers of the later mechanism version."""
        self._upgrading = False
        """Whether all workers are to be of the later mechanism version."""
        self._consents = True
        """Whether workers are started with ``--accept-policy`` where they need it."""
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
            accept_policy=self._consents and (self._changed or name in self._upgraded),
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
        elif end and process not in self._of_former_key and not self._may_end(process.name, end):
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
            or (CONTROL in self._lost and EMPTIED in end)
            or (apart and name == "ingest" and APART in end)
            or (RIVAL in self.processes and name == "ingest" and TAKEN in end)
            or (any(words in end for words in FULL) and any(event.kind == "fill disk" for event in self.events))
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
            if self.world.now >= self._looks_again:
                self._call_admin()
            return False
        return True

    def _key_day_is_over(self) -> bool:
        """Return whether the day before this one has no key any more; files of keys are read as JSON.

        A day is over when every site is past it. If a key follows another when all has been read, no site is.
        """
        if self._resting:
            return False
        if len(self._keys) > 1 and len(self._awaited()) < len(occupancy.SITES):
            return True
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
        if OBSERVATIONS in self._lost:  # messages that were read before come again, also those of a day without a key
            final[QUARANTINE] = [
                [each for each in records if b'"key_gone"' not in (each.value or b"")] for records in final[QUARANTINE]
            ]
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
            made_by = [open_snapshot(state)[0].mechanisms for state in states]
            if LATER in made_by:
                before = made_by.index(LATER)
                known = chains(states[before - 1]) if before else {}
                sites = (
                    name for name in occupancy.SITES if partition_of(name, occupancy.PARTITIONS) == partition.number
                )
                entries |= {site: known.get(site, (0, ""))[0] for site in sites}
        return entries

    def _succession(self, number: int) -> occupancy.Succession:
        """Return where the retired key's ledger ends on a partition, by the log."""
        former = json.loads(self._keys[0].read_bytes())["ledger"]
        snapshots = (each.value for each in self.cluster.topics[SNAPSHOT][number].history() if each.committed)
        states = [(open_snapshot(value)[0], value) for value in snapshots if value]
        if not states:  # there was nothing to take over; if there are messages, workers end at the first
            return occupancy.Succession(self._keys[-1], 0, {}, {}, len(self._input()[number]))
        key = states[-1][0].key
        first, _ = next(each for each in states if each[0].key == key)
        former_states = [each for each in states if each[0].key != key]
        if not former_states:
            return occupancy.Succession(self._keys[-1], 0, {}, {}, first.next_offset)
        last, state = former_states[-1]
        audit = (each.value for each in self.cluster.topics[AUDIT][number].history() if each.committed)
        entries = Counter(
            entry["site"] for value in audit if value and (entry := orjson.loads(value))["ledger"] == former
        )
        known = {site: count for site, (count, _) in chains(state).items()}
        return occupancy.Succession(self._keys[-1], last.next_offset, known, entries, first.next_offset)

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

    def _shown(self, topic: str) -> Iterator[LogRecord]:
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
        if (self._admin.first_window or 0) > LAST_WINDOW:
            return 0
        out = {record.key for record in self._shown(PRIVATE) if rfc3339(LAST_WINDOW) == _end(record)}
        return len(self._awaited() - out)

    def _awaited(self) -> set[bytes | None]:
        """Return the sites whose last window is to come out.

        There is a message to read, and, for a key that follows another, a heartbeat no later than the window's end:
        the first one that the key reads decides with which window it begins.
        """
        if len(self._keys) == 1:
            return {each.key for part in self.cluster.topics.get(OBSERVATIONS, []) for each in part.records()}
        if not self._begins:
            self._begins = {number: self._succession(number).next for number in range(occupancy.PARTITIONS)}
        return {
            each.key
            for part in self.cluster.topics.get(OBSERVATIONS, [])
            for each in part.records()
            if each.offset >= self._begins.get(part.number, 0) and _watermark(each) <= LAST_WINDOW
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
            return nothing
        broker.kill()
        return broker.recover

    def _hang_broker(self, target: str) -> End:
        broker = self.cluster.named(target)
        if not broker.serves:
            return nothing
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
        return nothing

    def _expire(self, target: str) -> End:
        """Let old segments expire, as settings allow it: of observations, those that the last state covers."""
        topic = _TOPICS[target]
        for partition in self.cluster.topics[topic]:
            end = partition.high_watermark
            if topic == OBSERVATIONS:
                states = [each.value for each in self.cluster.topics[SNAPSHOT][partition.number].records()
                          if each.committed and each.value]  # fmt: skip
                end = open_snapshot(states[-1])[0].next_offset if states else 0
            partition.delete_before(end - self.world.random.choice((0, 0, 1, 10)))
            self.world.log("cluster", f"{topic}-{partition.number} begins at {partition.start}")
        return nothing

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
        """Start another ingest for the same sources; it is refused while the first one lives.

        If the first one was killed, the other takes its place, and the first one ends with 2 until that one is done.
        """
        self._restarted |= {2}  # ``_may_end`` judges why
        if RIVAL not in self.processes:
            self._start(RIVAL)
        return nothing

    def _grow(self, target: str) -> End:
        """Give a topic a partition more; nobody can take it away again."""
        name, _, self._admin.preferred = target.partition(" ")
        self._restarted, self._grown, self._admin.idle = {0, 1, 2}, True, False
        self.cluster.grow(_TOPICS[name])
        return nothing

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
        return nothing

    def _lose_end(self, target: str) -> End:
        """Lose the last records of a topic, as an unclean election does."""
        topic = self._destroy(target)
        for partition in self.cluster.topics[topic]:
            partition.lose_end(LOST_BATCHES)
            self.world.log("cluster", f"{topic}-{partition.number} loses its records from {partition.end} on")
        self._mirror.after_loss(topic)
        return nothing

    def _make_anew(self, target: str) -> End:
        topic = self._destroy(target)
        self.cluster.make_anew(topic)
        self._mirror.after_loss(topic)
        return nothing

    def _make_anew_reversed(self, target: str) -> End:
        """Make a topic anew with all that it held, in reverse order: it ends where it did."""
        topic = self._destroy(target)
        self.cluster.make_anew(topic, refill=True)
        self._mirror.after_loss(topic)
        return nothing

    def _subscribe(self, target: str) -> End:
        if "subscriber" not in self.processes:
            self._reading.cursor = self._folder / "cursor" if target == "cursor" else None
            self._start("subscriber")
        return nothing

    def _serve(self, target: str) -> End:
        if "service" not in self.processes:
            self._start("service")
        return nothing

    def _retire_key(self, target: str) -> End:
        """Stop everything, retire the key, and start everything with another one.

        A paused worker is taken for dead, and wakes while others work with the other key.
        """
        if len(self._keys) > 1 or any(event.kind in (*LOSSES, "change version") for event in self.events):
            return nothing
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
        stopped = list[Process]()

        def look() -> None:
            running = [process for process in there if process.alive and not process.paused]
            for process in running:
                if process not in stopped:  # also one that was paused at first
                    stopped.append(process)
                    self._told.append(process)
                    process.signal(signal.SIGTERM)
            if running:
                self.world.after(0.5, look)
            else:
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
        self._resting, self._looks_again = False, self.world.now + OPENING
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
            self._of_former_key = [each for name in WORKERS if (each := self.processes[name]).alive]
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
        self._replace(self.processes[target])
        return nothing

    def _replace(self, process: Process) -> None:
        """Tell a worker to stop, and start it again; one that has only just started is killed by the signal."""
        process.signal(signal.SIGTERM)
        self.world.after(1.0, lambda: self._restart(process))

    def _change_version(self, target: str) -> End:
        """Upgrade a worker; the others follow as soon as they are refused."""
        if any(event.kind in (*LOSSES, "retire key") for event in self.events):
            return nothing
        self._upgrading, self._restarted = True, {0, 1, 2}
        self._upgrade(target)
        return nothing

    def _withdraw_consent(self, target: str) -> End:
        """Start workers without ``--accept-policy`` from now on: an operator gives that order once."""
        self._consents = False
        return nothing

    def _upgrade(self, name: str) -> None:
        self._upgraded.add(name)
        self._told.append(self.processes[name])
        self._replace(self.processes[name])

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
        return nothing

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
        return nothing
