"""Figures in the documents that come from the code or a named test are what these say.

Code is not looked at: its blocks are run (``test_commands.py``, ``test_extending.py``), but for what the README shows
of the demo, which ``tests/acceptance/test_demo.py`` compares. Defaults in tables are ``test_policy_reference.py``'s.
"""

from __future__ import annotations

import hashlib
import math
import re
import tomllib
from collections.abc import Iterator
from fractions import Fraction
from typing import get_args

import pytest

from connectors.cli.ingest import FORGET_AFTER
from connectors.http.limits import AT_ONCE, BODY_WITHIN, PATIENCE, Rates
from connectors.monitoring.catalogue import LEAST_ACCESS_POINTS, SIZE_STEP, TRAFFIC_INTERVAL
from connectors.monitoring.monitor import ERROR_SHOWN
from connectors.runtime.logs import AT_ONCE as LOG_AT_ONCE
from connectors.runtime.logs import PERIOD as LOG_PERIOD
from connectors.secrets.secret_files import SHORTEST_SECRET
from connectors.serve.access import SESSION
from connectors.serve.booked_rooms import AGAIN, LEAST_CAPACITY, STALE
from connectors.serve.bookings import LONGEST as LONGEST_NEED
from connectors.serve.reader_limits import DOWNLOADS, STREAMS
from connectors.sources.cloud.event_stream import REFUSED_WAIT
from connectors.sources.cloud.service import ALL_BODIES, LARGEST_BODY, MOST_CONNECTIONS
from connectors.sources.cloud.verification import DEEPEST, FURTHEST, MOST_ELEMENTS, OLDEST
from connectors.sources.ingest.followed_logs import BEHIND
from connectors.sources.ingest.ingest import CLOCKS_APART, GRID, MOST_AGE, OUTAGE
from connectors.sources.ingest.queue import ROOM
from connectors.sources.probes import methods
from connectors.sources.probes.scheduler import TICKS, WRAP
from connectors.sources.radius.listener import MEMORY as REMEMBERED
from connectors.sources.recordings.observations import LEAP, MANY
from connectors.sources.recordings.row_sort import RUN_ROWS
from connectors.sources.snmp.usm.engines import WINDOW
from connectors.storage.kafka.client import MAX_RECORD
from connectors.storage.kafka.timeouts import BROKER_PATIENCE
from connectors.storage.kafka.topic_settings import topic_config
from connectors.subscribe.topics import LOOK_BACK
from stream.accounting.calibration import grid_variance
from stream.accounting.day_charges import REPLACED
from stream.accounting.gaussian_shift import epsilon_of, largest_shift
from stream.accounting.leakage.entries import LARGEST, MOST, SMALLEST
from stream.accounting.units import day_cells
from stream.decisions.min_entropy import EXACT_UP_TO
from stream.decisions.plan import DecisionTerms, Form, Mechanism, plan_of
from stream.lab.attackers.membership import LEVEL, most_shown
from stream.lab.simulator.events import DAY_SHOWN
from stream.local_time import MONTH_DAYS
from stream.mechanisms.heatmap import COLOURS
from stream.mechanisms.heatmap import MOST as MOST_IN_HALF_HOUR
from stream.policy.counts import LONGEST_REFRESH, MOST_KNOWN
from stream.policy.mechanisms import CHAIN_AND_GROUPER
from stream.policy.privacy import Privacy
from stream.policy.privacy_days import EARLY
from stream.policy.sites import Site
from stream.records import DAY, HOUR, MINUTE, SECOND
from stream.release.queries import LARGEST_HELD as HEAT_HELD
from stream.schemas import OBSERVATIONS, QUARANTINE, SNAPSHOT
from stream.sensing.contribution import EMPTY_TICKS
from stream.settings import OPEN_TIMEOUT, SHORTEST_SESSION, Settings
from tests.support.documents import DOCUMENTS, ROOT

