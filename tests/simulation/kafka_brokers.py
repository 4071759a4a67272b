"""Simulated brokers: they speak Kafka's protocol to unmodified clients.

Requests are read and answers written with aiokafka's own structures, at the newest versions that it knows. The answers'
fields are looked up by name, so the code below reads like the protocol's documentation. A broker answers the requests
of a connection one after the other, as Kafka does (``Processor.processNewResponses`` unmutes the channel only then).

Faults: ``kill`` (connections break, the log stays), ``hang`` (connections stay open and nothing is answered), lost
answers, slow answers, coordinators that move and load. A broker that is away for ``FENCED_AFTER`` loses its leaders.
"""

from __future__ import annotations

import importlib
import pkgutil
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from io import BytesIO
from typing import Any
from zlib import crc32

from aiokafka import protocol
from aiokafka.protocol.api import RequestStruct
from aiokafka.protocol.types import (
    Array,
    Boolean,
    Bytes,
    CompactArray,
    Int32,
    Schema,
    String,
    TaggedFields,
    UnsignedVarInt32,
)

from tests.simulation import kafka_logs as logs
from tests.simulation.kafka_groups import COORDINATOR_LOADING, REBALANCING, Group, Transactions
from tests.simulation.kafka_logs import NONE, Partition
from tests.simulation.network import Incoming, Network
from tests.simulation.processes import World

COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
TOPIC_EXISTS = 36
LEADER_NOT_AVAILABLE = 5
NOT_CONTROLLER = 41

FENCED_AFTER = 9.0
"""Seconds of silence after which the controller gives a broker's leaders to others (``broker.session.timeout.ms``)."""
PORT = 9092
Handler = Callable[["Broker", "_Request"], None]


def _request_classes() -> dict[tuple[int, int], type[RequestStruct]]:
    """Return aiokafka's structures by number and version of a request."""
    for module in pkgutil.iter_modules(protocol.__path__):
        importlib.import_module(f"{protocol.__name__}.{module.name}")
    found: dict[tuple[int, int], type[RequestStruct]] = {}
    waiting = list(RequestStruct.__subclasses__())
    while waiting:
        each = waiting.pop()
        waiting += each.__subclasses__()
        if hasattr(each, "API_KEY"):
            found[each.API_KEY, each.API_VERSION] = each
    return found


CLASSES = _request_classes()


@cache
def _encoder(kind: Any) -> tuple[Callable[[Any], bytes], Any]:
    """Return what encodes a value of this kind, and what stands for one that is absent: zero, empty or null."""
    if isinstance(kind, Schema):
        fields = [(name, *_encoder(each)) for name, each in zip(kind.names, kind.fields, strict=True)]
        return lambda given: b"".join([
            encode(absent if (value := given.get(name)) is None else value) for name, encode, absent in fields
        ]), {}  # fmt: skip
    if isinstance(kind, Array | CompactArray):
        each, _ = _encoder(kind.array_of)
        compact = isinstance(kind, CompactArray)
        length = (lambda count: UnsignedVarInt32.encode(count + 1)) if compact else Int32.encode
        return lambda values: length(len(values)) + b"".join(map(each, values)), ()
    if kind is TaggedFields:
        return kind.encode, {}
    if kind is Bytes:
        return kind.encode, b""
    if isinstance(kind, String):
        return kind.encode, None
    return getattr(kind, "_pack", kind.encode), kind is not Boolean and 0


def _encoded(schema: Any, values: Mapping[str, Any]) -> bytes:
    """Return the bytes of an answer."""
    encode, _ = _encoder(schema)
    return encode(values)


@lru_cache(maxsize=1024)
def _read(kind: bytes, content: bytes) -> tuple[type[RequestStruct], str, dict[str, Any]]:
    """Return structure, client and fields of a request; clients send most of theirs again and again.

    Args:
        kind: its number and its version.
        content: what follows the number by which a client knows its answer.
    """
    found, data = CLASSES[struct.unpack(">hh", kind)], BytesIO(content)
    client = String("utf-8").decode(data) or ""
    if found.FLEXIBLE_VERSION:
        TaggedFields.decode(data)
    return found, client, found.decode(data).to_object()


@dataclass
class _Request:
    """One request that waits for its answer."""

    kind: type[RequestStruct]
    fields: dict[str, Any]
    client: str
    correlation: int
    connection: _Connection

    def reply(self, values: Mapping[str, Any]) -> None:
        """Answer."""
        if self.connection.incoming.open:
            self.connection.answer(self, _encoded(self.kind.RESPONSE_TYPE.SCHEMA, values))


