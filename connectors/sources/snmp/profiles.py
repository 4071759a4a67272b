"""The meaning of each vendor's traps, by object identifier.

The profiles follow the vendors' MIBs: AIRESPACE-WIRELESS-MIB, CISCO-LWAPP-DOT11-CLIENT-MIB, CISCO-LWAPP-AP-MIB,
CISCO-DOT11-ASSOCIATION-MIB, WLSX-TRAP-MIB, AI-AP-MIB, RUCKUS-ZD-EVENT-MIB, RUCKUS-EVENT-MIB, HUAWEI-WLAN-STATION-MIB,
HH3C-DOT11-STATION-MIB, AH-TRAP-MIB; SNMPv2-MIB and NET-SNMP-EXAMPLES-MIB for start and keep-alive. Only the Cisco
AireOS profile was tested with a real controller's trap; the others follow the MIB.

A disassociation or deauthentication says that a device left an access point. It is often no departure: the device
roams, and its association elsewhere may come before. The sighting therefore names the access point, and ends a stay
there alone (``stream.sensing.occupancy``). Reasons in traps are not read: no code separates departures from roams.

A column that is not named here never leaves the decoder: user names, addresses, network names, sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from connectors.sources.ingest.sighting import Kind
from connectors.sources.snmp.ber import encode_oid, encode_sub_identifier

ENTERPRISES = "1.3.6.1.4.1"


class Meaning(NamedTuple):
    """The kind of a trap if each column in ``when`` has its number."""

    kind: Kind
    when: tuple[tuple[str, int], ...] = ()


class Profile(NamedTuple):
    """One vendor's traps and the columns of device and place, in order of preference."""

    vendor: str
    traps: Mapping[str, tuple[Meaning, ...]]
    """Trap identifier -> meanings, of which the first match applies; none: a known trap without an observation."""
    client: tuple[str, ...] = ()
    access_point: tuple[str, ...] = ()
    """Radio addresses; a text that is no address is used as the access point's name."""
    name: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    """Table entries whose index is the client's address: six sub-identifiers without a length (LWAPP)."""
    ignored: tuple[str, ...] = ()
    """Columns that are known to come with the traps and are skipped; they are listed only to skip them fast."""
    at_sender: bool = False
    """The access point is the sender of the trap (a stand-alone access point)."""


ASSOCIATE, ROAM, RUN, LEAVE = ((Meaning(kind),) for kind in (Kind.ASSOCIATE, Kind.ROAM, Kind.RUN, Kind.LEAVE))
PASSED_OVER: tuple[Meaning, ...] = ()


def _numbered(base: str, meanings: Mapping[int, tuple[Meaning, ...]]) -> dict[str, tuple[Meaning, ...]]:
    return {f"{base}.{number}": meaning for number, meaning in meanings.items()}


def _aireos() -> Profile:
    variable = f"{ENTERPRISES}.14179.2.6.2"
    kinds = dict.fromkeys((3, 4, 52), PASSED_OVER) | {1: LEAVE, 2: LEAVE, 53: ASSOCIATE}
    return Profile(
        vendor="cisco-aireos",
        traps=_numbered(f"{ENTERPRISES}.14179.2.6.3", kinds),
        client=(f"{variable}.34",),
        access_point=(f"{variable}.35",),
        name=(f"{ENTERPRISES}.14179.2.2.1.1.3",),
        ignored=tuple(f"{variable}.{column}" for column in (36, 37, 38, 39, 43)),
    )


def _lwapp() -> Profile:
    base = f"{ENTERPRISES}.9.9.599"
    kinds = dict.fromkeys((1, 13), PASSED_OVER) | dict.fromkeys((3, 6, 10), LEAVE)
    kinds |= {2: ASSOCIATE, 4: RUN, 7: ASSOCIATE, 8: RUN, 9: ASSOCIATE, 11: RUN, 12: ROAM}
    return Profile(
        vendor="cisco-lwapp",
        traps=_numbered(f"{base}.0", kinds),
        client=(f"{base}.1.3.1.1.1",),
        access_point=(f"{base}.1.3.1.1.8",),
        name=(f"{ENTERPRISES}.9.9.513.1.1.1.1.5",),
        tables=(f"{base}.1.3.1.1", f"{base}.1.4.1.1"),
    )


