"""SNMPv3 at the gate: what is genuine, new and secured is heard once; everything else is turned away for one reason."""

from dataclasses import replace
from typing import Any

import pytest

from connectors.sources.ingest.sighting import Kind
from connectors.sources.snmp.ber import INFORM, MALFORMED, TRAP_V2, UNSUPPORTED_PDU, MalformedTrap
from connectors.sources.snmp.traps import decode
from connectors.sources.snmp.usm.engines import LAST_BOOTS, SLOW, WINDOW, Engines
from connectors.sources.snmp.usm.messages import (
    AUTHENTICATED,
    PRIVATE,
    REPORTABLE,
    encode_context,
    encode_scoped,
    scoped,
    secured,
)
from connectors.sources.snmp.usm.protocols import CIPHERS, TAGS, decrypted, is_genuine, local_key, master_key
from connectors.sources.snmp.usm.users import Users
from connectors.sources.snmp.usm.verifier import RejectedMessage, UsmVerifier, VerifiedMessage
from stream.records import DAY, SECOND
from tests.unit.snmp.v3_controller import (
    CLIENT,
    DISCOVER,
    ENGINE,
    HOST,
    NOON,
    OTHER_ENGINE,
    OWN,
    PERSON,
    RADIO,
    STRANGER,
    USERS,
    Controller,
    gate,
    informing,
    notification,
    source,
    user,
)


def outcome(at: UsmVerifier, datagram: bytes, now: int = NOON, host: str = HOST) -> str:
    """Return why a datagram is turned away, or that it is heard."""
    try:
        came = at.open(datagram, host, now)
    except MalformedTrap as error:
        return error.reason
    return came.reason if isinstance(came, RejectedMessage) else "repeated" if came.repeated else "heard"


def heard(at: UsmVerifier, datagram: bytes, now: int = NOON, host: str = HOST) -> VerifiedMessage:
    came = at.open(datagram, host, now)
    assert isinstance(came, VerifiedMessage), came
    return came


TAG_OCTETS = {"SHA-1": 12, "SHA-256": 24, "SHA-384": 32, "SHA-512": 48}
"""By RFC 3414 and RFC 7860."""


def test_keys_are_those_of_the_standards_example() -> None:
    """RFC 3414, A.3.2."""
    master = master_key("SHA-1", b"maplesyrup")
    assert master.hex() == "9fb5cc0381497b3793528939ff788d5d79145211"
    engine = bytes.fromhex("000000000000000000000002")
    assert local_key("SHA-1", master, engine).hex() == "6695febc9288e36282235fc7151f128497b38f3f"


@pytest.mark.parametrize("cipher", [*CIPHERS, None])
@pytest.mark.parametrize("tag", TAGS)
def test_a_trap_is_accepted_with_every_authentication_and_cipher(tag: str, cipher: str | None) -> None:
    if cipher and CIPHERS[cipher] > TAGS[tag][2]:
        with pytest.raises(ValueError, match="must be 'AES-128' with auth 'SHA-1'"):
            user(auth=tag, privacy=cipher)
        return
    one = user(auth=tag, privacy=cipher) if cipher else user(auth=tag, privacy_password=None, level="authNoPriv")
    users = Users([one], [source()])
    came = heard(gate(users), Controller(users=users).trap(NOON))
    trap = decode(came.plain, came.around)
    assert (trap.kind, trap.client, trap.access_point, trap.version, trap.inform) == (
        Kind.ASSOCIATE, CLIENT, RADIO, 3, False,
    )  # fmt: skip
    assert PERSON not in trap
    shown = [repr(part) for part in (came, came.head, came.parts, came.keys)]
    assert shown == ["VerifiedMessage()", "Secured()", "Scoped()", "Keys()"]
    assert came.head.tag_size == TAG_OCTETS[tag]
    assert "canary" not in repr((came, came.head, came.parts, came.around, users))


def test_an_encrypted_trap_shows_no_content_on_the_wire() -> None:
    assert CLIENT not in Controller().trap(NOON)
    assert CLIENT in Controller().trap(NOON, keys=Controller().keys(cipher=b""))


