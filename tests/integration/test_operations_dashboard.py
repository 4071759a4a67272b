"""The operators' dashboard: what its program makes, of metrics that there are, in queries that Prometheus takes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from connectors.monitoring.catalogue import BY_NAME
from tests.integration.test_alert_rules import metrics_in, promtool
from tests.support.documents import ROOT

DASHBOARD = json.loads((ROOT / "deploy/grafana/operations.json").read_text())
PANELS = [panel for each in DASHBOARD["panels"] for panel in ([each, *each.get("panels", [])]) if "targets" in panel]
EXPRESSIONS = sorted({target["expr"] for panel in PANELS for target in panel["targets"]})
CHOSEN = {"site": "dbh", "delta": "0"}


def chosen(expression: str) -> str:
    for name, value in CHOSEN.items():
        expression = expression.replace(f"${name}", value)
    return expression


def test_the_dashboard_is_the_one_that_its_program_makes() -> None:
    from deploy.grafana.operations import text

    assert (ROOT / "deploy/grafana/operations.json").read_text() == text()


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_metric_of_a_panel_is_one_that_there_is(expression: str) -> None:
    asked = metrics_in(expression)
    assert asked
    assert asked <= BY_NAME.keys()
    labels = {label for name in asked for label in BY_NAME[name].labels} | {"le"}
    assert set(re.findall(r"(\w+)=~?\"", expression)) <= labels


def test_a_legend_names_labels_that_its_metrics_have() -> None:
    for panel in PANELS:
        for target in panel["targets"]:
            labels = {label for name in metrics_in(target["expr"]) for label in BY_NAME[name].labels} | {"instance"}
            assert set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", ""))) <= labels, panel["title"]


def test_prometheus_takes_every_query(tmp_path: Path) -> None:
    rules = [{"record": f"asked:{number}", "expr": chosen(each)} for number, each in enumerate(EXPRESSIONS)]
    path = tmp_path / "asked.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "asked", "rules": rules}]}))
    promtool("check", "rules", path)


def test_variables_are_labels_of_metrics_that_there_are() -> None:
    queries = [each["query"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]
    found = [re.fullmatch(r"label_values\((\w+), (\w+)\)", query) for query in queries]
    assert [(match[1], match[2]) for match in found if match] == [
        ("tacet_ledger_entries", "site"), ("tacet_privacy_spent_epsilon", "delta"),
    ]  # fmt: skip
    assert all(match and match[2] in BY_NAME[match[1]].labels for match in found)


def test_each_panel_says_what_it_shows() -> None:
    assert len(PANELS) > 15
    assert [panel["title"] for panel in PANELS if not panel.get("description") and panel["type"] != "table"] == []
