// The floors of a building as tiles or plans. They are created once and then repainted, so that focus and hover are kept.

import { h, put, s, say, uid } from "./dom.js";
import { band, boundedNote, counted, half, mark, number, people, percent, portion, range, withBand } from "./format.js";
import { own } from "./own.js";
import { link } from "./router.js";
import { floorTitle, fromTheTop, placeTitle, zoneTitle, zonesOf } from "./records.js";
import { MARKS, PERHAPS, capacityStep, compared, direction, heatStep, heatWords, usualStep } from "./scale.js";
import { strings } from "./strings.js";
import { roving, tips } from "./tip.js";

/** The hatching of rooms that are not released. */
const STRIPES = 90;
/** Width of a letter, in font sizes. */
const LETTER = 0.65;

/**
 * Make the floors of `site` in `place`; returns `paint(rows, by)`: rows by node, and "usual", "heat" or "capacity".
 *
 * `plans` is a Map of floor to plan (viewbox, zones, outline); a floor without one has tiles. `counts` is as from countsOf.
 */
export function floorsOf(place, site, plans, counts) {
  const floors = fromTheTop(site).map((floor) => oneFloor(floor, site, plans.get(floor.floor)));
  let latest = new Map();
  put(place, floors.map((floor) => floor.element));
  place.style.setProperty("--most", Math.max(...site.floors.map((floor) => floor.zones.length)));
  const hide = tips(place, "[data-node]", (target) => tipLines(target.dataset.node, latest, site, counts));
  return {
    hide,
    paint(rows, by) {
      latest = rows;
      floors.forEach((floor) => floor.paint(rows, by));
      place.classList.toggle("sums-only", floors.every((floor) => floor.element.classList.contains("without-rooms")));
    },
  };
}

function oneFloor(floor, site, plan) {
  const node = `floor:${floor.floor}`;
  const total = h("span", { class: "floor-total", data: { node } });
  const compare = h("span", { class: "floor-compared chip" });
  const spark = h("div", { class: "floor-spark", data: { spark: node } });
  const hidden = h("p", { class: "soft unreleased" });
  const hatch = uid("hatch");
  const zones = floor.zones.map((zone) => ({ zone, parts: own(plan?.zones, zone.zone) ? shape(zone, plan, hatch) : tile(zone) }));
  const drawn = zones.filter(({ parts }) => parts.path);
  const listed = zones.filter(({ parts }) => !parts.path);
  const title = h("a", { class: "floor-name", href: link("history", { nodes: node }) }, floorTitle(floor));
  const list = h("ul", { class: "tiles", "aria-label": floorTitle(floor) }, listed.map(({ parts }) => h("li", {}, parts.link)));
  roving(list, ".tile");
  const element = h("section", { class: "card floor", data: { floor: floor.floor } },
    h("div", { class: "floor-head" }, h("h3", {}, title), total, compare, spark),
    plan ? planOf(plan, drawn, floor, hatch) : null, listed.length ? list : null, hidden);
  return { element, paint: (rows, by) => {
    const row = rows.get(node);
    compare.hidden = !row?.usual || row.value === null;
    compare.className = `floor-compared chip ${row ? usualStep(row) ?? "" : ""}`;
    say(compare, compare.hidden ? "" : `${MARKS[direction(row)]} ${compared(row)}`);
    const counted = zones.filter(({ zone }) => rows.has(`zone:${zone.zone}`));
    element.classList.toggle("without-rooms", counted.length === 0);
    say(total, row ? withBand(row) : counted.length ? "" : strings.number.notReleased);
    const missing = zones.length - counted.length;
    hidden.hidden = counted.length > 0;
    say(hidden, strings.live.unreleased(missing));
    for (const { zone, parts } of zones) parts.paint(rows.get(`zone:${zone.zone}`), by);
  } };
}

/** A room without a plan: a tile with its figure, its band and one detail. */
function tile(zone) {
  const value = h("b", {});
  const margin = h("small", {});
  const note = h("span", { class: "tile-note" });
  const anchor = h("a", { class: "tile", href: link("history", { nodes: `zone:${zone.zone}` }), data: { node: `zone:${zone.zone}` } },
    h("span", { class: "tile-name" }, zoneTitle(zone)), h("span", { class: "tile-value" }, value, margin), note);
  return { link: anchor, paint(row, by) {
    step(anchor, "tile", row, by, zone.capacity);
    say(value, row ? (row.value === null ? strings.number.denied : number(row.value)) : "");
    say(margin, row && row.value !== null ? band({ ...row, kind: "" }) : "");
    say(note, row ? noteOf(row, by, zone) : strings.number.notReleased);
    anchor.setAttribute("aria-label", spoken(zone, row));
  } };
}

