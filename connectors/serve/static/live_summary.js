// The top of Live: the building's count, the state of the feed, rooms that are probably empty, and unusual places.

import { h, put, say } from "./dom.js";
import { age, band, boundedNote, clock, dayClass, half, mark, moment, number, people, percent, portion, range, withBand, zoneName } from "./format.js";
import { link } from "./router.js";
import { placeTitle, zoneTitle, zonesOf } from "./records.js";
import { MARKS, PERHAPS, capacityStep, compared, deviations, direction, usualStep } from "./scale.js";
import { strings } from "./strings.js";

const LISTED = 8;

/** The building's count; `chart` is an element beside it. */
export function nowCard(chart) {
  const words = strings.live;
  const value = h("span", { class: "big-value" });
  const margin = h("span", { class: "big-band" });
  const between = h("p", { class: "soft" });
  const estimate = h("p", { class: "people", hidden: true });
  const versus = h("p", { class: "versus" });
  const usual = h("p", { class: "soft" });
  const bounded = h("p", { class: "soft why bounded" });
  const title = h("span", {});
  const at = h("span", { class: "soft" });
  const element = h("section", { class: "card now" },
    h("div", { class: "now-figure" }, h("h2", {}, title, " ", at), h("p", { class: "big" }, value, " ", margin), between, estimate, versus, usual, bounded), chart);
  return { element, paint(row, feed, site, rows) {
    const now = feed?.window_end ? Date.parse(feed.window_end) : null;
    const live = feed?.state === "live";
    say(title, live ? words.now : words.last);
    say(at, now === null ? "" : words.at((live ? clock : moment)(now, site.timezone), zoneName(now, site.timezone)));
    element.classList.toggle("without-total", !row);
    say(value, !row ? strings.number.none : row.value === null ? strings.number.denied : number(row.value));
    say(margin, row && row.value !== null ? band(row) : "");
    say(between, row && row.value !== null ? `${strings.live.columns.band}: ${range(row)} ${strings.number.devices(2)}` : strings.live.noTotal);
    estimate.hidden = row?.people === undefined || row.value === null;
    say(estimate, estimate.hidden ? "" : row.people === null ? words.peopleNone : `${people(row.people)} (${row.people.provisional ? words.peopleProvisional(row.people.provisional) : words.peopleBand})`);
    say(bounded, boundedNote(rows));
    bounded.hidden = !bounded.textContent;
    const known = Boolean(row?.usual) && row.value !== null;
    versus.hidden = !known;
    versus.className = `versus ${known ? usualStep(row) : ""}`;
    say(versus, known ? `${MARKS[direction(row)]} ${compared(row)}` : "");
    say(usual, known ? words.usual(number(row.usual.mean), half(row.usual.deviation), words.classes[row.usual.class ?? dayClass(now, site.timezone)]) : words.usualNot);
  } };
}

/** Whether data arrives, independent of the count. */
export function feedCard() {
  const words = strings.feed;
  const state = h("p", { class: "feed-state" });
  const newest = h("p", { class: "soft" });
  const coverage = h("p", { class: "soft" });
  const meaning = h("p", {});
  const element = h("section", { class: "card feed", "aria-label": words.title }, state, newest, coverage, meaning);
  let shown = null;
  const paintAge = () => {
    if (shown === null) return;
    const seconds = shown.feed.age_seconds + (performance.now() - shown.heard) / 1000;
    say(newest, words.newest(`${clock(Date.parse(shown.feed.window_end), shown.timezone)} ${zoneName(Date.parse(shown.feed.window_end), shown.timezone)}`, age(seconds)));
  };
  return { element, paintAge, paint(feed, building, site, outage) {
    shown = feed?.window_end ? { feed, timezone: site.timezone, heard: performance.now() } : null;
    const [name, text, why] = feedState(feed, building, outage);
    element.dataset.state = name;
    say(state, text);
    say(meaning, why);
    say(coverage, shown ? words.coverage(portion(feed.coverage)) : "");
    if (shown) paintAge();
    else say(newest, "");
  } };
}

function feedState(feed, building, outage) {
  const words = strings.feed;
  if (typeof outage === "number") return ["silent", words.outage(age(outage)), words.outageWhy];
  if (!feed?.window_end) return ["silent", words.silent, words.none];
  if (feed.state !== "live") return [feed.state, words[feed.state], words.lateWhy];
  if (feed.denied) return ["denied", words.denied, words.deniedWhy];
  const empty = building?.likely_empty >= PERHAPS ? words.healthyEmpty(`${percent(building.likely_empty)}${mark(building)}`) : words.healthy;
  return feed.coverage < 1 ? ["partly", words.partly(portion(feed.coverage)), words.partlyWhy] : ["live", words.live, empty];
}

