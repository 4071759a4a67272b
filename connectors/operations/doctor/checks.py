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

import orjson
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV

from connectors.keys import key_files
from connectors.operations.audit.kafka_bundle import cluster_bundle
from connectors.operations.audit.verification import AuditBundle, compare, store_bundle
from connectors.operations.doctor.findings import Finding, fine, note, wrong
from connectors.operations.doctor.live_check import drops
from connectors.operations.recovery.store import key_obstacles
from connectors.operations.status import SiteStatus, describe
from connectors.sources.ingest.listeners import RECEIVE_BUFFER
from connectors.sources.ingest.receiver import KERNEL
from connectors.sources.ingest.state import Pair
from connectors.sources.probes.methods import ProbeMethod
from connectors.storage.embedded.reader import OPERATOR_OUTBOX, last_number, read_outbox, read_snapshot, require_store
from connectors.storage.embedded.rollback_mark import mark_path, read_marks
from connectors.storage.kafka.client import NotAllowedError
from connectors.storage.kafka.topic_settings import TopicSettings, wrong_settings
from connectors.storage.kafka.topics import BESIDES, existing_topics, topic_names
from stream.accounting.audit import by_release
from stream.errors import AuditError
from stream.records import DAY, EPOCH, MINUTE, SECOND, Micros
from stream.release.validation import Policy
from stream.schemas import AUDIT, CONTROL, parse_time, rfc3339

PROBE = "probe"


async def answers(probes: Mapping[Pair, ProbeMethod]) -> list[Finding]:
    """Return which sources answer, by site and the policy's entry."""
    results = await asyncio.gather(*(probe.probe() for probe in probes.values()))
    return [
        wrong(
            PROBE,
            f"{source} of {site} does not answer, so its windows have no coverage: check that it is up and that the "
            "firewall lets the probe through",
        )
        if answer is None
        else fine(PROBE, f"{source} of {site} answers")
        for (site, source), answer in zip(probes, results, strict=True)
    ]


TOPICS = "topics"


async def cluster(bootstrap: str, policy: Policy) -> list[Finding]:
    """Check a policy's topics and their records; nothing is written, and no consumer group is joined."""
    names = [*topic_names(policy), *BESIDES]
    existing = await existing_topics(bootstrap, names)
    found = list(topics(names, existing))
    if {AUDIT, CONTROL} <= existing.keys():
        try:
            found += records(await cluster_bundle(bootstrap, records=True))
        except NotAllowedError:
            found.append(
                note(
                    RECORDS,
                    "not compared, because this user may not read the ledger: use 'tacet audit verify'",
                )
            )
    return found


RECORDS = "published records"


def records(bundle: AuditBundle) -> Iterator[Finding]:
    """Yield which records were charged and are missing, or which one was never charged."""
    try:
        compared = compare(bundle)
    except AuditError as broken:
        yield wrong(RECORDS, f"{broken}: 'tacet recover' lists the remedies")
        return
    for each in by_release(compared.missing):
        yield wrong(RECORDS, f"{each}: 'tacet recover' lists the remedies")
    if not compared.missing:
        yield fine(RECORDS, f"{compared.records:,} exist, each with its charge")


def topics(names: list[str], existing: Mapping[str, TopicSettings]) -> Iterator[Finding]:
    """Yield the topics that are missing, have a different number of partitions, or have wrong settings."""
    if missing := [name for name in names if name not in existing]:
        yield wrong(TOPICS, f"{len(missing)} missing, such as {missing[0]}: run 'tacet topics create'")
    counts = {name: topic.partitions for name, topic in existing.items() if name != CONTROL}
    if len(set(counts.values())) > 1:
        least, most = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
        yield wrong(
            TOPICS,
            f"must have equal partitions: {least} has {counts[least]}, {most} has {counts[most]}; 'tacet recover "
            "--kafka' lists the remedies",
        )
    faults = [fault for name, topic in sorted(existing.items()) for fault in wrong_settings(name, topic)]
    for fault in faults:
        yield (wrong if fault.dangerous else note)(TOPICS, f"{fault}; {fault.remedy()}")
    if not missing and not faults:
        yield fine(TOPICS, f"{len(existing)} exist, with the right settings")


# The embedded store: its mode, policy and sites, and what its receiver has dropped.

STORE, SITE, RECEIVED = "store", "site", "received"
SILENT: Micros = 15 * MINUTE
"""A site of a live run that is behind the clock by this much has stopped."""