CODE = re.compile(r"^```.*?^```|`[^`\n]*`|<!--.*?-->|\]\([^)]*\)", re.MULTILINE | re.DOTALL)
WORDS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 10: "ten"}


def default(name: str) -> int:
    """Return a default of a site."""
    return int(Site.model_fields[name].default)


def kept(topic: str, unit: int) -> int:
    """Return how long a topic keeps a record, in units of so many microseconds."""
    return int(topic_config(topic)["retention.ms"]) * 1000 // unit


TICK, VALIDITY = default("tick"), default("validity")
REACH = -(-VALIDITY // TICK)
DAY_CELLS = sum(day_cells(TICK, REACH))
PERSON = Privacy().devices_per_person
SHARED, OWN = (float(part) for part in CHAIN_AND_GROUPER)
PYTHON = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")

SHORTEST_OPENING, LONGEST_OPENING = (
    next(getattr(each, name) for each in Settings.model_fields["open_timeout"].metadata if hasattr(each, name))
    for name in ("ge", "le")
)
(LONGEST_SESSION,) = [each.le for each in Settings.model_fields["session_timeout"].metadata if hasattr(each, "le")]


REPLACED_SHIFTS = [math.sqrt(parts) for parts in REPLACED.values()]
"""Of one to eight visits, in parts of a day's."""
_MILLIONTH = Fraction(1, 10**6)
REPLACED_EPSILON = epsilon_of(REPLACED[8] * largest_shift(Fraction(2), _MILLIONTH), _MILLIONTH)

BY_ATTACK = (
    "zones at ε = 1, noisy | floors at ε = 2 a day, noisy |",
    "| external | 141 | 8 % | 9 %, 8.95 | 9 %, 7.54 | 9 %, 8.14 | 8 %, 1.21 |",
    "| student | 5 | 15 % | 19 %, 0.49 | 17 %, 0.74 | 15 %, 0.03 | 15 %, 0.01 |",
    "| admin | 130 | 9 % | 10 %, 10.72 | 10 %, 9.06 | 10 %, 9.62 | 9 %, 1.38 |",
    "| ` | 6 % | 8 % | 50 % | 99.6 % | | ` | 31 % | 27 % | 28 % | - |",
)
BY_MEMBERSHIP = (
    "| ` | facilities | window | 1 | 0.62 | 0.80 | | ` | facilities | attributes of a day | 2.5 | 2.28 | 2.50 |",
    "| ` | public | attributes of a day | 0.2 | 0.13 | 0.20 |",
)


def attack_figures() -> Iterator[str]:
    """Yield what the page on attackers says of bounds on epsilon."""
    yield f"at {1 - LEVEL:.2%} for all releases together".replace("%", " %")
    yield f"with a probability of at most {4 * LEVEL:.1%}.".replace("%", " %")
    yield f"a thousand runs a side can show {most_shown(1000):.1f} at most"


def decision_figures() -> Iterator[str]:
    """Yield what the table of mechanisms and the section on min-entropy say."""
    beta, alpha = Fraction(5, 100), Fraction(1)
    yield f"ε for α = {alpha}, β = {float(beta)} |"
    for mechanism in get_args(Mechanism):
        safe, printed = (
            float(plan_of(DecisionTerms(mechanism, beta, form=form), alpha).price) for form in get_args(Form)
        )
        yield f"| {safe:.3f} | {printed:.3f} |"
    yield f"Up to {EXACT_UP_TO} predicates it is exact"


MADE = [
    ("README.md", f"Python {PYTHON} or newer"),
    ("README.md", f"counts devices per zone every {WORDS[TICK // MINUTE]} minutes"),
    ("README.md", f"A person counts as {WORDS[PERSON]} devices by default"),
    ("README.md", f"a building of {DAY_SHOWN.zones} access points"),
    ("README.md", f"{DAY_SHOWN.always_on} machines that are always on"),
    ("docs/architecture.md", f"off by default | engine | {kept(OBSERVATIONS, HOUR)} h |"),
    ("docs/architecture.md", f"heartbeats | engine | {kept(OBSERVATIONS, HOUR)} h |"),
    ("docs/architecture.md", f"the last one, {kept(SNAPSHOT, DAY)} d |"),
    ("docs/sources.md", f"the messages of the last {WINDOW} s"),
    (
        "docs/sources.md",
        f"A body has at most {LARGEST_BODY >> 20} MiB and must arrive within {BODY_WITHIN:g} s; "
        f"all bodies together at most {ALL_BODIES >> 20} MiB; at most {MOST_CONNECTIONS} connections",
    ),
    ("docs/sources.md", f"{MOST_ELEMENTS:,} values, lists and objects nested {DEEPEST} deep"),
    ("docs/sources.md", f"tried again every {REFUSED_WAIT / 60:.0f} minutes"),
    ("docs/sources.md", f"A secret has at least {SHORTEST_SECRET} octets"),
    ("docs/sources.md", f"at least every {VALIDITY // MINUTE // 2} minutes.** A device that is not seen for `"),
    ("docs/sources.md", f"{VALIDITY // MINUTE} minutes by default) no longer counts"),
    ("docs/sources.md", f"and at most {MOST_AGE // SECOND} s."),
    ("docs/sources.md", f"read for {BEHIND:.0f} s, none of the ingest's sources counts as covered"),
    ("docs/sources.md", f"(older than {CLOCKS_APART // SECOND} s, if ` is less)"),
    ("docs/sources.md", f"is dropped, and so is one more than {CLOCKS_APART // SECOND} s ahead"),
    ("docs/sources.md", f"remembered for {REMEMBERED // MINUTE} minutes by its client"),
    (
        "docs/sources.md",
        f"bodies contain the secret. A secret has at least {SHORTEST_SECRET} octets. Other requests get 401",
    ),
    ("docs/sources.md", f"A row older than {OLDEST // SECOND} s, or more than {FURTHEST // SECOND} s ahead"),
    ("docs/sources.md", f"by at most {CLOCKS_APART // SECOND} s and at most"),
    ("docs/sources.md", f"fell, as it does every {WRAP // TICKS * SECOND // DAY} days"),
    ("docs/reference/policy.md", f"{methods.SNMP_PORT} or {methods.HTTPS_PORT} unless given"),
    ("docs/reference/policy.md", f"gives each place one of {WORDS[COLOURS]} colours"),
    (
        "docs/reference/policy.md",
        f"(2 to {MOST_KNOWN}; {3 * 30 * MINUTE // TICK} are three days of {WORDS[TICK // MINUTE]} minutes)",
    ),
    ("docs/reference/policy.md", f"Above {MOST_IN_HALF_HOUR} windows their sums are halved"),
    ("docs/reference/policy.md", f"heat maps hold of the past may have {HEAT_HELD >> 20} MiB"),
    ("docs/reference/policy.md", f"the certificate's SHA-256, {2 * hashlib.sha256().digest_size} hexadecimal digits"),
    ("docs/architecture.md", f"operators | {kept(QUARANTINE, DAY)} d |"),
    ("docs/architecture.md", f"heartbeats, every {GRID // SECOND} s whether"),
    ("docs/architecture.md", f"one observation changes at most {WORDS[2 * REACH]} counts"),
    ("docs/architecture.md", f"more or less changes at most {WORDS[2 * REACH]} counts"),
    ("docs/architecture.md", f"*t* + {VALIDITY // MINUTE} min)"),
    ("docs/architecture.md", f"At each tick, every {TICK // MINUTE} minutes"),
    ("docs/architecture.md", f"that pauses for {OUTAGE // SECOND} s"),
    ("docs/design.md", f"simulated building of {DAY_SHOWN.zones} access points"),
    ("docs/design.md", f"one record ({MAX_RECORD >> 20} MiB)"),
    ("docs/design.md", f"max {SHARED} ε + Σ {OWN} ε"),
    ("docs/operations.md", f"destroys it {WORDS[FORGET_AFTER // MINUTE]} minutes after the day's end"),
    (
        "docs/building.md",
        f"every {AGAIN // MINUTE} minutes; one that has been unreadable for {WORDS[STALE // HOUR]} hours is no longer",
    ),
    ("docs/building.md", f"beyond {WORDS[LONGEST_NEED // HOUR]} hours nothing is said"),
    ("docs/building.md", f"at least {LEAST_CAPACITY}) are left out"),
    ("docs/deployment.md", f"cookie for at most {SESSION // HOUR} hours"),
    ("docs/deployment.md", f"The service answers {AT_ONCE} requests at a time and holds {STREAMS.total} event streams"),
    (
        "docs/deployment.md",
        f"streams, {STREAMS.each} of one reader and {STREAMS.without_token} of all who show no token",
    ),
    ("docs/deployment.md", f"{DOWNLOADS.total} files are given at a time, {DOWNLOADS.each} to one reader"),
    ("docs/deployment.md", f"and {DOWNLOADS.without_token} to all who show no token"),
    ("docs/deployment.md", "of IPv6 by the network of 64 bits"),
    ("docs/deployment.md", f"others' streams, but {WORDS[STREAMS.without_token // STREAMS.each]} can"),
    ("docs/deployment.md", f"may send {Rates().burst:.0f} requests at once and {Rates().each_second:.0f} a second"),
    ("docs/deployment.md", f"a body that has not come within {BODY_WITHIN:.0f} s is refused"),
    ("docs/deployment.md", f"takes nothing for {PATIENCE:.0f} s is cut off"),
    *((f"docs/{name}", f"steps of {SIZE_STEP >> 20} MiB") for name in ("operations.md", "reference/metrics.md")),
    *(
        (f"docs/{name}", f"at least {LEAST_ACCESS_POINTS} access points and {TRAFFIC_INTERVAL // MINUTE} minutes")
        for name in ("operations.md", "privacy.md", "reference/metrics.md")
    ),
    ("docs/operations.md", f"if the store's sites have at least {LEAST_ACCESS_POINTS} access points"),
    ("docs/operations.md", f"until the next scrape, for at most {ERROR_SHOWN:.0f} s"),
    ("docs/operations.md", f"Of equal lines at most {LOG_AT_ONCE} are written in {LOG_PERIOD:.0f} s"),
    ("docs/deployment.md", f"snapshot record of {MAX_RECORD >> 20} MiB"),
    ("docs/privacy.md", f"devices ({PERSON} unless the"),
    ("docs/privacy.md", f"The smallest σ is {math.sqrt(grid_variance(0)):g}:"),
    ("docs/privacy.md", f"a shift {REPLACED_SHIFTS[3]:g} times as large with four visits"),
    ("docs/privacy.md", f"({REPLACED_SHIFTS[0]:.2f} to {max(REPLACED_SHIFTS):.2f} times with one to eight)"),
    ("docs/privacy.md", f"ε {REPLACED_EPSILON:.2f} where the day costs 2. Both are"),
    ("docs/privacy.md", f"that of a replaced day: {REPLACED_EPSILON:.2f} where changes are paid for"),
    ("docs/privacy.md", f"| one trap | {2 * REACH} ε:"),
    ("docs/privacy.md", f"one day | {DAY_CELLS} ε: {DAY // TICK} ticks"),
    ("docs/privacy.md", f"| {PERSON} × {DAY_CELLS} ε |"),
    ("docs/privacy.md", f"max {SHARED} ε + Σ {OWN} ε"),
    ("docs/privacy.md", f"a whole day costs {'hundreds' if 200 <= DAY_CELLS < 1000 else DAY_CELLS} of ε"),
    ("docs/privacy.md", f"queue ({ROOM:,} traps)"),
    ("docs/reference/commands.md", f"more than one row in {WORDS[MANY]} was late"),
    ("docs/reference/commands.md", f"between {SMALLEST:.0e} and {LARGEST:.0e} in magnitude".replace("e+", "e")),
    ("docs/reference/commands.md", f"whole numbers at most 10{'⁰¹²³⁴⁵⁶⁷⁸⁹'[len(str(MOST)) - 1]}"),
    ("docs/reference/commands.md", f"Up to {RUN_ROWS:,} rows are sorted in memory"),
    ("docs/reference/commands.md", f"more than {LEAP // DAY} days between them"),
    ("docs/reference/commands.md", f"seconds, {SHORTEST_SESSION:.0f} to {LONGEST_SESSION:.0f}, of silence"),
    ("docs/reference/commands.md", f"seconds, {SHORTEST_OPENING:.0f} to {LONGEST_OPENING:.0f}; a worker ends with 1"),
    ("docs/deployment.md", f"{WORDS[int(OPEN_TIMEOUT) // 60]} minutes by default, it ends with 1"),
    (
        "docs/deployment.md",
        f"can reach no broker for {BROKER_PATIENCE:.0f} s while it opens a partition ends with 1",
    ),
    ("docs/reference/policy.md", f"at most {LONGEST_REFRESH // DAY}, the daily budget"),
    ("docs/reference/policy.md", f"days in any {MONTH_DAYS} on which"),
    ("docs/reference/policy.md", f"absent at {WORDS[EMPTY_TICKS]} ticks in a row"),
    ("docs/reference/policy.md", f"privacy day's first {EARLY // MINUTE} min"),
    *(("docs/attackers.md", passage) for passage in attack_figures()),
    *(("docs/thresholds.md", passage) for passage in decision_figures()),
    ("docs/subscribe.md", f"it reads at most the last {LOOK_BACK:,} records of a partition"),
]
"""(document, passage) made of the constants that the code goes by."""

ENDS = "tests/unit/cli/test_command_line.py::test_an_error_ends_the_program_with_one_line_and_a_code"
BAD_ROWS = (
    "tests/unit/recordings/test_observation_files.py::test_bad_rows_end_the_command_with_code_3_after_the_rest_was_done"
)
STOPPED = "tests/acceptance/test_cli.py::test_a_service_that_is_told_to_stop_while_it_starts_exits_0"
OTHERS = "tests/integration/test_one_writer.py::test_one_policy_and_one_key_work_at_a_time"
MALFORMED = "tests/acceptance/test_leakage_cli.py::test_a_malformed_model_exits_with_2_and_names_the_entry"
IN_TIME = "tests/acceptance/test_ingest_verb.py::test_ingest_ends_although_the_broker_does_not_answer"
DEMO = "tests/acceptance/test_demo.py::test_the_day_that_the_readme_shows_is_such_a_day"
LEFT_OUT = "tests/unit/operations/test_policy_plan.py::test_zones_that_are_left_out_are_tried_and_found_wanting"
OWNERS = "tests/acceptance/test_demo.py::test_what_it_leaves_is_for_its_owner_only"
KEY_FILE = "tests/unit/keys/test_keys.py::test_a_key_file_that_others_can_reach_is_refused"
KAFKA_PASSWORD = "tests/unit/kafka/test_connection.py::test_a_password_that_others_can_read_or_that_is_none_is_refused"
KAFKA_KEY = "tests/unit/kafka/test_connection.py::test_a_key_that_others_can_read_is_refused"
COMMUNITIES = "tests/unit/snmp/test_snmp_senders.py::test_communities_come_from_a_file_that_only_its_owner_reads"
HOOKS_FILE = (
    "tests/unit/hooks/test_hooks_verification.py::test_systems_and_secrets_come_from_a_file_that_only_its_owner_reads"
)
HOOKS_SERVED = "tests/unit/hooks/test_hooks_service.py::"
RADIUS_CLIENTS = "tests/unit/radius/test_radius_listener.py::test_secrets_come_from_a_file_that_only_its_owner_reads"
SNMP_STATE = "tests/acceptance/test_snmp_v3_run.py::test_a_recorded_trap_counts_once_however_often_the_run_is_started"
SNMP_USERS = "tests/unit/snmp/test_v3_users.py::test_a_file_of_users_that_others_can_read_is_refused"
GAME = "tests/acceptance/page/test_game_page.py::"
COLOURED = "tests/unit/mechanisms/test_colours.py::test_colours_are_those_of_the_formula"
LARGEST_COUNT = "tests/unit/policy/test_policy.py::test_the_largest_count_is_ten_times_the_capacity_and_twenty"
HALF_WIDTH = "tests/statistical/test_query_half_widths.py::test_at_least_95_of_100_sums_lie_within_their_half_width"
REVISED = "tests/unit/release/test_revised_release.py::test_an_hour_is_revised_an_hour_after_it"
DAY_REVISED = (
    "tests/unit/release/test_revised_release.py::test_of_five_minutes_a_day_is_published_six_windows_at_a_time"
)
WORKS = "tests/unit/operations/test_inventory.py::test_whoever_works_a_day_counts_to_its_end"
RECORDED = "tests/unit/operations/test_contribution_loss.py::test_a_recording_says_how_long_a_device_has_to_count"
PORT = "tests/docs/test_compose.py::test_others_reach_the_trap_port_and_what_hears_the_cloud_alone"
SHOWN = "tests/docs/test_compose.py::test_what_people_look_at_is_on_the_loopback_and_files_are_of_these_users"
RATED = "tests/acceptance/serve/test_guard.py::test_more_than_a_rate_is_refused_with_when_to_come_again"
STORM = "tests/integration/test_storm.py::test_long_storm_releases_every_window_once_and_as_one_process_would"
PARTS = "tests/unit/kafka/test_hanging_brokers.py::test_every_wait_is_a_part_of_the_one_session_timeout"
FACTORS = "tests/docs/test_reference.py::test_fields_units_and_factors_of_the_account_are_exactly_those_listed"
UNOPENED = "tests/simulation/test_stalls.py::test_a_worker_told_to_stop_before_its_partitions_have_opened_ends_with_1"
HANGS = (
    "tests/integration/test_three_brokers.py::"
    "test_a_leader_that_hangs_holds_up_nobody_for_longer_than_its_replacement_and_a_session"
)

BROKEN = "tests/unit/operations/test_doctor.py::test_what_is_wrong_with_a_store_ends_with_1_and_is_named"
DIFFERS = "tests/unit/operations/test_policy_diff.py::test_the_exit_code_says_whether_anything_begins_anew"
AT_DELTA = "tests/unit/accounting/test_tight_account.py::"
ADDED_UP = f"{AT_DELTA}test_a_day_of_windows_costs_less_at_delta_than_its_epsilons_added_up"
ROUNDED = "tests/unit/accounting/test_running_price.py::test_mixtures_cost_the_exact_price_to_within_seven_percent"

ATTACKED = "tests/acceptance/test_attack_demo.py::test_whom_attackers_find_is_what_the_document_says"
MEMBERS = "tests/acceptance/test_attack_demo.py::test_what_membership_shows_is_what_the_document_says"

NOTHING_AUDITED = "tests/docs/test_supply.py::test_where_the_service_cannot_be_asked_it_says_that_nothing_was_audited"
BROKEN_PROMISE = "tests/acceptance/test_attack_membership.py::test_halved_noise_is_found_out"

STOPS = (
    "tests/unit/snmp/test_stopping_receiver.py::"
    "test_sightings_not_processed_in_time_are_dropped_counted_and_not_answered"
)

IDLE = (
    "tests/integration/test_kafka_key_retire.py::"
    "test_a_key_that_may_not_follow_changes_nothing_and_an_idle_worker_sees_one_that_does"
)

DECIDE = "tests/acceptance/test_decide.py::"
TOLD = f"{DECIDE}test_the_exit_code_tells_a_denial_from_an_answer"
NO_ROOM = f"{DECIDE}test_where_alpha_is_no_uncertainty_that_is_said_and_no_place_in_the_answer"

TESTED = [
    ("docs/guide.md", "Where ticks are paid, a device counts for at most 12 h of a day", WORKS),
    ("docs/sources.md", "what covers 99 % of the recording's device-days", RECORDED),
    ("docs/operations.md", "sees it within seconds and ends with 2", IDLE),
    ("docs/guide.md", "before these messages were durable (five seconds)", STOPS),
    ("docs/reference/commands.md", "for five seconds take in what waits", STOPS),
    ("docs/attackers.md", "exit code 1 where it does not", BROKEN_PROMISE),
    *(("docs/measurements.md", passage, ATTACKED) for passage in BY_ATTACK),
    ("docs/attackers.md", "is right in half of the cases", ATTACKED),
    *(("docs/measurements.md", passage, MEMBERS) for passage in BY_MEMBERSHIP),
    ("CONTRIBUTING.md", "it says that nothing was audited, and fails (77)", NOTHING_AUDITED),
    ("docs/operations.md", "If something is wrong, the exit code is 1", BROKEN),
    ("docs/operations.md", "The exit code is 1 if something restarts", DIFFERS),
    ("docs/reference/commands.md", "1 | anything else: a failure; a denied ` ; ` , ` , ` and ` with findings", BROKEN),
    ("docs/guide.md", "where always saying 0 or the median would be nearer to the truth", LEFT_OUT),
    ("docs/architecture.md", "(0600 in a 0700 folder)", OWNERS),
    ("docs/design.md", "25,723 traps in a day; one worker", DEMO),
    ("docs/design.md", "pauses hundreds of workers and brokers", STORM),
    ("docs/extending.md", "for options, exit code 2; ` for input, exit code 3", ENDS),
    ("docs/operations.md", "key file | beside nothing else, 0600", KEY_FILE),
    ("docs/operations.md", "store | a folder of its own, 0700", OWNERS),
    ("docs/operations.md", "SNMPv3 state | beside its users, 0600", SNMP_STATE),
    *(
        ("docs/operations.md", "communities, users of SNMPv3, clients of RADIUS | beside the ingest, 0600", test)
        for test in (COMMUNITIES, SNMP_USERS, RADIUS_CLIENTS)
    ),
    ("docs/reference/commands.md", "| 0 | done, also when told to stop;", STOPPED),
    ("docs/reference/commands.md", "| 2 | wrong usage, policy or key, or state made under another |", OTHERS),
    ("docs/reference/commands.md", "| 3 | bad data, the rest was processed;", BAD_ROWS),
    ("docs/deployment.md", "answers 429 or 503 with the time to wait", RATED),
    ("docs/deployment.md", "UDP port 162 of the host", PORT),
    ("docs/deployment.md", "over HTTPS at port 8050 of the loopback", SHOWN),
    ("docs/deployment.md", "at 9090, Grafana", SHOWN),
    ("docs/deployment.md", "dashboard at 3000, both on the loopback", SHOWN),
    ("docs/deployment.md", "owned by user 10002", SHOWN),
    ("docs/deployment.md", "readable by user 472", SHOWN),
    (
        "docs/deployment.md",
        "with Prometheus' view of all four services",
        "tests/acceptance/test_compose_up.py::"
        "test_compose_comes_up_healthy_takes_traps_at_port_162_and_gives_counts_to_a_subscriber",
    ),
    ("docs/deployment.md", "9 s by default, and some 3 s more if it led the controllers", HANGS),
    ("docs/deployment.md", "notices in half of that", PARTS),
    ("docs/reference/commands.md", "partition has not opened for longer than ` ends with 1;", UNOPENED),
    ("docs/reference/account.md", "four odds factors for each reader", FACTORS),
    ("docs/reference/account.md", "292 windows at 0.1 cost 29.2 added up, and 9.01 at δ = 1e-6", ADDED_UP),
    ("docs/reference/account.md", "never too small, at most 7 % too large", ROUNDED),
    ("docs/reference/commands.md", "half as long is a broker waited for", PARTS),
    *(
        ("docs/reference/commands.md", "Files of secrets have mode 0600.", test)
        for test in (COMMUNITIES, SNMP_USERS, RADIUS_CLIENTS, HOOKS_FILE, KAFKA_PASSWORD, KAFKA_KEY)
    ),
    (
        "docs/sources.md",
        "The cloud gets 200 when the ingest has stored them.",
        f"{HOOKS_SERVED}test_sightings_are_durable_before_200",
    ),
    (
        "docs/sources.md",
        "Other requests get 401.",
        f"{HOOKS_SERVED}test_a_request_that_is_not_genuine_is_refused_and_its_rows_are_not_counted",
    ),
    (
        "docs/sources.md",
        "webhooks get 503 and streams wait",
        f"{HOOKS_SERVED}test_where_the_ingest_is_away_the_sender_keeps_what_it_has_and_may_send_it_again",
    ),
    ("docs/reference/commands.md", "malformed is named, exit code 2", MALFORMED),
    ("docs/reference/commands.md", "a denied ` ;", TOLD),
    ("docs/thresholds.md", "which ends with exit code 1", TOLD),
    ("docs/thresholds.md", "(of counts, 1) leaves no uncertainty", NO_ROOM),
    ("docs/reference/commands.md", "access point that the policy does not have |", ENDS),
    ("docs/reference/commands.md", "ends within ten seconds with 1", IN_TIME),
    ("docs/reference/policy.md", "| 10 × capacity + 20 |", LARGEST_COUNT),
    ("docs/reference/policy.md", "(12 to 23 windows of 5 min later)", REVISED),
    (
        "docs/reference/policy.md",
        "Colour 1 is below μ − 2σ, 10 above μ + 2σ; between them each colour from 2 to 9 is σ/2 wide and holds its "
        "lower end. Where σ is 0 the colour is 5 at μ, else 1 or 10.",
        COLOURED,
    ),
    ("docs/reference/records.md", "by which ` are colours, 1 to 10; null", COLOURED),
    ("docs/page.md", "rooms in ten colours, each with its number", COLOURED),
    (
        "docs/page.md",
        "is a game of five minutes",
        f"{GAME}test_the_clock_stands_while_the_truth_is_read",
    ),
    (
        "docs/reference/policy.md",
        "six windows with each window behind the first 48 of 5 min of the next day",
        DAY_REVISED,
    ),
    ("docs/reference/records.md", "come behind the first 48 windows of five minutes of the next", DAY_REVISED),
    ("docs/reference/records.md", "the first sixth of the day), six windows of the day with each window", DAY_REVISED),
    ("docs/reference/records.md", "half width of a 95 % interval", HALF_WIDTH),
]
"""(document, passage, the test that shows it)."""


def prose(document: str) -> str:
    """Return a document's text with one space between words; code and link targets are one backquote each."""
    return " ".join(CODE.sub(" ` ", DOCUMENTS[document]).split())


@pytest.mark.parametrize(("document", "text"), MADE + [claim[:2] for claim in TESTED])
def test_what_is_claimed_stands_in_its_document_as_it_is_made(document: str, text: str) -> None:
    assert text in prose(document)


@pytest.mark.parametrize("node", sorted({claim[2] for claim in TESTED}))
def test_a_test_that_is_named_is_there(node: str) -> None:
    path, _, name = node.partition("::")
    assert re.search(rf"^(?:async )?def {name}\(", (ROOT / path).read_text(), flags=re.MULTILINE)
