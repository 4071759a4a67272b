"""``tacet report`` reads released records alone, so it costs nothing: true counts and ledger are not needed."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from connectors.cli.main import tacet
from tests.acceptance.serve.services import make_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("released")) / "store"


def report(store: Path) -> str:
    options = ("--store", str(store), "--audience", "public", "--site", "east", "--month", "2026-03")
    done = CliRunner().invoke(tacet, ["report", *options], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def digests(store: Path) -> dict[str, str]:
    """Return the digest of each file that holds data: the ledger, the true counts, the outboxes."""
    return {
        path.relative_to(store).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(store.rglob("*"))
        if path.is_file() and not path.name.endswith(("-shm", "-wal"))
    }


def test_a_report_leaves_the_ledger_as_it_is(store: Path) -> None:
    before = digests(store)
    assert "store.sqlite" in before
    assert "March 2026" in report(store)
    assert digests(store) == before


def test_the_same_released_records_give_the_same_report_whatever_the_true_counts(store: Path, tmp_path: Path) -> None:
    other = shutil.copytree(store, tmp_path / "other")
    for path in other.glob("store.sqlite*"):
        path.unlink()
    (other / "store.sqlite").write_bytes(b"other true counts, another ledger")
    for path in (other / "private").glob("*.sqlite*"):
        if not path.name.startswith("public."):
            path.unlink()
    assert report(other) == report(store)