@dataclass
class _Connection:
    """A broker's side of a connection: requests are answered one after the other."""

    broker: Broker
    incoming: Incoming
    received: bytearray = field(default_factory=bytearray)
    waiting: list[bytes] = field(default_factory=list)
    busy: bool = False

    def take(self, data: bytes) -> None:
        self.received += data
        while len(self.received) >= 4:
            (size,) = struct.unpack_from(">i", self.received)
            if len(self.received) < 4 + size:
                break
            self.waiting.append(bytes(self.received[4 : 4 + size]))
            del self.received[: 4 + size]
        self.next()

    def next(self) -> None:
        if self.waiting and not self.busy and not self.broker.hanging:
            self.busy = True
            self.broker.handle(self, self.waiting.pop(0))

    def answer(self, request: _Request, body: bytes) -> None:
        if not self.incoming.open:
            return
        if self.broker.hanging:
            self.broker.held.append(lambda: self.answer(request, body))
            return
        head = struct.pack(">i", request.correlation) + (b"\0" if request.kind.FLEXIBLE_VERSION else b"")
        self.busy = False
        if not self.broker.cluster.loses_answer(self, request):
            self.incoming.send(struct.pack(">i", len(head) + len(body)) + head + body)
        self.next()


class Broker:
    """One broker."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster, self.number, self.host = cluster, number, f"broker-{number}"
        self.listening = True
        self.hanging = False
        self.fenced = False
        """Whether the controller counts it as gone."""
        self.clock_offset = 0.0
        """Seconds by which its clock is ahead."""
        self.held: list[Callable[[], None]] = []
        self._connections: dict[Incoming, _Connection] = {}
        self._away = 0

    @property
    def serves(self) -> bool:
        """Whether it answers."""
        return self.listening and not self.hanging

    # --- faults ---------------------------------------------------------------------------------------

    def kill(self) -> None:
        """End at once; what was written stays."""
        self.cluster.world.log(self.host, "killed")
        self.listening, self.hanging = False, False
        self.held.clear()
        for connection in self._connections:
            connection.reset()
        self._connections.clear()
        self._gone()

    def hang(self) -> None:
        """Answer nothing, with all connections open."""
        self.cluster.world.log(self.host, "hangs")
        self.hanging = True
        self._gone()

    def _gone(self) -> None:
        self._away += 1
        number = self._away

        def fence() -> None:
            if self._away == number and not self.serves:
                self.cluster.world.log(self.host, "is fenced")
                self.fenced = True
                self.cluster.elect()

        self.cluster.world.after(FENCED_AFTER if self.listening else 0.3, fence)

    def recover(self) -> None:
        """Serve again."""
        self.cluster.world.log(self.host, "serves")
        self._away += 1
        self.listening, self.hanging, self.fenced = True, False, False
        self.cluster.elect()
        held, self.held = self.held, []
        for each in held:
            each()
        for connection in list(self._connections.values()):
            connection.next()
        self.cluster.world.after(self.cluster.world.random.uniform(0.05, 1.0), self._catch_up)

    def _catch_up(self) -> None:
        if self.serves:
            for partition in self.cluster.partitions():
                if self.number in partition.replicas:
                    partition.follow(self.number)

    # --- as a server ----------------------------------------------------------------------------------

    def accepted(self, connection: Incoming) -> None:
        self._connections[connection] = _Connection(self, connection)

    def received(self, connection: Incoming, data: bytes) -> None:
        self._connections[connection].take(data)

    def closed(self, connection: Incoming) -> None:
        self._connections.pop(connection, None)

    def handle(self, connection: _Connection, frame: bytes) -> None:
        """Read a request, and answer it after a while."""
        kind, client, fields = _read(frame[:4], frame[8:])
        (correlation,) = struct.unpack_from(">i", frame, 4)
        self.cluster.answer(self, _Request(kind, fields, client, correlation, connection))


class Cluster:
    """The brokers of one cluster, its controller and its topics."""

    def __init__(self, world: World, network: Network, brokers: int = 3) -> None:
        self.world, self.network = world, network
        self.brokers = {number: Broker(self, number) for number in range(1, brokers + 1)}
        for broker in self.brokers.values():
            network.listeners[broker.host] = broker
        self.bootstrap = ",".join(f"{broker.host}:{PORT}" for broker in self.brokers.values())
        self.topics: dict[str, list[Partition]] = {}
        self.config: dict[str, dict[str, str]] = {}
        self.groups: dict[str, Group] = {}
        self.transactions = Transactions(world, self._write_marker, self._time_of_coordinator)
        self.service_time = 0.0003
        """Seconds that a request takes on average."""
        self.copy_time = 0.001
        """Seconds after which followers have copied, on average."""
        self.lost_answers = 0.0
        """Share of the answers that are lost, with their connection."""
        self.requests = 0
        self.aims: dict[tuple[str, str, str], Callable[[], bool]] = {}
        """By process, request and side of its handling, a fault for the next such request; it returns whether the
        request, or its answer, is lost with its connection.
        """
        self._marks: dict[tuple[str, int, int, int], tuple[Partition | None, int, int]] = {}
        """Marks that not every copy in sync has, by partition, producer and epoch: log, leader's epoch, offset."""
        self._coordinators: dict[str, int] = {}
        self._loaded_at: dict[str, float] = {}

    def named(self, host: str) -> Broker:
        """Return a broker."""
        return next(broker for broker in self.brokers.values() if broker.host == host)

    def partitions(self) -> list[Partition]:
        """Return every partition."""
        return [partition for partitions in self.topics.values() for partition in partitions]

    def now_ms(self) -> int:
        """Return the time in milliseconds, by no broker's clock."""
        return int(self.world.wall * 1000)

    def ahead_ms(self, broker: int | None) -> int:
        """Return the milliseconds by which a broker's clock is ahead."""
        return 0 if broker is None else int(self.brokers[broker].clock_offset * 1000)

    def _time_of_coordinator(self, name: str) -> float:
        """Return the time by the clock of the broker that coordinates a transactional id."""
        return self.world.now + self.ahead_ms(self._coordinators.get(f"1:{name}")) / 1000

    # --- faults ---------------------------------------------------------------------------------------

    def loses_answer(self, connection: _Connection, request: _Request) -> bool:
        """Decide whether an answer is lost; its connection breaks with it."""
        if self._strikes(request, "after"):
            return True
        if self.lost_answers and self.world.random.random() < self.lost_answers:
            self.world.log(connection.broker.host, f"loses its answer to {_name(request.kind)}")
            connection.incoming.reset()
            return True
        return False

    def _strikes(self, request: _Request, side: str) -> bool:
        """Let a fault happen that is aimed at a request; return whether the request, or its answer, is lost."""
        incoming = request.connection.incoming
        strike = self.aims.pop((incoming.link[0], _name(request.kind), side), None)
        lost = strike is not None and strike()
        if lost:
            incoming.reset()
        return lost

    def move_coordinators(self) -> None:
        """Let every coordinator move to the next broker, where it loads for a while."""
        self.world.log("cluster", "coordinators move")
        for key, number in list(self._coordinators.items()):
            self._place(key, after=number)

    def elect(self) -> None:
        """Choose leaders and coordinators among the brokers that serve."""
        for partition in self.partitions():
            if partition.elect(lambda number: not self.brokers[number].fenced and self.brokers[number].listening):
                self.world.log("cluster", f"acknowledged records of {partition.topic}-{partition.number} are lost")
        for key, number in list(self._coordinators.items()):
            if self.brokers[number].fenced:
                self._place(key, after=number)

    def _place(self, key: str, after: int | None = None) -> None:
        alive = [number for number, broker in self.brokers.items() if not broker.fenced and broker.listening]
        if not alive:
            return
        if after is not None:
            alive = [number for number in alive if number > after] + [number for number in alive if number <= after]
            self._loaded_at[key] = self.world.now + self.world.random.uniform(0.01, 1.0)
            self._coordinators[key] = alive[0]
        else:
            self._coordinators[key] = alive[crc32(key.encode()) % len(alive)]

    def _refusal(self, broker: Broker, key: str) -> int:
        """Return why a broker does not coordinate for a key; 0 if it does."""
        if self._coordinators.get(key) != broker.number:
            return NOT_COORDINATOR
        return COORDINATOR_LOADING if self._loaded_at.get(key, 0.0) > self.world.now else NONE

    # --- requests -------------------------------------------------------------------------------------

    def answer(self, broker: Broker, request: _Request) -> None:
        """Answer a request after the time that it takes."""
        self.requests += 1
        name = _name(request.kind)
        handler = HANDLERS[request.kind.API_KEY]
        self.world.trace.count(self.world.now, broker.number, request.connection.incoming.link[0], name)
        delay = self.service_time * (0.5 + self.world.random.random())

        def work() -> None:
            if broker.hanging:
                broker.held.append(work)
            elif broker.listening and not self._strikes(request, "before"):
                handler(broker, request)

        self.world.after(delay, work)

    def find(self, topic: str, number: int) -> Partition | None:
        """Return a partition if it exists."""
        partitions = self.topics.get(topic, [])
        return partitions[number] if 0 <= number < len(partitions) else None

    def create(self, name: str, partitions: int, copies: int, config: Mapping[str, str]) -> None:
        """Create a topic."""
        settings = {"min.insync.replicas": "1", "unclean.leader.election.enable": "false"} | dict(config)
        numbers = list(self.brokers)
        self.config[name] = settings
        self.topics[name] = [
            Partition(name, number, [numbers[(number + at) % len(numbers)] for at in range(copies)], settings)
            for number in range(partitions)
        ]
        self.elect()

    def hold_open(self, topic: str, number: int) -> Callable[[], None]:
        """Let a foreign producer repeat the last message of a partition in a transaction; return what aborts it."""
        partition = self.find(topic, number)
        last = next((batch for batch in reversed(partition.batches) if not batch.marker), None) if partition else None
        if partition is None or partition.leader is None or last is None:
            return lambda: None
        producer, data = self.transactions.new_producer(), last.data
        header = logs.header_of(data)
        header = header._replace(
            attributes=header.attributes | logs.TRANSACTIONAL, producer=producer, epoch=0, sequence=0
        )  # fmt: skip
        self.world.log("cluster", f"a foreign producer leaves a transaction open in {topic}-{number}")
        partition.append(logs.with_header(data, header), header, self.now_ms(), self.ahead_ms(partition.leader))
        self.replicate(partition)

        def abort() -> None:
            if not self._write_marker((topic, number), producer, 0, commit=False):
                self.world.after(0.5, abort)

        return abort

    def make_anew(self, name: str, *, refill: bool = False) -> None:
        """Delete a topic, and create it again with the same settings; ``refill`` it with what it held, reversed."""
        former = self.topics[name]
        self.world.log("cluster", f"{name} is made anew" + (", and holds in reverse what it held" if refill else ""))
        self.create(name, len(former), len(former[0].replicas), self.config[name])
        if refill:
            for made, before in zip(self.topics[name], former, strict=True):
                made.fill_reversed(before, self.now_ms())
        for partition in former:
            partition.notify()

    def grow(self, name: str) -> None:
        """Give a topic one partition more (``kafka-topics.sh --alter``); Kafka takes none away again."""
        there = self.topics[name]
        self.world.log("cluster", f"{name} grows to {len(there) + 1} partitions")
        there.append(Partition(name, len(there), there[0].replicas, self.config[name]))
        self.elect()

    def _write_marker(self, at: tuple[str, int], producer: int, epoch: int, commit: bool) -> bool:
        """Write the mark of a transaction's end; return whether every copy in sync has it.

        The coordinator sends it again until then (``TransactionMarkerRequestCompletionHandler``): a leader that ends
        before others have copied it takes it along.
        """
        partition = self.find(*at)
        if partition is None:
            return True  # the topic is gone
        if partition.leader is None or not self.brokers[partition.leader].serves:
            return False
        log, leader_epoch, offset = self._marks.pop((*at, producer, epoch), (None, -1, -1))
        if log is not partition or leader_epoch != partition.leader_epoch:
            offset = partition.end
            partition.mark(producer, epoch, self.now_ms(), self.ahead_ms(partition.leader), commit=commit)
            self.replicate(partition)
        if partition.high_watermark > offset:
            return True
        self._marks[*at, producer, epoch] = partition, partition.leader_epoch, offset
        return False

    def replicate(self, partition: Partition) -> None:
        """Let the followers copy what the leader has, each after a while."""
        partition.advance()
        upto, epoch = partition.end, partition.leader_epoch
        for number in partition.replicas:
            if number != partition.leader:
                delay = self.copy_time * (0.5 + self.world.random.random())
                self.world.after(delay, lambda number=number: self._copy(partition, number, upto, epoch))  # type: ignore[misc]

    def _copy(self, partition: Partition, number: int, upto: int, epoch: int) -> None:
        leader = partition.leader
        if partition.leader_epoch != epoch or leader is None:
            return
        if self.brokers[leader].hanging or not self.brokers[leader].listening:
            return
        if self.brokers[number].serves:
            partition.copied(number, upto)
        else:
            self.world.after(0.2, lambda: self._copy(partition, number, upto, epoch))

    def group(self, name: str) -> Group:
        """Return a group of consumers."""
        if name not in self.groups:
            self.groups[name] = Group(self.world, name)
        return self.groups[name]


