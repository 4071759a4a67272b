"""The connector's core: from sightings to batches and heartbeats; pure, time is an argument.

    sighting ─► place ─► collapse ─► name ─► batch of its (site, source) ─┐
    clock ─► 5 s grid ─► heartbeat of every (site, source) ───────────┴─► in this order to the sink

Times are microseconds. An observation's time is the receive time that the caller gives, less the age that an
authenticated source declares: never more than the site's lateness, nor than ``MOST_AGE``, so that no tick it may
count at has closed; what is said to be much older, or to come, is refused. The laboratory's uptime mode is the one
exception: there it is start + uptime.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from connectors.intake.addresses import access_point_name
from connectors.intake.ingest_state import BatchKey, IngestState, Kept, OpenBatch
from connectors.intake.limits import SiteLimits
from connectors.intake.places import Place, Places
from connectors.intake.sighting import OBSERVATIONS, Kind, Sighting
from connectors.sink import Message
from stream.policy.document import Policy
from stream.records import DAY, SECOND, Heartbeat, Micros, ObservationBatch, PrivacyDay, Row
from stream.sensing.pseudonyms import is_locally_administered, names_by_site

COLLAPSE: Micros = 5 * SECOND
"""Sightings of a device in the zone of its last kept one are dropped for so long."""
GRID: Micros = 5 * SECOND
WATERMARK_LAG: Micros = 1 * SECOND
OUTAGE: Micros = 15 * SECOND
"""A connector whose loop stood still for so long has not listened."""
BATCH_DELAY: Micros = 250_000
BATCH_ROWS = 1000
TICK_OF_UPTIME: Micros = 10_000
CLOCKS_APART: Micros = 30 * SECOND
"""So far may a source's clock be from this one; beyond, and beyond what lateness allows, its message is an old one."""
UNKNOWN_ACCESS_POINT, FOREIGN_SOURCE = "unknown_access_point", "foreign_source"
COLLAPSED, SITE_SHUT, NO_UPTIME = "collapsed", "site_shut", "no_uptime"
WRONG_TIME, NO_STAY = "wrong_time", "no_stay"
INGEST_REASONS = (UNKNOWN_ACCESS_POINT, FOREIGN_SOURCE, WRONG_TIME, COLLAPSED, NO_STAY, SITE_SHUT, NO_UPTIME)


class Outcome(NamedTuple):
    """What became of a sighting."""

    dropped: str | None
    """One of ``INGEST_REASONS``; None when it was taken."""
    batch: BatchKey | None
    """The batch that holds what it says; None when there is nothing to store."""


