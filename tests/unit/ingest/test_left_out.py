"""Devices that opted out, and randomised addresses: an ingest leaves them out before anything can depend on them."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from typing import Any

import pytest

from connectors.sources.ingest.ingest import OPTED_OUT, RANDOMISED, Ingest, SiteLimits
from connectors.sources.ingest.queue import QueuedSighting
from connectors.sources.ingest.receiver import Receiver
from connectors.sources.ingest.sighting import Kind, Sighting
from stream.errors import UsageError
from stream.policy.privacy_days import privacy_days
from stream.pseudonyms.derivation import Pseudonyms
from stream.records import DAY, HOUR, MINUTE, SECOND, Micros
from tests.support.patience import within_patience
from tests.support.receivers import Hands

AP, ELSEWHERE, UNKNOWN = (bytes.fromhex(f"5c521e00000{n}") for n in range(3))
PLACES = {AP.hex(":"): ("dbh", "lobby"), ELSEWHERE.hex(":"): ("ics", "hall")}
SOURCE = "10.2.0.5"
ANNE, BERT = bytes.fromhex("3c0000000001"), bytes.fromhex("3c0000000002")
RANDOM = bytes.fromhex("3e0000000003")
MIDNIGHT = 20_000 * DAY
LIMITS = SiteLimits((SOURCE,), 10 * MINUTE, 100, Pseudonyms.daily(bytes(32)), 30 * SECOND)


class Listed:
    """Anne opted out at an instant."""

    def __init__(self, added: Micros = 0) -> None:
        self.added = added

    def leaves_out(self, address: bytes, start: Micros) -> bool:
        return address == ANNE and self.added <= start

    def leaves_out_login(self, login: bytes, start: Micros) -> bool:
        return login == b"anne" and self.added <= start


def ingest(opt_outs: Listed | None = None, **changed: Any) -> Ingest:
    """An ingest of two sites; the limits of the first one are changed."""
    listed = opt_outs or Listed()
    return Ingest(
        access_points=PLACES,
        sites={"dbh": replace(LIMITS, **({"opt_outs": True} | changed)), "ics": LIMITS},
        opt_outs=listed,
    )


def screened(made: Ingest, at: Micros, address: str, sighting: Sighting) -> str | None:
    """What a connector that has just begun makes of a sighting."""
    return made.screen(made.initial(at), at, address, sighting)


def seen(client: bytes = ANNE, access_point: bytes = AP, kind: Kind = Kind.ASSOCIATE, age: Micros = 0) -> Sighting:
    return Sighting(kind, client, access_point, age=age, session=b"1")


# --- what is left out -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Kind.ASSOCIATE, Kind.ROAM, Kind.RUN, Kind.LEAVE])
def test_every_message_about_a_device_that_opted_out_is_left_out(kind: Kind) -> None:
    assert screened(ingest(), MIDNIGHT, SOURCE, seen(kind=kind)) == OPTED_OUT
    assert screened(ingest(), MIDNIGHT, SOURCE, seen(BERT, kind=kind)) is None


def test_a_site_without_a_list_counts_the_device_and_an_unknown_access_point_hides_nobody() -> None:
    assert screened(ingest(), MIDNIGHT, SOURCE, seen(access_point=ELSEWHERE)) is None
    assert screened(ingest(), MIDNIGHT, SOURCE, seen(access_point=UNKNOWN)) == OPTED_OUT


def test_a_site_with_a_list_needs_one() -> None:
    with pytest.raises(UsageError, match="must have a file of opt-outs"):
        Ingest(access_points=PLACES, sites={"dbh": replace(LIMITS, opt_outs=True), "ics": LIMITS})


def test_without_privacy_days_an_opt_out_begins_with_the_utc_day() -> None:
    made = ingest(Listed(MIDNIGHT - HOUR))
    assert screened(made, MIDNIGHT - 1, SOURCE, seen()) is None
    assert screened(made, MIDNIGHT, SOURCE, seen()) == OPTED_OUT


def test_with_privacy_days_it_begins_with_the_sites_own_day() -> None:
    days = privacy_days("04:00", "America/Los_Angeles")
    names = Pseudonyms.by_privacy_day(bytes(32), "dbh", days)
    start = days.at(MIDNIGHT).end
    made = ingest(Listed(start - HOUR), names=names)
    assert screened(made, start, SOURCE, seen()) is None, "the day's last instant"
    assert screened(made, start + 1, SOURCE, seen()) == OPTED_OUT


def test_a_delayed_message_belongs_to_the_day_of_its_event() -> None:
    made = ingest(Listed(MIDNIGHT - HOUR))
    assert screened(made, MIDNIGHT + 10 * SECOND, SOURCE, seen(age=20 * SECOND)) is None
    assert screened(made, MIDNIGHT + 10 * SECOND, SOURCE, seen(age=5 * SECOND)) == OPTED_OUT
    assert screened(made, MIDNIGHT + 40 * SECOND, SOURCE, seen(age=HOUR)) == OPTED_OUT, "no older than the lateness"


def test_randomised_addresses_are_left_out_where_the_site_ignores_them() -> None:
    made = ingest(ignores_randomised=True)
    assert screened(made, MIDNIGHT, SOURCE, seen(RANDOM)) == RANDOMISED
    assert screened(made, MIDNIGHT, SOURCE, seen(BERT)) is None
    assert screened(made, MIDNIGHT, SOURCE, seen(RANDOM, ELSEWHERE)) is None
    assert screened(ingest(), MIDNIGHT, SOURCE, seen(RANDOM)) is None


# --- nothing differs ------------------------------------------------------------------------------------


class Answer:
    """An acknowledgement that remembers what became of it."""

    def __init__(self) -> None:
        self.sent: bool | None = None

    def acknowledge(self) -> None:
        self.sent = True

    def withhold(self) -> None:
        self.sent = False


class Kept:
    """A sink that remembers its messages."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    async def append(self, message: Any) -> None:
        self.messages.append(message)


