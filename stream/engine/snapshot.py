"""The byte form of a partition's state, with an envelope per site.

A site's envelope has a clear part and an encrypted part. The clear part contains the site's name, the release state and
the account without any data about people, the radios of its zones, and the state of its clock. Presence, counts, the
current day and the state of mechanisms are encrypted under the data key of the oldest day that the site still needs, so
they become unreadable when that key is destroyed. A pipeline without a vault stores no data about people anywhere else
either: its sites are complete and not encrypted.

Which states a partition may continue from is in ``continuation``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import orjson

from stream.accounting.ledger import GENESIS
from stream.domains import Part
from stream.encryption import Kind, Vault, clear_of, is_encrypted, join_parts, seal, split_parts, unseal
from stream.engine.outputs import MessageMark
from stream.errors import DataError, DestroyedKeyError
from stream.pipeline import ABSENT, RADIOS
from stream.policy.counts import LONGEST_W
from stream.records import DAY, HOUR, JsonObject
from stream.release.paid_days import ELSEWHERE
from stream.sensing.state import FORM, SensingStatus, decode_status

# --- one site -----------------------------------------------------------------------------------------

SiteParts = dict[str, bytes]
"""The byte form of each part of a site's state, by name (``domains.Part``)."""
CLOCK = Part.CLOCK
"""Name of the clear part of the sensing state, with the clock, in a site that was opened without a key."""
CLEAR: frozenset[str] = frozenset({CLOCK, Part.RELEASE, Part.ACCOUNT, RADIOS, ABSENT})
"""Names of the clear parts. Only the clock of the sensing state and only the head of the release state are clear."""
_ZONES, _PARTS, _NO_PARTS = b',"zones":', b',"parts":', b',"parts":[]}\n'


def seal_site(name: str, stages: Mapping[str, bytes], vault: Vault | None = None, key_day: int = -1) -> bytes:
    """Return one site's states as one value, encrypted under the key of a day or the oldest one available."""
    if vault is None:
        return seal(Kind.SITE, join_parts({}, stages), compress=True)
    clear = {each: data for each, data in stages.items() if each in CLEAR}
    secret = {each: data for each, data in stages.items() if each not in CLEAR}
    clear[CLOCK] = encode_sensing_status(stages)
    clear[Part.RELEASE], secret[Part.RELEASE] = _split_release(stages[Part.RELEASE])
    return seal(
        Kind.SITE, join_parts({}, secret), clear=join_parts({"site": name}, clear), compress=True,
        lock=vault.lock(key_day),
    )  # fmt: skip


def open_site(name: str, site: bytes, vault: Vault | None = None) -> SiteParts:
    """Return the states that :func:`seal_site` wrote; without a vault only their clear parts.

    If a site was absent from the policy until its day's key was destroyed, only its ledger and account are returned,
    without devices.

    Raises:
        DataError: ``site`` is not such a value, or belongs to another site.
        KeyFileError: its key was destroyed, or it was encrypted under another data key.
    """
    if not is_encrypted(site):
        return split_parts(unseal(Kind.SITE, site))[1]
    head, stages = split_parts(clear_of(Kind.SITE, site))
    if head.get("site") != name:
        raise DataError(f"site {name}: state must be its own, is another site's")
    if vault is None:
        return stages
    try:
        secret = split_parts(unseal(Kind.SITE, site, vault))[1]
    except DestroyedKeyError:
        if ABSENT not in stages:
            raise
        return _without_devices(stages)
    del stages[CLOCK]
    release = stages[Part.RELEASE].removesuffix(_NO_PARTS) + _PARTS + secret[Part.RELEASE]
    return stages | secret | {Part.RELEASE: release}


def sensing_status(stages: Mapping[str, bytes]) -> SensingStatus:
    """Return the progress of a site's clock; its states may have been opened without a key."""
    return decode_status(encode_sensing_status(stages))


def encode_sensing_status(stages: Mapping[str, bytes]) -> bytes:
    """Return the clear part of a site's sensing state: its version, clock and ticks."""
    if CLOCK in stages:
        return stages[CLOCK]
    return (
        stages[Part.SENSE].partition(_ZONES)[0] + b"}"
    )  # the pattern cannot occur in a string: its quotes would be escaped


def _split_release(data: bytes) -> tuple[bytes, bytes]:
    """Return the head of the release state as a form without parts, and the bytes that complete it again."""
    line, _, parts = data.partition(b"\n")
    head, _, lengths = line.rpartition(_PARTS)
    return head + _NO_PARTS, lengths + b"\n" + parts


