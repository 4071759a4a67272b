"""``tacet audit keygen | sign | export`` and ``verify --public-key``: any altered copy of the ledger is detected.

The scenario is a building of two sites, released until 10:20 (``older``) and until 10:40 (``store``); a separate
principal has signed a head of each.
"""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from stream.accounting.ledger import chain_hash
from tests.acceptance.command_line import OBSERVATIONS, POLICY, Done, run, tacet

Lines = list[dict[str, Any]]


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the store, its older self, the signer's key, two heads in two files, and books in one file."""
    folder = tmp_path_factory.mktemp("signed")
    (folder / "policy.toml").write_text(POLICY)
    (folder / "rows.csv").write_text(OBSERVATIONS)
    run("key", "create", folder / "key", "--laboratory")
    for name in ("signer", "stranger"):
        assert run("audit", "keygen", folder / name).code == 0
    for until, more in (("10:20", ["--first"]), ("10:40", [])):
        tacet(
            "run", "--observations", folder / "rows.csv", "--policy", folder / "policy.toml", "--store",
            folder / "store", "--key-file", folder / "key", "--to", f"2026-03-02T{until}:00Z",
        )  # fmt: skip
        assert sign(folder, *more).code == 0
        if more:
            shutil.copytree(folder / "store", folder / "older")
    export = ("audit", "export", "--store", folder / "store", "--heads", folder / "heads")
    assert run(*export, "--out", folder / "books").code == 0
    return folder


@pytest.fixture
def scenario(signed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(signed, tmp_path / "copy"))


def sign(scenario: Path, *more: str | Path, store: str = "store", key: str = "signer") -> Done:
    files = ("--heads", scenario / "heads", "--heads", scenario / "elsewhere")
    return run("audit", "sign", "--store", scenario / store, "--key-file", scenario / key, *files, *more)


def verify(scenario: Path, *more: str | Path, key: str = "signer") -> Done:
    return run("audit", "verify", "--public-key", scenario / f"{key}.pub", *more)


def lines(file: Path) -> Lines:
    return [json.loads(line) for line in file.read_text().splitlines()]


def put(file: Path, records: Lines) -> None:
    file.write_bytes(b"".join(orjson.dumps(record, option=orjson.OPT_SORT_KEYS) + b"\n" for record in records))


def forged(records: Lines) -> Lines:
    """Alter the first charge of site east and make its chain fit again from there on."""
    made, head = [], None
    for record in records:
        if record.get("site") == "east":
            record |= {"nano": 1} if head is None else {"previous": head}  # noqa: PLW2901
            record["hash"] = head = chain_hash(record)
        made.append(record)
    return made


def test_a_third_party_needs_one_file_and_the_public_key(signed: Path, tmp_path: Path) -> None:
    for name in ("books", "signer.pub"):
        shutil.copy(signed / name, tmp_path)
    report = verify(tmp_path, "--books", tmp_path / "books", "--json").answer
    stored = [record for record in lines(tmp_path / "books") if "head" not in record]
    assert report["ok"]
    assert report["entries"] == len(stored) > 20
    assert (report["signed"]["heads"], report["signed"]["later_entries"]) == (2, 0)
    assert "2  signed heads, the last of 20" in verify(tmp_path, "--books", tmp_path / "books").out


def test_every_head_names_the_last_entry_of_every_site_and_the_head_before_it(signed: Path) -> None:
    first, second = (record["head"] for record in lines(signed / "heads"))
    ends = run("audit", "verify", "--store", signed / "store", "--json").answer["sites"]
    assert second["sites"] == ends
    assert sorted(first["sites"]) == ["east", "west"]
    assert all(first["sites"][site]["sequence"] < ends[site]["sequence"] for site in ends)
    assert (first["number"], second["number"], first["previous"]) == (0, 1, "0" * 64)
    assert len(second["previous"]) == 64 != first["previous"]


def test_the_same_heads_are_kept_in_every_file_and_one_that_was_away_is_filled_up(scenario: Path) -> None:
    assert (scenario / "heads").read_bytes() == (scenario / "elsewhere").read_bytes()
    (scenario / "elsewhere").unlink()
    assert sign(scenario).code == 0
    assert (scenario / "heads").read_bytes() == (scenario / "elsewhere").read_bytes()
    assert len(lines(scenario / "elsewhere")) == 3


def test_only_its_owner_reads_the_signing_key_and_others_programs_read_the_public_one(scenario: Path) -> None:
    assert stat.S_IMODE((scenario / "signer").stat().st_mode) == 0o600
    load_pem_public_key((scenario / "signer.pub").read_bytes())
    (scenario / "signer").chmod(0o640)
    assert "must be readable by its owner only" in sign(scenario).problem


def test_no_key_is_written_over(scenario: Path) -> None:
    before = (scenario / "signer").read_bytes(), (scenario / "signer.pub").read_bytes()
    for gone in ((), ("signer.pub",)):
        for name in gone:
            (scenario / name).unlink()
        done = run("audit", "keygen", scenario / "signer")
        assert (done.code, "must not exist yet" in done.problem) == (2, True)
    assert (scenario / "signer").read_bytes() == before[0]


def altered(records: Lines) -> Lines:
    return [record | ({"nano": 1} if record.get("sequence") == 3 else {}) for record in records]