def _name(kind: type[RequestStruct]) -> str:
    return kind.__name__.partition("Request")[0]


# --- handlers -----------------------------------------------------------------------------------------


@cache
def _versions(schema: Any) -> bytes:
    """Return the answer that says which requests a broker understands."""
    versions: dict[int, list[int]] = {}
    for number, version in CLASSES:
        if number in HANDLERS:
            versions.setdefault(number, []).append(version)
    return _encoded(schema, {
        "api_versions": [
            {"api_key": number, "min_version": min(each), "max_version": max(each)}
            for number, each in sorted(versions.items())
        ]
    })  # fmt: skip


def _api_versions(broker: Broker, request: _Request) -> None:
    request.connection.answer(request, _versions(request.kind.RESPONSE_TYPE.SCHEMA))


def _metadata(broker: Broker, request: _Request) -> None:
    cluster = broker.cluster
    wanted = request.fields["topics"]
    alive = [each for each in cluster.brokers.values() if not each.fenced and (each.listening or each is broker)]
    topics = []
    for name in sorted(cluster.topics) if wanted is None else wanted:
        partitions = cluster.topics.get(name)
        topics.append({
            "error_code": NONE if partitions else logs.UNKNOWN_TOPIC_OR_PARTITION, "topic": name, "is_internal": False,
            "partitions": [
                {"error_code": NONE if each.leader is not None else LEADER_NOT_AVAILABLE, "partition": each.number,
                 "leader": -1 if each.leader is None else each.leader, "replicas": each.replicas,
                 "isr": each.in_sync, "offline_replicas": []}
                for each in partitions or []
            ],
        })  # fmt: skip
    request.reply({
        "brokers": [{"node_id": each.number, "host": each.host, "port": PORT} for each in alive],
        "cluster_id": "simulated", "controller_id": alive[0].number if alive else -1, "topics": topics,
    })  # fmt: skip


