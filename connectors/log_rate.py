"""How often one thing may be said: what goes wrong with every message must not fill a disk, nor hide all else."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

AT_ONCE = 20
"""So many lines that say the same are written, ..."""
PERIOD = 60.0
"""... in so many seconds; of the others it is said how many there were."""
KINDS = 1000
"""So many kinds of lines are told apart; beyond, the one begun longest ago is forgotten."""


class Kind(NamedTuple):
    """What lines have in common that say the same."""

    logger: str
    says: str
    """Before anything is put into it."""
    about: str
    """Such as a site, which tells two lines apart."""


@dataclass(slots=True)
class _Said:
    since: float
    times: int = 0


class LogRate:
    """Counts lines by what they say."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock`` gives seconds and never goes back."""
        self._clock = clock
        self._said: OrderedDict[Kind, _Said] = OrderedDict()

    def may_say(self, kind: Kind) -> bool:
        """Count a line; return whether it may be written."""
        said = self._said.get(kind)
        if said is None:
            said = self._said[kind] = _Said(self._clock())
            if len(self._said) > KINDS:
                self._said.popitem(last=False)
        said.times += 1
        return said.times <= AT_ONCE

    def over(self) -> Iterator[tuple[Kind, int]]:
        """Yield each kind whose time is over and of which lines were left out, with how many; then it begins anew."""
        now = self._clock()
        for kind in [kind for kind, said in self._said.items() if now - said.since >= PERIOD]:
            times = self._said.pop(kind).times
            if times > AT_ONCE:
                yield kind, times - AT_ONCE
