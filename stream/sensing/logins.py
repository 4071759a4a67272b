"""Presence of logins: several devices of one login count once.

A row may bear the login that its message bore. The rows of a privacy day are read in the order of ``occupancy``, by
(time, source, session, sequence, row); each belongs to one login or to none:

    row                                  belongs to
    bears a login                        that login; if it places the device, the device is bound to this login
    bears none, of a device that a row   the login to which the device is bound
    of the day has bound
    bears none, of any other device      the device itself, or with ``others = "ignore"`` to nobody

Presence is that of ``occupancy``, kept for each (login, device) and cut at the day's start: a row acts on the stay of
its own login with its own device, and on no other. So a login on another person's device ends no stay of that person.

At a tick a login is in the zone of its device whose zone changed last (of two, the smaller pseudonym), and in no other.
Residents are judged before that, for each (login, device). Bounds by ticks or visits come after it, for each login.

**What a difference can change.** Call the rows of a day that belong to a login *its* rows.

* Without all rows of a login, every other row belongs to whom it did: a row without a login belongs to the last row
  before it that bound its device, and if that one is gone, so is this one. Hence nothing changes but that login's day.
* All its rows of one device more or less, or one row that binds no device, leave every other row where it is: they
  replace that login's day.
* One row that binds a device may also move the rows behind it, up to the next that binds the device, from another
  login: it replaces the days of two logins.

If every row bears a login, no row moves, and one row replaces one login's day.

| symbol | name     |
|--------|----------|
| V      | validity |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stream.policy.privacy_days import EARLY, PrivacyDays
from stream.records import Micros, PrivacyDay
from stream.sensing.contribution import note_residents
from stream.sensing.presence import END, LEAVING, Entry, Stamp, moved

NOBODY = ""
"""In place of a login: the row belongs to none."""


class DeviceOfLogin(NamedTuple):
    """What presence is kept for."""

    login: str
    """Pseudonym, or ``NOBODY``."""
    device: str

    @property
    def name(self) -> str:
        """What counts: the login, or a device that has none."""
        return self.login or self.device


class LoginRow(NamedTuple):
    """A row of an open window; rows are read in ascending order."""

    time: Micros
    stamp: Stamp
    row: int
    place: int
    device: str
    login: str
    """Pseudonym, or ``NOBODY``."""


class Held(NamedTuple):
    """Where a device of a login is."""

    place: int
    time: Micros
    """Time of its last row."""
    since: Micros
    """When its zone changed last: it came, or came from another zone."""


@dataclass(slots=True)
class LoginState:
    """The presence of a day's logins, and the rows of open windows."""

    day: PrivacyDay | None = None
    """The day of the last tick; None before the first."""
    current: dict[DeviceOfLogin, Held] = field(default_factory=dict, repr=False)
    bound: dict[str, str] = field(default_factory=dict, repr=False)
    """Device -> the login that it last used on this day."""
    seen: set[DeviceOfLogin] = field(default_factory=set, repr=False)
    """Those that were present at a tick of the day; only if residents are ignored."""
    residents: dict[DeviceOfLogin, int] = field(default_factory=dict, repr=False)
    """Residents that do not count yet -> number of ticks in a row, up to the last one, at which they were absent."""
    pending: dict[Micros, list[LoginRow]] = field(default_factory=dict, repr=False)
    """Open window -> its rows, in the order of arrival."""

    @property
    def waiting(self) -> int:
        """Number of buffered rows."""
        return sum(map(len, self.pending.values()))

    def devices(self) -> Iterator[str]:
        """Return a key of each login with each device, and of each device without a login; some more than once."""
        yield from (login + device for login, device in (*self.current, *self.seen))
        yield from (login + device for device, login in self.bound.items())
        yield from (row.login + row.device for rows in self.pending.values() for row in rows)

    def begin(self, day: PrivacyDay) -> None:
        """Forget the day before; buffered rows stay."""
        self.day, self.current, self.bound, self.seen, self.residents = day, {}, {}, set(), {}

    def remove_after(self, instant: Micros | None) -> None:
        """Remove the buffered rows later than an instant; None: all of them."""
        self._refile([] if instant is None else [row for row in self._rows() if row.time <= instant])

    def rebase(self, tick_length: Micros) -> None:
        """Move the buffered rows to the windows of another tick length."""
        self._refile(self._rows(), tick_length)

    def _rows(self) -> list[LoginRow]:
        return [row for rows in self.pending.values() for row in rows]

    def _refile(self, rows: Iterable[LoginRow], tick_length: Micros | None = None) -> None:
        window = {id(row): tick for tick, filed in self.pending.items() for row in filed}
        self.pending = {}
        for row in rows:
            tick = window[id(row)] if tick_length is None else -(-row.time // tick_length) * tick_length
            self.pending.setdefault(tick, []).append(row)

    def to_plain(self, number: Mapping[Stamp, int]) -> list[Any]:
        """Return lists, numbers and strings in one fixed order; ``number`` is that of each batch."""
        return [
            None if self.day is None else list(self.day),
            [[*key, *held] for key, held in sorted(self.current.items())],
            sorted(self.bound.items()),
            [list(key) for key in sorted(self.seen)],
            [[*key, absent] for key, absent in sorted(self.residents.items())],
            [
                [tick, [[row.time, number[row.stamp], *row[2:]] for row in sorted(rows)]]
                for tick, rows in sorted(self.pending.items())
            ],
        ]

    @classmethod
    def from_plain(cls, plain: list[Any], stamps: Sequence[Stamp], places: Mapping[int, int]) -> LoginState:
        """Return the state that ``to_plain`` has written; ValueError or TypeError for anything else.

        ``places`` are the present places of the stored ones, ``END`` for one that is gone: who is there is dropped.
        """
        day, current, bound, seen, residents, pending = plain
        state = cls(None if day is None else PrivacyDay(*day), bound=dict(bound))
        for login, device, place, time, since in current:
            if places[place] != END:
                state.current[DeviceOfLogin(login, device)] = Held(places[place], time, since)
        state.seen = {DeviceOfLogin(*key) for key in seen}
        state.residents = {DeviceOfLogin(login, device): absent for login, device, absent in residents}
        for tick, rows in pending:
            state.pending[tick] = [
                LoginRow(time, stamps[stamp], row, moved(place, places), device, login)
                for time, stamp, row, place, device, login in rows
            ]
        return state


class PresentLogins(NamedTuple):
    """Who is present at a tick: name -> (zone, time of its last row)."""

    everybody: Mapping[str, tuple[int, Micros]]
    counting: Mapping[str, tuple[int, Micros]]
    """Without residents, if these are ignored."""


class Logins:
    """Computes who is present at each tick; ticks come in order."""

    def __init__(
        self, days: PrivacyDays, zones: Sequence[int], validity: Micros, *, others: bool, ignore_residents: bool
    ) -> None:
        """Set the days, the zone of each place, V, and whether devices without a login count."""
        self._days, self._zones, self._validity = days, zones, validity
        self._others, self._ignore_residents = others, ignore_residents

    @staticmethod
    def file(state: LoginState, tick: Micros, entry: Entry, device: str, login: str | None) -> str:
        """Buffer a row for the window that ends at ``tick``; return its key among ``LoginState.devices``."""
        row = LoginRow(*entry, device, login or NOBODY)
        state.pending.setdefault(tick, []).append(row)
        return row.login + device

    def close(self, state: LoginState, tick: Micros) -> PresentLogins:
        """Read the rows of all windows up to a tick, and return who is present at it."""
        day = self._days.at(tick)
        if day != state.day:
            state.begin(day)
        due = [row for window in [t for t in state.pending if t <= tick] for row in state.pending.pop(window)]
        for row in sorted(due):
            if row.time > day.start:
                self._read(state, row)
        oldest = tick - self._validity
        state.current = {key: held for key, held in state.current.items() if held.time > oldest}
        everybody = self._merged(state.current)
        if not self._ignore_residents:
            return PresentLogins(everybody, everybody)
        note_residents(state.residents, state.seen, state.current, early=tick <= day.start + EARLY)
        state.seen |= state.current.keys()
        counting = {key: held for key, held in state.current.items() if key not in state.residents}
        return PresentLogins(everybody, self._merged(counting))

    def _read(self, state: LoginState, row: LoginRow) -> None:
        """Let a row place its device, or end the device's stay, for the login to which it belongs."""
        if row.place >= 0 and row.login:
            state.bound[row.device] = row.login
        login = row.login or state.bound.get(row.device, NOBODY)
        if not (login or self._others):
            return
        key = DeviceOfLogin(login, row.device)
        held = state.current.get(key)
        if row.place >= 0:
            stays = (
                held is not None
                and self._zones[held.place] == self._zones[row.place]
                and row.time - held.time < self._validity
            )
            since = held.since if held is not None and stays else row.time
            state.current[key] = Held(row.place, row.time, since)
        elif held is not None and (row.place == END or LEAVING - row.place == held.place):
            del state.current[key]

    def _merged(self, present: Mapping[DeviceOfLogin, Held]) -> dict[str, tuple[int, Micros]]:
        """Return the zone of each login: that of its device whose zone changed last."""
        latest: dict[str, tuple[DeviceOfLogin, Held]] = {}
        for key, held in present.items():
            best = latest.get(key.name)
            if best is None or (-held.since, key.device) < (-best[1].since, best[0].device):
                latest[key.name] = key, held
        return {name: (self._zones[held.place], held.time) for name, (_, held) in latest.items()}
