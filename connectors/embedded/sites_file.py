"""The metadata of an embedded store's sites: a file beside the outboxes, for those who may read one of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from connectors.private_file import replace
from stream.errors import DataError

_NAME = "_sites.json"


def write_sites(private: Path, sites: Mapping[str, dict[str, Any]]) -> None:
    """Replace the file in the folder of outboxes, where it would say something else."""
    if read_sites(private) != sites:
        replace(private / _NAME, {"v": 1, "sites": dict(sites)})


def read_sites(private: Path) -> dict[str, dict[str, Any]]:
    """Return each site's metadata by its name; none of a store of an earlier version."""
    try:
        body = orjson.loads((private / _NAME).read_bytes())
    except FileNotFoundError:
        return {}
    except orjson.JSONDecodeError:
        body = None
    sites = body.get("sites") if isinstance(body, dict) else None
    if not isinstance(sites, dict):
        msg = f"{private / _NAME}: must be what a run has written there"
        raise DataError(msg)
    return sites
