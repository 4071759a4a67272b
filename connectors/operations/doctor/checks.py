"""The checks of ``tacet doctor``, each a generator of findings. None of them writes anything.

* Probes: which controllers answer a probe that the policy declares. Each is queried once; a receiver queries every
  minute.
* Cluster: whether a policy's topics exist, with which number of partitions and which settings.
* Store: its owner, its policy, the positions of its sites, and what its receiver has dropped.
* Key file and its rollback mark: who can read them, what they serve, and the last key day.
* Machine: clock, socket buffer, disk space and installed versions.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
import shutil
import stat
from collections.abc import Iterator, Mapping
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

import orjson
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV

from connectors.keys import key_files
from connectors.operations.audit.kafka_bundle import cluster_books
from connectors.operations.audit.verification import AuditBundle, compare, store_bundle
from connectors.operations.doctor.findings import Finding, fine, note, wrong
from connectors.operations.doctor.live_check import drops
from connectors.operations.status import describe
from connectors.sources.ingest.listeners import RECEIVE_BUFFER
from connectors.sources.ingest.receiver import KERNEL
from connectors.sources.ingest.state import Pair
from connectors.sources.probes.methods import ProbeMethod
from connectors.storage.embedded.reader import OPERATOR_BOX, last_given, read_identity, read_outbox, read_snapshot
from connectors.storage.embedded.rollback_mark import mark_path, read_marks
from connectors.storage.kafka.client import NotAllowedError
from connectors.storage.kafka.topics import BESIDES, TopicSettings, existing_topics, topic_names, wrong_settings
from stream.accounting.audit import by_release
from stream.records import DAY, EPOCH, MINUTE, SECOND, Micros
from stream.release.validation import Policy
from stream.schemas import AUDIT, CONTROL, parse_time

PROBE = "probe"


async def answers(asked: Mapping[Pair, ProbeMethod]) -> list[Finding]:
    """Return which sources answer, by site and the policy's entry."""
    given = await asyncio.gather(*(asking.probe() for asking in asked.values()))
    return [
        wrong(PROBE, f"{source} of {site} does not answer: its windows are not covered; is it up, and let through?")
        if answer is None
        else fine(PROBE, f"{source} of {site} answers")
        for (site, source), answer in zip(asked, given, strict=True)
    ]


TOPICS = "topics"


async def cluster(bootstrap: str, policy: Policy) -> list[Finding]:
    """Check a policy's topics and their records; nothing is written, and no consumer group is joined."""
    names = [*topic_names(policy), *BESIDES]
    held = await existing_topics(bootstrap, names)
    found = list(topics(names, held))
    if {AUDIT, CONTROL} <= held.keys():
        try:
            found += records(await cluster_books(bootstrap, records=True))
        except NotAllowedError:
            found.append(note(RECORDS, "not compared with the ledger: this user may not; 'tacet audit verify' does it"))
    return found


RECORDS = "published records"


def records(books: AuditBundle) -> Iterator[Finding]:
    """Yield which records were charged and are not there."""
    compared = compare(books)
    for each in by_release(compared.missing):
        yield wrong(RECORDS, f"{each}: 'tacet recover' says what can be done")
    if not compared.missing:
        yield fine(RECORDS, f"{compared.records:,} there, each charged as it says")


def topics(names: list[str], held: Mapping[str, TopicSettings]) -> Iterator[Finding]:
    """Yield the topics that are missing, have a different number of partitions, or have wrong settings."""
    if missing := [name for name in names if name not in held]:
        yield wrong(TOPICS, f"{len(missing)} missing, such as {missing[0]}: 'tacet topics create' makes them")
    divided = {name: topic.partitions for name, topic in held.items() if name != CONTROL}
    if len(set(divided.values())) > 1:
        least, most = min(divided, key=divided.__getitem__), max(divided, key=divided.__getitem__)
        yield wrong(TOPICS, f"must have equal partitions: {least} has {divided[least]}, {most} has {divided[most]}")
    faults = [fault for name, topic in sorted(held.items()) for fault in wrong_settings(name, topic)]
    for fault in faults:
        yield (wrong if fault.dangerous else note)(TOPICS, f"{fault}; {fault.remedy()}")
    if not missing and not faults:
        yield fine(TOPICS, f"{len(held)} there, set as they should be")


# The embedded store: whose it is, under which policy it goes, where its sites stand, what its receiver has dropped.

