"""Generate a policy file for a list of zones, to be read and edited.

Counts are charged per day, with small epsilons. Floors and the building are published; a single zone is published only
if its capacity exceeds the noise that a day's price implies.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Literal

from connectors.operations.inventory.zones import PER_ACCESS_POINT, AccessPointPlace, Sites
from connectors.sources.ingest.addresses import colons
from stream.policy.counts import Count
from stream.policy.names import floor_level, is_display_name
from stream.policy.polls import IN_CLOUD, ON_PREMISES, PollTable
from stream.release.count_guarantees import count_guarantees
from stream.release.validation import load_policy

NOBODY = ("127.0.0.1",)
"""In the place of controllers that are not known: nothing but this machine is heard."""
SUMS = "sums"
"""Name of the release of floors and the building."""
Origin = Literal["inventory", "recording"]
LONG_DAY = "12h"
"""Longer than most working days; devices that stay longer are missing from counts after it."""
_COVERS = {"inventory": "then it is left out", "recording": "covers 99 % of the recording's device-days"}


@dataclass(frozen=True, slots=True)
class Building:
    """The data from which a policy file is written."""

    sites: Sites
    controllers: tuple[str, ...] = ()
    timezone: str | None = None
    shared_bits: int | None = None
    """The number of bits that an access point's BSSIDs share, if traps contain BSSIDs; None: traps contain the
    listed addresses."""
    origin: Origin = "inventory"
    contribution: str = LONG_DAY
    """For how much of a privacy day a device counts, where ticks are paid for."""
    floor_count: Count = "ticks"
    """What counts of floors pay for."""
    building_count: Count = "ticks"
    """What the count of a building pays for."""
    gap: str = "10min"
    """Of the sites, where sums pay for changes."""
    poll: PollTable | None = None
    """Which client table of each controller is polled; None: none is."""
    user: str | None = None
    """The user of SNMPv3 for polls and probes; None: SNMPv2c is used."""
    names: str | None = None
    """The file of names that the policy refers to (``names_text``); None: the policy contains the names."""

    @property
    def pays_for_changes(self) -> bool:
        """Whether any of its sums pays for changes."""
        return "changes" in (self.floor_count, self.building_count)


_HEAD = """\
# What is published about this building, for whom, and at which price: every key changes a guarantee, or which
# devices are counted where. Made from a list of access points; correct the lines marked CHECK. Then:
#   tacet policy check FILE    refuses what breaks a rule
#   tacet policy show FILE     prints the guarantees: read all of them before the first release
#   tacet policy plan FILE     estimates the errors
"""
_RECORDED = """\
#
# LABORATORY: made from a recording of people, so the access points listed here reveal where people were. Use it
# for experiments under a laboratory key only; for a building, begin with the controller's own list.
"""
_ADDRESSES = """
# Addresses. Access points have several: of the Ethernet port, of each radio (the base radio is the first), and one
# for each network they offer (BSSIDs, which differ from their radio in the last digit). List the one that
# your controller's traps contain: Cisco the base radio, Aruba a BSSID and the name. {written}
# 'tacet doctor' and 'tacet ingest' list addresses in traps that no zone has.
"""
_EXACT = """They are written as in the
# list. If traps contain BSSIDs, write base_radio = "5c:52:1e:00:20:60/44" instead: all that share 44 bits."""
_SHARED = """base_radio means
# all addresses that share {bits} bits with one of the list. If traps contain the listed address itself, write
# access_points instead."""

_SITE = """
[site.{site}]
{name}
timezone = "{timezone}"{check_timezone}
tick = "5min"                        # devices are counted at every tick
validity = "10min"                   # an association holds this long
lateness = "30s"                     # how long a window waits for late messages before it is final
working_hours = ["08:00", "18:00"]
day_starts = "04:00"                 # of the privacy day, for which names and counters of devices last
contribution = "{contribution}"{room} # of a day, for which one device counts at most: {covers}
residents = "ignore"                 # present when the day starts: counts only after it has left (printers, machines)
{visits}sources = [{sources}]{check_sources}
"""

_NAMES = """names = {file}   # names of the site, its floors and zones, and paths of floor plans"""

_VISITS = """\
visits = 4                           # to the building and to floors: the largest number a day for which a device counts
gap = "{gap}"{room} # a shorter absence ends no visit to the building; longer if phones are rarely heard
"""

