"""The machine: its clock, what it lets a socket hold, room on its disk, and what is installed."""

from __future__ import annotations

import ctypes
import platform
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV

from connectors.doctor.findings import Finding, fine, note, wrong
from connectors.intake.entrance import RECEIVE_BUFFER
from stream.records import SECOND

CLOCK, SOCKET, DISK, VERSIONS = "clock", "socket buffer", "disk", "versions"
LEAST_FREE = 1 << 30
"""Octets that a disk must have free."""
MOST_SKEW = SECOND
"""Microseconds by which the clock may be off, as the kernel reckons: far below a tick, and below a clock step."""
RMEM_MAX = Path("/proc/sys/net/core/rmem_max")
DISTRIBUTION = "tacet-occupancy"
TOLD = ("numpy", "pydantic", "aiokafka", "faust-streaming", "cryptography", "orjson")
_UNSYNCHRONISED = 5
"""TIME_ERROR of adjtimex(2)."""


class _Timex(ctypes.Structure):
    """The beginning of ``struct timex``, and room for the rest of it."""

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
    """Return whether the kernel's clock is kept in step, and by how many microseconds it may be off.

    None where the kernel does not say: elsewhere than on Linux, or where asking is not allowed.
    """
    try:
        answer, asked = _Timex(), ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):
        return None
    state = asked(ctypes.byref(answer))
    return None if state < 0 else (state != _UNSYNCHRONISED, int(answer.maxerror))


def clock(kept: tuple[bool, int] | None) -> Iterator[Finding]:
    """Yield how the wall clock is, as ``kernel_clock`` gives it."""
    if kept is None:
        yield note(CLOCK, "the kernel does not say whether it is kept in step (NTP)")
    elif not kept[0]:
        yield note(CLOCK, "nobody keeps it in step: run an NTP service; a step of more than 5 s stops a receiver")
    elif kept[1] > MOST_SKEW:
        yield wrong(CLOCK, f"kept in step, but may be off by {kept[1] / SECOND:.1f} s: look at the NTP service")
    else:
        yield fine(CLOCK, f"kept in step, off by at most {kept[1] / SECOND:.3f} s")


def socket_buffer(file: Path = RMEM_MAX) -> Iterator[Finding]:
    """Yield whether a receiver's socket may hold as much as it asks for."""
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
    """Yield whether the disk of a store has room: for a second copy of the store, and 1 GiB at least."""
    held = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    free, least = shutil.disk_usage(folder).free, max(LEAST_FREE, held)
    text = f"{_megabytes(free)} free where the store is, which has {_megabytes(held)}"
    yield fine(DISK, text) if free >= least else wrong(DISK, f"{text}: {_megabytes(least)} are wanted")


def versions() -> Iterator[Finding]:
    """Yield what is installed, and whether what is kept at rest could be encrypted."""
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