class Ingest:
    """The frozen configuration and its steps; the state is handed in and changed in place."""

    def __init__(
        self,
        *,
        access_points: Mapping[str, tuple[str, str]],
        sites: Mapping[str, SiteLimits],
        aliases: Mapping[str, str] | None = None,
        base_radios: Iterable[str] = (),
        start: Micros | None = None,
    ) -> None:
        """Take radio address (lower case, colons) -> (site, zone), and the sites.

        ``aliases`` maps an access point's name, or the IP address of one that sends its own traps, to its
        radio address. ``base_radios`` are addresses of ``access_points`` with the bits that their BSSIDs share,
        such as ``24:de:c6:cc:dd:e0/44``. ``start`` switches to the laboratory's uptime mode: what uptime 0 stands for.
        Raises ``UsageError`` for an access point of no site, an alias or base radio of no access point.
        """
        self._sites, self._start = dict(sites), start
        self._places = Places(access_points, sites, aliases or {}, base_radios)
        self.pairs = tuple((site, source) for site, limits in sites.items() for source in limits.sources)
        self._taken = {pair: Outcome(None, pair) for pair in self.pairs}

    @classmethod
    def of_policy(cls, policy: Policy, key: bytes, *, start: Micros | None = None) -> Ingest:
        """Return the ingest that a policy describes; ``key`` is the pseudonym key."""
        names = names_by_site(policy, key)
        return cls(
            access_points=policy.access_points(),
            sites={name: SiteLimits.of_site(site, names[name]) for name, site in policy.site.items()},
            aliases={
                name: zone.radios[0]
                for site in policy.site.values()
                for zone in site.zones
                for name in zone.access_point_names
            },
            base_radios=[base for site in policy.site.values() for zone in site.zones for base in zone.base_radio],
            start=start,
        )

    def initial(self, now: Micros, newest: Micros = -1) -> IngestState:
        """Return the state of a connector that starts now: a session later than the ``newest`` there was."""
        grid = now // GRID * GRID
        seen: dict[str, dict[bytes, Kept]] = {site: {} for site in self._sites}
        return IngestState(max(now, newest + 1), now, grid, listened_since=now, awake=grid, seen=seen)

    def run_on(self, state: IngestState, now: Micros, *, hearing: bool = True) -> None:
        """Take note that the connector runs; it must be called within each interval of the grid.

        Where whole intervals passed without, or nothing could be heard (``hearing``, asked at points of the grid
        only), nobody listened. Only the grid counts, so that calls which sightings bring about change nothing:
        what a heartbeat vouches for must not depend on whom it heard.
        """
        interval = now // GRID * GRID
        if interval - state.awake >= OUTAGE or not hearing:
            state.listened_since = interval + GRID
        state.awake = max(state.awake, interval)

    def observe(self, state: IngestState, now: Micros, source: str, address: str, sighting: Sighting) -> Outcome:
        """Take one sighting that came from ``address`` (listed as ``source``) at ``now``."""
        state.now = now
        time = now if self._start is None else self._uptime(sighting)
        if time is None:
            return Outcome(NO_UPTIME, None)
        if sighting.kind not in OBSERVATIONS:
            if sighting.kind is Kind.KEEPALIVE and self._start is not None:
                self._serve_simulated(state, source, time)
            return Outcome(None, None)
        place = self._places.find(sighting, address)
        if place is None:
            radio = sighting.access_point.hex(":") if sighting.access_point != sighting.client else ""
            state.note_unknown(radio or access_point_name(sighting.name) or address)
            return Outcome(UNKNOWN_ACCESS_POINT, None)
        limits = self._sites[place.site]
        refused = _refused(state, source, place, limits, sighting.age)
        if refused is not None:
            return Outcome(refused, None)
        if sighting.age:
            time -= max(0, min(sighting.age, limits.oldest))
        follow = self._leave if sighting.kind is Kind.LEAVE else self._sight
        return follow(state, source, place, sighting, time)

    def _uptime(self, sighting: Sighting) -> Micros | None:
        if sighting.uptime is None or self._start is None:
            return None
        return self._start + sighting.uptime * TICK_OF_UPTIME

    def _sight(self, state: IngestState, source: str, place: Place, sighting: Sighting, time: Micros) -> Outcome:
        """Keep a sighting, unless it repeats the device's last kept one.

        What becomes of a device follows from its own sightings and from the clock alone.
        """
        site, zone, radio = place
        client, batch, limits, seen = sighting.client, (site, source), self._sites[site], state.seen[site]
        names, stay = limits.names, (sighting.session, radio) if sighting.session else None
        last = seen.get(client)
        if last is not None and time - last.time > limits.validity:
            last = None  # the grid has not come by since
        if last is not None and time < last.time:  # what a newer name has begun is not taken back
            time = max(time, names.begin(last.time))
        epoch = names.epoch(time)
        if last is not None and last.epoch == epoch and last.zone == zone and abs(time - last.time) < COLLAPSE:
            if stay is not None and time >= last.time:
                seen[client] = last._replace(stay=stay)
            return Outcome(COLLAPSED, last.batch)
        rows = [Row(names.name(client, epoch), radio, time)]
        since = None if last is None or time < last.time else last.epoch
        if since != epoch:  # else it has had this name since
            rows[:0] = [Row(name, None, time) for name in names.outlived(client, time, limits.validity, since)]
        self._add(state, batch, rows, names.day(time))
        if last is None or time >= last.time:
            seen[client] = Kept(time, epoch, zone, batch, stay)
        if is_locally_administered(client):
            state.locally_administered += 1
        if len(seen) > limits.max_devices:
            self._shut_site(state, site)
        return self._taken[batch]

    def _leave(self, state: IngestState, source: str, place: Place, sighting: Sighting, time: Micros) -> Outcome:
        """End a stay if the device's last sighting was of this very one, from this source; else none is ended."""
        site, _, radio = place
        client, batch, limits, seen = sighting.client, (site, source), self._sites[site], state.seen[site]
        last = seen.get(client)
        if last is None or last.stay is None or (last.stay, last.batch) != ((sighting.session, radio), batch):
            return Outcome(NO_STAY, None)
        time, names = max(time, last.time), limits.names
        if time - last.time > limits.validity:
            return Outcome(NO_STAY, None)
        ended = [*names.outlived(client, time, limits.validity, last.epoch), names.name(client, names.epoch(time))]
        self._add(state, batch, [Row(name, None, time) for name in ended], names.day(time))
        del seen[client]
        return self._taken[batch]

    def _add(self, state: IngestState, batch: BatchKey, rows: list[Row], epoch: PrivacyDay | None) -> None:
        """Put rows into one batch: the ends of a device's earlier names and its sighting stay together."""
        waiting = state.open.get(batch)
        if waiting is not None and (len(waiting.rows) + len(rows) > BATCH_ROWS or waiting.epoch != epoch):
            self._close(state, batch)
            waiting = None
        if waiting is None:
            waiting = state.open[batch] = OpenBatch(state.now, epoch)
        waiting.rows += rows
        if len(waiting.rows) >= BATCH_ROWS - 1:  # room for a pair
            self._close(state, batch)

    def _shut_site(self, state: IngestState, site: str) -> None:
        """Send what waits, the device too many with it, and go silent about the site until a restart.

        Everybody remembered here is held by the engine as well, so this last batch shuts the site there, until
        it is reopened. Without heartbeats no window closes on part of the data.
        """
        for batch in [batch for batch in state.open if batch[0] == site]:
            self._close(state, batch)
        state.seen[site].clear()
        state.shut.add(site)

    def poll(self, state: IngestState, now: Micros) -> list[Message]:
        """Return what is due at ``now``, in the order in which it must become durable.

        Every sighting received before ``now`` must have been observed: a heartbeat says so.
        """
        if self._start is None:
            while state.grid + GRID <= now:
                state.grid += GRID
                self._beat(state, self.pairs, state.grid - WATERMARK_LAG)
        for batch, waiting in list(state.open.items()):
            if waiting.since + BATCH_DELAY <= now:
                self._close(state, batch)
        messages, state.ready = state.ready, []
        return messages

    def drain(self, state: IngestState) -> list[Message]:
        """Return everything that still waits; the end of a connector."""
        for batch in list(state.open):
            self._close(state, batch)
        messages, state.ready = state.ready, []
        return messages

    def next_due(self, state: IngestState) -> Micros | None:
        """Return when ``poll`` has something to do next without another sighting; None: never."""
        due = [waiting.since + BATCH_DELAY for waiting in state.open.values()]
        if self._start is None:
            due.append(state.grid + GRID)
        return min(due, default=None)

    def _serve_simulated(self, state: IngestState, source: str, time: Micros) -> None:
        """Uptime mode: serve every grid point up to a keep-alive, so that no client's trap moves the grid.

        A simulated controller is listened to for all of its time: from its first heartbeat on.
        """
        point = time // GRID * GRID
        served = max(state.simulated.get(source, point - GRID), point - DAY)
        pairs = tuple(pair for pair in self.pairs if pair[1] == source)
        for grid in range(served + GRID, point + GRID, GRID):
            self._beat(state, pairs, grid - WATERMARK_LAG)
            state.simulated[source] = grid

    def _beat(self, state: IngestState, pairs: tuple[BatchKey, ...], watermark: Micros) -> None:
        for site in {site for site, _ in pairs} - state.shut:
            state.forget(site, watermark - self._sites[site].validity)
        for pair in pairs:
            if pair[0] not in state.shut:
                self._close(state, pair)
                since = self._vouched(state, pair, watermark)
                state.ready.append(Heartbeat(*pair, state.session, watermark, since))

    def _vouched(self, state: IngestState, pair: BatchKey, watermark: Micros) -> Micros | None:
        """Return from when on a source can be vouched for: by its answers where it is asked."""
        if self._start is not None:
            return 0
        if pair[1] not in self._sites[pair[0]].probed:
            return state.listened_since
        return state.vouching.since(pair, watermark, state.listened_since)

    def _close(self, state: IngestState, batch: BatchKey) -> None:
        waiting = state.open.pop(batch, None)
        if waiting is not None:
            sequence = state.sequences.get(batch, 0)
            state.sequences[batch] = sequence + 1
            rows = tuple(waiting.rows)
            state.ready.append(ObservationBatch(*batch, state.session, sequence, rows, waiting.epoch))


def _refused(state: IngestState, source: str, place: Place, limits: SiteLimits, age: Micros) -> str | None:
    """Return why a sighting at a listed access point is not taken; None where it is."""
    if source not in limits.sources:
        return FOREIGN_SOURCE
    if place.site in state.shut:
        return SITE_SHUT
    if age and not -CLOCKS_APART <= age <= max(limits.oldest, CLOCKS_APART):
        return WRONG_TIME
    return None