_POLL = """
[[site.{site}.poll]]                 # by 'tacet poll', which reads communities and keys from TACET_POLLS_FILE
source = "{source}"
by = "{by}"{user}
"""
_PROBE = """\
[[site.{site}.probe]]                # every minute: its answers decide what is covered; polls never do
source = "{source}"
by = "{by}"{user}
"""
_OF_USER = """
user = "{user}"{room} # a user of TACET_SNMP_USERS_FILE"""
_OF_COMMUNITY = "                           # v2c: the community of TACET_SNMP_PROBE_COMMUNITY_FILE"
_PING = '                           # CHECK: by = "https" with the certificate\'s fingerprint proves more'

_ZONE = """
[[site.{site}.zones]]{lines}
id = "{id}"
floor = "{floor}"{check_floor}
kind = "{kind}"
capacity = {capacity}{check}
{addresses}"""

_AUDIENCES = """
[[audience]]
name = "facilities"
description = "runs heating, cleaning and rooms"

[[audience]]
name = "public"
description = "anyone"
public = true

# Everything below is paid by the day: epsilon, with delta, covers all that is published of one device's day, all
# windows together. Less epsilon means more noise. What has been published cannot be withdrawn.
"""

_SUMS = """
# {what} for everybody.{left_out}
[[release]]
name = "{name}"
query = "count"
mechanism = "filter"
noise = "gaussian"
unit = "device_day"
{count}{zones}epsilon = {{ {prices} }}
delta = "1e-6"
levels = [{levels}]
shares = {{ {shares} }}
"""
ONE = 'facilities = "2", public = "1"'
"""Prices of the release of sums."""
HALF = 'facilities = "1.36", public = "0.68"'
"""Prices of a release beside another one: both together have the noise, and the price, of one at ``ONE``."""
_CHANGES = """\
count = "changes"                    # a device's day pays for its coming and going, however long it stays
"""
_SMALL_FLOORS = """ A floor is left out where all its zones together are made for fewer
# than {worth} people, the noise's standard deviation in a zone: its sum would be about single people. Zones there:"""

_ROOMS = """
# Single zones, for those who run them. A zone is worth publishing only where more people come than the noise hides:
# its standard deviation is {scale:.0f} devices a window, so zones for fewer than {worth} people are left
# out.{left_out}{whole}
[[release]]
name = "rooms"
query = "count"
mechanism = "filter"
noise = "gaussian"
unit = "device_day"
{zones}epsilon = {{ facilities = "2" }}
delta = "1e-6"
levels = ["zone"]
"""
_NO_ROOMS = """
# Single zones are not published. A zone is worth publishing only where more people come than the noise hides: its
# standard deviation would be {scale:.0f} devices a window, and every zone is made for fewer than {worth} people{whole}.
"""
_WHOLE = """
# A zone that is a whole floor or building is left out, too, because 'sums' publishes it, at its own price:"""
_ALL_WHOLE = """,
# or is a whole floor or building, which 'sums' publishes"""


def policy_text(building: Building) -> str:
    """Return a building's policy file (TOML); it passes every check of a policy."""
    bits = building.shared_bits
    written = _EXACT if bits is None else _SHARED.format(bits=bits)
    recorded = _RECORDED if building.origin == "recording" else ""
    head = _HEAD + recorded + _ADDRESSES.format(written=written)
    sites = "".join(_site(building, site) for site in building.sites)
    alone = replace(building, floor_count="ticks", building_count="ticks", names=None)
    zones_alone = "".join(_site(alone, site) for site in building.sites)
    scale = _scale(head + zones_alone + _AUDIENCES)
    summed = _Summed.of(building.sites, math.ceil(scale))
    body = head + sites + _AUDIENCES
    return body + _sums(building, summed) + _rooms(building.sites, scale, summed.whole(building.sites))


def _site(building: Building, site: str) -> str:
    places = building.sites[site]
    sources = building.controllers or NOBODY
    visits = ""
    if building.pays_for_changes:
        visits = _VISITS.format(gap=building.gap, room=" " * (28 - len(building.gap)))
    head = _SITE.format(
        visits=visits,
        site=_key(site),
        name=f"name = {_quoted(_site_name(building, site))}"
        if building.names is None
        else _NAMES.format(file=_quoted(building.names)),
        timezone=building.timezone or "UTC",
        check_timezone="" if building.timezone else "                     # CHECK: not given; of the privacy day",
        contribution=building.contribution,
        room=" " * (19 - len(building.contribution)),
        covers=_COVERS[building.origin],
        sources=", ".join(f'"{source}"' for source in sources),
        check_sources="" if building.controllers else "              # CHECK: your controllers; nobody else is heard",
    )
    return head + _polls(building, site) + "".join(_zone(building, site, place) for place in places)


