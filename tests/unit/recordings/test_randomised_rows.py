"""Recordings of a site that ignores randomised addresses: the same devices are left out as by an ingest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from connectors.sources.recordings.observations import ObservationFile
from stream.records import ObservationBatch
from tests.support.small_building import building

KNOWN, RANDOM = "3c:00:00:00:00:01", "3e:00:00:00:00:02"


def devices(path: Path, randomised: str) -> tuple[int, int]:
    """Return the number of distinct devices, and of sightings of locally administered addresses."""
    policy = building(site=f'randomised = "{randomised}"\n')
    file = ObservationFile(path, policy, bytes(32))
    rows = [row for step in file.messages() if isinstance(step, ObservationBatch) for row in step.rows]
    return len({row[0] for row in rows}), file.tally.locally_administered


@pytest.mark.parametrize("spelt", [str.lower, str.upper], ids=["by column", "row by row"])
def test_a_recording_counts_randomised_addresses_unless_the_site_ignores_them(
    tmp_path: Path, spelt: Callable[[str], str]
) -> None:
    radio, (site, _) = next(iter(building().access_points().items()))
    path = tmp_path / "rows.csv"
    received = enumerate([KNOWN, RANDOM, KNOWN, RANDOM])
    lines = [f"2026-03-02T09:0{minute}:00Z,{spelt(device)},{radio},{site}" for minute, device in received]
    path.write_text("\n".join(["time,device,access_point,site", *lines]) + "\n")
    assert devices(path, "count") == (2, 2)
    assert devices(path, "ignore") == (1, 2)
