"""Alert rules: tried by promtool, made of metrics that there are, each with a section of the runbook."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from connectors.monitoring.catalogue import BY_NAME
from connectors.monitoring.engine import ATTRIBUTE_DENIALS, COUNT_DENIALS
from connectors.runtime.clock import ClockStepError
from connectors.sources.ingest.queue import QUEUE_FULL
from connectors.storage.kafka.source_leases import ClockApartError
from stream.errors import FinalityError
from stream.schemas import AuditEntry
from tests.docs.test_links import anchors
from tests.integration.external_programs import program
from tests.support.documents import ROOT

FOLDER = ROOT / "deploy/prometheus"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FOLDER / "tacet.rules.yml").read_text())["groups"] for rule in group["rules"]
]
TESTS = sorted(FOLDER.glob("tests*.yml"))
TRIED = [test for file in TESTS for test in yaml.safe_load(file.read_text())["tests"]]
WANTED = {
    "budget burn": "TacetBudgetBurn", "replay mismatch": "TacetReplayMismatch", "refusals": "TacetRefusedReleases",
    "leakage bound": "TacetLeakageBound", "late data": "TacetLateData", "silent source": "TacetSilentSource",
    "lag": "TacetLag", "disk": "TacetDisk", "key overdue": "TacetKeyOverdue", "clock": "TacetClock",
}  # fmt: skip
METRIC = re.compile(r"\b(?:tacet_[a-z_]+|up)\b(?=[\[{ )]|$)")
SUFFIXES = re.compile(r"_(?:bucket|sum|count)$")


def metrics_in(expression: str) -> set[str]:
    """Return the metrics that an expression asks for, histograms by their own name."""
    return {SUFFIXES.sub("", name) for name in METRIC.findall(expression)} - {"up"}


def promtool(*words: str | Path) -> None:
    tool = program("promtool", "TACET_REQUIRE_PROMETHEUS")
    done = subprocess.run([tool, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_takes_the_rules() -> None:
    promtool("check", "rules", FOLDER / "tacet.rules.yml")


def test_promtool_finds_that_each_alert_fires_when_it_must_and_not_otherwise() -> None:
    promtool("test", "rules", *TESTS)


@pytest.mark.parametrize("what", WANTED)
def test_what_operators_must_be_told_has_an_alert(what: str) -> None:
    assert WANTED[what] in {rule["alert"] for rule in RULES}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_is_tried_both_ways(rule: dict[str, Any]) -> None:
    """It fires at one time of its test; and not at another, or not for a series that is close to it."""
    cases = [case for test in TRIED for case in test["alert_rule_test"] if case["alertname"] == rule["alert"]]
    firing = [case for case in cases if case.get("exp_alerts")]
    (test, *_) = [t for t in TRIED for c in t["alert_rule_test"] if c["alertname"] == rule["alert"]]
    assert firing
    assert len(firing) < len(cases) or len(test["input_series"]) > len(firing[0]["exp_alerts"])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_metric_of_a_rule_is_one_that_there_is(rule: dict[str, Any]) -> None:
    query = metrics_in(rule["expr"])
    assert query <= BY_NAME.keys()
    assert query or "up{" in rule["expr"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_says_who_must_come_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"page", "ticket"}
    path, anchor = rule["annotations"]["runbook_url"].split("#")
    text = (ROOT / path).read_text()
    assert anchor == rule["alert"].lower()
    assert anchor in anchors(text)
    section = text.partition(f"\n## {rule['alert']}\n")[2].partition("\n## ")[0].strip()
    assert section.startswith(f"{rule['labels']['severity']}. ")
    assert len(section.split()) > 20


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_text_names_labels_that_its_metrics_have(rule: dict[str, Any]) -> None:
    named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    had = {label for name in metrics_in(rule["expr"]) for label in BY_NAME[name].labels}
    assert named <= had | {"instance"}
    assert "$value" not in rule["annotations"]["summary"]


def test_the_runbook_has_no_section_without_an_alert() -> None:
    titles = re.findall(r"^## (.*)$", (ROOT / "docs/runbook.md").read_text(), flags=re.MULTILINE)
    assert titles == [rule["alert"] for rule in RULES]


def test_values_of_labels_in_rules_are_those_that_there_are() -> None:
    text = " ".join(rule["expr"] for rule in RULES)
    outcomes = set(get_args(AuditEntry.model_fields["outcome"].annotation))
    assert set(COUNT_DENIALS) | set(ATTRIBUTE_DENIALS) == outcomes - {"released"}
    reasons = {word for found in re.findall(r'reason[=!]~?"([^"]*)"', text) for word in found.split("|")}
    assert reasons <= outcomes | {"late", QUEUE_FULL}
    errors = {word for found in re.findall(r'error[=!]~?"([^"]*)"', text) for word in found.split("|")}
    assert errors == {FinalityError.__name__, "Clock.*"}
    assert all(re.fullmatch("Clock.*", each.__name__) for each in (ClockStepError, ClockApartError))


def test_what_waits_for_five_minutes_at_most_is_also_fired_for_real() -> None:
    waits = {rule["alert"]: rule.get("for", "0m") for rule in RULES}
    assert all(re.fullmatch(r"\d+[mh]", each) for each in waits.values())
    short = {alert for alert, wait in waits.items() if wait.endswith("m") and int(wait[:-1]) <= 5}
    fired = re.findall(r'fires\(server, "(\w+)"', Path(__file__).with_name("test_alerts_fire.py").read_text())
    assert set(fired) == short
