"""Sites with privacy days, releases that are paid by the day, and what a release stage makes of their windows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from stream.policy.privacy_days import PrivacyDays
from stream.records import HOUR, CountCharge, OccupancyWindow, PrivacyDay, Published, WindowCharges
from stream.release.stage import ReleaseStage
from stream.release.state import ReleaseState
from stream.schemas import AUDIT, parse_time


def day_site(contribution: str = "8h", *, day_starts: str = "04:00", residents: str = "count") -> str:
    """Return the keys that give a site privacy days."""
    return f'day_starts = "{day_starts}"\ncontribution = "{contribution}"\nresidents = "{residents}"\n'


def day_release(
    name: str = "day", mechanism: str = "plain", *, noise: str = "gaussian", more: str = "", **epsilon: str
) -> str:
    """Return a count release that is paid by the day; without ``epsilon`` 2 for the public and 4 for facilities."""
    prices = ", ".join(f'{who} = "{each}"' for who, each in (epsilon or {"public": "2", "facilities": "4"}).items())
    return f"""
[[release]]
name = "{name}"
query = "count"
mechanism = "{mechanism}"
noise = "{noise}"
unit = "device_day"
epsilon = {{ {prices} }}
{more}"""


def shared(**parts: str) -> str:
    """Return levels, each with its share of the price."""
    names = ", ".join(f'"{level}"' for level in parts)
    shares = ", ".join(f'{level} = "{part}"' for level, part in parts.items())
    return f"levels = [{names}]\nshares = {{ {shares} }}\n"


def day_on(day_starts: str, date: str) -> PrivacyDay:
    """Return the privacy day of Los Angeles that begins on a date of its summer time or the day before."""
    return PrivacyDays(day_starts, "America/Los_Angeles").at(parse_time(f"{date}T{day_starts}:00-07:00") + 3 * HOUR)


def visit_site(*, day_starts: str = "04:00", visits: int = 4, gap: str = "10min", more: str = "") -> str:
    """Return the keys that give a site privacy days with visits, and no contribution."""
    bounds = f'visits = {visits}\ngap = "{gap}"\n'
    return f'day_starts = "{day_starts}"\nresidents = "ignore"\n{bounds}{more}'


def change_release(name: str = "moves", *, more: str = "", **epsilon: str) -> str:
    """Return a release that counts changes; without ``more`` of zones alone, prices as of ``day_release``."""
    return day_release(name, "filter", more=f'count = "changes"\n{more}', **epsilon)


def put_through(
    stage: ReleaseStage, windows: Iterable[OccupancyWindow], state: ReleaseState
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[CountCharge], ReleaseState]:
    """Return records of all audiences, ledger entries, charges and the state after a release stage's windows."""
    outputs = list[Published | WindowCharges]()
    for window in windows:
        state, made = stage.step(state, window)
        outputs += made
    bodies = [(each.topic, orjson.loads(each.value)) for each in outputs if isinstance(each, Published)]
    charges = [charge for each in outputs if isinstance(each, WindowCharges) for charge in each.charges]
    return (
        [body for topic, body in bodies if topic != AUDIT],
        [body for topic, body in bodies if topic == AUDIT],
        [charge for charge in charges if isinstance(charge, CountCharge)],
        state,
    )
