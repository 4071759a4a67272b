"""The mail sink: thresholds that are crossed, alerts, a feed that has gone silent, and the report of each month.

One mail for each episode. An episode begins when

| episode | begins | ends |
|---|---|---|
| crossing | the whole band of a node is on the chosen side of the threshold | the whole band is on the other side |
| alert | a threshold stream says so | it says that the alert is over |
| silence | a site's newest window is older than the limit | a newer window arrives |

and its end is not mailed. In quiet hours, which are hours of the site's local time, mails wait; when they are over, one
mail tells of the episodes that still last. No figure is mailed without its band.

A mail whose server does not answer, or refuses it for the moment, is sent again and later ones wait. Its ``Message-ID``
follows from the episode, so that a copy is recognised.
"""

from __future__ import annotations

import asyncio
import hashlib
import smtplib
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from email.message import EmailMessage
from email.utils import format_datetime
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

import stamina
import structlog
from babel.dates import format_datetime as format_local
from babel.dates import format_timedelta

from connectors.documents.month import Month
from connectors.documents.report import Report
from connectors.documents.template import Figure, Row, Template, Word, as_text
from connectors.runtime.retries import log_error_kinds_only
from connectors.sinks.feed import Notes, is_latest_count, note_latest
from connectors.sinks.triggers import ABOVE, BELOW, Trigger
from connectors.storage.site_metadata import SitesMetadata, display_name
from connectors.subscribe.nodes import counted_in
from connectors.subscribe.order import Release
from stream.errors import UsageError
from stream.records import EPOCH, Micros
from stream.schemas import parse_time, rfc3339

log = structlog.get_logger("tacet.sink")
log_error_kinds_only()

TIMEOUT = 30.0
"""Seconds within which a mail server must answer."""
FIRST_WAIT, LONGEST_WAIT = 1.0, 300.0
"""Seconds before a retry, doubled each time, with random jitter."""
LOOK_EVERY = 30.0
"""Seconds between two looks at the clock: for silence, quiet hours and months."""
REPORT_AFTER = timedelta(days=1)
"""A month is reported this long after its end, so that its last day's records have come."""
IMPLICIT_TLS = 465
BAND_OF_COUNTS, BAND_OF_PEOPLE = "95", "90"
"""In per cent."""
KINDS = (ABOVE, BELOW, "alert", "silent")
FIGURES = ("threshold", "value", "low", "high")


class Episode(NamedTuple):
    """What a mail is about."""

    id: str
    """Names the episode for as long as it lasts."""
    begun: str
    """The end of the window with which it began; tells it from others of the same id."""
    kind: str
    """One of ``KINDS``."""
    site: str
    fields: dict[str, str]
    """What its line in the template says."""


@dataclass(frozen=True, slots=True)
class Server:
    """A mail server; TLS is verified by the system's authorities, or by those in ``authorities``."""

    host: str
    port: int
    tls: bool
    username: str | None = None
    password: Callable[[], str] | None = None
    """Reads the password; it is called for each connection."""
    authorities: Path | None = None

    def send(self, message: EmailMessage) -> None:
        """Send a message to its recipients, and wait until the server has taken it.

        Raises:
            smtplib.SMTPException, OSError: it was not taken.
        """
        context = ssl.create_default_context(cafile=self.authorities) if self.tls else None
        if context is not None and self.port == IMPLICIT_TLS:
            client: smtplib.SMTP = smtplib.SMTP_SSL(self.host, self.port, timeout=TIMEOUT, context=context)
        else:
            client = smtplib.SMTP(self.host, self.port, timeout=TIMEOUT)
        with client:
            if context is not None and self.port != IMPLICIT_TLS:
                client.starttls(context=context)
            if self.username is not None and self.password is not None:
                client.login(self.username, self.password())
            client.send_message(message)


class _LaterError(Exception):
    """The server did not take a mail for the moment."""


