"""The account of all releases: as it was published, or recomputed from the ledger for any coalition."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NotRequired, Required, TypedDict

from connectors.operations.audit.kafka_bundle import kafka_bundle
from connectors.operations.audit.verification import merged_policies, store_bundle
from connectors.operations.policy.guarantee_figures import PeopleFigures, people_figures
from connectors.storage.embedded.reader import read_outbox, read_topic
from connectors.storage.kafka.topic_tail import Record, consume
from connectors.subscribe.order import Release
from connectors.subscribe.subscriber import subscribe as follow
from stream.accounting.account import UnitReport
from stream.accounting.attribute_leakage import Factors, HabitFactors, Information
from stream.errors import UsageError
from stream.policy.document import PolicyDocument
from stream.policy.fields import EVERYBODY
from stream.records import Micros
from stream.release.account_stage import AccountFigures, past_account
from stream.schemas import LEAKAGE, parse_record, parse_time

Records = list[Mapping[str, Any]]
"""Records of the account or of the ledger, as they were read."""


class LastAccount(AccountFigures):
    """The figures of a site's last account record, and what it denied."""

    refused: list[dict[str, str]]


class SiteAccount(TypedDict, total=False):
    """The last account of a site, and what its last day of attributes discloses."""

    records: Required[int]
    """How many records there are."""
    attributes: Required[Factors]
    """Empty before the first day of attributes."""
    feed: Literal["counts"]
    """Of a site that has people counters."""
    identity: Literal["login"]
    """Of a site that counts logins."""
    last: LastAccount
    habit: HabitFactors
    information: Information


class AccountSummary(TypedDict):
    """What ``tacet account --json`` prints."""

    sites: dict[str, SiteAccount]
    people: NotRequired[list[PeopleFigures]]
    """The models of people, each once; absent where there is none."""


def published(store: Path | None, kafka: str | None) -> Records:
    """Return the records of the account as they were published, in order."""
    values = read_topic(store, LEAKAGE) if store is not None else asyncio.run(_topic(kafka or "", LEAKAGE))
    return in_order([parse_record(value) for value in values])


def published_summary(store: Path | None, kafka: str | None) -> AccountSummary:
    """Return the summary of the account as it was published."""
    bundle = store_bundle(store) if store is not None else kafka_bundle(kafka or "")
    known = merged_policies(bundle.policies, [])
    return summary(published(store, kafka), counted_sites(known), login_sites(known))


def people_truths(policies: Iterable[PolicyDocument]) -> list[PeopleFigures]:
    """Return the models of people of all policies, each once, with what their ground truth cost."""
    found = {each.digest: people_figures(each) for policy in policies for each in policy.people}
    return list(found.values())


def counted_sites(policies: Iterable[PolicyDocument]) -> frozenset[str]:
    """Return the sites that have people counters under every policy that contains them."""
    feeds = [(name, site.feed) for policy in policies for name, site in policy.site.items()]
    return frozenset(name for name, _ in feeds) - {name for name, feed in feeds if feed != "counts"}


def login_sites(policies: Iterable[PolicyDocument]) -> frozenset[str]:
    """Return the sites that count logins under every policy that contains them."""
    counts = [(name, site.counts_logins) for policy in policies for name, site in policy.site.items()]
    return frozenset(name for name, _ in counts) - {name for name, logins in counts if not logins}


def gaps(audit: Records, records: Records) -> list[str]:
    """Return a warning for each site whose account ends before its ledger does.

    Both are written together, so account records were lost, and the sums in the last one may be too small.
    """
    last: dict[str, str] = {}
    for record in records:
        last[record["site"]] = max(last.get(record["site"], ""), record["window_end"], key=_time)
    charged: dict[str, str] = {}
    for entry in audit:
        charged[entry["site"]] = max(charged.get(entry["site"], ""), entry["window_end"], key=_time)
    return [
        f"account: site {site}: its last record is of {last.get(site, 'no window')}, the ledger goes on to {end}: "
        "records are missing, and sums may be too small; 'tacet account --tight' adds up the ledger"
        for site, end in sorted(charged.items())
        if _time(last.get(site, "")) < _time(end)
    ]


