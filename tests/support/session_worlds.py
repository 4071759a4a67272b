"""Sites that count sessions, from a connector's messages to windows: what random worlds of them hold, and how to count.

A ``Heard`` is one message. ``counted`` leads messages through two connectors, which begin anew now and then, and one
engine for each site, which goes on from its snapshot now and then. Access points of one source belong to one connector.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from connectors.sources.ingest.ingest import GRID, Ingest, SiteLimits
from connectors.sources.ingest.sighting import Kind, Message, Sighting
from stream.pseudonyms.derivation import Pseudonyms
from stream.records import DAY, MINUTE, SECOND, Micros, OccupancyWindow
from stream.sensing.occupancy import OccupancyOperator

TICK, LIMIT, LATENESS = 5 * MINUTE, 20 * MINUTE, 30 * SECOND
MIDNIGHT = 17_564 * DAY
BEGIN, END = MIDNIGHT - 40 * MINUTE, MIDNIGHT + 60 * MINUTE
SOURCES = ("10.2.0.5", "10.2.0.6")
ZONES = ("lobby", "room")
SITES = ("dbh", "ics")
RADIOS = {f"5c:52:1e:00:00:0{n}": (SITES[n // 4], ZONES[n // 2 % 2]) for n in range(8)}
"""Address -> site and zone: two access points in each zone, one of each source."""
UNLISTED = "5c:52:1e:00:00:ff"
CLIENTS = tuple(bytes([0x3C, 0, 0, 0, 0, n]) for n in range(4))
SERVERS = (b"one", b"two")
"""Access servers: the first has the access points of the first site."""


class Heard(NamedTuple):
    """A message, when it came, and how old it was."""

    came: Micros
    source: str
    kind: Kind
    client: bytes = b""
    radio: str = ""
    nas: bytes = b""
    age: Micros = 0


class Course(NamedTuple):
    """What happens, whoever is there."""

    begins: Mapping[str, Sequence[Micros]]
    """When the connector of a source begins anew."""
    takeovers: Sequence[Micros]
    """When another engine goes on."""


Windows = dict[tuple[str, Micros], tuple[int, ...]]
"""(site, tick) -> a count for each zone."""


def source_of(radio: str) -> str:
    """Return the source that reports an access point."""
    return SOURCES[int(radio[-1], 16) % 2]


def heard(came: Micros, client: bytes, radio: str, kind: Kind = Kind.ASSOCIATE, age: Micros = 0) -> Heard:
    """Return a message about a device at an access point."""
    nas = SERVERS[0 if radio == UNLISTED else SITES.index(RADIOS[radio][0])]
    return Heard(came, source_of(radio), kind, client, radio, nas, age)


def drawn(rng: random.Random, number: int = 90, *, late: bool = True) -> list[Heard]:
    """Draw messages, many of them on or beside a tick, within seconds of another, or a limit after it.

    Args:
        rng: of the draw.
        number: of messages.
        late: whether some are older than they came, some come from where no site is, and access servers restart.
    """
    times, made = [BEGIN + MINUTE], list[Heard]()
    for _ in range(number):
        before = rng.choice(times)
        time = rng.choice((
            rng.randrange(BEGIN + MINUTE, END), before + rng.randrange(7 * SECOND),
            before + LIMIT + rng.randrange(-1, 2), before // TICK * TICK + rng.randrange(-1, 2),
        ))  # fmt: skip
        times.append(max(BEGIN + MINUTE, min(time, END - 1)))
        kind = rng.choice((Kind.ASSOCIATE, Kind.ASSOCIATE, Kind.LEAVE))
        radio = UNLISTED if late and rng.random() < 0.1 else rng.choice([*RADIOS])
        age = rng.choice((0, 0, rng.randrange(LATENESS))) if late else 0
        made.append(heard(times[-1], rng.choice(CLIENTS), radio, kind, age))
    return sorted(made)


def server_restarts(rng: random.Random, number: int = 4) -> list[Heard]:
    """Draw restarts of access servers, which are public."""
    return [
        Heard(
            rng.randrange(BEGIN + MINUTE, END), rng.choice(SOURCES), Kind.RESTART, nas=rng.choice(SERVERS),
            age=rng.choice((0, rng.randrange(LATENESS))),
        )
        for _ in range(number)
    ]  # fmt: skip


def drawn_course(rng: random.Random) -> Course:
    """Draw when connectors and engines begin anew."""
    begins = {source: sorted(rng.randrange(BEGIN, END) for _ in range(2)) for source in SOURCES}
    return Course(begins, sorted(rng.randrange(BEGIN, END) for _ in range(3)))


def _engine(site: str, limit: Micros) -> OccupancyOperator:
    points = {radio: zone for radio, (where, zone) in RADIOS.items() if where == site}
    return OccupancyOperator(
        site=site, zones=ZONES, access_points=points, sources=SOURCES, tick_length=TICK, validity=limit,
        lateness=LATENESS, max_devices=1000, sessions=True,
    )  # fmt: skip


def _connector(source: str, limit: Micros) -> Ingest:
    limits = SiteLimits((source,), limit, 1000, Pseudonyms.daily(bytes(32)), LATENESS, sessions=True)
    return Ingest(access_points=RADIOS, sites=dict.fromkeys(SITES, limits))


def counted(messages: Iterable[Heard], course: Course, limit: Micros = LIMIT, until: Micros = END) -> Windows:
    """Return the windows of all sites."""
    engines = {site: _engine(site, limit) for site in SITES}
    states = {site: engine.initial() for site, engine in engines.items()}
    cores = {source: _connector(source, limit) for source in SOURCES}
    stored = {source: core.initial(BEGIN) for source, core in cores.items()}
    begins, takeovers = {source: [*course.begins[source]] for source in SOURCES}, [*course.takeovers]
    todo, found = sorted(messages), Windows()

    def take(sent: Iterable[Message]) -> None:
        for message in sent:
            for out in engines[message.site].step(states[message.site], message)[1]:
                assert isinstance(out, OccupancyWindow), out
                found[out.site, out.window_end] = out.counts

    for now in range(BEGIN, until + limit + 2 * TICK, GRID):
        while takeovers and takeovers[0] <= now:
            takeovers.pop(0)
            states = {site: engine.decode(engine.encode(states[site])) for site, engine in engines.items()}
        for source, core in cores.items():
            while begins[source] and begins[source][0] <= now:
                begins[source].pop(0)
                take(core.drain(stored[source]))
                stored[source] = core.initial(now)
        while todo and todo[0].came < now + GRID:
            each = todo.pop(0)
            core, state = cores[each.source], stored[each.source]
            take(core.poll(state, each.came))
            radio = bytes.fromhex(each.radio.replace(":", ""))
            sighting = Sighting(each.kind, each.client, radio, age=each.age, nas=each.nas)
            core.observe(state, each.came, each.source, each.source, sighting)
        for source, core in cores.items():
            take(core.poll(stored[source], now + GRID))
    return found


def differing(one: Windows, other: Windows) -> list[tuple[str, Micros]]:
    """Return site and tick of each count that differs."""
    assert one.keys() == other.keys()
    return [
        (site, tick)
        for (site, tick), counts in one.items()
        for mine, others in zip(counts, other[site, tick], strict=True)
        for _ in range(abs(mine - others))
    ]
