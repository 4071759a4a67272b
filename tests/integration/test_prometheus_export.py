"""Latest releases as metrics: read by Prometheus' own tools, and asked what the dashboard asks."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.command_line import command
from tests.integration.external_programs import program, prometheus
from tests.support.documents import ROOT
from tests.support.patience import PATIENCE
from tests.support.ports import free_port
from tests.support.released_store import give
from tests.unit.sinks.test_latest_metrics import exposed, record

DASHBOARD = json.loads((ROOT / "deploy/grafana/dashboard.json").read_text())
CHOSEN = {"site": "dbh", "release": "occupancy", "node": "zone:a"}


@pytest.mark.parametrize("records", [(), (record(1, {"a": 9}), record(2))])
def test_prometheus_own_tool_finds_nothing_to_say(records: tuple[dict[str, Any], ...]) -> None:
    tool = program("promtool", "TACET_REQUIRE_PROMETHEUS")
    done = subprocess.run(
        [tool, "check", "metrics"], input=exposed(*records), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_dashboard_is_the_one_that_its_program_makes() -> None:
    from deploy.grafana.make import text

    assert (ROOT / "deploy/grafana/dashboard.json").read_text() == text()


def test_the_dashboard_counts_devices_and_says_so() -> None:
    text = json.dumps(DASHBOARD)
    assert '"unit": "devices"' in text
    assert "people" not in text


def test_no_value_stands_on_the_dashboard_without_its_band() -> None:
    for panel in DASHBOARD["panels"]:
        asked = {re.split(r"[{ ]", target["expr"])[0] for target in panel["targets"]}
        if "tacet_occupancy" in asked:
            assert {"tacet_occupancy_low", "tacet_occupancy_high"} <= asked, panel["title"]


# --- a real Prometheus -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus that has scraped the exporter."""
    folder = tmp_path_factory.mktemp("prometheus")
    give(folder / "store", [record(1, {"a": 9, "b": 2})])
    port = free_port()
    scraped = prometheus(folder, f"127.0.0.1:{port}")
    words: list[str | Path] = ["export", "prometheus", "--store", folder / "store", "--audience", "public", "--listen",
                               f"127.0.0.1:{port}"]  # fmt: skip
    exporter = subprocess.Popen(command(words), stdout=subprocess.PIPE)
    try:
        assert exporter.stdout is not None
        assert exporter.stdout.readline().decode().strip() == f"http://127.0.0.1:{port}/metrics"
        scraped.start()
        url = f"http://127.0.0.1:{scraped.port}"
        until = time.monotonic() + PATIENCE
        while not scraped_once(url) and time.monotonic() < until:
            time.sleep(0.2)
        yield url
    finally:
        scraped.kill()
        exporter.terminate()
        assert exporter.wait(timeout=PATIENCE) == 0


def scraped_once(url: str) -> bool:
    try:
        return bool(asked(url, "tacet_occupancy"))
    except urllib.error.HTTPError:  # it answers 503 until it has read its own log
        return False


def asked(url: str, expression: str) -> list[dict[str, Any]]:
    return answer(url, "/api/v1/query", query=expression)  # type: ignore[no-any-return]


def answer(url: str, path: str, **query: str) -> Any:
    with urllib.request.urlopen(f"{url}{path}?{urllib.parse.urlencode(query)}", timeout=PATIENCE) as response:
        body = json.load(response)
    assert body["status"] == "success"
    return body["data"]["result"] if isinstance(body["data"], dict) else body["data"]


def chosen(text: str) -> str:
    for name, value in CHOSEN.items():
        text = text.replace(f"${name}", value)
    return text


EXPRESSIONS = sorted({target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]})


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_query_of_the_dashboard_has_an_answer(server: str, expression: str) -> None:
    assert asked(server, chosen(expression)), expression


def test_every_variable_of_the_dashboard_offers_what_there_is(server: str) -> None:
    offered = {}
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            series, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]).groups()  # type: ignore[union-attr]
            offered[variable["name"]] = answer(server, f"/api/v1/label/{label}/values", **{"match[]": chosen(series)})
    assert offered == {
        "site": ["dbh"], "release": ["occupancy"], "node": ["building", "floor:1", "zone:a", "zone:b"],
    }  # fmt: skip


def test_values_come_through_as_they_were_released(server: str) -> None:
    found = {sample["metric"]["node"]: float(sample["value"][1]) for sample in asked(server, "tacet_occupancy")}
    assert found == {"zone:a": 9, "zone:b": 2, "floor:1": 11, "building": 11}
