"""What a partition may continue from: under which policy, key and mechanism version.

* The key must be the one that made the state.
* A window is finished under the policy under which it began. Another policy, which must be accepted, takes effect
  when no ledger entry of the previous one is outstanding (``Continuation.due_policy``).
* A window is finished by the mechanism version under which it began. Until then no other version accepts the partition.
  An entry does not show the noise, so equal entries of another version would not prove equal releases.

A snapshot of an earlier mechanism version needs ``adopted_from`` first: windows that began under that version are not
continued, because the bytes that it would have released are not known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from stream.engine.outputs import MessageMark
from stream.engine.snapshot import SiteParts, SnapshotHead, open_snapshot, seal_snapshot, unpack_snapshot
from stream.errors import UsageError
from stream.keys import Keys, fingerprint
from stream.policy.document import PolicyDocument
from stream.release.stage import MECHANISM_VERSION
from stream.release.validation import Policy, validate

BEFORE: tuple[str, ...] = ()
"""The earlier mechanism versions from whose states this one can continue, the oldest first; none yet."""


def refuse_differences(
    head: SnapshotHead, keys: Keys, wanted: Policy, accepted: Collection[str], *, accept_policy: bool
) -> None:
    """Raise UsageError if a worker with these keys and policies may not continue from a snapshot.

    Args:
        head: the head of the snapshot.
        keys: the keys of the worker.
        wanted: the policy of the worker.
        accepted: versions of all accepted policies.
        accept_policy: whether the worker may continue from the state of any policy.
    """
    if head.key != fingerprint(keys):
        msg = "key: must be the one this state was made with; another key would give other pseudonyms and other noise"
        raise UsageError(msg)
    check_mechanism_version(head.mechanisms)
    if head.mechanisms != MECHANISM_VERSION:
        msg = (
            f"mechanism version: must be {head.mechanisms}, under which this state was made, got {MECHANISM_VERSION}; "
            "--accept-policy lets it begin with the next window"
        )
        raise UsageError(msg)
    if head.policy not in accepted and not accept_policy:
        msg = (
            f"policy: must be version {head.policy}, under which this state was made, got "
            f"{wanted.version}; --accept-policy lets the new one begin with the next window"
        )
        raise UsageError(msg)


def is_known(version: str) -> bool:
    """Whether this version can continue from the states of a mechanism version."""
    return version in {*BEFORE, MECHANISM_VERSION}


def check_mechanism_version(version: str) -> None:
    """Raise UsageError if this version cannot continue from the states of a mechanism version."""
    if not is_known(version):
        msg = (
            f"mechanism version: must be {' or '.join((*BEFORE, MECHANISM_VERSION))} to continue from, got {version}; "
            "'tacet recover' lists the remedies"
        )
        raise UsageError(msg)


PUT_BACK = "where snapshots were lost, put them back, on Kafka their topic from a mirror"
"""The first remedy if there are ledger entries and no state."""


def entries_without_state(entries: int, version: str) -> UsageError:
    """Return the error for ledger entries of another mechanism version when there is no state."""
    return UsageError(
        f"mechanism version: must be {version}, under which {entries} ledger entries were published that no saved "
        f"state belongs to, got {MECHANISM_VERSION}; {PUT_BACK}; where none was saved yet, start version {version} "
        "once more, under the same policy and key, until it has saved one, then this one with --accept-policy; "
        "'tacet recover --kafka' lists the other remedies"
    )


def entries_of_other_version(entries: int, version: str) -> UsageError:
    """Return the error for ledger entries beyond a state that another mechanism version made."""
    return UsageError(
        f"mechanism version: must be {version}, under which {entries} ledger entries beyond the saved state were "
        f"published, got {MECHANISM_VERSION}; start version {version} once more, under the same policy and key, until "
        "it has released their windows and saved its state, then this one with --accept-policy; 'tacet recover' lists "
        "the other remedies"
    )


def adopted_from(snapshot: bytes) -> bytes:
    """Return a snapshot with which the current mechanism version continues from the next window.

    Position, presence, ledger and account are kept; the rest restarts from an empty state, as after an accepted change
    of policy. UsageError if this version cannot continue from the mechanism version that made the snapshot.
    """
    head, sites = unpack_snapshot(snapshot)
    if head.mechanisms == MECHANISM_VERSION:
        return snapshot
    check_mechanism_version(head.mechanisms)
    return seal_snapshot(head._replace(before=head.made_by, mechanisms=MECHANISM_VERSION), sites)


class SavedState(NamedTuple):
    """The state from which a partition continues, and how it was made; without a snapshot an empty one."""

    policy: Policy
    """The policy in effect until the outstanding ledger entries are known."""
    next_offset: int | None = None
    """None if there is no snapshot."""
    audit_offset: int = 0
    """The offset up to which the state knows the audit partition."""
    sites: Mapping[str, SiteParts] = {}
    is_migrated: bool = False
    """Whether another policy or mechanism version made the sites' states, so that the policy migrates them."""
    last: MessageMark | None = None
    """The last message that the state includes."""
    made_by: str | None = None
    """The mechanism version that made the state."""
    is_adopted: bool = False
    """Whether another policy or mechanism version than the configured one made the state."""


