"""Who may see what, and when that ends: tokens, sessions and links without a service around them."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from connectors.cli.main import tacet
from connectors.secrets import private_files
from connectors.serve.access import ANYONE, MOST_SESSIONS, SESSION, Access, Principal, TokenFile
from stream.records import DAY, HOUR, Micros

PUBLIC, FACILITIES, ACCOUNT = "audience:public", "audience:facilities", "account"
SERVED = frozenset([PUBLIC, FACILITIES, ACCOUNT])
NOW = 20_000 * DAY


class Desk:
    """An access with a clock that stands where it is put, and a file of tokens."""

    def __init__(self, path: Path, served: frozenset[str] = SERVED, opened: str | None = None) -> None:
        self.now: Micros = NOW
        self.path = path
        self.tokens = TokenFile(path)
        self.access = Access(served, clock=lambda: self.now, tokens=self.tokens, opened=opened)

    def token(self, name: str, *roles: str, span: Micros = DAY) -> str:
        return self.tokens.add(name, roles, self.now + span)

    def session(self, secret: str) -> tuple[str, Principal]:
        who = self.access.by_token(secret)
        assert who is not None
        return self.access.begin(who)

    def rewrite(self, name: str, *roles: str) -> None:
        """Give a token other roles, as somebody who edits the file does."""
        body = json.loads(self.path.read_text())
        for row in body["tokens"]:
            row["roles"] = [*roles] if row["name"] == name else row["roles"]
        private_files.replace_file(self.path, body)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "tokens")


# --- tokens -----------------------------------------------------------------------------------------------


def test_a_token_has_those_of_its_roles_that_are_served(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "tokens", frozenset([PUBLIC]))
    who = desk.access.by_token(desk.token("ann", PUBLIC, FACILITIES, ACCOUNT))
    assert who is not None
    assert (who.name, who.roles, who.audiences) == ("ann", frozenset([PUBLIC]), ("public",))


@pytest.mark.parametrize(("later", "known"), [(0, True), (HOUR - 1, True), (HOUR, False)])
def test_a_token_is_valid_until_it_expires(desk: Desk, later: Micros, known: bool) -> None:
    secret = desk.token("ann", PUBLIC, span=HOUR)
    stored = desk.access.by_token(secret)
    assert stored is not None
    desk.now += later
    assert (desk.access.by_token(secret) is not None) is known
    assert desk.access.holds(stored) is known


def test_another_secret_and_the_digest_in_the_file_authenticate_nobody(desk: Desk) -> None:
    secret = desk.token("ann", PUBLIC)
    digest = json.loads(desk.path.read_text())["tokens"][0]["sha256"]
    assert [desk.access.by_token(each) for each in ("", secret[:-1], secret + "x", digest)] == [None] * 4


# --- what ends a session ----------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [(FACILITIES,), (PUBLIC,), (ACCOUNT,), ()])
def test_a_session_ends_when_its_token_loses_a_role_and_does_not_come_back_with_less(
    desk: Desk, left: tuple[str, ...]
) -> None:
    """Also where it keeps others, or gets another one for it: what the session showed is not what it may show."""
    desk.token("ben", PUBLIC, FACILITIES)
    secret = desk.token("ann", PUBLIC, FACILITIES)
    cookie, stored = desk.session(secret)
    assert desk.access.by_session(cookie) == stored
    assert stored.roles == {PUBLIC, FACILITIES}
    desk.rewrite("ann", *left)
    assert not desk.access.holds(stored)
    assert desk.access.by_session(cookie) is None
    desk.rewrite("ann", PUBLIC, FACILITIES)
    assert desk.access.holds(stored), "nothing was taken from it but what the file said meanwhile"


def test_an_open_stream_by_a_token_ends_when_the_token_loses_a_role(desk: Desk) -> None:
    secret = desk.token("ann", PUBLIC, ACCOUNT)
    who = desk.access.by_token(secret)
    assert who is not None
    assert desk.access.holds(who)
    desk.rewrite("ann", PUBLIC)
    assert not desk.access.holds(who)


def test_an_added_role_does_not_change_a_running_session(desk: Desk) -> None:
    cookie, stored = desk.session(desk.token("ann", PUBLIC))
    desk.rewrite("ann", PUBLIC, ACCOUNT)
    assert desk.access.by_session(cookie) == stored
    assert stored.roles == {PUBLIC}


def test_a_session_ends_with_its_token(desk: Desk) -> None:
    desk.token("ben", PUBLIC, FACILITIES)
    cookie, stored = desk.session(desk.token("ann", PUBLIC))
    desk.tokens.revoke("ann")
    assert desk.access.by_session(cookie) is None
    assert not desk.access.holds(stored)


@pytest.mark.parametrize(("span", "ends"), [(HOUR, HOUR), (3 * DAY, SESSION)])
def test_a_session_ends_after_its_lifetime_and_never_later_than_its_token(
    desk: Desk, span: Micros, ends: Micros
) -> None:
    cookie, stored = desk.session(desk.token("ann", PUBLIC, span=span))
    assert stored.expires == NOW + ends
    desk.now += ends - 1
    assert desk.access.by_session(cookie) == stored
    desk.now += 1
    assert desk.access.by_session(cookie) is None


def test_ending_a_session_ends_no_other_session(desk: Desk) -> None:
    secret = desk.token("ann", PUBLIC)
    (one, stored), (other, _) = desk.session(secret), desk.session(secret)
    desk.access.end(stored)
    assert desk.access.by_session(one) is None
    assert desk.access.by_session(other) is not None


def test_too_many_sessions_of_one_principal_end_its_oldest_one(desk: Desk) -> None:
    ben, _ = desk.session(desk.token("ben", PUBLIC))
    secret = desk.token("ann", PUBLIC)
    cookies = [desk.session(secret)[0] for _ in range(MOST_SESSIONS + 2)]
    assert [desk.access.by_session(each) is None for each in cookies] == [True] * 2 + [False] * MOST_SESSIONS
    assert desk.access.by_session(ben) is not None


# --- links, and anyone ------------------------------------------------------------------------------------


def test_a_link_works_once_and_has_every_served_role(desk: Desk) -> None:
    secret = desk.access.new_link()
    who = desk.access.by_link(secret)
    assert who is not None
    assert who.roles == SERVED
    assert desk.access.by_link(secret) is None
    cookie, stored = desk.access.begin(who)
    assert desk.access.by_session(cookie) == stored
    assert not desk.access.holds(who), "what a link brought holds for the session alone"


def test_a_caller_without_credentials_has_only_the_open_role(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "tokens", opened=PUBLIC)
    desk.token("ann", ACCOUNT)
    assert desk.access.anyone("10.0.0.1") == Principal(ANYONE, frozenset([PUBLIC]), address="10.0.0.1")
    assert desk.access.holds(Principal(ANYONE, frozenset([PUBLIC])))
    assert not desk.access.holds(Principal(ANYONE, SERVED))
    assert Desk(tmp_path / "none").access.anyone("10.0.0.1") is None


# --- tacet token new --------------------------------------------------------------------------------------


def made(folder: Path, *more: str) -> Result:
    words = ["token", "new", "--tokens", str(folder / "tokens"), "--name", "screen", "--audience", "public", *more]
    return CliRunner().invoke(tacet, words)


def test_a_token_is_written_to_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    """Programs are given it by --token-file, which takes no file that others can read."""
    out, before = tmp_path / "screen.token", os.umask(0o022)
    try:
        done = made(tmp_path, "--out", str(out))
    finally:
        os.umask(before)
    assert (done.exit_code, done.output) == (0, "")
    assert stat.S_IMODE(out.stat().st_mode) == stat.S_IMODE((tmp_path / "tokens").stat().st_mode) == 0o600
    who = Access(SERVED, clock=lambda: 0, tokens=TokenFile(tmp_path / "tokens")).by_token(
        private_files.read_secret(out)
    )
    assert who is not None


def test_a_token_that_cannot_be_written_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "screen.token").symlink_to(tmp_path / "nowhere" / "file")
    assert made(tmp_path, "--out", str(tmp_path / "screen.token")).exit_code == 1
    assert TokenFile(tmp_path / "tokens").tokens() == ()


@pytest.mark.parametrize("more", [("--room", "public"), ("--audience", "public"), ("--account",)])
def test_a_link_is_for_one_room_and_nothing_else(tmp_path: Path, more: tuple[str, ...]) -> None:
    """Whoever has it is let in."""
    words = ["token", "new", "--tokens", str(tmp_path / "tokens"), "--name", "screen", "--link", "https://a.example/"]
    for refused in (more[:0], ("--room", "dean", *more)):
        done = CliRunner().invoke(tacet, [*words, *refused])
        assert (done.exit_code, "--link: must be used with one --room" in done.output) == (2, True)
    assert not (tmp_path / "tokens").exists()
    done = CliRunner().invoke(tacet, [*words, "--room", "dean"])
    link, _, secret = done.output.strip().partition("#token=")
    assert link == "https://a.example/room?audience=dean"
    who = Access(frozenset(["room:dean"]), clock=lambda: 0, tokens=TokenFile(tmp_path / "tokens")).by_token(secret)
    assert who is not None


# --- tacet token list, tacet token revoke -----------------------------------------------------------------


def test_tokens_are_listed_with_roles_and_expiry_until_they_are_revoked(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens")
    tokens.add("ann", [PUBLIC, ACCOUNT], NOW)
    tokens.add("ben", [FACILITIES], 80_000 * DAY)
    options = ["--tokens", str(tmp_path / "tokens")]
    assert CliRunner().invoke(tacet, ["token", "list", *options]).output.splitlines() == [
        "ann  account, audience:public  until 2024-10-04T00:00:00Z  (expired)",
        "ben  audience:facilities  until 2189-01-12T00:00:00Z",
    ]
    assert json.loads(CliRunner().invoke(tacet, ["token", "list", *options, "--json"]).output) == {
        "tokens": [
            {"name": "ann", "roles": [ACCOUNT, PUBLIC], "expires": "2024-10-04T00:00:00Z"},
            {"name": "ben", "roles": [FACILITIES], "expires": "2189-01-12T00:00:00Z"},
        ]
    }
    done = CliRunner().invoke(tacet, ["token", "revoke", *options, "ann"])
    assert (done.exit_code, done.output) == (0, "ann: revoked\n")
    assert [token.name for token in TokenFile(tmp_path / "tokens").tokens()] == ["ben"]
