"""Fixtures: the store of a simulated day, and the service on it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from connectors.http.server import Tls
from tests.acceptance.serve.services import Served, complete, make_store, served, wanted


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


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    """A certificate of loopback, signed by itself."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    return Tls(folder / "cert.pem", folder / "key.pem")
