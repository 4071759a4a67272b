// The choice of places of a history: chosen places are buttons that remove them, the others are in a list.

import { h, put } from "./dom.js";
import { floorTitle, fromTheTop, placeTitle } from "./records.js";
import { strings } from "./strings.js";

/** Create the control for some published places; `change(nodes)` is called with the chosen ones. `show(nodes)` draws it. */
export function placesControl(published, site, change) {
  const words = strings.history;
  const rooms = published.filter((node) => node.startsWith("zone:"));
  const chips = h("span", { class: "chosen" });
  const title = (node) => placeTitle(node, site);
  const add = h("select", { "aria-label": words.add, on: { change: () => {
    const value = add.value;
    add.value = "";
    if (value === "all") change(rooms);
    else change([...current.filter((node) => node !== value), value]);
  } } });
  let current = [];
  const show = (nodes) => {
    current = nodes;
    const many = nodes.length > 8;
    put(chips, many ? h("button", { class: "chip-button", "aria-label": words.only, on: { click: () => change([published[0]]) } }, words.all(nodes.length), " ✕")
      : nodes.map((node, i) => h("button", { class: "chip-button", "aria-label": words.remove(title(node)), disabled: nodes.length === 1,
        on: { click: () => change(nodes.filter((each) => each !== node)) } }, h("i", { class: `swatch s${i % 6}` }), title(node), nodes.length > 1 ? " ✕" : "")));
    const group = (label, members) => {
      const left = members.filter((node) => !nodes.includes(node));
      return left.length ? h("optgroup", { label }, left.map((node) => h("option", { value: node }, title(node)))) : null;
    };
    put(add, h("option", { value: "" }, words.add), group(words.levels, published.filter((node) => !node.startsWith("zone:"))),
      rooms.length ? h("option", { value: "all" }, words.all(rooms.length)) : null,
      fromTheTop(site).map((floor) => group(words.zoneGroup(floorTitle(floor)), floor.zones.map((zone) => `zone:${zone.zone}`).filter((node) => rooms.includes(node)))));
  };
  return { element: h("div", { class: "places-control", role: "group", "aria-label": words.places }, chips, add), show, title };
}