STORE, SITE, RECEIVED = "store", "site", "received"
SILENT: Micros = 15 * MINUTE
"""A site of a live run that is behind the clock by this much has stopped."""


def store(folder: Path, policy: Policy, now: Micros) -> Iterator[Finding]:
    """Check a store; nothing is written, and a running process is not blocked."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield wrong(STORE, f"{folder}: has mode {mode:04o}, which others can enter: chmod 700")
    snapshot, waiting = read_snapshot(folder)
    if snapshot is None:
        yield note(STORE, "nothing has been processed yet")
        return
    report = describe(snapshot, policy)
    if report["policy_version"] == policy.version:
        yield fine(STORE, f"goes by this policy ({policy.version}); {waiting} message(s) wait")
    else:
        held = report["policy_version"]
        yield wrong(STORE, f"goes by policy {held}, this one is {policy.version}: 'tacet policy diff', --accept-policy")
    for name, site in report["sites"].items():
        yield from _site(name, site, now)
    yield from _received(folder)
    yield from records(store_bundle(folder, records=True))


def _site(name: str, site: Mapping[str, Any], now: Micros) -> Iterator[Finding]:
    if site["closed"]:
        yield wrong(
            SITE, f"{name}: closed, it had more devices than max_devices: 'tacet recover' says how to reopen it"
        )
    reached = None if site["watermark"] is None else parse_time(site["watermark"])
    if reached is None:
        yield note(SITE, f"{name}: no source has been heard of yet")
    elif now - reached > SILENT:
        behind = (now - reached) // MINUTE
        yield note(SITE, f"{name}: {behind:,} min behind the clock: a recording, or a run that has stopped")
    else:
        yield fine(SITE, f"{name}: last window {site['last_window'] or 'none yet'}, {site['ledger_entries']:,} charges")


def _received(folder: Path) -> Iterator[Finding]:
    """Yield what the receiver of a store's run has dropped, as the run last recorded it."""
    for finding in drops(dropped_datagrams(folder) or {}):
        yield Finding(RECEIVED, finding.state, f"{finding.text} (since the run began)")


def dropped_datagrams(folder: Path) -> dict[str, int] | None:
    """Return the datagrams that the receiver of a store's run has dropped, by reason.

    None if the run has not recorded any: the sums step every five minutes, and need enough access points.
    """
    last = last_given(folder, OPERATOR_BOX)
    rows = read_outbox(folder, OPERATOR_BOX, last - 1, most=1) if last else []
    traps = orjson.loads(rows[0][1])["traps"] if rows else None
    return None if traps is None else {**traps["dropped"], KERNEL: traps["kernel_drops"]}


KEY, MARK = "key file", "mark"
LATE_DAYS = 3
"""A production key that still holds a day so far back has not stepped on: that day's noise can be undone with it."""


def key_file(path: Path, now: Micros) -> Iterator[Finding]:
    """Check a key file; ``now`` in microseconds since 1970."""
    yield from _mode(KEY, path)
    if key_files.is_laboratory(path):
        yield note(KEY, "a laboratory's, which can draw any day's noise again: for simulated and recorded data only")
        return
    day = key_files.oldest_key_day(path)
    if day is None:
        yield fine(KEY, "a production key that has not been used yet")
        return
    text = f"a production key that holds {(EPOCH + timedelta(days=day)).date()} and every later day"
    late = now // DAY - day
    if late > LATE_DAYS:
        yield wrong(KEY, f"{text}: it has not stepped on for {late} days; is anything running with it?")
    else:
        yield fine(KEY, text)


def serves(path: Path, store: Path | None) -> Iterator[Finding]:
    """Yield what a key serves, and whether its mark knows the store."""
    bound = key_files.store_of(path)
    if bound is not None and bound.startswith("cluster "):
        yield fine(KEY, f"serves {bound}")
        return
    mark = mark_path(path)
    if not mark.exists():
        used = bound is not None
        yield wrong(MARK, "is gone, though the key was used: 'tacet recover'") if used else fine(MARK, "not made yet")
        return
    yield from _mode(MARK, mark)
    marks = read_marks(path)
    if store is None:
        yield fine(MARK, f"knows {len(marks)} store(s)")
        return
    name = read_identity(store)
    if name not in marks:
        yield wrong(
            MARK, "does not know this store: it belongs to another key, or was put back; 'tacet recover' says more"
        )
    else:
        yield fine(MARK, f"knows this store, and how far {len(marks[name])} site(s) of it were published")