class QuietHours(NamedTuple):
    """A span of local time in which nothing is sent; it may go over midnight."""

    start: time
    end: time

    @staticmethod
    def parse(text: str) -> QuietHours:
        """Read ``22:00-07:00``; ValueError if it is none."""
        start, end = (time.fromisoformat(part) for part in text.split("-"))
        if start == end:
            raise ValueError
        return QuietHours(start, end)

    def hold(self, now: time) -> bool:
        """Return whether a local time is quiet."""
        if self.start < self.end:
            return self.start <= now < self.end
        return now >= self.start or now < self.end


def mail_languages() -> list[str]:
    """Return the languages in which mails can be written."""
    return sorted(path.name.split(".")[1] for path in Path(__file__).parent.glob("mail.*.md"))


@lru_cache
def mail_template(language: str) -> Template:
    """Return the words of mails in a language."""
    return Template.read(Path(__file__).parent / f"mail.{language}.md")


@dataclass(frozen=True, slots=True)
class Letters:
    """Makes mails of episodes, in a language."""

    sender: str
    recipients: Sequence[str]
    sites: SitesMetadata
    language: str = "en"

    def of_episodes(self, episodes: Sequence[Episode], now: Micros) -> EmailMessage:
        """Return one mail about some episodes."""
        words = mail_template(self.language)
        tables = {kind: [Row(e.id, e.fields) for e in episodes if e.kind == kind] for kind in KINDS}
        body = as_text(words.fill(tables | {"report": []}))
        first = episodes[0]
        subject = words.text(first.kind, first.fields)
        if len(episodes) > 1:
            subject = words.text("several", {"number": str(len(episodes))})
        return self._message(subject, body, " ".join(f"{each.id} {each.begun}" for each in episodes), now)

    def of_report(self, report: Report, identity: str, now: Micros) -> EmailMessage:
        """Return the mail of a month's report, with the report attached."""
        words = mail_template(self.language)
        rows = {"report": [Row("report", {"title": report.title})]}
        lines = [line for line in report.markdown.splitlines() if line.startswith("* **")]
        body = as_text(words.fill(rows | {kind: [] for kind in KINDS})) + "\n" + as_text("\n".join(lines))
        message = self._message(words.text("report", {"title": report.title}), body, identity, now)
        message.add_attachment(report.page.encode(), "text", "html", filename=f"{report.name}.html")
        return message

    def _message(self, subject: str, body: str, identity: str, now: Micros) -> EmailMessage:
        message = EmailMessage()
        message["From"], message["To"] = self.sender, ", ".join(self.recipients)
        message["Subject"] = subject
        message["Date"] = format_datetime(EPOCH + timedelta(microseconds=now))
        domain = self.sender.rpartition("@")[2].rstrip(">")
        message["Message-ID"] = f"<{hashlib.sha256(identity.encode()).hexdigest()[:40]}@{domain}>"
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(body)
        return message


ReportOf = Callable[[str, Month], Awaitable[Report]]