def store(folder: Path, policy: Policy, now: Micros) -> Iterator[Finding]:
    """Check a store; nothing is written, and a running process is not blocked."""
    require_store(folder)
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield wrong(STORE, f"{folder}: has mode {mode:04o}, so others can enter: run 'chmod 700 {folder}'")
    snapshot, waiting = read_snapshot(folder)
    if snapshot is None:
        yield note(STORE, "nothing has been processed yet")
        return
    report = describe(snapshot, policy)
    if report["policy_version"] == policy.version:
        yield fine(STORE, f"continues under this policy ({policy.version}); messages not processed yet: {waiting}")
    else:
        current = report["policy_version"]
        yield wrong(
            STORE,
            f"continues under policy {current}, the given policy is {policy.version}: compare them with 'tacet policy "
            "diff', then give the other policy or run 'tacet run --accept-policy'",
        )
    for name, site in report["sites"].items():
        yield from _site(name, site, now)
    yield from _received(folder)
    yield from records(store_bundle(folder, records=True))


def _site(name: str, site: SiteStatus, now: Micros) -> Iterator[Finding]:
    if site["closed"]:
        yield wrong(
            SITE,
            f"{name}: suspended because it had more devices than max_devices: 'tacet recover' shows how to resume it",
        )
    reached = None if site["watermark"] is None else parse_time(site["watermark"])
    if reached is None:
        yield note(SITE, f"{name}: no source has reported yet")
    elif now - reached > SILENT:
        late = now - reached
        behind = f"{late // MINUTE:,} min" if late < 2 * DAY else f"{late // DAY:,} days"
        yield note(
            SITE,
            f"{name}: has reached {rfc3339(reached)}, {behind} behind the clock: either this store is of a "
            "recording, or its run has stopped",
        )
    else:
        yield fine(SITE, f"{name}: last window {site['last_window'] or 'none yet'}, {site['ledger_entries']:,} charges")


def _received(folder: Path) -> Iterator[Finding]:
    """Yield what the receiver of a store's run has dropped, as the run last recorded it."""
    for finding in drops(dropped_datagrams(folder) or {}):
        yield Finding(RECEIVED, finding.state, f"{finding.text} (since the start of the run)")


def dropped_datagrams(folder: Path) -> dict[str, int] | None:
    """Return the datagrams that the receiver of a store's run has dropped, by reason.

    None if the run has not recorded any: the sums step every five minutes, and need enough access points.
    """
    last = last_number(folder, OPERATOR_OUTBOX)
    rows = read_outbox(folder, OPERATOR_OUTBOX, last - 1, most=1) if last else []
    traps = orjson.loads(rows[0][1])["traps"] if rows else None
    return None if traps is None else {**traps["dropped"], KERNEL: traps["kernel_drops"]}


KEY, MARK = "key file", "mark"
LATE_DAYS = 3
"""A production key that still has a day so far back was not moved forward: with it, that day's noise can be removed."""


def key_file(path: Path, now: Micros) -> Iterator[Finding]:
    """Check a key file; ``now`` in microseconds since 1970."""
    yield from _mode(KEY, path)
    if key_files.is_laboratory(path):
        yield note(
            KEY, "a laboratory key, which can draw the noise of any day again: only for simulated and recorded data"
        )
        return
    day = key_files.oldest_key_day(path)
    if day is None:
        yield fine(KEY, "a production key that has not been used yet")
        return
    text = f"a production key that has {(EPOCH + timedelta(days=day)).date()} and all later days"
    late = now // DAY - day
    if late > LATE_DAYS:
        yield wrong(KEY, f"{text}: it has not moved forward for {late} days; check that a run or worker uses this file")
    else:
        yield fine(KEY, text)


def serves(path: Path, store: Path | None) -> Iterator[Finding]:
    """Yield what a key serves, and whether key and mark fit the store, as ``tacet recover`` judges it."""
    bound, mark = key_files.store_of(path), mark_path(path)
    if mark.exists():
        yield from _mode(MARK, mark)
    if store is not None:
        obstacles = key_obstacles(store, path)
        for obstacle in obstacles:
            yield wrong(MARK, f"{obstacle.what}: 'tacet recover' lists the remedies")
        if not obstacles:
            yield fine(MARK, "fits this store" if mark.exists() else "not made yet; the first run makes it")
    elif bound is not None and bound.startswith("cluster "):
        yield fine(KEY, f"serves {bound}")
    elif mark.exists():
        yield fine(MARK, f"of {len(read_marks(path))} store(s)")
    elif bound is not None:
        yield wrong(MARK, f"{mark}: is missing, although the key was used: 'tacet recover' lists the remedies")
    else:
        yield fine(MARK, "not made yet; the first run makes it")


