// Bookings: booked rooms that are probably empty, rooms in use that nobody booked, and rooms of which nothing can be said.

import { ask } from "../api.js";
import { h, put, throttled } from "../dom.js";
import { clock, date, dayStart, half, instant, percent, zoneName } from "../format.js";
import { own } from "../own.js";
import { remember } from "../router.js";
import { isoDay } from "../span.js";
import { strings } from "../strings.js";

const words = strings.bookings;
/** Days that can be chosen; the service knows no bookings of earlier ones. */
const DAYS = 29;
const AGAIN = 5000;

/** Draw the page; see shell.js for the context. It is drawn again when figures arrive. */
export async function mount(place, context) {
  const { session, audience, parameters, signal } = context;
  if (!session.bookings.includes(audience)) return void put(place, h("p", { class: "notice" }, words.other));
  const state = { day: parameters.get("day") };
  await drawAll(place, context, state);
  const later = throttled(AGAIN, () => drawAll(place, context, state).catch((error) => { if (!signal.aborted && error.status === undefined) throw error; }));
  context.onRelease(later);
  return later.stop;
}

async function drawAll(place, context, state) {
  const { site, audience, signal } = context;
  const found = await ask("bookings", { audience, site: site.site, day: state.day }, signal);
  if (signal.aborted) return;
  const changed = (day) => {
    state.day = day;
    remember("bookings", { day });
    return drawAll(place, context, state);
  };
  const heading = h("div", { class: "title" }, h("h1", {}, words.title), h("span", { class: "soft" }, strings.history.local(site.timezone, zoneName(noon(found.day, site), site.timezone))));
  const told = found.rooms.filter((room) => room.reason === null);
  put(place, heading, h("p", { class: "soft" }, words.intro), days(found.day, site, changed),
    found.stale ? h("p", { class: "card soft" }, words.stale) : null,
    spans(words.empty, told, site, (room) => room.booked.filter((span) => span.empty !== null), "empty"),
    spans(words.used, told, site, (room) => room.unbooked, "used"),
    told.length ? everyBooking(told, site) : null,
    silent(found.rooms.filter((room) => room.reason !== null), found),
    h("section", { class: "card" }, h("h2", {}, words.means), h("ul", { class: "plain soft" }, words.assumed(found.assumed, percent).map((text) => h("li", {}, text)))));
}

const noon = (day, site) => {
  const [year, month, dayOfMonth] = day.split("-").map(Number);
  return instant({ year, month, day: dayOfMonth, hour: 12 }, site.timezone);
};

function days(chosen, site, changed) {
  const at = { ...site, day_starts: "00:00" };
  const listed = Array.from({ length: DAYS }, (_, before) => isoDay(dayStart(Date.now(), at, before), site.timezone));
  const every = listed.includes(chosen) ? listed : [chosen, ...listed];
  const select = h("select", { "aria-label": words.day, on: { change: () => changed(select.value) } },
    every.map((day) => h("option", { value: day, selected: day === chosen }, date(noon(day, site), site.timezone))));
  return h("div", { class: "controls" }, h("label", { class: "choice" }, h("span", { class: "choice-name" }, words.day), select));
}

/** "09:00 to 10:00"; the times of another day have their date. */
function times(span, site) {
  if (span.whole_days) return words.wholeDay;
  return strings.number.band(clock(Date.parse(span.start), site.timezone), clock(Date.parse(span.end), site.timezone));
}

function table(title, columns, rows) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title },
    h("table", { class: "table" }, h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, rows)));
}

/** The statements of one kind, by room. */
function spans(text, rooms, site, of, probability) {
  const rows = rooms.flatMap((room) => of(room).map((span) => h("tr", {},
    h("th", { scope: "row" }, room.name), h("td", {}, times(span, site)), h("td", { class: "told" }, percent(span[probability])))));
  return h("section", { class: "card", data: { kind: probability } }, h("h2", {}, text.title), h("p", { class: "soft why" }, text.why),
    rows.length ? table(text.title, [words.columns.room, words.columns.time, words.columns.probability], rows) : h("p", { class: "none" }, text.none));
}

/** Every booking of the rooms of which something can be said, and why nothing is said of some. */
function everyBooking(rooms, site) {
  const rows = rooms.flatMap((room) => room.booked.map((span) => h("tr", {}, h("th", { scope: "row" }, room.name), h("td", {}, times(span, site)),
    h("td", { class: span.empty === null ? "soft" : "told" }, span.empty === null ? own(words.reasons, span.reason)?.(room.minutes) ?? span.reason : words.emptyWith(percent(span.empty))))));
  if (!rows.length) return null;
  return h("details", { class: "card figures" }, h("summary", {}, words.every(rows.length)), table(words.every(rows.length), [words.columns.room, words.columns.booked, words.columns.said], rows));
}

/** The rooms of which nothing is said, and why. */
function silent(rooms, { least_capacity: seats }) {
  if (!rooms.length) return null;
  const why = (room) => own(words.rooms, room.reason)?.({ half: room.half_width === null ? "" : half(room.half_width), seats }) ?? room.reason;
  return h("section", { class: "card", data: { kind: "silent" } }, h("h2", {}, words.silent), h("dl", { class: "facts" }, rooms.map((room) => h("div", {}, h("dt", {}, room.name), h("dd", {}, why(room))))));
}
