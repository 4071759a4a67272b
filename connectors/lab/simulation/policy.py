"""A commented policy file for a simulated building."""

from __future__ import annotations

from collections.abc import Sequence

from stream.lab.simulator.building import OFFICE
from stream.lab.simulator.events import Simulation

_HEAD = """\
# What is published about this building, for whom, and at which price.
# Everything here changes a guarantee; ports, brokers and secrets are set elsewhere.

[site.{site}]
name = "Simulated building {number}"
timezone = "{timezone}"              # attributes speak of local days
tick = "5min"                        # occupancy is counted at every tick
{presence}
lateness = "30s"                     # how long a window waits for late messages before it is final
max_devices = {max_devices}
working_hours = ["08:00", "18:00"]   # the span of occupancy_level
{days}sources = [{sources}]                # controllers that may send

# Zones: {public} public ones, {offices} offices for one person each.
"""

_EVENTS = 'validity = "10min"                   # an association holds this long'
_SESSIONS = """\
presence = "sessions"                # a device is present until a message ends its stay,
session_limit = "4h"                 # or so long after its last one"""

_DAYS = """\
day_starts = "04:00"                 # of the privacy day, for which names and counters of devices last
contribution = "6h"                  # of a day, for which a device counts where a day is paid
residents = "ignore"                 # present when the day starts: counts only after it has left (printers, machines)
"""

_ZONE = """
[[site.{site}.zones]]
id = "{zone}"
floor = "{floor}"
kind = "{kind}"
capacity = {capacity}
access_points = ["{access_point}"]
"""

_COUNTS = """
[[audience]]
name = "facilities"
description = "runs heating, cleaning and rooms"

[[audience]]
name = "public"
description = "anyone"

# Counts every five minutes. Offices are left out on purpose: a count that is 0 or 1 would
# undo what the attributes below promise about the same room.
[[release]]
name = "occupancy"
query = "count"
mechanism = "pegasus"                # groups similar windows: smaller errors in quiet hours
smoother = "median"
zones = {{ kind = [{kinds}] }}
levels = ["zone", "floor", "building"]
epsilon = {{ facilities = "1" }}       # per window: less epsilon, more noise
daily_budget = {{ facilities = "288" }}     # 288 windows a day; beyond it, nothing is released

# Anyone may see floors and the building, at the price of a device's whole day: epsilon 2 covers everything that this
# release publishes of one device's day. Rooms are left out: zones of one or two devices are not worth publishing at
# this price ('tacet policy plan' says so). A device is on one floor and in the building; shares divide the price.
[[release]]
name = "floors"
query = "count"
mechanism = "filter"
noise = "gaussian"
unit = "device_day"
zones = {{ kind = [{kinds}] }}
epsilon = {{ public = "2" }}
delta = "1e-6"                       # the guarantee is (epsilon, delta), for each device and day
levels = ["floor", "building"]
shares = {{ floor = "0.2", building = "0.8" }}
"""

_ATTRIBUTES = """
# Facts about a room's day, published exactly or withheld. A sensitive value is never published; any other
# is published with probability 1 - exp(-epsilon), so that a withheld value need not be a sensitive one.
[[release]]
name = "office-day"
query = "attributes"
mechanism = "osdprr"
zones = { kind = "office" }
absent = "sensitive"                 # a day on which nobody came is withheld, too

[release.attributes.arrival]
epsilon = { facilities = "1", public = "0.2" }
sensitive = { after = "10:00" }      # late arrivals are not published

[release.attributes.departure]
epsilon = { facilities = "0.5" }
sensitive = { before = "16:00" }

[release.attributes.breaks]
epsilon = { facilities = "0.5" }
sensitive = { above = 2 }

[release.attributes.occupancy_level]
epsilon = { facilities = "0.5" }
sensitive = { below = 0.3 }          # share of working hours in which somebody is present
"""


def policy_text(simulation: Simulation, sources: Sequence[str] = ("127.0.0.1",)) -> str:
    """Return a policy (TOML) for the simulated building; ``sources`` are its controllers' addresses."""
    public = ", ".join(f'"{kind}"' for kind in dict.fromkeys(simulation.building.kinds) if kind != OFFICE)
    parts = [site_text(simulation, sources, by_day=True), _COUNTS.format(kinds=public)]
    if len(simulation.building.of_kind(OFFICE)):
        parts.append(_ATTRIBUTES)
    return "".join(parts)


def site_text(simulation: Simulation, sources: Sequence[str] = ("127.0.0.1",), *, by_day: bool = False) -> str:
    """Return the ``[site.…]`` part alone; one policy may contain those of several buildings.

    ``by_day``: with privacy days, which a release that is charged per day needs.
    """
    config, place = simulation.config, simulation.building
    offices = len(place.of_kind(OFFICE))
    head = _HEAD.format(
        site=_key(config.site),
        number=config.building,
        timezone=config.timezone,
        max_devices=min(200_000, max(20_000, round(20 * config.zones * config.scale))),
        presence=_SESSIONS if config.sessions else _EVENTS,
        days=_DAYS if by_day else "",
        sources=", ".join(f'"{source}"' for source in sources),
        public=len(place.zones) - offices,
        offices=offices,
    )
    columns = zip(place.zones, place.floors, place.kinds, place.capacities, place.access_points, strict=True)
    return head + "".join(
        _ZONE.format(site=_key(config.site), zone=z, floor=f, kind=k, capacity=c, access_point=a)
        for z, f, k, c, a in columns
    )


def _key(site: str) -> str:
    """Return the site as a TOML key: quoted where a bare key could not hold it."""
    return f'"{site}"' if "." in site else site
