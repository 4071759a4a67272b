"""Choose a contribution bound that covers 99 of 100 device-days of a recording."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

from connectors.sources.recordings.dialect import Dialect
from connectors.sources.recordings.observations import ObservationFile
from stream.pipeline import definition_of
from stream.policy.fields import duration_text
from stream.records import DAY, MINUTE, ObservationBatch
from stream.release.validation import Policy
from stream.sensing.device_days import DeviceDays

COVERED = Fraction(99, 100)
STEP = 30 * MINUTE


def recorded_contribution(
    path: Path, policy: Policy, dialect: Dialect, progress: Callable[..., None] | None = None
) -> str | None:
    """Return the least contribution, in half hours, that covers 99 % of device-days; None if there are none.

    Args:
        path: the recording.
        policy: supplies access points and privacy days; its contributions are ignored.
        dialect: of the recording.
        progress: receives the number of rows read.

    Raises:
        UsageError: the file cannot be read.
        DataError: it cannot be read to its end.
    """
    longest = 0
    stays = {name: DeviceDays(each) for name, site in policy.site.items() if (each := definition_of(site)) is not None}
    for message in ObservationFile(
        path, policy, secrets.token_bytes(32), dialect=dialect, progress=progress
    ).messages():
        if isinstance(message, ObservationBatch):
            stays[message.site].add_batch(message)
    for name, days in stays.items():
        longest = max(longest, days.covering(COVERED) * policy.site[name].tick)
    return duration_text(min(-(-longest // STEP) * STEP, DAY)) if longest else None