def _time(text: str) -> Micros:
    return parse_time(text) if text else -1


def in_order(records: Records) -> Records:
    """Return account records by window, a day's attributes before its window's counts.

    A late release changes the account of all later windows: the last record of a window counts.
    """
    last = {(record["site"], record["window_end"], record["kind"]): record for record in records}
    return sorted(last.values(), key=lambda r: (parse_time(r["window_end"]), r["kind"] != "attributes"))


def recomputed(
    store: Path | None, kafka: str | None, audit: Records, policies: Sequence[PolicyDocument],
    audiences: list[str] | None, at: Micros | None, *, tight: bool,
) -> Records:  # fmt: skip
    """Return the account that follows from the ledger, each entry under the policy version that made it.

    Args:
        store: folder of an embedded store, for the values of attributes; or
        kafka: bootstrap servers.
        audit: the verified ledger entries.
        policies: all policies under which entries were made.
        audiences: those that combine their releases; None for each audience, and all together.
        at: the time of the account, None for now.
        tight: whether epsilons at delta are exact for the last window.

    Raises:
        UsageError: a policy names none of these audiences.
    """
    known = {audience.name for policy in policies for audience in policy.audience}
    if unknown := sorted(set(audiences or ()) - known):
        msg = f"--coalition: must name audiences of the policy, got {unknown[0]!r}"
        raise UsageError(msg)
    audit = [entry for entry in audit if at is None or parse_time(entry["window_end"]) <= at]
    outcomes = {
        record["release_id"]: record["value"]
        for name in audiences or sorted(known)
        for record in _private(store, kafka, name)
        if "attribute" in record and record["released"]
    }
    readers = None if audiences is None else {"+".join(audiences): frozenset(audiences)}
    sites = dict.fromkeys(entry["site"] for entry in audit)
    return [r for site in sites for r in past_account(policies, site, readers, audit, outcomes, exact=tight)]


def _private(store: Path | None, kafka: str | None, audience: str) -> list[Release]:
    if store is not None:
        return [parse_record(value) for _, value in read_outbox(store, audience, 0)]

    async def read() -> list[Release]:
        return [r async for r in follow(audience=audience, kafka=kafka, from_start=True, until_end=True)]

    return asyncio.run(read())


async def _topic(kafka: str, topic: str) -> list[bytes]:
    return [record.value async for record in consume(kafka, topic, until_end=True, identity=by_account_window)]


def by_account_window(record: Record) -> tuple[str, str, str]:
    """Identify a leakage record by site, window and kind."""
    body = parse_record(record.value)
    return body["site"], body["window_end"], body["kind"]


def summary(records: Records, counted: Collection[str] = (), logins: Collection[str] = ()) -> AccountSummary:
    """Return, per site, the last account and the disclosure by its last day's attributes, and what it counts.

    ``counted`` are the sites that have counters, ``logins`` those that count logins.
    """
    sites: dict[str, SiteAccount] = {}
    for record in records:
        site = sites.setdefault(record["site"], {"records": 0, "attributes": {}})
        if record["site"] in counted:
            site["feed"] = "counts"
        if record["site"] in logins:
            site["identity"] = "login"
        site["records"] += 1
        site["last"] = {
            "window_end": record["window_end"], "audiences": record["audiences"], "coalition": record["coalition"],
            "left": record["left"], "refused": record["refused"],
        }  # fmt: skip
        if record["kind"] == "attributes":
            site["attributes"] = record["attributes"]
            if "habit" in record:
                site["habit"] = record["habit"]
            if "information" in record:
                site["information"] = record["information"]
    return {"sites": sites}


def spent_by_reader(account: LastAccount) -> dict[str, UnitReport]:
    """Return what each reader has spent; the last one is ``EVERYBODY``, if there are several audiences."""
    coalition = account["coalition"]
    return account["audiences"] | ({EVERYBODY: coalition} if coalition else {})