def _polls(building: Building, site: str) -> str:
    """Return a poll for each controller, with the probe that decides its coverage; cloud systems have none."""
    if building.poll is None:
        return ""
    user = "" if building.user is None else _OF_USER.format(user=building.user, room=" " * (28 - len(building.user)))
    by, probe_user = ("icmp", _PING) if building.poll in ON_PREMISES else ("snmp", user or _OF_COMMUNITY)
    found = []
    for source in building.controllers:
        found.append(_POLL.format(site=_key(site), source=source, by=building.poll, user=user))
        if building.poll not in IN_CLOUD:
            found.append(_PROBE.format(site=_key(site), source=source, by=by, user=probe_user))
    return "".join(found)


def _site_name(building: Building, site: str) -> str:
    return site + (" (from a recording)" if building.origin == "recording" else "")


def _zone(building: Building, site: str, place: AccessPointPlace) -> str:
    names = [member.name for member in place.access_points if member.name]
    lines = [_addresses(building, place)]
    if names:
        lines.append(f"access_point_names = [{', '.join(map(_quoted, names))}]\n")
    if building.names is None and place.called != place.id and place.called.isprintable():
        lines.append(f"metadata = {{ name = {_quoted(place.called)} }}\n")
    check = f"  # CHECK: not given; {PER_ACCESS_POINT} for each access point" if place.guessed else ""
    numbers = [member.line for member in place.access_points if member.line]
    return _ZONE.format(
        site=_key(site), id=place.id, floor=place.floor, kind=place.kind, capacity=place.capacity, check=check,
        check_floor="" if place.placed else "  # CHECK: not given",
        lines=f"  # line {', '.join(map(str, numbers))}" if 0 < len(numbers) <= 8 else "", addresses="".join(lines),
    )  # fmt: skip


_NAMES_HEAD = """\
# What people call the places of a building: nothing here changes a guarantee or a released value. 'tacet policy check'
# refuses a place that the policy does not have. Floors stand from the bottom up. A floor may have a plan, as SVG or
# GeoJSON, relative to this file: plan = "plans/1.svg".
"""


def names_text(building: Building) -> str:
    """Return a building's file of names (TOML); the names are those of the inventory, made readable."""
    return _NAMES_HEAD + "".join(_named_site(building, site) for site in building.sites)


def _named_site(building: Building, site: str) -> str:
    places = building.sites[site]
    lines = [f"\n[site.{_key(site)}]\nname = {_quoted(_site_name(building, site))}\n"]
    floors = {place.floor: place.floor_called for place in reversed(places)}
    for floor in sorted(floors, key=floor_level):
        lines.append(f"\n[[site.{_key(site)}.floors]]\nid = {_quoted(floor)}\n")
        if floors[floor] != floor and is_display_name(floors[floor]):
            lines.append(f"name = {_quoted(floors[floor])}\n")
    lines.append(f"\n[site.{_key(site)}.zones]\n")
    named = {place.id: _readable(place) for place in places}
    lines += [f"{_quoted(zone)} = {_quoted(name)}\n" for zone, name in named.items() if is_display_name(name)]
    return "".join(lines)


def _readable(place: AccessPointPlace) -> str:
    """Return a zone's name for people: ``lib-2-reading`` is ``Lib 2 reading``; a name with blanks is kept."""
    called = place.called if is_display_name(place.called) else place.id
    words = called if re.search(r"\s", called) else re.sub(r"[-_]+", " ", called).strip() or called
    return words[0].upper() + words[1:]


def _addresses(building: Building, place: AccessPointPlace) -> str:
    radios = [member.radio for member in place.access_points]
    if building.shared_bits is None:
        return f"access_points = [{_listed(radios)}]\n"
    width = 48 - building.shared_bits
    bases = dict.fromkeys(int(radio.replace(":", ""), 16) >> width << width for radio in radios)
    return f"base_radio = [{_listed([f'{colons(base.to_bytes(6))}/{48 - width}' for base in bases])}]\n"


