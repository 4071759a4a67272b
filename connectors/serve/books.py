"""The newest account and operator's figures, for the two roles that may see them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from connectors.serve.denials import Denials
from stream.errors import DataError
from stream.schemas import parse_record, parse_time

Record = dict[str, Any]


class AccountBook:
    """The newest account of each site, what each of its days has told in attributes, and what was denied to whom."""

    def __init__(self) -> None:
        self.denials = Denials()
        self._newest: dict[str, Record] = {}
        self._days: dict[tuple[str, str], dict[str, Any]] = {}

    def take(self, records: Iterable[bytes]) -> None:
        """Take in account records in the order in which they were written; the last one of a window is right."""
        for value in records:
            record = parse_record(value)
            try:
                self._take(record)
            except (KeyError, TypeError, ValueError, AttributeError):
                msg = "account: must be a record of an account, has no site, window or kind"
                raise DataError(msg) from None

    def _take(self, record: Record) -> None:
        site = record["site"]
        for name, figures in record.get("attributes", {}).items() if record["kind"] == "attributes" else ():
            self._days.setdefault((site, name.partition("/")[0]), {})[name] = figures
        if record["kind"] == "counts":
            self.denials.take(record)
        held = self._newest.get(site)
        if held is None or _place(record) >= _place(held):
            self._newest[site] = record

    def newest(self) -> dict[str, Record]:
        """Return the account of each site as it stands now."""
        return self._newest

    def attributes(self, site: str, day: str) -> dict[str, Any]:
        """Return, by ``day/zone/attribute``, what a day's attributes have given away; nothing of a day without."""
        return self._days.get((site, day), {})


def _place(record: Record) -> tuple[int, bool]:
    return parse_time(record["window_end"]), record["kind"] != "attributes"


class OperatorBook:
    """The newest figures of each site."""

    def __init__(self) -> None:
        self._newest: dict[str, Record] = {}

    def take(self, records: Iterable[bytes]) -> None:
        """Take in figures in the order in which they were written."""
        for value in records:
            record = parse_record(value)
            self._newest[str(record.get("site"))] = record

    def newest(self) -> dict[str, Record]:
        """Return the figures of each site as they stand now."""
        return self._newest
