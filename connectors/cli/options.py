"""Options that several verbs share, their types, and what they name."""

from __future__ import annotations

import asyncio
import math
import os
import re
from collections.abc import Callable, Coroutine, Iterable
from fractions import Fraction
from functools import update_wrapper, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click

from connectors.calendars.reader import whole_days
from connectors.keys import key_files
from connectors.runtime.clock import wall_clock
from connectors.runtime.signals import first_to_end, stop_signals
from connectors.secrets.private_files import read_secret
from connectors.sources.recordings.dialect import OWN, Dialect, dialect_of
from connectors.storage.embedded.reader import has_outbox, release_names
from stream.errors import DataError, UsageError
from stream.policy.fields import parse_duration
from stream.policy.forecasts import FIRST_YEAR, LAST_YEAR
from stream.policy.validation_errors import shown
from stream.records import MINUTE, Micros
from stream.schemas import parse_time
from stream.settings import Settings

if TYPE_CHECKING:
    from connectors.monitoring.catalogue import Verb
    from connectors.monitoring.monitor import Monitor
    from connectors.subscribe.subscriber import Origin, StorageOptions
    from stream.release.validation import Policy

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end."""
    return asyncio.run(work)


async def until_stopped(*works: Coroutine[Any, Any, object]) -> None:
    """Run coroutines until one of them ends, or a stop signal arrives."""
    async with stop_signals() as stop:
        await first_to_end(*works, stop.wait())


class VerbGroup(click.Group):
    """A group that lists its verbs in the order of their definition, with the whole first sentence of each."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the verbs in the order of their definition."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs without shortening their texts."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.get_short_help_str(limit=1000)) for name, verb in self.commands.items()])


# Types of values.

FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)


class _NewFile(click.Path):
    """A new output file. Checks before any work is done that it does not exist and can be created."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse an existing file, which would be overwritten; a pipe or a device is accepted."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if path.is_file():
            self.fail(f"{str(path)!r} must not exist yet; no file is overwritten", param, ctx)
        if not path.parent.is_dir():
            self.fail(f"{str(path)!r} must be in a folder that exists", param, ctx)
        return path


NEW_FILE = _NewFile(path_type=Path, dir_okay=False)
_PORT = re.compile(r"[0-9]{1,5}")
_SERVER = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")


class Time(click.ParamType):
    """An RFC 3339 time with a zone, as microseconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Micros:
        """Parse a time; the error shows the form."""
        try:
            return value if isinstance(value, int) else parse_time(value)
        except ValueError as error:
            self.fail(f"{value!r} {error}", param, ctx)


class Address(click.ParamType):
    """HOST:PORT."""

    name = "host:port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Split at the last colon."""
        if isinstance(value, tuple):
            return value
        host, colon, port = str(value).rpartition(":")
        if not colon or not _PORT.fullmatch(port) or not int(port) < 65_536:
            self.fail(f"{value!r} must be HOST:PORT, such as 127.0.0.1:1162", param, ctx)
        return host.strip("[]") or "127.0.0.1", int(port)


class Speed(click.ParamType):
    """Times real time, or ``max``."""

    name = "speed"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | None:
        """Return None for ``max``."""
        if value is None or value == "max":
            return None
        try:
            speed = float(value)
        except ValueError:
            speed = 0.0
        if not 0 < speed < math.inf:
            self.fail(f"{value!r} must be a positive number or 'max'", param, ctx)
        return speed


class Duration(click.ParamType):
    """A duration such as ``60s`` or ``90d``, as microseconds."""

    name = "duration"

    def __init__(self, longest: Micros | None = None) -> None:
        self._longest = longest

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Micros:
        """Parse a duration; the error shows the form."""
        try:
            duration = value if isinstance(value, int) else parse_duration(str(value))
        except ValueError as error:
            self.fail(f"{value!r} {error}", param, ctx)
        if self._longest is not None and not 0 < duration <= self._longest:
            self.fail(f"{value!r} must be at most {self._longest // MINUTE}min", param, ctx)
        return duration


