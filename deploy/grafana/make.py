"""Makes the dashboard beside it: python deploy/grafana/make.py > deploy/grafana/dashboard.json

Every figure has its band. Its queries use the metrics of 'tacet export prometheus'.
"""

from __future__ import annotations

from collections.abc import Iterator

from grafana_foundation_sdk.builders.dashboard import Dashboard, DatasourceVariable, QueryVariable
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.stat import Panel as Stat
from grafana_foundation_sdk.builders.table import Panel as Table
from grafana_foundation_sdk.builders.timeseries import Panel as Series
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    VariableRefresh,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
OF_SITE = '{site="$site"}'
OF_RELEASE = '{site="$site",release="$release"}'
VALUE, LOW, HIGH = "tacet_occupancy", "tacet_occupancy_low", "tacet_occupancy_high"
TALL, SHORT, WHOLE, HALF, THIRD = 9, 5, 24, 12, 8


def query(expression: str, legend: str, name: str) -> Dataquery:
    """Return a query over the range that is shown."""
    return Dataquery().expr(expression).legend_format(legend).ref_id(name).datasource(SOURCE).range()


def now(expression: str, name: str) -> Dataquery:
    """Return a query of the present, as a table."""
    return Dataquery().expr(expression).ref_id(name).datasource(SOURCE).instant().format(PromQueryFormat.TABLE)


def of_nodes(metric: str, nodes: str) -> str:
    """Return the query of some nodes."""
    return f'{metric}{{site="$site",release="$release",node=~"{nodes}"}}'


def band(title: str, nodes: str, width: int) -> Series:
    """Return values over time between the ends of their bands."""
    panel = Series().title(title).datasource(SOURCE).unit("devices").axis_soft_min(0).height(TALL).span(width)
    panel = panel.description("95 % of released values lie within the band around the count. Gaps are denied windows.")
    for metric, legend, name in ((VALUE, "{{node}}", "A"), (LOW, "{{node}} low", "B"), (HIGH, "{{node}} high", "C")):
        panel = panel.with_target(query(of_nodes(metric, nodes), legend, name))
    thin = [
        DynamicConfigValue(id_val="custom.lineStyle", value={"fill": "dash", "dash": [4, 4]}),
        DynamicConfigValue(id_val="custom.lineWidth", value=1),
    ]
    return panel.override_by_regexp("/ (low|high)$/", thin)


def zones() -> Table:
    """Return each zone's value now, and the ends of its band."""
    panel = Table().title("Zones now").datasource(SOURCE).unit("devices").height(TALL).span(HALF)
    for metric, name in ((VALUE, "A"), (LOW, "B"), (HIGH, "C")):
        panel = panel.with_target(now(of_nodes(metric, "zone:.+"), name))
    names = {"node": "zone", "Value #A": "devices", "Value #B": "low", "Value #C": "high"}
    hidden = dict.fromkeys(("Time", "__name__", "instance", "job", "release", "site"), True)
    panel = panel.with_transformation(DataTransformerConfig(id_val="merge", options={}))
    organised = {"renameByName": names, "excludeByName": hidden}
    return panel.with_transformation(DataTransformerConfig(id_val="organize", options=organised))


def health() -> Iterator[Stat]:
    """Yield what tells a feed that is silent, or denied, from a building that is empty."""
    for title, expression, unit in (
        ("Since the newest window ended", f"time() - tacet_release_window_end_seconds{OF_RELEASE}", "s"),
        ("Newest window denied", f"tacet_release_denied{OF_RELEASE}", "bool_yes_no"),
        ("Coverage", f"tacet_release_coverage_ratio{OF_RELEASE}", "percentunit"),
    ):
        panel = Stat().title(title).datasource(SOURCE).unit(unit).height(SHORT).span(THIRD)
        yield panel.with_target(query(expression, "{{release}}", "A"))


def variable(name: str, metric: str) -> QueryVariable:
    """Return a choice among the values of a label."""
    return (
        QueryVariable(name).label(name.title()).datasource(SOURCE).query(f"label_values({metric}, {name})")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
    )  # fmt: skip


def dashboard() -> Dashboard:
    """Return the dashboard."""
    made = Dashboard("Occupancy").uid("tacet-occupancy").tags(["tacet"]).refresh("1m").time("now-24h", "now")
    made = made.timezone("browser").readonly()
    made = made.with_variable(DatasourceVariable("datasource").label("Data source").type("prometheus"))
    made = made.with_variable(variable("site", "tacet_release_window_end_seconds"))
    made = made.with_variable(variable("release", f"tacet_release_window_end_seconds{OF_SITE}"))
    made = made.with_variable(variable("node", f"{VALUE}{OF_RELEASE}"))
    for panel in (*health(), band("Building", "building", WHOLE), band("Floors", "floor:.+", HALF), zones()):
        made = made.with_panel(panel)
    return made.with_panel(band("$node", "$node", WHOLE))


def text() -> str:
    """Return the dashboard's JSON."""
    return JSONEncoder(sort_keys=True, indent=2).encode(dashboard().build()) + "\n"


if __name__ == "__main__":
    print(text(), end="")
