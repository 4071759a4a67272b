"""Messages of telegraf's ``snmp_trap``, read as the traps that they tell of; those here are such as it wrote."""

from __future__ import annotations

import json
import random
from collections.abc import Hashable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from connectors.sources.ingest.followed_logs import Piece
from connectors.sources.ingest.queue import IngestQueue
from connectors.sources.ingest.sighting import Kind
from connectors.sources.ingest.source_filter import UNKNOWN_SOURCE, AllowList
from connectors.sources.snmp.ber import MALFORMED, MALFORMED_REASONS, MalformedTrap
from connectors.sources.snmp.collectors import TelegrafListener
from connectors.sources.snmp.communities import CommunityFile
from connectors.sources.snmp.drop_reasons import BAD_COMMUNITY
from connectors.sources.snmp.telegraf import LONGEST, NO_TRAP_METRIC, line, metric
from connectors.sources.snmp.traps import IGNORED_REASONS, decode
from tests.support.receivers import Hands

BSN = "iso.3.6.1.4.1.14179.2.6.2"
AP_NAME = "iso.3.6.1.4.1.14179.2.2.1.1.3.0"
TAGS = (
    '"tags":{"community":"public","mib":"","name":"iso.3.6.1.4.1.14179.2.6.3.53",'
    '"oid":".1.3.6.1.4.1.14179.2.6.3.53","source":"127.0.0.1","version":"2c"},"timestamp":1795361212415}'
)
AS_TEXT = (
    r'{"fields":{"iso.3.6.1.2.1.1.3.0":5269414,"iso.3.6.1.4.1.14179.2.2.1.1.3.0":"AP one",'
    r'"iso.3.6.1.4.1.14179.2.6.2.34.0":"\u003c\u0000\u0000\u0000\u0000\u0001",'
    r'"iso.3.6.1.4.1.14179.2.6.2.35.0":"\u0002\u0000\u0000\u0000\u0000\u0001"},"name":"snmp_trap",' + TAGS
)
AS_DIGITS = (
    '{"fields":{"iso.3.6.1.2.1.1.3.0":5269418,"iso.3.6.1.4.1.14179.2.6.2.34.0":"a45e60112233",'
    '"iso.3.6.1.4.1.14179.2.6.2.35.0":"f84f57abcdef","iso.3.6.1.4.1.14179.2.6.2.36.0":4,'
    '"iso.3.6.1.4.1.14179.2.6.2.39.0":"anne"},"name":"snmp_trap",' + TAGS
)
VERSION_1 = (
    '{"fields":{"iso.3.6.1.4.1.14179.2.6.2.34.0":"a45e60112233","iso.3.6.1.4.1.14179.2.6.2.35.0":"f84f57abcdef",'
    '"sysUpTimeInstance":77},"name":"snmp_trap","tags":{"agent_address":"10.1.2.3","community":"public","mib":"",'
    '"name":"iso.3.6.1.4.1.14179.2.6.3.0.53","oid":".1.3.6.1.4.1.14179.2.6.3.0.53","source":"10.2.0.5",'
    '"version":"1"},"timestamp":1795361212472}'
)
INDEXED = (
    r'{"fields":{"iso.3.6.1.2.1.1.3.0":5269423,"iso.3.6.1.4.1.9.9.599.1.3.1.1.1.92.82.14.18.52.86":"\\R\u000e\u00124V",'
    r'"iso.3.6.1.4.1.9.9.599.1.3.1.1.8.92.82.14.18.52.86":"f84f57abcdef"},"name":"snmp_trap","tags":{"community":"public",'
    r'"mib":"","name":"iso.3.6.1.4.1.9.9.599.0.4","oid":".1.3.6.1.4.1.9.9.599.0.4","source":"127.0.0.1","version":"2c"},'
    r'"timestamp":1795361212502}'
)
ESCAPED = (
    r'{"fields":{"iso.3.6.1.2.1.1.3.0":5269425,"iso.3.6.1.4.1.14179.2.6.2.34.0":"\n\r\"\u0000\\'
    "\x7f"
    r'",'
    r'"iso.3.6.1.4.1.14179.2.6.2.35.0":"\u003c,\u003e\u0026=\\"},"name":"snmp_trap",' + TAGS
)


