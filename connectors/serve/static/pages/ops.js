// Ops: the status of the services, for operators.

import { ask } from "../api.js";
import { h, put } from "../dom.js";
import { age, moment, whole, zoneName } from "../format.js";
import { strings } from "../strings.js";

const words = strings.ops;
const AGAIN = 30_000;
const DAY = 86_400_000;

/** Draw the page; see shell.js for the context. */
export async function mount(place, context) {
  const { signal } = context;
  const lost = h("div", {});
  const sites = h("div", { class: "ops-sites" });
  put(place, h("h1", {}, words.title), h("p", { class: "soft" }, words.intro), lost, sites,
    h("section", { class: "card" }, h("h2", {}, words.absent), h("ul", { class: "plain" }, words.absentText.map((text) => h("li", {}, text)))));
  const draw = async () => {
    const status = await ask("operator", {}, signal);
    if (signal.aborted) return;
    put(lost, typeof status.outage_seconds === "number" ? h("p", { class: "notice" }, strings.feed.outage(age(status.outage_seconds)), ". ", strings.feed.outageWhy) : []);
    put(sites, status.sites.length ? status.sites.map((figures) => card(figures, status.free_mib, context)) : h("p", { class: "notice" }, words.none));
  };
  await draw();
  const again = setInterval(() => draw().catch(() => {}), AGAIN);
  return () => clearInterval(again);
}

function card(figures, freeMib, { sites }) {
  const site = sites.find((each) => each.site === figures.site);
  const timezone = site?.timezone ?? "UTC";
  const time = (text) => `${moment(Date.parse(text), timezone)} ${zoneName(Date.parse(text), timezone)}`;
  const rows = [];
  const row = (name, ...values) => rows.push(h("div", {}, h("dt", {}, name), values.flat().filter(Boolean).map((value) => h("dd", {}, value))));
  if (figures.window_end) row(words.window, time(figures.window_end), words.ago(age(figures.lag_seconds)));
  if (figures.reached) row(words.reached, time(figures.reached), figures.window_end ? words.lag(age((Date.parse(figures.reached) - Date.parse(figures.window_end)) / 1000)) : null);
  row(words.accepted, counted(figures, figures.accepted));
  row(words.late, counted(figures, figures.late));
  if (figures.dropped) row(words.dropped, reasons(figures.dropped));
  if (figures.traps) {
    row(words.traps, words.trapsText(figures.traps));
    row(words.trapsDropped, reasons({ ...figures.traps.dropped, kernel: figures.traps.kernel_drops }));
  }
  row(words.denied, figures.denied.length ? figures.denied.map(words.deniedText) : words.deniedNone);
  if (figures.rejected_messages !== null) row(words.rejected, whole(figures.rejected_messages));
  if (figures.silent_sources !== null) row(words.silent, whole(figures.silent_sources));
  if (figures.oldest_key_day) row(words.key, figures.oldest_key_day.slice(0, 10), keyAge(figures));
  if (freeMib !== null) row(words.disk, words.free(whole(freeMib)));
  if (figures.ledger_entries !== null) row(words.ledger, whole(figures.ledger_entries));
  if (figures.policy_version) row(words.policy, figures.policy_version);
  return h("section", { class: "card ops-site", data: { state: stateOf(figures) } }, h("h2", {}, site?.name ?? figures.site),
    h("p", { class: "ops-state" }, words.state[stateOf(figures)]), figures.closed === null ? h("p", { class: "soft why" }, words.cluster) : null, h("dl", { class: "facts" }, rows));
}

/** The age of the oldest key, by the service's time: that of the newest window plus its lag. */
function keyAge({ window_end: end, lag_seconds: lag, oldest_key_day: oldest }) {
  return end ? words.keyAge(Math.max(0, Math.floor((Date.parse(end) + lag * 1000 - Date.parse(oldest)) / DAY))) : null;
}

/** "live", "late", "silent" or "closed". A site that the policy no longer has is silent. */
const stateOf = ({ closed, state }) => (closed ? "closed" : state ?? "silent");

/** A count that depends on people; not shown for few access points, nor for a site on Kafka, where `closed` is null. */
const counted = ({ closed }, number) => (typeof number === "number" ? whole(number) : closed === null ? words.notInTopics : words.few);

/** Drops by reason, the most frequent first. */
function reasons(dropped) {
  const found = Object.entries(dropped).filter(([, number]) => number > 0).sort(([, a], [, b]) => b - a);
  return found.length ? found.map(([reason, number]) => words.droppedText(number, reason)) : words.droppedNone;
}
