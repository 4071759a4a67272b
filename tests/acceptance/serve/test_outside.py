"""Access from other machines: own TLS, or the TLS of a proxy."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request

from connectors.http.limits import client_of
from connectors.http.server import Tls
from stream.errors import UsageError
from tests.acceptance.serve.services import new_token, served, wanted


def cookie_of(answer: httpx.Response) -> str:
    (cookie,) = answer.headers.get_list("set-cookie")
    return str(cookie)


@pytest.mark.parametrize("host", ["rooms.example", "ROOMS.example"])
def test_behind_a_proxy_it_answers_to_its_public_name_with_a_cookie_for_tls_only(
    folder: Path, tmp_path: Path, host: str
) -> None:
    token = new_token(tmp_path / "tokens", "ann", "audience:public")
    query = wanted(folder, tokens=tmp_path / "tokens", behind_proxy=True, names=("rooms.example",))
    with served(query) as running, running.client() as client:
        asked_as = {"host": host, "x-forwarded-for": "spoofed, 192.0.2.7", "origin": "https://rooms.example"}
        client.headers.update(asked_as)
        answer = client.post("/api/v1/session", json={"token": token})
        assert answer.status_code == 204
        assert cookie_of(answer).startswith(f"__Host-{running.cookie}=")
        assert "secure" in cookie_of(answer).lower()
        client.headers["origin"] = "http://rooms.example"
        assert client.get("/api/v1/sites").status_code == 403


@pytest.mark.parametrize(("given", "behind", "client"), [
    ("1.1.1.1, 192.0.2.7", True, "192.0.2.7"), ("192.0.2.7", True, "192.0.2.7"), ("", True, ""),
    ("192.0.2.7", False, "127.0.0.1"), ("1.1.1.1\n192.0.2.7", True, "192.0.2.7"),
])  # fmt: skip
def test_who_asks_is_who_our_own_proxy_saw_and_what_a_client_claims_counts_for_nothing(
    given: str, behind: bool, client: str
) -> None:
    headers = [(b"x-forwarded-for", line.encode()) for line in given.split("\n") if line]
    request = Request({"type": "http", "headers": headers, "client": ("127.0.0.1", 9)})
    assert client_of(request, behind_proxy=behind) == client


def test_with_a_certificate_it_speaks_tls_and_nothing_else(folder: Path, tmp_path: Path, certificate: Tls) -> None:
    token = new_token(tmp_path / "tokens", "ann", "audience:public")
    trusting = ssl.create_default_context(cafile=str(certificate.certificate))
    query = wanted(folder, tokens=tmp_path / "tokens", tls=certificate, listen=("0.0.0.0", 0))
    with served(query) as running:
        address = f"https://127.0.0.1:{running.port}"
        with httpx.Client(base_url=address, verify=trusting) as client:
            answer = client.post("/api/v1/session", json={"token": token})
            assert cookie_of(answer).startswith(f"__Host-{running.cookie}=")
            assert client.get("/api/v1/sites").status_code == 200
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{running.port}/healthz")


def test_a_certificate_that_is_none_is_said(folder: Path, tmp_path: Path) -> None:
    new_token(tmp_path / "tokens", "ann", "audience:public")
    (tmp_path / "cert.pem").write_text("no certificate")
    tls = Tls(tmp_path / "cert.pem", tmp_path / "cert.pem")
    with pytest.raises(UsageError, match="--tls-cert"), served(wanted(folder, tokens=tmp_path / "tokens", tls=tls)):
        pass
