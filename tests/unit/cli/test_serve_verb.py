"""``tacet serve``: what it is configured with, and what runs beside a service that is monitored."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from connectors.cli import serve as serve_verb
from connectors.http.server import Tls
from connectors.monitoring.monitor import Monitor
from connectors.serve.startup import ServeConfig
from tests.acceptance.command_line import run
from tests.support.small_building import PLAIN, building, policy_text

CERTIFICATE = ("--tls-cert", "cert.pem", "--tls-key", "key.pem")


@pytest.mark.parametrize(("words", "tls"), [((), None), (CERTIFICATE, Tls(Path("cert.pem"), Path("key.pem")))])
def test_tls_has_a_certificate_and_its_key_or_is_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...], tls: Tls | None
) -> None:
    configured = list[ServeConfig]()
    monkeypatch.setattr(serve_verb, "serve_here", lambda config, _: configured.append(config))
    monkeypatch.setattr(serve_verb, "watch_certificates", lambda *_, **__: None)
    (tmp_path / "policy.toml").write_text(policy_text(PLAIN))
    done = run("serve", "--store", tmp_path, "--policy", tmp_path / "policy.toml", "--audience", "public", *words)
    assert (done.code, done.problem) == (0, "")
    assert [config.tls for config in configured] == [tls]


@pytest.mark.parametrize("address", [None, ("127.0.0.1", 0)], ids=["not monitored", "monitored"])
def test_the_history_of_a_monitored_service_is_looked_at_while_it_serves(
    monkeypatch: pytest.MonkeyPatch, address: tuple[str, int] | None
) -> None:
    beside = list[int]()

    async def serve(config: ServeConfig, clock: Any, stop: Any, say: Any, works: Any) -> None:
        found = works(SimpleNamespace())
        beside.append(len(found))
        for work in found:
            work.close()

    monkeypatch.setattr(serve_verb, "serve_until", serve)
    config = ServeConfig(building(releases=PLAIN), ("public",))
    if address is None:
        serve_verb.serve_here(config)
    else:
        with Monitor("serve", None, address, lambda: 0) as monitor:
            serve_verb.serve_here(config, monitor)
    assert beside == [0 if address is None else 1]
