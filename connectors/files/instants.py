"""Times as text, and which instants they can stand for; pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from stream.records import EPOCH, LATEST, Micros

_MICROSECOND = timedelta(microseconds=1)


@lru_cache(maxsize=65_536)
def instants(text: str, timezone: ZoneInfo) -> tuple[Micros, ...]:
    """Return the instants that a time can stand for: two for a local time that comes twice, none for a bad one.

    A time without an offset is local to ``timezone``. Every instant lies after 1970 and before 2255.
    """
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return _within([_micros(moment)])
        folds = (moment.replace(tzinfo=timezone, fold=fold) for fold in (0, 1))
        true = (local for local in folds if local.astimezone(UTC).astimezone(timezone).replace(tzinfo=None) == moment)
        return _within(dict.fromkeys(map(_micros, true)))
    except (ValueError, OverflowError, TypeError):
        return ()


def _micros(moment: datetime) -> Micros:
    return (moment - EPOCH) // _MICROSECOND


def _within(moments: Iterable[Micros]) -> tuple[Micros, ...]:
    return tuple(moment for moment in moments if 0 <= moment < LATEST)
