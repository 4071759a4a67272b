"""The day's store, and the service on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.acceptance.serve.ground import Served, complete, make_store, served, wanted


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with policy, key and the store of a day."""
    return make_store(tmp_path_factory.mktemp("day"))


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Served]:
    """The service, with everything that the day has."""
    with served(wanted(folder)) as running:
        yield running


@pytest.fixture(scope="module")
def browser(service: Served, folder: Path) -> Iterator[httpx.Client]:
    """Who has come by the link, when the day is in the history."""
    with service.browser() as client:
        for audience in ("facilities", "public"):
            complete(client, folder, audience)
        yield client
