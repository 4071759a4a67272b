"""How a source is asked whether it is alive: what coverage says of it then rests on its answers alone.

No guarantee changes with it, and no released value but ``coverage``; so it is no part of a policy's version.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StrictBool, StringConstraints, model_validator

from stream.policy.fields import Frozen, is_cloud, refuse_repeats
from stream.records import SECOND, Micros

LEAST_LATENESS: Micros = 10 * SECOND
"""A window must wait for the answer to the question that is asked at its end."""
_OF_ONE = {"snmp": {"user", "wrong_community"}, "https": {"name", "fingerprint"}, "icmp": set[str]()}


def _fingerprint(text: str) -> str:
    digest = text.lower().replace(":", "")
    if not re.fullmatch("[0-9a-f]{64}", digest):
        msg = "must be the SHA-256 of a certificate, 64 hexadecimal digits"
        raise ValueError(msg)
    return digest


class Probe(Frozen):
    """One question, asked every minute of the connector's clock, whether or not anybody moves."""

    source: str
    """One of the site's sources, as it is written there; a single address."""
    by: Literal["snmp", "https", "icmp"]
    port: int | None = Field(default=None, gt=0, lt=65_536, strict=True)
    """161 or 443 unless given."""
    user: Annotated[str, StringConstraints(min_length=1, max_length=32)] | None = None
    """Over SNMPv3, as this user; None: over SNMPv2c."""
    wrong_community: StrictBool = False
    """Asked every hour with a wrong community as well, so that its trap of that proves the way of its traps."""
    name: str | None = None
    """The name that its certificate must bear, from an authority that this machine trusts."""
    fingerprint: Annotated[str, AfterValidator(_fingerprint)] | None = None
    """Or the certificate itself, by its SHA-256."""

    @model_validator(mode="after")
    def _says_what_it_needs(self) -> Self:
        given = {key for key in set[str]().union(*_OF_ONE.values()) if getattr(self, key)}
        if foreign := sorted(given - _OF_ONE[self.by]):
            msg = f"{foreign[0]} must not go with by = '{self.by}'"
            raise ValueError(msg)
        if self.by == "https" and len(given) != 1:
            msg = "by = 'https' must have either name or fingerprint"
            raise ValueError(msg)
        if self.by == "icmp" and self.port is not None:
            msg = "port must not go with by = 'icmp'"
            raise ValueError(msg)
        return self


def check_probes(probes: Iterable[Probe], sources: Iterable[str], lateness: Micros) -> None:
    """Raise ValueError unless each probe asks one address that is a source, and windows wait for its answer."""
    probes, sources = tuple(probes), tuple(sources)
    refuse_repeats("a source must have one probe", (probe.source for probe in probes))
    for probe in probes:
        if probe.source not in sources:
            msg = f"probe.source must be one of the site's sources, got {probe.source!r}"
            raise ValueError(msg)
        if is_cloud(probe.source) or ipaddress.ip_network(probe.source).num_addresses != 1:
            msg = f"probe.source must be one address, got {probe.source!r}"
            raise ValueError(msg)
    if probes and lateness < LEAST_LATENESS:
        least = LEAST_LATENESS // SECOND
        msg = f"lateness must be at least {least}s where sources are probed, got {lateness / SECOND:g} s"
        raise ValueError(msg)
