"""Pseudonyms: keyed, 64 bits, new with each UTC day or salt life."""

import hashlib
import hmac
from datetime import UTC, datetime
from typing import Any

import pytest

from stream.errors import UsageError
from stream.policy.privacy_days import privacy_days
from stream.pseudonyms.derivation import Pseudonyms, is_locally_administered
from stream.records import DAY, HOUR, MINUTE, SECOND, PrivacyDay

KEY = bytes(range(32))
MAC = bytes.fromhex("5c521e002011")
NOON = int(datetime(2018, 2, 1, 12, tzinfo=UTC).timestamp()) * SECOND


DAYS = privacy_days("04:00", "UTC")


@pytest.mark.parametrize(
    ("names", "epoch"),
    [
        (Pseudonyms.daily(KEY), b"day 2018-02-01"),
        (Pseudonyms.rotating(KEY, 300 * SECOND), b"ttl 300000000/%d" % (NOON // (300 * SECOND))),
        (Pseudonyms.by_privacy_day(KEY, "dbh", DAYS), b"privacy day dbh/2018-02-01"),
    ],
    ids=["by the UTC day", "by the life of a salt", "by the privacy day"],
)
def test_name_is_hmac_sha256_under_the_key_of_the_epoch(names: Pseudonyms, epoch: bytes) -> None:
    epoch_key = hmac.new(KEY, b"tacet pseudonym v1 " + epoch, hashlib.sha256).digest()
    expected = hmac.new(epoch_key, MAC, hashlib.sha256).hexdigest()[:16]
    assert names.name(MAC, names.epoch(NOON)) == expected


def test_name_holds_within_a_utc_day_and_changes_at_midnight() -> None:
    names = Pseudonyms.daily(KEY)
    midnight = NOON // DAY * DAY
    first, last, before = (names.name(MAC, names.epoch(t)) for t in (midnight, midnight + DAY - 1, midnight - 1))
    assert first == last
    assert first != before


def test_ttl_changes_names_every_salt_life() -> None:
    names = Pseudonyms.rotating(KEY, 300 * SECOND)
    start = NOON // (300 * SECOND) * 300 * SECOND
    seen = [names.name(MAC, names.epoch(start + n * 60 * SECOND)) for n in range(10)]
    assert len(set(seen[:5])) == 1
    assert len(set(seen[5:])) == 1
    assert seen[0] != seen[5]


def test_other_keys_other_devices_and_other_modes_give_other_names() -> None:
    day = NOON // DAY
    given = {
        Pseudonyms.daily(KEY).name(MAC, day),
        Pseudonyms.daily(bytes(32)).name(MAC, day),
        Pseudonyms.daily(KEY).name(bytes(6), day),
        Pseudonyms.rotating(KEY, DAY).name(MAC, day),
    }
    assert len(given) == 4
    assert all(len(name) == 16 and int(name, 16) >= 0 for name in given)


def test_the_bounded_caches_change_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream.pseudonyms.derivation._CACHED_NAMES", 3)
    names = Pseudonyms.daily(KEY)
    query = [(n.to_bytes(6, "big"), day) for day in (5, 9, 5, 7, 8, 6, 5) for n in (1, 2, 3, 4, 5, 1)]
    assert [names.name(*a) for a in query] == [Pseudonyms.daily(KEY).name(*a) for a in query]
    assert len(names._names) <= 3
    assert len(names._keys) <= 4


def test_a_short_key_or_an_empty_salt_life_is_refused_without_telling_the_key() -> None:
    with pytest.raises(UsageError, match="16 octets, got 6") as refused:
        Pseudonyms.daily(b"secret")
    assert "secret" not in str(refused.value)
    with pytest.raises(UsageError, match="16 octets, got 15"):
        Pseudonyms.daily(bytes(15))
    with pytest.raises(UsageError, match="16 octets, got 15"):
        Pseudonyms.rotating(bytes(15), HOUR)
    with pytest.raises(UsageError, match="16 octets, got 15"):
        Pseudonyms.by_privacy_day(bytes(15), "dbh", DAYS)
    assert Pseudonyms.daily(bytes(16)).name(MAC, 0)
    with pytest.raises(UsageError, match="length"):
        Pseudonyms.rotating(KEY, 0)


@pytest.mark.parametrize(("mac", "random"), [("020000000001", True), ("5c521e002011", False), ("da0000000000", True)])
def test_locally_administered_bit(mac: Any, random: Any) -> None:
    assert is_locally_administered(bytes.fromhex(mac)) is random


# --- epochs and the names that a sighting ends ------------------------------------------------------------


def test_an_epoch_begins_at_its_first_instant() -> None:
    daily, hourly = Pseudonyms.daily(KEY), Pseudonyms.rotating(KEY, HOUR)
    noon = 20_000 * DAY + 12 * HOUR + 1
    assert (daily.epoch(noon), daily.begin(noon), daily.day(noon)) == (20_000, 20_000 * DAY, None)
    assert (hourly.epoch(noon), hourly.begin(noon)) == (20_000 * 24 + 12, noon - 1)
    days = privacy_days("04:00", "UTC")
    of_site = Pseudonyms.by_privacy_day(KEY, "house", days)
    start = 20_000 * DAY + 4 * HOUR
    assert of_site.begin(noon) == start + 1
    assert of_site.day(noon) == PrivacyDay(20_000, start, start + DAY)
    assert [of_site.epoch(time) for time in (start, start + 1)] == [19_999, 20_000]


def test_a_sighting_ends_the_names_of_each_epoch_from_which_a_presence_may_last() -> None:
    names, mac, ten = Pseudonyms.rotating(KEY, 3 * MINUTE), bytes(6), 10 * MINUTE
    time = 30 * MINUTE + 1
    assert names.outlived(mac, time, ten) == [names.name(mac, epoch) for epoch in (6, 7, 8, 9)]
    assert names.outlived(mac, time, ten, since=8) == [names.name(mac, epoch) for epoch in (8, 9)]
    assert names.outlived(mac, time, ten, since=3) == names.outlived(mac, time, ten)
    assert names.outlived(mac, time, ten, since=10) == []
    daily = Pseudonyms.daily(KEY)
    assert daily.outlived(mac, DAY + ten, ten) == []
    assert daily.outlived(mac, DAY + ten - 1, ten) == [daily.name(mac, 0)]