class MailSink:
    """Mails episodes as they begin; ``check`` is called now and then, because silence has no record."""

    def __init__(
        self, send: Callable[[EmailMessage], None], letters: Letters, notes: Notes, *,
        now: Callable[[], Micros], trigger: Trigger | None = None, side: str = ABOVE,
        silent_after: Micros | None = None, quiet: QuietHours | None = None, report_of: ReportOf | None = None,
    ) -> None:  # fmt: skip
        """Store what to mail.

        Args:
            send: sends a mail and blocks (``Server.send``).
            letters: makes mails, and knows the sites.
            notes: the cursor's.
            now: the current time.
            trigger: of crossings; None: none is mailed.
            side: the side of the threshold whose episodes are mailed.
            silent_after: age of the newest window from which a feed counts as silent; None: silence is not mailed.
            quiet: quiet hours.
            report_of: makes a month's report of a site; None: reports are not mailed.
        """
        self._send, self._letters, self._notes, self._now = send, letters, notes, now
        self._words = mail_template(letters.language)
        self._lasting = notes.setdefault("lasting", {})
        self._held = notes.setdefault("held", {})
        self._reported = notes.setdefault("reported", {})
        self._trigger, self._side, self._silent_after = trigger, side, silent_after
        self._quiet, self._report_of = quiet, report_of
        self._lock = asyncio.Lock()

    async def begin(self, record: Release) -> None:
        """Store the initial values of a new cursor, from which crossings are seen."""
        self._note(record)

    async def deliver(self, record: Release) -> None:
        """Mail the episodes that a record begins; return when the server has taken them.

        Raises:
            UsageError: the server refuses the mail for good.
        """
        async with self._lock:
            begun = [*self._crossings(record), *self._alerts(record)]
            ended = self._ended(record)
            await self._tell(begun)
            for name in ended:
                self._lasting.pop(name, None)
                self._held.pop(name, None)
            self._note(record)

    def _note(self, record: Release) -> None:
        if self._trigger is not None:
            self._trigger.note(record, self._notes)
        if is_latest_count(record, self._notes):
            note_latest(record, self._notes)

    # --- episodes ----------------------------------------------------------------------------------------

    def _crossings(self, record: Release) -> list[Episode]:
        if self._trigger is None or "above" in record or "provisional" in record:
            return []  # a provisional estimate has no band that a mail could name
        found = []
        threshold, counted = self._trigger.threshold or 0.0, counted_in(record)
        for value, side in self._trigger.crossings(record, self._notes):
            if side == self._side and value.low is not None and value.high is not None:
                numbers = zip(FIGURES, (threshold, value.value, value.low, value.high), strict=True)
                figures = {name: self._words.shown(Figure(f"{number:g}")) for name, number in numbers}
                fields = self._at(record, value.node) | figures | {
                    "counted": self._words.shown(Word(counted)),
                    "band": BAND_OF_PEOPLE if counted == "people" else BAND_OF_COUNTS,
                }  # fmt: skip
                found.append(
                    Episode(
                        _name("crossing", record, value.node),
                        record["window_end"],
                        self._side,
                        record["site"],
                        fields,
                    )
                )
        return found

    def _alerts(self, record: Release) -> list[Episode]:
        if "above" not in record or not is_latest_count(record, self._notes):
            return []
        side = self._words.shown(Word(f"side_{record['alert']}"))
        return [
            Episode(_name("alert", record, node), record["window_end"], "alert", record["site"], self._at(record, node)
                    | {"threshold": str(record["thresholds"][node]), "side": side})
            for node, lasts in record["above"].items() if lasts
        ]  # fmt: skip

    def _ended(self, record: Release) -> list[str]:
        """Return the names of the episodes that a record ends."""
        if not is_latest_count(record, self._notes):
            return []
        ended = [f"silent {record['site']}"]
        if "above" in record:
            return ended + [_name("alert", record, node) for node, lasts in record["above"].items() if lasts is False]
        if self._trigger is not None:
            ended += [
                _name("crossing", record, value.node)
                for value, side in self._trigger.crossings(record, self._notes) if side != self._side
            ]  # fmt: skip
        return ended

    def _at(self, record: Release, node: str) -> dict[str, str]:
        site = self._letters.sites.get(record["site"])
        level, _, name = node.partition(":")
        return {
            "place": display_name(site, node) or self._words.shown((Word(level), name)).strip(),
            "site": record["site"] if site is None else site["name"], "release": record["release"],
            "time": self._written(record["site"], parse_time(record["window_end"])),
        }  # fmt: skip

    def _silences(self) -> list[Episode]:
        newest: dict[str, Micros] = {}
        for stream, end in self._notes.get("newest", {}).items():
            site = stream.partition("/")[0]
            newest[site] = max(newest.get(site, 0), parse_time(end))
        if self._silent_after is None:
            return []
        return [
            Episode(f"silent {site}", rfc3339(end), "silent", site, {
                "site": self._letters.sites[site]["name"] if site in self._letters.sites else site,
                "since": self._written(site, end),
                "span": self._span(self._now() - end),
            })
            for site, end in newest.items() if self._now() - end > self._silent_after
        ]  # fmt: skip

    def _span(self, span: Micros) -> str:
        """Return a span of time in the largest unit of which there are two."""
        return format_timedelta(
            timedelta(microseconds=span), granularity="minute", threshold=2, locale=self._words.locale
        )

    def _local(self, site: str, at: Micros) -> datetime:
        zone = ZoneInfo(self._letters.sites[site]["timezone"] if site in self._letters.sites else "UTC")
        return (EPOCH + timedelta(microseconds=at)).astimezone(zone)

    def _written(self, site: str, at: Micros) -> str:
        """Return a local time as mails of the language write it."""
        return format_local(self._local(site, at), self._words.head["time"], locale=self._words.locale)

    # --- telling -----------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Mail silent feeds, mails that quiet hours have held back, and the report of a month that is over."""
        async with self._lock:
            await self._tell(self._silences())
            held = [Episode(*episode) for episode in self._held.values()]
            free = [episode for episode in held if not self._is_quiet(episode.site)]
            if free:
                await self._post(self._letters.of_episodes(free, self._now()))
                for episode in free:
                    del self._held[episode.id]
            await self._report()

    async def watch(self) -> None:
        """Check now and then until cancelled."""
        while True:
            await self.check()
            await asyncio.sleep(LOOK_EVERY)

    async def _tell(self, episodes: Sequence[Episode]) -> None:
        """Mail the episodes that do not last already, each in a mail of its own, or hold them back."""
        for episode in episodes:
            if episode.id in self._lasting:
                continue
            if self._is_quiet(episode.site):
                self._held[episode.id] = list(episode)
            else:
                await self._post(self._letters.of_episodes([episode], self._now()))
            self._lasting[episode.id] = self._now()

    def _is_quiet(self, site: str) -> bool:
        return self._quiet is not None and self._quiet.hold(self._local(site, self._now()).time())

    async def _report(self) -> None:
        if self._report_of is None:
            return
        for site in self._letters.sites:
            today: date = (self._local(site, self._now()) - REPORT_AFTER).date()
            month = Month(today.year, today.month).before
            if self._reported.setdefault(site, str(month)) < str(month) and not self._is_quiet(site):
                report = await self._report_of(site, month)
                await self._post(self._letters.of_report(report, f"report {site} {month}", self._now()))
                self._reported[site] = str(month)

    async def _post(self, message: EmailMessage) -> None:
        async for attempt in stamina.retry_context(
            on=(_LaterError,), attempts=None, timeout=None, wait_initial=FIRST_WAIT, wait_max=LONGEST_WAIT,
            wait_jitter=FIRST_WAIT,
        ):  # fmt: skip
            with attempt:
                try:
                    await asyncio.to_thread(self._send, message)
                except smtplib.SMTPException as error:
                    if _for_good(error):
                        msg = f"--smtp: must accept mail for these recipients, got {type(error).__name__}"
                        raise UsageError(msg) from None
                    raise _LaterError from None
                except ssl.SSLCertVerificationError:
                    raise UsageError("--smtp: must have a certificate that can be verified (--ca-file)") from None
                except OSError:
                    raise _LaterError from None


def _name(kind: str, record: Release, node: str) -> str:
    return f"{kind} {record['site']}/{record['release']}/{node}"


def _for_good(error: smtplib.SMTPException) -> bool:
    """Whether a server refuses for good: by a reply of 5xx, or because it lacks what is asked for."""
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return True
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return all(code >= 500 for code, _ in error.recipients.values())
    return isinstance(error, smtplib.SMTPResponseException) and error.smtp_code >= 500
