"""The connector's core: from sightings to batches and heartbeats; pure, time is an argument.

    sighting ─► access point ─► collapse ─► pseudonym ─► batch of its (site, source) ─┐
    clock ─► 5 s grid ─► heartbeat of every (site, source) ───────────────────────────┴─► in this order to the sink

- ``SiteLimits``: the part of a site's policy that a connector needs.
- ``Ingest``: the frozen configuration and its steps.

A site that counts **events** remembers which session a device was last heard in, and ends only that one.

At a site that counts **sessions** the engine reads the rows in the order of their times
(``stream.sensing.occupancy``). Each message that places a device, or says that it left an access point, becomes a row.
No session id decides. Memory decides only as follows, and carries no message further than ``session_limit``:

1. A message that is older than the last one that placed its device is left out. So a device's messages count in the
   order in which they came, except that one that ends a stay may come late and then ends what was before it.
2. A message that repeats the last one, at the same access point within one cell of ``COLLAPSE``, is left out. Ticks,
   limits and days are whole cells, so a row at either time is counted at the same ticks.
3. A message from another site, or from an access point that no site lists, ends the stay that is remembered here. A
   restart of an access server ends the stays that it reported last, also of messages from before that come later. Such
   an end names the access point. It changes something only if the device's last row is there; that row came through
   this connector, which therefore remembers it. So the end is there whatever else is remembered.
4. Rows that end a device's names of earlier epochs come with its first message of an epoch.

At a site that counts **logins** each row bears the pseudonym of the login that its message bore, and the engine
(``stream.sensing.logins``) knows to whom a row without one belongs. Memory is kept by device and login, so that nothing
that one login sends decides about another's messages. A message that repeats its login's last one is sent all the same:
another login may have used the device in between, and what follows belongs to the one that used it last. A message
without a login is sent as it is, and not remembered: a restart of an access server, or a message from elsewhere, ends
no stay that such a message opened. A message from another site ends none at all. Names of earlier epochs need no end,
as stays end with their day.

A restarted connector remembers nothing, and its messages are never older than itself. Names of earlier epochs are then
ended all the same; a stay at another site, or of an access server that restarts, lasts until ``session_limit``.

Times are microseconds. An observation's time is the receive time that the caller gives, minus the age that an
authenticated source declares. The age is limited to the site's lateness and to ``MOST_AGE``, so that no tick at which
the observation may count has closed. A sighting that claims to be much older, or from the future, is refused. The
laboratory's uptime mode is the one exception: there the time is start + uptime.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from connectors.sources.ingest.access_points import AccessPointEntry, AccessPoints, aliases_of, base_radios_of
from connectors.sources.ingest.addresses import access_point_name
from connectors.sources.ingest.logins import LoginNames
from connectors.sources.ingest.sighting import OBSERVATIONS, Kind, Message, Sighting
from connectors.sources.ingest.state import BatchKey, ClientKey, IngestState, OpenBatch, RememberedDevice
from stream.errors import UsageError
from stream.policy.document import PolicyDocument
from stream.policy.sites import Site
from stream.pseudonyms.derivation import Pseudonyms, is_locally_administered, names_by_site
from stream.records import DAY, LEFT, SECOND, Columns, Heartbeat, Micros, ObservationBatch, PrivacyDay, Row

MOST_AGE: Micros = 60 * SECOND
"""Maximum age of an observation: at most one tick lies within it."""


class OptOuts(Protocol):
    """The devices that are left out of all counts."""

    def leaves_out(self, address: bytes, start: Micros) -> bool:
        """Return whether a device is left out of the day that starts at ``start``."""

    def leaves_out_login(self, login: bytes, start: Micros) -> bool:
        """Return whether a login is left out of the day that starts at ``start``."""


@dataclass(frozen=True, slots=True)
class SiteLimits:
    """The part of a site's policy that a connector needs."""

    sources: tuple[str, ...]
    """Its controllers, as the policy lists them."""
    validity: Micros
    """V: how long a sighting counts at most, and how long the connector remembers a device."""
    max_devices: int
    """Far above any real building; one device more suspends the site."""
    names: Pseudonyms
    """How its devices get pseudonyms."""
    lateness: Micros = 0
    """Lateness: the time from a tick until its window closes."""
    probed: frozenset[str] = frozenset()
    """Sources with a probe. For other sources heartbeats confirm only that the connector itself listened."""
    sessions: bool = False
    """Whether stays last until a message ends them, or for V."""

    opt_outs: bool = False
    """Whether devices on the list of opt-outs are left out."""
    ignores_randomised: bool = False
    """Whether devices with a locally administered address are left out."""
    logins: LoginNames | None = None
    """Its logins, if it counts them instead of devices."""

    @classmethod
    def of_site(cls, site: Site, names: Pseudonyms, logins: LoginNames | None = None) -> SiteLimits:
        """Return the limits of a policy's site."""
        probed = frozenset(probe.source for probe in site.probe)
        return cls(
            site.sources, site.counts_for, site.max_devices, names, site.lateness, probed, site.has_sessions,
            opt_outs=site.opt_out == "list", ignores_randomised=site.randomised == "ignore", logins=logins,
        )  # fmt: skip

    @property
    def oldest(self) -> Micros:
        """Return the maximum age of an observation: no tick at which it may count has closed."""
        return min(self.lateness, MOST_AGE)


