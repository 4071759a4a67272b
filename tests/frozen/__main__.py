"""``python -m tests.frozen``: write the files anew, after a change that is meant and stands in the changelog."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from tests.acceptance.command_line import run
from tests.frozen import surface


def main() -> None:
    """Write every file."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        surface.fixed_secrets(patch)
        found = {
            "names": surface.names(), "released": surface.released(), "verbs": surface.structures(Path(folder), run),
        }  # fmt: skip
    for name, what in found.items():
        (surface.FOLDER / f"{name}.json").write_text(json.dumps(what, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
