// Epsilons, factors and sensitive values as people read them. An upper bound is never made smaller by rounding.

import { own } from "./own.js";
import { strings } from "./strings.en.js";

const LOCALE = "en";
const LARGEST = 1000;

const up = (value, digits) => Math.max(0, Math.ceil(value * 10 ** digits - 1e-9) / 10 ** digits);

/** "2.03", "244", or "no bound"; a decimal string, a number or "inf". */
export function epsilonText(epsilon) {
  const value = Number(epsilon === "inf" ? Infinity : epsilon);
  if (!Number.isFinite(value)) return strings.privacy.unbounded;
  return up(value, value < 10 ? 2 : value < 100 ? 1 : 0).toLocaleString(LOCALE, { maximumFractionDigits: 2 });
}

/** "1e-6" */
export const deltaText = (delta) => Number(delta).toExponential(0).replace("e-", "e−").replace("e+", "e");

/** "7.4": by how much e^epsilon changes odds; null where that says nothing any more. */
export function factorOf(epsilon) {
  const factor = Math.exp(Number(epsilon === "inf" ? Infinity : epsilon));
  return factor <= LARGEST ? factorText(factor) : null;
}

/** A factor itself. */
export function factorText(factor) {
  const value = Number(factor === "inf" ? Infinity : factor);
  if (!Number.isFinite(value)) return strings.privacy.noBound;
  return up(value, value < 10 ? 2 : 0).toLocaleString(LOCALE, { maximumFractionDigits: 2 });
}

/** "after 10:00 or before 07:00": which values of an attribute are never shown. */
export function sensitiveText(attribute, sensitive) {
  const { tests, or } = strings.attributes;
  return Object.entries(sensitive).map(([how, edge]) => tests[how](valueText(attribute, edge))).join(or);
}

/** An attribute's value: a time of the site, a number, or a share. */
export function valueText(attribute, value) {
  if (value === null) return strings.attributes.nobody;
  return attribute === "occupancy_level" ? `${Math.round(100 * value)} %` : String(value);
}

/** What an attribute is called. */
export const attributeName = (attribute) => own(strings.attributes.names, attribute) ?? attribute.replaceAll("_", " ");
