"""Access: tokens, sessions, one-time links, an open audience, and who is refused."""

from __future__ import annotations

import json
import os
import pwd
import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from connectors.http.server import Tls
from connectors.runtime.clock import wall_clock
from connectors.serve.access import Access, Principal, digest_of
from connectors.serve.startup import check
from stream.errors import UsageError
from stream.records import HOUR, SECOND, Micros
from stream.schemas import rfc3339
from tests.acceptance.command_line import run
from tests.acceptance.serve.services import LAST, Served, events, eventually, new_token, records, served, wanted

LATEST = "/api/v1/latest"


def status(client: httpx.Client, path: str, **params: str) -> int:
    return client.get(path, params=params).status_code


# --- nobody, and wrong secrets ----------------------------------------------------------------------------------

CLOSED = ["session", "sites", "releases", "policy", "latest?audience=public&site=east", "account", "operator",
          "stream?audience=public", "usual?audience=public&site=east&release=occupancy", "playback",
          "releases/occupancy/records?audience=public&site=east", "account/attributes?site=east&day=2026-03-02",
          "attributes?audience=public&site=east", "spends?audience=public&site=east", "sites/east/plans/0"]  # fmt: skip


@pytest.mark.parametrize("path", CLOSED)
def test_on_loopback_too_nobody_sees_anything_without_a_token(service: Served, path: str) -> None:
    with service.client() as client:
        answer = client.get(f"/api/v1/{path}")
    assert answer.status_code == 401
    assert set(answer.json()["error"]) == {"what", "rule"}
    assert answer.headers["www-authenticate"].startswith("Bearer")


WRONG = ("Bearer", "Bearer x", "Basic dXNlcjpwYXNz", "bearer " + "a" * 2000, "tacet_x", "Bearer ü")


@pytest.mark.parametrize("header", WRONG)
def test_a_wrong_token_is_told_no_more_than_that(service: Served, header: str) -> None:
    with service.client() as client:
        answer = client.get("/api/v1/sites", headers={b"authorization": header.encode("latin-1")})
    assert answer.status_code in {401, 429}
    assert "tacet_x" not in answer.text


def test_many_wrong_tokens_are_slowed_down_but_lock_nobody_out(folder: Path, tmp_path: Path) -> None:
    """No token of 256 random bits is guessed; that others on the machine keep the owner out would be worse."""
    good = new_token(tmp_path / "tokens", "good", "audience:public")
    with served(wanted(folder, tokens=tmp_path / "tokens")) as running:
        with running.client("tacet_wrong") as client:
            seen = {status(client, "/api/v1/sites") for _ in range(30)}
        assert seen == {401, 429}
        with running.client(good) as client:
            assert status(client, "/api/v1/sites") == 200


# --- roles ------------------------------------------------------------------------------------------------------


def test_a_role_opens_its_own_part_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    tokens = {role: new_token(file, role.replace(":", "-"), role) for role in
              ("audience:public", "audience:facilities", "account", "operator")}  # fmt: skip
    query = wanted(folder, tokens=file, account=True, operator=True)
    with served(query) as running:
        for role, token in tokens.items():
            with running.client(token) as client:
                found = {a for a in ("public", "facilities") if status(client, LATEST, audience=a, site="east") == 200}
                found |= {name for name in ("account", "operator") if status(client, f"/api/v1/{name}") == 200}
                assert found == {role.removeprefix("audience:")}
                refused = client.get("/api/v1/stream", params={"audience": "nobody"})
                assert refused.status_code == 403


def test_a_token_opens_no_role_that_is_not_served(folder: Path, tmp_path: Path) -> None:
    token = new_token(tmp_path / "tokens", "all", "audience:public", "audience:facilities", "account", "operator")
    with (
        served(wanted(folder, tokens=tmp_path / "tokens", audiences=("public",))) as running,
        running.client(token) as client,
    ):
        assert client.get("/api/v1/session").json()["roles"] == ["audience:public"]
        assert status(client, LATEST, audience="facilities", site="east") == 403
        assert status(client, "/api/v1/account") == 403


def test_a_policy_is_shown_to_an_audience_in_its_own_part(folder: Path, tmp_path: Path) -> None:
    token = new_token(tmp_path / "tokens", "public", "audience:public")
    with served(wanted(folder, tokens=tmp_path / "tokens")) as running, running.client(token) as client:
        reported = {path: client.get(f"/api/v1/{path}") for path in ("policy", "releases", "sites")}
    assert list(reported["policy"].json()["audiences"]) == ["public"]
    assert [row["release"] for row in reported["releases"].json()["releases"]] == ["occupancy"]
    assert [row["site"] for row in reported["sites"].json()["sites"]] == ["east"], "of west the public gets nothing"
    for other in ("facilities", "archive", "cellar", "office-day", "den", "02:00:00", "127.0.0.1"):
        assert all(f'"{other}' not in answer.text for answer in reported.values())


