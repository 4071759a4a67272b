"""The simulated building's policy without privacy days, for releases that are paid by the window."""

from __future__ import annotations

import re

PUBLIC = """
[[release]]
name = "floors"
query = "count"
mechanism = "pegasus"
levels = ["zone", "floor", "building"]
epsilon = { public = "0.1" }
daily_budget = { public = "28.8" }
"""


def by_window(text: str) -> str:
    """Return a policy of ``policy_text`` whose public release is paid window by window instead."""
    without_days = re.sub(r"^(?:day_starts|contribution|residents) = .*\n", "", text, flags=re.MULTILINE)
    before, name, after = without_days.partition('[[release]]\nname = "floors"\n')
    assert name, "the policy has a public release that is paid by the day"
    zones = next(line for line in after.splitlines(keepends=True) if line.startswith("zones = "))
    _, _, rest = after.partition("\n# Facts about a room's day")
    return before + PUBLIC + zones + "\n# Facts about a room's day" + rest
