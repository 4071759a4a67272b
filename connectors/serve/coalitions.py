"""What readers who put their releases together have been told: the account added up anew, from the records they got.

A record says what it cost, so the records of all audiences hold what the ledger does; who may read the account sees
every audience's outcomes anyway. Without the store, as everything here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from stream.errors import UsageError
from stream.policy.document import Policy
from stream.policy.fields import NANO
from stream.records import ReleaseId
from stream.release.account_stage import past_account
from stream.schemas import parse_record

MOST_RECORDS = 40_000
"""Records that are added up while somebody waits; of more 'tacet account --coalition' has the time."""


def coalition_units(
    policy: Policy, boxes: Mapping[str, Iterable[bytes]], audiences: frozenset[str]
) -> dict[str, dict[str, Any]]:
    """Return, by site, what each privacy unit has cost these audiences together, in epsilons.

    Args:
        policy: under which all of it was released.
        boxes: of each audience of the policy, its records.
        audiences: who puts theirs together.

    Raises:
        UsageError: there are more than ``MOST_RECORDS``, or some were released under another policy.
    """
    entries, outcomes = [], {}
    for name in sorted(audiences):
        for record in map(parse_record, boxes[name]):
            if is_charged(policy, record):
                entries.append(_entry(record))
            if "attribute" in record and record["released"]:
                outcomes[record["release_id"]] = record["value"]
            if len(entries) > MOST_RECORDS:
                msg = f"audiences: must have at most {MOST_RECORDS} records; 'tacet account --coalition' adds up more"
                raise UsageError(msg)
    return dict(_by_site(policy, entries, outcomes, audiences))


def is_charged(policy: Policy, record: Mapping[str, Any]) -> bool:
    """Whether a record has a ledger entry: answers to queries, and revised values, cost nothing and have none."""
    return record["release"] in {release.name for release in policy.release}


def _entry(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return of a ledger entry what its record tells."""
    attempt = ReleaseId.parse(record["release_id"]).attempt
    told = ("site", "release_id", "audience", "release", "window_end", "epsilon", "policy_version", "laboratory")
    return {name: record[name] for name in told} | {
        "sequence": 0,
        "attempt": attempt,
        "nano": int(Fraction(record["spend"]) * NANO),
        "outcome": record["reason"] or "released",
    }


def _by_site(
    policy: Policy, entries: list[dict[str, Any]], outcomes: Mapping[str, Any], audiences: frozenset[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    name = "+".join(sorted(audiences))
    for site in dict.fromkeys(entry["site"] for entry in entries):
        records = past_account([policy], site, {name: audiences}, entries, outcomes)
        counts = [record for record in records if record["kind"] == "counts"] or records
        yield site, counts[-1]["audiences"][name]
