"""The access points of a recording, for a laboratory that has no list of them."""

from __future__ import annotations

from pathlib import Path

from connectors.files.dialect import OWN, Dialect
from connectors.files.text_rows import lines_of, open_text, rows_of
from connectors.inventory.rows import AccessPoint
from connectors.spellings import address_of, colons
from stream.errors import DataError


def recorded_access_points(path: Path, dialect: Dialect = OWN) -> list[AccessPoint]:
    """Return the access points at which a recording has seen somebody, sorted by site and address.

    Their number and names tell of people. Rows without an address of an access point are passed over.

    Raises:
        UsageError: the file cannot be read or has other columns.
        DataError: it cannot be read to its end, or no row names an access point.
    """
    seen: dict[tuple[str, str], AccessPoint] = {}
    with open_text(path) as file:
        for _, fields in rows_of(path, lines_of(path, file), dialect.names):
            if isinstance(fields, str) or not all(isinstance(field, str) for field in fields[2:]):
                continue
            radio, site = address_of(fields[2]), fields[3].strip() if dialect.names_sites else ""
            if radio is not None and not radio[0] & 1:
                seen.setdefault((site, colons(radio)), AccessPoint(0, colons(radio), site=site))
    if not seen:
        raise DataError(f"{path}: no row names an access point by its address")
    return [seen[key] for key in sorted(seen)]
