"""The mechanism version to come, for tests of the way to it: other noise, and equal audit entries.

``python -m tests.support.later_mechanism_version worker …`` is ``tacet`` of that version.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

import connectors.cli.recover
import connectors.cli.worker  # noqa: F401 - both must be there to be changed
from connectors.cli.main import main
from stream import encoding
from stream.encryption import Vault
from stream.engine import continuation, partition
from stream.keys import subkey
from stream.mechanisms.noise_parameters import noise_chain
from stream.release import counts, stage

NOW, LATER = stage.MECHANISM_VERSION, str(int(stage.MECHANISM_VERSION) + 1)


def changes() -> Iterator[tuple[ModuleType, str, Any]]:
    """Yield every global that differs under the version to come: module, name, value.

    Every module takes the version to come for the present one, and the present one for one before.
    """
    for name, former, new in (
        ("MECHANISM_VERSION", NOW, LATER),
        ("BEFORE", continuation.BEFORE, (*continuation.BEFORE, NOW)),
    ):
        for module in list(sys.modules.values()):
            ours = module.__name__.startswith(("stream.", "connectors.", "tests.simulation."))
            if ours and getattr(module, name, None) == former:
                yield module, name, new
    yield counts, "noise_chain", other_noise
    yield partition, "decode_message", also_later


def begin(setattr_of: Callable[[Any, str, Any], None] = setattr) -> None:
    """Let the version to come be the present one."""
    for module, name, value in changes():
        setattr_of(module, name, value)


@contextmanager
def later() -> Iterator[None]:
    """Let the version to come be the present one meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        begin(patch.setattr)
        yield


def also_later(value: bytes, vault: Vault | None = None) -> encoding.Read:
    """Read also messages of the version to come, which differ in their number alone."""
    return encoding.decode_message(value.replace(b'{"v":2,', b'{"v":1,'), vault)


def other_noise(key: bytes, *rest: Any) -> Any:
    """Draw noise that is another one for the same label."""
    return noise_chain(subkey(key, f"version {LATER}"), *rest)


if __name__ == "__main__":
    begin()
    main()
