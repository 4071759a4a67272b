"""The coordinators of a cluster: groups of consumers, and transactions.

Groups follow the classic protocol of Kafka 4.1 (``ClassicGroup``, ``GroupMetadataManager``), transactions
``TransactionCoordinator`` and ``TransactionMetadata`` with version 1 of transactions, which aiokafka 0.14 speaks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.simulation.kafka_logs import NONE
from tests.simulation.processes import World

COORDINATOR_LOADING = 14
ILLEGAL_GENERATION = 22
UNKNOWN_MEMBER = 25
REBALANCING = 27
INVALID_TXN_STATE = 48
INVALID_PRODUCER_EPOCH = 47
INVALID_PRODUCER_ID_MAPPING = 49
CONCURRENT_TRANSACTIONS = 51
MEMBER_ID_REQUIRED = 79

TIMED_OUT_EVERY = 10.0
"""Seconds between two looks for transactions that took too long
(``transaction.abort.timed.out.transaction.cleanup.interval.ms``).
"""

Reply = Callable[[dict[str, object]], None]


@dataclass
class Member:
    """A member of a group."""

    name: str
    session: float
    rebalance: float
    protocols: list[tuple[str, bytes]]
    join: Reply | None = None
    sync: Reply | None = None
    assignment: bytes = b""
    heard: float = 0.0


class Group:
    """A group of consumers."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self.name = world, name
        self.state = "Empty"
        self.generation = 0
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.pending: dict[str, None] = {}
        """Names that were given to members that have not joined yet (KIP-394)."""
        self.offsets: dict[tuple[str, int], tuple[int, str]] = {}
        self._round = 0
        self._names = 0

    def join(
        self, name: str, client: str, session: float, rebalance: float, protocols: list[tuple[str, bytes]],
        reply: Reply,
    ) -> None:  # fmt: skip
        """Join, or join again; the answer comes when all members have."""
        if not name:
            self._names += 1
            name = f"{client}-{self._names}"
            self.pending[name] = None
            self._world.after(session, lambda: self._expire_pending(name))
            reply({"error_code": MEMBER_ID_REQUIRED, "member_id": name})
            return
        member = self.members.get(name)
        if member is None and name not in self.pending:
            reply({"error_code": UNKNOWN_MEMBER, "member_id": name})
            return
        self.pending.pop(name, None)
        changed = member is None or member.protocols != protocols
        if member is None:
            member = self.members[name] = Member(name, session, rebalance, protocols)
            self._watch(member)
        member.protocols, member.session, member.rebalance = protocols, session, rebalance
        if self.state == "Stable" and not changed and name != self.leader:
            reply(self._answer(member))
            return
        if self.state == "Completing" and not changed:
            reply(self._answer(member))
            return
        member.join = reply
        if self.state != "Preparing":
            self._prepare()
        self._complete_join()

    def _prepare(self) -> None:
        """Begin a rebalance: whoever waits for an assignment is told, and all must join again."""
        for member in self.members.values():
            if member.sync is not None:
                member.sync({"error_code": REBALANCING, "member_assignment": b""})
                member.sync = None
        self.state = "Preparing"
        self._round += 1
        number = self._round
        longest = max((member.rebalance for member in self.members.values()), default=0.0)
        self._world.log("group", f"{self.name} rebalances")
        self._world.after(longest, lambda: self._joined_too_late(number))

    def _joined_too_late(self, number: int) -> None:
        if self.state == "Preparing" and number == self._round:
            for name in [name for name, member in self.members.items() if member.join is None]:
                self._world.log("group", f"{name} has not joined again in time")
                del self.members[name]
            self._complete_join(late=True)

    def _complete_join(self, *, late: bool = False) -> None:
        if self.state != "Preparing" or (self.pending and not late):
            return
        if not self.members:
            self.state, self.generation, self.leader = "Empty", self.generation + 1, None
            return
        if any(member.join is None for member in self.members.values()):
            return
        self.generation += 1
        self.state = "Completing"
        if self.leader not in self.members:
            self.leader = next(iter(self.members))
        for member in self.members.values():
            reply, member.join = member.join, None
            member.heard, member.assignment = self._world.now, b""
            assert reply is not None
            reply(self._answer(member))

    def _answer(self, member: Member) -> dict[str, object]:
        protocol = member.protocols[0][0]
        everybody = [
            {"member_id": each.name, "group_instance_id": None, "member_metadata": dict(each.protocols)[protocol]}
            for each in self.members.values()
        ]
        return {
            "error_code": NONE, "generation_id": self.generation, "group_protocol": protocol,
            "leader_id": self.leader, "member_id": member.name,
            "members": everybody if member.name == self.leader else [],
        }  # fmt: skip

    def _fault(self, name: str, generation: int) -> int:
        if name not in self.members:
            return UNKNOWN_MEMBER
        return ILLEGAL_GENERATION if generation != self.generation else NONE

    def sync(self, name: str, generation: int, assignments: dict[str, bytes], reply: Reply) -> None:
        """Fetch the assignment, which the leader brings."""
        fault = self._fault(name, generation)
        if fault or self.state == "Preparing":
            reply({"error_code": fault or REBALANCING, "member_assignment": b""})
            return
        member = self.members[name]
        member.heard = self._world.now
        if self.state == "Stable":
            reply({"error_code": NONE, "member_assignment": member.assignment})
            return
        member.sync = reply
        if name == self.leader:
            self.state = "Stable"
            self._world.log("group", f"{self.name} has generation {self.generation}, {len(self.members)} members")
            for each in self.members.values():
                each.assignment = assignments.get(each.name, b"")
                waiting, each.sync = each.sync, None
                each.heard = self._world.now
                if waiting is not None:
                    waiting({"error_code": NONE, "member_assignment": each.assignment})

    def heartbeat(self, name: str, generation: int) -> int:
        """Return an error code; 27 says that a rebalance is under way."""
        fault = self._fault(name, generation)
        if fault:
            return fault
        self.members[name].heard = self._world.now
        return REBALANCING if self.state == "Preparing" else NONE

    def leave(self, name: str) -> int:
        """Leave the group."""
        self.pending.pop(name, None)
        if name not in self.members:
            return UNKNOWN_MEMBER
        self._remove(name, "leaves")
        return NONE

    def commit(self, name: str, generation: int) -> int:
        """Return an error code for a commit of offsets."""
        if generation < 0 and self.state == "Empty":
            return NONE
        fault = self._fault(name, generation)
        if fault:
            return fault
        self.members[name].heard = self._world.now
        return REBALANCING if self.state == "Completing" else NONE

    def _remove(self, name: str, why: str) -> None:
        self._world.log("group", f"{name} {why}")
        del self.members[name]
        if self.state in ("Stable", "Completing"):
            self._prepare()
        self._complete_join()

    def _expire_pending(self, name: str) -> None:
        if name in self.pending:
            del self.pending[name]
            self._complete_join()

    def _watch(self, member: Member) -> None:
        """Remove a member that is silent for longer than its session; one that waits for an answer is not silent."""
        member.heard = self._world.now

        def look() -> None:
            if self.members.get(member.name) is not member:
                return
            if member.join is not None or member.sync is not None:
                member.heard = self._world.now
            left = member.heard + member.session - self._world.now
            if left <= 0:
                self._remove(member.name, "is silent")
            else:
                self._world.after(left, look)

        self._world.after(member.session, look)

    def disconnected(self, name: str) -> None:
        """Take note that a member's connection is gone: a join of it that waits is void for this connection."""


