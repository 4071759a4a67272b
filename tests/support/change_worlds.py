"""Worlds in which changes are paid for, and what they may cost, worked out a second time from the documents alone.

``sums`` leads messages through the product: connector, sensing, and the sums of changes that noise is added to. The
``Reference`` computes the same sums from ``docs/privacy.md`` and ``docs/sources.md`` with code of its own: presence,
logins, visits, changes, weights. ``squared`` is how far two worlds are apart, in the units of the noise; ``shift`` is
how far a printed (epsilon, delta) lets them be.

    symbol    here         meaning
    x(t)      counted      the node at which a device counts at a tick; at most V visits a level
    C'        weights      round(2**16 c_j), c_j = a (a + 1) … (a + j - 1) / j!
    |s|²      squared      Σ over levels, nodes and ticks of (difference of the sums)² / sigma'²
    mu        shift        δ = Φ(mu/2 - ε/mu) - e**ε Φ(-mu/2 - ε/mu)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from statistics import NormalDist
from typing import NamedTuple

from connectors.sources.ingest.ingest import Ingest
from connectors.sources.ingest.sighting import Kind, Sighting
from stream.mechanisms.changes.levels import LevelChanges
from stream.pipeline import Pipeline
from stream.records import HOUR, MINUTE, SECOND, Micros, OccupancyWindow, PrivacyDay
from stream.release.count_guarantees import count_guarantees
from stream.release.count_plan import ChangePlan, CountPlan, count_plans
from stream.release.validation import Policy, load_policy
from tests.support import connector_course
from tests.support.connector_course import sent_by_step
from tests.support.day_policies import change_release, visit_site
from tests.support.small_building import FLOORS, SITE, access_point, laboratory, policy_text

TICK = 30 * MINUTE
STEP = 15 * MINUTE
ZONES = "abcdxy"
NAS = b"nas-1"


class Heard(NamedTuple):
    """One message about a device, when it came, and how old it was; or, without a zone, that a server restarted.

    A zone of the second site is written in capitals.
    """

    came: Micros
    device: int
    zone: str
    left: bool = False
    age: Micros = 0
    login: bytes = b""
    copies: int = 0
    """How often it is sent again, two seconds later each."""

    @property
    def time(self) -> Micros:
        """When it happened."""
        return self.came - self.age


def restart(at: Micros) -> Heard:
    """Return the restart of the access server."""
    return Heard(at, -1, "")


@cache
def policy(
    levels: str = "",
    *,
    visits: int = 4,
    gap: str = "1min",
    sessions: str = "",
    day_starts: str = "04:00",
    more: str = "",
) -> Policy:
    """Return a site at which changes are paid for; without ``levels`` of zones alone, with ``sessions`` their limit."""
    site = visit_site(day_starts=day_starts, visits=visits, gap=gap, more=more)
    site += f'presence = "sessions"\nsession_limit = "{sessions}"\n' if sessions else ""
    text = policy_text(change_release(public="2", more=levels), tick="30min", site=site)
    return load_policy(text.replace('validity = "10min"\n', "" if sessions else 'validity = "70min"\n'))


OTHER = "ics"
"""The second site."""


@cache
def two_sites(levels: str, one: str, other: str) -> Policy:
    """Return a policy of two sites; each has keys of its own besides those of privacy days."""

    def both(keys: str) -> list[str]:
        site = f'day_starts = "04:00"\nresidents = "ignore"\n{keys}'
        text = policy_text(change_release(public="2", more=levels), tick="30min", site=site, sites=(SITE, OTHER))
        return text.replace('validity = "10min"\n', "").split(f"[site.{OTHER}]\n")

    return load_policy(f"{both(one)[0]}[site.{OTHER}]\n{both(other)[1]}")


# ---- the product ------------------------------------------------------------------------------------------


Node = tuple[str, str]
"""Level and name."""
Sums = dict[tuple[int, Node], dict[int, int]]
"""(Privacy day, node) -> position in the day -> sum of changes, in units of u'."""


class Course(NamedTuple):
    """What happens besides: when the connector begins anew, when an engine takes over, which windows are not used."""

    restarts: Sequence[Micros] = ()
    takeovers: Sequence[Micros] = ()
    unused: frozenset[int] = frozenset()
    """Positions of windows of every day that no audience is given."""


STRAIGHT = Course()


def sums(known: Policy, heard: Iterable[Heard], day: PrivacyDay, course: Course = STRAIGHT, site: str = SITE) -> Sums:
    """Return the sums of a site that noise is added to, from three hours before a day to five hours after it."""
    (plan,), found = count_plans(known, site), Sums()
    assert isinstance(plan, ChangePlan)
    state = plan.sums.initial()
    for window in windows(known, heard, day, course, site):
        if plan.is_counted(window) and (tick := plan.day_tick(window)).position not in course.unused:
            state, [made] = plan.sums.step(state, tick)
            for node, value in zip(nodes(plan), made.tolist(), strict=True):
                found.setdefault((tick.day, node), {})[tick.position] = value
    return found


