// What is forecast: the next hours and floors of today, and the busiest hour of each of the next days.

import { clock, day, number } from "./format.js";
import { h, put } from "./dom.js";
import { floorTitle, fromTheTop } from "./records.js";
import { strings } from "./strings.js";

const HOURS = 4;

/** The releases that forecast one of these releases at a site. */
export function forecastsOf(counts, releases, site) {
  const base = new Set(counts.releases.map((each) => `${each.audience}/${each.release}`));
  return releases.filter((each) => each.query === "forecast" && base.has(`${each.audience}/${each.base}`) && each.sites.includes(site.site));
}

/** The card; hidden until something was painted. `answers` are those of the service, one for each release. */
export function forecastCard() {
  const words = strings.forecast;
  const lists = { hours: h("ul", { class: "rows" }), floors: h("ul", { class: "rows" }), days: h("ul", { class: "rows" }) };
  const parts = Object.entries(lists).map(([name, list]) => h("div", {}, h("h3", {}, words[name]), list));
  const none = h("p", { class: "soft" }, words.none);
  const why = h("p", { class: "soft why" }, words.why);
  const columns = h("div", { class: "forecast-parts" }, parts);
  const element = h("section", { class: "card forecast", hidden: true }, h("h2", {}, words.title), columns, none, why);
  return { element, paint(answers, now, site) {
    const today = (at) => day(at, site.timezone) === day(now, site.timezone);
    const rows = answers.flatMap(hoursOf).filter((row) => row.at >= now && row.value !== null);
    const building = rows.filter((row) => row.node === "building");
    const hours = building.filter((row) => today(row.at)).slice(0, HOURS);
    const floors = fromTheTop(site).map((floor) => [floor, rows.find((row) => row.node === `floor:${floor.floor}` && today(row.at))]);
    put(lists.hours, hours.map((row) => h("li", {}, hourText(row, site))));
    put(lists.floors, floors.filter(([, row]) => row).map(([floor, row]) => h("li", {}, h("b", {}, floorTitle(floor)), h("span", {}, hourText(row, site)))));
    put(lists.days, busiest(building.filter((row) => !today(row.at)), site).map((row) => h("li", {}, words.day(day(row.at, site.timezone), clock(row.at, site.timezone), number(row.value), range(row)))));
    Object.values(lists).forEach((list, i) => { parts[i].hidden = !list.childElementCount; });
    element.hidden = false;
    none.hidden = rows.length > 0;
    why.hidden = rows.length === 0;
  } };
}

const range = (row) => strings.number.band(number(row.low), number(row.high));
const hourText = (row, site) => strings.forecast.hour(clock(row.at, site.timezone), number(row.usual), number(row.value), range(row));

/** The hours of an answer by node, in the order of time. */
function hoursOf({ start, nodes }) {
  return Object.entries(nodes).flatMap(([node, parts]) => start.map((text, i) => (
    { node, at: Date.parse(text), usual: parts.usual[i], value: parts.value[i], low: parts.low[i], high: parts.high[i] })));
}

/** The hour of each day for which most is forecast. */
function busiest(rows, site) {
  const found = new Map();
  for (const row of rows) {
    const name = day(row.at, site.timezone);
    if (!found.has(name) || row.value > found.get(name).value) found.set(name, row);
  }
  return [...found.values()];
}
