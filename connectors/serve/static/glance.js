// Summary of a period: peak and mean of each place compared with its capacity, and all figures as a table.

import { h } from "./dom.js";
import { band, counted, half, mark, moment, number, portion, range, withBand, zoneName } from "./format.js";
import { placeTitle } from "./records.js";
import { strings } from "./strings.js";

const LISTED = 400;

/** Peak and mean of a node's rows, with their bands; null if nothing was released. The band of the mean is the mean of the bands. */
export function figures(rows) {
  const known = rows.filter((row) => row.value !== null);
  if (!known.length) return null;
  const length = known.reduce((sum, row) => sum + (row.to - row.from), 0);
  const mean = (name) => known.reduce((sum, row) => sum + row[name] * (row.to - row.from), 0) / length;
  return {
    peak: known.reduce((best, row) => (row.value > best.value ? row : best)),
    mean: { value: mean("value"), half_width: mean("half_width"), kind: known.length > 1 ? "at most" : known[0].kind, bounded_to: known.find((row) => row.bounded_to)?.bounded_to },
  };
}

/** The table of peaks and means; `counts` as from countsOf. */
export function glanceTable(nodes, rows, counts, site) {
  const words = strings.history.glance;
  const share = (row, capacity) => capacity === null ? h("span", { class: "soft" }, strings.history.unknown) : `${portion(row.value / capacity)} ±${half((100 * row.half_width) / capacity)}${mark(row)}`;
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": strings.history.figures }, h("table", { class: "table" },
    h("thead", {}, h("tr", {}, [words.place, words.peak, words.when, words.mean, words.capacity, words.peakShare, words.meanShare].map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", {}, nodes.map((node) => {
      const found = figures(rows.get(node) ?? []);
      const capacity = counts.capacity(node);
      if (found === null) return h("tr", {}, h("th", { scope: "row" }, placeTitle(node, site)), h("td", { colspan: 6 }, strings.history.nothing));
      return h("tr", {}, h("th", { scope: "row" }, placeTitle(node, site)), h("td", {}, withBand(found.peak)),
        h("td", {}, `${moment(found.peak.from, site.timezone)} ${zoneName(found.peak.from, site.timezone)}`),
        h("td", {}, `${number(found.mean.value)} ${band(found.mean)}`), h("td", {}, capacity ?? strings.number.none),
        h("td", {}, share(found.peak, capacity)), h("td", {}, share(found.mean, capacity)));
    }))));
}

/** The table of rows, limited to the first ones. */
export function rowsTable(rows, site) {
  const words = strings.history.columns;
  const time = (ms) => `${moment(ms, site.timezone)} ${zoneName(ms, site.timezone)}`;
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": strings.history.table },
    rows.length > LISTED ? h("p", { class: "soft" }, strings.history.tableCut(LISTED, rows.length)) : null,
    h("table", { class: "table" },
      h("thead", {}, h("tr", {}, [words.start, words.end, words.place, words.value, words.band, words.kind, words.note].map((text, i) => h("th", { scope: "col", class: i === 3 || i === 4 ? "figure" : null }, text)))),
      h("tbody", {}, rows.slice(0, LISTED).map((row) => h("tr", {}, h("td", {}, time(row.from)), h("td", {}, time(row.to)),
        h("th", { scope: "row" }, placeTitle(row.node, site)), h("td", { class: "figure" }, counted(row)), h("td", { class: "figure" }, range(row)),
        h("td", {}, row.value === null ? "" : row.kind), h("td", {}, notes(row)))))));
}

function notes(row) {
  const words = strings.history.marks;
  return [
    row.denied ? words.denied(row.denied) : "", row.revised ? words.revised : "",
    row.value < 0 ? words.negative : "", row.coverage < 1 ? words.coverage(portion(row.coverage)) : "",
  ].filter(Boolean).join(", ");
}
