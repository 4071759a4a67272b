// The period of a history and its resolution.

import { dayStart, instant, wall } from "./format.js";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const LENGTHS = { "30min": 30 * MINUTE, "2h": 2 * HOUR, "8h": 8 * HOUR, "7d": 7 * DAY, "30d": 30 * DAY, "90d": 90 * DAY, year: 365 * DAY };
/** Periods that end now and are short enough to be redrawn at each new window. */
export const MOVING = ["30min", "2h", "8h", "today"];
export const SPANS = ["30min", "2h", "8h", "today", "yesterday", "7d", "30d", "90d", "year", "own"];
/** Number of places up to which a chart shows all bands. */
export const BANDED = 6;
const FITTING = [["5min", 36 * HOUR], ["15min", 7 * DAY + HOUR], ["1h", 45 * DAY]];
const FITTING_MANY = [["5min", 12 * HOUR], ["15min", 2 * DAY], ["1h", 45 * DAY]];

/** [from, to] in ms of a span that ends `now`; "own" goes by two local dates, the second included. */
export function interval(span, now, site, first = null, last = null) {
  if (span === "today") return [dayStart(now - 1, site), now];
  if (span === "yesterday") return [dayStart(now - 1, site, 1), dayStart(now - 1, site)];
  if (span === "own" && first && last) return [localDay(first, site), Math.min(now, localDay(last, site, 1))];
  return [now - (LENGTHS[span] ?? DAY), now];
}

function localDay(text, site, plus = 0) {
  const [year, month, day] = text.split("-").map(Number);
  const turned = new Date(Date.UTC(year, month - 1, day + plus));
  return instant({ year: turned.getUTCFullYear(), month: turned.getUTCMonth() + 1, day: turned.getUTCDate() }, site.timezone);
}

/** The same wall time some days earlier. */
export function daysEarlier(ms, days, timezone) {
  const w = wall(ms, timezone);
  const turned = new Date(Date.UTC(w.year, w.month - 1, w.day - days));
  return instant({ year: turned.getUTCFullYear(), month: turned.getUTCMonth() + 1, day: turned.getUTCDate(), hour: w.hour, minute: w.minute }, timezone);
}

/** The granularity with enough points for a chart, but not more than it can show. */
export function fittingStep(from, to, places) {
  const table = places > BANDED ? FITTING_MANY : FITTING;
  return table.find(([, longest]) => to - from <= longest)?.[0] ?? "1d";
}

/** "2018-02-01": the local date in the form of a date field. */
export function isoDay(ms, timezone) {
  const w = wall(ms, timezone);
  return [String(w.year).padStart(4, "0"), String(w.month).padStart(2, "0"), String(w.day).padStart(2, "0")].join("-");
}
