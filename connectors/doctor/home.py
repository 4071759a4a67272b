"""The embedded store: whose it is, under which policy it goes, where its sites stand, what its receiver has dropped."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from connectors.doctor.findings import Finding, fine, note, wrong
from connectors.doctor.hearing import drops
from connectors.embedded.readings import OPERATOR_BOX, last_given, read_outbox, read_snapshot
from connectors.reports.status import describe
from stream.policy.document import Policy
from stream.records import MINUTE, Micros
from stream.schemas import parse_time

STORE, SITE, RECEIVED = "store", "site", "received"
SILENT: Micros = 15 * MINUTE
"""Behind the clock by so much, a site of a live run has stopped."""


def store(folder: Path, policy: Policy, now: Micros) -> Iterator[Finding]:
    """Yield how a store stands; nothing is written, and what runs is not held up."""
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
    """Yield what the run's receiver last noted for operators; nothing where a building is too small for sums."""
    last = last_given(folder, OPERATOR_BOX)
    rows = read_outbox(folder, OPERATOR_BOX, last - 1, most=1) if last else []
    for _, value in rows:
        traps = orjson.loads(value).get("traps")
        if traps and "dropped" in traps:
            yield from (
                Finding(RECEIVED, finding.state, f"{finding.text} (since the run began)")
                for finding in drops(traps["dropped"], traps.get("kernel_drops", 0))
            )
