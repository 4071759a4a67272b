"""The sites of which there are releases: what their zones are, and what building systems call them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from connectors.embedded.sites_file import read_sites
from connectors.kafka.metadata import read
from connectors.subscribing.service import read_json


async def read_metadata(
    *, store: Path | None = None, kafka: str | None = None, url: str | None = None, token: str | None = None
) -> dict[str, dict[str, Any]]:
    """Return each site's metadata by its name, from the one home that is given; none where none is kept there.

    ``site``, ``name``, ``timezone``, ``tick_seconds``, and ``zones``: each with ``zone``, ``floor``, ``kind``,
    ``capacity`` and ``metadata``, the names that the policy gives it.
    """
    if store is not None:
        return await asyncio.to_thread(read_sites, store / "private")
    if kafka is not None:
        return await read(kafka)
    answer = await read_json(url or "", token, "/api/v1/sites")
    return {site["site"]: _flat(site) for site in answer["sites"]}


def _flat(site: dict[str, Any]) -> dict[str, Any]:
    """Return a site of the service as the other homes have it."""
    kept = {name: site[name] for name in ("site", "name", "timezone", "tick_seconds")}
    return {"v": 1} | kept | {"zones": [zone for floor in site["floors"] for zone in floor["zones"]]}
