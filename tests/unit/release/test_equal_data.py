"""Equal data under two names is not recognisable: every commitment, digest and encrypted form binds what it is of.

Of decisions ``tests/acceptance/test_decide_ledger.py`` says so, of answers of the service ``serve/test_interface.py``.
"""

from __future__ import annotations

from dataclasses import replace

import orjson

from connectors.keys.data_keys import DataKeys
from stream.encoding import encode_message
from stream.engine.outputs import ReplayVerifier, in_order, quarantined
from stream.engine.snapshot import seal_site
from stream.policy.privacy_days import PrivacyDays
from stream.pseudonyms.derivation import Pseudonyms
from stream.records import DAY, MINUTE, CountedWindow, DayAttribute, ObservationBatch, Published, Rejected, Row
from stream.release.attribute_stage import read_digest
from stream.release.ledger_writer import LedgerWriter
from stream.schemas import OCCUPANCY, PRESENCE
from tests.support.small_building import building, laboratory

TODAY = 20_000
VAULT = DataKeys(TODAY, b"k" * 32)
END = TODAY * DAY + 15 * MINUTE
DIGEST = b"equal counts"
TAIL = 64
"""Octets at the end of an encrypted form: what is encrypted, and its tag."""


def different(*forms: object) -> None:
    assert len(set(forms)) == len(forms)


def test_a_commitment_in_the_audit_log_is_to_site_release_window_attempt_and_key_day() -> None:
    writer = LedgerWriter.of(building(), "dbh", laboratory(), 1)
    others = (replace(writer, site="other"), replace(writer, attempt=2), replace(writer, attempt=3))
    different(
        writer.commitment(TODAY, "plain", END, DIGEST),
        writer.commitment(TODAY, "other", END, DIGEST),
        writer.commitment(TODAY, "plain", END + 5 * MINUTE, DIGEST),
        writer.commitment(TODAY + 1, "plain", END, DIGEST),
        *(each.commitment(TODAY, "plain", END, DIGEST) for each in others),
    )


def test_what_an_attribute_s_commitment_is_to_holds_zone_day_and_attribute() -> None:
    record = DayAttribute("dbh", "a", "2026-03-02", "arrival", "09:00", END)
    others = (replace(record, zone="b"), replace(record, day="2026-03-03"), replace(record, attribute="departure"))
    different(*map(read_digest, (record, *others)))


def test_equal_messages_of_two_sources_or_at_two_times_have_different_digests_in_quarantine() -> None:
    def digest(source: str, now: int, value: bytes = b"{}") -> str:
        made = quarantined(Rejected(source, "json", "message"), value, now=now, sources=("a", "b"), audit_key=b"k" * 32)
        found: str = orjson.loads(made.value)["digest"]
        return found

    assert digest("a", END) == digest("a", END)
    different(
        digest("a", END), digest("b", END), digest("nobody", END), digest("a", END + 1), digest("a", END + DAY),
        digest("a", END, b"[]"),
    )  # fmt: skip


def test_equal_counts_and_stays_are_encrypted_otherwise_for_another_topic_site_or_window() -> None:
    records = [
        Published(topic, site, b"{}", end, "id")
        for topic, site, end in (
            (OCCUPANCY, "a", END), (OCCUPANCY, "b", END), (OCCUPANCY, "a", END + MINUTE), (PRESENCE, "a", END)
        )
    ]  # fmt: skip
    different(*(out.value[-TAIL:] for out in in_order(records, VAULT)))


def test_equal_rows_and_counts_are_encrypted_otherwise_for_another_site_source_session_or_number() -> None:
    batch = ObservationBatch("a", "10.0.0.1", 1, 1, (Row("0" * 16, "02:00:00:00:00:01", END),), None)
    window = CountedWindow("a", "10.0.0.1", 1, END, (("lobby", 3),))
    batches = (batch, replace(batch, site="b"), replace(batch, source="b"), replace(batch, session=2))
    windows = (window, replace(window, site="b"), replace(window, source="b"), replace(window, session=2))
    more = (replace(batch, sequence=2), replace(window, window_end=END + MINUTE))
    different(*(encode_message(each, VAULT)[-TAIL:] for each in (*batches, *windows, *more)))


def test_equal_states_of_two_sites_are_encrypted_otherwise() -> None:
    states = {"sense": b"", "release": b"{}", "account": b"{}", "radios": b""}
    different(*(seal_site(name, states, VAULT, TODAY)[-TAIL:] for name in ("a", "b")))


def test_the_mark_of_a_message_is_of_its_place_in_the_log() -> None:
    def mark(offset: int) -> object:
        guard = ReplayVerifier(b"k" * 32)
        guard.note_read(offset, b"a", b"equal message")
        return guard.mark()[1]  # type: ignore[index]

    assert mark(1) == mark(1)
    different(mark(1), mark(2))


def test_one_device_has_another_name_each_day_and_where_there_are_privacy_days_at_each_site() -> None:
    days = PrivacyDays("04:00", "UTC")
    one, other = (Pseudonyms.by_privacy_day(b"p" * 32, site, days) for site in ("a", "b"))
    daily, mac = Pseudonyms.daily(b"p" * 32), bytes(6)
    different(*(names.name(mac, epoch) for names in (one, other, daily) for epoch in (TODAY, TODAY + 1)))