PLAN = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 30 10">
<rect id="loft" x="0" y="0" width="20" height="10"/>
<rect id="den" x="20" y="0" width="10" height="10"/></svg>"""


def test_a_reader_is_named_the_zones_alone_of_which_they_are_told(folder: Path, tmp_path: Path) -> None:
    """On a plan the rooms of others are walls."""
    file = tmp_path / "tokens"
    tokens = {name: new_token(file, name, f"audience:{name}") for name in ("public", "facilities")}
    (tmp_path / "plans" / "east").mkdir(parents=True)
    (tmp_path / "plans" / "east" / "1.svg").write_text(PLAN)
    (tmp_path / "plans" / "east" / "0.svg").write_text(PLAN)
    zones, drawn, lines = {}, {}, {}
    with served(wanted(folder, tokens=file, plans=tmp_path / "plans")) as running:
        for name, token in tokens.items():
            with running.client(token) as client:
                floors = client.get("/api/v1/sites").json()["sites"][0]["floors"]
                plan = client.get("/api/v1/sites/east/plans/1").json()
            zones[name] = {zone["zone"] for floor in floors for zone in floor["zones"]}
            drawn[name], lines[name] = set(plan["zones"]), len(plan["outline"])
    assert zones == {"public": {"hall", "loft"}, "facilities": {"hall", "loft", "den"}}
    assert drawn == {"public": {"loft"}, "facilities": {"loft", "den"}}
    assert lines["public"] == lines["facilities"] + 1


def test_the_account_is_that_of_the_store(folder: Path) -> None:
    shown = run("account", "--store", folder / "store", "--json").answer["sites"]
    with served(wanted(folder, account=True)) as running, running.browser() as client:
        eventually(lambda: set(client.get("/api/v1/account").json()["sites"]) == {"east", "west"})
        eventually(lambda: newest(client, "east") == shown["east"]["last"]["window_end"])
        reported = client.get("/api/v1/account").json()
        for site in ("east", "west"):
            assert reported["sites"][site]["audiences"] == shown[site]["last"]["audiences"]
            assert reported["sites"][site]["coalition"] == shown[site]["last"]["coalition"]
        days = client.get("/api/v1/account/attributes", params={"site": "east", "day": "2026-03-02"}).json()
        assert days["attributes"] == shown["east"]["attributes"] != {}
    assert set(reported["promise"]) == {"facilities", "public"}


@pytest.mark.parametrize("names", ["facilities", "public", "facilities,public"])
def test_a_coalitions_account_is_that_of_the_ledger(folder: Path, names: str) -> None:
    shown = run("account", "--store", folder / "store", "--coalition", names, "--json").answer["sites"]
    with served(wanted(folder, account=True)) as running, running.browser() as client:
        reported = client.get("/api/v1/account/coalition", params={"audiences": names}).json()
        for site, account in shown.items():
            units = account["last"]["audiences"]["+".join(names.split(","))]
            assert reported["sites"].get(site) == (None if units["device_total"] == "0" else units)
        assert client.get("/api/v1/account/coalition", params={"audiences": "nobody"}).status_code == 422
        assert {"east"} <= set(reported["sites"])


def newest(client: httpx.Client, site: str) -> str:
    return str(client.get("/api/v1/account").json()["sites"][site]["window_end"])


def test_the_operator_sees_how_sites_stand_and_no_sum_over_few_access_points(folder: Path) -> None:
    with served(wanted(folder, operator=True)) as running, running.browser() as client:
        eventually(lambda: len(client.get("/api/v1/operator").json()["sites"]) == 2)
        reported = client.get("/api/v1/operator").json()
        rows = {row["site"]: row for row in reported["sites"]}
    assert {row["late"] for row in rows.values()} == {None}, "three access points and one: sums would tell of people"
    assert not any(row["closed"] for row in rows.values())
    assert rows["east"]["window_end"] == rfc3339(LAST)
    assert rows["east"]["lag_seconds"] > (wall_clock() - LAST) / SECOND - 3600
    assert reported["free_mib"] > 0
    assert rows["east"]["ledger_entries"] > rows["west"]["ledger_entries"] > 0


# --- tokens -----------------------------------------------------------------------------------------------------


def test_a_token_is_shown_once_and_kept_as_a_digest_in_a_file_of_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    made = run("token", "new", "--tokens", file, "--name", "ann", "--audience", "public", "--account")
    secret = made.out.strip()
    assert secret.startswith("tacet_")
    assert len(secret) >= 6 + 43, "256 random bits"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert secret.removeprefix("tacet_") not in file.read_text()
    (row,) = json.loads(file.read_text())["tokens"]
    assert row["sha256"] == digest_of(secret)
    listed = run("token", "list", "--tokens", file, "--json").answer["tokens"]
    assert [(each["name"], each["roles"]) for each in listed] == [("ann", ["account", "audience:public"])]
    assert "sha256" not in str(listed)
    assert run("token", "revoke", "--tokens", file, "ann").code == 0
    assert run("token", "list", "--tokens", file, "--json").answer["tokens"] == []


def test_a_name_is_one_tokens_only(tmp_path: Path) -> None:
    new_token(tmp_path / "tokens", "ann", "account")
    assert run("token", "new", "--tokens", tmp_path / "tokens", "--name", "ann", "--account").code == 2
    assert run("token", "revoke", "--tokens", tmp_path / "tokens", "bob").code == 2
    assert run("token", "new", "--tokens", tmp_path / "tokens", "--name", "a/b", "--account").code == 2
    assert run("token", "new", "--tokens", tmp_path / "tokens", "--name", "bob").code == 2


def test_a_file_of_tokens_that_others_may_read_is_not_used(folder: Path, tmp_path: Path) -> None:
    new_token(tmp_path / "tokens", "ann", "audience:public")
    (tmp_path / "tokens").chmod(0o640)
    with pytest.raises(UsageError, match="mode 0600"), served(wanted(folder, tokens=tmp_path / "tokens")):
        pass


def test_while_the_file_of_tokens_cannot_be_read_nobody_is_let_in(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    token = new_token(file, "ann", "audience:public")
    stored = file.read_bytes()
    with served(wanted(folder, tokens=file)) as running, running.client(token) as client:
        assert status(client, "/api/v1/sites") == 200
        file.write_bytes(stored[:-9])
        assert status(client, "/api/v1/sites") == 503
        file.write_bytes(stored)
        assert status(client, "/api/v1/sites") == 200


def test_a_token_ends_when_it_expires_and_so_does_its_session(folder: Path, tmp_path: Path) -> None:
    now: list[Micros] = [wall_clock()]
    token = new_token(tmp_path / "tokens", "ann", "audience:public", span=2 * HOUR)
    with (
        served(wanted(folder, tokens=tmp_path / "tokens"), clock=lambda: now[0]) as running,
        running.client() as client,
        running.client(token) as program,
    ):
        assert client.post("/api/v1/session", json={"token": token}).status_code == 204
        assert [status(each, "/api/v1/sites") for each in (client, program)] == [200, 200]
        now[0] += 3 * HOUR
        assert [status(each, "/api/v1/sites") for each in (client, program)] == [401, 401]


# --- sessions and links -----------------------------------------------------------------------------------------


def test_a_link_lets_one_browser_in_once_and_the_next_is_said(folder: Path) -> None:
    with served(wanted(folder)) as running:
        first = running.link()
        with running.browser() as client:
            assert client.get("/api/v1/session").json()["audiences"] == ["facilities", "public"]
        assert len(running.said) == 2
        with running.client() as client:
            assert client.post("/api/v1/session", json={"link": first}).status_code == 401
            assert client.post("/api/v1/session", json={"link": running.link()}).status_code == 204


def test_a_sessions_cookie_is_kept_from_scripts_and_other_sites(service: Served) -> None:
    with service.client() as client:
        answer = client.post("/api/v1/session", json={"link": service.link()})
    (cookie,) = answer.headers.get_list("set-cookie")
    parts = {part.strip().lower() for part in cookie.split(";")}
    assert {"httponly", "samesite=strict", "path=/"} <= parts
    assert service.link() not in cookie


def test_two_services_of_a_host_let_a_browser_stay_at_both(folder: Path) -> None:
    """A browser sends a host's cookies to each of its ports."""
    with served(wanted(folder)) as one, served(wanted(folder)) as other, httpx.Client() as client:
        for running in (one, other):
            login = client.post(f"{running.address}/api/v1/session", json={"link": running.link()})
            assert login.status_code == 204
        assert [status(client, f"{running.address}/api/v1/sites") for running in (one, other)] == [200, 200]
        described = client.get(f"{one.address}/api/v1/openapi.json").json()
        assert described["components"]["securitySchemes"]["session"]["name"] == one.cookie != other.cookie