/** A room on a plan: its outline, filled, with the figure in its middle. `hatch` is the pattern of a room without a figure. */
function shape(zone, plan, hatch) {
  const path = s("path", { d: own(plan.zones, zone.zone), class: "shape", fill: `url(#${hatch})` });
  const text = s("text", { class: "shape-text", "aria-hidden": "true" });
  const anchor = s("a", { class: "room", href: link("history", { nodes: `zone:${zone.zone}` }), "data-node": `zone:${zone.zone}`, tabindex: "-1" }, path, text);
  return { path, link: anchor, paint(row, by) {
    step(path, "shape", row, by, zone.capacity);
    const size = Math.max(plan.viewbox[2], plan.viewbox[3]) / 55;
    const box = path.isConnected ? path.getBBox() : { x: 0, y: 0, width: 0, height: 0 };
    const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
    text.setAttribute("font-size", size);
    text.setAttribute("class", `shape-text ${path.dataset.step ? `ink-${path.dataset.step}` : ""}`);
    const value = !row ? strings.number.notReleased : row.value === null ? strings.number.denied : number(row.value);
    const fits = row || box.width > value.length * size * LETTER;
    const lines = [[zoneTitle(zone), -0.9], fits ? [value, 0.45] : null, row && row.value !== null ? [`±${half(row.half_width)}${mark(row)}`, 1.5] : null];
    put(text, lines.filter(Boolean).map(([words, line], i) => s("tspan", { x, y: y + line * size, class: `line-${i}` }, words)));
    anchor.setAttribute("aria-label", spoken(zone, row));
  } };
}

