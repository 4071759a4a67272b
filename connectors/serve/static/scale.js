// How a figure is coloured, and how it compares: ten steps around usual, or ten of the capacity.

import { number } from "./format.js";
import { strings } from "./strings.en.js";

const STEPS = 10;
/** Least deviation that counts, in devices: counts are whole, so a quieter place than this is never known. */
const LEAST = 0.5;
/** Half widths of a 95 % band in standard deviations. */
const BAND = 1.96;

/** Probability from which a place is marked as perhaps empty. */
export const PERHAPS = 0.8;
/** Days of a kind of which figures must be there before something is called usual. */
const DAYS = 3;
const SLOT = 900;

/** Whether so many windows of a quarter of an hour are enough to call their mean usual. */
export const enough = (n, site) => n >= DAYS * Math.max(1, SLOT / site.tick_seconds);

/**
 * How many deviations a value lies from its usual; null where either is not known.
 *
 * A deviation is that of the released figures of earlier days, but never less than the band of this one has: smoothed
 * figures vary less than each is unsure, and a colour must not say more than the band can carry.
 */
export function deviations(row) {
  if (row.value === null || !row.usual) return null;
  return (row.value - row.usual.mean) / Math.max(row.usual.deviation, row.half_width / BAND, LEAST);
}

/** The step of ten between two deviations below usual and two above: class "d0" to "d9"; null where not known. */
export function usualStep(row) {
  const z = deviations(row);
  return z === null ? null : `d${clamped(Math.floor(((z + 2) / 4) * STEPS))}`;
}

/** The step of ten between nothing and all of a capacity: class "q0" to "q9". */
export function capacityStep(row, capacity) {
  return row.value === null || !capacity ? null : `q${clamped(Math.floor((row.value / capacity) * STEPS))}`;
}

/** The step of a heat map's colour, 1 to 10: class "d0" to "d9"; null where it has none. */
export const heatStep = (row) => (Number.isInteger(row.heat) && row.heat >= 1 && row.heat <= STEPS ? `d${row.heat - 1}` : null);

/** "7 of 10, a little above usual" */
export const heatWords = (row) => (heatStep(row) === null ? strings.live.heatNone : strings.live.heat(row.heat));

const clamped = (step) => Math.min(STEPS - 1, Math.max(0, step));

/** "more", "fewer", or "same" where the band holds what is usual; null where usual is not known. */
export function direction(row) {
  if (row.value === null || !row.usual) return null;
  if (row.low <= row.usual.mean && row.usual.mean <= row.high) return "same";
  return row.value > row.usual.mean ? "more" : "fewer";
}

export const MARKS = { more: "▲", fewer: "▼", same: "≈" };

/** "23 more than usual" */
export function compared(row) {
  const way = direction(row);
  if (way === null) return strings.number.noUsual;
  return way === "same" ? strings.live.same : strings.live[way](number(Math.abs(row.value - row.usual.mean)));
}