@pytest.mark.parametrize(
    ("message", "kind", "client", "radio"),
    [
        (AS_TEXT, Kind.ASSOCIATE, "3c0000000001", "020000000001"),
        (AS_DIGITS, Kind.ASSOCIATE, "a45e60112233", "f84f57abcdef"),
        (VERSION_1, Kind.ASSOCIATE, "a45e60112233", "f84f57abcdef"),
        (INDEXED, Kind.RUN, "5c520e123456", "f84f57abcdef"),
        (ESCAPED, Kind.ASSOCIATE, "0a0d22005c7f", "3c2c3e263d5c"),
    ],
)
def test_a_message_is_the_trap_that_it_tells_of(message: str, kind: Kind, client: str, radio: str) -> None:
    trap = decode(metric(message.encode()).datagram)
    assert (trap.kind, trap.client.hex(), trap.access_point.hex()) == (kind, client, radio)
    assert b"anne" not in trap


LINE_TAGS = (
    "snmp_trap,community=public,name=iso.3.6.1.4.1.14179.2.6.3.53,oid=.1.3.6.1.4.1.14179.2.6.3.53,"
    "source=127.0.0.1,version=2c "
)
LINES = (
    (LINE_TAGS + 'iso.3.6.1.2.1.1.3.0=5269414i,iso.3.6.1.4.1.14179.2.6.2.34.0="<\x00\x00\x00\x00\x01",'
     'iso.3.6.1.4.1.14179.2.6.2.35.0="\x02\x00\x00\x00\x00\x01",iso.3.6.1.4.1.14179.2.2.1.1.3.0="AP one" '
     "1795361212415182396\n", AS_TEXT),
    (LINE_TAGS + 'iso.3.6.1.4.1.14179.2.6.2.34.0="a45e60112233",iso.3.6.1.4.1.14179.2.6.2.35.0="f84f57abcdef",'
     'iso.3.6.1.4.1.14179.2.6.2.39.0="anne",iso.3.6.1.4.1.14179.2.6.2.36.0=4i,iso.3.6.1.2.1.1.3.0=5269418i '
     "1795361212456105084\n", AS_DIGITS),
    (LINE_TAGS + 'iso.3.6.1.4.1.14179.2.6.2.34.0="\n\r\\"\x00\\\\\x7f",iso.3.6.1.4.1.14179.2.6.2.35.0="<,>&=\\\\",'
     "iso.3.6.1.2.1.1.3.0=5269425i 1795361212520695460\n", ESCAPED),
)  # fmt: skip


@pytest.mark.parametrize(("told", "as_json"), LINES)
def test_a_line_says_what_the_same_trap_says_as_json(told: str, as_json: str) -> None:
    one, other = metric(told.encode()), metric(as_json.encode())
    assert decode(one.datagram)[:6] == decode(other.datagram)[:6]
    assert (one.address, one.community) == (other.address, other.community)


def test_a_text_without_a_name_is_no_line_and_what_a_line_says_is_hidden() -> None:
    with pytest.raises(ValueError, match=r"^$"):
        line(" x=1i")
    assert repr(line("snmp_trap x=1i")) == "LineProtocolMetric()"


def test_a_message_has_65536_octets_at_most() -> None:
    for size, reason in ((65_536, NO_TRAP_METRIC), (65_537, MALFORMED)):
        with pytest.raises(MalformedTrap, match=reason):
            metric(b"x" * size)