def _produce(broker: Broker, request: _Request) -> None:
    """Append, and answer when every replica in sync has it (``ReplicaManager.appendRecords``)."""
    cluster, acks = broker.cluster, request.fields["required_acks"]
    transactional_id = request.fields.get("transactional_id")
    answers: list[dict[str, Any]] = []
    waiting: list[tuple[Partition, int, int, dict[str, Any]]] = []
    for topic in request.fields["topics"]:
        parts = []
        for part in topic["partitions"]:
            answer = {"partition": part["partition"], "error_code": NONE, "offset": -1, "timestamp": -1}
            parts.append(answer)
            partition = cluster.find(topic["topic"], part["partition"])
            answer["error_code"] = fault = _append(broker, partition, part["messages"], transactional_id, acks, answer)
            if fault == NONE and partition is not None:
                waiting.append((partition, partition.end, partition.leader_epoch, answer))
                cluster.replicate(partition)
        answers.append({"topic": topic["topic"], "partitions": parts})
    limit = cluster.world.now + request.fields["timeout"] / 1000
    done = False

    def look() -> None:
        nonlocal done
        if done:
            return
        open_ = []
        for partition, end, epoch, answer in waiting:
            if partition.leader_epoch != epoch:
                answer["error_code"] = logs.NOT_LEADER
            elif partition.high_watermark < end:
                open_.append(partition)
        if open_ and cluster.world.now < limit:
            open_[0].moved.append(look)
            return
        for partition, end, epoch, answer in waiting:
            if partition.leader_epoch == epoch and partition.high_watermark < end:
                answer["error_code"] = logs.REQUEST_TIMED_OUT
        done = True
        request.reply({"topics": answers})

    if acks != -1:
        request.reply({"topics": answers})
        return
    if waiting:
        cluster.world.at(limit, look)
    look()


