"""Which controllers answer a probe that the policy declares: each is asked once, as a receiver asks it every minute."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from connectors.doctor.findings import Finding, fine, wrong
from connectors.intake.vouching import Pair
from connectors.probes.asking import Asking

PROBE = "probe"


async def answers(asked: Mapping[Pair, Asking]) -> list[Finding]:
    """Return which sources answer, by site and the policy's own entry."""
    given = await asyncio.gather(*(asking.ask() for asking in asked.values()))
    return [
        wrong(PROBE, f"{source} of {site} does not answer: its windows are not covered; is it up, and let through?")
        if answer is None
        else fine(PROBE, f"{source} of {site} answers")
        for (site, source), answer in zip(asked, given, strict=True)
    ]
