// A day as a line with its band over the usual values. It is SVG, so that it prints and scales.

import { h, s } from "./dom.js";
import { clock, counted, dayClass, number, range, wall, withBand, zoneName } from "./format.js";
import { enough } from "./scale.js";
import { strings } from "./strings.js";

const WIDTH = 600;
const HEIGHT = 160;

/** The usual values of a node through a day: [ms, mean, deviation] for known slots. */
export function usualThrough(usual, node, start, end, site) {
  const { timezone } = site;
  const classes = usual?.nodes?.[node];
  if (!classes) return [];
  const step = usual.slot_seconds * 1000;
  const found = [];
  for (let at = start; at <= end; at += step) {
    const w = wall(at, timezone);
    const slot = classes[dayClass(at, timezone)]?.[Math.floor((w.hour * 3600 + w.minute * 60) / usual.slot_seconds)];
    if (slot && enough(slot[2], site)) found.push([at, slot[0], slot[1]]);
  }
  return found;
}

/** The SVG of rows (start, end in ms; value, low, high) between two times; `usual` as from usualThrough. */
export function spark(rows, usual, start, end, top = scaleTop(rows, usual)) {
  const x = (ms) => (((ms - start) / (end - start)) * WIDTH).toFixed(1);
  const y = (value) => (HEIGHT - (Math.max(0, value) / top) * HEIGHT).toFixed(1);
  const runs = unbroken(rows);
  const area = (points, low, high) => points.length < 2 ? "" :
    `M${points.map((p) => `${x(p.at)},${y(high(p))}`).join("L")}L${points.toReversed().map((p) => `${x(p.at)},${y(low(p))}`).join("L")}Z`;
  const line = (points, value) => points.length ? `M${points.map((p) => `${x(p.at)},${y(value(p))}`).join("L")}` : "";
  const expected = usual.map(([at, mean, deviation]) => ({ at, mean, deviation }));
  return s("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true", focusable: "false" },
    s("path", { class: "spark-usual", d: area(expected, (p) => p.mean - p.deviation, (p) => p.mean + p.deviation) }),
    s("path", { class: "spark-mean", d: line(expected, (p) => p.mean) }),
    s("path", { class: "spark-band", d: runs.map((run) => area(run, (p) => p.low, (p) => p.high)).join("") }),
    s("path", { class: "spark-line", d: runs.map((run) => line(run, (p) => p.value)).join("") }));
}

/** The largest figure of the axis, at least 5 devices, so that noise on an empty place does not look large. */
export function scaleTop(rows, usual) {
  return Math.max(5, ...rows.filter((row) => row.value !== null).map((row) => row.high), ...usual.map(([, mean, deviation]) => mean + deviation)) * 1.05;
}

function unbroken(rows) {
  const runs = [[]];
  for (const row of rows) {
    if (row.value === null) runs.push([]);
    else runs.at(-1).push({ at: (row.from + row.to) / 2, value: row.value, low: row.low, high: row.high });
  }
  return runs.filter((run) => run.length);
}

/** The day's chart with its axes, a description, and a table for screen readers. */
export function dayChart(rows, usual, start, end, timezone) {
  const top = scaleTop(rows, usual);
  const hours = [];
  for (let at = start; at <= end; at += 3_600_000) if (wall(at, timezone).hour % 4 === 0) hours.push(at);
  const label = (text, where, name) => {
    const found = h("span", { class: name, "aria-hidden": "true" }, text);
    Object.assign(found.style, where);
    return found;
  };
  const levels = niceLevels(top);
  const plot = h("div", { class: "plot" }, spark(rows, usual, start, end, top),
    levels.map((level) => label(number(level), { bottom: `${(level / top) * 100}%` }, "level")),
    hours.map((at, i) => label(clock(at, timezone), { left: `${((at - start) / (end - start)) * 100}%` }, ["hour", i % 2 ? "minor" : "", i ? "" : "first"].join(" "))));
  return h("figure", { class: "today" }, h("figcaption", {}, described(rows, timezone)), plot, hourTable(rows, timezone));
}

/** Round values for two to four grid lines below the top of a chart. */
export function niceLevels(top) {
  const power = 10 ** Math.floor(Math.log10(top / 3));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => top / each < 4.5);
  return Array.from({ length: Math.floor((top * 0.97) / step) }, (_, i) => (i + 1) * step);
}

/** "Today from the start of the day: first 3 ±4, peak 158 ±31 at 14:15." */
export function described(rows, timezone) {
  const known = rows.filter((row) => row.value !== null);
  if (!known.length) return strings.live.todayNone;
  const peak = known.reduce((best, row) => (row.value > best.value ? row : best));
  return strings.live.todayOf(withBand(known[0]), withBand(peak), `${clock(peak.from, timezone)} ${zoneName(peak.from, timezone)}`);
}

function hourTable(rows, timezone) {
  const { value, band } = strings.live.columns;
  return h("table", { class: "unseen" }, h("caption", {}, strings.live.today),
    h("thead", {}, h("tr", {}, [strings.live.today, value, band].map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", {}, rows.filter((row, i) => i % 4 === 0).map((row) =>
      h("tr", {}, h("th", { scope: "row" }, clock(row.from, timezone)), h("td", {}, counted(row)), h("td", {}, range(row))))));
}
