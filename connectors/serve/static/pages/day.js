// Day: published and withheld attributes of rooms, and the meaning of a withheld one.

import { ask } from "../api.js";
import { h, put, throttled } from "../dom.js";
import { date, instant, percent, zoneName } from "../format.js";
import { own } from "../own.js";
import { attributeName, exactEpsilon, factorOf, sensitiveText, valueText } from "../privacy_terms.js";
import { zoneTitle } from "../records.js";
import { remember } from "../router.js";
import { isoDay } from "../span.js";
import { strings } from "../strings.js";

const words = strings.day;
const DAYS = 35;
const AGAIN = 1000;
const MS = 86_400_000;

/** Draw the page; see shell.js for the context. A new day is drawn when it is released. */
export async function mount(place, context) {
  const { parameters, signal } = context;
  const state = { day: parameters.get("day"), room: parameters.get("room") };
  await drawAll(place, context, state);
  const later = throttled(AGAIN, () => drawAll(place, context, state).catch((error) => { if (!signal.aborted && error.status === undefined) throw error; }));
  context.onRelease((record) => { if (record === null || record.attribute) later(); });
  return later.stop;
}

async function drawAll(place, context, state) {
  const { site, audience, signal } = context;
  const given = attributesOf(context.releases, audience, site);
  if (!given.length) return void put(place, h("p", { class: "notice" }, words.none));
  const latest = await ask("latest", { audience, site: site.site }, signal);
  const newest = latest.feed[0]?.window_end;
  const until = newest ? Date.parse(newest) : Date.now();
  const { rows } = await ask("attributes", { audience, site: site.site, from: isoDay(until - DAYS * MS, site.timezone) }, signal);
  if (!rows.length) return void put(place, h("p", { class: "notice" }, words.nothing));
  const days = [...new Set(rows.map((row) => row.day))].sort().reverse();
  const rooms = [...new Set(rows.map((row) => row.zone))].sort();
  if (signal.aborted) return;
  const chosen = state.day !== state.newest && days.includes(state.day);  // whoever looks at the newest day goes on to the next
  Object.assign(state, { day: chosen ? state.day : days[0], newest: days[0], room: rooms.includes(state.room) ? state.room : "" });
  const drawn = { table: h("section", { class: "card" }), means: h("div", { class: "meanings" }) };
  const show = () => draw(drawn, { rows, given, site, state, days });
  const changed = (changes) => {
    Object.assign(state, changes);
    remember("day", { day: state.day === days[0] ? "" : state.day, room: state.room });
    show();
  };
  put(place, h("div", { class: "title" }, h("h1", {}, words.title), h("span", { class: "soft" }, strings.history.local(site.timezone, zoneName(until, site.timezone)))),
    h("p", { class: "soft" }, words.intro), controls(days, rooms, site, state, changed), drawn.table,
    h("section", {}, h("h2", { class: "part-title" }, words.meaning), drawn.means, [words.absent, words.several].map((text) => h("p", { class: "soft why" }, text))));
  show();
}

/** The attributes of a site for a reader: name, release, epsilon and sensitive values. */
export function attributesOf(releases, audience, site) {
  return releases
    .filter((release) => release.audience === audience && release.query === "attributes" && release.sites.includes(site.site))
    .flatMap((release) => release.attributes.map((each) => ({ ...each, release: release.release })));
}

function controls(days, rooms, site, state, changed) {
  const select = (label, value, options, change) => {
    const made = h("select", { "aria-label": label, on: { change: () => change(made.value) } }, options.map(([name, text]) => h("option", { value: name, selected: name === value }, text)));
    return h("label", { class: "choice" }, h("span", { class: "choice-name" }, label), made);
  };
  return h("div", { class: "controls" },
    select(words.which, state.day, days.map((day) => [day, dayName(day, site)]), (day) => changed({ day })),
    select(words.room, state.room, [["", words.everyRoom], ...rooms.map((room) => [room, roomName(room, site)])], (room) => changed({ room })));
}

function draw({ table, means }, { rows, given, site, state, days }) {
  const seen = rows.filter((row) => (state.room ? row.zone === state.room : row.day === state.day));
  const title = state.room ? words.days(roomName(state.room, site)) : words.rooms(dayName(state.day, site));
  const lines = state.room ? days : [...new Set(seen.map((row) => row.zone))];
  const lineOf = (row) => (state.room ? row.day : row.zone);
  const cells = new Map(seen.map((row) => [`${lineOf(row)}/${row.release}/${row.attribute}`, row]));
  put(table, h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, h("table", { class: "table attributes" },
    h("caption", {}, title),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, state.room ? words.columns.day : words.columns.room), given.map((each) => h("th", { scope: "col" }, attributeName(each.attribute))))),
    h("tbody", {}, lines.map((line) => h("tr", {}, h("th", { scope: "row" }, state.room ? dayName(line, site) : roomName(line, site)),
      given.map((each) => cell(cells.get(`${line}/${each.release}/${each.attribute}`)))))))));
  put(means, given.map((each) => meaning(each, seen.filter((row) => row.attribute === each.attribute && row.release === each.release))));
}

function cell(row) {
  if (!row) return h("td", { class: "soft" }, words.notIn);
  if (row.released) return h("td", { class: "told" }, valueText(row.attribute, row.value));
  if (row.reason) return h("td", { class: "soft" }, words.notAsked(own(words.reasons, row.reason) ?? row.reason));
  return h("td", {}, h("span", { class: "withheld" }, words.withheld));
}

/** The summary of an attribute: the number of shown values, and the meaning of the others. */
function meaning({ attribute, epsilon, sensitive }, rows) {
  const asked = rows.filter((row) => !row.reason);
  const chance = percent(1 - Math.exp(-Number(epsilon)));
  return h("div", { class: "card" }, h("h3", {}, attributeName(attribute), " ", h("span", { class: "count" }, words.shown(asked.filter((row) => row.released).length, asked.length))),
    h("p", { class: "why" }, words.means(sensitiveText(attribute, sensitive), chance, exactEpsilon(epsilon), factorOf(epsilon))),
    h("p", { class: "soft why" }, words.exact));
}

function dayName(day, site) {
  const [year, month, dayOfMonth] = day.split("-").map(Number);
  return date(instant({ year, month, day: dayOfMonth, hour: 12 }, site.timezone), site.timezone);
}

function roomName(room, site) {
  const zone = site.floors.flatMap((floor) => floor.zones).find((each) => each.zone === room);
  return zone ? zoneTitle(zone) : room;
}
