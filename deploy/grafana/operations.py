"""Makes the operators' dashboard: python -m deploy.grafana.operations > deploy/grafana/operations.json

Its queries use the metrics that services export with --metrics (docs/reference/metrics.md).
"""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard, DatasourceVariable, Row
from grafana_foundation_sdk.builders.stat import Panel as Stat
from grafana_foundation_sdk.builders.table import Panel as Table
from grafana_foundation_sdk.builders.timeseries import Panel as Series
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.grafana.make import HALF, SHORT, SOURCE, TALL, THIRD, WHOLE, now, query, variable

SITES = '{site=~"$site"}'


def figure(title: str, description: str, expression: str, legend: str, unit: str = "short") -> Series:
    """Return one figure over time."""
    panel = Series().title(title).description(description).datasource(SOURCE).unit(unit).height(TALL).span(HALF)
    return panel.with_target(query(expression, legend, "A"))


def present_figure(title: str, description: str, expression: str, legend: str, unit: str) -> Stat:
    """Return one figure as it is now."""
    panel = Stat().title(title).description(description).datasource(SOURCE).unit(unit).height(SHORT).span(THIRD)
    return panel.with_target(query(expression, legend, "A"))


def health() -> tuple[Stat | Table, ...]:
    """Return the panels that show whether anything is wrong."""
    versions = Table().title("What runs").datasource(SOURCE).height(SHORT).span(WHOLE)
    return (
        present_figure(
            "Failing checks", "Failing checks of readiness.", "count(tacet_check_ok == 0) or vector(0)", "", "short"
        ),
        present_figure(
            "Silent sources",
            "Sources that did not answer their last probe.",
            "count(tacet_source_up == 0) or vector(0)",
            "",
            "short",
        ),
        present_figure(
            "Replay mismatches",
            "Released windows that a replay would release differently.",
            "sum(max_over_time(tacet_replay_mismatches_total[1d])) or vector(0)",
            "",
            "short",
        ),
        versions.with_target(now("tacet_build_info", "A")).with_target(now("tacet_policy_info", "B")),
    )


def releasing() -> tuple[Series, ...]:
    """Return the progress of sites, and what was released and denied."""
    quantile = "histogram_quantile(0.9, sum by (site, le) (rate(tacet_window_release_delay_seconds_bucket{}[30m])))"
    return (
        figure("Lag", "How far a site's watermark is behind the clock.", f"tacet_lag_seconds{SITES}", "{{site}}", "s"),
        figure(
            "Release delay",
            "The time from when a window could be released until it was, for nine of ten windows.",
            quantile.replace("{}", SITES),
            "{{site}}",
            "s",
        ),
        figure(
            "Released in an hour",
            "Records by release and audience.",
            f"increase(tacet_releases_total{SITES}[1h])",
            "{{site}} {{release}} {{audience}}",
        ),
        figure(
            "Denied or not queried in an hour",
            "By reason.",
            f"increase(tacet_refusals_total{SITES}[1h]) > 0",
            "{{site}} {{release}} {{audience}}: {{reason}}",
        ),
        figure("Newest window", "Its age.", f"time() - tacet_window_end_timestamp_seconds{SITES}", "{{site}}", "s"),
        figure("Closed sites", "1 if a site is suspended at max_devices.", f"tacet_site_closed{SITES}", "{{site}}"),
    )


def spending() -> tuple[Series, ...]:
    """Return what has been spent and what is left."""
    spent = 'tacet_privacy_spent_epsilon{site=~"$site",unit=~"device_day|person_day",delta="$delta"}'
    return (
        figure(
            "Spent by the day",
            "The cost of all releases for a device's and a person's day, at the chosen delta.",
            spent,
            "{{site}} {{audience}} {{unit}}",
        ),
        figure(
            "Budget left",
            "The rest of each daily budget.",
            f"tacet_budget_left_epsilon{SITES}",
            "{{site}} {{release}} {{audience}}",
        ),
        figure(
            "Share of budget left",
            "Share of a daily budget that is left.",
            f"tacet_budget_left_epsilon{SITES} / tacet_budget_epsilon{SITES}",
            "{{site}} {{release}} {{audience}}",
            "percentunit",
        ),
        figure(
            "Oldest key",
            "Time since the beginning of the oldest day whose key still exists.",
            "tacet_key_epoch_age_seconds",
            "{{instance}}",
            "s",
        ),
    )


def receiving() -> tuple[Series, ...]:
    """Return what was received: sums over many people and five minutes, for operators only."""
    return (
        figure(
            "Datagrams in five minutes",
            "Accepted datagrams.",
            "increase(tacet_datagrams_accepted_total[5m])",
            "{{instance}}",
        ),
        figure(
            "Dropped in five minutes",
            "By reason; 'kernel' are those for which the kernel had no space.",
            "increase(tacet_datagrams_dropped_total[5m]) > 0",
            "{{instance}} {{reason}}",
        ).with_target(query("increase(tacet_kernel_drops_total[5m]) > 0", "{{instance}} kernel", "B")),
        figure(
            "Observations in five minutes",
            "Accepted and dropped by the engine.",
            "increase(tacet_observations_total[5m])",
            "{{instance}}",
        ).with_target(query("increase(tacet_observations_dropped_total[5m]) > 0", "{{instance}} {{reason}}", "B")),
        figure(
            "Quarantined in an hour",
            "By reason.",
            "increase(tacet_quarantined_total[1h]) > 0",
            "{{instance}} {{reason}}",
        ),
        figure("Sources", "1 if a source answered its last probe.", "tacet_source_up", "{{site}} {{source}}"),
        figure(
            "Clock",
            "Difference between the wall clock and the clock of receive times.",
            "tacet_clock_offset_seconds",
            "{{instance}}",
            "s",
        ),
    )


def storage() -> tuple[Series, ...]:
    """Return the size of the store, and the space that is left."""
    return (
        figure(
            "Disk left",
            "On the file system of the store.",
            "tacet_disk_free_bytes / tacet_disk_size_bytes",
            "{{instance}}",
            "percentunit",
        ),
        figure("Store", "The size of its files.", "tacet_store_size_bytes", "{{instance}}", "bytes"),
    )


def dashboard() -> Dashboard:
    """Return the dashboard."""
    made = Dashboard("Tacet operations").uid("tacet-operations").tags(["tacet"]).refresh("1m").time("now-24h", "now")
    made = made.timezone("browser").readonly()
    made = made.with_variable(DatasourceVariable("datasource").label("Data source").type("prometheus"))
    made = made.with_variable(variable("site", "tacet_ledger_entries").multi(True).include_all(True))
    made = made.with_variable(variable("delta", "tacet_privacy_spent_epsilon"))
    groups = (
        ("Health", health()),
        ("Releases", releasing()),
        ("Privacy", spending()),
        ("Feed", receiving()),
        ("Store", storage()),
    )
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
