"""What is said of a recording whose rows were not all taken."""

from __future__ import annotations

from connectors.files.stretches import LEAP
from connectors.files.text_rows import Tally, named
from stream.errors import DataError
from stream.records import DAY

NO_DROPS = frozenset({"rows", "accepted", "stale_heartbeats"})
"""What sensing counts beside the rows that it dropped."""
MANY = 10
"""One in so many good rows that was lost for the same reason is a fault of file or policy, not of a row."""


def shortfall(tally: Tally, dropped: dict[str, int] | None = None) -> DataError | None:
    """Return what to report about rows that were bad, and about many that were lost; None when there is nothing.

    ``dropped`` holds the rows that sensing dropped, by reason; copies of batches that it had had are none.
    """
    report = [named(tally)] if tally.bad else []
    if tally.strays:
        report.append(f"A gap of more than {LEAP // DAY} days is believed up to --to, or as a file of its own.")
    lost = {"were at access points in no zone of the policy": tally.unknown_access_points}
    for reason, rows in sorted((dropped or {}).items()):
        if reason == "site_shut" and rows:
            report.append(f"A site has more devices than its max_devices: it closed, and {rows:,} rows were not taken.")
        elif reason != "repeated_batch":
            # A run that goes on in a store has had the rows up to its begin.
            more = rows - tally.leading if reason == "late" else rows
            lost[f"were dropped: {reason.replace('_', ' ')}"] = more
    good = tally.rows - tally.bad
    report += [f"{rows:,} of {good:,} good rows {what}" for what, rows in lost.items() if rows * MANY > good]
    return DataError("\n".join(report)) if report else None