COLLAPSE: Micros = 5 * SECOND
"""Events: for so long, sightings of a device in the zone of its last kept sighting are dropped. Sessions: the length of
the cells (n COLLAPSE, (n + 1) COLLAPSE], of which ticks, limits and days are whole multiples."""
GRID: Micros = 5 * SECOND
WATERMARK_LAG: Micros = 1 * SECOND
OUTAGE: Micros = 15 * SECOND
"""A connector whose event loop did not run for so long has not listened."""
BATCH_DELAY: Micros = 250_000
BATCH_ROWS = 1000
TICK_OF_UPTIME: Micros = 10_000
CLOCKS_APART: Micros = 30 * SECOND
"""Maximum difference between a source's clock and this one.

Beyond it, and beyond the lateness, a message counts as old.
"""
UNKNOWN_ACCESS_POINT, FOREIGN_SOURCE = "unknown_access_point", "foreign_source"
COLLAPSED, SITE_SHUT, NO_UPTIME = "collapsed", "site_shut", "no_uptime"
WRONG_TIME, NO_STAY = "wrong_time", "no_stay"
RANDOMISED = "randomised_address"
HARMLESS = frozenset({COLLAPSED, NO_STAY, RANDOMISED})
"""Those that indicate no fault."""
OPTED_OUT = "opted_out"
"""Not a reason for a drop: such a message is counted nowhere."""
INGEST_REASONS = (
    UNKNOWN_ACCESS_POINT,
    FOREIGN_SOURCE,
    WRONG_TIME,
    COLLAPSED,
    NO_STAY,
    SITE_SHUT,
    NO_UPTIME,
    RANDOMISED,
)


class Outcome(NamedTuple):
    """The result of a sighting."""

    dropped: str | None
    """One of ``INGEST_REASONS``; None if it was accepted."""
    batch: BatchKey | None
    """The batch that contains it; None if there is nothing to store."""


