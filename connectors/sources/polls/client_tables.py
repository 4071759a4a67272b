"""The client tables of controllers' MIBs, and how their columns become associated clients; pure.

Only the columns below are read. None holds a login, an IP address, an SSID or a measurement; a site that counts logins
also reads the column of ``USER_NAMES``. A table is indexed by the client's address, so no column of it is needed.

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
    user_name: bytes = b""
    """As the controller shows it; empty if it shows none, or the site counts no logins."""

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


class UserNames(NamedTuple):
    """The column of a table that holds user names."""

    column: str
    longest: int
    """Octets that a value has at most. One of so many may be cut off, and two names would become one: it is none."""


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
    user_names: UserNames | None = None
    """None: no user name is read."""

    @property
    def columns(self) -> tuple[bytes, ...]:
        """The columns to read, encoded: the access point's, the status if there is one, user names if they are read."""
        names = "" if self.user_names is None else self.user_names.column
        return tuple(encode_oid(column) for column in (self.access_point, self.status, names) if column)


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
"""What ``by`` of a poll may say -> its table, without user names."""
USER_NAMES: Mapping[str, UserNames] = {
    "cisco-lwapp": UserNames(f"{ENTERPRISES}.9.9.599.1.3.1.1.27", 32),  # cldcClientUsername
    "cisco-aireos": UserNames(f"{ENTERPRISES}.14179.2.1.4.1.3", 255),  # bsnMobileStationUserName, a DisplayString
    "aruba": UserNames(f"{ENTERPRISES}.14823.2.2.1.4.1.2.1.3", 128),  # nUserName
}
"""Table -> its column of user names, where a MIB says which it is; of other tables none is read."""


def client_table(by: str, *, logins: bool) -> ClientTable:
    """Return a table; its user names are read only for a site that counts ``logins`` by them."""
    return TABLES[by]._replace(user_names=USER_NAMES.get(by) if logins else None)


def associated(table: ClientTable, columns: Sequence[Mapping[bytes, Cell]]) -> list[AssociatedClient]:
    """Return the devices of a table that was read whole, in the order of the table.

    ``columns`` are the cells of ``table.columns`` by the encoded rest of their index. A row counts if it has a valid
    index, an access point, and a status that counts. There is one entry for each device and user name, from the first
    row of theirs that counts; each row therefore affects its own device and login alone.
    """
    found: dict[tuple[bytes, bytes], AssociatedClient] = {}
    for index, place in columns[0].items():
        client = _client(table, index)
        if client is None or (table.status and not _counts(table, columns[1].get(index))):
            continue
        row = _row(table, client, place)
        if row is not None:
            name = b"" if table.user_names is None else _user_name(table.user_names, columns[-1].get(index))
            found.setdefault((client, name), row._replace(user_name=name))
    return list(found.values())


def _user_name(names: UserNames, cell: Cell | None) -> bytes:
    is_whole = cell is not None and cell.tag == OCTET_STRING and len(cell.value) < names.longest
    return cell.value if cell is not None and is_whole else b""


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
