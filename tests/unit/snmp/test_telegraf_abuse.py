"""A hostile telegraf topic: whatever stands in a message, it is taken or refused by a listed reason.

By hand, with as many as wanted: ``python -m tests.unit.snmp.test_telegraf_abuse 1000000``.
"""

from __future__ import annotations

import copy
import json
import random
import sys
from collections import Counter

import orjson
import pytest

from connectors.sources.ingest.followed_logs import FollowedLine
from connectors.sources.ingest.source_filter import AllowList
from connectors.sources.snmp.ber import MalformedTrap
from connectors.sources.snmp.collectors import TelegrafListener, forwarded
from connectors.sources.snmp.telegraf import LONGEST, metric

REASONS = frozenset(TelegrafListener.reasons)
ALLOW = AllowList(("127.0.0.1", "10.2.0.0/16", "fd00::/8"))
TRAP = {
    "name": "snmp_trap",
    "tags": {"source": "127.0.0.1", "oid": ".1.3.6.1.4.1.14179.2.6.3.53", "version": "2c", "community": "public"},
    "fields": {
        "iso.3.6.1.2.1.1.3.0": 5269418, "iso.3.6.1.4.1.14179.2.6.2.34.0": "a45e60112233",
        "iso.3.6.1.4.1.14179.2.6.2.35.0": "f84f57abcdef", "iso.3.6.1.4.1.14179.2.6.2.36.0": 4,
    },
    "timestamp": 1795361212415,
}  # fmt: skip
LINE = (
    r"snmp_trap,source=127.0.0.1,version=2c,oid=.1.3.6.1.4.1.14179.2.6.3.53,community=public "
    r'iso.3.6.1.2.1.1.3.0=5269418i,iso.3.6.1.4.1.14179.2.6.2.34.0="a45e60112233",'
    r'iso.3.6.1.4.1.14179.2.6.2.35.0="f84f57abcdef" 1795361212415182396'
)
ODD: tuple[object, ...] = (
    None, True, -1, 2**31, 2**32, 2**63, 2**64, -(2**64), 1.5, float("inf"), "", "\x00", "é", "ff" * 9000, "0" * 9000,
    [], {}, [[]], {"a": {}}, "127.0.0.1%lo", "::ffff:127.0.0.1", "fe80::1%eth0", ".1.3", ".9.9.9", ".1.99.1", ".2.999",
    ".1.3." + "9" * 10, ".1.3." + "1." * 126 + "1", "1.3.6", "\u2028", "\n", ",", "=", '"', "\\", "2c", "3", "1",
)  # fmt: skip
NAMES = (
    "iso", "iso.", ".", ".1", "org.6.1", "snmpV2.3.1.1.4.1.0", "iso.3.6.1.6.3.1.1.4.1.0", "iso." + "9" * 11,
    "iso." + "1." * 200 + "1", "mib-2.1.3.0", "enterprises.14179.2.2.1.1.3.0", "internet.4.1.9.9.599.1.3.1.1.1.1",
)  # fmt: skip


def hostile(rng: random.Random) -> bytes:
    """Return a message that is nearly one of telegraf's."""
    how = rng.randrange(4)
    if how == 0:
        data = bytearray(LINE.encode())
        for _ in range(rng.randint(1, 6)):
            place = rng.randrange(len(data) + 1)
            data[place:place] = rng.choice((b"\\", b'"', b",", b"=", b" ", b"\n", b"\xff", b"i", b"9" * 30, b"e" * 50))
            del data[rng.randrange(len(data)) :][: rng.choice((0, 0, 1, 9))]
        return bytes(data)
    document = json.loads(json.dumps(TRAP))
    for _ in range(rng.randint(1, 4)):
        part = rng.choice((document, document.get("tags"), document.get("fields")))
        if not isinstance(part, dict):
            continue
        if part and rng.random() < 0.5:
            part[rng.choice(list(part))] = copy.deepcopy(rng.choice(ODD))
        elif rng.random() < 0.5:
            part[rng.choice(NAMES)] = copy.deepcopy(rng.choice(ODD))
        else:
            part.pop(rng.choice([*part, ""]), None)
    content = bytearray(json.dumps(document, allow_nan=True).encode())
    if how == 1:
        place = rng.randrange(len(content))
        content[place : place + rng.choice((0, 1, 5))] = rng.choice(
            (b"", b"\xff", b"[", b"}", b'"', b"\\ud800", b"\x00")
        )
    return bytes(content)