@pytest.mark.parametrize(
    "told",
    [
        LINE_TAGS, LINE_TAGS + "x", LINE_TAGS + 'x="', LINE_TAGS + 'x="a" y=1i', LINE_TAGS + "x=1i 5 5",
        LINE_TAGS + "x=1i 5\nsnmp_trap,a=b x=1i 5\n",
        LINE_TAGS.replace("oid=", "o=") + "x=1i",
    ],
)  # fmt: skip
def test_anything_but_exactly_one_line_is_malformed(told: str) -> None:
    with pytest.raises(MalformedTrap, match=MALFORMED):
        metric(told.encode())


def test_a_community_is_that_which_was_escaped() -> None:
    reported = LINES[0][0].replace("community=public", "community=a\\ b\\,c\\=d")
    assert metric(reported.encode()).community == b"a b,c=d"


def test_sender_and_community_are_returned_and_never_shown() -> None:
    one, other = metric(AS_TEXT.encode()), metric(VERSION_1.encode())
    assert (one.address, one.community, other.address) == ("127.0.0.1", b"public", "10.2.0.5")
    assert repr(one) == "Metric()"


def test_over_snmpv3_telegraf_has_asked_for_more_than_a_community() -> None:
    assert metric(changed(version="3").encode()).community is None
    assert metric(changed(version="1").encode()).community is not None, "SNMPv1 has a community, too"
    without = json.loads(AS_TEXT)
    del without["tags"]["community"]
    assert metric(json.dumps(without).encode()).community == b"", "which is nobody's"


def changed(**tags: Any) -> str:
    document = json.loads(AS_TEXT)
    document["tags"] |= tags
    return json.dumps(document)


def with_fields(**fields: Any) -> bytes:
    document = json.loads(AS_DIGITS)
    document["fields"] |= {name.replace("__", BSN).replace("_", "."): value for name, value in fields.items()}
    return json.dumps(document).encode()


def test_the_name_of_an_access_point_is_text_whatever_it_looks_like() -> None:
    document = json.loads(AS_TEXT)
    document["fields"][AP_NAME] = "f84f57abcdef"
    assert decode(metric(json.dumps(document).encode()).datagram).name == b"f84f57abcdef"


def test_digits_that_are_text_as_octets_too_are_text() -> None:
    """'616e' would have come as 'an', had these octets been sent."""
    reported = metric(with_fields(**{"__.35.0": "61626364656667"})).datagram
    assert b"61626364656667" in reported


@pytest.mark.parametrize("root", ["iso", "", "enterprises"])
def test_variables_are_known_by_number_from_every_root(root: str) -> None:
    started = {"iso": "iso.3.6.1.4.1.", "": ".1.3.6.1.4.1.", "enterprises": "enterprises."}[root]
    message = AS_DIGITS.replace("iso.3.6.1.4.1.", started)
    assert decode(metric(message.encode()).datagram).client.hex() == "a45e60112233"


def test_variables_that_a_mib_has_named_are_dropped() -> None:
    message = AS_DIGITS.replace("iso.3.6.1.4.1.14179.2.6.2.34.0", "bsnStationMacAddress.0")
    assert decode(metric(message.encode()).datagram).reason == "no_client"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("", NO_TRAP_METRIC), ("[]", NO_TRAP_METRIC), ("snmp_trap,source=10.2.0.5 x=1i 1", MALFORMED),
        ("snmp_trap,", MALFORMED), ("snmp_trap", NO_TRAP_METRIC), ("snmp_trap x=1i", NO_TRAP_METRIC),
        ('{"name":"cpu","tags":{},"fields":{}}', NO_TRAP_METRIC), ('{"name":"snmp_trap"}', MALFORMED),
        ('{"name":"snmp_trap","tags":[],"fields":{}}', MALFORMED), (changed(source="controller"), MALFORMED),
        (changed(source=7), MALFORMED), (changed(version="4"), MALFORMED), (changed(oid="1.3.6"), MALFORMED),
        (changed(oid=".1.3.x"), MALFORMED), (changed(oid=["."]), MALFORMED), (changed(community=1), MALFORMED),
        (changed(note="x" * LONGEST), MALFORMED),
        ('{"name":"snmp_trap","tags":' + "[" * 5000 + "]" * 5000 + "}", None),
    ],
)  # fmt: skip
def test_a_message_without_a_trap_is_refused_for_one_reason(message: str, reason: str | None) -> None:
    with pytest.raises(MalformedTrap) as refused:
        metric(message.encode())
    assert refused.value.reason == reason if reason else refused.value.reason in {MALFORMED, NO_TRAP_METRIC}


