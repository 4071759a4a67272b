// Controls that several pages use.

import { h } from "./dom.js";

/** A choice among few options: radio buttons that look like one control. */
export function segmented(label, name, options, chosen, change) {
  return h("fieldset", { class: "segmented" }, h("legend", {}, label), options.map(([value, text]) =>
    h("label", {}, h("input", { type: "radio", name, value, checked: value === chosen, on: { change: () => change(name, value) } }), h("span", {}, text))));
}