def _append(
    broker: Broker, partition: Partition | None, data: bytes, transactional_id: str | None, acks: int,
    answer: dict[str, Any],
) -> int:  # fmt: skip
    if partition is None:
        return logs.UNKNOWN_TOPIC_OR_PARTITION
    if partition.leader != broker.number:
        return logs.NOT_LEADER
    if acks == -1 and len(partition.in_sync) < partition.min_in_sync:
        return logs.NOT_ENOUGH_REPLICAS
    cluster = broker.cluster
    for batch in logs.batches_of(data):
        header = logs.header_of(batch)
        fault, copy = partition.check(header)
        if fault:
            return fault
        if header.attributes & logs.TRANSACTIONAL and copy is None and header.producer not in partition.open:
            where = (partition.topic, partition.number)
            if not cluster.transactions.holds(header.producer, header.epoch, where):
                return logs.INVALID_TXN_STATE
        ahead_ms = cluster.ahead_ms(broker.number)
        offset = partition.append(batch, header, cluster.now_ms(), ahead_ms) if copy is None else copy
        if answer["offset"] < 0:
            answer["offset"] = offset
        if partition.config.get("message.timestamp.type") == "LogAppendTime":
            answer["timestamp"] = cluster.now_ms() + ahead_ms
    return NONE


