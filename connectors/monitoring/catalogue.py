"""The table of metrics: meaning, what each follows from, which verbs show it.

Whoever can reach the port reads all of it without a token. So a figure follows from policy, ledger, settings and the
clock's grid alone; or it is a timing or a size, told in coarse steps; or it is a sum over many people.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal, NamedTuple

from stream.records import MINUTE, Micros


class Nature(Enum):
    """What the values of a metric follow from."""

    PUBLIC = "policy, ledger, settings, the clock's grid"
    """The same to the bit with one person more."""
    TIMING = "how long something took"
    """Told in whole seconds."""
    SIZE = "how much room something takes"
    """Told in whole steps of ``SIZE_STEP``, rounded down."""
    TRAFFIC = "people"
    """Told as sums over ``LEAST_ACCESS_POINTS`` and ``TRAFFIC_INTERVAL``; outside the promise, for operators."""


SIZE_STEP = 64 * 1024 * 1024
"""Octets."""
LEAST_ACCESS_POINTS = 8
"""Figures that depend on people are sums over at least so many access points, ..."""
TRAFFIC_INTERVAL: Micros = 5 * MINUTE
"""... and over so long at least; they change at points of the clock's grid of this width, and at no other time."""

Kind = Literal["gauge", "counter", "histogram"]
Verb = Literal["run", "ingest", "worker", "serve", "hooks", "poll"]
EVERYONE: frozenset[Verb] = frozenset({"run", "ingest", "worker", "serve", "hooks", "poll"})
BY_POLICY: frozenset[Verb] = EVERYONE - {"hooks"}
ENGINE: frozenset[Verb] = frozenset({"run", "worker"})
INTAKE: frozenset[Verb] = frozenset({"run", "ingest"})
STORE: frozenset[Verb] = frozenset({"run"})
NETWORK: frozenset[Verb] = frozenset({"ingest", "worker", "serve", "hooks"})
READERS: frozenset[Verb] = ENGINE | {"serve"}


