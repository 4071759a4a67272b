"""Ledger entries of one policy, read back as charge events."""

from __future__ import annotations

from zoneinfo import ZoneInfo

from stream.accounting.ledger import ChargeEvent, Entry
from stream.errors import UsageError
from stream.keys import key_day_of
from stream.local_time import span_of_day
from stream.policy.attributes import AttributeRelease
from stream.policy.counts import CountRelease
from stream.policy.document import PolicyDocument, Release
from stream.policy.thresholds import ThresholdRelease
from stream.records import PrivacyDay, ReleaseId
from stream.release.prices import DayPrices, RunPrice
from stream.release.state import LocalDay
from stream.schemas import parse_time


class EntryReader:
    """Reads the entries that a site's ledger has under one policy."""

    def __init__(self, policy: PolicyDocument, site: str) -> None:
        self.policy = policy
        self.site = site
        self.tick_length = policy.site[site].tick
        self.releases = {release.name: release for release in policy.release}
        self._timezone = ZoneInfo(policy.site[site].timezone)
        self._privacy_days = policy.site[site].privacy_days
        self._zones = {
            release.name: tuple(zone.id for zone in policy.zones_of(release, site))
            for release in policy.release
            if isinstance(release, CountRelease)
        }
        self._by_day: dict[str, DayPrices] = {}
        self._by_run: dict[str, RunPrice] = {}

    def release(self, entry: Entry) -> Release:
        """Return the release of an entry; UsageError if the policy does not have it."""
        release = self.releases.get(entry["release"])
        if release is None:
            msg = f"policy: must have the release {entry['release']} of ledger entry {entry['sequence']}"
            raise UsageError(msg)
        return release

    def event(self, entry: Entry) -> ChargeEvent:
        """Return the event that an entry records.

        A window is paid from the UTC day of its start, and an attribute from that of the start of its local day, which
        may be another day than that of the end.
        """
        end, daily = parse_time(entry["window_end"]), isinstance(self.releases[entry["release"]], AttributeRelease)
        start = self.local_day(entry).start if daily else end - self.tick_length
        return ChargeEvent(
            entry["release"], entry["audience"], entry["release_id"], entry["attempt"], end, key_day_of(start),
            entry["epsilon"], entry["nano"], None if entry["outcome"] == "released" else entry["outcome"],
            self._zones.get(entry["release"], ()),
        )  # fmt: skip

    def local_day(self, entry: Entry) -> LocalDay:
        """Return the local day of an attribute's entry."""
        day = ReleaseId.parse(entry["release_id"]).attribute.day
        return LocalDay(day, *span_of_day(day, self._timezone))

    def privacy_day(self, entry: Entry) -> PrivacyDay | None:
        """Return the privacy day of a window's entry; None where the site has no privacy days."""
        return None if self._privacy_days is None else self._privacy_days.at(parse_time(entry["window_end"]))

    def day_prices(self, release: CountRelease) -> DayPrices:
        """Return the prices of the days of a release that is paid per day."""
        if release.name not in self._by_day:
            self._by_day[release.name] = DayPrices.of(self.policy, release, self.site)
        return self._by_day[release.name]

    def run_price(self, release: ThresholdRelease) -> RunPrice:
        """Return the prices of the runs of a threshold stream."""
        if release.name not in self._by_run:
            self._by_run[release.name] = RunPrice.of(self.policy, release, self.site)
        return self._by_run[release.name]
