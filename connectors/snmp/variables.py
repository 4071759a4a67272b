"""The walk over a trap's variable bindings: by identifier, never by position."""

from __future__ import annotations

from connectors.snmp.ber import (
    INTEGER,
    MALFORMED,
    OBJECT_IDENTIFIER,
    OCTET_STRING,
    SEQUENCE,
    TIME_TICKS,
    TOO_MANY_VARBINDS,
    TRUNCATED,
    VALUE_TAGS,
    MalformedTrap,
    check_oid,
    header,
    length,
    sub_identifiers,
)
from connectors.snmp.profiles import (
    COLUMN_SIZES,
    COLUMNS,
    SCALARS,
    SKIP,
    SNMP_TRAP_OID,
    SYS_UP_TIME,
    TABLES,
)

MAX_VARBINDS = 160
LONGEST_INDEX = 5 + 6 * 2
"""A column and six sub-identifiers below 256, in octets."""
INDEX = "index"
"""Where the walk leaves a station's address that it found in a table's index."""
_TAGS = {SYS_UP_TIME: TIME_TICKS, SNMP_TRAP_OID: OBJECT_IDENTIFIER}
_NUMBER_OR_TEXT = frozenset({INTEGER, OCTET_STRING})


def variables(data: bytes, pos: int, end: int) -> dict[str, bytes]:
    """Walk the variable bindings once; return the content of the columns that a profile names.

    This is where names, addresses and sessions stay behind: a column outside the profiles is stepped over,
    its content never copied. Raises ``MalformedTrap``; an ``IndexError`` means that the data ended early.
    """
    pos, stop = header(data, pos, end, SEQUENCE)
    if stop != end:
        raise MalformedTrap(MALFORMED)
    found: dict[str, bytes] = {}
    for _ in range(MAX_VARBINDS + 1):
        if pos >= end:
            return found
        # 30 n 06 m <oid> tag k <value>, all lengths in one octet: nearly every binding there is.
        size, oid_size = data[pos + 1], data[pos + 3]
        oid, stop = pos + 4, pos + 2 + size
        value = oid + oid_size
        content = value + 2
        if (
            stop > end
            or content > stop
            or content + (value_size := data[value + 1]) != stop
            or data[pos] != SEQUENCE
            or data[pos + 2] != OBJECT_IDENTIFIER
            or size > 127
            or oid_size > 127
            or value_size > 127
        ):
            oid, value, content, stop = _long_binding(data, pos, end)
        tag = data[value]
        if tag not in VALUE_TAGS:
            raise MalformedTrap(MALFORMED)
        column = SCALARS.get(data[oid:value])
        if column is None:
            column = _locate(data[oid:value], found)
        if column:
            if column in found or tag != _TAGS.get(column, OCTET_STRING):
                _keep(found, column, tag, data[content:stop])
            else:
                found[column] = data[content:stop]
        pos = stop
    raise MalformedTrap(TOO_MANY_VARBINDS)


def _long_binding(data: bytes, pos: int, end: int) -> tuple[int, int, int, int]:
    """Read a binding with any definite lengths; return where identifier, value, content start; and stop."""
    start, stop = header(data, pos, end, SEQUENCE)
    oid, value = header(data, start, stop, OBJECT_IDENTIFIER)
    if value >= stop:
        raise MalformedTrap(TRUNCATED)
    content, value_stop = length(data, value + 1, stop)
    if value_stop != stop:
        raise MalformedTrap(MALFORMED)
    return oid, value, content, stop


def _keep(found: dict[str, bytes], column: str, tag: int, content: bytes) -> None:
    """Keep a named column; one that comes twice with two values contradicts itself."""
    expected = _TAGS.get(column)
    if tag != expected and (expected is not None or tag not in _NUMBER_OR_TEXT):
        raise MalformedTrap(MALFORMED)
    if found.setdefault(column, content) != content:
        raise MalformedTrap(MALFORMED)


def _locate(oid: bytes, found: dict[str, bytes]) -> str:
    """Return the column of an identifier with another instance than .0; take a station from its index."""
    check_oid(oid)
    for entry in TABLES:
        if oid.startswith(entry) and len(oid) <= len(entry) + LONGEST_INDEX:
            index = sub_identifiers(oid[len(entry) :])[1:]
            if len(index) == 6 and max(index) < 256:
                _keep(found, INDEX, OCTET_STRING, bytes(index))
    for size in COLUMN_SIZES:
        column = COLUMNS.get(oid[:size])
        if column is not None:
            return column
    return SKIP