/** The rooms that have a figure; where rooms are not released, the floors. */
function places(rows, site) {
  const rooms = zonesOf(site).map((zone) => ({ name: zoneTitle(zone), row: rows.get(`zone:${zone.zone}`) })).filter(({ row }) => row && row.value !== null);
  return rooms.length ? rooms : [...rows.values()].filter((row) => row.node.startsWith("floor:") && row.value !== null).map((row) => ({ name: placeTitle(row.node, site), row }));
}

/** Rooms that are probably empty, the most probable first. */
export function emptyCard() {
  const count = h("span", { class: "count" });
  const list = h("ul", { class: "pills" });
  const more = h("p", { class: "soft" });
  const why = h("p", { class: "soft why" }, strings.live.emptyWhy);
  const element = h("section", { class: "card empties" }, h("h2", {}, strings.live.empties, " ", count), list, more, why);
  return { element, paint(rows, site) {
    const all = places(rows, site);
    const empty = all.filter(({ row }) => row.likely_empty >= PERHAPS).sort((a, b) => b.row.likely_empty - a.row.likely_empty);
    say(count, empty.length ? strings.live.emptyCount(empty.length, all.length) : "");
    put(list, empty.slice(0, LISTED).map(({ name, row }) => h("li", {}, h("a", { href: link("history", { nodes: row.node }) }, h("b", {}, name), ` ${percent(row.likely_empty)}${mark(row)}`))));
    why.hidden = !empty.length;
    more.hidden = empty.length > 0 && empty.length <= LISTED;
    say(more, !empty.length ? strings.live.emptyNone(percent(PERHAPS)) : empty.length > LISTED ? strings.live.emptyMore(empty.length - LISTED) : "");
  } };
}

/** Places whose band does not contain the usual value, the largest difference first; by capacity, the fullest places. */
export function awayCard() {
  const title = h("h2", {});
  const list = h("ul", { class: "rows" });
  const none = h("p", { class: "soft" });
  const element = h("section", { class: "card away" }, title, list, none);
  return { element, paint(rows, site, by, capacityOf) {
    const all = places(rows, site);
    const [chosen, empty] = by === "usual" ? away(all) : fullest(all, capacityOf);
    say(title, by === "usual" ? strings.live.busier : strings.live.fullest);
    put(list, chosen.slice(0, 5).map(({ name, row, step, text }) => h("li", {},
      h("a", { href: link("history", { nodes: row.node }) }, name), h("span", {}, withBand(row)), h("span", { class: `chip ${step}` }, text))));
    say(none, chosen.length ? "" : empty);
  } };
}

function away(all) {
  const known = all.filter(({ row }) => deviations(row) !== null);
  const found = known.filter(({ row }) => direction(row) !== "same").sort((a, b) => Math.abs(deviations(b.row)) - Math.abs(deviations(a.row)));
  const told = found.map(({ name, row }) => ({ name, row, step: usualStep(row), text: `${MARKS[direction(row)]} ${compared(row)}` }));
  return [told, known.length ? strings.live.busierNone : strings.live.busierHidden];
}

function fullest(all, capacityOf) {
  const known = all.map(({ name, row }) => ({ name, row, capacity: capacityOf(row.node) })).filter(({ capacity }) => capacity);
  const share = ({ row, capacity }) => Math.max(0, row.value) / capacity;
  const told = known.filter(({ row }) => row.low > 0).sort((a, b) => share(b) - share(a)).map(({ name, row, capacity }) => (
    { name, row, step: capacityStep(row, capacity), text: strings.live.shareOf(portion(share({ row, capacity })), capacity) }));
  return [told, strings.live.fullestNone];
}

/** The legend of the ten colours. */
export function legend(by) {
  const words = strings.live;
  const [[low, middle, high], text, letter] = {
    usual: [words.legendUsual, words.legendUsualText, "d"], heat: [words.legendHeat, words.legendHeatText, "d"],
    capacity: [words.legendCapacity, words.legendCapacityText, "q"],
  }[by];
  return h("div", { class: `legend by-${by}`, role: "img", "aria-label": text },
    h("div", { class: "legend-steps" }, Array.from({ length: 10 }, (_, i) => h("i", { class: `${letter}${i}` }, by === "heat" ? i + 1 : null))),
    h("div", { class: "legend-words" }, h("span", {}, low), h("span", {}, middle), h("span", {}, high)));
}
