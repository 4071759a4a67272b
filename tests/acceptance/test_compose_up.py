"""docker-compose.yml in operation: ``deploy/try-compose``, if a Docker engine is available."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE

ROOT = Path(__file__).parents[2]
TIMEOUT = 1500


def missing() -> str | None:
    """Say what the script needs and this machine has not; None when it has all."""
    for words in (["docker", "info"], ["docker", "compose", "version"]):
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"'{' '.join(words)}': {type(error).__name__}"
        if done.returncode:
            return f"'{' '.join(words)}' ends with {done.returncode}"
    return None


@pytest.mark.docker
@pytest.mark.timeout(TIMEOUT + 60)
def test_compose_comes_up_healthy_takes_traps_at_port_162_and_gives_counts_to_a_subscriber() -> None:
    reason = missing()
    if reason is not None:
        if os.environ.get("TACET_REQUIRE_DOCKER") == "1":
            pytest.fail(f"TACET_REQUIRE_DOCKER=1, but no Docker engine with compose v2: {reason}")
        pytest.skip(f"no Docker engine with compose v2: {reason}")
    done = subprocess.run(
        [ROOT / "deploy" / "try-compose"], capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "with ten devices" in done.stdout
    assert "the page shows a count of ten" in done.stdout
    assert re.search(r"^four services, \d\d rules$", done.stdout, re.MULTILINE)
    assert "the demo shows its page" in done.stdout
    assert "all JSON of listed fields" in done.stdout
    left = subprocess.run(
        ["docker", "ps", "--all", "--quiet", "--filter", "label=com.docker.compose.project=tacet-try"],
        capture_output=True, text=True, timeout=PATIENCE, check=True,
    )  # fmt: skip
    assert not left.stdout, "what was started is removed"
