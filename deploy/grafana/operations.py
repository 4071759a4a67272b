"""Makes the operators' dashboard: python -m deploy.grafana.operations > deploy/grafana/operations.json

What it asks of Prometheus is what services show with --metrics (docs/reference/metrics.md).
"""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard, DatasourceVariable, Row
from grafana_foundation_sdk.builders.stat import Panel as Stat
from grafana_foundation_sdk.builders.table import Panel as Table
from grafana_foundation_sdk.builders.timeseries import Panel as Series
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.grafana.make import HALF, SHORT, SOURCE, TALL, THIRD, WHOLE, now, query, variable

SITES = '{site=~"$site"}'


def told(title: str, says: str, expression: str, legend: str, unit: str = "short") -> Series:
    """Return one figure over time."""
    panel = Series().title(title).description(says).datasource(SOURCE).unit(unit).height(TALL).span(HALF)
    return panel.with_target(query(expression, legend, "A"))


def at_present(title: str, says: str, expression: str, legend: str, unit: str) -> Stat:
    """Return one figure as it is now."""
    panel = Stat().title(title).description(says).datasource(SOURCE).unit(unit).height(SHORT).span(THIRD)
    return panel.with_target(query(expression, legend, "A"))


def wellness() -> tuple[Stat | Table, ...]:
    """Return what says whether anything is wrong."""
    versions = Table().title("What runs").datasource(SOURCE).height(SHORT).span(WHOLE)
    return (
        at_present("Not well", "Failing checks of readiness.", "count(tacet_check_ok == 0) or vector(0)", "", "short"),
        at_present("Silent sources", "Sources that did not answer their last probe.",
                   "count(tacet_source_up == 0) or vector(0)", "", "short"),
        at_present("Replay mismatches", "Released windows that would have been released differently.",
                   "sum(max_over_time(tacet_replay_mismatches_total[1d])) or vector(0)", "", "short"),
        versions.with_target(now("tacet_build_info", "A")).with_target(now("tacet_policy_info", "B")),
    )  # fmt: skip


def releasing() -> tuple[Series, ...]:
    """Return how far sites have come, and what was released and denied."""
    quantile = "histogram_quantile(0.9, sum by (site, le) (rate(tacet_window_release_delay_seconds_bucket{}[30m])))"
    return (
        told("Lag", "How far a site's watermark is behind the clock.", f"tacet_lag_seconds{SITES}", "{{site}}", "s"),
        told("Release delay", "Nine of ten windows were released within so long of when they could be.",
             quantile.replace("{}", SITES), "{{site}}", "s"),
        told("Released in an hour", "Records by release and audience.",
             f"increase(tacet_releases_total{SITES}[1h])", "{{site}} {{release}} {{audience}}"),
        told("Denied or not asked in an hour", "By reason.",
             f"increase(tacet_refusals_total{SITES}[1h]) > 0", "{{site}} {{release}} {{audience}}: {{reason}}"),
        told("Newest window", "Its age.", f"time() - tacet_window_end_timestamp_seconds{SITES}", "{{site}}", "s"),
        told("Closed sites", "1 where a site is closed at max_devices.", f"tacet_site_closed{SITES}", "{{site}}"),
    )  # fmt: skip


def spending() -> tuple[Series, ...]:
    """Return what has been spent and what is left."""
    spent = 'tacet_privacy_spent_epsilon{site=~"$site",unit=~"device_day|person_day",delta="$delta"}'
    return (
        told("Spent by the day", "What all releases have cost a device's and a person's day, at the chosen delta.",
             spent, "{{site}} {{audience}} {{unit}}"),
        told("Budget left", "What daily budgets still pay.", f"tacet_budget_left_epsilon{SITES}",
             "{{site}} {{release}} {{audience}}"),
        told("Of a budget", "Share of a daily budget that is left.",
             f"tacet_budget_left_epsilon{SITES} / tacet_budget_epsilon{SITES}", "{{site}} {{release}} {{audience}}",
             "percentunit"),
        told("Oldest key", "Since the oldest day began whose key is still held.", "tacet_key_epoch_age_seconds",
             "{{instance}}", "s"),
    )  # fmt: skip


def taking_in() -> tuple[Series, ...]:
    """Return what came in: sums over many people and five minutes, that stay with operators."""
    return (
        told("Datagrams in five minutes", "Those that were taken.", "increase(tacet_datagrams_accepted_total[5m])",
             "{{instance}}"),
        told("Dropped in five minutes", "By reason; the kernel had no room for those of the kernel.",
             "increase(tacet_datagrams_dropped_total[5m]) > 0", "{{instance}} {{reason}}")
        .with_target(query("increase(tacet_kernel_drops_total[5m]) > 0", "{{instance}} kernel", "B")),
        told("Observations in five minutes", "Those that the engine took, and those that it dropped.",
             "increase(tacet_observations_total[5m])", "{{instance}}")
        .with_target(query("increase(tacet_observations_dropped_total[5m]) > 0", "{{instance}} {{reason}}", "B")),
        told("Put aside in an hour", "By reason.", "increase(tacet_quarantined_total[1h]) > 0",
             "{{instance}} {{reason}}"),
        told("Sources", "1 where a source answered its last probe.", "tacet_source_up", "{{site}} {{source}}"),
        told("Clock", "How far the wall clock has left the one that stamps arrivals.", "tacet_clock_offset_seconds",
             "{{instance}}", "s"),
    )  # fmt: skip


def room() -> tuple[Series, ...]:
    """Return what the store takes."""
    return (
        told("Disk left", "Where the store is.", "tacet_disk_free_bytes / tacet_disk_size_bytes", "{{instance}}",
             "percentunit"),
        told("Store", "Its files.", "tacet_store_size_bytes", "{{instance}}", "bytes"),
    )  # fmt: skip


def dashboard() -> Dashboard:
    """Return the dashboard."""
    made = Dashboard("Tacet operations").uid("tacet-operations").tags(["tacet"]).refresh("1m").time("now-24h", "now")
    made = made.timezone("browser").readonly()
    made = made.with_variable(DatasourceVariable("datasource").label("Data source").type("prometheus"))
    made = made.with_variable(variable("site", "tacet_ledger_entries").multi(True).include_all(True))
    made = made.with_variable(variable("delta", "tacet_privacy_spent_epsilon"))
    groups = (("Well", wellness()), ("Releases", releasing()), ("Privacy", spending()), ("Feed", taking_in()),
              ("Store", room()))  # fmt: skip
    for title, panels in groups:
        made = made.with_row(Row(title))
        for panel in panels:
            made = made.with_panel(panel)
    return made


def text() -> str:
    """Return the dashboard's JSON."""
    return JSONEncoder(sort_keys=True, indent=2).encode(dashboard().build()) + "\n"


if __name__ == "__main__":
    print(text(), end="")