def without(kind: str, number: int) -> Callable[[Lines], Lines]:
    def leave_out(records: Lines) -> Lines:
        if kind == "head":
            return [record for record in records if record.get("head", {}).get("number") != number]
        kept = [r for r in records if r.get("site") != kind or r["sequence"] < number]
        assert len(kept) < len(records)
        return kept

    return leave_out


def told(**fields: Any) -> Callable[[Lines], Lines]:
    def tell(records: Lines) -> Lines:
        return [r | {"head": r["head"] | fields} if r.get("head", {}).get("number") == 0 else r for r in records]

    return tell


@pytest.mark.parametrize(
    ("wreck", "problem"),
    [
        (altered, "entry 3 must have the hash of its content"),
        (forged, "must be the one that signed head 0 of 20"),
        (without("east", 10), "entry 10 is missing; signed head 1 of 20"),
        (without("west", 0), "site west: entry 0 is missing; signed head 0 of 20"),
        (without("head", 0), "signed head 0 must be there and include the one before it"),
        (told(time="2026-01-01T00:00:00Z"), "signed head 0 of 2026-01-01T00:00:00Z must be signed with the key given"),
        (told(sites={}), "must be signed with the key given"),
        (told(more=1), "byte for byte"),
        (told(number="x"), "every signed head must be one that 'tacet audit sign' wrote"),
        (lambda records: [r for r in records if "head" not in r], "--public-key: must be used with signed heads"),
    ],
)
def test_books_in_a_file_that_are_not_what_was_signed_are_refused(scenario: Any, wreck: Any, problem: str) -> None:
    put(scenario / "books", wreck(lines(scenario / "books")))
    done = verify(scenario, "--books", scenario / "books")
    assert (done.code, problem in done.problem) == (2, True), done.problem


def test_a_head_left_out_at_the_end_shows_to_whoever_has_kept_it(scenario: Path) -> None:
    """Without it the file is that of the day before, as which it passes: so the last time is told."""
    cut = without("head", 1)(lines(scenario / "books"))
    for site, link in cut[0]["head"]["sites"].items():
        cut = without(site, link["sequence"])(cut)
    put(scenario / "books", cut)
    assert verify(scenario, "--books", scenario / "books").code == 0
    done = verify(scenario, "--books", scenario / "books", "--heads", scenario / "elsewhere")
    assert (done.code, "is missing; signed head 1" in done.problem) == (2, True)


def test_a_store_that_was_put_back_is_not_signed_again_and_not_verified(scenario: Path) -> None:
    """Nothing in the older store contradicts itself, its state and an older mark included."""
    before = (scenario / "heads").read_bytes()
    assert run("audit", "verify", "--store", scenario / "older").code == 0
    for done in (
        sign(scenario, store="older"),
        verify(scenario, "--store", scenario / "older", "--heads", scenario / "heads"),
    ):
        assert (done.code, "is missing; signed head 1" in done.problem) == (2, True), done.problem
    assert (scenario / "heads").read_bytes() == before


def test_another_key_signs_nothing_and_vouches_for_nothing(scenario: Path) -> None:
    before = (scenario / "heads").read_bytes()
    for done in (sign(scenario, key="stranger"), verify(scenario, "--books", scenario / "books", key="stranger")):
        assert (done.code, "signed head 0" in done.problem, "must be signed with the key given" in done.problem) == (
            2, True, True,
        )  # fmt: skip
    assert (scenario / "heads").read_bytes() == before


def test_two_histories_in_two_copies_are_refused(scenario: Path) -> None:
    """Whoever holds the signing key could sign other books; not without a trace in the copy kept elsewhere."""
    put(scenario / "elsewhere", told(time="2026-01-01T00:00:00Z")(lines(scenario / "elsewhere")))
    assert "must be the same in every copy of the heads" in sign(scenario).problem


def test_heads_that_are_gone_are_missed_and_are_not_begun_anew_in_silence(scenario: Path) -> None:
    assert "--first: must not be given" in sign(scenario, "--first").problem
    for name in ("heads", "elsewhere"):
        (scenario / name).unlink()
    done = sign(scenario)
    assert (done.code, "must contain all heads signed so far" in done.problem) == (2, True)


def test_a_line_that_was_cut_off_is_named(scenario: Path) -> None:
    (scenario / "heads").write_bytes((scenario / "heads").read_bytes()[:-5])
    assert "must end with a complete line" in sign(scenario).problem


def test_signed_heads_are_never_passed_over_for_want_of_the_key(scenario: Path) -> None:
    done = run("audit", "verify", "--books", scenario / "books")
    assert (done.code, "--public-key: must be given" in done.problem) == (2, True)


def test_a_clock_that_is_behind_the_last_head_signs_nothing(scenario: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.operations.audit.signed_heads.wall_clock", lambda: 0)
    assert "the clock must have come as far as signed head 1" in sign(scenario).problem


def test_a_signer_without_any_sight_of_the_store_signs_a_file_of_books(scenario: Path) -> None:
    done = run(
        "audit", "sign", "--books", scenario / "books", "--key-file", scenario / "signer",
        "--heads", scenario / "heads", "--json",
    )  # fmt: skip
    assert done.answer["number"] == 2