class TestWhoSends:
    def test_an_engine_that_is_not_listed_is_unknown(self) -> None:
        assert outcome(gate(), Controller(engine=OTHER_ENGINE).trap(NOON)) == "unknown_engine"

    def test_an_engine_is_known_at_its_own_source_only(self) -> None:
        assert outcome(gate(), Controller().trap(NOON), host=STRANGER) == "unknown_engine"

    def test_a_user_that_is_not_listed_is_unknown(self) -> None:
        others = Users([user(name="mallory")], [source()])
        assert outcome(gate(), Controller(users=others, name=b"mallory").trap(NOON)) == "unknown_user"

    @pytest.mark.parametrize("change", ["auth_password", "privacy_password"])
    def test_a_wrong_password_is_distinguished_from_the_right_one(self, change: str) -> None:
        others = Users([user(**{change: "another password"})], [source()])
        wanted = {"auth_password": "wrong_tag", "privacy_password": "undecipherable"}
        assert outcome(gate(), Controller(users=others).trap(NOON)) == wanted[change]

    def test_keys_of_one_engine_do_not_hold_at_another(self) -> None:
        both = Users([user()], [source(engines=[ENGINE.hex(), OTHER_ENGINE.hex()])])
        stolen = Controller(users=both).keys()
        assert outcome(gate(both), Controller(users=both, engine=OTHER_ENGINE).trap(NOON, keys=stolen)) == "wrong_tag"


class TestLevel:
    def test_a_message_without_authentication_is_refused(self) -> None:
        open_user = Users([user(privacy_password=None, level="authNoPriv")], [source()])
        for users in (USERS, open_user):
            assert outcome(gate(users), Controller(users=users).trap(NOON, keys=None)) == "security_level"

    def test_a_message_without_privacy_is_refused_if_the_user_requires_it(self) -> None:
        plain = Controller().trap(NOON, keys=Controller().keys(cipher=b""))
        assert outcome(gate(), plain) == "security_level"
        lenient = Users([user(level="authNoPriv")], [source()])
        assert outcome(gate(lenient), plain) == "heard"

    def test_privacy_of_a_user_who_has_no_key_for_it_is_refused(self) -> None:
        users = Users([user(privacy_password=None, level="authNoPriv")], [source()])
        assert outcome(gate(users), Controller().trap(NOON)) == "security_level"

    def test_privacy_without_a_tag_is_no_message(self) -> None:
        datagram = bytearray(Controller().trap(NOON))
        place = datagram.index(b"\x04\x01\x03") + 2
        datagram[place] = PRIVATE
        assert outcome(gate(), bytes(datagram)) == MALFORMED

    def test_an_encrypted_message_that_is_no_notification_is_counted_as_such(self) -> None:
        get = b"\xa0" + notification()[1:]
        assert outcome(gate(), Controller().trap(NOON, pdu=get)) == UNSUPPORTED_PDU

    def test_an_inform_under_its_senders_engine_and_a_trap_under_the_receivers_are_refused(self) -> None:
        assert outcome(gate(), Controller().inform(NOON)) == UNSUPPORTED_PDU
        assert outcome(gate(), informing().trap(NOON)) == UNSUPPORTED_PDU


