"""What operators are told from the account: windows that were denied, and how a cluster's sites stand."""

from __future__ import annotations

from typing import Any

import orjson

from connectors.monitoring.catalogue import TRAFFIC_INTERVAL
from connectors.serve.ledger_views import SPAN, AccountView, ClusterView
from stream.records import DAY, MINUTE, Micros
from stream.release.validation import load_policy
from stream.schemas import rfc3339
from tests.support.small_building import building, policy_text

TICK = 5 * MINUTE
ROOM = 'access_points = ["02:00:00:00:00:01"'
EIGHT = load_policy(policy_text().replace(f"{ROOM}]", f'{ROOM}, "02:00:00:00:01:01", "02:00:00:00:01:02"]'))
"""A building of eight access points."""
NINE = 20_000 * DAY + 9 * 60 * MINUTE


def account(end: Micros, *refused: tuple[str, str], kind: str = "counts", site: str = "dbh") -> bytes:
    rows = [{"release": release, "reason": reason} for release, reason in refused]
    return orjson.dumps({"v": 1, "site": site, "window_end": rfc3339(end), "kind": kind, "refused": rows})


def book(*records: bytes) -> AccountView:
    made = AccountView()
    made.add(records)
    return made


def told(of: AccountView, site: str = "dbh") -> dict[tuple[str, str, str], int]:
    return {(row.release, row.audience, row.reason): row.windows for row in of.denials.of(site)}


BUDGET, WAITING = ("occupancy/public", "budget"), ("flow/public", "waiting")


def test_denied_windows_are_counted_by_release_audience_and_reason() -> None:
    stored = book(account(NINE, BUDGET, WAITING), account(NINE + TICK, BUDGET), account(NINE + 2 * TICK))
    assert told(stored) == {("flow", "public", "waiting"): 1, ("occupancy", "public", "budget"): 2}
    assert told(stored, "other") == {}


def test_a_repeated_window_is_counted_once_by_its_last_account() -> None:
    """A backfill publishes later windows again, and a worker that was killed may."""
    stored = book(account(NINE, BUDGET), account(NINE + TICK, BUDGET), account(NINE, BUDGET))
    assert told(stored) == {("occupancy", "public", "budget"): 2}
    stored.add([account(NINE, WAITING), account(NINE + TICK)])
    assert told(stored) == {("flow", "public", "waiting"): 1}


def test_attributes_that_were_not_queried_are_not_counted_as_windows() -> None:
    assert told(book(account(NINE, ("office-day/public", "asked"), kind="attributes"))) == {}


def test_only_windows_of_the_last_week_are_counted() -> None:
    stored = book(account(NINE, BUDGET), account(NINE + TICK, BUDGET), account(NINE + SPAN, BUDGET))
    assert told(stored) == {("occupancy", "public", "budget"): 2}, "the first is a week older than the last"
    stored.add([account(NINE - TICK, BUDGET)])
    assert told(stored) == {("occupancy", "public", "budget"): 2}


def test_denials_are_counted_for_a_week() -> None:
    week = 7 * DAY
    assert told(book(account(NINE, BUDGET), account(NINE + week, BUDGET))) == {("occupancy", "public", "budget"): 1}
    assert told(book(account(NINE, BUDGET), account(NINE + week - 1, BUDGET))) == {("occupancy", "public", "budget"): 2}


def disclosed(end: Micros, figures: dict[str, Any], site: str = "dbh") -> bytes:
    """Return the account of a day's attributes."""
    return orjson.dumps(
        {"v": 1, "site": site, "window_end": rfc3339(end), "kind": "attributes", "refused": [], "attributes": figures}
    )


def test_what_the_attributes_of_a_day_have_disclosed_is_told_by_site_and_day() -> None:
    first, other = {"odds": "2"}, {"odds": "3"}
    arrivals = {"2026-03-02/2011/arrival": first, "2026-03-03/2011/arrival": other}
    stored = book(
        disclosed(NINE, arrivals), disclosed(NINE + TICK, {"2026-03-02/2065/arrival": other}),
        disclosed(NINE, {"2026-03-02/1/arrival": first}, site="east"),
    )  # fmt: skip
    assert stored.attributes("dbh", "2026-03-02") == {
        "2026-03-02/2011/arrival": first, "2026-03-02/2065/arrival": other,
    }  # fmt: skip
    assert stored.attributes("dbh", "2026-03-03") == {"2026-03-03/2011/arrival": other}
    assert stored.attributes("east", "2026-03-02") == {"2026-03-02/1/arrival": first}
    assert stored.attributes("dbh", "2026-03-04") == stored.attributes("west", "2026-03-02") == {}


def test_the_current_account_of_a_site_is_that_of_counts_in_its_newest_window() -> None:
    stored = book(account(NINE + TICK), disclosed(NINE + TICK, {}), account(NINE), account(NINE, site="east"))
    assert {site: (each["window_end"], each["kind"]) for site, each in stored.newest().items()} == {
        "dbh": (rfc3339(NINE + TICK), "counts"), "east": (rfc3339(NINE), "counts"),
    }  # fmt: skip


def figures(of: ClusterView) -> dict[str, Any]:
    (row,) = of.newest().values()
    return dict(row)


def test_the_figures_of_a_cluster_come_only_from_its_topics() -> None:
    now = [NINE]
    cluster = ClusterView(book(account(NINE), account(NINE + TICK)), EIGHT, lambda: now[0])
    cluster.add_rejected([b"{}", b"{}"])
    cluster.add_rejected([b"{}"])
    now[0] += TRAFFIC_INTERVAL
    cluster.set_control_state("0123", {"dbh": 1})
    known = {name: value for name, value in figures(cluster).items() if value is not None}
    assert known == {
        "v": 1, "site": "dbh", "window_end": rfc3339(NINE + TICK), "rejected_messages": 3, "policy_version": "0123",
        "silent_sources": 1,
    }  # fmt: skip
    assert ClusterView(AccountView(), EIGHT, lambda: NINE).newest() == {}


def test_rejected_messages_of_a_cluster_are_published_at_points_of_the_grid_only() -> None:
    now = [NINE + MINUTE]
    cluster = ClusterView(book(account(NINE)), EIGHT, lambda: now[0])
    cluster.add_rejected([b"{}"])
    assert figures(cluster)["rejected_messages"] is None, "no point has passed"
    now[0] = NINE + TRAFFIC_INTERVAL
    cluster.add_rejected([b"{}"] * 4)
    now[0] += TRAFFIC_INTERVAL - 1
    assert figures(cluster)["rejected_messages"] == 1, "the four came behind the last point"
    now[0] += 1
    assert figures(cluster)["rejected_messages"] == 5


def test_rejected_messages_are_not_published_for_six_access_points() -> None:
    now = [NINE]
    cluster = ClusterView(book(account(NINE)), building(), lambda: now[0])
    cluster.add_rejected([b"{}"])
    now[0] += 2 * TRAFFIC_INTERVAL
    assert figures(cluster)["rejected_messages"] is None