def _without_devices(stages: SiteParts) -> SiteParts:
    """Return a site's states, made from the clear parts only.

    Bounded counts resume two days after the site's last window, when its last privacy day is certainly over. Mechanisms
    that carry publications over are blocked for the longest w.
    """
    status, (head, _) = orjson.loads(stages[CLOCK]), split_parts(stages[Part.RELEASE])
    nobody: dict[str, list[object]] = {
        each: [] for each in ("zones", "current", "stamps", "pending", "rows", "stays", "counters")
    }
    counted: list[object] = [None, None, (status["ticks"][1] or 0) + 2 * DAY, [], []]
    sense = {"form": FORM, "clock": status["clock"], "ticks": status["ticks"]} | nobody | {"tally": counted}
    if head["carried"]:
        head |= {"carried": {}, "waits": max(head["waits"], head["through"] + LONGEST_W * HOUR)}
    return {**stages, Part.SENSE: orjson.dumps(sense), Part.RELEASE: join_parts(head, {})}


def ledger_and_account_only(stages: SiteParts) -> SiteParts:
    """Return the states with which another ledger continues: ledger and account, and no devices.

    An unfinished privacy day is not continued: its price paid for one run of the counters, with one noise.
    """
    clear = {name: data for name, data in stages.items() if name in CLEAR}
    continued = _without_devices(clear | {CLOCK: encode_sensing_status(stages), ABSENT: b""})
    head, _ = split_parts(continued[Part.RELEASE])
    if "paid" in head:
        head["paid"] = {release: [[*day, ELSEWHERE] for *day, _ in days] for release, days in head["paid"].items()}
    return continued | {Part.RELEASE: join_parts(head, {})}


def chain_anew(stages: SiteParts) -> SiteParts:
    """Return states whose next entries begin a new hash chain."""
    head, parts = split_parts(stages[Part.RELEASE])
    head["ledger"] |= {"sequence": 0, "head": GENESIS}
    return stages | {Part.RELEASE: join_parts(head, parts)}


# --- the partition ------------------------------------------------------------------------------------


class SnapshotHead(NamedTuple):
    """The part of a snapshot that is readable without any key."""

    next_offset: int
    """The offset of the next observation to process."""
    audit_offset: int
    """The offset up to which the state contains the audit partition."""
    policy: str
    """The version of the policy under which the state was made."""
    mechanisms: str
    """The mechanism version that continues from the state."""
    key: str
    """The fingerprint of the key file."""
    last: MessageMark | None
    """The last message that the state includes; None if it is not known."""
    before: str | None = None
    """The mechanism version that made the state, if it was adopted by ``mechanisms`` or by another ledger since."""

    @property
    def is_adopted(self) -> bool:
        """Whether windows that have begun are not continued from this state."""
        return self.before is not None

    @property
    def made_by(self) -> str:
        """The mechanism version that made the state."""
        return self.mechanisms if self.before is None else self.before

    def document(self) -> JsonObject:
        """Return the JSON object of a snapshot."""
        head = {
            "next": self.next_offset, "audit": self.audit_offset, "policy": self.policy,
            "mechanisms": self.mechanisms, "key": self.key, "last": self.last,
        }  # fmt: skip
        return head if self.before is None else head | {"before": self.before, "adopt": True}

    @classmethod
    def of_document(cls, document: JsonObject) -> SnapshotHead:
        """Return the head of a JSON object; DataError if it lacks a field."""
        try:
            last = document["last"]
            return cls(
                int(document["next"]), int(document["audit"]), str(document["policy"]), str(document["mechanisms"]),
                str(document["key"]), None if last is None else (int(last[0]), str(last[1])),
                str(document["before"]) if document.get("adopt", False) else None,
            )  # fmt: skip
        except (KeyError, ValueError, TypeError, IndexError):
            raise DataError("snapshot: must have the fields of its head") from None


def seal_snapshot(head: SnapshotHead, sites: Mapping[str, bytes]) -> bytes:
    """Return a snapshot of sealed sites."""
    return seal(Kind.SNAPSHOT, join_parts(head.document(), dict(sorted(sites.items()))))


def unpack_snapshot(snapshot: bytes) -> tuple[SnapshotHead, dict[str, bytes]]:
    """Return a snapshot's head and its sealed sites; DataError if it is not a snapshot."""
    head, sites = split_parts(unseal(Kind.SNAPSHOT, snapshot))
    return SnapshotHead.of_document(head), sites


def open_snapshot(snapshot: bytes, vault: Vault | None = None) -> tuple[SnapshotHead, dict[str, SiteParts]]:
    """Return a snapshot's head and its sites; without a vault the encrypted parts of sites are left out.

    DataError if it is not a snapshot, KeyFileError as for ``open_site``.
    """
    head, sites = unpack_snapshot(snapshot)
    return head, {site: open_site(site, data, vault) for site, data in sites.items()}


def chains(snapshot: bytes) -> dict[str, tuple[int, str]]:
    """Return for each site how many ledger entries the state knows, and the hash of the last."""
    _, sites = open_snapshot(snapshot)
    return {site: chain_of(stages) for site, stages in sites.items()}


def chain_of(stages: SiteParts) -> tuple[int, str]:
    """Return how many ledger entries a site's state knows, and the hash of the last."""
    ledger = split_parts(stages[Part.RELEASE])[0]["ledger"]
    return int(ledger["sequence"]), str(ledger["head"])
