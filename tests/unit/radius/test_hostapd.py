"""Accounting as hostapd sends it, which OpenWrt's access points run: which attributes, when, and what comes of them.

The attributes, their forms and their order follow hostapd's source (src/ap/accounting.c and src/ap/ieee802_1x.c); the
bodies are made here. Each BSS, that is each network on each radio, accounts for itself: Called-Station-Id is its BSSID.
"""

from __future__ import annotations

from connectors.sources.ingest.ingest import COLLAPSED, Ingest, SiteLimits
from connectors.sources.ingest.sighting import Kind, Sighting
from connectors.sources.radius.decoder import account, read
from stream.pseudonyms.derivation import Pseudonyms
from stream.records import HOUR, LEFT, MINUTE, SECOND, Micros, ObservationBatch
from tests.unit.radius.accounting_requests import INTERIM, ON, SECRET, START, STOP, attribute, packet

NOW = 1_790_000_000 * SECOND
ANNE, BOB = "3C-00-00-00-00-01", "3C-00-00-00-00-02"
SLOW, FAST = "02-00-00-00-00-10", "02-00-00-00-00-20"
"""The BSSIDs of one network on the two radios of an access point."""
POINTS = {bssid.lower().replace("-", ":"): ("library", zone) for bssid, zone in ((SLOW, "hall"), (FAST, "hall"))}
SOURCE = "10.2.0.30"


def number(value: int) -> bytes:
    return value.to_bytes(4, "big")


def hostapd(
    status: int, station: str | None, bssid: str, at: Micros, *, nas: bytes = b"ap-2-07", delay: int = 0
) -> bytes:
    """Return a request of one BSS about a station; without a station about the BSS itself."""
    made = at // SECOND - delay
    parts = [(40, number(status))]
    if station is not None:
        # Acct-Authentic (local), and a User-Name that is the address where nobody logs in.
        parts += [(45, number(2)), (1, station.replace("-", "").lower().encode())]
    # NAS-IP-Address is hostapd's own_ip_addr, which OpenWrt sets only on request; NAS-Port-Type is 802.11.
    parts += [(4, bytes((127, 0, 0, 1))), (32, nas), (30, f"{bssid}:library".encode()), (61, number(19))]
    if station is not None:
        # Service-Type, NAS-Port (the association), Calling-Station-Id, Connect-Info, Acct-Session-Id, cipher suites.
        parts += [(6, number(2)), (5, number(1)), (31, station.encode()), (77, b"CONNECT 0Mbps 802.11a")]
        parts += [(44, b"B4C1A2F03D5E6978"), (186, number(0x000FAC04)), (187, number(0x000FAC04))]
    parts += [(55, number(made)), (41, number(delay))]
    if status in {INTERIM, STOP}:
        parts += [(46, number(612)), (47, number(9)), (48, number(7)), (42, number(1200)), (52, number(0))]
    if status == STOP:
        parts.append((49, number(1)))
    if station is None:
        parts.append((44, b"00000000A1B2C3D4"))
    return packet(b"".join(attribute(kind, content) for kind, content in parts), identifier=at // SECOND % 256)


def said(datagram: bytes, now: Micros = NOW) -> Sighting:
    return account(read(datagram, (SECRET,)), now).sighting


def test_each_kind_of_request_says_who_is_where() -> None:
    for status, kind in ((START, Kind.ASSOCIATE), (INTERIM, Kind.RUN), (STOP, Kind.LEAVE)):
        sighting = said(hostapd(status, ANNE, FAST, NOW))
        assert (sighting.kind, sighting.age) == (kind, 0)
        assert (sighting.client.hex("-").upper(), sighting.access_point.hex("-").upper()) == (ANNE, FAST)
        assert sighting.name == b"ap-2-07"
    restart = said(hostapd(ON, None, FAST, NOW))
    assert (restart.kind, restart.client, restart.access_point) == (Kind.RESTART, b"", b"")


def test_a_request_that_is_sent_again_declares_its_delay() -> None:
    """hostapd changes Acct-Delay-Time and with it the authenticator, so it is no copy by its octets."""
    assert said(hostapd(START, ANNE, FAST, NOW, delay=9)).age == 9 * SECOND


class Library:
    """A site that counts sessions, and what its connector has sent."""

    def __init__(self) -> None:
        limits = SiteLimits((SOURCE,), 4 * HOUR, 1000, Pseudonyms.daily(bytes(32)), 30 * SECOND, sessions=True)
        self.ingest = Ingest(access_points=POINTS, sites={"library": limits})
        self.state = self.ingest.initial(NOW - MINUTE)

    def hears(
        self, status: int, station: str | None, bssid: str, at: Micros, nas: bytes = b"ap-2-07"
    ) -> tuple[str | None, int]:
        """Return why a request was left out, and how many ends of stays it made."""
        self.ingest.poll(self.state, at)
        sighting = said(hostapd(status, station, bssid, at, nas=nas), at)
        outcome = self.ingest.observe(self.state, at, SOURCE, SOURCE, sighting)
        sent = [each for each in self.ingest.drain(self.state) if isinstance(each, ObservationBatch)]
        ends = [row for batch in sent for row in batch.rows if (row.access_point or "").startswith(LEFT)]
        return outcome.dropped, len(ends)


def test_interims_of_ten_minutes_keep_a_stay_and_a_roam_between_radios_begins_another() -> None:
    library = Library()
    assert library.hears(START, ANNE, SLOW, NOW) == (None, 0)
    assert library.hears(INTERIM, ANNE, SLOW, NOW + 10 * MINUTE) == (None, 0)
    assert library.hears(START, ANNE, FAST, NOW + 12 * MINUTE) == (None, 0)
    reason, ends = library.hears(STOP, ANNE, SLOW, NOW + 17 * MINUTE)
    assert (reason, ends) == (None, 1), "the engine ends nothing: it names the access point that the device has left"
    assert library.hears(INTERIM, ANNE, FAST, NOW + 22 * MINUTE) == (None, 0)
    assert library.hears(INTERIM, ANNE, FAST, NOW + 22 * MINUTE + SECOND)[0] in {None, COLLAPSED}


def test_a_radio_that_restarts_ends_the_stays_of_all_that_have_its_name_so_each_needs_one_of_its_own() -> None:
    for names, ended in (((b"ap-2-07", b"ap-2-07"), 2), ((b"ap-2-07-slow", b"ap-2-07-fast"), 1)):
        library = Library()
        library.hears(START, ANNE, SLOW, NOW, nas=names[0])
        library.hears(START, BOB, FAST, NOW, nas=names[1])
        assert library.hears(ON, None, FAST, NOW + MINUTE, nas=names[1]) == (None, ended)