class Decimal(click.ParamType):
    """A decimal number such as 0.05 or 1e-5, kept exact."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Fraction:
        """Return the number as a fraction."""
        from connectors.tables.decisions import DECIMAL  # noqa: PLC0415 - loads what decides

        if isinstance(value, Fraction):
            return value
        if not DECIMAL.fullmatch(str(value)):
            self.fail(f"{value!r} must be a number, such as 0.05 or 1e-5", param, ctx)
        return Fraction(str(value))


NUMBER = Decimal()

# Options of most verbs.


def policy_option(function: F) -> F:
    """Add ``--policy``."""
    return click.option("--policy", "policy_file", type=FILE, required=True, help="The policy file (TOML).")(function)


def key_option(function: F) -> F:
    """Add ``--key-file``."""
    return click.option("--key-file", type=FILE, required=True, help="A key file made by 'tacet key create'.")(function)


def json_option(function: F) -> F:
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(function)


def windows_options(function: F) -> F:
    """Add ``--from`` and ``--to``."""
    to = click.option(
        "--to", "last_window", type=Time(), callback=_in_order, help="Release no window after this time."
    )  # fmt: skip
    since = click.option(
        "--from", "first_window", type=Time(), callback=_in_order, help="Release no window before this time."
    )  # fmt: skip
    return since(to(function))


def _in_order(ctx: click.Context, param: click.Parameter, value: Micros | None) -> Micros | None:
    """Return the value; a usage error if ``--from`` is later than ``--to``, in whichever order they were given."""
    both = {**ctx.params, str(param.name): value}
    first, last = both.get("first_window"), both.get("last_window")
    if first is not None and last is not None and first > last:
        raise click.UsageError("--from: must not be later than --to")
    return value


def read_policy(path: Path) -> Policy:
    """Load and validate a policy, guarantees included."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        msg = f"{path}: policy cannot be read ({error.strerror})"
        raise UsageError(msg) from None
    except UnicodeDecodeError:
        msg = f"{path}: policy must be text in UTF-8"
        raise UsageError(msg) from None
    from stream.release.validation import load_policy  # noqa: PLC0415 - many verbs need no policy

    return load_policy(text, str(path), lambda name: _attached(path.parent / name))


def _attached(path: Path) -> str:
    """Return the text of a file that a policy names; of an iCalendar file the closed days. ValueError if it cannot be
    read."""
    try:
        if path.suffix.lower() == ".ics":
            return "\n".join(whole_days(path.read_bytes(), (FIRST_YEAR, LAST_YEAR)))
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        msg = f"file cannot be read ({error.strerror})"
        raise ValueError(msg) from None
    except UnicodeDecodeError:
        msg = "file must be text in UTF-8"
        raise ValueError(msg) from None
    except (DataError, UsageError) as error:
        raise ValueError(str(error)) from None