def _ios() -> Profile:
    entry = f"{ENTERPRISES}.9.9.273.1.5.1"
    state = f"{entry}.9"
    kinds = {1: Kind.ASSOCIATE, 2: Kind.LEAVE, 3: Kind.RUN}
    meanings = tuple(Meaning(kind, ((state, number),)) for number, kind in kinds.items())
    return Profile(
        vendor="cisco-ios",
        traps={f"{ENTERPRISES}.9.9.273.1.4.1": meanings},
        client=(f"{entry}.1",),
        access_point=(f"{entry}.6",),
    )


def _aruba(vendor: str, root: str, voice: int) -> Profile:
    """WLSX-TRAP-MIB of controllers; Aruba Instant has the same numbers under its own root (AI-AP-MIB).

    An access point's address is a BSSID. ``voice`` is the trap with the place of a voice client.
    """
    variable = f"{root}.1"
    kinds = dict.fromkeys((1015, 1017, 1018, 1133), PASSED_OVER)
    # The user-entry traps name the device, but not the place: they are known, and end as "no_access_point".
    kinds |= {1014: ASSOCIATE, 1016: RUN, voice: ROAM}
    # wlsxUserEntryAttributesChanged: deleted (2), created (1) or modified (3).
    kinds[1219] = (Meaning(Kind.LEAVE, ((f"{variable}.103", 2),)), *ASSOCIATE)
    return Profile(
        vendor=vendor,
        traps=_numbered(f"{root}.2", kinds),
        client=(f"{variable}.52", f"{variable}.93"),
        access_point=(f"{variable}.1", f"{variable}.3"),
        name=(f"{variable}.94",),
        ignored=tuple(f"{variable}.{column}" for column in (51, 53, 54, 55, 60)),
    )


def _ruckus_zonedirector() -> Profile:
    variable = f"{ENTERPRISES}.25053.2.2.2"
    kinds = dict.fromkeys((7, 61, 62, 66, 67), PASSED_OVER) | {60: ASSOCIATE, 63: LEAVE, 64: LEAVE, 65: ROAM}
    return Profile(
        vendor="ruckus-zonedirector",
        traps=_numbered(f"{ENTERPRISES}.25053.2.2.1", kinds),
        client=(f"{variable}.15",),
        access_point=(f"{variable}.18",),
    )


def _ruckus_standalone() -> Profile:
    return Profile(
        vendor="ruckus-standalone",
        traps=_numbered(f"{ENTERPRISES}.25053.2.1.1", {1: ASSOCIATE, 2: LEAVE}),
        client=(f"{ENTERPRISES}.25053.2.1.2.15",),
        at_sender=True,
    )


def _huawei() -> Profile:
    base = f"{ENTERPRISES}.2011.6.139"
    return Profile(
        vendor="huawei",
        traps=_numbered(f"{base}.18.1.1.1", {9: ASSOCIATE, 10: LEAVE}),
        client=(f"{base}.18.1.2.1.1",),
        access_point=(f"{base}.13.3.3.1.1",),
        name=(f"{base}.13.3.3.1.4",),
    )


def _comware(vendor: str, root: str) -> Profile:
    # A roam names neither radio nor access point in its MIB; it counts only if the device adds one.
    kinds = dict.fromkeys((1, 2, 3, 4, 11), PASSED_OVER) | {5: LEAVE, 6: RUN, 7: ROAM, 8: LEAVE}
    return Profile(
        vendor=vendor,
        traps=_numbered(f"{root}.2.0", kinds),
        client=(f"{root}.2.1.2",),
        access_point=(f"{root}.2.1.11",),
        name=(f"{root}.2.1.10",),
    )