@dataclass
class Transaction:
    """What the coordinator knows of a transactional id."""

    name: str
    producer: int
    epoch: int
    timeout: float
    state: str = "Empty"
    partitions: dict[tuple[str, int], None] = field(default_factory=dict)
    began: float = 0.0


class Transactions:
    """The coordinator of transactions; ``write_marker`` appends a mark, and says whether it could.

    How long a transaction has been open is measured by the coordinator's clock, ``time_of``, which may be set
    (``TransactionStateManager.timedOutTransactions``). Sessions of groups are measured by one that cannot be set
    (``SystemTimer``).
    """

    def __init__(
        self, world: World, write_marker: Callable[[tuple[str, int], int, int, bool], bool],
        time_of: Callable[[str], float],
    ) -> None:  # fmt: skip
        self._world, self._write_marker, self._time_of = world, write_marker, time_of
        self.known: dict[str, Transaction] = {}
        self._producers = 1000
        world.after(TIMED_OUT_EVERY, self._abort_late)

    def new_producer(self) -> int:
        """Return an id that no producer has."""
        self._producers += 1
        return self._producers

    def init(self, name: str, timeout: float) -> tuple[int, int, int]:
        """Return error code, producer's id and epoch; every earlier producer of this name is fenced.

        ``TransactionCoordinator.handleInitProducerId``: an open transaction is first aborted with the next epoch, and
        the client asks again until the marks are written.
        """
        known = self.known.get(name)
        if known is None:
            known = self.known[name] = Transaction(name, self.new_producer(), 0, timeout)
            return NONE, known.producer, 0
        if known.state == "Ongoing":
            known.epoch += 1
            self._prepare(known, commit=False)
            return CONCURRENT_TRANSACTIONS, -1, -1
        if known.state.startswith("Prepare"):
            return CONCURRENT_TRANSACTIONS, -1, -1
        known.epoch, known.timeout, known.state = known.epoch + 1, timeout, "Empty"
        known.partitions = {}
        return NONE, known.producer, known.epoch

    def _of(self, name: str, producer: int, epoch: int) -> tuple[int, Transaction | None]:
        known = self.known.get(name)
        if known is None or known.producer != producer:
            return INVALID_PRODUCER_ID_MAPPING, None
        return (NONE, known) if known.epoch == epoch else (INVALID_PRODUCER_EPOCH, None)

    def add(self, name: str, producer: int, epoch: int, partitions: list[tuple[str, int]]) -> int:
        """Add partitions to a transaction, which begins with the first ones."""
        fault, known = self._of(name, producer, epoch)
        if known is None:
            return fault
        if known.state.startswith("Prepare"):
            return CONCURRENT_TRANSACTIONS
        if known.state != "Ongoing":
            known.state, known.partitions, known.began = "Ongoing", {}, self._time_of(name)
        known.partitions |= dict.fromkeys(partitions)
        return NONE

    def holds(self, producer: int, epoch: int, partition: tuple[str, int]) -> bool:
        """Return whether a partition belongs to the producer's open transaction (KIP-890, part 1)."""
        return any(
            known.producer == producer and known.epoch == epoch and known.state == "Ongoing"
            and partition in known.partitions
            for known in self.known.values()
        )  # fmt: skip

    def end(self, name: str, producer: int, epoch: int, *, commit: bool) -> int:
        """End a transaction; it is decided when this returns, and visible when the marks are written.

        ``TransactionCoordinator.endTransaction``.
        """
        fault, known = self._of(name, producer, epoch)
        if known is None:
            return fault
        same = "Commit" if commit else "Abort"
        match known.state:
            case "Ongoing":
                self._prepare(known, commit=commit)
                return NONE
            case "CompleteCommit" | "CompleteAbort":
                return NONE if known.state == f"Complete{same}" else INVALID_TXN_STATE
            case "PrepareCommit" | "PrepareAbort":
                return CONCURRENT_TRANSACTIONS if known.state == f"Prepare{same}" else INVALID_TXN_STATE
        return INVALID_TXN_STATE

    def _prepare(self, known: Transaction, *, commit: bool) -> None:
        known.state = "PrepareCommit" if commit else "PrepareAbort"
        self._world.after(self._world.random.uniform(0.0005, 0.004), lambda: self._write(known, commit, known.epoch))

    def _write(self, known: Transaction, commit: bool, epoch: int, wait: float = 0.002) -> None:
        """Write the marks, as far as leaders can be reached and copies are made; the rest later."""
        left = {
            partition: None
            for partition in known.partitions
            if not self._write_marker(partition, known.producer, epoch, commit)
        }
        known.partitions = left
        if left:
            self._world.after(wait, lambda: self._write(known, commit, epoch, min(2 * wait, 0.1)))
        else:
            known.state = "CompleteCommit" if commit else "CompleteAbort"

    def _abort_late(self) -> None:
        for known in self.known.values():
            if known.state == "Ongoing" and self._time_of(known.name) - known.began > known.timeout:
                self._world.log("txn", f"{known.name} took too long")
                known.epoch += 1
                self._prepare(known, commit=False)
        self._world.after(TIMED_OUT_EVERY, self._abort_late)
