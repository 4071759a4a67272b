"""Numbers with huge exponents are refused by name and never expanded to large integers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest

from connectors.cli.options import NUMBER
from connectors.records import record_fields
from connectors.tables.decisions import Source, question, read_thresholds
from stream.accounting.audit import Audit, compare_records
from stream.accounting.ledger import GENESIS, chain_hash
from stream.errors import AuditError, DataError, PolicyError, UsageError
from stream.policy.fields import parse_amount, parse_delta, parse_epsilon, parse_spend
from stream.release.validation import load_policy
from tests.support.small_building import policy_text

HUGE = ("1e999999999", "1e-999999999", "1e99999999999999999999", "9" * 5000, "0." + "0" * 5000 + "1", "-1e999999999")


@pytest.mark.parametrize("text", HUGE)
@pytest.mark.parametrize("parse", [parse_spend, parse_epsilon, parse_delta, parse_amount, record_fields.nano])
def test_a_decimal_with_a_huge_exponent_is_refused(parse: Any, text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)


def decimals(text: str) -> list[re.Match[str]]:
    return list(re.finditer(r'(?<== )"[0-9.]+"(?=[ ,}])', text))


@pytest.mark.parametrize("place", range(len(decimals(policy_text()))))
@pytest.mark.parametrize("huge", ["1e999999999", "1e-999999999"])
def test_a_policy_with_a_huge_exponent_is_refused_with_its_place(huge: str, place: int) -> None:
    text = policy_text()
    found = decimals(text)[place]
    with pytest.raises(PolicyError, match="must"):
        load_policy(f'{text[: found.start()]}"{huge}"{text[found.end() :]}')


def test_the_error_about_an_epsilon_says_where_and_why() -> None:
    text = policy_text()
    with pytest.raises(PolicyError, match=r"release.*epsilon.*must have at most nine decimals and be below"):
        load_policy(re.sub(r'(epsilon = \{ \w+ = )"[0-9.]+"', r'\1"1e999999999"', text, count=1))


@pytest.mark.parametrize("text", HUGE)
def test_an_option_of_decide_with_a_huge_exponent_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError, match="must be a number"):
        NUMBER.convert(text, None, None)


@pytest.mark.parametrize("text", HUGE)
def test_a_threshold_with_a_huge_exponent_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "thresholds.csv").write_text(f"predicate,threshold\na,{text}\n")
    with pytest.raises(DataError, match="must be a number"):
        read_thresholds(tmp_path / "thresholds.csv")


def entry(**more: Any) -> dict[str, Any]:
    body = {
        "sequence": 0, "previous": GENESIS, "site": "dbh", "release_id": "one", "epsilon": "0.1", "nano": 100_000_000,
        "outcome": "released", "window_end": "2026-01-05T10:00:00Z", **more,
    }  # fmt: skip
    return body | {"hash": chain_hash(body)}


def record(**more: Any) -> dict[str, Any]:
    return {"mechanism": "laplace", "release_id": "one", "site": "dbh", "epsilon": "0.1", "spend": "0.1",
            "reason": None, **more}  # fmt: skip


def test_books_with_a_huge_exponent_are_refused() -> None:
    assert Audit({}).chains([entry()])["dbh"].sequence == 1
    assert compare_records([entry()], [record()]).records == 1
    for huge in (*HUGE, 1, None):
        with pytest.raises(AuditError, match="entry 0: epsilon must be a decimal string"):
            Audit({}).chains([entry(epsilon=huge)])
        with pytest.raises(AuditError, match="spend of its record one must be a decimal string"):
            compare_records([entry()], [record(spend=huge)])


@pytest.mark.parametrize("value", ["1e999999999", "1e-999999999", "9" * 4000, "-" + "9" * 4000, "1e99"])
@pytest.mark.parametrize("name", ["alpha", "resolution", "bounds"])
def test_a_query_with_a_huge_number_is_refused(name: str, value: str, tmp_path: Path) -> None:
    told = f"[0, {value}]" if name == "bounds" else value
    tree = f'{{"counts": "c", "thresholds": "t", "aggregate": "sum", "{name}": {told}}}'
    (tmp_path / "query.json").write_text(tree)
    with pytest.raises(UsageError, match=r"query.json: .*must be"):
        question(Source(None, None, None), tmp_path / "query.json")
