"""Why a message of SNMPv3, or one that should have been, is not taken: labels from a fixed set."""

V3_REQUIRED = "v3_required"
"""An older version, from a source that is heard over SNMPv3 only."""
DISCOVERY = "discovery"
"""No fault: a sender of informs asks who this is, or what time it has here."""
UNKNOWN_ENGINE, UNKNOWN_USER, SECURITY_LEVEL = "unknown_engine", "unknown_user", "security_level"
WRONG_TAG, NOT_IN_TIME_WINDOW = "wrong_tag", "not_in_time_window"
REPLAYED, UNDECIPHERABLE = "replayed", "undecipherable"
V3_REASONS = (
    V3_REQUIRED, DISCOVERY, UNKNOWN_ENGINE, UNKNOWN_USER, SECURITY_LEVEL, WRONG_TAG, NOT_IN_TIME_WINDOW, REPLAYED,
    UNDECIPHERABLE,
)  # fmt: skip
"""In the order of the checks."""
