"""Charges of a privacy day that is released twice in part, by run and backfill on an embedded store.

A day's price buys one run of the counters of contributions. A second run in the same day, however it comes about,
waits, is refused, or pays for the day again under an attempt or a name of its own.
"""

from __future__ import annotations

import csv
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

from connectors.keys import key_files
from connectors.sources.recordings.observations import ObservationFile
from connectors.storage.embedded.reader import read_topic
from connectors.storage.embedded.runner import opened
from stream.errors import FinalityError, UsageError
from stream.pipeline import Options
from stream.policy.privacy_days import PrivacyDays
from stream.records import HOUR, MINUTE, Heartbeat, Micros, ObservationBatch
from stream.release.validation import Policy, load_policy
from stream.schemas import AUDIT, parse_time, rfc3339
from tests.acceptance.command_line import run as command
from tests.acceptance.test_backfill import backfill, new_key
from tests.support.day_policies import day_release, shared
from tests.support.hash_chain import verify_chain

TICK = 30 * MINUTE
DAYS = PrivacyDays("04:00", "UTC")
FOUR = parse_time("2026-03-03T04:00:00Z")
"""A privacy day begins."""
DAY = DAYS.at(FOUR + 1).number
BUILDING = """
[site.dbh]
sources = ["127.0.0.1"]
timezone = "UTC"
tick = "30min"
validity = "10min"
day_starts = "04:00"
contribution = "2h"
max_devices = 12
zones = [
  { id = "hall", kind = "open", capacity = 9, access_points = ["02:00:00:00:0e:01"] },
  { id = "loft", kind = "open", capacity = 9, access_points = ["02:00:00:00:0e:02"] },
]
[[audience]]
name = "facilities"
[[audience]]
name = "public"
"""
BY_DAY = day_release()
BY_WINDOW = """
[[release]]
name = "window"
query = "count"
mechanism = "laplace"
epsilon = { public = "0.5" }
"""


