// The form for a token. It is sent in the body of one request; the response sets a cookie that no script can read.

import { reasonOf, send } from "./api.js";
import { h, put } from "./dom.js";
import { strings } from "./strings.js";

/** Show the form in `place`; `signed` is called when the session has started. `tried`: a link or token was just refused. */
export function signIn(place, error, tried, signed) {
  const words = strings.sign;
  const field = h("input", { id: "token", name: "token", type: "password", autocomplete: "off", required: true, spellcheck: "false" });
  const message = h("p", { class: "warning", role: "alert" }, reason(error, tried));
  const enter = async (event) => {
    event.preventDefault();
    try {
      await send("POST", "session", { token: field.value.trim() });
      await signed();
    } catch (refused) {
      message.textContent = reason(refused, true);
      field.select();
    }
  };
  document.title = `${words.title} · Tacet`;
  place.removeAttribute("aria-busy");
  put(place, h("form", { class: "card sign", on: { submit: enter } },
    h("h1", {}, words.title),
    h("p", { class: "soft" }, words.why),
    message,
    h("label", { for: "token" }, words.token),
    field,
    h("button", { class: "button main-button", type: "submit" }, words.enter)));
  field.focus();
}

function reason(error, tried) {
  if (error === "ended") return strings.sign.ended;
  if (error.status === 429) return strings.sign.slow;
  if (error.status === 401 || error.status === 403) return tried ? strings.sign.refused : "";
  return reasonOf(error);
}