@pytest.mark.parametrize("value", [None, True, 1.5, 2**40, -(2**40), [], {}, "\ud800"])
def test_values_of_other_types_give_no_sighting(value: Any) -> None:
    try:
        trap = decode(metric(with_fields(**{"__.34.0": value})).datagram)
    except MalformedTrap:
        return
    assert trap.kind is Kind.IGNORED


EVERY = [AS_TEXT, AS_DIGITS, VERSION_1, INDEXED, ESCAPED, *map(itemgetter(0), LINES)]
JUNK = [b"", b'"', b"{", b"\xff", b"9", b".", b"\\u0000"]


def test_thousands_of_broken_messages_are_refused_or_read_and_nothing_else_happens() -> None:
    """A fault would be any other exception; each message is one that was altered in one to four places."""
    chance, output = random.Random(11), {"": 0}
    for _ in range(5000):
        message = bytearray(chance.choice(EVERY).encode())
        for _ in range(chance.randint(1, 4)):
            place = chance.randrange(len(message))
            message[place : place + chance.randint(0, 2)] = chance.choice(
                [b"", b'"', b"{", b"\xff", b"9", b".", b"\\u0000"]
            )
        try:
            reason = decode(metric(bytes(message)).datagram).reason
        except MalformedTrap as error:
            reason = error.reason
        output[reason] = output.get(reason, 0) + 1
    assert output.keys() <= {"", NO_TRAP_METRIC, *MALFORMED_REASONS, *IGNORED_REASONS}
    assert len(output) > 3


class Nothing:
    """A log without anything in it."""

    name = "traps"

    async def open(self) -> None:
        """Begin."""

    async def read(self, most: int) -> tuple[Sequence[Piece], bool]:
        """Return nothing."""
        return (), True

    async def store_positions(self, positions: Mapping[Hashable, int]) -> bool:
        """Keep nothing."""
        return True

    async def close(self) -> None:
        """End."""


def entrance(communities: Path | None) -> TelegrafListener:
    known = None if communities is None else CommunityFile(communities)
    made = TelegrafListener(Nothing(), AllowList(["127.0.0.1"]), known)
    made.queue = IngestQueue(Hands(), made.reasons)
    return made


def judged(made: TelegrafListener, message: str) -> str:
    reported = made.decode(1, message.encode())
    return reported if isinstance(reported, str) else reported.source


@pytest.fixture
def communities(tmp_path: Path) -> Path:
    path = tmp_path / "communities"
    path.write_text("public\n")
    path.chmod(0o600)
    return path


def test_a_community_must_be_known_as_its_file_has_it_now(communities: Path) -> None:
    made = entrance(communities)
    assert made.address == ("traps", 0)
    assert [judged(made, each) for each in (AS_TEXT, changed(community="no"))] == ["127.0.0.1", BAD_COMMUNITY]
    communities.write_text("another\n")
    assert judged(made, AS_TEXT) == BAD_COMMUNITY


def test_without_communities_nothing_but_snmpv3_counts() -> None:
    made = entrance(None)
    assert [judged(made, each) for each in (AS_TEXT, changed(version="3"))] == [BAD_COMMUNITY, "127.0.0.1"]


def test_a_sender_must_be_listed(communities: Path) -> None:
    assert judged(entrance(communities), VERSION_1) == UNKNOWN_SOURCE


def test_a_report_of_a_wrong_community_proves_the_trap_path(communities: Path) -> None:
    made = entrance(communities)
    assert judged(made, changed(oid=".1.3.6.1.6.3.1.1.5.5")) == "not_an_observation"
    assert made.queue.refusals == {"127.0.0.1": 1}
