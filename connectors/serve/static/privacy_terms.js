// Formats of epsilons, factors and sensitive values. Upper bounds are rounded up.

import { own } from "./own.js";
import { strings } from "./strings.js";

const LOCALE = strings.locale;
const LARGEST = 1000;

const up = (value, digits) => Math.max(0, Math.ceil(value * 10 ** digits - 1e-9) / 10 ** digits);

/** "2.03", "244", or "no bound"; a decimal string, a number or "inf". */
export function epsilonText(epsilon) {
  const value = Number(epsilon === "inf" ? Infinity : epsilon);
  if (!Number.isFinite(value)) return strings.privacy.unbounded;
  return up(value, value < 10 ? 2 : value < 100 ? 1 : 0).toLocaleString(LOCALE, { maximumFractionDigits: 2 });
}

/** "0.01": an epsilon as it is, without rounding; a decimal string. */
export const exactEpsilon = (epsilon) => Number(epsilon).toLocaleString(LOCALE, { maximumFractionDigits: 20 });

/** "1e-6" */
export const deltaText = (delta) => Number(delta).toExponential(0).replace("e-", "e−").replace("e+", "e");

/** "7.4": the factor e^epsilon; null if it is too large to be meaningful. */
export function factorOf(epsilon) {
  const factor = Math.exp(Number(epsilon === "inf" ? Infinity : epsilon));
  return factor <= LARGEST ? factorText(factor) : null;
}

/** A factor. */
export function factorText(factor) {
  const value = Number(factor === "inf" ? Infinity : factor);
  if (!Number.isFinite(value)) return strings.privacy.noBound;
  return up(value, value < 10 ? 2 : 0).toLocaleString(LOCALE, { maximumFractionDigits: 2 });
}

/** "after 10:00 or before 07:00": the sensitive values of an attribute, which are always withheld. */
export function sensitiveText(attribute, sensitive) {
  const { tests, or } = strings.attributes;
  return Object.entries(sensitive).map(([how, edge]) => tests[how](valueText(attribute, edge))).join(or);
}

/** An attribute's value: a local time, a number, or a share. */
export function valueText(attribute, value) {
  if (value === null) return strings.attributes.nobody;
  return attribute === "occupancy_level" ? `${Math.round(100 * value)} %` : String(value);
}

/** The name of an attribute. */
export const attributeName = (attribute) => own(strings.attributes.names, attribute) ?? attribute.replaceAll("_", " ");