def test_leaving_ends_the_session_and_its_streams(folder: Path) -> None:
    with served(wanted(folder)) as running, running.browser() as client:
        cookie = client.cookies[running.cookie]
        with client.stream("GET", "/api/v1/stream?audience=public") as answer:
            lines = answer.iter_lines()
            assert next(lines).startswith("id: ")
            with running.client() as other:
                other.cookies.set(running.cookie, cookie)
                assert other.delete("/api/v1/session").status_code == 204
            assert '{"why":"revoked"}' in "".join(lines)
        client.cookies.set(running.cookie, cookie)
        assert status(client, "/api/v1/sites") == 401


def test_a_session_is_of_no_use_to_the_page_of_another_origin(service: Served) -> None:
    with service.browser() as client:
        for headers in ({"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
            assert client.get("/api/v1/sites", headers=headers).status_code == 403
        assert client.get("/api/v1/sites", headers={"origin": service.address}).status_code == 200


# --- an open audience -------------------------------------------------------------------------------------------


def test_an_open_audience_is_read_by_anyone_and_nothing_else_is(folder: Path) -> None:
    query = wanted(folder, opened="public", account=True, operator=True)
    with served(query) as running, running.client() as client:
        eventually(lambda: client.get("/api/v1/session").json()["laboratory"])  # known from the first record on
        assert client.get("/api/v1/session").json() | {"version": ""} == {
            "roles": ["audience:public"], "audiences": ["public"], "open": True, "laboratory": True, "version": "",
            "playback": False, "bookings": [],
        }  # fmt: skip
        assert status(client, LATEST, audience="public", site="east") == 200
        assert len(events(client, "public", "start", 3)) == 3
        assert status(client, LATEST, audience="facilities", site="east") == 403
        assert [status(client, f"/api/v1/{name}") for name in ("account", "operator")] == [403, 403]


REFUSED: dict[str, dict[str, Any]] = {
    "--open": {"opened": "facilities"},
    "--tokens": {"listen": ("0.0.0.0", 0)},
    "--name": {"behind_proxy": True},
    "--index": {"store": None, "kafka": "127.0.0.1:1"},
    "--audience": {"audiences": ()},
}


@pytest.mark.parametrize("option", REFUSED)
def test_what_would_show_more_than_was_meant_is_refused(folder: Path, option: str) -> None:
    with pytest.raises(UsageError, match=option):
        check(wanted(folder, **REFUSED[option]))


def test_an_address_that_others_reach_needs_tokens_and_tls_or_a_proxy(folder: Path, tmp_path: Path) -> None:
    outside: dict[str, Any] = {"listen": ("0.0.0.0", 0), "tokens": tmp_path / "tokens"}
    with pytest.raises(UsageError, match="--tls-cert"):
        check(wanted(folder, **outside))
    check(wanted(folder, **outside, tls=Tls(tmp_path / "c", tmp_path / "k")))
    check(wanted(folder, **outside, behind_proxy=True, names=("rooms.example",)))


def test_a_simulated_building_may_be_seen_from_outside_by_its_link_alone(folder: Path) -> None:
    with served(wanted(folder, listen=("0.0.0.0", 0), simulated=True)) as running:
        assert running.address.startswith("http://localhost:"), "what a browser of the same machine can open"
        with running.client() as stranger, running.browser() as guest:
            assert status(stranger, LATEST, audience="public", site="east") == 401
            assert status(guest, LATEST, audience="public", site="east") == 200
            assert stranger.get("/", headers={"host": "elsewhere.example"}).status_code >= 400


# --- other users of the machine ---------------------------------------------------------------------------------


def test_a_second_user_of_the_machine_reads_nothing_without_a_token(service: Served, folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    other = pwd.getpwnam("nobody").pw_uid
    query = f"{service.address}/api/v1/latest?audience=public&site=east"
    code = f"import urllib.request; urllib.request.urlopen('{query}')"
    outbox = str(folder / "store" / "private" / "public.sqlite")
    for command, problem in ((["python3", "-c", code], "401"), (["cat", outbox], "Permission denied")):
        done = subprocess.run(command, user=other, cwd="/", capture_output=True, text=True, check=False)
        assert done.returncode != 0
        assert problem in done.stderr
    assert records(folder, "public")


def test_who_begins_many_sessions_ends_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.serve.access.MOST_SESSIONS", 2)
    access = Access(frozenset(["operator", "audience:public"]), clock=lambda: 0)
    kept = access.begin(replace(somebody(access), name="ann"))[0]
    first, second, third = (access.begin(replace(somebody(access), name="bob"))[0] for _ in "123")
    assert access.by_session(first) is None
    assert all(access.by_session(cookie) for cookie in (kept, second, third))


def somebody(access: Access) -> Principal:
    who = access.by_link(access.new_link())
    assert who is not None
    return who
