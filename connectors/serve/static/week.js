// A typical week of a place, with the last seven days.

import { h, put } from "./dom.js";
import { day, dayStart, mark, number, wall } from "./format.js";
import { daysEarlier } from "./span.js";
import { scaleTop, spark, usualThrough } from "./spark.js";
import { strings } from "./strings.js";

/** Draw into `place` the usual values of the seven local days up to the one that contains `end`, and the `rows` of that time. */
export function typicalWeek(place, usual, node, rows, end, site) {
  const until = dayStart(end - 1, site, -1);
  const start = daysEarlier(until, 7, site.timezone);
  const expected = usualThrough(usual, node, start, until, site);
  if (!expected.length) return put(place, h("p", { class: "soft" }, strings.history.weekNone));
  const seen = rows.filter((row) => row.to > start && row.from < until);
  const top = scaleTop(seen, expected);
  const days = Array.from({ length: 7 }, (_, i) => daysEarlier(until, 7 - i, site.timezone));
  const label = (at) => {
    const made = h("span", { class: "hour", "aria-hidden": "true" }, h("span", { class: "whole" }, day(at, site.timezone)), h("span", { class: "short" }, strings.history.weekdays[wall(at, site.timezone).weekday]));
    made.style.left = `${((at - start) / (until - start)) * 100}%`;
    return made;
  };
  return put(place, h("p", { class: "soft" }, strings.history.weekText),
    h("div", { class: "plot week-plot" }, spark(seen, expected, start, until, top), days.map(label)), weekTable(expected, site, rows.find((row) => row.bounded_to)));
}

/** A table with every third hour of each class of day. */
function weekTable(expected, site, bounded) {
  const found = new Map();
  for (const [at, mean, deviation] of expected) {
    const w = wall(at, site.timezone);
    if (w.hour % 3 === 0 && w.minute === 0) found.set(`${w.weekday}-${w.hour}`, [w, mean, deviation]);
  }
  return h("details", { class: "figures" }, h("summary", {}, strings.history.weekTable), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": strings.history.weekTable },
    h("table", { class: "table" }, h("thead", {}, h("tr", {}, h("td", {}), [0, 3, 6, 9, 12, 15, 18, 21].map((hour) => h("th", { scope: "col" }, `${String(hour).padStart(2, "0")}:00`)))),
      h("tbody", {}, [1, 2, 3, 4, 5, 6, 0].map((weekday) => h("tr", {}, h("th", { scope: "row" }, strings.history.weekdays[weekday]),
        [0, 3, 6, 9, 12, 15, 18, 21].map((hour) => {
          const cell = found.get(`${weekday}-${hour}`);
          return h("td", {}, cell ? `${number(cell[1])} ±${number(cell[2])}${mark(bounded)}` : strings.number.none);
        })))))));
}
