"""Means of a history cover the truth as often as they say, over what the release stage really publishes.

Counts are fixed: whether a mean's band holds the truth follows from the key alone. Of n independent bands that each
cover with probability 0.95 or more, fewer than the bound tried here would do with probability below 1e-6 each.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

import pytest
from scipy.stats import binom

from connectors.serve.history.local_clock import SiteClock
from connectors.serve.history.release_history import ReleaseHistory
from connectors.serve.history.rows import RowsQuery
from stream.keys import LaboratoryKeys
from stream.operators import scan
from stream.policy.privacy_days import PrivacyDays
from stream.records import DAY, MINUTE, OccupancyWindow, Published
from stream.release.stage import ReleaseStage
from stream.release.validation import Policy, load_policy
from stream.schemas import AUDIT

TICK, START, ZONES = 5 * MINUTE, 20_000 * DAY, 12
FALSE_ALARM = 1e-6
COUNTS = tuple(n % 7 for n in range(ZONES))
LEVELS = 'levels = ["zone", "floor", "building"]\n'
SHARES = LEVELS + 'shares = { zone = "0.3", floor = "0.3", building = "0.4" }\n'
PAID = 'unit = "device_day"\nnoise = "gaussian"\ndelta = "0.000001"\nepsilon = { hall = "4" }\n'
WINDOWLY = 'epsilon = { hall = "0.5" }\n'
RELEASES = {
    "plain": 'mechanism = "laplace"\n' + WINDOWLY + LEVELS,
    "plain levels": 'mechanism = "laplace"\n' + WINDOWLY + SHARES,
    "groups": 'mechanism = "pegasus"\n' + WINDOWLY + LEVELS,
    "groups of levels": 'mechanism = "pegasus"\n' + WINDOWLY + SHARES,
    "filter": 'mechanism = "filter"\n' + WINDOWLY + LEVELS,
    "filter by the day": 'mechanism = "filter"\n' + PAID + SHARES,
    "plain by the day": 'mechanism = "plain"\n' + PAID + SHARES,
}


def policy(release: str) -> Policy:
    zones = "".join(
        f'[[site.dbh.zones]]\nid = "{100 + n}"\nfloor = "{n % 3}"\ncapacity = 4\nmax_count = 20\n'
        f'access_points = ["02:00:00:00:00:{n:02x}"]\n'
        for n in range(ZONES)
    )
    head = '[site.dbh]\nsources = ["10.0.0.1"]\nday_starts = "00:00"\ncontribution = "8h"\n'
    text = f'{head}{zones}[[audience]]\nname = "hall"\n[[release]]\nname = "r"\nquery = "count"\n'
    return load_policy(text + release)


@lru_cache
def kept(release: str) -> ReleaseHistory:
    """Return a history of two days, of filters one, in which every window had the same counts."""
    windows = 288 if "filter" in release else 576
    days = PrivacyDays("00:00", "UTC")
    ends = (START + n * TICK for n in range(1, windows + 1))
    items = (OccupancyWindow("dbh", end, COUNTS, Fraction(1), days.at(end), COUNTS) for end in ends)
    keys = LaboratoryKeys(b"h" * 32, "ledger", b"a" * 32)
    _, outputs = scan(ReleaseStage(policy(release), "dbh", keys), items)
    history = ReleaseHistory(None, {"dbh": SiteClock("UTC", "00:00")})
    history.add([each.value for each in outputs if isinstance(each, Published) and each.topic != AUDIT], {})
    return history


def truth(node: str) -> int:
    level, _, name = node.partition(":")
    if level == "zone":
        return COUNTS[int(name) - 100]
    return sum(count for n, count in enumerate(COUNTS) if level == "building" or n % 3 == int(name))


def fewest(n: int) -> int:
    """Return how many of n bands cover at least, but for a probability of ``FALSE_ALARM``."""
    return int(binom.ppf(FALSE_ALARM, n, 0.95))


LONG = {"filter by the day", "groups of levels"}
"""Three releases in one each, of which "filter" and "groups" try one; "plain levels" and "plain by the day" try three
levels and what is paid by the day."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in LONG else name for name in RELEASES]
)
@pytest.mark.parametrize("granularity", ["15min", "1h"])
def test_bands_of_means_cover_the_truth_as_often_as_they_say(name: str, granularity: str) -> None:
    """Zones are independent; floors and building are sums of them, and are counted apart, one node at a time.

    Errors of posteriors depend on each other from window to window, so the band of a mean of them is an upper bound.
    """
    release, stated = RELEASES[name], "noise" if name.startswith("plain") else "at most"
    rows = kept(release).rows(RowsQuery("hall", "r", "dbh", granularity, limit=100_000)).rows  # type: ignore[arg-type]
    covered: dict[str, list[bool]] = {}
    for _, _, node, _, low, high, _, kind, windows, *_ in rows:
        assert (kind, windows) == (stated, 3 if granularity == "15min" else 12)
        group = "zones" if node.startswith("zone") else node
        covered.setdefault(group, []).append(low - 1e-3 <= truth(node) <= high + 1e-3)
    assert covered.keys() == {"zones", "building", "floor:0", "floor:1", "floor:2"}
    for group, bands in covered.items():
        assert sum(bands) >= fewest(len(bands)), group


def test_a_band_that_were_too_narrow_would_be_seen() -> None:
    """The twin that must fail: bands of three quarters of the width, of which 0.86 cover."""
    rows = kept(RELEASES["plain"]).rows(RowsQuery("hall", "r", "dbh", "1h", limit=100_000)).rows
    zones = [row for row in rows if row[2].startswith("zone")]
    covered = sum(abs(row[3] - truth(row[2])) <= 0.75 * row[6] for row in zones)
    assert covered < fewest(len(zones))


def test_the_mean_of_a_day_is_much_surer_than_a_window() -> None:
    history = kept(RELEASES["filter"])
    day = {row[2]: row[6] for row in history.rows(RowsQuery("hall", "r", "dbh", "1d")).rows}
    window = {row[2]: row[6] for row in history.rows(RowsQuery("hall", "r", "dbh", "5min", limit=40)).rows}
    assert day["building"] < window["building"] / 5