class TestTime:
    def test_a_trap_is_accepted_once(self) -> None:
        at, datagram = gate(), Controller().trap(NOON)
        assert [outcome(at, datagram, NOON + n * SECOND) for n in (0, 0, 149)] == ["heard", "replayed", "replayed"]
        assert outcome(at, datagram, NOON + 152 * SECOND) == "not_in_time_window"

    def test_two_traps_of_the_same_second_are_both_accepted(self) -> None:
        at, sender = gate(), Controller()
        assert [outcome(at, sender.trap(NOON, n)) for n in (1, 2)] == ["heard", "heard"]

    def test_a_delayed_trap_is_accepted_within_the_time_window_only(self) -> None:
        at, sender = gate(), Controller()
        stored = [sender.trap(NOON - back * SECOND) for back in (150, 151)]
        assert outcome(at, sender.trap(NOON)) == "heard"
        assert [outcome(at, datagram) for datagram in stored] == ["heard", "not_in_time_window"]

    def test_an_engines_time_advances_between_messages(self) -> None:
        at, sender = gate(), Controller()
        assert outcome(at, sender.trap(NOON)) == "heard"
        stored = sender.trap(NOON + SECOND)
        assert outcome(at, stored, NOON + (WINDOW + 3) * SECOND) == "not_in_time_window"

    def test_a_message_that_was_too_old_stays_so_if_the_senders_clock_is_slow(self) -> None:
        """What was held back sets the clock to its own time; the floor must not fall with it."""
        at, sender = gate(), Controller()
        old, stored, later = sender.trap(NOON - 100 * SECOND), sender.trap(NOON + SECOND), NOON + 149 * SECOND
        assert outcome(at, sender.trap(NOON)) == "heard"
        assert outcome(at, stored, later) == "heard"
        assert outcome(at, old, later) == "not_in_time_window"

    def test_a_slightly_slow_clock_is_accepted_after_months(self) -> None:
        at, sender = gate(), Controller()
        assert outcome(at, sender.trap(NOON)) == "heard"
        months = 60 * DAY
        lost = months // SECOND // SLOW
        assert lost > WINDOW
        later = NOON + months
        assert outcome(at, sender.trap(later, 2, time=sender.time(later) - lost), later) == "heard"

    def test_after_a_restart_of_the_sender_its_earlier_traps_are_too_old(self) -> None:
        at, sender = gate(), Controller()
        unheard = sender.trap(NOON)
        again = replace(sender, boots=4, started=NOON, sent=[])
        assert outcome(at, again.trap(NOON + SECOND), NOON + SECOND) == "heard"
        assert outcome(at, unheard, NOON + SECOND) == "not_in_time_window"

    def test_a_forged_trap_moves_no_clock(self) -> None:
        at, sender = gate(), Controller()
        assert outcome(at, sender.trap(NOON)) == "heard"
        before = dict(at.engines.clocks)
        forged = bytearray(sender.trap(NOON, 2, boots=1_000_000))
        forged[secured(bytes(forged)).tag] ^= 1
        assert outcome(at, bytes(forged)) == "wrong_tag"
        assert at.engines.clocks == before
        assert outcome(at, sender.trap(NOON, 3)) == "heard"

    def test_an_old_trap_moves_no_clock(self) -> None:
        at, sender = gate(), Controller()
        old = sender.trap(NOON - (WINDOW + 1) * SECOND)
        assert outcome(at, sender.trap(NOON)) == "heard"
        before = dict(at.engines.clocks)
        assert outcome(at, old) == "not_in_time_window"
        assert at.engines.clocks == before

    def test_an_engine_at_its_highest_boots_is_refused(self) -> None:
        assert outcome(gate(), Controller(boots=LAST_BOOTS).trap(NOON)) == "not_in_time_window"

    def test_messages_of_the_time_window_are_remembered_and_no_others(self) -> None:
        at, sender = gate(), Controller()
        for second in range(1000):
            assert outcome(at, sender.trap(NOON + second * SECOND), NOON + second * SECOND) == "heard"
        assert WINDOW <= len(at.engines.seen_messages[ENGINE]) <= WINDOW + 2

    def test_remembered_messages_are_known_after_a_restart(self) -> None:
        at, sender = gate(), Controller()
        datagram = sender.trap(NOON)
        assert outcome(at, datagram) == "heard"
        again = gate(engines=Engines.remembered(at.engines.clocks, at.engines.fresh), boots=8)
        assert outcome(again, datagram) == "replayed"
        assert outcome(again, sender.trap(NOON - 200 * SECOND)) == "not_in_time_window"
        assert outcome(again, sender.trap(NOON, 2)) == "heard"


class TestInforms:
    def test_a_discovery_request_gets_the_engine_id(self) -> None:
        came = gate().open(DISCOVER, HOST, NOON + 9 * SECOND)
        assert isinstance(came, RejectedMessage)
        assert came.reason == "discovery"
        assert came.report is not None
        head = secured(came.report)
        assert (head.engine, head.boots, head.time, head.flags) == (OWN, 7, 9, 0)
        assert "1.3.6.1.6.3.15.1.1.4.0" in reported(came.report)

    def test_a_request_for_the_time_gets_it_under_the_users_key(self) -> None:
        at, sender = gate(), informing()
        came = at.open(sender.inform(NOON, boots=0, time=0), HOST, NOON + 9 * SECOND)
        assert isinstance(came, RejectedMessage)
        assert came.reason == "discovery"
        assert came.report is not None
        head = secured(came.report)
        assert (head.boots, head.time, head.flags) == (7, 9, AUTHENTICATED)
        assert is_genuine(sender.keys(), came.report, head)
        assert "1.3.6.1.6.3.15.1.1.2.0" in reported(came.report)

    def test_an_inform_is_accepted_and_answered_with_its_own_security(self) -> None:
        at, sender = gate(), informing()
        datagram = sender.inform(NOON, 4711)
        came = heard(at, datagram)
        trap = decode(came.plain, came.around)
        assert (trap.inform, trap.request_id, trap.client) == (True, 4711, CLIENT)
        answer = at.respond(came, NOON + SECOND)
        head = secured(answer)
        assert (head.message_id, head.engine, head.boots, head.time) == (secured(datagram).message_id, OWN, 7, 1)
        assert head.flags == AUTHENTICATED | PRIVATE
        assert is_genuine(sender.keys(), answer, head)
        plain = decrypted(sender.keys(), answer, head)
        query = decrypted(sender.keys(), datagram, secured(datagram))
        assert plain == query.replace(bytes([INFORM]), b"\xa2", 1)

    def test_no_two_answers_of_a_second_have_the_same_salt(self) -> None:
        at, sender = gate(), informing()
        answers = [at.respond(heard(at, sender.inform(NOON, n)), NOON) for n in range(9)]
        assert len({secured(answer).salt for answer in answers}) == 9

    def test_an_inform_that_comes_again_is_known(self) -> None:
        at, datagram = gate(), informing().inform(NOON)
        assert [outcome(at, datagram, NOON + n * SECOND) for n in (0, 1, WINDOW)] == ["heard", "repeated", "repeated"]
        assert outcome(at, datagram, NOON + (WINDOW + 1) * SECOND) == "not_in_time_window"

    def test_an_inform_that_found_no_room_may_come_again(self) -> None:
        at, datagram = gate(), informing().inform(NOON)
        at.forget(heard(at, datagram))
        assert outcome(at, datagram) == "heard"

    def test_an_inform_from_before_a_restart_is_too_old_and_is_reported_to_its_sender(self) -> None:
        came = gate(boots=8, started=NOON + SECOND).open(informing().inform(NOON), HOST, NOON + SECOND)
        assert isinstance(came, RejectedMessage)
        assert came.reason == "not_in_time_window"
        assert came.report is not None
        assert secured(came.report).boots == 8

    @pytest.mark.parametrize("seconds", [-WINDOW - 1, WINDOW + 1])
    def test_an_inform_at_another_time_is_turned_away(self, seconds: int) -> None:
        now = NOON + 1000 * SECOND
        datagram = informing().inform(now, time=1000 + seconds)
        assert outcome(gate(), datagram, now) == "not_in_time_window"

    def test_only_reportable_messages_get_a_report(self) -> None:
        for datagram in (
            Controller(engine=OTHER_ENGINE).trap(NOON),
            Controller().trap(NOON, keys=None),
            informing(boots=6).inform(NOON, flags=0),
        ):
            came = gate().open(datagram, HOST, NOON)
            assert isinstance(came, RejectedMessage)
            assert came.report is None

    def test_an_inform_of_a_wrong_level_gets_a_report(self) -> None:
        came = gate().open(informing().inform(NOON, keys=None), HOST, NOON)
        assert isinstance(came, RejectedMessage)
        assert came.reason == "security_level"
        assert came.report is not None
        assert "1.3.6.1.6.3.15.1.1.1.0" in reported(came.report)


