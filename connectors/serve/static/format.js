// Formats of numbers and times: every value has its band, every time its zone.

import { strings } from "./strings.js";

const LOCALE = strings.locale;
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const kept = new Map();

/** A cached formatter, because creating one takes longer than a thousand uses. */
function formatter(timezone, options) {
  const key = timezone + JSON.stringify(options);
  if (!kept.has(key)) kept.set(key, new Intl.DateTimeFormat(LOCALE, { timeZone: timezone, hourCycle: "h23", ...options }));
  return kept.get(key);
}

/** "14:35" */
export const clock = (ms, timezone) => formatter(timezone, { hour: "2-digit", minute: "2-digit" }).format(ms);
/** "Thu 1 Feb" */
export const day = (ms, timezone) => {
  const p = fields(ms, timezone, { weekday: "short", day: "numeric", month: "short" });
  return strings.time.day(p.weekday, p.day, p.month);
};
/** "Thu 1 Feb 2018" */
export const date = (ms, timezone) => `${day(ms, timezone)} ${fields(ms, timezone, { year: "numeric" }).year}`;
/** "Thu 1 Feb 14:35" */
export const moment = (ms, timezone) => `${day(ms, timezone)} ${clock(ms, timezone)}`;
/** "PST": the zone's short name at that time. */
export const zoneName = (ms, timezone) => fields(ms, timezone, { timeZoneName: "short" }).timeZoneName;

/** "Thu 1 Feb 14:30 to 14:35 PST", or "Thu 1 Feb PST" of a local day. */
export function stretch(from, to, timezone) {
  if (to - from > 20 * HOUR) return `${day(from, timezone)} ${zoneName(from, timezone)}`;
  return `${day(from, timezone)} ${strings.number.band(clock(from, timezone), clock(to, timezone))} ${zoneName(to, timezone)}`;
}

function fields(ms, timezone, options) {
  const parts = formatter(timezone, options).formatToParts(ms);
  return Object.fromEntries(parts.map((part) => [part.type, part.value]));
}

const WALL = { year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric" };

/** The local time of the site: year, month (1-12), day, hour, minute, and weekday (0 is Sunday). */
export function wall(ms, timezone) {
  const found = fields(ms, timezone, WALL);
  const [year, month, dayOfMonth, hour, minute, second] = ["year", "month", "day", "hour", "minute", "second"].map((name) => Number(found[name]));
  return { year, month, day: dayOfMonth, hour, minute, second, weekday: new Date(Date.UTC(year, month - 1, dayOfMonth)).getUTCDay() };
}

/** The instant of a local time of the site; the first if there are two. */
export function instant({ year, month, day: dayOfMonth, hour = 0, minute = 0 }, timezone) {
  const asked = Date.UTC(year, month - 1, dayOfMonth, hour, minute);
  const off = (ms) => {
    const w = wall(ms, timezone);
    return Date.UTC(w.year, w.month - 1, w.day, w.hour, w.minute, w.second) - Math.floor(ms / 1000) * 1000;
  };
  const early = asked - off(asked - 12 * HOUR);
  const late = asked - off(asked + 12 * HOUR);
  return off(early) === asked - early ? early : late;
}

/** The start of the local day that contains this instant; `starts` is the local time at which days start, such as "04:00". */
export function dayStart(ms, site, daysBefore = 0) {
  const [hour, minute] = (site.day_starts ?? "00:00").split(":").map(Number);
  const w = wall(ms - hour * HOUR - minute * MINUTE, site.timezone);
  const turned = new Date(Date.UTC(w.year, w.month - 1, w.day - daysBefore));
  return instant({ year: turned.getUTCFullYear(), month: turned.getUTCMonth() + 1, day: turned.getUTCDate(), hour, minute }, site.timezone);
}

/** "workday", "saturday" or "sunday" at the site. */
export function dayClass(ms, timezone) {
  const { weekday } = wall(ms, timezone);
  return weekday === 0 ? "sunday" : weekday === 6 ? "saturday" : "workday";
}

/** "2018-02-01T08:00:00Z" */
export const rfc3339 = (ms) => `${new Date(ms).toISOString().slice(0, 19)}Z`;

/** A count or mean: without decimals from 10 on, else with at most one; with a typographic minus sign. */
export function number(value) {
  if (value === null || value === undefined) return strings.number.none;
  const rounded = Math.abs(value) >= 9.95 ? Math.round(value) : Math.round(value * 10) / 10;
  return (Object.is(rounded, -0) ? 0 : rounded).toLocaleString(LOCALE, { maximumFractionDigits: 1 }).replace("-", "−");
}
/** "1,234": a whole number. */
export const whole = (value) => value.toLocaleString(LOCALE);

/** A half-width, rounded up. */
export function half(value) {
  const rounded = value >= 9.95 ? Math.ceil(value - 1e-9) : Math.ceil(value * 10 - 1e-9) / 10;
  return rounded.toLocaleString(LOCALE, { maximumFractionDigits: 1 });
}

/** "†" after a figure that counts each device for a part of the day only; else empty. */
export const mark = (row) => (row?.bounded_to ? strings.number.boundedMark : "");
/** The explanation of the mark; empty if no row has it. */
export function boundedNote(rows) {
  const bounds = [...new Set([...rows].map((row) => row.bounded_to).filter(Boolean))];
  return bounds.length ? strings.number.bounded(bounds.map((bound) => strings.number.boundOfDay(hours(bound))).join(", ")) : "";
}
/** "12 h" of "12h", "3 visits" of "3 visits" */
const hours = (bound) => strings.number.boundWords(bound.replace(/^(\d+)(h|min)$/, "$1 $2"));

/** "±4", or "±4 at most" for such bands; with the mark of a bounded figure. */
export function band(row) {
  if (row.half_width === null || row.half_width === undefined) return mark(row);
  return `${(row.kind === "at most" ? strings.number.atMost : strings.number.plusMinus)(half(row.half_width))}${mark(row)}`;
}
/** "12†": a count whose band is in another column. */
export const counted = (row) => `${number(row.value)}${row.value === null ? "" : mark(row)}`;

/** "12 ±4", or "denied". */
export const withBand = (row) => (row.value === null ? strings.number.denied : `${number(row.value)} ${band(row)}`);
/** "8 to 16" */
export const range = (row) => (row.value === null ? strings.number.none : strings.number.band(number(row.low), number(row.high)));
/** "about 46 people, 38 to 55": an estimate with its band, and whether its model is provisional. */
export const people = (row) => (row.provisional ? strings.number.provisional : (text) => text)(strings.number.people(number(row.value), number(row.low), number(row.high)));
/** "83 %"; a probability that is never shown as certain. */
export const percent = (share) => `${Math.min(99, Math.max(1, Math.round(100 * share)))} %`;
/** "100 %": a share that may be complete. */
export const portion = (share) => `${Math.round(100 * share)} %`;

/** "40 s", "6 min", "3 h", "2 days" */
export function age(seconds) {
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)} h`;
  return strings.time.days(Math.round(seconds / 86_400));
}

/** "Building", "Floor 2", "2011" */
export function nodeName(node) {
  const [level, name] = node.split(":");
  return name === undefined ? strings.node.building : strings.node[level](name);
}
