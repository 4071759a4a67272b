"""Broken and hostile datagrams through decoder and ingest together: refused or kept, never anything else.

By hand, with as many as wanted: ``python tests/unit/snmp/test_snmp_fuzz.py 200000``.
"""

import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

from connectors.sources.ingest.ingest import INGEST_REASONS, Ingest, SiteLimits
from connectors.sources.ingest.state import UNKNOWN_LISTED
from connectors.sources.snmp.ber import MALFORMED_REASONS, MalformedTrap, encode_integer, tlv
from connectors.sources.snmp.profiles import PROFILES
from connectors.sources.snmp.sender import encode_notification, octets, varbind
from connectors.sources.snmp.traps import IGNORED_REASONS, MAX_VARBINDS, decode, envelope, respond
from stream.encoding import encode_message
from stream.pseudonyms.derivation import Pseudonyms
from stream.records import DAY, MINUTE, Heartbeat, ObservationBatch

CLIENT, RADIO, BASE = (bytes.fromhex(mac) for mac in ("5c520e123456", "f84f57abcdef", "24dec6ccdde0"))
NAME, PERSON, COMMUNITY, SOURCE = b"2065-clwa", b"anne.canary@example.org", b"canary-community", "10.2.0.5"
NOON = 17_563 * DAY + 12 * 60 * MINUTE


def shapes() -> Iterator[bytes]:
    """One notification of each kind of each profile, its columns filled as that vendor fills them."""
    for profile in PROFILES:
        for trap in profile.traps:
            for radio in (RADIO, BASE[:5] + b"\x07"):
                columns = [
                    *(varbind(f"{column}.0", octets(CLIENT)) for column in profile.client),
                    *(varbind(f"{column}.0", octets(radio)) for column in profile.access_point),
                    *(varbind(f"{column}.0", octets(NAME)) for column in profile.name),
                    *(varbind(f"{column}.0", octets(PERSON)) for column in profile.ignored),
                    *(varbind(f"{table}.8.92.82.14.18.52.86", octets(radio)) for table in profile.tables),
                ]
                for version, inform in ((1, False), (2, False), (2, True)):
                    yield encode_notification(
                        trap, b"".join(columns), community=COMMUNITY, uptime=77, version=version, inform=inform
                    )


SHAPES = tuple(shapes())
OVERSIZED = (
    encode_notification("1.3.6.1.4.1.99999.1", varbind("1.3.6", octets(bytes(60_000))), community=b"c", uptime=1),
    encode_notification(
        "1.3.6.1.4.1.99999.1", varbind("1.3.6.1", b"\x05\x00") * (MAX_VARBINDS + 9), community=b"c", uptime=1
    ),
    tlv(0x30, encode_integer(1) + octets(bytes(60_000)) + tlv(0xA7, b"")),
)


def mutated(rng: Random) -> bytes:
    data = bytearray(rng.choice(SHAPES))
    for _ in range(rng.randint(0, 4)):
        place = rng.randrange(len(data))
        match rng.randrange(6):
            case 0:
                data[place] = rng.randrange(256)
            case 1:
                data[place] ^= 1 << rng.randrange(8)
            case 2:
                del data[place : place + rng.randint(1, 4)]
            case 3:
                data[place:place] = rng.randbytes(rng.randint(1, 4))
            case 4:
                data[place] = rng.choice([0x00, 0x30, 0x7F, 0x80, 0x81, 0x84, 0xFF])
            case _:
                other = rng.choice(SHAPES)
                data[place:] = other[min(place, len(other)) :]
        if not data:
            break
    return bytes(data)


def connector() -> Ingest:
    places = {"f8:4f:57:ab:cd:ef": ("dbh", "2065"), "24:de:c6:cc:dd:e0": ("dbh", "2066")}
    return Ingest(
        access_points=places,
        sites={"dbh": SiteLimits((SOURCE,), 10 * MINUTE, 200_000, Pseudonyms.daily(bytes(32)))},
        aliases={"2065-CLWA": "f8:4f:57:ab:cd:ef", SOURCE: "24:de:c6:cc:dd:e0"},
        base_radios=["24:de:c6:cc:dd:e0/44"],
    )


def fuzz(count: int, seed: int) -> Counter[str | None]:
    """Return how many came to what; assert of each what must hold of all."""
    rng, core = random.Random(seed), connector()
    became: Counter[str | None] = Counter()
    state, messages = core.initial(NOON), []
    for n in range(count):
        now = NOON + n * 10_000
        datagram = rng.choice(OVERSIZED) if n % 500 == 0 else rng.randbytes(n % 97) if n % 50 == 0 else mutated(rng)
        try:
            around = envelope(datagram)
            trap = decode(datagram, around)
        except MalformedTrap as error:
            became[error.reason] += 1
            continue
        assert PERSON not in trap
        assert len(trap.name) <= 256
        if trap.inform:
            assert len(respond(datagram)) == len(datagram)
        if trap.reason:
            became[trap.reason] += 1
            continue
        dropped, _ = core.observe(state, now, SOURCE, SOURCE, trap.sighting)
        became[dropped or "accepted"] += 1
        messages += core.poll(state, now)
    check(messages + core.drain(state))
    assert len(state.unknown) <= UNKNOWN_LISTED
    assert set(became) <= {"accepted", *MALFORMED_REASONS, *IGNORED_REASONS, *INGEST_REASONS}
    return became


def check(messages: list[Any]) -> None:
    """Nothing of a trap is in a message but an access point of the policy; time is the connector's own."""
    for message in messages:
        if isinstance(message, Heartbeat):
            continue
        assert isinstance(message, ObservationBatch)
        assert not re.search(rb"canary|5c520e123456|5c:52:0e", encode_message(message))
        for device, access_point, time in message.rows:
            assert re.fullmatch("[0-9a-f]{16}", device)
            assert access_point in {"f8:4f:57:ab:cd:ef", "24:de:c6:cc:dd:e0", None}
            assert NOON <= time < NOON + DAY


def test_five_thousand_broken_datagrams_are_refused_or_accepted() -> None:
    became = fuzz(5_000, 20260302)
    assert became["accepted"] > 50
    assert sum(became.values()) == 5_000
    assert len(became) > 10


if __name__ == "__main__":
    print(dict(fuzz(int(sys.argv[1]), 1)))