function planOf(plan, drawn, floor, hatch) {
  const stripe = Math.max(plan.viewbox[2], plan.viewbox[3]) / STRIPES;
  const svg = s("svg", { class: "plan", viewBox: plan.viewbox.join(" "), role: "group", "aria-label": floorTitle(floor) },
    s("defs", {}, s("pattern", { id: hatch, width: stripe, height: stripe, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, s("rect", { class: "stripe", width: stripe / 2, height: stripe }))),
    plan.outline.map((d) => s("path", { d, class: "outline" })), drawn.map(({ parts }) => parts.link));
  roving(svg, ".room");
  return svg;
}

function step(element, name, row, by, capacity) {
  const found = row ? { usual: usualStep, heat: heatStep, capacity: capacityStep }[by](row, capacity) : null;
  element.dataset.step = found ?? "";
  element.setAttribute("class", [name, found ?? (row ? "unknown" : "hatched"), row?.likely_empty >= PERHAPS ? "perhaps-empty" : ""].join(" ").trim());
}

function noteOf(row, by, zone) {
  if (row.value === null) return "";
  if (by === "heat") return heatWords(row);
  if (row.likely_empty >= PERHAPS) return `${strings.live.empty(percent(row.likely_empty))}${mark(row)}`;
  if (by === "capacity") return zone.capacity ? strings.live.shareOf(portion(Math.max(0, row.value / zone.capacity)), zone.capacity) : "";
  return row.usual ? `${MARKS[direction(row)]} ${strings.live.byUsual} ${number(row.usual.mean)}` : "";
}

function spoken(zone, row) {
  const kind = own(strings.kinds, zone.kind) ?? zone.kind;
  const name = `${zoneTitle(zone)}, ${kind}`;
  if (!row) return `${name}: ${strings.number.notReleased}`;
  if (row.value === null) return `${name}: ${strings.number.denied}`;
  const empty = row.likely_empty >= PERHAPS ? `, ${strings.live.emptyFull(percent(row.likely_empty))}` : "";
  const heat = row.heat === undefined ? "" : `, ${strings.live.heatIs(heatWords(row))}`;
  const bounded = row.bounded_to ? `, ${strings.number.boundedShort(strings.number.boundOfDay(row.bounded_to))}` : "";
  return `${name}: ${strings.number.full(number(row.value), number(row.low), number(row.high))}, ${compared(row)}${heat}${empty}${bounded}`;
}

/** All details of a place. */
function tipLines(node, rows, site, counts) {
  const row = rows.get(node);
  const zone = zonesOf(site).find((each) => `zone:${each.zone}` === node);
  const capacity = counts.capacity(node);
  const name = zone ? `${zoneTitle(zone)} · ${own(strings.kinds, zone.kind) ?? zone.kind}` : placeTitle(node, site);
  if (!row) return [h("strong", {}, name), h("span", {}, strings.number.notReleased)];
  if (row.value === null) return [h("strong", {}, name), h("span", {}, strings.feed.deniedWhy)];
  return [
    h("strong", {}, name),
    h("span", { class: "tip-value" }, withBand(row), h("small", {}, ` (${range(row)})`)),
    row.people === undefined ? null : h("span", {}, row.people === null ? strings.live.peopleNone : people(row.people)),
    h("span", {}, compared(row)),
    row.heat === undefined ? null : h("span", {}, strings.live.heatIs(heatWords(row))),
    row.usual ? h("span", { class: "soft" }, `${strings.live.columns.usual}: ${number(row.usual.mean)} ±${half(row.usual.deviation)}`) : null,
    capacity ? h("span", { class: "soft" }, `${strings.live.capacity(capacity)} · ${strings.live.share(portion(Math.max(0, row.value) / capacity))}`) : null,
    zone && row.likely_empty >= PERHAPS ? h("span", {}, strings.live.emptyFull(percent(row.likely_empty))) : null,
    row.value < 0 ? h("span", { class: "soft" }, strings.number.negative) : null,
    row.bounded_to ? h("span", { class: "soft" }, boundedNote([row])) : null,
    h("span", { class: "soft" }, strings.number.kinds[row.kind] ?? ""),
  ];
}

/** Every place as a table. */
export function placesTable(rows, counts, site, caption) {
  const words = strings.live.columns;
  const mapped = [...rows.values()].some((row) => row.heat !== undefined);
  const heat = (row) => (mapped ? h("td", {}, row?.heat === undefined || row.value === null ? "" : heatWords(row)) : null);
  const estimated = [...rows.values()].some((row) => row.people !== undefined);
  const estimate = (row) => (estimated ? h("td", { class: "figure" }, row?.people ? people(row.people) : row?.people === null && row.value !== null ? strings.number.none : "") : null);
  const line = (node, name, kind) => {
    const row = rows.get(node);
    const capacity = counts.capacity(node);
    const cells = !row ? [strings.number.notReleased, "", "", "", ""] : [
      row.value === null ? strings.number.denied : counted(row), range(row),
      row.usual ? `${number(row.usual.mean)} ±${half(row.usual.deviation)}` : strings.number.none,
      row.value === null || !row.usual ? "" : compared(row), row.likely_empty >= PERHAPS ? percent(row.likely_empty) : "",
    ];
    return h("tr", { class: node.startsWith("zone") ? "" : "sum" }, h("th", { scope: "row" }, name), h("td", {}, kind), h("td", { class: "figure" }, cells[0]),
      h("td", { class: "figure" }, cells[1]), estimate(row), h("td", { class: "figure" }, cells[2]), h("td", {}, cells[3]), heat(row), h("td", { class: "figure" }, capacity ?? ""), h("td", { class: "figure" }, cells[4]));
  };
  const head = [[words.place], [words.kind], [words.value, "figure"], [words.band, "figure"], estimated ? [words.people, "figure"] : null, [words.usual, "figure"], [words.compared], mapped ? [words.heat] : null, [words.capacity, "figure"], [words.empty, "figure"]];
  return h("div", { class: "card scroll", tabindex: "0", role: "region", "aria-label": caption }, h("table", { class: "table places" }, h("caption", {}, caption),
    h("thead", {}, h("tr", {}, head.filter(Boolean).map(([text, name]) => h("th", { scope: "col", class: name }, text)))),
    h("tbody", {}, rows.has("building") ? line("building", strings.node.building, "") : null, fromTheTop(site).map((floor) => [
      line(`floor:${floor.floor}`, floorTitle(floor), ""),
      floor.zones.map((zone) => line(`zone:${zone.zone}`, zoneTitle(zone), own(strings.kinds, zone.kind) ?? zone.kind)),
    ]))));
}
