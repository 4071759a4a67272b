// History: released values of some places over a period, with bands; the day by hour, a typical week, and files.

import { address, allRows, ask, newestOf, reasonOf } from "../api.js";
import { chart } from "../chart.js";
import { segmented } from "../controls.js";
import { h, put, throttled } from "../dom.js";
import { boundedNote, moment, portion, rfc3339, zoneName } from "../format.js";
import { glanceTable, rowsTable } from "../glance.js";
import { heatmap } from "../heatmap.js";
import { placesControl } from "../places.js";
import { byNode, countsOf, objects, placeTitle } from "../records.js";
import { remember } from "../router.js";
import { BANDED, MOVING, SPANS, daysEarlier, fittingStep, interval, isoDay } from "../span.js";
import { strings } from "../strings.js";
import { typicalWeek } from "../week.js";

const words = strings.history;
const AGAIN = 20_000;
const MAP_DAYS = 42;
const TICK = 300_000;

/** Draw the page; see shell.js for the context. */
export async function mount(place, context) {
  const { site, audience, parameters, signal } = context;
  const counts = countsOf(context.releases, audience, site);
  if (!counts.nodes.length) return void put(place, h("p", { class: "notice" }, strings.live.noCounts));
  const latest = await ask("latest", { audience, site: site.site }, signal);
  const newest = latest.feed.find((feed) => feed.site === site.site)?.window_end;
  if (!newest) return void put(place, h("p", { class: "notice" }, strings.feed.none));
  const state = stateOf(parameters, counts.nodes, site, Date.parse(newest));
  const parts = skeleton(place, words.local(site.timezone, zoneName(state.now, site.timezone)));
  const asking = newestOf(signal);
  const refresh = async () => {
    const mine = asking();
    try {
      await drawAll(parts, { ...context, counts, signal: mine }, state);
    } catch (error) {
      if (!mine.aborted) put(parts.series, h("p", { class: "warning", role: "alert" }, reasonOf(error)));
    }
  };
  const changed = (changes) => {
    Object.assign(state, changes);
    remember("history", { ...Object.fromEntries(parameters), ...written(state) });
    controls.show(state);
    refresh();
  };
  const controls = controlsOf(parts.controls, { site, counts }, state, changed);
  controls.show(state);
  const later = throttled(AGAIN, () => { if (MOVING.includes(state.span)) refresh(); });
  context.onRelease((record) => {
    if (record?.window_end && record.site === site.site) state.now = Math.max(state.now, Date.parse(record.window_end));
    later();
  });
  await refresh();
  return () => {
    later.stop();
    parts.stop();
  };
}

function stateOf(parameters, published, site, now) {
  const nodes = (parameters.get("nodes") ?? "").split(",").filter((node) => published.includes(node));
  const span = SPANS.includes(parameters.get("span")) ? parameters.get("span") : "7d";
  return {
    now, span, nodes: nodes.length ? nodes : [published[0]], step: parameters.get("step") ?? "auto", before: parameters.get("before") === "1",
    first: parameters.get("from") ?? isoDay(now - 6 * 86_400_000, site.timezone), last: parameters.get("to") ?? isoDay(now, site.timezone),
  };
}

const written = (state) => ({
  nodes: state.nodes.join(","), span: state.span, step: state.step === "auto" ? "" : state.step, before: state.before ? "1" : "",
  from: state.span === "own" ? state.first : "", to: state.span === "own" ? state.last : "",
});