def reported(report: bytes) -> str:
    """Return the dotted name of what a report is about."""
    head = secured(report)
    parts = scoped(report, head.start, head.stop)
    assert report[parts.pdu] == 0xA8
    assert not head.flags & (REPORTABLE | PRIVATE)
    name = bytes.fromhex("06 0a 2b 06 01 06 03 0f 01 01")
    at = report.index(name) + len(name)
    assert report[at + 2] == 0x41, "its value is a counter"
    return f"1.3.6.1.6.3.15.1.1.{report[at]}.{report[at + 1]}"


class TestWhatIsNoMessage:
    @pytest.mark.parametrize("cut", [1, 5, 20, 60])
    def test_a_cut_datagram_is_truncated(self, cut: int) -> None:
        assert outcome(gate(), Controller().trap(NOON)[:-cut]) == "truncated"

    def test_nothing_follows_a_scoped_pdu_or_the_pdu_within_it(self) -> None:
        context, pdu = encode_context(ENGINE), notification()
        for plain in (encode_scoped(context, pdu) + b"\0", encode_scoped(context, pdu + b"\0")):
            with pytest.raises(MalformedTrap, match=MALFORMED):
                scoped(plain, 0, len(plain))

    def test_octets_behind_the_message_are_refused(self) -> None:
        assert outcome(gate(), Controller().trap(NOON) + b"\0") == MALFORMED

    @pytest.mark.parametrize(
        ("old", "new", "reason"),
        [
            (b"\x04\x01\x03\x02\x01\x03", b"\x04\x01\x03\x02\x01\x02", "unsupported_version"),
            (b"\x04\x01\x03\x02\x01\x03", b"\x04\x01\x03\x02\x01\x00", MALFORMED),
            (b"\x04\x01\x03\x02\x01\x03", b"\x04\x01\x03\x02\x01\xff", MALFORMED),
            (ENGINE, bytes(len(ENGINE)), "unknown_engine"),
            (b"tacet", b"tacit", "unknown_user"),
        ],
    )
    def test_a_changed_header_is_refused(self, old: bytes, new: bytes, reason: str) -> None:
        datagram = Controller().trap(NOON)
        assert old in datagram
        assert outcome(gate(), datagram.replace(old, new, 1)) == reason

    def test_every_changed_bit_of_a_message_is_noticed(self) -> None:
        datagram = Controller().trap(NOON)
        for bit in range(8 * len(datagram)):
            changed = bytearray(datagram)
            changed[bit // 8] ^= 1 << bit % 8
            assert outcome(gate(), bytes(changed)) != "heard"


def test_the_plain_text_of_a_pdu_is_whole_or_refused() -> None:
    plain: Any = notification()
    assert plain[0] == TRAP_V2
    assert outcome(gate(), Controller().trap(NOON, pdu=plain + b"\0")) == "undecipherable"
