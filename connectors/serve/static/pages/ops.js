// Ops: what the services say of themselves, for operators; and where there are no figures.

import { ask } from "../api.js";
import { h, put } from "../dom.js";
import { age, moment, zoneName } from "../format.js";
import { isoDay } from "../span.js";
import { strings } from "../strings.en.js";

const words = strings.ops;
const AGAIN = 30_000;
const DAY = 86_400_000;
const WEEK = 7 * DAY;
/** Counters that are no drops. */
const TAKEN = ["rows", "accepted", "stale_heartbeats"];

/** Draw the page; see router.js for what a page is given. */
export async function mount(place, context) {
  const { signal } = context;
  const sites = h("div", { class: "ops-sites" });
  put(place, h("h1", {}, words.title), h("p", { class: "soft" }, words.intro), sites,
    h("section", { class: "card" }, h("h2", {}, words.absent), h("ul", { class: "plain" }, words.absentText.map((text) => h("li", {}, text)))));
  const draw = async () => {
    const [told, denied] = await Promise.all([ask("operator", {}, signal), deniedOf(context)]);
    if (signal.aborted) return;
    put(sites, told.sites.length ? told.sites.map((figures) => card(figures, told.free_mib, denied.get(figures.site), context)) : h("p", { class: "notice" }, words.none));
  };
  await draw();
  const again = setInterval(() => draw().catch(() => {}), AGAIN);
  return () => clearInterval(again);
}

/** By site, how many windows were denied to whom, as far as the session's readers are told. */
async function deniedOf({ sites, releases, session, signal }) {
  const told = (site) => session.audiences.filter((audience) => releases.some((release) => release.audience === audience && release.sites.includes(site.site)));
  const to = async (site, audience) => {
    const { rows } = await ask("spends", { audience, site: site.site, from: isoDay(Date.now() - WEEK, site.timezone) }, signal);
    return words.deniedText(rows.reduce((sum, row) => sum + row.denied, 0), audience);
  };
  return new Map(await Promise.all(sites.map(async (site) => [site.site, await Promise.all(told(site).map((audience) => to(site, audience)))])));
}

function card(figures, freeMib, denied, { sites }) {
  const site = sites.find((each) => each.site === figures.site);
  const timezone = site?.timezone ?? "UTC";
  const time = (text) => `${moment(Date.parse(text), timezone)} ${zoneName(Date.parse(text), timezone)}`;
  const rows = [];
  const row = (name, ...values) => rows.push(h("div", {}, h("dt", {}, name), values.flat().filter(Boolean).map((value) => h("dd", {}, value))));
  if (figures.window_end) row(words.window, time(figures.window_end), words.ago(age(figures.lag_seconds)));
  row(words.reached, time(figures.reached), figures.window_end ? words.lag(age((Date.parse(figures.reached) - Date.parse(figures.window_end)) / 1000)) : null);
  observations(row, figures.counters);
  row(words.denied, denied?.length ? denied : words.deniedUnseen);
  row(words.rejected, figures.rejected_messages.toLocaleString("en"));
  if (figures.oldest_key_day) row(words.key, figures.oldest_key_day.slice(0, 10), keyAge(figures));
  if (freeMib !== null) row(words.disk, words.free(freeMib.toLocaleString("en")));
  row(words.ledger, figures.ledger_entries.toLocaleString("en"));
  row(words.policy, figures.policy_version);
  return h("section", { class: "card ops-site", data: { closed: String(figures.closed) } }, h("h2", {}, site?.name ?? figures.site),
    h("p", { class: "ops-state" }, figures.closed ? words.closed : words.running), h("dl", { class: "facts" }, rows));
}

/** How old the oldest key is, by the service's own time: that of the newest window and what it lags behind. */
function keyAge({ window_end: end, lag_seconds: lag, oldest_key_day: oldest }) {
  return end ? words.keyAge(Math.max(0, Math.floor((Date.parse(end) + lag * 1000 - Date.parse(oldest)) / DAY))) : null;
}

function observations(row, counters) {
  if (counters === null) return row(words.rows, words.few);
  const number = (n) => (n ?? 0).toLocaleString("en");
  const dropped = Object.entries(counters).filter(([name, n]) => n > 0 && !TAKEN.includes(name));
  row(words.rows, `${number(counters.accepted)} ${words.taken}`, `${number(counters.late)} ${words.late}`);
  row(words.dropped, dropped.length ? dropped.map(([name, n]) => `${number(n)} ${words.reasons[name] ?? name.replaceAll("_", " ")}`) : words.droppedNone);
}
