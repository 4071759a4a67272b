"""``tacet account``: how odds factors are shown, and that a cluster is looked at before its books are read."""

from __future__ import annotations

import pytest

from connectors.cli import account
from connectors.operations.account import AccountSummary, LastAccount
from stream.accounting.account import UnitReport
from stream.accounting.attribute_leakage import Factors
from stream.errors import UsageError
from tests.acceptance.command_line import run

UNITS: UnitReport = {"device_day": "2", "person_day": "6", "tight": {}}


def shown(attributes: Factors, *readers: str) -> AccountSummary:
    """Return a report of one site, with an account of these readers."""
    last: LastAccount = {
        "window_end": "2026-03-02T20:00:00Z", "audiences": dict.fromkeys(readers, UNITS), "coalition": None, "left": {},
        "refused": [],
    }  # fmt: skip
    return {"sites": {"dbh": {"records": 1, "attributes": attributes, "last": last}}}


def row(printed: str, name: str) -> list[str]:
    """Return the cells of a printed table's row."""
    return next(line for line in printed.splitlines() if name in line).split()


@pytest.mark.parametrize(
    ("factor", "text"), [(2.34567, "2.346"), (0, "0"), ("inf", "inf"), (None, "not in model")]
)  # fmt: skip
def test_a_factor_is_shown_and_a_reader_without_one_has_a_dash(
    capsys: pytest.CaptureFixture[str], factor: float | str | None, text: str
) -> None:
    attributes: Factors = {"day/a/arrival": {"bound": {"public": factor}}}
    account._print_account(shown(attributes, "board", "public"), all_rows=True)
    assert row(capsys.readouterr().out, "day/a/arrival") == ["day/a/arrival", "-", *text.split()]


def test_factors_under_the_model_are_shown_rather_than_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    attributes: Factors = {"day/a/arrival": {"bound": {"public": 9.0}, "exact": {"public": 3.0}}}
    account._print_account(shown(attributes, "public"), all_rows=True)
    assert row(capsys.readouterr().out, "day/a/arrival") == ["day/a/arrival", "3"]


def test_books_of_a_cluster_whose_topics_are_not_its_own_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(servers: str) -> None:
        raise UsageError(f"{servers}: topic tacet.audit.v1 has another number of partitions")

    monkeypatch.setattr(account, "check_cluster", refused)
    monkeypatch.setattr(account, "kafka_bundle", lambda *_, **__: pytest.fail("its entries may be of another cluster"))
    done = run("account", "--kafka", "broker:9092")
    assert (done.code, "broker:9092: topic tacet.audit.v1 has another number" in done.problem) == (2, True), done
