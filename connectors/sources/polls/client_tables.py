"""The client tables of controllers' MIBs, and how their columns become associated clients; pure.

Only the columns below are read. None holds a login, an IP address, an SSID or a measurement. A table is indexed by the
client's address, so no column of it is needed.

| table | MIB | access point | rows that count |
|---|---|---|---|
| cldcClientTable | CISCO-LWAPP-DOT11-CLIENT-MIB | cldcApMacAddress, base radio | status 3 to 5 |
| bsnMobileStationTable | AIRESPACE-WIRELESS-MIB | bsnMobileStationAPMacAddr, base radio | status 2 to 4 |
| wlsxUserTable | WLSX-USER-MIB | nUserApBSSID, a BSSID | those that are not wired |
| ruckusZDWLANStaTable | RUCKUS-ZD-WLAN-MIB | ruckusZDWLANStaAPMacAddr | all |
| hwWlanStationTable | HUAWEI-WLAN-STATION-MIB | hwWlanStaApMac | status 2 to 4 |
| hh3cDot11StationAPRelationTable | HH3C-DOT11-STATION-MIB | hh3cDot11CurrAPID, a name | all |

HH3C-DOT11-STATION-MIB names no access point in hh3cDot11StationAssociateTable itself; the relation table has a row for
each of its stations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from connectors.sources.ingest.addresses import LONGEST_NAME, NOWHERE
from connectors.sources.snmp.ber import INTEGER, OCTET_STRING, encode_oid, sub_identifiers

ENTERPRISES = "1.3.6.1.4.1"
_ADDRESS = 6
"""Octets of a client's address, each a sub-identifier of the index (RFC 2578, section 7.7: of fixed length)."""


class AssociatedClient(NamedTuple):
    """One device at its access point, according to a controller; its repr hides both."""

    client: bytes
    """Its address, six octets."""
    access_point: bytes
    """A radio's address, six octets, or empty where the table has a name instead."""
    name: bytes = b""

    def __repr__(self) -> str:
        """Show nothing."""
        return "AssociatedClient()"


class Cell(NamedTuple):
    """A value of a column: its tag and its content."""

    tag: int
    value: bytes

    def __repr__(self) -> str:
        """Show nothing."""
        return "Cell()"


class ClientTable(NamedTuple):
    """A client table of one vendor."""

    access_point: str
    """The column with the access point."""
    status: str = ""
    """The column with a number that says whether the row counts; empty: every row counts."""
    counted: frozenset[int] = frozenset()
    """The values of ``status`` of rows that count."""
    further: int = 0
    """Sub-identifiers of the index after the client's address."""
    by_name: bool = False
    """Whether ``access_point`` is a name instead of an address."""

    @property
    def columns(self) -> tuple[bytes, ...]:
        """The columns to read, encoded; the access point's is the first."""
        return tuple(encode_oid(column) for column in (self.access_point, self.status) if column)


TABLES: Mapping[str, ClientTable] = {
    # authenticated, associated, powersave; not idle, pending, disassociated, to be deleted, probing or excluded
    "cisco-lwapp": ClientTable(
        f"{ENTERPRISES}.9.9.599.1.3.1.1.8", f"{ENTERPRISES}.9.9.599.1.3.1.1.2", frozenset({3, 4, 5})
    ),
    "cisco-aireos": ClientTable(  # the same states, counted from 0
        f"{ENTERPRISES}.14179.2.1.4.1.4", f"{ENTERPRISES}.14179.2.1.4.1.9", frozenset({2, 3, 4})
    ),
    "aruba": ClientTable(  # nUserIsWired: false; one row for each IP address of a device
        f"{ENTERPRISES}.14823.2.2.1.4.1.2.1.11", f"{ENTERPRISES}.14823.2.2.1.4.1.2.1.23", frozenset({2}), further=4
    ),
    "ruckus-zonedirector": ClientTable(f"{ENTERPRISES}.25053.1.2.2.1.1.3.1.1.2"),
    "huawei": ClientTable(  # associated, authenticated, roaming; not ageing, nor a copy of another controller's
        f"{ENTERPRISES}.2011.6.139.18.1.2.1.3", f"{ENTERPRISES}.2011.6.139.18.1.2.1.19", frozenset({2, 3, 4})
    ),
    "comware": ClientTable(f"{ENTERPRISES}.25506.2.75.3.1.2.1.1", by_name=True),
}
"""What ``by`` of a poll may say -> its table."""


def associated(table: ClientTable, columns: Sequence[Mapping[bytes, Cell]]) -> list[AssociatedClient]:
    """Return the devices of a table that was read whole: one entry for each, in the order of the table.

    ``columns`` are the cells of ``table.columns`` by the encoded rest of their index. A row counts if it has a valid
    index, an access point, and a status that counts. The first row of a device that counts decides; each row therefore
    affects its own device alone.
    """
    places, states = columns[0], columns[1] if table.status else None
    found: dict[bytes, AssociatedClient] = {}
    for index, place in places.items():
        client = _client(table, index)
        if client is None or client in found or (states is not None and not _counts(table, states.get(index))):
            continue
        row = _row(table, client, place)
        if row is not None:
            found[client] = row
    return list(found.values())


def _client(table: ClientTable, index: bytes) -> bytes | None:
    numbers = sub_identifiers(index)
    address = numbers[:_ADDRESS]
    if len(numbers) != _ADDRESS + table.further or max(address) > 0xFF:
        return None
    return bytes(address)


def _counts(table: ClientTable, status: Cell | None) -> bool:
    return (
        status is not None
        and status.tag == INTEGER
        and int.from_bytes(status.value, "big", signed=True) in table.counted
    )


def _row(table: ClientTable, client: bytes, place: Cell) -> AssociatedClient | None:
    if place.tag != OCTET_STRING:
        return None
    if table.by_name:
        return AssociatedClient(client, b"", place.value) if 0 < len(place.value) <= LONGEST_NAME else None
    if len(place.value) != _ADDRESS or place.value == NOWHERE:
        return None
    return AssociatedClient(client, place.value)
