"""The mail sink against a mail server of loopback: one mail for each episode, never a figure without its band."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from connectors.cli.sink import sink
from connectors.documents.month import Month
from connectors.documents.report import Report
from connectors.sinks import mail
from connectors.sinks.feed import Notes
from connectors.sinks.mail import Letters, MailSink, QuietHours, Server
from connectors.sinks.triggers import Trigger
from stream.errors import UsageError
from stream.records import HOUR, MINUTE, Micros
from stream.schemas import parse_time
from stream.settings import Settings
from tests.support.hostile_names import HOSTILE_NAMES, as_shown
from tests.support.mail_server import MailServer, certificate
from tests.support.released_store import NOON, count, give

SITES: dict[str, Any] = {
    "dbh": {
        "site": "dbh", "name": "Library", "timezone": "Europe/Berlin", "tick_seconds": 300,
        "zones": [{"zone": "2011", "floor": "2", "kind": "room", "capacity": 60, "metadata": {"name": "Reading room"}}],
    }
}  # fmt: skip
DESK = ("desk@example.org", "night@example.org")


class Clock:
    now = NOON

    def __call__(self) -> Micros:
        return self.now


class Ground:
    """A sink with a server that only remembers."""

    def __init__(self, **options: Any) -> None:
        self.sent: list[EmailMessage] = []
        self.clock = Clock()
        self.notes: Notes = {}
        given: dict[str, Any] = {"trigger": Trigger("crossing", 50), "silent_after": 30 * MINUTE} | options
        self.sink = MailSink(
            self.sent.append, Letters("tacet@example.org", DESK, SITES), self.notes, now=self.clock, **given
        )

    async def give(self, *values: int | None, start: int = 1) -> None:
        """Deliver windows of one room, each at the time at which it ends."""
        for number, value in enumerate(values, start):
            self.clock.now = NOON + 5 * number * MINUTE
            await self.sink.deliver(count(number, None if value is None else {"2011": value}))

    @property
    def subjects(self) -> list[str]:
        return [message["Subject"] for message in self.sent]


def alert(number: int, *, lasts: bool | None) -> dict[str, Any]:
    record = count(number, {"2011": int(bool(lasts))}, release="full")
    return record | {"above": {"zone:2011": lasts}, "thresholds": {"zone:2011": 54}, "alert": "above",
                     "half_width_95": None}  # fmt: skip


async def test_a_crossing_is_mailed_once_with_its_band() -> None:
    ground = Ground()
    await ground.give(20, 52, 60, 70, 65, 58)
    assert ground.subjects == ["Reading room: above 50 devices"]
    (message,) = ground.sent
    text = message.get_content()
    assert "Reading room (Library) has risen above 50 devices: 60, 57 to 63 (95 % band), 2026-03-02 13:15." in text
    assert (message["From"], message["To"]) == ("tacet@example.org", "desk@example.org, night@example.org")
    assert message["Auto-Submitted"] == "auto-generated"


async def test_a_crossing_of_logins_names_them_and_has_the_band_of_counts() -> None:
    ground = Ground()
    for number, value in enumerate((20, 60), 1):
        ground.clock.now = NOON + 5 * number * MINUTE
        await ground.sink.deliver(count(number, {"2011": value}) | {"counted": "logins and devices"})
    assert ground.subjects == ["Reading room: above 50 logins and devices"]
    assert "60, 57 to 63 (95 % band)" in ground.sent[0].get_content()


async def test_the_next_episode_is_another_mail() -> None:
    ground = Ground()
    await ground.give(20, 60, 51, 60, 20, 60)
    assert len(ground.sent) == 2
    assert ground.sent[0]["Message-ID"] != ground.sent[1]["Message-ID"]


async def test_the_same_episode_has_the_same_message_id() -> None:
    first, again = Ground(), Ground()
    for ground in (first, again):
        await ground.give(20, 60)
    assert first.sent[0]["Message-ID"] == again.sent[0]["Message-ID"]


async def test_the_other_side_can_be_mailed() -> None:
    ground = Ground(side="below")
    await ground.give(80, 20, 80)
    assert ground.subjects == ["Reading room: below 50 devices"]


async def test_a_figure_without_a_band_is_not_mailed() -> None:
    ground = Ground()
    await ground.give(20)
    await ground.sink.deliver(count(2, {"2011": 90}) | {"half_width_95": None})
    assert ground.sent == []


async def test_an_alert_of_a_threshold_stream_is_mailed_once_and_has_no_figure() -> None:
    ground = Ground(trigger=None)
    for number, lasts in enumerate([False, True, True, None, True, False, True], 1):
        ground.clock.now = NOON + 5 * number * MINUTE
        await ground.sink.deliver(alert(number, lasts=lasts))
    assert ground.subjects == ["Reading room: alert of full"] * 2
    assert "Its threshold is 54 devices (above)" in ground.sent[0].get_content()


async def test_silence_is_mailed_once_until_a_window_comes() -> None:
    ground = Ground()
    await ground.give(20)
    for later in (20, 40, 60):
        ground.clock.now = NOON + later * MINUTE
        await ground.sink.check()
    assert ground.subjects == ["Library: no figures since 2026-03-02 13:05"]
    await ground.give(20, start=14)
    ground.clock.now = NOON + 2 * HOUR
    await ground.sink.check()
    assert len(ground.sent) == 2


async def test_in_quiet_hours_mails_wait_for_what_still_lasts() -> None:
    ground = Ground(quiet=QuietHours.parse("13:00-13:30"))
    await ground.give(20, 60)
    await ground.sink.deliver(alert(2, lasts=False))
    await ground.sink.deliver(alert(3, lasts=True))
    await ground.sink.check()
    assert ground.sent == []
    await ground.give(20, 30, 30, start=4)
    await ground.sink.check()
    assert ground.subjects == ["Reading room: alert of full"], "the crossing was over before the quiet hours were"
    await ground.sink.check()
    assert len(ground.sent) == 1


async def test_several_episodes_after_quiet_hours_are_one_mail() -> None:
    ground = Ground(quiet=QuietHours.parse("13:00-13:20"))
    await ground.give(20, 60)
    await ground.sink.deliver(alert(3, lasts=True))
    await ground.give(60, start=4)
    await ground.sink.check()
    assert ground.subjects == ["2 notices after quiet hours"]


@pytest.mark.parametrize(
    ("span", "quiet"), [("22:00-07:00", "23:30"), ("22:00-07:00", "06:59"), ("12:00-13:00", "12:00")]
)
def test_quiet_hours_go_over_midnight(span: str, quiet: str) -> None:
    hours = QuietHours.parse(span)
    assert hours.hold(QuietHours.parse(f"{quiet}-00:01").start)
    assert not hours.hold(hours.end)


def test_quiet_hours_that_end_where_they_begin_are_none() -> None:
    with pytest.raises(ValueError):
        QuietHours.parse("22:00-22:00")


async def test_the_report_of_a_month_comes_once_a_day_after_its_end() -> None:
    asked: list[tuple[str, Month]] = []

    async def report_of(site: str, month: Month) -> Report:
        asked.append((site, month))
        return Report(
            "dbh-2026-03", "Library, March 2026", "# x\n\n* **Busiest day: Tue**, 40 (38 to 42)\n* more", "<p>"
        )

    ground = Ground(report_of=report_of)
    for day in ("2026-03-02T12:00:00Z", "2026-04-01T12:00:00Z", "2026-04-02T12:00:00Z", "2026-04-03T12:00:00Z"):
        ground.clock.now = parse_time(day)
        await ground.sink.check()
    assert asked == [("dbh", Month(2026, 3))]
    (message,) = ground.sent
    assert message["Subject"] == "Library, March 2026"
    assert "Busiest day: Tue, 40 (38 to 42)" in message.get_body(("plain",)).get_content()  # type: ignore[union-attr]
    (page,) = message.iter_attachments()
    assert (page.get_filename(), page.get_content_type()) == ("dbh-2026-03.html", "text/html")


@pytest.mark.parametrize("name", HOSTILE_NAMES)
async def test_a_name_begins_no_header_and_is_shown_without_what_cannot_be_printed(name: str) -> None:
    named = SITES["dbh"]["zones"][0] | {"metadata": {"name": name}}
    letters = Letters("tacet@example.org", DESK, {"dbh": SITES["dbh"] | {"name": name, "zones": [named]}})
    sent: list[EmailMessage] = []
    mails = MailSink(sent.append, letters, {}, now=(clock := Clock()), trigger=Trigger("crossing", 50),
                     silent_after=30 * MINUTE)  # fmt: skip
    for number, value in enumerate((20, 60), 1):
        await mails.deliver(count(number, {"2011": value}))
    clock.now = NOON + 2 * HOUR
    await mails.check()
    shown = as_shown(name)
    for message, subject in zip(
        sent, (f"{shown}: above 50 devices", f"{shown}: no figures since 2026-03-02 13:10"), strict=True
    ):
        read = message_from_bytes(message.as_bytes(), policy=default)
        assert read["Subject"] == subject
        assert read["Bcc"] is None
        text = read.get_content()
        assert shown.replace("⟦", "(").replace("⟧", ")") in text
        assert all(sign.isprintable() for sign in text.replace("\n", ""))


# On the wire.


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, Path]:
    return certificate(tmp_path_factory.mktemp("mail"))


def some_mail() -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "a@example.org", ", ".join(DESK), "x"
    message.set_content(".\n..dots\n")
    return message


@pytest.fixture
async def server() -> AsyncIterator[MailServer]:
    async with MailServer().running() as made:
        yield made


async def in_thread(work: Any, *arguments: Any) -> None:
    import asyncio

    await asyncio.to_thread(work, *arguments)


async def test_a_mail_reaches_all_recipients(server: MailServer) -> None:
    await in_thread(Server("127.0.0.1", server.port, tls=False).send, some_mail())
    ((encrypted, to, message),) = server.taken
    assert (encrypted, to) == (False, list(DESK))
    assert message.get_content().replace("\r\n", "\n") == ".\n..dots\n"


async def test_starttls_comes_before_the_password(secured: tuple[ssl.SSLContext, Path]) -> None:
    context, authorities = secured
    async with MailServer(context, credentials="tacet:secret").running() as server:
        sender = Server("localhost", server.port, tls=True, username="tacet", password=lambda: "secret",
                        authorities=authorities)  # fmt: skip
        await in_thread(sender.send, some_mail())
    assert [encrypted for encrypted, _, _ in server.taken] == [True]


async def test_at_port_465_tls_comes_from_the_start(
    secured: tuple[ssl.SSLContext, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    context, authorities = secured
    async with MailServer(context, implicit=True).running() as server:
        monkeypatch.setattr(mail, "IMPLICIT_TLS", server.port)
        await in_thread(Server("localhost", server.port, tls=True, authorities=authorities).send, some_mail())
    assert [encrypted for encrypted, _, _ in server.taken] == [True]


async def test_without_tls_nothing_is_sent_where_it_is_wanted(server: MailServer) -> None:
    mails = MailSink(Server("localhost", server.port, tls=True).send, Letters("a@b.org", DESK, SITES), {}, now=Clock())
    with pytest.raises(UsageError, match="must accept mail"):
        await mails._post(some_mail())
    assert server.taken == []


async def test_an_unknown_certificate_ends_the_sink(secured: tuple[ssl.SSLContext, Path]) -> None:
    async with MailServer(secured[0]).running() as server:
        send = Server("localhost", server.port, tls=True).send
        with pytest.raises(UsageError, match="certificate"):
            await MailSink(send, Letters("a@b.org", DESK, SITES), {}, now=Clock())._post(some_mail())
    assert server.taken == []


async def test_a_refusal_for_the_moment_is_tried_again_and_one_for_good_is_not(
    server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mail, "FIRST_WAIT", 0.01)
    server.answers = [b"451 later", b"421 later"]
    mails = MailSink(Server("127.0.0.1", server.port, tls=False).send, Letters("a@b.org", DESK, SITES), {}, now=Clock())
    await mails._post(some_mail())
    assert len(server.taken) == 1
    server.answers = [b"550 no"]
    with pytest.raises(UsageError):
        await mails._post(some_mail())
    assert len(server.taken) == 1


def test_the_command_checks_its_options(tmp_path: Path) -> None:
    store = give(tmp_path / "store", [count(number, {"2011": 20}) for number in range(1, 3)])
    common = ["mail", "--store", str(store), "--audience", "public", "--cursor", str(tmp_path / "c"), "--until-end",
              "--from", "a@example.org"]  # fmt: skip

    def run(*more: str) -> tuple[int, str]:
        done = CliRunner().invoke(sink, [*common, *more], obj=Settings(), standalone_mode=False)
        return done.exit_code, str(done.exception or "") + done.output

    assert "must be an address" in run("--smtp", "127.0.0.1:1", "--to", "x\ny")[1]
    to = ["--smtp", "127.0.0.1:1", "--to", "b@example.org"]
    assert "two times" in run(*to, "--quiet", "22-7h")[1]
    assert "--language" in run(*to, "--language", "xx")[1]
    assert "together" in run(*to, "--username", "u")[1]
    secret = tmp_path / "secret"
    secret.write_text("s\n")
    secret.chmod(0o600)
    away = ["--smtp", "192.0.2.1:25", "--to", "b@example.org", "--username", "u", "--password-file", str(secret)]
    assert "--no-tls" in run(*away, "--no-tls")[1]
    assert run(*to, "--silent-after", "3650d")[0] == 0
