"""Who is there and who has gone, from complete polls; pure.

| state of a device | its row in a complete poll | no row in a complete poll |
|---|---|---|
| unknown | present; the row is passed on | unknown |
| present | present; the row is passed on | missing |
| missing | present; the row is passed on | unknown; a leave is passed on, at the access point of its last row |

A poll that is late, partial or failed is no complete poll: it changes no state. What is passed on about a device
depends on its own rows and on which polls were complete, and on nothing else. A process that starts knows no device: a
device that has left before gets no leave, and its stay ends as it does without one.

At a site that counts logins the states are those of a device with a login, so that no row of one login decides about
another's. A row without a login gets no leave: whoever used the device meanwhile, the leave would be theirs. The stay
ends as it does without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from connectors.sources.ingest.sighting import Kind, Sighting
from connectors.sources.ingest_socket.frames import TimedSighting
from connectors.sources.polls.client_tables import AssociatedClient
from stream.records import Micros

STAY = b"poll"
"""The session of all polled sightings. A leave ends a stay only if the device's last sighting was polled, too."""
LoginOf = Callable[[bytes], bytes | None]
"""Returns the login that a user name is, in the form in which it is compared; None if it names no person."""


class KnownDevice(NamedTuple):
    """The last row of a device, and whether it was missing since; its repr hides the device."""

    last: AssociatedClient
    missing: bool = False

    def __repr__(self) -> str:
        """Show nothing."""
        return "KnownDevice()"


class Departures:
    """The devices of one source, as its complete polls found them."""

    def __init__(self, login_of: LoginOf | None = None) -> None:
        """Know no device; ``login_of``: of a site that counts logins."""
        self._login_of = login_of
        self._known: dict[bytes, KnownDevice] = {}

    def follow(
        self, rows: Iterable[AssociatedClient], at: Micros
    ) -> tuple[list[TimedSighting], dict[bytes, KnownDevice]]:
        """Return what a complete poll passes on, all of it with the poll's time, and the devices known afterwards.

        Nothing changes before ``accept``: a poll that cannot be passed on counts as failed.
        """
        known: dict[bytes, KnownDevice] = {}
        passed_on = []
        for row in rows:
            login = (self._login_of and self._login_of(row.user_name)) or b""
            last = row if login else row._replace(user_name=b"")
            passed_on.append(_sighting(Kind.RUN, last, at))
            if login or self._login_of is None:
                known[row.client + login] = KnownDevice(last)
        for key, device in self._known.items():
            if key in known:
                continue
            if device.missing:
                passed_on.append(_sighting(Kind.LEAVE, device.last, at))
            else:
                known[key] = device._replace(missing=True)
        return passed_on, known

    def accept(self, known: dict[bytes, KnownDevice]) -> None:
        """Take over the devices that ``follow`` returned, once what it passed on is durable."""
        self._known = known


def _sighting(kind: Kind, row: AssociatedClient, at: Micros) -> TimedSighting:
    seen = Sighting(kind, row.client, row.access_point, row.name, session=STAY, user_name=row.user_name)
    return TimedSighting(seen, at)
