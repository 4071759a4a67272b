"""Live services: what they show is read by Prometheus' own tool, and they are ready while what they need is there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from connectors.keys import key_files
from connectors.sources.snmp.sender import Association, encode_associate, send
from tests.acceptance.test_kafka_end_to_end import cleared, tacet
from tests.integration.kafka_brokers import Broker
from tests.integration.metrics_services import checked_by_promtool, until, watched
from tests.support.patience import PATIENCE
from tests.support.small_building import ACCESS_POINTS, people, policy_text, write_csv
from tests.unit.hooks.cloud_requests import FILE

COMMUNITY = b"fish"


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A folder with a policy, a laboratory key and communities."""
    (tmp_path / "policy.toml").write_text(policy_text(tick="5min").replace('"127.0.0.1", "127.0.0.2"', '"127.0.0.1"'))
    key_files.create(tmp_path / "key", laboratory=True)
    (tmp_path / "communities").write_bytes(COMMUNITY + b"\n")
    (tmp_path / "communities").chmod(0o600)
    return tmp_path


def common(house: Path) -> list[str | Path]:
    return ["--policy", house / "policy.toml", "--key-file", house / "key"]


def communities(house: Path) -> dict[str, str]:
    return {"TACET_SNMP_COMMUNITIES_FILE": str(house / "communities")}


def test_a_run_is_ready_while_its_key_can_be_used_and_shows_what_promtool_has_nothing_to_say_of(house: Path) -> None:
    words = ["run", *common(house), "--store", house / "store", "--udp", "127.0.0.1:0"]
    with watched(*words, env=communities(house)) as service:
        service.ready()
        client, radio = (bytes.fromhex(text.replace(":", "")) for text in ("a45e60112233", ACCESS_POINTS["a"]))
        trap = encode_associate(Association(client, radio), community=COMMUNITY, uptime=1)
        asyncio.run(send([(0, trap)], ("127.0.0.1", service.udp), None, source="127.0.0.1"))
        checked_by_promtool(service)
        assert [service.ask(path)[0] for path in ("/livez", "/startupz", "/readyz")] == [200, 200, 200]
        assert service.total("tacet_datagrams_total") == 0, "a datagram is not told when it comes"
        (house / "key").chmod(0o644)
        assert until(
            lambda: service.ask("/readyz")[0] == 503 and service.ask("/readyz")[1], "still ready", service
        ) == ("not ok: key\n")
        assert service.ask("/livez")[0] == 200
        assert service.end() == 0


def test_a_service_that_shows_releases_tells_how_far_they_have_come(house: Path) -> None:
    write_csv(house / "o.csv", people(hours=2, devices=5))
    tacet("run", *map(str, [*common(house), "--store", house / "store", "--observations", house / "o.csv"]))
    words: list[str | Path] = ["--policy", house / "policy.toml", "--store", house / "store", "--audience", "board"]
    with watched("serve", *words, "--listen", "127.0.0.1:0") as service:
        service.ready()
        checked_by_promtool(service)
        assert until(lambda: service.total("tacet_window_end_timestamp_seconds"), "no window", service) % 300 == 0
        assert service.end() == 0


def test_what_faces_the_internet_is_ready_while_the_ingest_is_there_and_tells_of_nobody(house: Path) -> None:
    """Its figures are those of a process: what comes depends on people, and the ingest tells that in sums."""
    socket, file = house / "socket", house / "hooks.toml"
    (house / "policy.toml").write_text(
        (house / "policy.toml").read_text().replace('sources = ["127.0.0.1"]', 'sources = ["cloud:mist"]')
    )
    file.write_text(FILE)
    file.chmod(0o600)
    env = {"TACET_HOOKS_FILE": str(file)}
    with watched("hooks", "--to", socket, "--listen", "127.0.0.1:0", env=env) as hooks:
        until(lambda: hooks.ask("/livez")[0] == 200, "not alive", hooks)
        assert until(lambda: hooks.ask("/readyz")[1], "ready", hooks) == "not ok: ingest\n"
        with watched("run", *common(house), "--store", house / "store", "--hooks", socket, env={}) as run:
            hooks.ready()
            run.ready()
            checked_by_promtool(hooks)
            assert {name for name, _ in hooks.samples()} == {
                "tacet_build_info", "tacet_check_ok", "tacet_clock_offset_seconds", "tacet_secrets_read_total",
            }  # fmt: skip
            file.write_text(FILE.replace("a-secret-of-16-octets", "another-secret-of-octets"))
            until(lambda: hooks.total("tacet_secrets_read_total") == 1, "the file was not read anew", hooks)
            assert run.end() == 0
        until(lambda: hooks.ask("/readyz")[0] == 503, "still ready", hooks)
        assert hooks.end() == 0


def test_what_cannot_begin_tells_why_until_that_was_read(house: Path) -> None:
    """The key is one that a store has been made with, which is gone; without a scrape the process would wait longer."""
    key = house / "production"
    key_files.create(key, laboratory=False)
    key_files.bind(key, "0" * 16)
    words: list[str | Path] = [
        "--policy",
        house / "policy.toml",
        "--key-file",
        key,
        "--store",
        house / "store",
        "--udp",
        "127.0.0.1:0",
    ]
    with watched("run", *words, env=communities(house)) as service:
        until(
            lambda: service.total("tacet_failures_total") or service.process.poll() is not None, "no failure", service
        )
        assert service.process.wait(timeout=PATIENCE) == 2


@pytest.mark.kafka
@pytest.mark.long
def test_a_worker_and_an_ingest_are_ready_and_show_what_they_did(kafka: Broker, house: Path) -> None:
    """Of the worker an ordinary run asks the same in tests/acceptance/test_kafka_end_to_end.py."""
    write_csv(house / "o.csv", people(hours=2, devices=5))
    bootstrap = cleared(kafka, house / "policy.toml")
    with watched("worker", *common(house), "--kafka", bootstrap) as worker:
        worker.ready()
        tacet("ingest", *map(str, common(house)), "--kafka", bootstrap, "--observations", str(house / "o.csv"))
        until(lambda: worker.total("tacet_releases_total") > 20, "nothing released", worker)
        reported = {"tacet_privacy_spent_epsilon", "tacet_window_end_timestamp_seconds", "tacet_lag_seconds",
                "tacet_ledger_entries"}  # fmt: skip
        until(lambda: reported <= {name for name, _ in worker.samples()}, "not told", worker)
        checked_by_promtool(worker)
        words = ["ingest", *common(house), "--kafka", bootstrap, "--udp", "127.0.0.1:0", "--take-over"]
        with watched(*words, env=communities(house)) as ingest:
            ingest.ready()
            checked_by_promtool(ingest)
            assert {labels for name, labels in ingest.samples() if name == "tacet_check_ok"} == {
                frozenset({("check", name)}) for name in ("broker", "feed", "intake", "key")
            }
            assert ingest.end() == 0
        assert worker.end() == 0