def _fetch(broker: Broker, request: _Request) -> None:
    """Answer when there is something to read, or after the time that the client waits (``DelayedFetch``)."""
    cluster = broker.cluster
    committed = bool(request.fields["isolation_level"])
    limit = cluster.world.now + request.fields["max_wait_time"] / 1000
    wanted = [(topic["topic"], part) for topic in request.fields["topics"] for part in topic["partitions"]]
    done = False

    def look() -> None:
        nonlocal done
        if done:
            return
        answers: dict[str, list[dict[str, Any]]] = {}
        found, seen = False, []
        for name, part in wanted:
            partition = cluster.find(name, part["partition"])
            answer = _fetched(broker, partition, part, committed=committed)
            found = found or bool(answer["error_code"]) or bool(answer["message_set"])
            answers.setdefault(name, []).append(answer)
            if partition is not None:
                seen.append(partition)
        if found or cluster.world.now >= limit or not seen:
            done = True
            request.reply({"topics": [{"topics": name, "partitions": each} for name, each in answers.items()]})
            return
        for partition in seen:
            partition.moved.append(look)

    cluster.world.at(limit, look)
    look()


def _fetched(broker: Broker, partition: Partition | None, part: dict[str, Any], *, committed: bool) -> dict[str, Any]:
    number, offset = part["partition"], part["fetch_offset"]
    answer = {"partition": number, "error_code": NONE, "highwater_offset": -1, "last_stable_offset": -1,
              "log_start_offset": -1, "aborted_transactions": None, "preferred_read_replica": -1,
              "message_set": b""}  # fmt: skip
    if partition is None:
        return answer | {"error_code": logs.UNKNOWN_TOPIC_OR_PARTITION}
    if partition.leader != broker.number:
        return answer | {"error_code": logs.NOT_LEADER}
    if not partition.start <= offset <= partition.end:
        return answer | {"error_code": logs.OFFSET_OUT_OF_RANGE}
    end = partition.last_stable if committed else partition.high_watermark
    batches = partition.read(offset, end, part["max_bytes"])
    aborted: list[dict[str, int]] = []
    if committed and batches:
        spans = partition.aborted(offset, batches[-1].last + 1)
        aborted = [{"producer_id": producer, "first_offset": first} for first, producer in spans]
    return answer | {
        "highwater_offset": partition.high_watermark, "last_stable_offset": partition.last_stable,
        "log_start_offset": partition.start, "aborted_transactions": aborted,
        "message_set": b"".join(batch.data for batch in batches),
    }  # fmt: skip


def _offsets(broker: Broker, request: _Request) -> None:
    committed = bool(request.fields.get("isolation_level"))

    def one(name: str, part: dict[str, Any]) -> dict[str, Any]:
        partition = broker.cluster.find(name, part["partition"])
        answer = {"partition": part["partition"], "error_code": NONE, "timestamp": -1, "offset": -1}
        if partition is None:
            return answer | {"error_code": logs.UNKNOWN_TOPIC_OR_PARTITION}
        if partition.leader != broker.number:
            return answer | {"error_code": logs.NOT_LEADER}
        match part["timestamp"]:
            case -1:
                return answer | {"offset": partition.last_stable if committed else partition.high_watermark}
            case -2:
                return answer | {"offset": partition.start}
        later = (record for record in partition.records() if record.timestamp >= part["timestamp"])
        found = next(later, None)
        return answer if found is None else answer | {"timestamp": found.timestamp, "offset": found.offset}

    request.reply({
        "topics": [
            {"topic": topic["topic"], "partitions": [one(topic["topic"], part) for part in topic["partitions"]]}
            for topic in request.fields["topics"]
        ]
    })  # fmt: skip


