// Privacy: the cost of a device's day, the budget spent and left, and the guarantee as a page to print and sign.

import { ask } from "../api.js";
import { h, put, throttled } from "../dom.js";
import { own } from "../own.js";
import { attributeName, deltaText, epsilonText, exactEpsilon, factorOf } from "../privacy_terms.js";
import { strings } from "../strings.js";
import { accountPart } from "../account.js";
import { attributesOf } from "./day.js";

const words = strings.privacy;
const AGAIN = 60_000;
/** Number of people in the description of a delta. */
const MANY = 1000 * 30;

/** Draw the page; see shell.js for the context. */
export async function mount(place, context) {
  const { site, audience, session } = context;
  const reader = site && audience ? await readerPart(context) : [];
  const account = session.roles.includes("account") ? await accountPart(context) : null;
  put(place, h("h1", {}, words.title), reader, account);
  if (!reader.length) return undefined;
  const spent = place.querySelector(".part-spent");
  const later = throttled(AGAIN, async () => put(spent, spentPart(await spendsOf(context))));
  context.onRelease(later);
  return later.stop;
}

const spendsOf = ({ site, audience, signal }) => ask("spends", { audience, site: site.site }, signal);

async function readerPart(context) {
  const { site, audience, releases, session, signal } = context;
  const asked = { language: strings.locale.slice(0, 2) };
  const [{ audiences, language, version }, spends] = await Promise.all([ask("policy", asked, signal), spendsOf(context)]);
  const promised = own(audiences, audience);
  const units = promised.units.filter((each) => each.site === site.site);
  const mine = releases.filter((release) => release.audience === audience && release.sites.includes(site.site));
  return [
    h("p", { class: "soft" }, words.intro(audience)),
    h("section", { class: "screen-only" }, h("h2", { class: "part-title" }, words.costs), h("div", { class: "prices" },
      mine.filter((release) => units.some((each) => each.release === release.release)).map((release) => price(release, units)),
      attributesOf(mine, audience, site).map(attributePrice))),
    h("section", { class: "card screen-only part-spent" }, spentPart(spends)),
    promisePage(promised, units, { site, audience, language, version: words.version(version, session.version) }),
  ];
}

/** The cost of one device's whole day in a count release. */
function price(release, units) {
  const unit = units.find((each) => each.release === release.release && each.unit === "device_day");
  if (!unit) return null;
  const factor = factorOf(unit.epsilon);
  return h("div", { class: "card price" }, h("h3", {}, release.release),
    h("p", { class: "big-price" }, words.epsilon(epsilonText(unit.epsilon)), unit.delta ? h("small", {}, ` ${words.delta(deltaText(unit.delta))}`) : null),
    h("p", {}, release.unit === "device_day" ? words.byDay : words.byWindow(words.epsilon(exactEpsilon(release.epsilon)))),
    h("p", { class: "soft why" }, factor ? words.factor(factor) : words.factorLarge),
    unit.delta ? h("p", { class: "soft why" }, words.exception(deltaText(unit.delta), deltaText(unit.delta * MANY))) : null);
}

function attributePrice({ attribute, epsilon }) {
  return h("div", { class: "card price" }, h("h3", {}, words.attribute(attributeName(attribute))),
    h("p", { class: "big-price" }, words.epsilon(exactEpsilon(epsilon))), h("p", { class: "soft why" }, words.attributeText(factorOf(epsilon))));
}

/** The cost of each day, and the rest of the current day's budget. */
function spentPart({ rows, left }) {
  const denied = rows.reduce((sum, row) => sum + row.denied, 0);
  const head = words.spent;
  return [
    h("h2", {}, words.so), h("p", { class: "soft why" }, words.soText),
    rows.length ? h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": words.so }, h("table", { class: "table" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, head.day), h("th", { scope: "col" }, head.release), [head.windows, head.denied, head.spend].map((text) => h("th", { scope: "col", class: "figure" }, text)))),
      h("tbody", {}, rows.toReversed().map((row) => h("tr", {}, h("th", { scope: "row" }, row.day), h("td", {}, row.release),
        [row.windows, row.denied, epsilonText(row.spend)].map((value) => h("td", { class: "figure" }, value))))))) : h("p", {}, words.soNone),
    denied ? h("p", { class: "warning" }, words.denied(denied)) : null,
    h("h3", { class: "part-title" }, words.left),
    h("ul", { class: "plain" }, Object.entries(left).map(([release, n]) => h("li", {}, n === null ? words.leftFree(release) : words.leftOf(release, n)))),
  ];
}

/** The guarantee for the privacy officer to sign; only this is printed. */
function promisePage(promised, units, { site, audience, language, version }) {
  const releases = [...new Set(units.map((each) => each.release))];
  const print = h("button", { class: "button main-button screen-only", on: { click: () => window.print() } }, words.print);
  return h("section", { class: "card promise" },
    h("div", { class: "promise-head" }, h("h2", {}, words.promiseOf(site.name, audience)), print),
    h("p", { class: "soft" }, version),
    h("ol", { class: "plain", lang: language }, promised.promise.map((line) => h("li", {}, line))),
    h("h3", { class: "part-title" }, words.not), h("ul", { class: "plain", lang: language }, promised.not_protected.map((line) => h("li", {}, line))),
    releases.length ? [h("h3", { class: "part-title" }, words.units), h("p", { class: "soft why" }, words.unitsText), unitTable(units, releases, language)] : null,
    h("div", { class: "signing", "aria-hidden": "true" }, Object.values(words.sign).map((text) => h("span", {}, text))));
}

function unitTable(units, releases, language) {
  const names = new Map(units.map((each) => [each.unit, each.words]));
  const found = new Map(units.map((each) => [`${each.release}/${each.unit}`, each]));
  const figure = (each) => (each ? `${words.epsilon(epsilonText(each.epsilon))}${each.delta ? `, ${words.delta(deltaText(each.delta))}` : ""}` : "");
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": words.units }, h("table", { class: "table" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, words.unit), releases.map((release) => h("th", { scope: "col" }, release)))),
    h("tbody", {}, [...names].map(([unit, text]) => h("tr", {}, h("th", { scope: "row", lang: language }, text), releases.map((release) => h("td", {}, figure(found.get(`${release}/${unit}`)))))))));
}
