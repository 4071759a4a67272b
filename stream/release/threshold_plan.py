"""What one threshold stream does at one site: its nodes, when they are asked, and the shape of its records."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from fractions import Fraction
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import orjson

from stream.mechanisms.noise import Ints
from stream.policy.document import Policy, ThresholdRelease, decimal_string
from stream.policy.threshold_release import nodes_of, thresholds_of
from stream.records import EPOCH, Micros, OccupancyWindow, ReleaseId
from stream.release.count_plan import rounded_coverage
from stream.release.issuer import Head
from stream.schemas import Levels, ThresholdRecord

NODE = {"zone": "zone:{}", "floor": "floor:{}", "building": "building"}
"""How nodes of each level are called wherever several levels may stand beside each other."""


class Price(NamedTuple):
    """What a record says of its price."""

    mechanism: str
    unit: str
    epsilon: Fraction
    """Of a device's whole privacy day, at most; of what is decided on where that was paid for already."""
    spend: Fraction
    scale: float
    """Of the noise of one question."""


class ThresholdPlan:
    """A threshold stream at a site, fixed before the first window."""

    def __init__(self, policy: Policy, release: ThresholdRelease, site: str) -> None:
        self.release = release
        self.site = site
        self._place = policy.site[site]
        self._timezone = ZoneInfo(self._place.timezone)
        zones = policy.zones_of(release, site)
        registry = [zone.id for zone in self._place.zones]
        self.covered = tuple(zone.id for zone in zones)
        self._held = nodes_of(release, zones)
        self.names = tuple(NODE[release.level].format(node) for node in self._held)
        """The nodes, in order: the registry in the labels of noise."""
        self.thresholds = tuple(thresholds_of(release, zones).values())
        self._columns = [[registry.index(zones[place].id) for place in places] for places in self._held.values()]
        self.terms = self._terms()
        """Digest of everything on which the stream's day is paid."""

    @property
    def tick(self) -> Micros:
        """Length of a window."""
        return self._place.tick

    @property
    def members(self) -> Sequence[tuple[int, ...]]:
        """Of each node, the places of its zones among those covered."""
        return tuple(self._held.values())

    def counts(self, bounded: Sequence[int]) -> Ints:
        """Return the nodes' counts from the site's, by registry."""
        return np.array([sum(bounded[column] for column in columns) for columns in self._columns], dtype=np.int64)

    def booked(self, end: Micros) -> tuple[bool, ...]:
        """Return which nodes are asked of at a window's end, by the schedule."""
        if not self.release.schedule:
            return (True,) * len(self.names)
        local = (EPOCH + timedelta(microseconds=end)).astimezone(self._timezone)
        now = {booking.zone for booking in self.release.schedule if booking.holds(local)}
        return tuple(node in now for node in self._held)

    def _terms(self) -> str:
        place = self._place
        day = [place.day_starts, place.timezone, place.contribution, place.residents, place.tick, place.validity]
        terms = [self.release.model_dump(mode="json"), self.names, self.thresholds, self.covered, day]
        return hashlib.sha256(orjson.dumps(terms, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]

    def window_record(
        self, head: Head, window: OccupancyWindow, audience: str, told: Mapping[str, bool | None] | None,
        denied: Mapping[str, str], reason: str | None, price: Price,
    ) -> ThresholdRecord:  # fmt: skip
        """Return the record of a window; without answers where ``reason`` says why there are none."""
        known = {name: int(above) for name, above in (told or {}).items() if above is not None}
        zones = {name.removeprefix("zone:"): each for name, each in known.items() if name.startswith("zone:")}
        record = ThresholdRecord(
            release_id=str(ReleaseId(self.site, self.release.name, audience, head.window_end, head.attempt)),
            site=head.site,
            audience=audience,
            release=self.release.name,
            window_start=head.window_start,
            window_end=head.window_end,
            values=None if told is None else zones,
            released=told is not None,
            reason=reason,
            mechanism=price.mechanism,
            unit=price.unit,
            epsilon=decimal_string(price.epsilon),
            spend=decimal_string(price.spend),
            noise_scale=dict.fromkeys(self._held, price.scale) if self.release.level == "zone" else {},
            half_width_95=None,
            half_width_kind="noise",
            coverage=rounded_coverage(window.coverage),
            policy_version=head.policy_version,
            laboratory=head.laboratory,
            alert=self.release.alert,
            thresholds=dict(zip(self.names, self.thresholds, strict=True)),
            above=dict.fromkeys(self.names) if told is None else dict(told),
            denied=dict(denied),
        )
        if self.release.level == "zone":
            return record
        levels = None if told is None else self._levels(known)
        return record.model_copy(update={"levels": levels})

    @staticmethod
    def _levels(known: Mapping[str, int]) -> Levels:
        floors = {name.removeprefix("floor:"): each for name, each in known.items() if name.startswith("floor:")}
        levels: Levels = {"floor": floors} if floors else {}
        return levels | ({"building": known["building"]} if "building" in known else {})