def _find_coordinator(broker: Broker, request: _Request) -> None:
    cluster = broker.cluster
    key = f"{request.fields.get('coordinator_type', 0)}:{request.fields['coordinator_key']}"
    if key not in cluster._coordinators:
        cluster._place(key)
    number = cluster._coordinators.get(key)
    if number is None or cluster.brokers[number].fenced:
        request.reply({"error_code": COORDINATOR_NOT_AVAILABLE, "coordinator_id": -1, "host": "", "port": -1})
        return
    request.reply({"coordinator_id": number, "host": cluster.brokers[number].host, "port": PORT})


def _group(broker: Broker, request: _Request, name: str) -> Group | int:
    """Return the group that a broker coordinates, or why it does not."""
    return broker.cluster._refusal(broker, f"0:{name}") or broker.cluster.group(name)


def _join_group(broker: Broker, request: _Request) -> None:
    fields = request.fields
    group = _group(broker, request, fields["group"])
    if isinstance(group, int):
        request.reply({"error_code": group, "member_id": fields["member_id"], "generation_id": -1})
        return
    protocols = [(each["protocol_name"], each["protocol_metadata"]) for each in fields["group_protocols"]]
    group.join(
        fields["member_id"], request.client, fields["session_timeout"] / 1000, fields["rebalance_timeout"] / 1000,
        protocols, lambda values: request.reply({"generation_id": -1, "leader_id": "", "group_protocol": ""} | values),
    )  # fmt: skip


def _sync_group(broker: Broker, request: _Request) -> None:
    fields = request.fields
    group = _group(broker, request, fields["group"])
    if isinstance(group, int):
        # While a coordinator loads, a rebalance must begin again (``GroupCoordinatorService.syncGroup``).
        request.reply({"error_code": REBALANCING if group == COORDINATOR_LOADING else group})
        return
    assignments = {each["member_id"]: each["member_metadata"] for each in fields["group_assignment"]}
    group.sync(fields["member_id"], fields["generation_id"], assignments, request.reply)


def _heartbeat(broker: Broker, request: _Request) -> None:
    group = _group(broker, request, request.fields["group"])
    if group == COORDINATOR_LOADING:
        request.reply({"error_code": NONE})  # a coordinator that loads answers blindly
    elif isinstance(group, int):
        request.reply({"error_code": group})
    else:
        code = group.heartbeat(request.fields["member_id"], request.fields["generation_id"])
        request.reply({"error_code": code})


def _leave_group(broker: Broker, request: _Request) -> None:
    group = _group(broker, request, request.fields["group"])
    request.reply({"error_code": group if isinstance(group, int) else group.leave(request.fields["member_id"])})


def _offset_commit(broker: Broker, request: _Request) -> None:
    fields = request.fields
    group = _group(broker, request, fields["consumer_group"])
    if isinstance(group, int):
        code = group
    else:
        code = group.commit(fields["consumer_id"], fields["consumer_group_generation_id"])
    answers = []
    for topic in fields["topics"]:
        parts = []
        for part in topic["partitions"]:
            if not code and not isinstance(group, int):
                group.offsets[topic["topic"], part["partition"]] = part["offset"], part["metadata"]
            parts.append({"partition": part["partition"], "error_code": code})
        answers.append({"topic": topic["topic"], "partitions": parts})
    request.reply({"topics": answers})


def _offset_fetch(broker: Broker, request: _Request) -> None:
    fields = request.fields
    group = _group(broker, request, fields["consumer_group"])
    if isinstance(group, int):
        request.reply({"error_code": group})
        return
    answers = []
    for topic in fields["topics"] or []:
        parts = []
        for number in topic["partitions"]:
            offset, metadata = group.offsets.get((topic["topic"], number), (-1, ""))
            parts.append({"partition": number, "offset": offset, "metadata": metadata, "error_code": NONE})
        answers.append({"topic": topic["topic"], "partitions": parts})
    request.reply({"topics": answers, "error_code": NONE})


def _init_producer(broker: Broker, request: _Request) -> None:
    cluster, name = broker.cluster, request.fields["transactional_id"]
    if name is None:
        request.reply({"error_code": NONE, "producer_id": cluster.transactions.new_producer(), "producer_epoch": 0})
        return
    refusal = cluster._refusal(broker, f"1:{name}")
    if refusal:
        request.reply({"error_code": refusal, "producer_id": -1, "producer_epoch": -1})
        return
    code, producer, epoch = cluster.transactions.init(name, request.fields["transaction_timeout_ms"] / 1000)
    if not code:
        cluster.world.log("txn", f"{name} has epoch {epoch}, for {request.connection.incoming.link[0]}")
    request.reply({"error_code": code, "producer_id": producer, "producer_epoch": epoch})