def heard(content: bytes | None) -> FollowedLine | str:
    """Return what a message says, or the reason for which it is passed over."""

    def read(given: bytes) -> tuple[str, bytes]:
        reported = metric(given)
        return reported.address, reported.datagram

    return forwarded(content, read, ALLOW, {}, 0)


def fuzz(number: int, seed: int = 1) -> Counter[str]:
    """Hear so many hostile messages; return how often each thing became of one."""
    rng, found = random.Random(seed), Counter[str]()
    for _ in range(number):
        reported = heard(hostile(rng))
        found[reported if isinstance(reported, str) else "taken"] += 1
    assert set(found) <= REASONS | {"taken"}, found
    return found


def test_a_hostile_message_is_accepted_or_refused_for_a_listed_reason() -> None:
    found = fuzz(20_000)
    assert found["taken"] > 100
    assert len(found) >= 4


def deep(levels: int) -> str:
    return "[" * levels + "]" * levels


HUGE = {
    "depth of a value": json.dumps(TRAP).replace("5269418", deep(30_000)),
    "depth alone": deep(32_000),
    "depth of objects": '{"a":' * 9_000 + "1" + "}" * 9_000,
    "digits": json.dumps(TRAP).replace("5269418", "9" * 60_000),
    "an exponent": json.dumps(TRAP).replace("5269418", "1e999999999"),
    "a text": json.dumps(TRAP).replace("a45e60112233", "f" * 60_000),
    "a name of numbers": json.dumps(TRAP).replace("iso.3.6.1.2.1.1.3.0", "iso" + ".1" * 30_000),
    "fields": orjson.dumps(TRAP | {"fields": {f"iso.{n}": n for n in range(4_000)}}).decode(),
    "one name twice": json.dumps(TRAP).replace('"fields": {', '"fields": {' + '"iso.1": 1, ' * 5_000),
    "a line of tags": "snmp_trap" + ",a=b" * 16_000 + " a=1i",
    "a line of fields": "snmp_trap,a=b " + ",".join(["iso.1=1i"] * 7_000),
    "a line of backslashes": "snmp_trap,a=" + "\\" * 60_000,
    "a line of quotes": 'snmp_trap,a=b c="' + '\\"' * 30_000,
    "a line without an end": "snmp_trap,a=b " + "c" * 60_000,
    "a line of signs": "snmp_trap,a=b c=" + "+" * 60_000,
    "a line of commas": "snmp_trap" + "," * 60_000,
    "a line of digits": "snmp_trap,a=b c=" + "9" * 60_000 + "i",
}


@pytest.mark.parametrize("name", HUGE)
def test_huge_deep_and_endless_messages_end_by_a_listed_reason(name: str) -> None:
    content = HUGE[name].encode()
    assert len(content) <= LONGEST, "it is read"
    reported = heard(content)
    assert reported == "taken" or reported in REASONS or isinstance(reported, FollowedLine)


def test_a_message_longer_than_a_datagram_is_not_read() -> None:
    content = orjson.dumps(TRAP | {"x": "x" * LONGEST})
    assert heard(content) == heard(None) == "malformed"
    with pytest.raises(MalformedTrap):
        metric(content)


@pytest.mark.parametrize("content", [b"snmp_trap,a=" + b"\\" * 9, b"snmp_trap,a=b c=" + b"9" * 99 + b"i", b"{" * 99])
def test_a_refusal_says_nothing_of_a_message(content: bytes) -> None:
    with pytest.raises(MalformedTrap) as refused:
        metric(content)
    assert str(refused.value) == f"datagram refused: {refused.value.reason}"
    assert refused.value.reason in REASONS
    assert refused.value.__cause__ is None


if __name__ == "__main__":
    print(fuzz(int(sys.argv[1]), random.randrange(1 << 32)).most_common())
