// Colours of figures and comparisons with usual values: ten steps around usual, or ten steps of the capacity.

import { number } from "./format.js";
import { strings } from "./strings.js";

const STEPS = 10;
/** The smallest deviation that is used, in devices, because counts are whole numbers. */
const LEAST = 0.5;
/** Half widths of a 95 % band in standard deviations. */
const BAND = 1.96;

/** Probability from which a place is marked as probably empty. */
export const PERHAPS = 0.8;
/** Number of days of one class that a usual value needs. */
const DAYS = 3;
const SLOT = 900;

/** Whether a number of windows of a quarter of an hour is enough for a usual value. */
export const enough = (n, site) => n >= DAYS * Math.max(1, SLOT / site.tick_seconds);

/**
 * The distance of a value from its usual value in deviations; null if either is unknown.
 *
 * The deviation is that of released figures of earlier days, but at least that of this figure's band: smoothed
 * figures vary less than their uncertainty, and a colour must not claim more than the band supports.
 */
export function deviations(row) {
  if (row.value === null || !row.usual) return null;
  return (row.value - row.usual.mean) / Math.max(row.usual.deviation, row.half_width / BAND, LEAST);
}

/** The step of ten between two deviations below usual and two above: class "d0" to "d9"; null if unknown. */
export function usualStep(row) {
  const z = deviations(row);
  return z === null ? null : `d${clamped(Math.floor(((z + 2) / 4) * STEPS))}`;
}

/** The step of ten between nothing and all of a capacity: class "q0" to "q9". */
export function capacityStep(row, capacity) {
  return row.value === null || !capacity ? null : `q${clamped(Math.floor((row.value / capacity) * STEPS))}`;
}

/** The step of a heat map's colour, 1 to 10: class "d0" to "d9"; null if there is none. */
export const heatStep = (row) => (Number.isInteger(row.heat) && row.heat >= 1 && row.heat <= STEPS ? `d${row.heat - 1}` : null);

/** "7 of 10, a little above usual" */
export const heatWords = (row) => (heatStep(row) === null ? strings.live.heatNone : strings.live.heat(row.heat));

const clamped = (step) => Math.min(STEPS - 1, Math.max(0, step));

/** "more", "fewer", or "same" if the band contains the usual value; null if that is unknown. */
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
