"""The command ``tacet``: small verbs, and the exit codes that programs may rely on."""

from __future__ import annotations

import errno
import signal
import sys
import traceback
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, cast

import click
from pydantic import ValidationError

from connectors import logs
from connectors.kafka.broker_errors import broker_error
from stream.errors import DataError, TacetError, UsageError
from stream.policy.refusals import rule_of, shown
from stream.settings import Settings

USAGE, DATA, OTHER = 2, 3, 1
ROOT = Path(__file__).parents[1]

VERBS = {
    "demo": "connectors.commands.demo",
    "key": "connectors.commands.admin",
    "policy": "connectors.commands.admin",
    "run": "connectors.commands.running",
    "subscribe": "connectors.commands.reading",
    "serve": "connectors.commands.serving",
    "token": "connectors.commands.serving",
    "account": "connectors.commands.account",
    "audit": "connectors.commands.audit",
    "status": "connectors.commands.reading",
    "doctor": "connectors.commands.doctoring",
    "simulate": "connectors.commands.data",
    "replay": "connectors.commands.data",
    "backfill": "connectors.commands.backfill",
    "release": "connectors.commands.data",
    "decide": "connectors.commands.deciding",
    "tune": "connectors.commands.tuning",
    "evaluate": "connectors.commands.evaluating",
    "attack": "connectors.commands.attacking",
    "store": "connectors.commands.storing",
    "recover": "connectors.commands.recover",
    "topics": "connectors.commands.topics",
    "ingest": "connectors.commands.ingest",
    "worker": "connectors.commands.worker",
    "hooks": "connectors.commands.hooks",
    "sink": "connectors.commands.sinking",
    "export": "connectors.commands.sinking",
    "leakage": "connectors.commands.learning",
    "optimise": "connectors.commands.leakage",
}
"""Verb -> the module that has it, as a function with _ for each -; in the order in which somebody new needs them."""

SERVICES = {"run", "ingest", "worker", "hooks", "serve", "sink", "export"}
"""Verbs that end with exit code 0 when they are told to stop, from their first moment on."""


class _Verbs(click.Group):
    """Loads a verb's module when it is asked for: most need neither Kafka nor SciPy."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        return cast(click.Command, getattr(import_module(VERBS[cmd_name]), cmd_name.replace("-", "_")))


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tacet-occupancy", prog_name="tacet")
@click.pass_context
def tacet(context: click.Context) -> None:
    """Private occupancy streams from Wi-Fi.

    Controllers send SNMP traps; Tacet counts devices per zone every five minutes, publishes the counts and
    facts about a room's day with differential privacy, and keeps the account of what has been given away.

    \b
    Start here:   tacet demo
    Your policy:  tacet policy check policy.toml; tacet policy show policy.toml
    Live:         tacet run --policy policy.toml --key-file key --store store --udp 0.0.0.0:1162

    Exit codes: 0 done; 2 wrong usage, policy or key; 3 bad data (the rest was processed); 1 anything else.
    """
    settings = Settings()
    logs.configure(settings.log_level, json=settings.log_json)
    context.obj = settings


def main() -> None:
    """Run the command line; errors become one line on standard error and an exit code."""
    if SERVICES.intersection(sys.argv[1:2]):  # until the verb's own handler takes over; nothing has begun yet
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    logs.catch_strays()
    try:
        _run()
    except click.exceptions.Exit as ended:
        sys.exit(ended.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except click.ClickException as error:
        _misused(error)
    except ValidationError as error:
        _fail("\n".join(map(_setting, error.errors())), USAGE)
    except UsageError as error:
        _fail(str(error), USAGE)
    except DataError as error:
        _fail(str(error), DATA)
    except (TacetError, OSError) as error:
        _fail(_disk_full(error) or str(error), OTHER)
    except Exception as error:
        _fail(broker_error(error) or _fault(error), OTHER)


def _run() -> None:
    """Run the command; of errors that several tasks raised at once, raise the one that says most."""
    try:
        tacet(standalone_mode=False)
    except BaseExceptionGroup as group:
        leaves = list(_leaves(group))
        raise next((leaf for leaf in leaves if isinstance(leaf, TacetError | OSError)), leaves[0]) from None


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _setting(problem: Any) -> str:
    """Say which variable of the environment broke which rule."""
    name = "_".join(map(str, problem["loc"])).upper()
    return f"TACET_{name}: {rule_of(problem)}{shown(problem['input'])}"


def _disk_full(error: Exception) -> str | None:
    """Return what to say of a full disk, None of other errors."""
    if not isinstance(error, OSError) or error.errno not in {errno.ENOSPC, errno.EDQUOT}:
        return None
    return f"{error.filename or 'a file'}: disk full; make room and start again"


def _fault(error: Exception) -> str:
    """Say of an internal error what it is and where, never its text: it may hold what was read."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).parent.is_relative_to(ROOT)] or frames
    place = f" in {Path(own[-1].filename).name}, line {own[-1].lineno}" if own else ""
    return f"internal error, {type(error).__name__}{place}; its text is not shown, for it may hold data"


def _misused(error: click.ClickException) -> NoReturn:
    if logs.writes_json():
        _fail(error.format_message(), USAGE)
    error.show()
    sys.exit(USAGE)


def _fail(message: str, code: int) -> NoReturn:
    logs.last_word(message)
    sys.exit(code)