function skeleton(place, times) {
  const parts = { drawn: null, hide: null, stop() { this.drawn?.stop(); this.hide?.(); } };
  for (const name of ["controls", "series", "notes", "glance", "map", "week", "rows"]) parts[name] = h("div", { class: `part-${name}` });
  parts.mapTitle = h("h2", {});
  parts.weekTitle = h("h2", {});
  parts.out = h("div", { class: "out" });
  put(place, h("div", { class: "title" }, h("h1", {}, words.title), h("span", { class: "soft" }, times)), parts.controls,
    h("section", { class: "card", "aria-label": words.series }, parts.series, parts.notes),
    h("section", { class: "card" }, h("h2", {}, words.figures), parts.glance, h("p", { class: "soft why" }, words.glanceNote)),
    h("div", { class: "pair" }, h("section", { class: "card" }, parts.mapTitle, h("p", { class: "soft" }, words.mapText), parts.map),
      h("section", { class: "card" }, parts.weekTitle, parts.week)),
    h("section", { class: "card export" }, h("div", {}, h("h2", {}, words.out), h("p", { class: "soft" }, words.outText)), parts.out),
    h("details", { class: "card figures" }, h("summary", {}, words.table), parts.rows));
  return parts;
}

function controlsOf(place, { site, counts }, state, changed) {
  const places = placesControl(counts.nodes, site, (nodes) => changed({ nodes }));
  const spans = segmented(words.span, "span", SPANS.map((span) => [span, words.spans[span]]), state.span, (_, span) => changed({ span }));
  const first = h("input", { type: "date", on: { change: () => first.value && changed({ first: first.value }) } });
  const last = h("input", { type: "date", on: { change: () => last.value && changed({ last: last.value }) } });
  const own = h("span", { class: "own" }, h("label", { class: "choice" }, words.from, first), h("label", { class: "choice" }, words.to, last));
  const step = h("select", { on: { change: () => changed({ step: step.value }) } }, Object.entries(words.steps).map(([value, text]) => h("option", { value }, text)));
  const before = h("input", { type: "checkbox", on: { change: () => changed({ before: before.checked }) } });
  put(place, places.element, h("div", { class: "controls" }, spans, own),
    h("div", { class: "controls" }, h("label", { class: "choice" }, h("span", { class: "choice-name" }, words.step), step),
      h("label", { class: "choice check" }, before, words.before)));
  return { show(now) {
    places.show(now.nodes);
    own.hidden = now.span !== "own";
    [first.value, last.value, step.value, before.checked] = [now.first, now.last, now.step, now.before];
  } };
}

async function drawAll(parts, context, state) {
  const { site, audience, counts, signal } = context;
  const [from, to] = interval(state.span, state.now, site, state.first, state.last);
  const step = state.step === "auto" ? fittingStep(from, to, state.nodes.length) : state.step;
  const question = { audience, site: site.site, from: rfc3339(from), to: rfc3339(to), granularity: step };
  const rowsOf = async (nodes, parameters = {}) => {
    const found = await Promise.all(counts.byRelease(nodes).map(([{ release }, mine]) => allRows(release, { ...question, nodes: mine.join(","), ...parameters }, signal)));
    return { rows: found.flatMap(({ columns, rows }) => objects(columns, rows)), whole: found.every(({ whole }) => whole) };
  };
  parts.series.setAttribute("aria-busy", "true");
  if (!parts.drawn) put(parts.series, h("p", { class: "soft" }, words.asking));
  const shifted = (ms) => daysEarlier(ms, 7, site.timezone);
  const earlier = state.before ? state.nodes.slice(0, Math.max(0, BANDED - state.nodes.length)) : [];
  const [now, week] = await Promise.all([
    rowsOf(state.nodes), earlier.length ? rowsOf(earlier, { from: rfc3339(shifted(from)), to: rfc3339(shifted(to)) }) : null,
  ]);
  if (signal.aborted) return;
  const rows = byNode(now.rows);
  await drawSeries(parts, context, state, { rows, before: week ? byNode(week.rows) : null, step, from, to, shift: from - shifted(from) });
  put(parts.notes, noteLines(now.rows, state, now.whole).map((text) => h("p", { class: "soft why" }, text)));
  put(parts.glance, glanceTable(state.nodes.slice(0, 64), rows, counts, site));
  put(parts.out, [...exportLinks(counts.byRelease(state.nodes), question), reportLink(audience, site, to)]);
  put(parts.rows, rowsTable(now.rows, site));
  await drawByTime(parts, context, state, from, to);
}

