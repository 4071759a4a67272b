"""Options that select what a verb reads: exactly one, and secrets from files of one owner."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.secrets.private_files import read_secret
from stream.errors import KeyFileError
from tests.acceptance.command_line import run


def secret(path: Path, text: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(text)
    path.chmod(mode)
    return path


def test_a_secret_is_the_first_line_of_a_file_of_one_owner(tmp_path: Path) -> None:
    assert read_secret(secret(tmp_path / "token", b"abc\nmore\n")) == "abc"


@pytest.mark.parametrize(
    ("text", "mode", "rule"),
    [(b"abc", 0o640, "readable by its owner only"), (b"\nabc", 0o600, "one line"), (b"\xff", 0o600, "one line")],
)
def test_a_file_that_holds_no_secret_is_refused_without_its_text(
    tmp_path: Path, text: bytes, mode: int, rule: str
) -> None:
    with pytest.raises(KeyFileError, match=rule) as reported:
        read_secret(secret(tmp_path / "token", text, mode))
    assert "abc" not in str(reported.value)


def test_a_secret_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="cannot be read"):
        read_secret(tmp_path / "nothing")


@pytest.mark.parametrize("other", [["--store", "s"], ["--kafka", "h:1"]])
def test_a_verb_reads_from_one_place(other: list[str]) -> None:
    done = run("subscribe", "--audience", "a", "--url", "https://example.org", *other)
    assert (done.code, "give either" in done.problem) == (2, True)


def test_a_token_goes_with_a_url(tmp_path: Path) -> None:
    done = run("subscribe", "--audience", "a", "--store", tmp_path, "--token-file", tmp_path / "token")
    assert (done.code, "--token-file: must be used with --url" in done.problem) == (2, True)