class Metric(NamedTuple):
    """One metric."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    nature: Nature
    verbs: frozenset[Verb]
    """Which of them show it."""
    changes: str
    """A sentence that says when its values change."""

    @property
    def text(self) -> str:
        """Its help text: what it means, and when it changes."""
        return f"{self.help} {self.changes}"


_P, _T, _S, _D = Nature.PUBLIC, Nature.TIMING, Nature.SIZE, Nature.TRAFFIC
_OF_A_RELEASE = ("site", "release", "audience")

_AT_START = "Set at the start."
_EACH_SECOND, _EACH_MINUTE = "Updated every second.", "Updated every minute."
_EACH_WINDOW = "Updated when a window is released."
_AT_END = "Changes when the process ends."
_MINUTES = TRAFFIC_INTERVAL // MINUTE
_ON_GRID = (
    f"Changes every {_MINUTES} minutes on the clock (12:00, 12:05), first {_MINUTES} to {2 * _MINUTES} minutes after "
    "the start; a 0 before that has no meaning."
)
"""Of traffic: ``connectors.monitoring.metric_values.Traffic``."""
METRICS: tuple[Metric, ...] = (
    Metric("tacet_build_info", "gauge", "1; the labels say what runs.", ("version", "mechanisms"), _P, EVERYONE,
           _AT_START),
    Metric("tacet_policy_info", "gauge", "1; the label is the policy's version.", ("policy",), _P, BY_POLICY,
           _AT_START),
    Metric("tacet_check_ok", "gauge", "1 if this condition of readiness holds.", ("check",), _P, EVERYONE,
           _EACH_SECOND),
    Metric("tacet_failures_total", "counter", "Errors that ended the process, by kind.", ("error",), _P, EVERYONE,
           _AT_END),
    Metric("tacet_replay_mismatches_total", "counter",
           "Windows that a replay would have released differently; none of them was published.", (), _P, ENGINE,
               _AT_END),
    Metric("tacet_source_up", "gauge", "1 if a source answered its last probe.", ("site", "source"), _P, INTAKE,
           "Updated after each probe."),
    Metric("tacet_source_probe_timestamp_seconds", "gauge", "When a source was last probed.", ("site", "source"), _P,
           INTAKE, "Updated after each probe."),
    Metric("tacet_secrets_read_total", "counter",
           "How often a file of secrets was read again, or refused because it broke a rule.", ("secrets",
               "outcome"), _P,
           INTAKE | {"hooks", "poll"}, "Changes every 5 seconds at most."),
    Metric("tacet_stream_state", "gauge", "1 for the state that an event stream is in: connecting, reading or refused.",
           ("stream", "state"), _P, frozenset({"hooks"}), _EACH_SECOND),
    Metric("tacet_polls_total", "counter",
           "Polls of client tables by outcome: complete, or why the table was not used.",
           ("site", "source", "outcome"), _P, frozenset({"poll"}), "Changes at most once for each poll."),
    Metric("tacet_poll_timestamp_seconds", "gauge", "When a source's table was last passed to the ingest.", (
        "site", "source"),
           _P, frozenset({"poll"}), "Updated after each complete poll."),
    Metric("tacet_poll_closed", "gauge", "1 if a source is no longer polled because its table was too long.",
           ("site", "source"), _P, frozenset({"poll"}), _EACH_SECOND),
    Metric("tacet_working_time", "gauge", "1 if a site is in its working hours.", ("site",), _P,
           INTAKE, _EACH_SECOND),
    Metric("tacet_site_closed", "gauge", "1 if a site is suspended at max_devices.", ("site",), _P, ENGINE,
           _EACH_SECOND),
    Metric("tacet_window_end_timestamp_seconds", "gauge", "End of the newest released window.", ("site",), _P,
           READERS, "Updated when a window is released, by serve within 15 seconds."),
    Metric("tacet_lag_seconds", "gauge", "How far a site's watermark is behind the clock.", ("site",), _T, ENGINE,
           _EACH_SECOND),
    Metric("tacet_window_release_delay_seconds", "histogram",
           "Time from when a window could close (its end plus lateness) to its release.", ("site",), _T, ENGINE,
           _EACH_WINDOW),
    Metric("tacet_releases_total", "counter", "Records that were released.", _OF_A_RELEASE, _P, ENGINE,
           "Changes when records are released."),
    Metric("tacet_refusals_total", "counter", "Records that were denied or not queried, by reason.",
           (*_OF_A_RELEASE, "reason"), _P, ENGINE, "Changes when records are denied."),
    Metric("tacet_ledger_entries", "gauge", "Entries of a site's ledger.", ("site",), _P, ENGINE, _EACH_SECOND),
    Metric("tacet_privacy_spent_epsilon", "gauge",
           "Epsilon that all releases together have cost a privacy unit; with delta 0 it is pure epsilon, which may be "
           "infinite.",
           ("site", "audience", "unit", "delta"), _P, ENGINE, _EACH_WINDOW),
    Metric("tacet_budget_epsilon", "gauge", "Epsilon of a daily budget.", (*_OF_A_RELEASE, "unit"), _P, ENGINE,
           _EACH_WINDOW),
    Metric("tacet_budget_left_epsilon", "gauge", "Whole windows that a daily budget still pays for.",
           (*_OF_A_RELEASE, "unit"), _P, ENGINE, _EACH_WINDOW),
    Metric("tacet_key_epoch_age_seconds", "gauge", "Time since the start of the oldest day whose key still exists.",
           (), _T, ENGINE | INTAKE, "Grows at each reading; the key file is read every 15 seconds."),
    Metric("tacet_certificate_expiry_seconds", "gauge",
           "Time until a certificate that this process presents or trusts expires; 0 if it cannot be read.",
           ("certificate",), _T, NETWORK, _EACH_MINUTE),
    Metric("tacet_clock_offset_seconds", "gauge", "Difference between the wall clock and the clock that stamps "
        "arrivals.", (),
           _T, INTAKE | {"hooks", "poll"}, _EACH_SECOND),
    Metric("tacet_store_size_bytes", "gauge", "Size of the store's files.", (), _S, STORE, _EACH_MINUTE),
    Metric("tacet_disk_free_bytes", "gauge", "Free space of the store's file system.", (), _S, STORE, _EACH_MINUTE),
    Metric("tacet_disk_size_bytes", "gauge", "Size of the store's file system.", (), _P, STORE,
           _EACH_MINUTE),
    Metric("tacet_datagrams_total", "counter", "Received datagrams.", (), _D, INTAKE, _ON_GRID),
    Metric("tacet_datagrams_accepted_total", "counter", "Accepted datagrams.", (), _D, INTAKE, _ON_GRID),
    Metric("tacet_datagrams_dropped_total", "counter", "Dropped datagrams, by reason.", ("reason",), _D,
           INTAKE, _ON_GRID),
    Metric("tacet_sightings_total", "counter",
           "Messages about devices, by who administers the address: its maker (global) or the device (local).",
           ("address",), _D, INTAKE, _ON_GRID),
    Metric("tacet_kernel_drops_total", "counter", "Datagrams that the kernel dropped because the socket's buffer was "
        "full.", (), _D, INTAKE,
           _ON_GRID),
    Metric("tacet_observations_total", "counter", "Accepted observations.", (), _D, ENGINE, _ON_GRID),
    Metric("tacet_observations_dropped_total", "counter", "Dropped observations, by reason.", ("reason",), _D,
           ENGINE, _ON_GRID),
    Metric("tacet_quarantined_total", "counter", "Quarantined messages and rows, by reason.", ("reason",), _D,
           ENGINE, _ON_GRID),
)  # fmt: skip

BY_NAME = {metric.name: metric for metric in METRICS}