def _add_partitions(broker: Broker, request: _Request) -> None:
    cluster, fields = broker.cluster, request.fields
    wanted = [(topic["topic"], number) for topic in fields["topics"] for number in topic["partitions"]]
    code = cluster._refusal(broker, f"1:{fields['transactional_id']}")
    if not code and any(cluster.find(*each) is None for each in wanted):
        code = logs.UNKNOWN_TOPIC_OR_PARTITION
    if not code:
        code = cluster.transactions.add(
            fields["transactional_id"], fields["producer_id"], fields["producer_epoch"], wanted
        )
    request.reply({
        "errors": [
            {"topic": topic["topic"],
             "partition_errors": [{"partition": number, "error_code": code} for number in topic["partitions"]]}
            for topic in fields["topics"]
        ]
    })  # fmt: skip


def _end_txn(broker: Broker, request: _Request) -> None:
    cluster, fields = broker.cluster, request.fields
    code = cluster._refusal(broker, f"1:{fields['transactional_id']}")
    if not code:
        code = cluster.transactions.end(
            fields["transactional_id"], fields["producer_id"], fields["producer_epoch"],
            commit=fields["transaction_result"],
        )  # fmt: skip
    request.reply({"error_code": code})


def _create_topics(broker: Broker, request: _Request) -> None:
    answers = []
    for wanted in request.fields["create_topic_requests"]:
        name = wanted["topic"]
        code = TOPIC_EXISTS if name in broker.cluster.topics else NONE
        if not code:
            config = {each["config_key"]: each["config_value"] for each in wanted["configs"]}
            broker.cluster.create(name, wanted["num_partitions"], wanted["replication_factor"], config)
        answers.append({"topic": name, "error_code": code})
    request.reply({"topic_errors": answers})


def _delete_topics(broker: Broker, request: _Request) -> None:
    answers = []
    for name in request.fields["topics"]:
        there = broker.cluster.topics.pop(name, None)
        for partition in there or []:
            partition.notify()
        answers.append({"topic": name, "error_code": NONE if there else logs.UNKNOWN_TOPIC_OR_PARTITION})
    request.reply({"topic_error_codes": answers})


def _delete_records(broker: Broker, request: _Request) -> None:
    answers = []
    for topic in request.fields["topics"]:
        parts = []
        for part in topic["partitions"]:
            partition = broker.cluster.find(topic["name"], part["partition_index"])
            if partition is None or partition.leader != broker.number:
                code = logs.UNKNOWN_TOPIC_OR_PARTITION if partition is None else logs.NOT_LEADER
                parts.append({"partition_index": part["partition_index"], "low_watermark": -1, "error_code": code})
                continue
            partition.delete_before(part["offset"] if part["offset"] >= 0 else partition.high_watermark)
            parts.append({"partition_index": partition.number, "low_watermark": partition.start, "error_code": NONE})
        answers.append({"name": topic["name"], "partitions": parts})
    request.reply({"topics": answers})


def _describe_configs(broker: Broker, request: _Request) -> None:
    answers = []
    for resource in request.fields["resources"]:
        config = broker.cluster.config.get(resource["resource_name"], {})
        answers.append({
            "error_code": NONE, "resource_type": resource["resource_type"], "resource_name": resource["resource_name"],
            "config_entries": [
                {"config_names": key, "config_value": value, "read_only": False, "config_source": 1,
                 "is_sensitive": False}
                for key, value in sorted(config.items())
            ],
        })  # fmt: skip
    request.reply({"resources": answers})


HANDLERS: dict[int, Handler] = {
    0: _produce, 1: _fetch, 2: _offsets, 3: _metadata, 8: _offset_commit, 9: _offset_fetch, 10: _find_coordinator,
    11: _join_group, 12: _heartbeat, 13: _leave_group, 14: _sync_group, 18: _api_versions, 19: _create_topics,
    20: _delete_topics, 21: _delete_records, 22: _init_producer, 24: _add_partitions, 26: _end_txn,
    32: _describe_configs,
}  # fmt: skip
"""By number of a request (``ApiKeys``)."""
