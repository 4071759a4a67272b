"""Broken and hostile datagrams through decoder and ingest together: refused or kept, never anything else.

Whatever is taken, pyrad takes for genuine too. By hand, with as many as wanted:
``python -m tests.unit.radius.test_radius_fuzz 1000000``.
"""

from __future__ import annotations

import random
import re
import sys
from collections import Counter
from typing import Any

from pyrad.packet import AcctPacket, PacketError

from connectors.sources.ingest.addresses import LONGEST_NAME
from connectors.sources.ingest.ingest import INGEST_REASONS, Ingest, SiteLimits
from connectors.sources.ingest.sighting import Kind
from connectors.sources.ingest.state import UNKNOWN_LISTED
from connectors.sources.radius.decoder import (
    IGNORED_REASONS,
    REFUSED_REASONS,
    RefusedPacket,
    Request,
    account,
    read,
    respond,
)
from stream.encoding import encode_message
from stream.pseudonyms.derivation import Pseudonyms
from stream.records import DAY, MINUTE, SECOND, Heartbeat, ObservationBatch
from tests.unit.radius.accounting_requests import (
    INTERIM,
    OFF,
    OLD_SECRET,
    ON,
    SECRET,
    START,
    STOP,
    accounting,
    attribute,
    attributes,
    packet,
    status_server,
)

SOURCE, RADIO = "10.2.0.5", "02:00:00:00:00:01"
NOON = 17_563 * DAY + 12 * 60 * MINUTE
SECRETS = (SECRET, OLD_SECRET)
BODIES = (
    *(accounting(status, session=str(status)) for status in (START, STOP, INTERIM, ON, OFF, 9)),
    accounting(called="lobby:canary-net", timestamp=NOON // SECOND),
    accounting(calling="3c00.0000.0002", called="020000000001:canary-net", delay=3, proxy=b"one"),
    accounting(nas_ip=0x0A020005, called="", nas="lobby") + attributes(proxy=b"two") * 3,
    attributes(calling="3c0000000003", called="02-00-00-00-00-09", status=START) + attribute(26, bytes(40)),
)
"""Attributes as controllers send them."""


def mutated(rng: random.Random, whole: bytes) -> bytes:
    data = bytearray(whole)
    for _ in range(rng.randint(1, 4)):
        if not data:
            break
        place = rng.randrange(len(data))
        match rng.randrange(5):
            case 0:
                data[place] = rng.randrange(256)
            case 1:
                data[place] ^= 1 << rng.randrange(8)
            case 2:
                del data[place : place + rng.randint(1, 6)]
            case 3:
                data[place:place] = rng.randbytes(rng.randint(1, 6))
            case _:
                other = rng.choice(BODIES)
                data[place:] = other[min(place, len(other)) :]
    return bytes(data)


def drawn(rng: random.Random, number: int) -> bytes:
    """Draw octets, a broken packet, or a genuine packet of attributes that are broken: only those reach the decoder."""
    if number % 40 == 0:
        return rng.randbytes(rng.randrange(4200))
    body = rng.choice(BODIES)
    body = mutated(rng, body) if rng.random() < 0.7 else body
    secret, code = rng.choice(SECRETS), rng.choice((4, 4, 4, 4, 1, 12))
    whole = packet(body, code=code, identifier=rng.randrange(256), secret=secret, tagged=rng.random() < 0.3)
    whole = status_server(rng.randrange(256), secret) if code == 12 else whole
    return mutated(rng, whole) if rng.random() < 0.3 else whole + bytes(rng.choice((0, 0, 0, 7)))


def agreed(request: Request, datagram: bytes) -> None:
    """Pyrad takes the request under the same secret, and its answer."""
    try:
        other = AcctPacket(packet=datagram, secret=request.secret)
    except PacketError:
        raise AssertionError("taken, though another decoder refuses it") from None
    assert other.VerifyAcctRequest()
    assert other.message_authenticator is None or other.verify_message_authenticator()
    answer = respond(request)
    assert other.VerifyReply(other.CreateReply(packet=answer), answer)


def fuzz(count: int, seed: int) -> Counter[str]:
    """Return how many came to what; assert of each what must hold of all."""
    rng, became = random.Random(seed), Counter[str]()
    core = Ingest(
        access_points={RADIO: ("dbh", "lobby")},
        sites={"dbh": SiteLimits((SOURCE,), 10 * MINUTE, 200_000, Pseudonyms.daily(bytes(32)), 30 * SECOND)},
        aliases={"lobby": RADIO},
    )
    state, messages = core.initial(NOON), []
    for number in range(count):
        now, datagram = NOON + number * 10_000 % DAY, drawn(rng, number)
        try:
            request = read(datagram, SECRETS)
            output = account(request, now)
        except RefusedPacket as error:
            became[error.reason] += 1
            continue
        agreed(request, datagram)
        assert len(output.sighting.name) <= LONGEST_NAME
        assert len(output.sighting.session) in {0, 16}
        if output.sighting.kind is Kind.IGNORED:
            became[output.reason] += 1
            continue
        dropped, _ = core.observe(state, now, SOURCE, SOURCE, output.sighting)
        became[dropped or "accepted"] += 1
        messages += core.poll(state, now)
        if number % 10_000 == 0:
            check(messages)
            messages = []
    check(messages + core.drain(state))
    assert len(state.unknown) <= UNKNOWN_LISTED
    assert set(became) <= {"accepted", *REFUSED_REASONS, *IGNORED_REASONS, *INGEST_REASONS}
    return became


def check(messages: list[Any]) -> None:
    """Nothing of a request is in a message but an access point of the policy; time is near the connector's own."""
    for message in messages:
        if isinstance(message, Heartbeat):
            continue
        assert isinstance(message, ObservationBatch)
        assert not re.search(rb"canary|3c[-:.]?00", encode_message(message))
        for device, access_point, time in message.rows:
            assert re.fullmatch("[0-9a-f]{16}", device)
            assert access_point in {RADIO, None}
            assert NOON - 30 * SECOND <= time < NOON + DAY + MINUTE


def test_broken_datagrams_are_refused_or_accepted_as_by_another_decoder() -> None:
    became = fuzz(20_000, 20260302)
    assert sum(became.values()) == 20_000
    assert became["accepted"] > 500
    assert set(became) >= {*REFUSED_REASONS, *IGNORED_REASONS, "collapsed", "no_stay", "wrong_time", "accepted"}


if __name__ == "__main__":
    print(dict(fuzz(int(sys.argv[1]), 1)))