class Ingest:
    """The frozen configuration and its steps; the state is passed in and changed in place."""

    def __init__(
        self,
        *,
        access_points: Mapping[str, tuple[str, str]],
        sites: Mapping[str, SiteLimits],
        aliases: Mapping[str, str] | None = None,
        base_radios: Iterable[str] = (),
        start: Micros | None = None,
        opt_outs: OptOuts | None = None,
    ) -> None:
        """Set radio address (lower case, colons) -> (site, zone), and the sites.

        ``aliases`` maps an access point's name, or the IP address of one that sends its own traps, to its radio
        address. ``base_radios`` are addresses of ``access_points`` with the bits that their BSSIDs share, such as
        ``24:de:c6:cc:dd:e0/44``. ``start`` switches to the laboratory's uptime mode: it is the time of uptime 0.
        ``opt_outs`` are the devices to leave out of sites with ``opt_outs``. Raises ``UsageError`` for an access point
        of no site, for an alias or base radio of no access point, or if a site needs opt-outs and none are given.
        """
        self._sites, self._start, self._opt_outs = dict(sites), start, opt_outs
        if opt_outs is None and any(limits.opt_outs for limits in sites.values()):
            msg = "opt_out: a site with 'list' must have a file of opt-outs"
            raise UsageError(msg)
        self._screens = opt_outs is not None or any(limits.ignores_randomised for limits in sites.values())
        self._access_points = AccessPoints(access_points, sites, aliases or {}, base_radios)
        self._with_sessions = tuple(site for site, limits in sites.items() if limits.sessions)
        self._rules = {site: limits.logins.rules for site, limits in sites.items() if limits.logins is not None}
        self._with_logins = tuple(self._rules)
        self.pairs = tuple((site, source) for site, limits in sites.items() for source in limits.sources)
        self._accepted = {pair: Outcome(None, pair) for pair in self.pairs}

    @classmethod
    def of_policy(
        cls, policy: PolicyDocument, key: bytes, *, start: Micros | None = None, opt_outs: OptOuts | None = None
    ) -> Ingest:
        """Return the ingest that a policy describes; ``key`` is the pseudonym key."""
        names = names_by_site(policy, key)
        return cls(
            access_points=policy.access_points(),
            sites={
                name: SiteLimits.of_site(site, names[name], LoginNames.of_site(site, name, key))
                for name, site in policy.site.items()
            },
            aliases=aliases_of(policy),
            base_radios=base_radios_of(policy),
            start=start,
            opt_outs=opt_outs,
        )

    def initial(self, now: Micros, newest: Micros = -1) -> IngestState:
        """Return the state of a connector that starts now: its session is later than ``newest``."""
        grid = now // GRID * GRID
        seen: dict[str, dict[ClientKey, RememberedDevice]] = {site: {} for site in self._sites}
        return IngestState(max(now, newest + 1), now, grid, listened_since=now, awake=grid, devices=seen)

    def record_running(self, state: IngestState, now: Micros, *, can_receive: bool = True) -> None:
        """Record that the connector runs; must be called within each interval of the grid.

        If whole intervals pass without a call, or nothing could be received (``can_receive``, checked at points of the
        grid only), the connector did not listen. Only the grid counts, so calls that sightings cause change nothing:
        the coverage that a heartbeat confirms must not depend on which devices were seen.
        """
        interval = now // GRID * GRID
        if interval - state.awake >= OUTAGE or not can_receive:
            state.listened_since = interval + GRID
        state.awake = max(state.awake, interval)

    def screen(self, state: IngestState, now: Micros, address: str, sighting: Sighting) -> str | None:
        """Return why a sighting that came from ``address`` at ``now`` must not be queued; None: it may be.

        ``OPTED_OUT``: nothing may differ from a world in which the message never arrived. ``RANDOMISED``: the site
        ignores locally administered addresses. A device that opted out is left out at unknown access points too.
        """
        if not self._screens or sighting.kind not in OBSERVATIONS:
            return None
        place = self._access_points.find(sighting, address)
        limits = None if place is None else self._sites[place.site]
        if self._opt_outs is not None and (limits is None or limits.opt_outs):
            time = now if self._start is None else self._uptime(sighting)
            if time is not None and self._leaves_out(
                state, self._opt_outs, sighting, place, _day_start(time, sighting.age, limits)
            ):
                return OPTED_OUT
        if limits is not None and limits.ignores_randomised and is_locally_administered(sighting.client):
            return RANDOMISED
        return None

    def _leaves_out(
        self, state: IngestState, opt_outs: OptOuts, sighting: Sighting, place: AccessPointEntry | None, start: Micros
    ) -> bool:  # fmt: skip
        """Return whether a device or login is left out of the day that starts at ``start``.

        Where logins count, a device whose last login opted out is left out until it uses another one.
        """
        if opt_outs.leaves_out(sighting.client, start):
            return True
        known = self._with_logins if place is None else [site for site in self._with_logins if site == place.site]
        for site in known:
            rules, device = self._rules[site], (site, sighting.client)
            login = rules.login(sighting.user_name, sighting.cui)
            if login is None:
                if state.left_out.get(device) == start:
                    return True
            elif any(opt_outs.leaves_out_login(each, start) for each in rules.spellings(login)):
                if place is not None and sighting.kind is not Kind.LEAVE:
                    state.left_out[device] = start
                return True
            elif place is not None and sighting.kind is not Kind.LEAVE:
                state.left_out.pop(device, None)
        return False

    def observe(self, state: IngestState, now: Micros, source: str, address: str, sighting: Sighting) -> Outcome:
        """Process one sighting that came from ``address`` (listed as ``source``) at ``now``."""
        state.now = now
        time = now if self._start is None else self._uptime(sighting)
        if time is None:
            return Outcome(NO_UPTIME, None)
        if sighting.kind not in OBSERVATIONS:
            if sighting.kind is Kind.KEEPALIVE and self._start is not None:
                self._serve_simulated(state, source, time)
            if sighting.kind is Kind.RESTART and sighting.nas:
                self._end_of_server(state, source, sighting)
            return Outcome(None, None)
        place = self._access_points.find(sighting, address)
        if place is None:
            radio = sighting.access_point.hex(":") if sighting.access_point != sighting.client else ""
            state.note_unknown(radio or access_point_name(sighting.name) or address)
            return Outcome(UNKNOWN_ACCESS_POINT, self._leave_all(state, source, sighting))
        limits = self._sites[place.site]
        refused = _refusal(state, source, place.site, limits, sighting.age)
        if refused is not None:
            return Outcome(refused, None)
        return self._follow(state, source, place, sighting, self._time_of(state, sighting, limits))

    def _follow(
        self, state: IngestState, source: str, place: AccessPointEntry, sighting: Sighting, time: Micros
    ) -> Outcome:
        """Process a sighting at a listed access point."""
        limits, leaves, client = self._sites[place.site], sighting.kind is Kind.LEAVE, ClientKey(sighting.client)
        if limits.logins is not None:
            login = limits.logins.rules.login(sighting.user_name, sighting.cui)
            if login is None:
                return self._pass_on(state, (place.site, source), place.radio, sighting, time)
            names = limits.logins.names
            client = ClientKey(sighting.client, names.name(login, names.epoch(time)))
        if not limits.sessions:
            follow = self._end_stay if leaves else self._record_sighting
        else:
            follow = self._leave if leaves else self._place
            if not leaves and time < state.latest.get(client, -1):
                return Outcome(COLLAPSED, None)
        if self._with_sessions and not leaves:
            self._leave_others(state, ClientKey(client.address), time, place.site)
            state.latest[client] = max(time, state.latest.get(client, time))
        return follow(state, source, place, client, sighting, time)

    def _pass_on(
        self, state: IngestState, batch: BatchKey, radio: str, sighting: Sighting, time: Micros
    ) -> Outcome:  # fmt: skip
        """Send what a message without a login says, at a site that counts logins."""
        site, leaves = batch[0], sighting.kind is Kind.LEAVE
        limits, client = self._sites[site], sighting.client
        if leaves and not limits.sessions:
            return Outcome(NO_STAY, None)
        if self._with_sessions and not leaves:
            self._leave_others(state, ClientKey(client), time, site)
        row = Row(limits.names.name(client, limits.names.epoch(time)), LEFT + radio if leaves else radio, time)
        self._add(state, batch, [row], limits.names.day(time))
        if not leaves and is_locally_administered(client):
            state.locally_administered += 1
        return self._accepted[batch]

    def _time_of(self, state: IngestState, sighting: Sighting, limits: SiteLimits) -> Micros:
        """Return the time of a sighting that has just come: its source may declare an age."""
        if self._start is not None:
            return self._uptime(sighting) or self._start
        time = state.now - max(0, min(sighting.age, limits.oldest))
        return max(time, state.session) if limits.sessions else time

    def _uptime(self, sighting: Sighting) -> Micros | None:
        if sighting.uptime is None or self._start is None:
            return None
        return self._start + sighting.uptime * TICK_OF_UPTIME

    def _record_sighting(
        self, state: IngestState, source: str, place: AccessPointEntry, client: ClientKey, sighting: Sighting,
        time: Micros,
    ) -> Outcome:  # fmt: skip
        """Keep a sighting, unless it repeats the device's last kept one.

        The result for a device depends only on its own sightings and on the clock.
        """
        site, zone, radio = place
        batch, seen, limits = (site, source), state.devices[site], self._sites[site]
        names = limits.names
        stay = (sighting.session, radio) if sighting.session else None
        last = self._last(state, site, client, time)
        if last is not None and time < last.time:  # a newer pseudonym's beginning is never moved back
            time = max(time, names.begin(last.time))
        epoch = names.epoch(time)
        same = last is not None and last.epoch == epoch and last.zone == zone and abs(time - last.time) < COLLAPSE
        if last is not None and same and limits.logins is None:
            if stay is not None and time >= last.time:
                seen[client] = last._replace(stay=stay)
            return Outcome(COLLAPSED, last.batch)
        self._add_placement(state, batch, client, radio, time, last)
        if last is None or time >= last.time:
            seen[client] = RememberedDevice(time, epoch, zone, batch, stay)
        self._count_device(state, site, client)
        return self._accepted[batch]

    def _add_placement(
        self, state: IngestState, batch: BatchKey, client: ClientKey, radio: str, time: Micros,
        last: RememberedDevice | None,
    ) -> None:  # fmt: skip
        """Put a device's place into a batch, behind the ends of its earlier pseudonyms."""
        limits = self._sites[batch[0]]
        names, epoch = limits.names, limits.names.epoch(time)
        rows = [Row(names.name(client.address, epoch), radio, time)]
        since = None if last is None or time < last.time else last.epoch
        if since != epoch:  # otherwise it has had this pseudonym since then
            rows[:0] = [Row(name, None, time) for name in self._earlier_names(limits, client, time, since)]
        self._add(state, batch, rows, names.day(time), client.login)

    def _earlier_names(self, limits: SiteLimits, client: ClientKey, time: Micros, since: int | None) -> list[str]:
        """Return the pseudonyms of earlier epochs that a message has to end; where logins count, their days do."""
        if limits.logins is not None:
            return []
        return limits.names.outlived(client.address, time, limits.validity, since)

    def _count_device(self, state: IngestState, site: str, client: ClientKey) -> None:
        """Count a device that was placed, and suspend its site if that is one too many."""
        if is_locally_administered(client.address):
            state.locally_administered += 1
        if len(state.devices[site]) > self._sites[site].max_devices:
            self._suspend_site(state, site)

    def _end_stay(
        self, state: IngestState, source: str, place: AccessPointEntry, client: ClientKey, sighting: Sighting,
        time: Micros,
    ) -> Outcome:  # fmt: skip
        """End a stay if the device's last sighting belonged to this very stay and source; otherwise end none."""
        site, _, radio = place
        batch, limits, seen = (site, source), self._sites[site], state.devices[site]
        last = seen.get(client)
        if last is None or last.stay is None or (last.stay, last.batch) != ((sighting.session, radio), batch):
            return Outcome(NO_STAY, None)
        time, names = max(time, last.time), limits.names
        if time - last.time > limits.validity:
            return Outcome(NO_STAY, None)
        now = names.name(client.address, names.epoch(time))
        ended = [*self._earlier_names(limits, client, time, last.epoch), now]
        self._add(state, batch, [Row(name, None, time) for name in ended], names.day(time), client.login)
        del seen[client]
        return self._accepted[batch]

    # --- sessions

    def _place(
        self, state: IngestState, source: str, place: AccessPointEntry, client: ClientKey, sighting: Sighting,
        time: Micros,
    ) -> Outcome:  # fmt: skip
        """Add a row for a device's place, unless its last row says the same."""
        site, zone, radio = place
        batch, seen, limits = (site, source), state.devices[site], self._sites[site]
        names = limits.names
        last = self._last(state, site, client, time)
        if last is not None and time < last.time:  # a newer pseudonym's beginning is never moved back
            time = max(time, names.begin(last.time))
        epoch = names.epoch(time)
        same = last is not None and (last.epoch, last.radio, _cell(last.time)) == (epoch, radio, _cell(time))
        if last is not None and same and limits.logins is None:
            if last.batch == batch:
                seen[client] = last._replace(nas=sighting.nas)
            return Outcome(COLLAPSED, last.batch)
        self._add_placement(state, batch, client, radio, time, last)
        if last is None or time >= last.time:
            seen[client] = RememberedDevice(time, epoch, zone, batch, None, radio, sighting.nas)
        restarted = state.restarts.get((batch, sighting.nas), -1)
        if restarted >= time:
            self._end(state, batch, client, restarted, radio)
        self._count_device(state, site, client)
        return self._accepted[batch]

    def _leave(
        self, state: IngestState, source: str, place: AccessPointEntry, client: ClientKey, sighting: Sighting,
        time: Micros,
    ) -> Outcome:  # fmt: skip
        """Send that a device left an access point; the engine knows whether it was the last one."""
        site, _, radio = place
        self._end(state, (site, source), client, time, radio)
        return self._accepted[site, source]

    def _end(self, state: IngestState, batch: BatchKey, client: ClientKey, time: Micros, radio: str) -> None:
        """End a device's stay at an access point under all its names; forget the device if it is there."""
        site, limits = batch[0], self._sites[batch[0]]
        names, last = limits.names, self._last(state, site, client, time)
        since = None if last is None or time < last.time else last.epoch
        now = names.name(client.address, names.epoch(time))
        ended = [*self._earlier_names(limits, client, time, since), now]
        self._add(state, batch, [Row(name, LEFT + radio, time) for name in ended], names.day(time), client.login)
        if last is not None and last.time <= time and last.radio == radio:
            del state.devices[site][client]

    def _last(self, state: IngestState, site: str, client: ClientKey, time: Micros) -> RememberedDevice | None:
        """Return the last message of a device that still counts, whether or not the clock has expired it yet."""
        last = state.devices[site].get(client)
        return None if last is None or time - last.time > self._sites[site].validity else last

    def _leave_others(self, state: IngestState, client: ClientKey, time: Micros, here: str) -> None:
        """End the stays of a device at all sites but the one that has heard it now."""
        for site in self._with_sessions:
            last = state.devices[site].get(client)
            if last is not None and last.time <= time and site != here:
                self._end(state, last.batch, client, time, last.radio)
        state.latest[client] = max(time, state.latest.get(client, time))

    def _leave_all(self, state: IngestState, source: str, sighting: Sighting) -> BatchKey | None:
        """End the stays of a device that is at an access point of no site; return a batch that says so.

        Only sites that list its source learn of it.
        """
        batch, client = None, ClientKey(sighting.client)
        for site in self._with_sessions:
            limits, last = self._sites[site], state.devices[site].get(client)
            if sighting.kind is Kind.LEAVE or _refusal(state, source, site, limits, sighting.age) is not None:
                continue
            time = self._time_of(state, sighting, limits)
            if last is not None and last.time <= time:
                batch = last.batch
                self._end(state, batch, client, time, last.radio)
            state.latest[client] = max(time, state.latest.get(client, time))
        return batch

    def _end_of_server(self, state: IngestState, source: str, sighting: Sighting) -> None:
        """End the stays that an access server reported last and that began before it restarted."""
        for site in self._with_sessions:
            limits, batch = self._sites[site], (site, source)
            if _refusal(state, source, site, limits, sighting.age) is not None:
                continue
            time = self._time_of(state, sighting, limits)
            state.restarts[batch, sighting.nas] = max(time, state.restarts.get((batch, sighting.nas), time))
            ended = [
                (client, last.radio)
                for client, last in state.devices[site].items()
                if (last.batch, last.nas) == (batch, sighting.nas) and last.time <= time
            ]
            for client, radio in ended:
                self._end(state, batch, client, time, radio)
            self._close(state, batch)  # its answer waits for no batch, so all rows are sent before it

    def _add(
        self, state: IngestState, batch: BatchKey, rows: list[Row], epoch: PrivacyDay | None, login: str | None = None
    ) -> None:  # fmt: skip
        """Put rows into one batch: the ends of a device's earlier pseudonyms and its sighting stay together."""
        waiting = state.open.get(batch)
        if waiting is not None and (len(waiting.rows) + len(rows) > BATCH_ROWS or waiting.epoch != epoch):
            self._close(state, batch)
            waiting = None
        if waiting is None:
            waiting = state.open[batch] = OpenBatch(state.now, epoch)
        waiting.rows += rows
        waiting.logins += [login] * len(rows)
        if len(waiting.rows) >= BATCH_ROWS - 1:  # space for a pair
            self._close(state, batch)

    def _suspend_site(self, state: IngestState, site: str) -> None:
        """Send the open batches, including the device that exceeds the limit, then send nothing of the site until a
        restart.

        The engine also knows every device that is remembered here, so this last batch suspends the site in the engine
        until an operator resumes it. Without heartbeats no window closes on incomplete data.
        """
        for batch in [batch for batch in state.open if batch[0] == site]:
            self._close(state, batch)
        state.devices[site].clear()
        state.suspended.add(site)

    def poll(self, state: IngestState, now: Micros) -> list[Message]:
        """Return the messages that are due at ``now``, in the order in which they must become durable.

        Every sighting received before ``now`` must have been observed: a heartbeat asserts that.
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
        """Return everything that is still open; called at the end of a connector."""
        for batch in list(state.open):
            self._close(state, batch)
        messages, state.ready = state.ready, []
        return messages

    def next_due(self, state: IngestState) -> Micros | None:
        """Return when ``poll`` is next due without another sighting; None: never."""
        due = [waiting.since + BATCH_DELAY for waiting in state.open.values()]
        if self._start is None:
            due.append(state.grid + GRID)
        return min(due, default=None)

    def _serve_simulated(self, state: IngestState, source: str, time: Micros) -> None:
        """Uptime mode: serve every grid point up to a keep-alive, so that no client's trap moves the grid.

        A simulated controller counts as covered from its first heartbeat on.
        """
        point = time // GRID * GRID
        served = max(state.simulated.get(source, point - GRID), point - DAY)
        pairs = tuple(pair for pair in self.pairs if pair[1] == source)
        for grid in range(served + GRID, point + GRID, GRID):
            self._beat(state, pairs, grid - WATERMARK_LAG)
            state.simulated[source] = grid

    def _beat(self, state: IngestState, pairs: tuple[BatchKey, ...], watermark: Micros) -> None:
        for site in {site for site, _ in pairs} - state.suspended:
            state.forget(site, watermark - self._sites[site].validity)
        state.forget_order(watermark - MOST_AGE)
        for pair in pairs:
            if pair[0] not in state.suspended:
                self._close(state, pair)
                since = self._covered_from(state, pair, watermark)
                state.ready.append(Heartbeat(*pair, state.session, watermark, since))

    def _covered_from(self, state: IngestState, pair: BatchKey, watermark: Micros) -> Micros | None:
        """Return the time from which a heartbeat confirms coverage of a source: by its answers if it has a probe."""
        if self._start is not None:
            return 0
        if pair[1] not in self._sites[pair[0]].probed:
            return state.listened_since
        return state.coverage.since(pair, watermark, state.listened_since)

    def _close(self, state: IngestState, batch: BatchKey) -> None:
        waiting = state.open.pop(batch, None)
        if waiting is not None:
            sequence = state.sequences.get(batch, 0)
            state.sequences[batch] = sequence + 1
            rows: Sequence[Row] = tuple(waiting.rows)
            logins = self._sites[batch[0]].logins
            if logins is not None:
                rows = Columns.of(rows).with_logins(waiting.logins)
            terms = None if logins is None else logins.terms
            state.ready.append(ObservationBatch(*batch, state.session, sequence, rows, waiting.epoch, terms))


def _cell(time: Micros) -> int:
    return -(-time // COLLAPSE)


def _day_start(time: Micros, age: Micros, limits: SiteLimits | None) -> Micros:
    """Return the start of the privacy day of a sighting, or of its UTC day."""
    if limits is None:
        return time // DAY * DAY
    if age:
        time -= max(0, min(age, limits.oldest))
    day = limits.names.day(time)
    return time // DAY * DAY if day is None else day.start


def _refusal(state: IngestState, source: str, site: str, limits: SiteLimits, age: Micros) -> str | None:
    """Return why a site refuses a sighting; None if it does not."""
    if source not in limits.sources:
        return FOREIGN_SOURCE
    if site in state.suspended:
        return SITE_SHUT
    if age and not -CLOCKS_APART <= age <= max(limits.oldest, CLOCKS_APART):
        return WRONG_TIME
    return None