def _aerohive() -> Profile:
    event, variable = f"{ENTERPRISES}.26928.1.1.1.1.1", f"{ENTERPRISES}.26928.1.1.1.1.2"
    client_link_up, client_link_down = (((f"{variable}.14", 1), (f"{variable}.10", state)) for state in (1, 2))
    changes = (Meaning(Kind.ASSOCIATE, client_link_up), Meaning(Kind.LEAVE, client_link_down))
    return Profile(
        vendor="aerohive",
        traps={f"{event}.4": changes, f"{event}.6": PASSED_OVER},
        client=(f"{variable}.15",),
        access_point=(f"{variable}.1",),
        name=(f"{variable}.2",),
    )


COLD_START, WARM_START = "1.3.6.1.6.3.1.1.5.1", "1.3.6.1.6.3.1.1.5.2"
AUTHENTICATION_FAILURE = "1.3.6.1.6.3.1.1.5.5"
STANDARD = "standard"
"""The profile of RFC 3418: restarts, and queries with a wrong community."""
HEARTBEAT = f"{ENTERPRISES}.8072.2.3.0.1"
"""netSnmpExampleHeartbeatNotification: simulated controllers send it each simulated minute."""

PROFILES: tuple[Profile, ...] = (
    _aireos(),
    _lwapp(),
    _ios(),
    _aruba("aruba", f"{ENTERPRISES}.14823.2.3.1.11.1", voice=1215),
    _aruba("aruba-instant", f"{ENTERPRISES}.14823.2.3.3.1.200", voice=1262),
    _ruckus_zonedirector(),
    _ruckus_standalone(),
    _huawei(),
    _comware("comware-hh3c", f"{ENTERPRISES}.25506.2.75.3"),
    _comware("comware-h3c", f"{ENTERPRISES}.2011.10.2.75.3"),
    _comware("comware-hpn-icf", f"{ENTERPRISES}.11.2.14.11.15.2.75.3"),
    _aerohive(),
    Profile(
        STANDARD,
        dict.fromkeys((COLD_START, WARM_START), (Meaning(Kind.RESTART),)) | {AUTHENTICATION_FAILURE: PASSED_OVER},
    ),
    Profile("net-snmp", {HEARTBEAT: (Meaning(Kind.KEEPALIVE),)}),
)

SYS_UP_TIME, SNMP_TRAP_OID = "1.3.6.1.2.1.1.3", "1.3.6.1.6.3.1.1.4.1"
SKIP = ""
"""The column name of every column that stays in the decoder."""


def both_forms(oid: str) -> tuple[bytes, bytes]:
    """Return a trap's identifier as it is and with the 0 that RFC 3584 section 3.1 inserts before its last number."""
    base, _, number = oid.rpartition(".")
    last = encode_sub_identifier(int(number))
    return encode_oid(base) + last, encode_oid(base) + b"\x00" + last


def _trap_table(profiles: Iterable[Profile]) -> dict[bytes, tuple[Profile, tuple[Meaning, ...]]]:
    return {
        form: (profile, meanings)
        for profile in profiles
        for oid, meanings in profile.traps.items()
        for form in both_forms(oid)
    }


def _column_table(profiles: Iterable[Profile]) -> dict[bytes, str]:
    table = {encode_oid(oid): oid for oid in (SYS_UP_TIME, SNMP_TRAP_OID)}
    for profile in profiles:
        conditions = (oid for m in profile.traps.values() for meaning in m for oid, _ in meaning.when)
        named = (*profile.client, *profile.access_point, *profile.name, *conditions)
        table |= {encode_oid(oid): oid for oid in named}
        table |= {encode_oid(oid): SKIP for oid in profile.ignored}
    return table


TRAPS = _trap_table(PROFILES)
"""Encoded trap identifier, both forms -> profile and meanings."""
COLUMNS = _column_table(PROFILES)
"""Encoded column -> its dotted name, or ``SKIP``."""
SCALARS = {column + b"\x00": name for column, name in COLUMNS.items()}
"""The same with instance .0, which nearly every trap uses: one look-up for the usual case."""
COLUMN_SIZES = tuple(sorted({len(column) for column in COLUMNS}, reverse=True))
TABLES = tuple(encode_oid(entry) for profile in PROFILES for entry in profile.tables)