class Still(Hands):
    """A clock that stands at midnight."""

    def now(self) -> Micros:
        return MIDNIGHT


class NoListener:
    """A listener that the test replaces: it enqueues by itself."""

    reasons: tuple[str, ...] = ()
    harmless: frozenset[str] = frozenset()
    address = ("", 0)
    kernel_drops = receive_buffer = 0
    can_receive = True
    queue: Any = None

    async def open(self, queue: Any) -> None:
        self.queue = queue

    async def finish(self) -> None: ...

    def stop(self) -> None: ...

    async def close(self) -> None: ...

    def hear(self, client: bytes, answer: Answer | None = None) -> bool:
        self.queue.counters.datagrams += 1
        accepted: bool = self.queue.put(QueuedSighting(MIDNIGHT, SOURCE, SOURCE, seen(client), answer))
        return accepted


async def world(clients: list[bytes], capacity: int, **changed: Any) -> tuple[Any, ...]:
    """What is stored, counted and remembered after messages of these devices came at once."""
    listener, sink = NoListener(), Kept()
    made = Receiver(
        [listener], ingest=ingest(**changed), sink=sink, clock=Still(), capacity=capacity
    )  # fmt: skip
    async with made:
        for client in clients:
            listener.hear(client)
    counters = asdict(made.counters)
    assert made.counters.check()
    return sink.messages, counters, made.state.devices, made.state.locally_administered


async def test_with_a_full_queue_nothing_tells_a_device_that_opted_out_from_an_absent_one() -> None:
    """Fails if the device is dropped after the queue's limit: then it takes the place of Bert."""
    others = [BERT, RANDOM]
    with_anne = await within_patience(world([ANNE, ANNE, *others, ANNE], 2), "a world with Anne")
    without = await within_patience(world(others, 2), "a world without her")
    assert with_anne == without
    assert len([row for batch in with_anne[0] for row in batch.rows if row[1] is not None]) == len(others)


async def test_an_opt_out_does_not_count_for_the_limit_of_devices() -> None:
    with_anne = await within_patience(world([ANNE, BERT], 9, max_devices=1), "a world with Anne")
    assert with_anne == await within_patience(world([BERT], 9, max_devices=1), "a world without her")


async def test_ignored_addresses_are_counted_as_dropped_and_take_no_place() -> None:
    _, counters, *_ = await within_patience(world([RANDOM, RANDOM, BERT], 1, ignores_randomised=True), "a world")
    assert (counters["accepted"], counters["dropped"][RANDOMISED]) == (1, 2)
    assert counters["sightings"] == {"global": 1, "local": 2}


@pytest.mark.parametrize("client", [ANNE, RANDOM])
async def test_the_sender_of_a_message_that_is_left_out_gets_its_acknowledgement(client: bytes) -> None:
    listener, answer = NoListener(), Answer()
    made = Receiver([listener], ingest=ingest(ignores_randomised=True), sink=Kept(), clock=Still())
    async with made:
        assert listener.hear(client, answer), "the listener does not take it for refused"
        assert answer.sent is None, "not before the listener remembers the request"
        listener.queue.call_worker()
        await within_patience(_until(answer), "the acknowledgement")
    assert answer.sent


async def _until(answer: Answer) -> None:
    while answer.sent is None:
        await asyncio.sleep(0.01)
