"""What keeps running: a file cut to a range of windows, and work that ends when it is told to."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from core_ground import ATTRIBUTES, COUNTS, EVENING, SITE, laboratory, people, policy_text, run, write_csv

from connectors.live import within
from connectors.observations import ObservationFile
from stream.pipeline import DEFAULTS, Options, Pipeline
from stream.policy import Policy, load_policy
from stream.records import MINUTE, SECOND, Heartbeat, ObservationBatch, Published
from stream.schemas import LEAKAGE

HOUR = 60 * MINUTE
RELEASES = COUNTS.split('[[release]]\nname = "smooth"', maxsplit=1)[0] + ATTRIBUTES


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csv(tmp_path_factory.mktemp("rows") / "rows.csv", people(hours=30, devices=8, sites=2))


def private(policy: Policy, site: str, log: Any, options: Options = DEFAULTS) -> list[Published]:
    """Return what a site publishes of a log."""
    made = run(Pipeline(policy, site, laboratory(), options), [item for item in log if item.site == site])
    return [out for out in made if isinstance(out, Published) and out.topic != LEAKAGE]


def log_of(file: Path, policy: Policy, first: int | None = None, last: int | None = None) -> Any:
    return ObservationFile(file, policy, bytes(32), since=first, until=last).messages()


@pytest.mark.parametrize(
    ("first", "last", "lateness"),
    [
        (EVENING + 14 * HOUR, None, "30s"),
        (None, EVENING + 16 * HOUR, "20min"),
        (EVENING + 14 * HOUR, EVENING + 16 * HOUR, "20min"),
        (EVENING + 14 * HOUR, EVENING + 14 * HOUR, "30s"),
        (EVENING + 2 * HOUR, EVENING + 29 * HOUR, "30s"),
        (EVENING + 80 * HOUR, None, "30s"),
    ],
)
def test_a_file_cut_to_its_windows_gives_what_a_replay_of_these_windows_gives(
    file: Path, first: int | None, last: int | None, lateness: str
) -> None:
    text = policy_text(RELEASES, sites=(SITE, f"{SITE}1")).replace('lateness = "30s"', f'lateness = "{lateness}"')
    policy = load_policy(text)
    cut = list(log_of(file, policy, first, last))
    made = 0
    for site in policy.site:
        whole = log_of(file, policy, last=last)  # as replay reads it
        wanted = private(policy, site, whole, Options(first_window=first, last_window=last))
        assert private(policy, site, cut) == wanted
        made += len(wanted)
    assert made or first == EVENING + 80 * HOUR


def test_rows_that_no_window_can_hold_are_not_sent(file: Path) -> None:
    policy = load_policy(policy_text(sites=(SITE, f"{SITE}1")))
    first, last = EVENING + 14 * HOUR, EVENING + 16 * HOUR
    cut = list(log_of(file, policy, first, last))
    times = [row.time for item in cut if isinstance(item, ObservationBatch) for row in item.rows]
    assert first - 10 * MINUTE < min(times) < first
    assert last - 30 * MINUTE < max(times) <= last
    marks = [item.watermark for item in cut if isinstance(item, Heartbeat)]
    assert (min(marks), max(marks)) == (first, last + 30 * SECOND + 1)


# --- ending ------------------------------------------------------------------------------------------------


async def test_work_that_hangs_is_waited_for_only_so_long_once_it_is_told_to_stop() -> None:
    stop = asyncio.Event()
    stop.set()
    async with asyncio.timeout(60):
        assert not await within(0.05, asyncio.Event().wait(), stop)
        assert await within(60.0, asyncio.sleep(0.01), stop)


async def test_work_is_waited_for_as_long_as_nobody_says_stop() -> None:
    assert await within(0.001, asyncio.sleep(0.1), asyncio.Event())


async def test_what_fails_in_the_work_comes_out() -> None:
    async def fail() -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await within(1.0, fail(), asyncio.Event())