/** Links to files with the chart's figures: each contains places of one release. */
function exportLinks(shares, question) {
  return shares.flatMap(([{ release }, nodes]) => ["csv", "parquet"].map((format) => {
    const href = address(`releases/${encodeURIComponent(release)}/records`, { ...question, nodes: nodes.join(","), format });
    return h("a", { class: "button", download: true, href }, shares.length > 1 ? words.fileOf(words[format], release) : words[format]);
  }));
}

/** A link to the report of the month in which the chart's period ends. */
function reportLink(audience, site, to) {
  const month = isoDay(to - 1, site.timezone).slice(0, 7);
  return h("a", { class: "button", download: true, href: address("report", { audience, site: site.site, month, language: strings.locale }) }, words.report(month));
}

async function drawSeries(parts, { site, signal }, state, { rows, before, step, from, to, shift }) {
  const title = (node) => placeTitle(node, site);
  const series = state.nodes.map((node, i) => ({ name: title(node), rows: rows.get(node) ?? [], colour: i % 6, dash: 0 }));
  for (const [node, earlier] of before ?? []) {
    const moved = earlier.map((row) => ({ ...row, from: row.from + shift, to: row.to + shift }));
    series.push({ name: words.beforeName(title(node)), rows: moved, colour: state.nodes.indexOf(node) % 6, dash: 1 });
  }
  parts.drawn?.stop();
  parts.drawn = null;
  parts.series.removeAttribute("aria-busy");
  if (series.every((each) => each.rows.every((row) => row.value === null))) return void put(parts.series, h("p", { class: "notice" }, words.nothing));
  const at = step === "5min" ? (row) => row.to : (row) => (row.from + row.to) / 2;
  const time = (ms) => `${moment(ms, site.timezone)} ${zoneName(ms, site.timezone)}`;
  const label = words.chart(series.slice(0, BANDED).map((each) => each.name).join(", "), time(from), time(to));
  const drawn = await chart(parts.series, series, { timezone: site.timezone, at, label });
  if (signal.aborted) drawn.stop();
  else parts.drawn = drawn;
}

function noteLines(rows, state, whole) {
  const denied = rows.reduce((sum, row) => sum + (row.node === state.nodes[0] ? Number(row.denied) : 0), 0);
  const revised = rows.filter((row) => row.revised).length;
  return [
    boundedNote(rows), state.nodes.length > BANDED ? words.bandsOf(BANDED) : "", state.before && 2 * state.nodes.length > BANDED ? words.beforeFew(BANDED) : "", whole ? "" : words.cut, denied ? words.denied(denied) : "",
    revised ? words.revised(portion(revised / rows.length)) : "", rows.some((row) => row.value < 0) ? strings.number.negative : "",
  ].filter(Boolean);
}

/** The day by hour and the typical week, of the first place. */
async function drawByTime(parts, { site, audience, counts, signal }, state, from, to) {
  const [node] = state.nodes;
  const { release } = counts.of(node);
  const name = placeTitle(node, site);
  const earliest = Math.max(Math.min(from, to - 7 * 86_400_000), to - MAP_DAYS * 86_400_000);
  const hours = { audience, site: site.site, from: rfc3339(earliest), to: rfc3339(to + TICK), granularity: "1h", nodes: node };
  const [found, usual] = await Promise.all([
    allRows(release, hours, signal), ask("usual", { audience, release, site: site.site }, signal),
  ]);
  const rows = objects(found.columns, found.rows);
  put(parts.mapTitle, words.map(name));
  put(parts.weekTitle, words.week(name));
  parts.hide?.();
  parts.hide = heatmap(parts.map, rows, name, site.timezone);
  typicalWeek(parts.week, usual, node, rows, to, site);
}
