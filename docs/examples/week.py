"""A building's week from its released counts: one day with its band, the week, and day by hour, as three figures.

    python docs/examples/week.py --store store --audience public --out figures

Needs the optional libraries (``deploy/install ENVIRONMENT --extras``). It reads what the audience may read, and
nothing else.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from zoneinfo import ZoneInfo

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import DateFormatter
from matplotlib.figure import Figure

import tacet

BAND = ["value", "low", "high"]


def main() -> None:
    """Read the frame, draw the figures, and print what they show in words."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--audience", default="public")
    parser.add_argument("--timezone", type=ZoneInfo, default=ZoneInfo("America/Los_Angeles"), help="of the building")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(exist_ok=True)

    table = tacet.frame(store=options.store, audience=options.audience)
    building = table[table["node"] == "building"].assign(time=table["window_end"].dt.tz_convert(options.timezone))
    draw_day(busiest_day(building), options.timezone).savefig(options.out / "day.png")
    draw_week(building, options.timezone).savefig(options.out / "week.png")
    draw_hours(building).savefig(options.out / "hours.png")
    print(in_words(building))


def local_days(building: pd.DataFrame) -> pd.Series[pd.Timestamp]:
    """Return the local day of each window: one that ends at midnight is the day's before."""
    return (building["time"] - pd.Timedelta(1, "us")).dt.normalize()


def busiest_day(building: pd.DataFrame) -> pd.DataFrame:
    """Return the windows of the local day with the highest mean."""
    days = local_days(building)
    return building[days == building["value"].groupby(days).mean().idxmax()]


def with_band(title: str, zone: ZoneInfo, marks: str) -> tuple[Figure, Axes]:
    """Return empty axes for devices over local time."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots()
    axes.xaxis.set_major_formatter(DateFormatter(marks, tz=zone))  # type: ignore[no-untyped-call]
    axes.set(title=title, xlabel=f"local time ({zone.key})", ylabel="devices in the building")
    return figure, axes


def draw_day(day: pd.DataFrame, zone: ZoneInfo) -> Figure:
    """Draw each window of a day with its 95 % band; windows that were denied stay empty."""
    figure, axes = with_band(f"{day['time'].iloc[0]:%A, %d %B %Y}", zone, "%H:%M")
    axes.fill_between(day["time"], day["low"], day["high"], step="pre", alpha=0.3, label="95 % band")
    axes.step(day["time"], day["value"], where="pre", linewidth=1, label="released")
    axes.set_ylim(bottom=0)
    axes.legend()
    return figure


def draw_week(building: pd.DataFrame, zone: ZoneInfo) -> Figure:
    """Draw means by the hour. Errors of neighbouring windows may go the same way, so a mean keeps the mean band."""
    hours = building.resample("1h", on="time", closed="right", label="right")[BAND].mean()
    figure, axes = with_band("The week", zone, "%a %d")
    axes.fill_between(hours.index, hours["low"], hours["high"], alpha=0.3, label="95 % band, at most so wide")
    axes.plot(hours.index, hours["value"], linewidth=1, label="mean of the hour")
    axes.set_ylim(bottom=0)
    axes.legend()
    return figure


def draw_hours(building: pd.DataFrame) -> Figure:
    """Draw day by hour: the darker, the fuller."""
    hours = (building["time"] - pd.Timedelta(1, "us")).dt.hour
    grid = building["value"].groupby([local_days(building), hours]).mean().unstack()
    figure = Figure(figsize=(9, 3), layout="constrained")
    axes = figure.subplots()
    shown = axes.imshow(grid, aspect="auto", cmap="cividis_r")
    axes.set_xticks(range(grid.shape[1]), [str(hour) for hour in grid.columns])
    axes.set_yticks(range(grid.shape[0]), [f"{day:%a %d}" for day in grid.index])
    axes.set(title="Day by hour", xlabel="local hour")
    figure.colorbar(shown, label="devices, mean of the hour")
    return figure


def in_words(building: pd.DataFrame) -> str:
    """Return the peak with its band, and how many windows were denied."""
    peak = building.sort_values("value", ascending=False).iloc[0]
    denied = len(building) - int(building["released"].sum())
    return (
        f"peak: {peak['value']:.0f} devices ({peak['low']:.0f} to {peak['high']:.0f}) at {peak['time']:%a %H:%M}; "
        f"{len(building)} windows, {denied} denied"
    )


if __name__ == "__main__":
    main()
