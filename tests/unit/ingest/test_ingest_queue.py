"""The queue between listeners and the receiver: what it drops, and when it calls the worker."""

from __future__ import annotations

from connectors.sources.ingest import queue as module
from connectors.sources.ingest.queue import (
    CHUNK,
    QUEUE_FULL,
    IngestQueue,
    PendingAcknowledgements,
    QueuedSighting,
    Reply,
    Requests,
)
from connectors.sources.ingest.sighting import Kind, Sighting
from tests.support.patience import within_patience
from tests.support.receivers import Hands

SEEN = QueuedSighting(1, "10.2.0.5", "10.2.0.5", Sighting(Kind.ASSOCIATE, bytes(6), bytes(6)))


def queue(size: int = 3) -> IngestQueue:
    return IngestQueue(Hands(), ("bad", QUEUE_FULL), size)


def test_a_full_queue_drops_the_newest_sighting_and_counts_it() -> None:
    made = queue(2)
    assert [made.put(SEEN._replace(time=time)) for time in range(3)] == [True, True, False]
    assert [each.time for each in made.sightings] == [0, 1]
    assert (made.free, made.counters.dropped) == (0, {"bad": 0, QUEUE_FULL: 1})


def test_sightings_after_a_failed_step_are_dropped_and_earlier_ones_stay() -> None:
    made = queue()
    for time in range(3):
        made.put(SEEN._replace(time=time))
    made.drop_after(1)
    assert [each.time for each in made.sightings] == [0]
    assert made.counters.dropped[QUEUE_FULL] == 2


async def test_a_failure_and_a_full_chunk_call_the_worker_at_once() -> None:
    failed, full = queue(), queue(CHUNK)
    failed.fail(ValueError())
    for _ in range(CHUNK):
        full.put(SEEN)
    for made in (failed, full):
        made.call_worker()
        assert made._wake.is_set()
        await within_patience(made.called(None), "the worker's call")
        assert not made._wake.is_set()


async def test_one_sighting_calls_the_worker_after_the_batching_delay() -> None:
    made = queue()
    made.call_worker()
    assert made._nudge is None, "nothing is queued"
    made.put(SEEN)
    made.call_worker()
    assert not made._wake.is_set()
    await within_patience(made.called(None), "the worker's call")
    assert made._nudge is None


async def test_the_worker_is_called_when_its_next_message_is_due() -> None:
    await within_patience(queue().called(0.0), "the worker's call")


def test_acknowledgements_wait_for_their_batch() -> None:
    pending = PendingAcknowledgements()
    requests = Requests(lambda *_: None)
    replies = [Reply(requests, (number,), None, b"") for number in range(3)]
    for reply, batch in zip(replies, ("a", "b", "a"), strict=True):
        pending.add(reply, ("dbh", batch))
    assert list(pending.due({("dbh", "a")})) == [replies[1]]
    assert list(pending.due({("dbh", "a")})) == []
    assert list(pending.due(())) == [replies[0], replies[2]]


def test_a_request_is_known_until_its_memory_or_their_number_ends() -> None:
    sent: list[bytes] = []
    requests = Requests(lambda datagram, _: sent.append(datagram), memory=10, limit=2)
    first = Reply(requests, ("first",), None, b"1")
    requests.remember(first, 0)
    assert requests.earlier_is_durable(("first",), 10) is False
    first.acknowledge()
    assert (requests.earlier_is_durable(("first",), 10), sent) == (True, [b"1"])
    assert requests.earlier_is_durable(("first",), 11) is None
    for number in range(3):
        requests.remember(Reply(requests, (number,), None, b""), 11)
    assert [requests.earlier_is_durable((number,), 11) for number in range(3)] == [None, False, False]


def test_buffered_replies_have_a_limit() -> None:
    requests = Requests(lambda *_: None)
    large = Reply(requests, ("large",), None, bytes(module.ANSWER_OCTETS + 1))
    requests.remember(large, 0)
    assert requests.full
    large.withhold()
    assert not requests.full
    assert repr(large) == "Reply()"
