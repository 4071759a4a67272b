"""What readers who put their releases together have been told: the account added up anew, from the records they got.

A record says what it cost, so the records of all audiences hold what the ledger does; who may read the account sees
every audience's outcomes anyway. Without the store, as everything here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from connectors.serve.fields import nano, scalar
from stream.errors import DataError, UsageError
from stream.policy.document import Policy
from stream.records import ReleaseId
from stream.release.account_stage import past_account
from stream.schemas import parse_record

MOST_RECORDS = 40_000
"""Records that are added up while somebody waits; of more 'tacet account --coalition' has the time."""


class Coalition:
    """Some audiences, and what they have been told of which the ledger has entries."""

    def __init__(self, policy: Policy, audiences: Collection[str]) -> None:
        """``policy``: under which all of it was released. ``audiences``: who puts theirs together."""
        self._policy, self._audiences = policy, frozenset(audiences)
        self._entries: list[dict[str, Any]] = []
        self._outcomes: dict[str, Any] = {}

    def take(self, value: bytes) -> None:
        """Take in a record of one of them, each once.

        Raises:
            UsageError: there are more than ``MOST_RECORDS``.
            DataError: it is no private record, or another audience's.
        """
        record = parse_record(value)
        try:
            self._take(record)
        except (KeyError, TypeError, ValueError):
            raise DataError("record: must be a private release of one of the audiences") from None
        if len(self._entries) > MOST_RECORDS:
            msg = f"audiences: must have at most {MOST_RECORDS} records; 'tacet account --coalition' adds up more"
            raise UsageError(msg)

    def _take(self, record: Mapping[str, Any]) -> None:
        identity = ReleaseId.parse(record["release_id"])
        named = (identity.site, identity.release, identity.audience)
        if named != (record["site"], record["release"], record["audience"]) or named[2] not in self._audiences:
            raise ValueError
        if is_charged(self._policy, record):
            self._entries.append(_entry(record))
        if "attribute" in record and record["released"]:
            self._outcomes[record["release_id"]] = scalar(record["value"])

    def units(self) -> dict[str, dict[str, Any]]:
        """Return, by site, what each privacy unit has cost them together, in epsilons.

        UsageError where some of it was released under another policy.
        """
        return dict(_by_site(self._policy, self._entries, self._outcomes, self._audiences))


def is_charged(policy: Policy, record: Mapping[str, Any]) -> bool:
    """Whether a record has a ledger entry: answers to queries, and revised values, cost nothing and have none."""
    return record["release"] in {release.name for release in policy.release}


def _entry(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return of a ledger entry what its record tells."""
    attempt, _ = ReleaseId.parse(record["release_id"]).attempt, nano(record["epsilon"])
    told = ("site", "release_id", "audience", "release", "window_end", "epsilon", "policy_version", "laboratory")
    return {name: record[name] for name in told} | {
        "sequence": 0,
        "attempt": attempt,
        "nano": nano(record["spend"]),
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