def on_grid(policy: Policy, time: Micros | None, *, up: bool) -> Micros | None:
    """Return the tick at or after (``up``) or at or before a time."""
    if time is None:
        return None
    tick_length = max(site.tick for site in policy.site.values())
    return -(-time // tick_length) * tick_length if up else time // tick_length * tick_length


def public_range(
    key_file: Path, policy: Policy, first: Micros | None, last: Micros | None
) -> tuple[Micros | None, Micros | None]:
    """Return the range of a recording, on the grid of ticks.

    Raises:
        UsageError: an end is missing under a production key: the rows, and so people, would decide which windows
            exist.
    """
    for name, given in (("--from", first), ("--to", last)):
        if given is None and not key_files.is_laboratory(key_file):
            msg = (
                f"{name}: must be given for a recording under a production key; otherwise its rows, and so people, "
                "would decide which windows are released"
            )
            raise UsageError(msg)
    return on_grid(policy, first, up=True), on_grid(policy, last, up=False)


def bootstrap(settings: Settings, given: str | None) -> str:
    """Return the bootstrap servers from the option or the environment; an empty variable counts as unset.

    From then on the process waits for brokers according to the settings.
    """
    from connectors.storage.kafka.aiokafka_client import BROKER_HEALTH  # noqa: PLC0415 - loads a client of Kafka

    BROKER_HEALTH.set_session_timeout(settings.session_timeout)
    servers = given or settings.kafka
    if not servers:
        msg = "--kafka: must be given, or TACET_KAFKA set"
        raise UsageError(msg)
    for server in servers.split(","):
        match = _SERVER.fullmatch(server.strip())
        if match is None or not 0 < int(match[1]) < 65_536:
            name = "--kafka" if given else "TACET_KAFKA"
            # Credentials are not supported here, so the address is not printed either.
            msg = f"{name}: must be HOST:PORT, or several separated by commas{shown(server.rpartition('@')[2])}"
            raise UsageError(msg)
    return servers


def refuse_unknown(policy: Policy, reopened: Iterable[str]) -> None:
    """Refuse to reopen a site that the policy does not have."""
    for site in reopened:
        if site not in policy.site:
            msg = f"--reopen: must name a site of the policy ({', '.join(policy.site)}), got {site!r}"
            raise UsageError(msg)


def observed_site(policy: Policy, name: str | None) -> str:
    """Return the site of a recording, by the option ``--site``: the named one, or the policy's only one.

    Raises:
        UsageError: the policy has no such site, or several and none is named; or the site has people counters, which
            observe no devices.
    """
    names = ", ".join(policy.site)
    if name is None and len(policy.site) != 1:
        raise UsageError(f"--site: must name one of the policy's sites ({names})")
    site = next(iter(policy.site)) if name is None else name
    if site not in policy.site:
        raise UsageError(f"--site: must be one of the policy's sites ({names}), got {site!r}")
    if policy.site[site].feed == "counts":
        raise UsageError(f"--site: must be a site whose devices are observed (feed = 'devices'), got {site!r}")
    return site


# Storage to read from: an embedded store, Kafka, or a service.

ONE_STORAGE = "give either --store or --kafka"


def storage_options(function: F) -> F:
    """Add ``--store`` and ``--kafka``."""
    function = click.option("--kafka", help="Bootstrap servers, HOST:PORT.  [env: TACET_KAFKA]")(function)
    return click.option("--store", type=FOLDER, help="Folder of an embedded store.")(function)


def kafka_unless(store: Path | None, kafka: str | None, settings: Settings) -> str | None:
    """Return Kafka's address, None for a store."""
    if store is not None and kafka is not None:
        raise click.UsageError(ONE_STORAGE)
    if store is None and not (kafka or settings.kafka):
        raise UsageError("--store or --kafka: one of them must be given, or TACET_KAFKA set")
    return None if store is not None else bootstrap(settings, kafka)


def origin_options(function: F) -> F:
    """Add the options for reading an audience's releases: ``--store``, ``--kafka``, or ``--url`` with
    ``--token-file``."""
    function = click.option(
        "--token-file", type=FILE, help="With --url: a file with the token, mode 0600."
    )(function)  # fmt: skip
    function = click.option("--url", help="Address of a 'tacet serve'.")(function)
    function = storage_options(function)
    function = click.option("--release", help="Only this release.")(function)
    return click.option("--audience", required=True, help="Whose releases to read.")(function)


def origin_of(
    settings: Settings, *, audience: str, release: str | None, store: Path | None, kafka: str | None,
    url: str | None, token_file: Path | None,
) -> Origin:  # fmt: skip
    """Return the arguments of ``subscribe`` from the options of ``origin_options``; print a note on an empty outbox."""
    if url is not None and (store is not None or kafka is not None):
        msg = f"{ONE_STORAGE}, or --url"
        raise click.UsageError(msg)
    if token_file is not None and url is None:
        msg = "--token-file: must be used with --url"
        raise UsageError(msg)
    if store is not None:
        _note_empty_outbox(store, audience, release)
    servers = None if url is not None else kafka_unless(store, kafka, settings)
    token = None if token_file is None else read_secret(token_file)
    return {
        "audience": audience, "release": release, "store": store, "kafka": servers, "url": url, "token": token,
    }  # fmt: skip


def storage_of(origin: Origin) -> StorageOptions:
    """Return the storage of an origin, without audience and release."""
    return {"store": origin.get("store"), "kafka": origin.get("kafka"), "url": origin.get("url"),
            "token": origin.get("token")}  # fmt: skip


def _note_empty_outbox(store: Path, audience: str, release: str | None) -> None:
    """Print a note if an outbox has no records of a release: they may come later, or the name may be misspelt."""
    known = release_names(store, audience)
    if has_outbox(store, audience) and (not known if release is None else release not in known):
        what = "release" if release is None else f"release {release!r}"
        click.echo(f"tacet: no {what} has been published for audience {audience!r} yet", err=True)


# The format of a recording.


def dialect_options(function: F) -> F:
    """Add the four options of a recording's format, which become one argument ``dialect``."""

    def with_dialect(*args: Any, columns: Any, timezone: Any, times: Any, devices: Any, **more: Any) -> Any:
        return function(*args, dialect=dialect_of(columns, timezone, times, devices), **more)

    made = update_wrapper(with_dialect, function)
    for option in (
        click.option(
            "--devices",
            type=click.Choice(["address", "opaque"]),
            default="address",
            show_default=True,
            help="How the recording names devices: by address, or by opaque ids.",
        ),
        click.option(
            "--times",
            type=click.Choice(["rfc3339", "seconds", "milliseconds"]),
            default="rfc3339",
            show_default=True,
            help="How the recording writes times; seconds and milliseconds count from 1970.",
        ),
        click.option("--timezone", help="Time zone of the recording's times without an offset.  [default: the site's]"),
        click.option(
            "--columns", multiple=True, help="Names of the recording's columns: device=mac,access_point=ap,time=when."
        ),
    ):
        made = option(made)
    return cast(F, made)


def refuse_dialect(dialect: Dialect) -> None:
    """Refuse format options without a recording."""
    if dialect != OWN:
        raise click.UsageError("--columns, --timezone, --times, --devices: must be used with --observations")


# Metrics and health.


class MetricsPort(NamedTuple):
    """The address of metrics and health, and the names under which they are served."""

    address: tuple[str, int]
    names: tuple[str, ...] = ()


def metrics_option(function: F) -> F:
    """Add ``--metrics`` and ``--metrics-name``, as one value."""

    @click.option(
        "--metrics",
        type=Address(),
        help="Serve metrics and health at this address, to anyone who can reach it (:PORT is loopback).",
    )
    @click.option(
        "--metrics-name", "metrics_names", multiple=True, metavar="NAME",
        help="A host name that requests to --metrics may use, besides addresses, localhost and this machine's name. "
        "May be repeated.",
    )  # fmt: skip
    @wraps(function)
    def with_metrics(*args: Any, metrics: tuple[str, int] | None, metrics_names: tuple[str, ...], **more: Any) -> Any:
        if metrics_names and metrics is None:
            raise click.UsageError("--metrics-name: must be given with --metrics")
        port = None if metrics is None else MetricsPort(metrics, metrics_names)
        return function(*args, metrics=port, **more)

    return cast("F", with_metrics)


def monitor_of(verb: Verb, policy: Policy | None, port: MetricsPort | None) -> Monitor:
    """Return the monitor of a verb, a context manager."""
    from connectors.monitoring.monitor import Monitor  # noqa: PLC0415 - loads a server

    address, names = (None, ()) if port is None else port
    return Monitor(verb, policy, address, wall_clock, names)
