"""Twin worlds on the embedded store: their files, metrics, and the answers of ``tacet serve``.

The people and the course are those of ``twin_worlds``; restarts, crashes and new policies are done to a store that is
closed and opened, or abandoned and opened. ``BY_DESIGN`` says what may depend on people here.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson

from connectors.http.limits import AllowedHosts
from connectors.keys import key_files
from connectors.monitoring.catalogue import Nature
from connectors.monitoring.engine import EngineMetrics
from connectors.monitoring.metric_values import MetricValues
from connectors.serve import indexer
from connectors.serve.access import ACCOUNT, OPERATOR, TokenFile, audience_role
from connectors.serve.app import application
from connectors.serve.ledger_views import OperatorView
from connectors.serve.service import Service
from connectors.serve.startup import ServeConfig, combined_account, open_service
from connectors.storage.embedded.reader import ACCOUNT_OUTBOX, OPERATOR_OUTBOX, outboxes, read_outbox
from connectors.storage.embedded.runner import opened
from connectors.storage.embedded.store import SqliteStore
from stream.errors import TacetError
from stream.policy.document import audiences_of
from stream.records import DAY, MINUTE, SECOND, Micros
from stream.release.validation import Policy
from stream.runners.embedded import Embedded
from tests.support.twin_worlds import BEGIN, SPAN, Course, Happening, People, connector_log

BY_DESIGN: Mapping[str, str] = {
    "store.sqlite": "observations, state, true stays and counts, quarantine: closed to all but the engine",
    "_operator.sqlite accepted, late, dropped, traps, rejected_messages": "coarse sums over at least eight access "
    "points, for operators",
    "metrics of nature TRAFFIC": "coarse sums over at least eight access points and five minutes, for operators",
    "metrics of nature SIZE": "sizes of the store's files, in steps of 64 MiB",
}
"""What may depend on people, and why."""
_OF_PEOPLE = ("accepted", "late", "dropped", "traps", "rejected_messages")
_NATURES = (Nature.PUBLIC, Nature.TIMING)
PORT = 8050
LOOKS = 5 * MINUTE
"""Metrics are looked at so often."""
NEVER_EQUAL = ("date",)
"""Headers that tell the time of an answer."""


class _Crash(BaseException):
    """Ends a store as a process that is killed does."""


@dataclass
class Shown:
    """All that others see of one world."""

    course: Course
    metrics: list[tuple[Micros, Any]] = field(default_factory=list)
    errors: list[tuple[Micros, str, str]] = field(default_factory=list)
    files: dict[str, Any] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)


class StoreWorld:
    """One store, as it is led through a course."""

    def __init__(self, course: Course, people: People, folder: Path, key: Path) -> None:
        folder.mkdir()
        self.course, self.people, self.folder = course, people, folder
        self.key = shutil.copy(key, folder / "key")
        self.store = folder / "store"
        self.now, self.made = BEGIN, Shown(course)
        self._opened: AbstractContextManager[tuple[Embedded, SqliteStore]] | None = None
        self._runner: Embedded | None = None
        self._figures: EngineMetrics | None = None
        self._told: MetricValues | None = None
        self.policy = course.policies[0]

    def run(self) -> Shown:
        """Lead the store through its course; it ends where its engine stops."""
        todo = [each for each in self.course.happenings if each.what in ("policy", "restart", "crash")]
        looks = iter(range(BEGIN + 2 * SECOND, BEGIN + SPAN, LOOKS))
        look = next(looks)
        try:
            self._open(0)
            for sent in connector_log(self.course, self.people):
                while min(look, todo[0].at if todo else look) < sent.at:
                    if todo and todo[0].at < look:
                        self.now = todo[0].at
                        self._happens(todo.pop(0))
                    else:
                        self.now = look
                        self._look()
                        look = next(looks)
                self.now = sent.at
                self._runner_now.process(sent.message)
            self._close()
        except TacetError as error:
            self.made.errors.append((self.now, type(error).__name__, str(error).replace(str(self.folder), "")))
        self._read_files()
        self.made.answers = asyncio.run(_asked(self.folder, self.store, self.policy))
        return self.made

    @property
    def _runner_now(self) -> Embedded:
        assert self._runner is not None
        return self._runner

    def _look(self) -> None:
        """Note what metrics tell now; the clock says when."""
        assert self._figures is not None
        assert self._told is not None
        self._figures.update()
        reported = {
            each.metric.name: (dict(each.values), {name: (s.counts, s.total) for name, s in each.histograms.items()})
            for each in self._told.families()
            if each.metric.nature in _NATURES
        }
        self.made.metrics.append((self.now, reported))

    def _happens(self, event: Happening) -> None:
        self._close(crashes=event.what == "crash")
        self._open(event.policy)

    def _open(self, policy: int) -> None:
        self.policy = self.course.policies[policy]
        clock: Callable[[], Micros] | None = (lambda: self.now) if self.course.stamped else None
        self._opened = opened(self.policy, Path(self.key), self.store, accept_policy=True, clock=clock)
        self._runner, _ = self._opened.__enter__()
        runner = self._runner
        self._told = figures = MetricValues("run", lambda: self.now)
        self._figures = engine = EngineMetrics(figures, self.policy, lambda: [runner.partition], lambda: self.now)
        runner.observers.append(lambda _, committed: engine.committed(committed))

    def _close(self, *, crashes: bool = False) -> None:
        assert self._opened is not None
        stored, self._opened = self._opened, None
        with suppress(_Crash):
            stored.__exit__(*((_Crash, _Crash(), None) if crashes else (None, None, None)))

    def _read_files(self) -> None:
        """Note every row that others may read, with its number."""
        private = self.store / "private"
        for path in sorted(private.glob("*.sqlite")):
            with closing(sqlite3.connect(path)) as box:
                rows = box.execute("SELECT seq, id, release, site, time, value FROM records ORDER BY seq").fetchall()
            self.made.files[path.stem] = [(*row[:-1], _masked(path.stem, row[-1])) for row in rows]
        self.made.files["_sites.json"] = (private / "_sites.json").read_bytes()
        self.made.files["names"] = sorted(path.name for path in private.iterdir())


def _masked(box: str, value: bytes) -> bytes:
    if box != OPERATOR_OUTBOX:
        return value
    return orjson.dumps(orjson.loads(value) | dict.fromkeys(_OF_PEOPLE))


# ---- what a service answers ---------------------------------------------------------------------------


async def _asked(folder: Path, store: Path, policy: Policy) -> dict[str, Any]:
    """Return every answer that readers of a store get, each with its status and headers."""
    known = {name for name, _ in outboxes(store)}
    audiences = tuple(each.name for each in policy.audience if each.name in known)
    tokens = TokenFile(folder / "tokens")
    end = BEGIN + SPAN
    secrets = {name: tokens.add(name, [audience_role(name)], end + DAY) for name in audiences}
    secrets |= {role: tokens.add(role, [role], end + DAY) for role in (ACCOUNT, OPERATOR)}
    wanted = ServeConfig(policy, audiences, store, account=True, operator=True, tokens=folder / "tokens")
    found = dict[str, Any]()
    with open_service(wanted, lambda: end, AllowedHosts.of((), PORT, "http")) as service:
        await _filled(service, wanted, store)
        transport = httpx.ASGITransport(application(service))
        async with httpx.AsyncClient(transport=transport, base_url=f"http://127.0.0.1:{PORT}") as client:
            for name, secret in secrets.items():
                for question in _questions(policy, name, audiences):
                    answer = await client.get(question, headers={"authorization": f"Bearer {secret}"})
                    found[f"{name} {question}"] = _answered(answer)
    return found


def _answered(answer: httpx.Response) -> tuple[int, list[tuple[str, str]], bytes]:
    body = answer.content
    headers = [(name, text) for name, text in answer.headers.multi_items() if name not in NEVER_EQUAL]
    if "operator" in str(answer.url) and answer.status_code == 200:
        sites = [row | dict.fromkeys(_OF_PEOPLE) for row in orjson.loads(body)["sites"]]
        return answer.status_code, [], orjson.dumps(sites)
    return answer.status_code, headers, body


async def _filled(service: Service, wanted: ServeConfig, store: Path) -> None:
    """Take in all that a store's outboxes hold, as the service's feeds do."""
    intake, book = indexer.Indexer(service), OperatorView()
    for audience in wanted.audiences:
        rows = read_outbox(store, audience, 0)
        if rows:
            await intake.add([value for _, value in rows], {f"outbox:{audience}": rows[-1][0]})
    service.account.add(value for _, value in read_outbox(store, ACCOUNT_OUTBOX, 0))
    book.add(value for _, value in read_outbox(store, OPERATOR_OUTBOX, 0))
    service.operator = book
    service.coalition = lambda names: combined_account(wanted.policy, store, names)


def _questions(policy: Policy, name: str, audiences: tuple[str, ...]) -> list[str]:
    """Return what a reader may ask."""
    api = "/api/v1"
    if name == ACCOUNT:
        return [f"{api}/account", f"{api}/account/coalition?audiences={','.join(audiences)}",
                *(f"{api}/account/attributes?site={site}&day=2026-03-03" for site in policy.site)]  # fmt: skip
    if name == OPERATOR:
        return [f"{api}/operator"]
    found = [f"{api}/{what}" for what in ("session", "sites", "releases", "policy")]
    for site in policy.site:
        at = f"audience={name}&site={site}"
        found += [f"{api}/{what}?{at}" for what in ("latest", "attributes", "spends")]
        for release in (each for each in policy.release if name in audiences_of(each)):
            for form in ("json", "csv"):
                found += [f"{api}/releases/{release.name}/records?{at}&format={form}&granularity={each}"
                          for each in ("5min", "1h")]  # fmt: skip
            found.append(f"{api}/usual?{at}&release={release.name}")
    return found


# ---- two worlds ---------------------------------------------------------------------------------------


def new_key(folder: Path) -> Path:
    """Make the key that both worlds have."""
    key_files.create(folder / "key", laboratory=True)
    return folder / "key"


def first_difference(one: Shown, other: Shown) -> str | None:
    """Return where two worlds differ first, in what may not depend on people; None where they do not."""
    for name in ("errors", "metrics", "files", "answers"):
        mine, others = getattr(one, name), getattr(other, name)
        if mine == others:
            continue
        if name == "metrics":
            reported = [
                (at, name)
                for (at, first), (_, second) in zip(mine, others, strict=False)
                for name in first
                if first[name] != second[name]
            ]
            return f"{one.course}\nmetrics {len(mine)} {len(others)} {reported[:9]}"
        keys = sorted({*mine, *others}) if isinstance(mine, dict) else range(max(len(mine), len(others)))
        for key in keys:
            stored = [each.get(key) if isinstance(each, dict) else [*each[key : key + 1]] for each in (mine, others)]
            if stored[0] != stored[1]:
                return f"{one.course}\n{name} {key}:\n  {str(stored[0])[:2000]}\n  {str(stored[1])[:2000]}"
    return None
