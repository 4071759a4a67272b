// Live: current counts with bands, compared with usual values, and the state of the data feed.

import { ask } from "../api.js";
import { segmented } from "../controls.js";
import { h, put, throttled } from "../dom.js";
import { clock, dayStart, rfc3339, withBand } from "../format.js";
import { alertsCard, streamsOf } from "../live_alerts.js";
import { forecastCard, forecastsOf } from "../live_forecast.js";
import { floorsOf, placesTable } from "../live_floors.js";
import { awayCard, emptyCard, feedCard, legend, nowCard } from "../live_summary.js";
import { byNode, countsOf, heatOf, objects, peopleOf } from "../records.js";
import { remember } from "../router.js";
import { enough } from "../scale.js";
import { dayChart, spark, usualThrough } from "../spark.js";
import { strings } from "../strings.js";

const AGAIN = 700;
const TODAY_AGAIN = 2500;
/** Usual values change daily, and a page may stay open for weeks. */
const USUAL_AGAIN = 300_000;
const AGE_EVERY = 5000;
const POLL = 60_000;
const DAY = 86_400_000;

/** Draw the page; see shell.js for the context. */
export async function mount(place, context) {
  const { site, audience, releases, parameters, signal } = context;
  const counts = countsOf(releases, audience, site);
  const state = { by: parameters.get("by"), view: parameters.get("view") ?? "rooms", usual: new Map() };
  const streams = streamsOf(releases, audience, site), alerts = alertsCard(streams);
  if (!counts.nodes.length) return alertsAlone(place, context, streams, alerts);
  const view = drawn(place, { ...context, counts, alerts, plans: await plansOf(site, signal) }, state);
  const forecasts = forecastsOf(counts, releases, site);
  const today = () => Promise.all([
    drawToday(view, { ...context, counts }, state), drawForecast(view, forecasts, context),
  ]).catch(quiet(signal));
  const laterToday = throttled(TODAY_AGAIN, today);
  const refresh = async () => {
    const latest = await ask("latest", { audience, site: site.site }, signal);
    view.paint(latest);
    context.announce(view.spoken());
    laterToday();
  };
  const later = throttled(AGAIN, () => refresh().catch(quiet(signal)));
  await refresh();
  context.onRelease((record) => { if (record === null || record.site === site.site) later(); });
  const timers = [setInterval(view.paintAge, AGE_EVERY), setInterval(later, POLL)];
  return () => {
    timers.forEach(clearInterval);
    later.stop();
    laterToday.stop();
    view.hide();
  };
}

/** The page of a reader without counts: alerts, if there are threshold streams. */
async function alertsAlone(place, { site, audience, signal, onRelease }, streams, alerts) {
  put(place, h("p", { class: "notice" }, strings.live.noCounts), alerts.element);
  if (!streams.length) return () => {};
  const refresh = async () => {
    const answer = await ask("latest", { audience, site: site.site }, signal);
    const feed = answer.feed.find((each) => each.site === site.site);
    alerts.paint(objects(answer.columns ?? [], answer.rows), feed?.window_end ? Date.parse(feed.window_end) : null, site);
  };
  const later = throttled(AGAIN, () => refresh().catch(quiet(signal)));
  await refresh();
  onRelease((record) => { if (record === null || record.site === site.site) later(); });
  return () => later.stop();
}

/** The plans of the floors that have one; if a plan cannot be loaded, its floor has tiles. */
async function plansOf(site, signal) {
  const wanted = site.floors.filter((floor) => floor.plan);
  const answers = await Promise.all(wanted.map((floor) =>
    ask(`sites/${encodeURIComponent(site.site)}/plans/${encodeURIComponent(floor.floor)}`, {}, signal).catch(() => null)));
  return new Map(wanted.map((floor, i) => [floor.floor, answers[i]]).filter(([, plan]) => plan !== null));
}

/** A request that was aborted because the page was left is no error. After other errors the age of the figures shows, and the request is repeated. */
const quiet = (signal) => (error) => { if (!signal.aborted && error.status === undefined && error.name !== "TypeError") throw error; };

