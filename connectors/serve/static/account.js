// The account of all readers, for readers of the account: each reader, any coalition of them, and each attribute.

import { ask, reasonOf } from "./api.js";
import { h, put } from "./dom.js";
import { moment, zoneName } from "./format.js";
import { own } from "./own.js";
import { attributeName, deltaText, epsilonText, factorText } from "./privacy_terms.js";
import { isoDay } from "./span.js";
import { strings } from "./strings.js";

const words = strings.privacy;
const DAY = 86_400_000;

/** Return the section for readers of the account. */
export async function accountPart(context) {
  const { signal } = context;
  const account = await ask("account", {}, signal);
  const site = context.site && own(account.sites, context.site.site) ? context.site.site : Object.keys(account.sites)[0];
  const record = account.sites[site];
  if (!record) return h("section", { class: "card screen-only" }, h("h2", {}, words.account), h("p", {}, words.accountNone));
  const timezone = context.sites.find((each) => each.site === site)?.timezone ?? "UTC";
  const readers = Object.keys(record.audiences);
  const end = Date.parse(record.window_end);
  const all = record.coalition ? [[words.all, record.coalition]] : [];
  return h("section", { class: "card screen-only account" }, h("h2", {}, words.account),
    h("p", { class: "soft" }, words.accountText(`${moment(end, timezone)} ${zoneName(end, timezone)}`)),
    costs(words.account, [...Object.entries(record.audiences), ...all]),
    coalitionPart(readers, site, signal), leakagePart(site, isoDay(end - DAY, timezone), signal));
}

/** A table of privacy units with their cost for some readers. */
function costs(caption, columns) {
  const units = Object.keys(columns[0][1]).filter((unit) => unit !== "tight" && strings.units[unit]);
  const figure = (cost, unit) => {
    const tight = cost.tight?.[unit];
    const sum = words.epsilon(epsilonText(cost[unit]));
    if (!tight) return sum;
    const held = `${words.epsilon(epsilonText(tight.epsilon))}, ${words.delta(deltaText(tight.delta))}`;
    return cost[unit] === "inf" ? held : [held, h("span", { class: "soft" }, ` (${words.added(sum)})`)];
  };
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, h("table", { class: "table" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, words.unit), columns.map(([name]) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, units.map((unit) => h("tr", {}, h("th", { scope: "row" }, strings.units[unit]), columns.map(([, cost]) => h("td", {}, figure(cost, unit))))))));
}

function coalitionPart(readers, site, signal) {
  const told = h("div", { role: "status", "aria-live": "polite" }, h("p", { class: "soft" }, words.coalitionPick));
  const boxes = readers.map((reader) => h("input", { type: "checkbox", value: reader, on: { change: () => draw() } }));
  let asked = 0;
  const draw = async () => {
    const chosen = boxes.filter((box) => box.checked).map((box) => box.value);
    const mine = ++asked;
    if (!chosen.length) return put(told, h("p", { class: "soft" }, words.coalitionPick));
    try {
      const { sites } = await ask("account/coalition", { audiences: chosen.join(",") }, signal);
      if (mine === asked) put(told, sites[site] ? costs(words.coalition, [[words.coalitionOf(chosen.join(" + ")), sites[site]]]) : h("p", {}, words.accountNone));
    } catch (error) {
      if (mine === asked && !signal.aborted) put(told, h("p", { class: "warning", role: "alert" }, reasonOf(error)));
    }
    return undefined;
  };
  return [
    h("h3", { class: "part-title" }, words.coalition), h("p", { class: "soft why" }, words.coalitionText),
    h("fieldset", { class: "ticks" }, h("legend", { class: "unseen" }, words.coalition), boxes.map((box) => h("label", { class: "choice check" }, box, box.value))), told,
  ];
}

function leakagePart(site, day, signal) {
  const told = h("div", {});
  const field = h("input", { type: "date", value: day, on: { change: () => field.value && draw(field.value) } });
  const draw = async (chosen) => {
    const { attributes } = await ask("account/attributes", { site, day: chosen }, signal);
    put(told, Object.keys(attributes).length ? leakageTable(attributes) : h("p", {}, words.leakageNone));
  };
  draw(day).catch(() => {});
  return [
    h("h3", { class: "part-title" }, words.leakage), h("p", { class: "soft why" }, words.leakageText),
    h("label", { class: "choice" }, words.leakageDay, field), told,
  ];
}

function leakageTable(attributes) {
  const readers = [...new Set(Object.values(attributes).flatMap((figures) => Object.keys(figures.with_counts)))];
  const name = (reader) => (reader === "all" ? words.all : reader);
  const figure = (value) => (value === undefined || value === null ? strings.number.none : value === "inf" ? words.noBound : words.times(factorText(value)));
  return h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": words.leakage }, h("table", { class: "table" },
    h("thead", {}, h("tr", {}, [words.leakageColumns.room, words.leakageColumns.attribute, ...readers.flatMap((reader) => [words.alone(name(reader)), words.together(name(reader))])].map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", {}, Object.entries(attributes).map(([key, figures]) => {
      const [, room, attribute] = key.split("/");
      return h("tr", {}, h("th", { scope: "row" }, room), h("td", {}, attributeName(attribute)),
        readers.flatMap((reader) => [h("td", {}, figure(figures.theorem_1[reader])), h("td", {}, figure(figures.with_counts[reader]))]));
    }))));
}
