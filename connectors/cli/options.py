"""What several verbs share: reading files, option types, and how results are shown."""

from __future__ import annotations

import asyncio
import math
import os
import re
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
import orjson
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from connectors import keyfile
from connectors.commands.progress import Came, reporting
from connectors.files.shortfall import NO_DROPS
from connectors.kafka.hanging import BROKERS
from stream.errors import UsageError
from stream.policy.document import Policy, load_policy
from stream.policy.refusals import shown
from stream.records import Micros
from stream.release.heat_plan import check_heat_maps
from stream.release.noise_laws import check_noise
from stream.release.promises import check_attribute_logic, check_knowledge, check_promises
from stream.release.revision_plan import check_revisions
from stream.release.run_prices import check_runs
from stream.schemas import parse_time
from stream.settings import Settings

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)


class _NewFile(click.Path):
    """A file to be made, of which both is told before any work is done: that it is new, and that it can be."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse a file that is there: what was in it would be gone. A pipe or a device holds nothing."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if path.is_file():
            self.fail(f"{str(path)!r} must not exist yet; no file is written over", param, ctx)
        if not path.parent.is_dir():
            self.fail(f"{str(path)!r} must be in a folder that exists", param, ctx)
        return path


NEW_FILE = _NewFile(path_type=Path, dir_okay=False)
err = Console(stderr=True)
_PORT = re.compile(r"[0-9]{1,5}")
_SERVER = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")


class Time(click.ParamType):
    """An RFC 3339 time with a zone, as microseconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Micros:
        """Parse, or say what a time looks like."""
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
    """Return the value; a usage error when ``--from`` is later than ``--to``, whichever came second."""
    both = {**ctx.params, str(param.name): value}
    first, last = both.get("first_window"), both.get("last_window")
    if first is not None and last is not None and first > last:
        raise click.UsageError("--from: must not be later than --to")
    return value


def read_policy(path: Path) -> Policy:
    """Load and check a policy, its promises included."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        msg = f"{path}: policy cannot be read ({error.strerror})"
        raise UsageError(msg) from None
    except UnicodeDecodeError:
        msg = f"{path}: policy must be text in UTF-8"
        raise UsageError(msg) from None
    return read_policy_text(text, str(path), lambda name: _attached(path.parent / name))


def _attached(path: Path) -> str:
    """Return the text of a file that a policy names; ValueError where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        msg = f"file cannot be read ({error.strerror})"
        raise ValueError(msg) from None
    except UnicodeDecodeError:
        msg = "file must be text in UTF-8"
        raise ValueError(msg) from None


def read_policy_text(text: str, file: str, attached: Callable[[str], str] | None = None) -> Policy:
    """Check a policy that has been read, its promises included; ``file`` is what messages call it.

    ``attached`` gives the text of a file that the policy names.
    """
    policy = load_policy(text, file, attached)
    for check in (
        check_noise,
        check_runs,
        check_promises,
        check_attribute_logic,
        check_knowledge,
        check_revisions,
        check_heat_maps,
    ):
        check(policy, file)
    return policy


def on_grid(policy: Policy, time: Micros | None, *, up: bool) -> Micros | None:
    """Return the tick at or after (``up``) or at or before a time."""
    if time is None:
        return None
    tick_length = max(site.tick for site in policy.site.values())
    return -(-time // tick_length) * tick_length if up else time // tick_length * tick_length


def public_range(
    key_file: Path, policy: Policy, first: Micros | None, last: Micros | None
) -> tuple[Micros | None, Micros | None]:
    """Return the range of a recording, on the grid.

    Raises:
        UsageError: under a production key an end is missing, so that rows would decide which windows there are.
    """
    for name, given in (("--from", first), ("--to", last)):
        if given is None and not keyfile.is_laboratory(key_file):
            msg = (
                f"{name}: must be given for a recording under a production key; otherwise its rows, and so people, "
                "would decide which windows are released"
            )
            raise UsageError(msg)
    return on_grid(policy, first, up=True), on_grid(policy, last, up=False)


def print_json(value: Any) -> None:
    """Write one JSON object and a newline to standard output."""
    sys.stdout.buffer.write(orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE))
    sys.stdout.buffer.flush()


def report_drops(counted: Mapping[str, int], unknown: int, outside: int) -> None:
    """Print how many rows sensing dropped, by reason, and how many of no zone or no window were left out."""
    for reason, rows in sorted(counted.items()):
        if reason not in NO_DROPS:
            click.echo(f"  {rows:>8,}  rows dropped: {reason.replace('_', ' ')}")
    if unknown:
        click.echo(f"  {unknown:>8,}  rows dropped: access point in no zone of the policy")
    if outside:
        click.echo(f"  {outside:>8,}  rows left out: outside --from and --to")


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end."""
    return asyncio.run(work)


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """Show how far something has come; gives the function that moves it.

    On a terminal a bar, elsewhere a line every ten seconds.
    """
    if not err.is_terminal:
        came = Came(what, total)
        with reporting(came):
            yield came.to
        return
    columns = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=err, transient=True) as bars:
        task = bars.add_task(what, total=total)
        yield lambda done, *_: bars.update(task, completed=done)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show that something goes on which cannot say how far it has come."""
    with err.status(f"{what} …") if err.is_terminal else reporting(Came(what)):
        yield


def bootstrap(settings: Settings, given: str | None) -> str:
    """Return the bootstrap servers from the option or the environment; an empty variable is none.

    From now on the process waits for brokers as the settings say.
    """
    BROKERS.go_by(settings.session_timeout)
    servers = given or settings.kafka
    if not servers:
        msg = "--kafka: must be given, or TACET_KAFKA set"
        raise UsageError(msg)
    for server in servers.split(","):
        match = _SERVER.fullmatch(server.strip())
        if match is None or not 0 < int(match[1]) < 65_536:
            name = "--kafka" if given else "TACET_KAFKA"
            # Credentials have no place here, so they are not shown either.
            msg = f"{name}: must be HOST:PORT, or several with commas between{shown(server.rpartition('@')[2])}"
            raise UsageError(msg)
    return servers


def refuse_unknown(policy: Policy, reopened: Iterable[str]) -> None:
    """Refuse to reopen a site that the policy does not have."""
    for site in reopened:
        if site not in policy.site:
            msg = f"--reopen: must name a site of the policy ({', '.join(policy.site)}), got {site!r}"
            raise UsageError(msg)
