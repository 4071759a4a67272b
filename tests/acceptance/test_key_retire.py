"""``tacet key retire``: the ledger of a lost or stolen key ends, and a new one begins with its spending."""

from __future__ import annotations

import json
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from connectors.keys import key_files
from connectors.storage.embedded import retirement
from connectors.storage.embedded.reader import outboxes, read_outbox, read_snapshot, read_topic
from connectors.storage.embedded.runner import opened
from stream.engine.snapshot import ledger_and_account_only, open_snapshot
from stream.errors import TacetError
from stream.policy.fields import decimal_string
from stream.records import DAY, HOUR, PrivacyDay
from stream.release.paid_days import DayPaymentStatus, PaidDays
from stream.release.state import ReleaseState, decode_release_state, encode_release_state
from stream.release.validation import load_policy
from stream.schemas import AUDIT, LEAKAGE, parse_record
from stream.sensing.state import SensingState, encode
from tests.acceptance.command_line import Done, run
from tests.support.small_building import ATTRIBUTES, COUNTS, SITE, messages, people, policy_text, write_csv

TEXT = policy_text(COUNTS + ATTRIBUTES)
SEEN = people(hours=14, devices=4)
MESSAGES = list(messages(SEEN, load_policy(TEXT)))
HALF = len(MESSAGES) // 2


