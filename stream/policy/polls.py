"""The polls of a site: source, table, and interval."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from stream.policy.fields import Duration, Frozen, is_cloud, refuse_repeats
from stream.records import MINUTE, Micros

SHORT_INTERVAL: Micros = 5 * MINUTE
"""An interval below this is short: its polls must be much faster than they need be otherwise."""
LEAST_INTERVAL: Micros = 2 * MINUTE
MOST_INTERVAL: Micros = 30 * MINUTE
ON_PREMISES, IN_CLOUD = frozenset({"unifi", "omada", "smartzone"}), frozenset({"mist", "meraki"})
"""Systems with an HTTPS interface: of their own, and in the cloud."""


PollTable = Literal[
    "aruba", "cisco-aireos", "cisco-lwapp", "comware", "huawei", "ruckus-zonedirector",
    "unifi", "omada", "smartzone", "mist", "meraki",
]  # fmt: skip
"""A client table, or a system that has one."""


class Poll(Frozen):
    """A query for a source's whole client table, at fixed times, by 'tacet poll'."""

    source: str
    """One of the site's sources, written as in ``sources``: a single address, which has a probe, or a cloud system."""
    by: PollTable
    port: int | None = Field(default=None, gt=0, lt=65_536, strict=True)
    """Default: 161."""
    user: Annotated[str, StringConstraints(min_length=1, max_length=32)] | None = None
    """The user for SNMPv3; None: SNMPv2c is used."""
    interval: Duration = SHORT_INTERVAL
    """Whole minutes, at most the site's validity. Below 5 min a poll must take less than a tenth of it."""

    @model_validator(mode="after")
    def _check_interval(self) -> Self:
        if self.interval % MINUTE or not LEAST_INTERVAL <= self.interval <= MOST_INTERVAL:
            least, most = LEAST_INTERVAL // MINUTE, MOST_INTERVAL // MINUTE
            msg = f"interval must be whole minutes from {least}min to {most}min, got {self.interval // MINUTE}min"
            raise ValueError(msg)
        if self.by in {*ON_PREMISES, *IN_CLOUD} and (
            foreign := [key for key in ("port", "user") if getattr(self, key)]
        ):
            msg = f"{foreign[0]} must not be used with by = '{self.by}', whose address and credentials are secrets"
            raise ValueError(msg)
        return self


def check_polls(polls: Iterable[Poll], sources: Collection[str], probed: Collection[str], validity: Micros) -> None:
    """Raise ValueError unless each poll reads one address that is a source and has a probe, often enough.

    Coverage must not follow from how a poll went: whether a table is read in time depends on its length. So a polled
    source needs a probe; a cloud system, which can have none, gets a request of fixed size from 'tacet poll'.
    """
    polls = tuple(polls)
    refuse_repeats("a source must have one poll", (poll.source for poll in polls))
    for poll in polls:
        if poll.source not in sources:
            msg = f"poll.source must be one of the site's sources, got {poll.source!r}"
            raise ValueError(msg)
        if poll.interval > validity:
            msg = f"poll.interval must be at most validity, {validity // MINUTE}min, got {poll.interval // MINUTE}min"
            raise ValueError(msg)
        if is_cloud(poll.source) != (poll.by in IN_CLOUD):
            needed = "a cloud system, 'cloud:NAME'," if poll.by in IN_CLOUD else "one address"
            msg = f"poll.source must be {needed} with by = '{poll.by}', got {poll.source!r}"
            raise ValueError(msg)
        if poll.by in IN_CLOUD:
            continue
        if ipaddress.ip_network(poll.source).num_addresses != 1:
            msg = f"poll.source must be one address, got {poll.source!r}"
            raise ValueError(msg)
        if poll.source not in probed:
            msg = f"poll.source must have a [[site.NAME.probe]], which decides its coverage, got {poll.source!r}"
            raise ValueError(msg)