def nodes(plan: CountPlan) -> list[Node]:
    """Return the nodes of a release, in the order of its sums."""
    names = {"zone": list(ZONES), "floor": sorted(set(FLOORS.values())), "building": ["building"]}
    return [(level, name) for level in plan.release.levels_up for name in names[level]]


def windows(
    known: Policy, heard: Iterable[Heard], day: PrivacyDay, course: Course = STRAIGHT, site: str = SITE
) -> Iterable[OccupancyWindow]:
    """Yield the windows of a site that come of messages."""
    core, sense = Ingest.of_policy(known, bytes(32)), Pipeline(known, site, laboratory()).stages.occupancy
    words = (word for each in sorted(heard) for word in _words(each))
    held, over, steps = sense.initial(), sorted(course.takeovers), range(day.start - 3 * HOUR, day.end + 5 * HOUR, STEP)
    for now, sent in sent_by_step(core, words, steps, grid=STEP, restarts=course.restarts):
        if over and over[0] <= now:
            over.pop(0)
            held = sense.rebase_ticks(sense.decode(sense.encode(held)))
        for message in (each for each in sent if each.site == site):
            held, made = sense.step(held, message)
            yield from (each for each in made if isinstance(each, OccupancyWindow))


def _words(word: Heard) -> Iterator[connector_course.Heard]:
    """Yield a message and its copies, all of which are heard with the first one."""
    for copy in range(1 + word.copies):
        at = word.came + 2 * copy * SECOND
        if not word.zone:
            seen = Sighting(Kind.RESTART, nas=NAS, age=word.age)
        else:
            radio = bytes.fromhex(access_point(word.zone.lower(), int(word.zone.isupper())).replace(":", ""))
            client = (0xA4 << 40 | word.device).to_bytes(6, "big")
            kind = Kind.LEAVE if word.left else Kind.ASSOCIATE
            seen = Sighting(kind, client, radio, age=at - word.time, session=b"1", user_name=word.login, nas=NAS)
        yield connector_course.Heard(word.came, seen, at)


# ---- the reference ----------------------------------------------------------------------------------------


