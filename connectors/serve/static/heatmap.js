// A place by day and hour, as a coloured table, which keyboards and screen readers can use.

import { h, put } from "./dom.js";
import { boundedNote, day, number, range, wall, withBand, zoneName } from "./format.js";
import { strings } from "./strings.js";
import { roving, tips } from "./tip.js";

const HOURS = Array.from({ length: 24 }, (_, hour) => hour);
const STEPS = 10;

/** Draw hourly rows into `place`, one line per day. */
export function heatmap(place, rows, name, timezone) {
  const days = new Map();
  for (const row of rows) {
    const w = wall(row.from, timezone);
    const key = Date.UTC(w.year, w.month - 1, w.day);
    if (!days.has(key)) days.set(key, { from: row.from, hours: new Map() });
    days.get(key).hours.set(w.hour, row);
  }
  const most = Math.max(1, ...rows.map((row) => row.value ?? 0));
  const cells = new Map();
  const cell = (found, hour) => {
    const row = found.hours.get(hour);
    if (!row) return h("td", {});
    const step = row.value === null ? "hatched" : `q${Math.min(STEPS - 1, Math.max(0, Math.floor((row.value / most) * STEPS)))}`;
    const made = h("td", { class: `cell ${step}` }, h("span", { class: "unseen" }, withBand(row)));
    cells.set(made, row);
    return made;
  };
  const table = h("table", { class: "heat" }, h("caption", { class: "unseen" }, strings.history.map(name)),
    h("thead", {}, h("tr", {}, h("td", {}), HOURS.map((hour) => h("th", { scope: "col" }, hour % 3 ? h("span", { class: "unseen" }, hour) : String(hour).padStart(2, "0"))))),
    h("tbody", {}, [...days.entries()].sort(([a], [b]) => a - b).map(([, found]) =>
      h("tr", {}, h("th", { scope: "row" }, day(found.from, timezone)), HOURS.map((hour) => cell(found, hour))))));
  put(place, h("div", { class: "scroll" }, table), scaleOf(most));
  roving(table, ".cell");
  return tips(table, ".cell", (target) => {
    const row = cells.get(target);
    const hour = `${String(wall(row.from, timezone).hour).padStart(2, "0")}:00 ${zoneName(row.from, timezone)}`;
    return [h("strong", {}, `${day(row.from, timezone)} ${hour}`), h("span", { class: "tip-value" }, withBand(row), h("small", {}, ` (${range(row)})`)),
      row.value < 0 ? h("span", { class: "soft" }, strings.number.negative) : null, row.bounded_to ? h("span", { class: "soft" }, boundedNote([row])) : null,
      h("span", { class: "soft" }, strings.number.kinds[row.kind] ?? "")];
  });
}

function scaleOf(most) {
  return h("div", { class: "legend", "aria-hidden": "true" },
    h("div", { class: "legend-steps" }, Array.from({ length: STEPS }, (_, i) => h("i", { class: `q${i}` }))),
    h("div", { class: "legend-words" }, h("span", {}, "0"), h("span", {}, strings.history.mapScale(number(most)))));
}
