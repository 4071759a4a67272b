"""Reasons why a sender of traps is not authenticated: labels from a fixed set."""

BAD_COMMUNITY = "bad_community"
"""For SNMP v1 and v2c; the others are for SNMPv3."""

V3_REQUIRED = "v3_required"
"""An older version, from a source that must use SNMPv3."""
DISCOVERY = "discovery"
"""Not an error: a sender of informs discovers this engine or its time."""
UNKNOWN_ENGINE, UNKNOWN_USER, SECURITY_LEVEL = "unknown_engine", "unknown_user", "security_level"
WRONG_TAG, NOT_IN_TIME_WINDOW = "wrong_tag", "not_in_time_window"
REPLAYED, UNDECIPHERABLE = "replayed", "undecipherable"
V3_REASONS = (
    V3_REQUIRED, DISCOVERY, UNKNOWN_ENGINE, UNKNOWN_USER, SECURITY_LEVEL, WRONG_TAG, NOT_IN_TIME_WINDOW, REPLAYED,
    UNDECIPHERABLE,
)  # fmt: skip
"""In the order of the checks."""
