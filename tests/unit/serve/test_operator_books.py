"""What operators are told from the account: windows that were denied, and how a cluster's sites stand."""

from __future__ import annotations

from typing import Any

import orjson

from connectors.serve.books import AccountBook
from connectors.serve.cluster import ClusterBook
from connectors.serve.denials import SPAN
from stream.records import DAY, MINUTE, Micros
from stream.schemas import rfc3339

TICK = 5 * MINUTE
NINE = 20_000 * DAY + 9 * 60 * MINUTE


def account(end: Micros, *refused: tuple[str, str], kind: str = "counts", site: str = "dbh") -> bytes:
    rows = [{"release": release, "reason": reason} for release, reason in refused]
    return orjson.dumps({"v": 1, "site": site, "window_end": rfc3339(end), "kind": kind, "refused": rows})


def book(*records: bytes) -> AccountBook:
    made = AccountBook()
    made.take(records)
    return made


def told(of: AccountBook, site: str = "dbh") -> dict[tuple[str, str, str], int]:
    return {(row["release"], row["audience"], row["reason"]): row["windows"] for row in of.denials.of(site)}


BUDGET, WAITING = ("occupancy/public", "budget"), ("flow/public", "waiting")


def test_denied_windows_are_counted_by_release_audience_and_reason() -> None:
    held = book(account(NINE, BUDGET, WAITING), account(NINE + TICK, BUDGET), account(NINE + 2 * TICK))
    assert told(held) == {("flow", "public", "waiting"): 1, ("occupancy", "public", "budget"): 2}
    assert told(held, "other") == {}


def test_a_window_that_comes_again_is_counted_once_as_its_last_account_has_it() -> None:
    """A backfill publishes later windows again, and a worker that was killed may."""
    held = book(account(NINE, BUDGET), account(NINE + TICK, BUDGET), account(NINE, BUDGET))
    assert told(held) == {("occupancy", "public", "budget"): 2}
    held.take([account(NINE, WAITING), account(NINE + TICK)])
    assert told(held) == {("flow", "public", "waiting"): 1}


def test_attributes_that_were_not_asked_are_no_windows() -> None:
    assert told(book(account(NINE, ("office-day/public", "asked"), kind="attributes"))) == {}


def test_only_the_last_week_counts_however_late_an_older_window_comes() -> None:
    held = book(account(NINE, BUDGET), account(NINE + TICK, BUDGET), account(NINE + SPAN, BUDGET))
    assert told(held) == {("occupancy", "public", "budget"): 2}, "the first is a week older than the last"
    held.take([account(NINE - TICK, BUDGET)])
    assert told(held) == {("occupancy", "public", "budget"): 2}


def figures(of: ClusterBook) -> dict[str, Any]:
    (row,) = of.newest().values()
    return row


def test_a_cluster_says_what_its_topics_say_and_nothing_else() -> None:
    cluster = ClusterBook(book(account(NINE), account(NINE + TICK)))
    cluster.take_refused([b"{}", b"{}"])
    cluster.take_refused([b"{}"])
    cluster.take_agreed("0123", {"dbh": 1})
    known = {name: value for name, value in figures(cluster).items() if value is not None}
    assert known == {
        "v": 1, "site": "dbh", "window_end": rfc3339(NINE + TICK), "rejected_messages": 3, "policy_version": "0123",
        "silent_sources": 1,
    }  # fmt: skip
    assert ClusterBook(AccountBook()).newest() == {}
