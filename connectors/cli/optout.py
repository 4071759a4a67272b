"""optout: leave devices and logins out of all counts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import IO, Protocol

import click

from connectors.cli.options import FILE, F, VerbGroup, key_option
from connectors.keys import key_files, opt_outs
from connectors.runtime.clock import wall_clock
from connectors.sources.ingest.addresses import NOWHERE, address_of
from connectors.sources.ingest.logins import written_logins
from stream.errors import UsageError
from stream.pseudonyms.derivation import is_locally_administered
from stream.records import Micros
from stream.settings import Settings


class Change(Protocol):
    """Adds or removes devices and logins."""

    def __call__(
        self, path: Path, key: bytes, addresses: Iterable[bytes], now: Micros, logins: Iterable[bytes] = ()
    ) -> None:
        """Change the file."""


@click.group(cls=VerbGroup)
def optout() -> None:
    """Leave devices out of all counts, at sites with opt_out = "list".

    The file holds no address, only digests under the opt-out key of the key file. Whoever has both can ask whether an
    address is on the list: protect the file like the key. Copy it to every ingest host before the next day starts.

    No command tells how many devices are on the list, or whether one is.
    """


def _options(function: F) -> F:
    for option in (
        click.argument("addresses", type=click.File("r", errors="replace"), default="-"),
        click.option("--logins", is_flag=True, help="The file ADDRESSES contains logins, one a line."),
        click.option("--file", "path", type=FILE, help="The file of opt-outs.  [env: TACET_OPT_OUTS_FILE]"),
        key_option,
    ):
        function = option(function)
    return function


@optout.command("add")
@_options
@click.pass_obj
def add(settings: Settings, *, key_file: Path, path: Path | None, addresses: IO[str], logins: bool) -> None:
    """Add the radio addresses in the file ADDRESSES, one a line; by default from standard input.

    It takes effect when the next privacy day of a site starts, or the next UTC day if the site has none. An ingest
    reads the changed file within seconds. The opt-out lapses when a device changes its address.

    With --logins they are logins, as user@realm or DOMAIN\\user. At a site with identity = "login" a login's opt-out
    names its devices too, from the login's first message of a day on.
    """
    randomised = _change(settings, opt_outs.add, key_file, path, addresses, logins=logins)
    if randomised:
        click.echo("an address is a randomised one: its opt-out lapses when the device changes it", err=True)
    click.echo("added: takes effect with the next day")


@optout.command("remove")
@_options
@click.pass_obj
def remove(settings: Settings, *, key_file: Path, path: Path | None, addresses: IO[str], logins: bool) -> None:
    """Remove the radio addresses in the file ADDRESSES, or with --logins the logins, from the next day on."""
    _change(settings, opt_outs.remove, key_file, path, addresses, logins=logins)
    click.echo("removed: takes effect with the next day")


def _change(
    settings: Settings, change: Change, key_file: Path, path: Path | None, lines: IO[str], *, logins: bool
) -> bool:  # fmt: skip
    """Change the file; return whether an address is locally administered."""
    file = path or settings.opt_outs_file
    if file is None:
        msg = "--file: must be given, or TACET_OPT_OUTS_FILE"
        raise UsageError(msg)
    given = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not given:
        msg = f"ADDRESSES: must contain at least one {'login' if logins else 'address'}"
        raise UsageError(msg)
    key = key_files.opt_out_key(key_file)
    if logins:
        texts = [login for number, line in given for login in sorted(_logins(number, line))]
        change(file, key, [], wall_clock(), texts)
        return False
    addresses = [_address(number, line) for number, line in given]
    change(file, key, addresses, wall_clock())
    return any(map(is_locally_administered, addresses))


def _logins(number: int, line: str) -> set[bytes]:
    logins = written_logins(line)
    if not logins:
        msg = f"ADDRESSES: line {number} must be the login of one person, such as name@example.org"
        raise UsageError(msg)
    return logins


def _address(number: int, line: str) -> bytes:
    address = address_of(line)
    if address is None or address[0] & 0x01 or address == NOWHERE:
        msg = f"ADDRESSES: line {number} must be the radio address of one device, such as 3c:22:fb:00:00:01"
        raise UsageError(msg)
    return address