def _mode(check: str, path: Path) -> Iterator[Finding]:
    """Yield whether a file is readable by its owner only, and whether the owner is the present user."""
    held = path.stat()
    mode = stat.S_IMODE(held.st_mode)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield wrong(check, f"{path}: has mode {mode:04o}, which others can read: chmod 600")
    elif held.st_uid != os.geteuid():
        yield note(check, f"{path}: belongs to user {held.st_uid}, not to who asks")
    else:
        yield fine(check, f"{path}: mode {mode:04o}, its owner's alone")


CLOCK, SOCKET, DISK, VERSIONS = "clock", "socket buffer", "disk", "versions"
LEAST_FREE = 1 << 30
"""Octets that a disk must have free."""
MOST_SKEW = SECOND
"""Tolerated clock error in microseconds, as the kernel estimates it: far below a tick, and below a clock step."""
RMEM_MAX = Path("/proc/sys/net/core/rmem_max")
DISTRIBUTION = "tacet-occupancy"
TOLD = ("numpy", "pydantic", "aiokafka", "faust-streaming", "cryptography", "orjson")
_UNSYNCHRONISED = 5
"""TIME_ERROR of adjtimex(2)."""


class _Timex(ctypes.Structure):
    """The first fields of ``struct timex``, with space for the rest."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 512),
    )


def kernel_clock() -> tuple[bool, int] | None:
    """Return whether the kernel's clock is synchronised, and its maximal error in microseconds.

    None if the kernel does not report it: on systems other than Linux, or without permission.
    """
    try:
        answer, asked = _Timex(), ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):
        return None
    state = asked(ctypes.byref(answer))
    return None if state < 0 else (state != _UNSYNCHRONISED, int(answer.maxerror))


def clock(kept: tuple[bool, int] | None) -> Iterator[Finding]:
    """Check the wall clock, as reported by ``kernel_clock``."""
    if kept is None:
        yield note(CLOCK, "the kernel does not say whether it is kept in step (NTP)")
    elif not kept[0]:
        yield note(CLOCK, "nobody keeps it in step: run an NTP service; a step of more than 5 s stops a receiver")
    elif kept[1] > MOST_SKEW:
        yield wrong(CLOCK, f"kept in step, but may be off by {kept[1] / SECOND:.1f} s: look at the NTP service")
    else:
        yield fine(CLOCK, f"kept in step, off by at most {kept[1] / SECOND:.3f} s")


def socket_buffer(file: Path = RMEM_MAX) -> Iterator[Finding]:
    """Yield whether a receiver's socket gets the buffer that it requests."""
    try:
        allowed = int(file.read_text())
    except (OSError, ValueError):
        yield note(SOCKET, "this system does not say how much a socket may hold")
        return
    if allowed < RECEIVE_BUFFER:
        yield wrong(
            SOCKET,
            f"may hold {allowed:,} octets, {RECEIVE_BUFFER:,} are wanted: sysctl -w net.core.rmem_max={RECEIVE_BUFFER}",
        )
    else:
        yield fine(SOCKET, f"may hold {allowed:,} octets")


def disk(folder: Path) -> Iterator[Finding]:
    """Yield whether a store's disk has space for a second copy of the store, and at least 1 GiB."""
    held = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    free, least = shutil.disk_usage(folder).free, max(LEAST_FREE, held)
    text = f"{_megabytes(free)} free where the store is, which has {_megabytes(held)}"
    yield fine(DISK, text) if free >= least else wrong(DISK, f"{text}: {_megabytes(least)} are wanted")


def versions() -> Iterator[Finding]:
    """Yield installed versions, and whether encryption at rest is available."""
    told = ", ".join(f"{name} {metadata.version(name)}" for name in TOLD)
    yield fine(VERSIONS, f"Python {platform.python_version()}, {_own_version()}, {told}")
    try:
        AESGCMSIV(bytes(32))
    except UnsupportedAlgorithm:
        yield wrong(
            VERSIONS, "cryptography has no AES-GCM-SIV here: install its wheel, which brings an OpenSSL with it"
        )


def _own_version() -> str:
    try:
        return f"tacet {metadata.version(DISTRIBUTION)}"
    except metadata.PackageNotFoundError:
        return "tacet from its sources"


def _megabytes(octets: int) -> str:
    return f"{octets / 1e6:,.0f} MB"
