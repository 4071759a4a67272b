"""A small building for tests of attackers: days of people who move, and a policy that releases counts of it."""

from __future__ import annotations

from pathlib import Path

from tests.support.small_building import mac, people, policy_text, write_csv

RELEASES = """
[[release]]
name = "plain"
query = "count"
mechanism = "laplace"
zones = { kind = ["hall", "lobby"] }
epsilon = { facilities = "1", public = "0.1" }

[[release]]
name = "grouped"
query = "count"
mechanism = "pegasus"
levels = ["zone", "floor", "building"]
epsilon = { facilities = "1" }
"""


def written(folder: Path, releases: str = RELEASES, hours: float = 90, devices: int = 25) -> tuple[Path, Path]:
    """Write a recording from a Monday evening on, and a policy; return their paths."""
    policy = folder / "policy.toml"
    policy.write_text(policy_text(releases))
    seen = people(1, hours=hours, devices=devices)
    assert mac(0) == seen[0].device
    return write_csv(folder / "observations.csv", seen), policy


def with_bad_rows(scenario: Path, folder: Path, good: int | None = None) -> None:
    """Write the files of another folder, with the first ``good`` rows of the recording, or all, and four bad ones."""
    (folder / "policy.toml").write_text((scenario / "policy.toml").read_text())
    header, *rows = (scenario / "observations.csv").read_text().splitlines()
    bad = [f"yesterday,{rows[0].split(',', 1)[1]}"] * 4
    (folder / "observations.csv").write_text("\n".join([header, *rows[:good], *bad]) + "\n")
