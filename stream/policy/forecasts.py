"""Which count releases are forecast, and the days on which a site is closed: ``[forecast]``.

Closed days change what is forecast, so they are part of the policy itself, also if they come from an iCalendar file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StrictInt

from stream.errors import TacetError
from stream.policy.counts import CountRelease
from stream.policy.fields import Frozen, Ident, Name, ReadText
from stream.policy.people import published_nodes
from stream.policy.sites import Site

FIRST_YEAR, LAST_YEAR = 2020, 2050
MOST_CLOSED = 4000
"""Maximum number of closed days."""


def _dated(text: str) -> str:
    try:
        found = date.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.isoformat() != text:
        msg = "must be a date such as '2026-12-24'"
        raise ValueError(msg)
    return text


def _in_order(days: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set(days)))


ClosedDay = Annotated[str, AfterValidator(_dated)]


class Forecast(Frozen):
    """A forecast of one count release for one of its audiences at a site."""

    site: Ident
    release: Name
    audience: Name
    closed: Annotated[tuple[ClosedDay, ...], AfterValidator(_in_order)] = Field(default=(), max_length=MOST_CLOSED)
    """Dates of holidays and closures, local to the site. A file may name an iCalendar file instead, with ``years``."""
    years: tuple[Annotated[StrictInt, Field(ge=FIRST_YEAR, le=LAST_YEAR)], ...] = ()
    """Years whose closed days are taken from the iCalendar file."""

    @property
    def release_name(self) -> str:
        """The name under which the forecast is published."""
        return forecast_name(self.release)


def forecast_name(release: str) -> str:
    """Return the name under which the forecast of a count release is published."""
    return f"{release}-forecast"


class ForecastError(TacetError):
    """The file of closed days cannot be used; the message names the key and the rule."""


def attach_closed_days(document: Mapping[str, Any], read: ReadText) -> None:
    """Replace the name of each file of closed days in the tables ``[forecast]`` of a policy by its days.

    Args:
        document: the parsed policy; it changes in place.
        read: returns the closed days of an iCalendar file, a date in each line.

    Raises:
        ForecastError: a file cannot be read, or ``years`` is missing.
    """
    given = document.get("forecast")
    tables: list[Any] = given if isinstance(given, list) else [given]
    for table in tables:
        name = table.get("closed") if isinstance(table, dict) else None
        if not isinstance(name, str):
            continue
        years = table.get("years")
        if not isinstance(years, list) or not years:
            msg = "forecast.years: must list the years that are taken from the file, such as [2026, 2027]"
            raise ForecastError(msg)
        try:
            if not name.lower().endswith(".ics"):
                msg = "must be dates, or an iCalendar file whose name ends with .ics"
                raise ValueError(msg)
            days = read(name).split()
        except ValueError as error:
            msg = f"forecast.closed: {error}, got {name!r}"
            raise ForecastError(msg) from None
        table["closed"] = [day for day in days if any(day.startswith(f"{year}-") for year in years)]


def check_forecasts(
    forecasts: Iterable[Forecast], sites: Mapping[str, Site], releases: Mapping[str, CountRelease]
) -> None:
    """Raise ValueError unless each forecast is of a site, of a count release of floors or the building, and of one of
    its audiences."""
    for each in forecasts:
        if each.site not in sites:
            msg = f"forecast: site must be one of the policy, got '{each.site}'"
            raise ValueError(msg)
        release = releases.get(each.release)
        if release is None or each.audience not in release.epsilon:
            msg = (
                "forecast: must be of a count release and one of its audiences, "
                f"got '{each.release}' and '{each.audience}'"
            )
            raise ValueError(msg)
        if not forecast_nodes(sites[each.site], release):
            msg = f"forecast: release '{each.release}' must publish floors or the building of site '{each.site}'"
            raise ValueError(msg)


def forecast_nodes(site: Site, release: CountRelease) -> tuple[str, ...]:
    """Return the nodes of a release that are forecast at a site: its floors, and the building."""
    return tuple(node for node in published_nodes(site, release) if not node.startswith("zone:"))