def go_on(folder: Path, part: slice, store: str, key: str) -> None:
    with opened(load_policy(TEXT), folder / key, folder / store) as (runner, _):
        for message in MESSAGES[part]:
            runner.process(message, durable=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a production key and a store of half of what there is, and new keys."""
    folder = tmp_path_factory.mktemp("retire")
    (folder / "policy.toml").write_text(TEXT)
    for name in ("key", "new.key", "third.key"):
        key_files.create(folder / name, laboratory=False)
    key_files.create(folder / "laboratory", laboratory=True)
    go_on(folder, slice(None, HALF), "store", "key")
    return folder


@pytest.fixture
def scenario(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "copy"))


def retire(scenario: Path, *more: str | Path, key: str = "new.key", new: str = "new") -> Done:
    old = more or ("--key-file", scenario / "key")
    given = ("--store", scenario / "store", "--new-store", scenario / new, "--new-key", scenario / key)
    return run("key", "retire", *given, *old)


def entries(folder: Path) -> list[dict[str, Any]]:
    return [parse_record(value) for value in read_topic(folder, AUDIT)]


def account(folder: Path) -> Fraction:
    """Return what the board's counts have cost in all, as it is streamed."""
    reported = [record for value in read_topic(folder, LEAKAGE) if (record := parse_record(value))["kind"] == "counts"]
    return Fraction(reported[-1]["audiences"]["board"]["device_total"])


@pytest.mark.parametrize("how", ["stolen", "lost"])
def test_budgets_go_on_and_nothing_is_released_twice(scenario: Path, how: str) -> None:
    """The board may spend 10 a day at .25 a window: 40 windows, in whichever ledgers they lie."""
    assert retire(scenario, *(["--lost"] if how == "lost" else [])).code == 0
    go_on(scenario, slice(HALF, None), "new", "new.key")
    before, after = entries(scenario / "store"), entries(scenario / "new")
    board = [e for e in before + after if (e["release"], e["audience"]) == ("plain", "board")]
    assert sum(entry["nano"] for entry in board) == 10 * 10**9
    assert "budget" in {entry["outcome"] for entry in after}
    assert not {entry["release_id"] for entry in before} & {entry["release_id"] for entry in after}
    assert {entry["ledger"] for entry in before}.isdisjoint(entry["ledger"] for entry in after)
    assert (after[0]["sequence"], after[0]["previous"]) == (0, "0" * 64)
    report = run("audit", "verify", "--store", scenario / "new", "--key-file", scenario / "new.key", "--json").answer
    assert (report["ok"], report["entries"]) == (True, len(after))


def test_the_account_goes_on_streamed_and_asked_for(scenario: Path) -> None:
    retire(scenario)
    spent = account(scenario / "store")
    go_on(scenario, slice(HALF, None), "new", "new.key")
    after = [e for e in entries(scenario / "new") if e["audience"] == "board" and e["outcome"] == "released"]
    paid = sum((Fraction(entry["epsilon"]) for entry in after), Fraction(0))
    assert account(scenario / "new") == spent + paid > spent > 0
    query = run("account", "--store", scenario / "new", "--coalition", "board", "--json")
    assert json.dumps(str(decimal_string(spent + paid))) in query.out, query.out


def test_a_backfill_of_what_the_old_ledger_charged_is_refused(scenario: Path) -> None:
    retire(scenario)
    go_on(scenario, slice(HALF, None), "new", "new.key")
    write_csv(scenario / "rows.csv", SEEN)
    done = run(
        "backfill", scenario / "rows.csv", "--store", scenario / "new", "--policy", scenario / "policy.toml",
        "--key-file", scenario / "new.key", "--from", "2026-03-03T05:00:00Z", "--to", "2026-03-03T06:00:00Z",
    )  # fmt: skip
    assert (done.code, "were charged before, as release" in done.problem) == (2, True), done.problem


def test_the_old_store_keeps_its_account_and_releases_nothing_more(scenario: Path) -> None:
    shutil.copy(scenario / "key", scenario / "stolen")
    shutil.copy(scenario / "key.mark", scenario / "stolen.mark")
    retire(scenario)
    for key, problem in (
        ("key", "was retired and its keys are destroyed"),
        ("stolen", "has ended, because its key was retired"),
    ):
        with pytest.raises(TacetError, match=problem):
            go_on(scenario, slice(HALF, None), "store", key)
    assert set(json.loads((scenario / "key").read_text())) == {"tacet_key", "laboratory", "ledger", "retired"}
    assert run("account", "--store", scenario / "store").code == 0
    assert run("audit", "verify", "--store", scenario / "store").code == 0


def test_nobody_is_in_the_new_state_which_any_reader_of_books_can_open(scenario: Path) -> None:
    retire(scenario)
    snapshot, _ = read_snapshot(scenario / "new")
    assert snapshot is not None
    head, sites = open_snapshot(snapshot)
    sense = json.loads(sites[SITE]["sense"])
    assert (head.next_offset, sense["current"], sense["pending"], sense["rows"], sense["stays"]) == (0, [], [], [], [])
    assert "attributes" not in sites[SITE]
    assert sense["tally"][2] > 0


def test_a_store_that_was_set_back_does_not_hide_what_was_spent_behind_it(scenario: Path) -> None:
    shutil.copytree(scenario / "store", scenario / "older")
    go_on(scenario, slice(HALF, None), "store", "key")
    shutil.rmtree(scenario / "store")
    (scenario / "older").rename(scenario / "store")
    done = retire(scenario)
    assert (done.code, "is missing; the mark knows of" in done.problem) == (2, True), done.problem
    assert not (scenario / "new").exists()
    go_on(scenario, slice(HALF, None), "store", "key")


def test_only_a_new_key_of_the_same_kind_begins_a_ledger(scenario: Path) -> None:
    for key, problem in (("key", "must be a new key"), ("laboratory", "must be a production key")):
        done = retire(scenario, key=key)
        assert (done.code, problem in done.problem) == (2, True), done.problem
    assert "give either --key-file or --lost" in retire(scenario, "--lost", "--key-file", scenario / "key").problem
    go_on(scenario, slice(HALF, HALF + 1), "store", "key")


def test_it_is_done_once_and_goes_on_after_a_crash(scenario: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    for place in ("_begin", "MarkFile"):
        with monkeypatch.context() as patch:
            patch.setattr(retirement, place, crash)
            assert retire(scenario).code == 130
        with pytest.raises(TacetError, match="has ended"):
            go_on(scenario, slice(HALF, None), "store", "key")
    assert retire(scenario).code == 0
    assert retire(scenario).code == 0
    go_on(scenario, slice(HALF, None), "new", "new.key")
    assert "must be that of ledger" in retire(scenario, key="third.key", new="other").problem, "it goes on with one key"
    assert "has ended" in retire(scenario, "--lost", key="third.key", new="other").problem


def test_what_audiences_were_given_stays_with_them(scenario: Path) -> None:
    before = {name: read_outbox(scenario / "store", name, 0) for name, _ in outboxes(scenario / "store")}
    retire(scenario)
    assert {name: read_outbox(scenario / "store", name, 0) for name, _ in outboxes(scenario / "store")} == before != {}


def test_a_third_ledger_begins_with_what_both_have_spent(scenario: Path) -> None:
    retire(scenario)
    go_on(scenario, slice(HALF, HALF + HALF // 2), "new", "new.key")
    done = run(
        "key", "retire", "--store", scenario / "new", "--key-file", scenario / "new.key", "--new-store",
        scenario / "third", "--new-key", scenario / "third.key", "--json",
    )  # fmt: skip
    assert done.answer["entries"] == len(entries(scenario / "store")) + len(entries(scenario / "new"))


def test_no_begun_privacy_day_is_gone_on_with_for_the_price_that_was_paid() -> None:
    """That price bought one run of the counters, with one noise."""
    day = PrivacyDay(20_000, 20_000 * DAY, 20_001 * DAY)
    state = ReleaseState(paid_days=PaidDays({"busy": {day: "terms"}}), released_until=20_000 * DAY + HOUR)
    stages = {"release": encode_release_state(state, {}), "sense": encode(SensingState(), ()), "account": b"{}"}
    started, _ = decode_release_state(ledger_and_account_only(stages)["release"])
    assert started.paid_days.status("busy", day, "terms") is DayPaymentStatus.OTHER_TERMS
    assert started.released_until == state.released_until


# --- what an auditor with the old key is told ------------------------------------------------------------------------


def ledger_of(folder: Path) -> str:
    return str(entries(folder)[0]["ledger"])


def test_who_verifies_the_new_store_with_a_copy_of_the_retired_key_is_told_which_key_to_give(scenario: Path) -> None:
    shutil.copy(scenario / "key", scenario / "copy")
    retire(scenario)
    go_on(scenario, slice(HALF, None), "new", "new.key")
    old, last, new = ledger_of(scenario / "store"), entries(scenario / "store")[-1], ledger_of(scenario / "new")
    done = run("audit", "verify", "--store", scenario / "new", "--key-file", scenario / "copy")
    assert done.code == 2
    assert (
        f"--key-file: is that of ledger {old}, which has ended: its key was retired after the window of "
        f"{last['window_end']}; give the key of ledger {new}, which continues its budgets, or verify without"
    ) in done.problem


def test_the_file_itself_says_the_same_of_its_store(scenario: Path) -> None:
    retire(scenario)
    done = run("audit", "verify", "--store", scenario / "store", "--key-file", scenario / "key")
    assert done.code == 2
    assert "was retired and its keys are destroyed" in done.problem
    assert "give the key of that ledger, or no key, which still checks chains and records" in done.problem


def test_heads_that_were_signed_of_the_old_store_are_told_from_a_break(scenario: Path) -> None:
    run("audit", "keygen", scenario / "signing.key")
    signing = ("--key-file", scenario / "signing.key", "--heads", scenario / "heads", "--first")
    assert run("audit", "sign", "--store", scenario / "store", *signing).code == 0
    retire(scenario)
    go_on(scenario, slice(HALF, None), "new", "new.key")
    by_key = ("--public-key", scenario / "signing.key.pub", "--heads", scenario / "heads")
    done = run("audit", "verify", "--store", scenario / "new", *by_key)
    assert done.code == 2
    assert f"is of ledger {ledger_of(scenario / 'store')}, which has ended: its key was retired" in done.problem
    assert "verify these heads with the store of that" in done.problem
    assert run("audit", "verify", "--store", scenario / "store", *by_key).code == 0


def test_a_key_of_neither_ledger_is_no_retired_one(scenario: Path) -> None:
    retire(scenario)
    go_on(scenario, slice(HALF, None), "new", "new.key")
    done = run("audit", "verify", "--store", scenario / "new", "--key-file", scenario / "third.key")
    assert done.code == 2
    assert "has ended" not in done.problem