class Charged(NamedTuple):
    """What one run of the counters goes by."""

    release: str
    audience: str
    attempt: int
    day: int


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three days, from four to four, in which somebody is seen before every tick."""
    folder = tmp_path_factory.mktemp("recording")
    with (folder / "o.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["time", "device", "access_point", "site"])
        for number in range(3 * 48):
            time = rfc3339(FOUR + number * TICK + 25 * MINUTE)
            lines.writerow([time, f"00:00:5e:00:53:0{number % 3}", f"02:00:00:00:0e:0{1 + number % 2}", "dbh"])
    return folder


def _messages(folder: Path, key: Path) -> Iterator[ObservationBatch | Heartbeat]:
    return ObservationFile(folder / "o.csv", policy(), key_files.pseudonym_key(key)).messages()


def policy(*releases: str, site: str = BUILDING) -> Policy:
    return load_policy(site + "".join(releases or (BY_DAY,)))


def at(hours: float, day: int = 0) -> Micros:
    """Return the window that ends so many hours after the start of a day, by its number."""
    return FOUR + 24 * day * HOUR + int(hours * 2) * TICK


class Scenario:
    """A store with its key, and the recording."""

    def __init__(self, recording: Path, folder: Path, *, laboratory: bool = True) -> None:
        self.recording, self.folder, self.store = recording, folder, folder / "s"
        self.key = new_key(folder, laboratory=laboratory)
        self.policies = list[Policy]()

    def run(self, wanted: Policy, first: Micros, last: Micros, *, accept: bool = False) -> None:
        """Go on with the recording as if it were live, up to a window."""
        self.policies.append(wanted)
        options = Options(first_window=first, last_window=last)
        with opened(wanted, self.key, self.store, options, accept_policy=accept) as (runner, _):
            for message in _messages(self.recording, self.key):
                if isinstance(message, Heartbeat) and message.watermark > last + TICK + 5 * MINUTE:
                    break
                runner.process(message, durable=False)

    def backfill(self, wanted: Policy, first: Micros, last: Micros, attempt: int = 1, names: Sequence[str] = ()) -> int:
        """Return how many windows were released."""
        return backfill(
            (self.recording, wanted), self.store, self.key, attempt=attempt, first=first, last=last, names=names,
            earlier=self.policies,
        ).released  # fmt: skip

    def entries(self) -> list[dict[str, Any]]:
        found = [orjson.loads(value) for value in read_topic(self.store, AUDIT)]
        verify_chain(found)
        return found

    def charges(self, release: str = "day", audience: str = "public") -> dict[tuple[int, int], Fraction]:
        """Return (attempt, day, the recording's first being 0) -> what was charged."""
        spent = Counter[tuple[int, int]]()
        for entry in self.entries():
            if (entry["release"], entry["audience"]) == (release, audience):
                day = DAYS.at(parse_time(entry["window_end"])).number - DAY
                spent[entry["attempt"], day] += entry["nano"]
        return {which: Fraction(nano, 10**9) for which, nano in spent.items() if nano}

    def outcomes(self, first: Micros, last: Micros, release: str = "day") -> set[str]:
        """Return what became of the windows from one to another."""
        ends = {rfc3339(end) for end in range(first, last + 1, TICK)}
        return {
            entry["outcome"] for entry in self.entries() if entry["release"] == release and entry["window_end"] in ends
        }


@pytest.fixture
def scenario(recording: Path, tmp_path: Path) -> Scenario:
    return Scenario(recording, tmp_path)


def test_every_day_is_charged_once_over_any_number_of_starts(scenario: Scenario) -> None:
    for hours in (5, 7, 30, 71.5):
        scenario.run(policy(), at(0.5), at(hours))
    assert scenario.charges() == {(1, 0): 2, (1, 1): 2, (1, 2): 2}
    assert scenario.outcomes(at(0.5), at(71.5)) == {"released"}


def test_late_windows_of_a_day_that_was_charged_are_refused(scenario: Scenario) -> None:
    scenario.run(policy(), at(8), at(12))
    for first, last in ((0.5, 7.5), (0.5, 0.5), (7.5, 7.5)):
        with pytest.raises(UsageError, match="were charged before, as release 'day'"):
            scenario.backfill(policy(), at(first), at(last))
    assert scenario.charges() == {(1, 0): 2}


def test_a_day_that_was_never_charged_is_charged_late_once(scenario: Scenario) -> None:
    scenario.run(policy(), at(8, 1), at(12, 1))
    assert scenario.backfill(policy(), at(0.5), at(6)) == 12
    assert scenario.charges() == {(1, 0): 2, (1, 1): 2}
    with pytest.raises(UsageError, match="were charged before, as release 'day'"):
        scenario.backfill(policy(), at(6.5), at(24))
    assert scenario.charges() == {(1, 0): 2, (1, 1): 2}


def test_an_attempt_pays_for_the_day_again_and_for_one_run_only(scenario: Scenario) -> None:
    """The morning at attempt 2 buys no afternoon at attempt 2: that would be two runs of the counters for one price."""
    scenario.run(policy(), at(0.5), at(30))
    assert scenario.backfill(policy(), at(0.5), at(6), 2, ["day"]) == 12
    assert scenario.charges() == {(1, 0): 2, (1, 1): 2, (2, 0): 2}
    for first, last in ((6.5, 12), (24, 24)):
        with pytest.raises(UsageError, match="were charged before, as release 'day'"):
            scenario.backfill(policy(), at(first), at(last), 2, ["day"])
    assert scenario.backfill(policy(), at(0.5), at(6), 2, ["day"]) == 0, "what was released comes out as it was"
    assert scenario.backfill(policy(), at(6.5), at(12), 3, ["day"]) == 12
    assert scenario.charges() == {(1, 0): 2, (1, 1): 2, (2, 0): 2, (3, 0): 2}


def test_what_a_recording_was_charged_for_a_day_buys_none_of_its_live_windows(scenario: Scenario) -> None:
    """The release is added at noon; before it goes on, a recording brings the morning."""
    both = policy(BY_WINDOW, BY_DAY)
    scenario.run(policy(BY_WINDOW), at(6), at(12))
    scenario.run(both, at(6), at(12), accept=True)
    assert scenario.backfill(both, at(0.5), at(5.5)) == 11
    scenario.run(both, at(6), at(30))
    assert scenario.charges() == {(1, 0): 2, (1, 1): 2}
    assert scenario.outcomes(at(12.5), at(24)) == {"waiting"}
    assert scenario.outcomes(at(24.5), at(30)) == {"released"}


def test_what_an_attempt_was_charged_leaves_the_live_run_alone(scenario: Scenario) -> None:
    scenario.run(policy(), at(0.5), at(12))
    scenario.backfill(policy(), at(0.5), at(6), 2, ["day"])
    scenario.run(policy(), at(0.5), at(24))
    assert scenario.charges() == {(1, 0): 2, (2, 0): 2}
    assert scenario.outcomes(at(12.5), at(24)) == {"released"}


def test_what_was_released_in_a_day_is_compared_by_the_counters_of_all_of_it(scenario: Scenario) -> None:
    """A recording is read from the day's start on, or from where the site began, and released from --from on."""
    scenario.run(policy(), at(6), at(36))
    before = scenario.entries()
    for first, last in ((12, 18), (24, 24), (30, 36)):
        assert scenario.backfill(policy(), at(first), at(last)) == 0
    assert scenario.entries() == before


def test_a_recording_that_lacks_the_morning_is_refused_with_what_to_do(scenario: Scenario) -> None:
    scenario.run(policy(), at(0.5), at(36))
    before = scenario.entries()
    with (scenario.recording / "o.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    (scenario.folder / "late").mkdir()
    with (scenario.folder / "late" / "o.csv").open("w", newline="") as file:
        csv.writer(file).writerows([head, *(row for row in rows if parse_time(row[0]) > at(28))])
    scenario.recording = scenario.folder / "late"
    with pytest.raises(FinalityError, match="from 2026-03-04T04:00:00Z on, when its privacy day starts; read all of"):
        scenario.backfill(policy(), at(30), at(36))
    assert scenario.entries() == before


CHANGES = {
    "epsilon": BY_DAY.replace('public = "2"', 'public = "1"'),
    "delta": BY_DAY + 'delta = "1e-5"\n',
    "noise": BY_DAY.replace("gaussian", "laplace"),
    "levels": BY_DAY + 'levels = ["zone", "building"]\nshares = { zone = "0.5", building = "0.5" }\n',
    "zones": BY_DAY + 'zones = { ids = ["hall"] }\n',
}


@pytest.mark.parametrize("change", CHANGES)
def test_other_terms_wait_for_the_next_day(scenario: Scenario, change: str) -> None:
    scenario.run(policy(), at(0.5), at(12))
    scenario.run(policy(CHANGES[change]), at(0.5), at(30), accept=True)
    assert [day for _, day in scenario.charges()] == [0, 1]
    assert scenario.outcomes(at(12.5), at(24)) == {"waiting"}
    assert scenario.outcomes(at(24.5), at(30)) == {"released"}


SITES = {
    "contribution": ("2h", "1h"),
    "day_starts": ("04:00", "05:00"),
    "timezone": ("UTC", "Europe/London"),
    "tick": ("30min", "15min"),
    "validity": ("10min", "12min"),
}


@pytest.mark.parametrize("change", SITES)
def test_what_a_device_counts_by_changes_with_the_next_day(scenario: Scenario, change: str) -> None:
    """Counters that begin anew may not count in a day that others have counted in, and no second price is charged."""
    scenario.run(policy(), at(0.5), at(12))
    old, new = (f'{change} = "{value}"' for value in SITES[change])
    assert old in BUILDING
    scenario.run(policy(site=BUILDING.replace(old, new)), at(0.5), at(30), accept=True)
    assert scenario.charges() == {(1, 0): 2, (1, 1): 2}
    assert scenario.outcomes(at(12.5), at(24)) == {"waiting"}


def test_another_name_is_another_price_live(scenario: Scenario) -> None:
    scenario.run(policy(), at(0.5), at(12))
    scenario.run(policy(BY_DAY.replace('"day"', '"other"')), at(0.5), at(24), accept=True)
    assert scenario.charges() == {(1, 0): 2}
    assert scenario.charges("other") == {(1, 0): 2}


def test_another_name_does_not_make_a_charged_day_new_to_a_backfill(scenario: Scenario) -> None:
    other = policy(BY_DAY.replace('"day"', '"other"'))
    scenario.run(policy(), at(6), at(12))
    scenario.run(other, at(6), at(12), accept=True)
    with pytest.raises(UsageError, match="were charged before, as release 'day'"):
        scenario.backfill(other, at(0.5), at(5.5))
    assert scenario.backfill(other, at(0.5), at(5.5), 2, ["other"]) == 11
    assert scenario.charges("other") == {(2, 0): 2}
    scenario.run(other, at(6), at(24))
    assert scenario.charges("other") == {(2, 0): 2}
    assert scenario.outcomes(at(12.5), at(24), "other") == {"waiting"}


def test_a_site_that_shut_waits_for_the_next_day_when_it_is_reopened(scenario: Scenario, recording: Path) -> None:
    """The counters of the morning are gone, so nobody is counted in the afternoon."""
    crowd = [[rfc3339(at(12) + n), f"00:00:5e:00:54:{n:02x}", "02:00:00:00:0e:01", "dbh"] for n in range(1, 13)]
    with (recording / "o.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    crowded = scenario.folder / "crowded"
    crowded.mkdir()
    with (crowded / "o.csv").open("w", newline="") as file:
        csv.writer(file).writerows([head, *sorted(rows + crowd)])
    with opened(policy(), scenario.key, scenario.store) as (runner, _):
        messages = _messages(crowded, scenario.key)
        for message in messages:
            runner.process(message, durable=False)
            if runner.partition.sites.suspended_sites():
                runner.resume("dbh")
    assert scenario.outcomes(at(0.5), at(11.5)) == {"released"}
    assert scenario.outcomes(at(12), at(24)) == {"waiting"}
    assert scenario.outcomes(at(24.5), at(48)) == {"released"}
    assert scenario.charges() == {(1, 0): 2, (1, 1): 2, (1, 2): 2}


def test_a_store_that_was_set_back_makes_the_rest_of_the_day_again_or_nothing(scenario: Scenario) -> None:
    """Also under terms that would have been charged: what the day was paid for has been published."""
    scenario.run(policy(), at(0.5), at(12))
    copy = shutil.copytree(scenario.store, scenario.folder / "copy")
    scenario.run(policy(), at(0.5), at(18))
    published = scenario.entries()
    shutil.rmtree(scenario.store)
    shutil.copytree(copy, scenario.store)
    with pytest.raises(FinalityError, match="the store was set back"):
        scenario.run(policy(BY_DAY.replace('"day"', '"other"')), at(0.5), at(18), accept=True)
    assert scenario.entries() == published[: len(scenario.entries())], "nothing was written"
    scenario.run(policy(), at(0.5), at(18))
    assert scenario.entries() == published


def test_a_store_that_is_lost_does_not_begin_again_under_a_key_that_has_published(
    recording: Path, tmp_path: Path
) -> None:
    scenario = Scenario(recording, tmp_path, laboratory=False)
    scenario.run(policy(), at(0.5), at(12))
    shutil.rmtree(scenario.store)
    with pytest.raises(UsageError, match="this production key belongs to store"):
        scenario.run(policy(), at(12.5), at(24))


# --- through the command line -------------------------------------------------------------------------


FILTERED = day_release("tree", "filter", public="1", more=shared(zone="0.5", building="0.5"))


def test_days_and_windows_of_one_site_keep_to_their_prices_and_their_audit_chain(scenario: Scenario) -> None:
    file = scenario.folder / "policy.toml"
    file.write_text(BUILDING + BY_DAY + BY_WINDOW + FILTERED)
    rows, key = scenario.recording / "o.csv", ["--policy", str(file), "--key-file", str(scenario.key)]
    where = ["--store", str(scenario.store)]
    done = command("run", "--observations", str(rows), *key, *where, "--from", rfc3339(at(24.5)))
    assert done.code == 0, done.problem
    assert command("backfill", str(rows), *key, *where).code == 0
    assert command("backfill", str(rows), *key, *where, "--from", rfc3339(at(36))).code == 0, "from inside a day"
    again = ["--attempt", "2", "--release", "day", "--release", "window"]
    assert command("backfill", str(rows), *key, *where, *again, "--to", rfc3339(at(30))).code == 0
    refused = command("backfill", str(rows), *key, *where, *again, "--from", rfc3339(at(30.5)))
    assert (refused.code, "were charged before, as release 'day'" in refused.problem) == (2, True)
    assert command("audit", "verify", *where, "--key-file", str(scenario.key)).code == 0
    assert command("recover", *where, *key[2:], *key[:2]).code == 0
    attempts = {(1, 0): 2, (1, 1): 2, (1, 2): 2, (2, 0): 2, (2, 1): 2}
    assert scenario.charges() == attempts
    assert scenario.charges("day", "facilities") == dict.fromkeys(attempts, 4)
    assert scenario.charges("tree") == {(1, 0): 1, (1, 1): 1, (1, 2): 1}
    assert scenario.charges("window").keys() == attempts.keys()
    assert scenario.charges("window")[1, 0] == 24