@dataclass(frozen=True, slots=True)
class _Summed:
    """What the release of sums publishes."""

    worth: int
    """Fewer people are too few for a floor."""
    small: frozenset[str]
    """Ids of the zones of floors for too few people."""
    by_floor: bool
    """Whether floors are published, beside the building: where a site has several for enough people."""

    @classmethod
    def of(cls, sites: Sites, worth: int) -> _Summed:
        """Return what the sums of a list's zones are."""
        floors: Counter[tuple[str, str]] = Counter()
        for site, places in sites.items():
            for place in places:
                floors[site, place.floor] += place.capacity
        large = Counter(site for (site, _), capacity in floors.items() if capacity >= worth)
        small = {place.id for site, places in sites.items() for place in places if floors[site, place.floor] < worth}
        return cls(worth, frozenset(small), any(number > 1 for number in large.values()))

    def whole(self, sites: Sites) -> frozenset[str]:
        """Return the ids of zones that are a whole floor, or where floors are not published a whole building."""
        of = Counter(self._sum_of(site, place) for site, place in self._summed(sites))
        return frozenset(place.id for site, place in self._summed(sites) if of[self._sum_of(site, place)] == 1)

    def _sum_of(self, site: str, place: AccessPointPlace) -> tuple[str, str]:
        return site, place.floor if self.by_floor else ""

    def _summed(self, sites: Sites) -> Iterator[tuple[str, AccessPointPlace]]:
        """Yield site and place of each zone in the sums."""
        for site, places in sites.items():
            yield from ((site, place) for place in places if not self.by_floor or place.id not in self.small)


def _sums(building: Building, summed: _Summed) -> str:
    """Return the release of sums, or one for floors and one for the building where these pay for different things."""
    count = _CHANGES if building.building_count == "changes" else ""
    if not summed.by_floor:
        return _alone("sums", "The building", "building", count, ONE)
    if building.floor_count != building.building_count:
        of_floors = _CHANGES if building.floor_count == "changes" else ""
        floors = _alone("floors", "Floors,", "floor", of_floors, HALF)
        return floors + _alone("building", "The building,", "building", count, HALF)
    small = summed.small
    published = [name for name in _ids(building.sites) if name not in small]
    left_out = _SMALL_FLOORS.format(worth=summed.worth) + _named(sorted(small)) if small else ""
    return _SUMS.format(
        name="sums", what="Floors, and the building,", left_out=left_out, prices=ONE,
        zones=_chosen(published) if small else "",
        levels='"floor", "building"', shares='floor = "0.5", building = "0.5"', count=count,
    )  # fmt: skip


def _alone(name: str, what: str, level: str, count: str, prices: str) -> str:
    """Return a release of all zones' sums at one level."""
    return _SUMS.format(
        name=name, what=what, left_out="", zones="", prices=prices, levels=f'"{level}"', shares=f'{level} = "1"',
        count=count,
    )  # fmt: skip


def _scale(body: str) -> float:
    """Return the standard deviation of the noise that a zone would have."""
    everywhere = _ROOMS.format(scale=0, worth=0, left_out="", whole="", zones="")
    policy = load_policy(body + everywhere)
    scales = [
        math.sqrt(float(parameter))
        for guarantee in count_guarantees(policy)
        if guarantee.release == "rooms" and guarantee.terms is not None
        for parameter in guarantee.terms.parameters
    ]
    return max(scales)


def _rooms(sites: Sites, scale: float, whole: Collection[str]) -> str:
    """Return the release of zones with enough capacity, without those that are published as a floor or building.

    A name that has enough capacity at one site and too little at another is left out, and so is one that is a whole
    floor at one of them.
    """
    worth = math.ceil(scale)
    small = dict.fromkeys(place.id for places in sites.values() for place in places if place.capacity < worth)
    summed = [name for name in _ids(sites) if name in whole and name not in small]
    published = [name for name in _ids(sites) if name not in small and name not in whole]
    if not published:
        return _NO_ROOMS.format(scale=scale, worth=worth, whole=_ALL_WHOLE if summed else "")
    return _ROOMS.format(
        scale=scale, worth=worth, left_out=_named(list(small)), whole=_WHOLE + _named(summed) if summed else "",
        zones=_chosen(published) if small or summed else "",
    )  # fmt: skip


def _ids(sites: Sites) -> list[str]:
    """Return the zones' ids without duplicates."""
    return list(dict.fromkeys(place.id for places in sites.values() for place in places))


def _chosen(names: Sequence[str]) -> str:
    return f"zones = {{ ids = [{_listed(names)}] }}\n"


def _named(names: Sequence[str]) -> str:
    """Return names as lines of a comment."""
    return "".join(f"\n#   {line}" for line in wrap(", ".join(names), 110, break_on_hyphens=False))


def _listed(names: Sequence[str]) -> str:
    """Return a list's entries: on one line, or one per line if there are many."""
    quoted = [f'"{name}"' for name in names]
    return ", ".join(quoted) if len(quoted) <= 4 else "\n" + "".join(f"    {name},\n" for name in quoted)


def _key(site: str) -> str:
    """Return the site as a TOML key, quoted if a bare key cannot contain it."""
    return f'"{site}"' if "." in site else site


def _quoted(text: str) -> str:
    """Return a text as a TOML string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
