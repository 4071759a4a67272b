"""The byte form of one site's states: an envelope whose books anybody can read, and whose people only who has the key.

Clear are the site's name, the books (ledger, charges, account), the radios of its zones, and where its clock stands.
Presence, counts, the day at hand and what mechanisms remember lie under the data key of the oldest day that the site
still needs, so they become unreadable with it. Where a pipeline has no vault, the form is the one before: all is clear.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from cramjam import DecompressionError, zstd

from stream.accounting.ledger import GENESIS
from stream.envelope import Kind, clear_of, is_encrypted, join_parts, seal, split_parts, unseal, version_of
from stream.errors import DataError, GoneKeyError
from stream.pipeline import AWAY, RADIOS
from stream.policy.queries import LONGEST_W
from stream.records import DAY, HOUR
from stream.release.paid_days import ELSEWHERE
from stream.sensing.sense_state import Standing, standing
from stream.vault import Vault

Stages = dict[str, bytes]
"""The byte form of each stage's state, by name."""
STANDING = "standing"
"""Under this name lies, in a site that was opened without a key, where its clock stands: the beginning of its sense."""
CLEAR = frozenset({STANDING, "release", "account", RADIOS, AWAY})
"""What is clear; of the sense only the standing, of the releases only the head. All else is encrypted."""
_ZONES, _PARTS, _NO_PARTS = b',"zones":', b',"parts":', b',"parts":[]}\n'


def seal_site(name: str, stages: Mapping[str, bytes], vault: Vault | None = None, key_day: int = -1) -> bytes:
    """Return one site's states as one value, encrypted under the key of a day, or the oldest one that is held."""
    if vault is None:
        return seal(Kind.SITE, join_parts({}, stages), compress=True)
    clear = {each: data for each, data in stages.items() if each in CLEAR}
    secret = {each: data for each, data in stages.items() if each not in CLEAR}
    clear[STANDING] = standing_form(stages)
    clear["release"], secret["release"] = _split_release(stages["release"])
    return seal(
        Kind.SITE, join_parts({}, secret), clear=join_parts({"site": name}, clear), compress=True,
        lock=vault.lock(key_day),
    )  # fmt: skip


def open_site(name: str, site: bytes, vault: Vault | None = None) -> Stages:
    """Return the states of :func:`seal_site`; without a vault only the clear ones of a site that is encrypted.

    A site that no policy has had for so long that its day's key is gone comes back with its books, and nobody in it.

    Raises:
        DataError: it is no such value, or another site's.
        KeyFileError: its key is gone, or it was encrypted under another one.
    """
    if version_of(site) == 1:
        return _opened_1(site)
    if not is_encrypted(site):
        return split_parts(unseal(Kind.SITE, site))[1]
    head, stages = split_parts(clear_of(Kind.SITE, site))
    if head.get("site") != name:
        raise DataError(f"site {name}: state must be its own, is another site's")
    if vault is None:
        return stages
    try:
        secret = split_parts(unseal(Kind.SITE, site, vault))[1]
    except GoneKeyError:
        if AWAY not in stages:
            raise
        return _forgotten(stages)
    del stages[STANDING]
    return stages | secret | {"release": stages["release"].removesuffix(_NO_PARTS) + _PARTS + secret["release"]}


def _opened_1(site: bytes) -> Stages:
    try:
        return {name: bytes(zstd.decompress(data)) for name, data in split_parts(site)[1].items()}
    except DecompressionError:
        msg = "state: must be stages compressed one by one"
        raise DataError(msg) from None


def standing_of(stages: Mapping[str, bytes]) -> Standing:
    """Return where a site's clock stands; its states may have been opened without a key."""
    return standing(standing_form(stages))


def standing_form(stages: Mapping[str, bytes]) -> bytes:
    """Return what is clear of a site's sense: its form, clock and ticks."""
    if STANDING in stages:
        return stages[STANDING]
    return stages["sense"].partition(_ZONES)[0] + b"}"  # within a string the quotes would be escaped


def _split_release(data: bytes) -> tuple[bytes, bytes]:
    """Return the head of the release stage's form as one without parts, and what it takes to make it whole again."""
    line, _, parts = data.partition(b"\n")
    head, _, lengths = line.rpartition(_PARTS)
    return head + _NO_PARTS, lengths + b"\n" + parts


def _forgotten(stages: Stages) -> Stages:
    """Return the states of a site of which only the clear ones are left.

    Nobody is bounded until two days after its last window, within which its last privacy day is over; what carries
    publications waits for the longest w there is.
    """
    standing, (head, _) = orjson.loads(stages[STANDING]), split_parts(stages["release"])
    nobody: dict[str, list[object]] = {
        each: [] for each in ("zones", "current", "stamps", "pending", "rows", "stays", "counters")
    }
    counted: list[object] = [None, None, (standing["ticks"][1] or 0) + 2 * DAY, [], []]
    sense = {"form": 3, "clock": standing["clock"], "ticks": standing["ticks"]} | nobody | {"tally": counted}
    if head["carried"]:
        head |= {"carried": {}, "waits": max(head["waits"], head["through"] + LONGEST_W * HOUR)}
    return {**stages, "sense": orjson.dumps(sense), "release": join_parts(head, {})}


def books_only(stages: Stages) -> Stages:
    """Return the states with which another ledger goes on: the books, and nobody.

    No privacy day that was begun is gone on with: it was paid for one run of counters, with one noise.
    """
    clear = {name: data for name, data in stages.items() if name in CLEAR}
    begun = _forgotten(clear | {STANDING: standing_form(stages), AWAY: b""})
    head, _ = split_parts(begun["release"])
    if "paid" in head:
        head["paid"] = {release: [[*day, ELSEWHERE] for *day, _ in days] for release, days in head["paid"].items()}
    return begun | {"release": join_parts(head, {})}


def chain_anew(stages: Stages) -> Stages:
    """Return states whose entries to come begin a hash chain of their own."""
    head, parts = split_parts(stages["release"])
    head["ledger"] |= {"sequence": 0, "head": GENESIS}
    return stages | {"release": join_parts(head, parts)}
