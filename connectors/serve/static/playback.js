// The playback bar of a recorded day: pause, speed and current time.

import { ask, send } from "./api.js";
import { h, say, uid } from "./dom.js";
import { moment, zoneName } from "./format.js";
import { strings } from "./strings.js";

const SPEEDS = [60, 300, 900, 1800, 3600];
const ASKED_EVERY = 5000;

/** Insert the bar before `place`; `siteHere()` returns the site whose local time is shown, `changed()` is called after a possible jump. */
export function playback(place, siteHere, changed) {
  const words = strings.playback;
  const id = uid("speed");
  const time = h("span", { class: "soft" });
  const toggle = h("button", { class: "button" });
  const speed = h("select", { id }, SPEEDS.map((value) => h("option", { value }, words.times(value))));
  const jump = h("button", { class: "button" });
  let now = null;
  const ended = () => now.at === now.end;

  const shown = (state) => {
    now = state;
    toggle.hidden = ended();
    say(jump, ended() ? words.toStart : words.toEnd);
    say(toggle, state.paused ? words.play : words.pause);
    if (![...speed.options].some((option) => Number(option.value) === state.speed)) speed.append(h("option", { value: state.speed }, words.times(state.speed)));
    speed.value = String(state.speed);
    const at = state.at ? Date.parse(state.at) : null;
    const site = siteHere();
    say(time, at ? words.at(`${moment(at, site.timezone)} ${zoneName(at, site.timezone)}`) : "");
  };
  const change = async (wanted) => {
    shown(await send("POST", "playback", wanted) ?? { ...now, ...wanted });
    changed();
  };
  toggle.addEventListener("click", () => change({ paused: !now.paused }));
  jump.addEventListener("click", () => change({ at: ended() ? now.start : now.end }));
  speed.addEventListener("change", () => change({ speed: Number(speed.value) }));
  const refresh = () => ask("playback").then(shown, () => {});
  refresh();
  setInterval(refresh, ASKED_EVERY);
  place.before(h("div", { class: "playback", role: "group", "aria-label": words.title },
    h("strong", {}, words.title), toggle, h("label", { class: "unseen", for: id }, words.speed), speed, jump, time));
}