class Continuation:
    """The policies and the mechanism versions under which one partition may continue."""

    def __init__(
        self, configured: Policy, accepted: Iterable[PolicyDocument], versions: Iterable[str], *, accept_policy: bool
    ) -> None:
        """Set the configured policy, and what the cluster has accepted before.

        Args:
            configured: the policy to use from now on.
            accepted: all accepted policies in order, if they are stored.
            versions: the mechanism versions that may have processed this partition.
            accept_policy: whether to continue from the state of any policy.
        """
        self.configured = configured
        self.version = configured.version
        """The version of the configured policy; it is a digest, which is computed once."""
        self._documents: dict[str, PolicyDocument] = {each.version: each for each in accepted}
        self._documents |= {self.version: configured}
        self._versions = tuple(versions)
        self._accept_policy = accept_policy

    @property
    def sites(self) -> frozenset[str]:
        """The sites of all policies."""
        return frozenset().union(*(policy.site for policy in self._documents.values()))

    def read(self, snapshot: bytes | None, keys: Keys) -> SavedState:
        """Return the state to continue from; an empty one if there is no snapshot.

        UsageError if the snapshot was made under another policy that was not accepted, another mechanism version or
        another key.
        """
        if snapshot is None:
            return SavedState(self.configured)
        head, _ = open_snapshot(snapshot)
        made_by = head.made_by
        if self._accept_policy and head.mechanisms in BEFORE:
            snapshot = adopted_from(snapshot)
            head, _ = open_snapshot(snapshot)
        refuse_differences(head, keys, self.configured, self._documents, accept_policy=self._accept_policy)
        _, sites = open_snapshot(snapshot, keys.vault)
        policy = self._policy(head.policy)
        return SavedState(
            policy, head.next_offset, head.audit_offset, sites,
            is_migrated=head.policy != policy.version or head.is_adopted, last=head.last, made_by=made_by,
            is_adopted=made_by != MECHANISM_VERSION or head.policy != self.version,
        )  # fmt: skip

    def due_policy(self, current: str, entries: Collection[str]) -> Policy | None:
        """Return the policy to switch to; None if the current one remains.

        Args:
            current: the version of the policy in effect.
            entries: the policy versions of the sites' next outstanding ledger entries. If there are none, the
                configured policy takes effect.

        Raises:
            UsageError: the policy of an entry is not known.
        """
        if current in entries or (not entries and current == self.version):
            return None
        if unknown := sorted(set(entries) - self._documents.keys()):
            msg = (
                f"policy: {unknown[0]} must be known, since a window began under it; start a worker with that policy "
                "and --accept-policy, and when it has finished the window with the present one, --accept-policy and "
                "--again N, with the number N from its error message"
            )
            raise UsageError(msg)
        return self._policy(next((version for version in self._documents if version in entries), None))

    def _policy(self, version: str | None) -> Policy:
        """Return the accepted policy of a version, validated; the configured one if no accepted one has it."""
        document = self._documents.get(version) if version is not None else None
        if document is None or version == self.version:
            return self.configured
        return validate(document)

    def refuse_other_version(self, made_by: str | None, entries: int) -> None:
        """Raise UsageError if outstanding entries may be those of another mechanism version.

        Args:
            made_by: the mechanism version that made the state; None if there is no state.
            entries: the number of outstanding entries.
        """
        if made_by not in (None, MECHANISM_VERSION):
            raise entries_of_other_version(entries, made_by)
        if made_by is None and any(version != MECHANISM_VERSION for version in self._versions):
            msg = (
                f"ledger: {entries} entries were published and there is no state, while mechanism versions "
                f"{', '.join(self._versions)} have worked here: which of them made the entries is not known; "
                "'tacet recover --kafka' lists the remedies"
            )
            raise UsageError(msg)