function drawn(place, context, state) {
  const { site, counts } = context;
  const chart = h("div", { class: "now-chart" });
  const cards = { now: nowCard(chart), feed: feedCard(), empty: emptyCard(), away: awayCard(), forecast: forecastCard() };
  const floorsPlace = h("div", { class: "floors" });
  const tablePlace = h("div", { hidden: true });
  const legendPlace = h("div", {});
  const floors = floorsOf(floorsPlace, site, context.plans, counts);
  const heats = counts.releases.map((release) => heatOf(release, context.releases)).filter(Boolean);
  const estimates = counts.releases.map((release) => peopleOf(release, context.releases)).filter(Boolean);
  let latest = { rows: new Map(), all: [], now: null };

  const known = (row) => (row.usual && !enough(row.usual.n, site) ? { ...row, usual: null } : row);
  const repaint = () => {
    const rows = new Map(latest.all.filter((row) => row.release === counts.of(row.node)?.release).map((row) => [row.node, row]));
    latest.rows = rows;
    for (const heat of heats) colour(rows, heat.base, latest.all.filter((row) => row.release === heat.release));
    for (const estimate of estimates) count(rows, estimate, latest.all.filter((row) => row.release === estimate.release));
    const by = (state.by === "heat" && !heats.length ? null : state.by) ?? ([...rows.values()].some((row) => row.usual) ? "usual" : "capacity");
    cards.now.paint(rows.get("building"), latest.feed, site, rows.values());
    cards.feed.paint(latest.feed, rows.get("building"), site, latest.outage);
    context.alerts.paint(latest.all, latest.now, site);
    cards.empty.paint(rows, site);
    cards.away.paint(rows, site, by === "heat" ? "usual" : by, counts.capacity);
    floors.paint(rows, by);
    controls.querySelector(`[value="${by}"]`).checked = true;
    put(legendPlace, legend(by));
    const table = state.view === "table";
    floorsPlace.hidden = table;
    tablePlace.hidden = !table;
    put(tablePlace, table ? placesTable(rows, counts, site, strings.live.caption(latest.now === null ? "" : clock(latest.now, site.timezone))) : []);
  };
  const chosen = (name, value) => {
    state[name] = value;
    remember("live", { ...Object.fromEntries(context.parameters), [name]: value });
    context.parameters.set(name, value);
    repaint();
  };
  const mapped = heats.length ? [["heat", strings.live.byHeat]] : [];
  const controls = h("div", { class: "controls" },
    segmented(strings.live.colourBy, "by", [["usual", strings.live.byUsual], ...mapped, ["capacity", strings.live.byCapacity]], state.by, chosen),
    segmented(strings.live.view, "view", [["rooms", strings.live.viewTiles], ["table", strings.live.viewTable]], state.view, chosen),
    legendPlace);
  put(place, h("h1", { class: "unseen" }, strings.live.title),
    h("div", { class: "summary" }, cards.now.element, cards.feed.element, cards.empty.element, cards.away.element, cards.forecast.element), context.alerts.element,
    h("div", { class: "floors-head" }, h("h2", {}, strings.live.floors), controls), floorsPlace, tablePlace, howToRead());
  return {
    chart, forecast: cards.forecast, floorsPlace, hide: floors.hide, paintAge: cards.feed.paintAge,
    now: () => latest.now,
    spoken: () => {
      const building = latest.rows.get("building");
      return building ? strings.live.updated(clock(latest.now, site.timezone), withBand(building)) : "";
    },
    paint(answer) {
      const feed = answer.feed.find((each) => each.site === site.site);
      latest = { rows: new Map(), all: objects(answer.columns ?? [], answer.rows).map(known), now: feed?.window_end ? Date.parse(feed.window_end) : null, feed, outage: answer.outage_seconds };
      repaint();
    },
  };
}

/** Set the heat map colours of a release's rooms for their window; rooms without a colour for this window have none. */
function colour(rows, base, heat) {
  const colours = new Map(heat.map((row) => [row.node, row]));
  for (const row of rows.values()) {
    if (row.release !== base || !row.node.startsWith("zone:")) continue;
    const found = colours.get(row.node);
    row.heat = found?.end === row.end ? found.value : null;
  }
}

/** Set the estimates of people of a release's places for their window; a place without one for this window has null. */
function count(rows, { base, provisional }, people) {
  const found = new Map(people.map((row) => [row.node, row]));
  for (const row of rows.values()) {
    if (row.release !== base) continue;
    const estimate = found.get(row.node);
    row.people = estimate?.end === row.end && estimate.value !== null ? { ...estimate, provisional } : null;
  }
}

async function drawForecast(view, forecasts, { site, audience, signal }) {
  const now = view.now();
  if (now === null || !forecasts.length) return;
  const answers = await Promise.all(forecasts.map(({ release }) => ask("forecast", { audience, site: site.site, release }, signal)));
  view.forecast.paint(answers, now, site);
}

async function drawToday(view, { site, audience, signal, counts }, state) {
  const now = view.now();
  if (now === null) return;
  const start = dayStart(now - 1, site);
  const sums = counts.byRelease(counts.nodes.filter((node) => !node.startsWith("zone:")));
  const found = await Promise.all(sums.map(async ([{ release }, nodes]) => {
    const question = { audience, site: site.site, from: rfc3339(start), to: rfc3339(now), granularity: "15min", nodes: nodes.join(",") };
    const [usual, answer] = await Promise.all([
      usualOf(release, { site, audience, signal }, state), ask(`releases/${encodeURIComponent(release)}/records`, question, signal),
    ]);
    const rows = byNode(objects(answer.columns, answer.rows));
    return nodes.map((node) => [node, { rows: rows.get(node) ?? [], usual: usualThrough(usual, node, start, start + DAY, site) }]);
  }));
  const days = new Map(found.flat());
  const none = { rows: [], usual: [] };
  const building = days.get("building") ?? none;
  put(view.chart, days.has("building") ? dayChart(building.rows, building.usual, start, start + DAY, site.timezone) : []);
  for (const target of view.floorsPlace.querySelectorAll("[data-spark]")) {
    const { rows, usual } = days.get(target.dataset.spark) ?? none;
    put(target, spark(rows, usual, start, start + DAY));
  }
}

/** The usual values of a release, reloaded after a while. */
async function usualOf(release, { site, audience, signal }, state) {
  const known = state.usual.get(release);
  if (known && performance.now() - known.asked <= USUAL_AGAIN) return known;
  const usual = { ...await ask("usual", { audience, release, site: site.site }, signal), asked: performance.now() };
  state.usual.set(release, usual);
  return usual;
}

function howToRead() {
  return h("details", { class: "card about" }, h("summary", {}, strings.live.about), strings.live.aboutText.map((text) => h("p", {}, text)));
}
