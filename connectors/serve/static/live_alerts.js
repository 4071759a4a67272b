// Active alerts of threshold streams in the newest window. A stream publishes no count, so it has no band.

import { h, put, say } from "./dom.js";
import { boundedNote, clock, mark } from "./format.js";
import { placeTitle } from "./records.js";
import { strings } from "./strings.js";

/** The threshold streams of a site for an audience. */
export function streamsOf(releases, audience, site) {
  return releases.filter((each) => each.audience === audience && each.query === "threshold" && each.sites.includes(site.site));
}

/** The list of alerts; absent if the reader has no threshold stream. */
export function alertsCard(streams) {
  const words = strings.live;
  const list = h("ul", { class: "rows" });
  const none = h("p", { class: "soft" });
  const bounded = h("p", { class: "soft why bounded" });
  const element = h("section", { class: "card alerts", hidden: !streams.length }, h("h2", {}, words.alerts), list, none, bounded);
  return { element, paint(rows, now, site) {
    const said = streams.flatMap((stream) => rows.filter((row) => row.release === stream.release && row.to === now));
    const lasting = said.filter((row) => row.value === 1);
    put(list, lasting.map((row) => h("li", {}, h("b", {}, row.release), h("span", {}, `${placeTitle(row.node, site)}${mark(row)}`), h("span", { class: "soft" }, clock(row.to, site.timezone)))));
    say(bounded, boundedNote(said));
    bounded.hidden = !bounded.textContent;
    say(none, lasting.length ? "" : said.length ? words.alertsNone : words.alertsUnknown);
  } };
}