def _mode(check: str, path: Path) -> Iterator[Finding]:
    """Yield whether a file is readable by its owner only, and whether the owner is the present user."""
    status = path.stat()
    mode = stat.S_IMODE(status.st_mode)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield wrong(check, f"{path}: has mode {mode:04o}, so others can read it: run 'chmod 600 {path}'")
    elif status.st_uid != os.geteuid():
        yield note(check, f"{path}: belongs to user {status.st_uid}, not to the user of this command")
    else:
        yield fine(check, f"{path}: mode {mode:04o}, only its owner can read it")


CLOCK, SOCKET, DISK, VERSIONS = "clock", "socket buffer", "disk", "versions"
LEAST_FREE = 1 << 30
"""Octets that a disk must have free."""
MOST_SKEW = SECOND
"""Tolerated clock error in microseconds, as the kernel estimates it: far below a tick, and below a clock step."""
RMEM_MAX = Path("/proc/sys/net/core/rmem_max")
DISTRIBUTION = "tacet-occupancy"
LIBRARIES = ("numpy", "pydantic", "aiokafka", "faust-streaming", "cryptography", "orjson")
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
        answer, adjtimex = _Timex(), ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):
        return None
    state = adjtimex(ctypes.byref(answer))
    return None if state < 0 else (state != _UNSYNCHRONISED, int(answer.maxerror))


def clock(reported: tuple[bool, int] | None) -> Iterator[Finding]:
    """Check the wall clock, as reported by ``kernel_clock``."""
    if reported is None:
        yield note(CLOCK, "the kernel does not report whether the clock is synchronised (NTP)")
    elif not reported[0]:
        yield note(CLOCK, "not synchronised: run an NTP service; a step of more than 5 s stops a receiver")
    elif reported[1] > MOST_SKEW:
        yield wrong(CLOCK, f"synchronised, but the error may be {reported[1] / SECOND:.1f} s: check the NTP service")
    else:
        yield fine(CLOCK, f"synchronised, with an error of at most {reported[1] / SECOND:.3f} s")


def socket_buffer(file: Path = RMEM_MAX) -> Iterator[Finding]:
    """Yield whether a receiver's socket gets the buffer that it requests."""
    try:
        allowed = int(file.read_text())
    except (OSError, ValueError):
        yield note(SOCKET, "this system does not report the largest receive buffer")
        return
    if allowed < RECEIVE_BUFFER:
        yield wrong(
            SOCKET,
            f"at most {allowed:,} octets, a receiver requests {RECEIVE_BUFFER:,}: run 'sysctl -w "
            f"net.core.rmem_max={RECEIVE_BUFFER}'",
        )
    else:
        yield fine(SOCKET, f"at most {allowed:,} octets")


def disk(folder: Path) -> Iterator[Finding]:
    """Yield whether a store's disk has space for a second copy of the store, and at least 1 GiB."""
    used = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    free, least = shutil.disk_usage(folder if folder.exists() else folder.absolute().parent).free, max(LEAST_FREE, used)
    text = f"{_megabytes(free)} free, the store has {_megabytes(used)}"
    yield fine(DISK, text) if free >= least else wrong(DISK, f"{text}: {_megabytes(least)} must be free")


def versions() -> Iterator[Finding]:
    """Yield installed versions, and whether encryption at rest is available."""
    libraries = ", ".join(f"{name} {metadata.version(name)}" for name in LIBRARIES)
    yield fine(VERSIONS, f"Python {platform.python_version()}, {_own_version()}, {libraries}")
    try:
        AESGCMSIV(bytes(32))
    except UnsupportedAlgorithm:
        yield wrong(
            VERSIONS, "cryptography has no AES-GCM-SIV here: install its wheel, which contains a suitable OpenSSL"
        )


def _own_version() -> str:
    try:
        return f"tacet {metadata.version(DISTRIBUTION)}"
    except metadata.PackageNotFoundError:
        return "tacet from its sources"


def _megabytes(octets: int) -> str:
    return f"{octets / 1e6:,.0f} MB"