class Reference(NamedTuple):
    """The terms of a site, as its policy states them."""

    levels: Sequence[str]
    visits: int
    gap: int
    """Ticks of absence that end no visit to the building."""
    holds: Micros
    """How long a message holds."""
    sessions: bool = False
    logins: bool = False
    others: bool = False
    """Where logins count, whether devices without one count too."""

    def sums(self, heard: Iterable[Heard], day: PrivacyDay, course: Course = STRAIGHT) -> Sums:
        """Return the sums of one day; a device's messages come in the order in which they happened."""
        begun = [-(-time // STEP) * STEP for time in course.restarts]
        words, found = sorted(self.understood(heard, begun), key=lambda each: each.time), Sums()
        length = (day.end - day.start) // TICK
        used = [position for position in range(length) if position not in course.unused]
        names = {"zone": list(ZONES), "floor": sorted(set(FLOORS.values())), "building": ["building"]}
        changes = {(level, name): [0] * length for level in self.levels for name in names[level]}
        for where in self.whereabouts(words, day):
            for level in self.levels:
                for node, ticks in self.counted(where, level).items():
                    before = 0
                    for position in used:
                        now = int(position in ticks)
                        changes[level, node][position] += now - before
                        before = now
        weights = factor(self.visits, 50)
        for at_node, steps in changes.items():
            found[day.number, at_node] = {
                position: sum(weights[position - at] * step for at, step in enumerate(steps[: position + 1]) if step)
                for position in used
            }
        return found

    def understood(self, heard: Iterable[Heard], begun: Sequence[Micros]) -> Iterable[Heard]:
        """Yield what a connector makes of messages that begins anew now and then.

        Nothing is older than the connector; where events are counted, a stay that it does not know has no end.
        """
        seen: dict[int, Micros] = {}
        for word in sorted(heard):
            began = max((time for time in begun if time < word.came), default=0)
            if word.left and not self.sessions and seen.get(word.device, 0) <= began:
                continue
            if not word.left:
                seen[word.device] = word.came
            yield word._replace(age=word.came - max(word.time, began))

    def whereabouts(self, words: Sequence[Heard], day: PrivacyDay) -> Iterable[list[str]]:
        """Yield, for each device or login that counts, its zone at each tick of the day."""
        stays, merged = dict[tuple[bytes, int], list[Heard]](), dict[object, list[list[tuple[str, Micros]]]]()
        devices = {word.device for word in words if word.zone}
        for word, login in self.owned(words, day):
            for device in devices if word.device < 0 else {word.device}:
                stays.setdefault((login, device), []).append(word)
        for (login, device), mine in stays.items():
            merged.setdefault(login or device, []).append(self.presence(mine, day))
        for each in merged.values():
            # a login is where that device of it is that changed its zone last
            yield [max(at, key=lambda place: (bool(place[0]), place[1]))[0] for at in zip(*each, strict=True)]

    def owned(self, words: Sequence[Heard], day: PrivacyDay) -> Iterable[tuple[Heard, bytes]]:
        """Yield each message with the login to which it belongs; '' where it belongs to the device itself."""
        bound = dict[int, bytes]()
        for word in words:
            if not self.logins:
                yield word, b""
            elif day.start < word.time <= day.end:
                if word.login and not word.left:
                    bound[word.device] = word.login
                login = word.login or bound.get(word.device, b"")
                if login or self.others:
                    yield word, login

    def presence(self, words: Sequence[Heard], day: PrivacyDay) -> list[tuple[str, Micros]]:
        """Return the zone at each tick of the day, and since when; '' where the device is not, or is a resident."""
        where, last, since = list[tuple[str, Micros]](), ("", 0, False), 0  # zone, time, whether it has ended
        todo = [word for word in words if day.start < word.time <= day.end]
        for tick in range(day.start + TICK, day.end + 1, TICK):
            while todo and todo[0].time <= tick:
                word = todo.pop(0)
                if not word.zone:
                    last = (last[0], last[1], True)
                elif not word.left:
                    stays = word.zone == last[0] and not last[2] and word.time < last[1] + self.holds
                    since = since if stays else word.time
                    last = (word.zone, word.time, False)
                elif word.zone == last[0]:
                    last = (last[0], last[1], True)
            here = bool(last[0]) and not last[2] and tick < last[1] + self.holds
            where.append((last[0] if here else "", since))
        resident, absent = bool(where[0][0]), 0  # the day's first half hour has one tick
        for position, (zone, begun) in enumerate(where):
            absent = 0 if zone else absent + 1
            resident = resident and absent < 6
            where[position] = ("" if resident else zone, begun)
        return where

    def counted(self, where: Sequence[str], level: str) -> dict[str, set[int]]:
        """Return node -> positions at which the device counts there."""
        found, made, at, absent = dict[str, set[int]](), 0, "", 0
        for position, zone in enumerate(where):
            node = {"zone": zone, "floor": FLOORS.get(zone, ""), "building": "building" if zone else ""}[level]
            absent = 0 if node else absent + 1
            if not node and at and level == "building" and absent <= self.gap:
                node = at
            if node and node != at:
                made += 1
            at = node if made <= self.visits else ""
            made = min(made, self.visits)  # the next visit is one too many as well
            if at:
                found.setdefault(at, set()).add(position)
        return found


@cache
def factor(visits: int, ticks: int) -> tuple[int, ...]:
    """Return C' of a number of visits."""
    order, weight, found = Fraction(6 if visits <= 2 else 7, 10), Fraction(1), list[int]()
    for j in range(ticks):
        found.append(round(2**16 * weight))
        weight *= (order + j) / (j + 1)
    return tuple(found)


# ---- prices -----------------------------------------------------------------------------------------------


def squared(known: Policy, one: Sums, other: Sums, day: PrivacyDay, site: str = SITE) -> float:
    """Return |s|² of two worlds, on the day in which they differ; all other days are the same in both."""
    assert one.keys() == other.keys()
    wide, total = variances(known, site), 0.0
    for (number, node), values in one.items():
        others = other[number, node]
        assert values.keys() == others.keys()
        if number == day.number:
            total += sum((values[at] - others[at]) ** 2 for at in values) / wide[node[0]]
        else:
            assert values == others, "another day differs"
    return total


def variances(known: Policy, site: str = SITE) -> Mapping[str, float]:
    """Return sigma'² of each level, for the finest audience."""
    (plan,) = count_plans(known, site)
    mechanism = plan.mechanisms[max(plan.mechanisms)]
    assert isinstance(mechanism, LevelChanges)
    pairs = zip(plan.release.levels_up, mechanism.levels, strict=True)
    return {level: float(each.variance) for level, each in pairs}


_PRINTED: dict[tuple[str, str], Mapping[str, float]] = {}
"""Version of a policy, and site -> its prices."""


def shift(known: Policy, unit: str, site: str = SITE) -> float:
    """Return mu of the epsilon that is printed for a unit."""
    if (known.version, site) not in _PRINTED:
        for each in count_guarantees(known):
            if each.reader == "public":
                _PRINTED[known.version, each.site] = each.tight
    epsilon, delta, phi = _PRINTED[known.version, site][unit], 1e-6, NormalDist().cdf
    low, high = 0.0, 20.0
    for _ in range(60):
        mu = (low + high) / 2
        less = phi(mu / 2 - epsilon / mu) - math.exp(epsilon) * phi(-mu / 2 - epsilon / mu) < delta
        low, high = (mu, high) if less else (low, mu)
    return high
