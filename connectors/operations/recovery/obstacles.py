"""Obstacles and remedies, as ``tacet recover`` prints them, and the remedies of each storage.

``Advice`` has the remedies that every obstacle of a storage chooses from. The checks of ``report.py`` take them from
there, so that the text always names the storage at hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stream.schemas import CONTROL


@dataclass(frozen=True, slots=True)
class Remedy:
    """One remedy, with its price."""

    do: str
    price: str
    ends_ledger: bool = False
    """Whether the ledger is given up, and budgets start again."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Something that prevents a run from continuing, and its remedies, cheapest first."""

    what: str
    remedies: tuple[Remedy, ...]

    @property
    def ledger_in_doubt(self) -> bool:
        """Whether the ledger may have to be given up; comparing it with records then shows nothing new."""
        return any(remedy.ends_ledger for remedy in self.remedies)


@dataclass(frozen=True, slots=True)
class Advice:
    """The remedies that a storage has for the obstacles that both storages know."""

    command: str
    """The command that releases, such as ``tacet run``."""
    copy: Remedy
    """Put back what was lost."""
    new_ledger: Remedy
    key_copy: Remedy
    right_key: Remedy
    retire: Remedy
    """End the ledger of a lost key; another key continues with its budgets."""
    rebuild: Remedy | None
    """Make a lost state again from its observations; None if the storage cannot."""
    reopen: Callable[[str], str]
    """Site -> the command that reopens it."""
    accept_policy: Remedy
    same_policy: Remedy
    versions_between: str
    """How several mechanism versions follow one another."""


NEW_LEDGER_PRICE = (
    "budgets start again, and the current privacy day is paid for a second time; what was released so far is only in "
    "the old account: whoever reads both accounts adds them up"
)
STARTS_AGAIN = "groups, filters and the current local day start again"
NO_DIFFERENCE = "none: an entry or record that would differ stops the command, and nothing is published"
REOPENED = (
    "the windows that the site missed are released with coverage 0 and charged like all others; each device counts "
    "again from its next observation on"
)
REPUBLISH = Remedy(
    "run 'tacet republish' with the observations from which they were made, under the same policy and key",
    "none: the bytes are the same and nothing is charged; a record that would differ is not published",
)


def store_advice(
    folder: Path | str = "DIR", key_file: Path | str | None = None, policy_file: Path | str | None = None
) -> Advice:
    """Return the remedies of an embedded store; commands have placeholders for files that are None."""
    key, policy = key_file or "FILE", policy_file or "POLICY"
    return Advice(
        command="tacet run",
        copy=Remedy(
            f"put the newest complete copy of {folder} back ('tacet store restore'), as new as the mark or newer",
            "none: nothing is released twice",
        ),
        new_ledger=Remedy(
            "begin a new store with a new key: 'tacet key create NEW_KEY', then 'tacet run' with NEW_KEY, a new "
            "--store and --from after the last released window. Keep the old store for its account. If its ledger is "
            "complete, use 'tacet key retire' instead: then budgets continue",
            f"{NEW_LEDGER_PRICE}; audiences begin with new outboxes",
            ends_ledger=True,
        ),
        key_copy=Remedy(
            f"put a copy of the key file back at {key}, beside its .mark, with mode 0600",
            "none: an older copy moves forward to the present day with the next release",
        ),
        right_key=Remedy("use the key of this store, or the store of this key", "none"),
        retire=Remedy(
            f"if that key is lost: 'tacet key create NEW_KEY', then 'tacet key retire --store {folder} --lost "
            "--new-store NEW_DIR --new-key NEW_KEY'",
            f"budgets and account continue in the new store; {STARTS_AGAIN}",
        ),
        rebuild=None,
        reopen=lambda site: f"'tacet recover --store {folder} --key-file {key} --policy {policy} --reopen {site}'",
        accept_policy=Remedy("'tacet run --accept-policy'", f"{STARTS_AGAIN}; budgets and account continue"),
        same_policy=Remedy("'tacet run' with the policy of that version", "none"),
        versions_between="if that version is older, then 'tacet run --accept-policy' of each version between",
    )


CLUSTER_RETIRE = Remedy(
    "stop ingests and workers, run 'tacet key create NEW_KEY' and 'tacet key retire --kafka' with --new-key NEW_KEY, "
    "and start ingests and workers with NEW_KEY",
    "budgets and account continue; presence, groups and filters start again; unread observations are lost; windows "
    "that were begun are charged as if they had been released, and are never released",
)
CLUSTER_NEW_LEDGER = Remedy(
    "begin a new ledger: keep copies of the audit and private topics for their account, delete all topics, then "
    "'tacet topics create', 'tacet key create NEW_KEY', and 'tacet worker' with NEW_KEY and --from after the last "
    "released window",
    NEW_LEDGER_PRICE,
    ends_ledger=True,
)
CONTROL_COPY = Remedy(
    f"stop workers and ingests, run 'tacet topics create' if topic {CONTROL} is missing, and put its records back from "
    "a mirror of it, the last record of each key",
    "none: nothing is released twice; a policy that the mirror lacks has to be accepted again",
)
NEW_KEY_AND_LEDGER = Remedy(
    f"retire the key, which serves no other cluster, and {CLUSTER_NEW_LEDGER.do}",
    CLUSTER_NEW_LEDGER.price,
    ends_ledger=True,
)
ACCEPT_LOSS = Remedy(
    "'tacet worker --accept-loss' continues with the first message that exists",
    "unread messages are lost for good: the windows up to the next heartbeat have coverage 0 and are charged",
)


def cluster_advice(again: int | None = None, key_file: Path | str | None = "FILE") -> Advice:
    """Return the remedies of a cluster; ``again`` is the number of the current policy, if the given one was replaced.

    A policy that was replaced is accepted again only in place of the policy with that number.
    """
    more = "" if again is None else f" --again {again}"
    return Advice(
        command="tacet worker",
        copy=Remedy(
            "put the records of the topic back from a mirror of it, each partition complete and in order",
            "none: nothing is released twice",
        ),
        new_ledger=CLUSTER_NEW_LEDGER,
        key_copy=Remedy(
            f"put a copy of the key file back at {key_file or 'FILE'}, with mode 0600",
            "none: an older copy moves forward to the present day with the next release",
        ),
        right_key=Remedy("use the key of this cluster, or the cluster of this key", "none"),
        retire=Remedy(f"if that key is lost: {CLUSTER_RETIRE.do}; add --lost", CLUSTER_RETIRE.price),
        rebuild=Remedy(
            "if the observations reach back to the first window: 'tacet worker --accept-loss', with the same policy "
            "and key, makes the same entries again",
            NO_DIFFERENCE,
        ),
        reopen=lambda site: f"'tacet worker --reopen {site}'",
        accept_policy=Remedy(
            f"'tacet worker --accept-policy{more}' on one worker, then restart all others with the new policy",
            f"{STARTS_AGAIN}; budgets and account continue",
        ),
        same_policy=Remedy(f"'tacet worker' with the policy of that version; topic {CONTROL} keeps it", "none"),
        versions_between=(
            "if that version is older, then 'tacet worker --accept-policy' of each version between, until it has saved "
            "the state of every partition"
        ),
    )


def without_records(audience: str) -> Remedy:
    """Return the remedy of doing nothing about lost records."""
    return Remedy(
        "continue without them",
        f"{audience} does not receive them again, and 'tacet audit verify' continues to report them as missing",
    )
