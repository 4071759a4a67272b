// Where is room: asks once a minute. A screen's token comes behind the # of the address and is sent with each request, so
// that it works in frames of other pages, where a cookie would not.

import { h, put } from "./dom.js";
import { strings } from "./strings.js";

const EVERY = 60_000;
/** Without a valid token; of an audience or a site that the link does not name as the service does. */
const REFUSED = new Set([401, 403, 404, 422]);
const words = strings.room;
const place = document.getElementById("room");
const parameters = new URLSearchParams(location.search);
const token = new URLSearchParams(location.hash.slice(1)).get("token");
const headers = { Accept: "application/json", ...(token ? { Authorization: `Bearer ${token}` } : {}) };

async function asked(path) {
  const response = await fetch(`api/v1/${path}`, { headers, cache: "no-store" }).catch(() => null);
  if (!response?.ok) throw new Error(REFUSED.has(response?.status) ? words.refused : words.away);
  return response.json();
}

function shown({ name, node, state }) {
  const called = node === `floor:${name}` ? words.floor(name) : name;
  return h("li", { class: state ?? "unknown" }, h("span", { class: "place" }, called),
    h("span", { class: "state" }, state ? `${words.signs[state]} ${words.states[state]}` : words.unknown));
}

function draw(part) {
  document.title = `${words.title} · ${part.name}`;
  const time = part.window_end ? new Date(part.window_end).toLocaleTimeString(strings.locale, { hourCycle: "h23", hour: "2-digit", minute: "2-digit", timeZone: part.timezone }) : "";
  put(place, h("h1", {}, words.heading(part.name)),
    part.stale ? h("p", { role: "status" }, words.stale) : null,
    h("ul", { class: part.stale ? "stale" : "" }, part.places.map(shown)),
    h("p", { class: "soft" }, words.note(time)));
  place.removeAttribute("aria-busy");
}

async function refresh() {
  try {
    const given = ["audience", "site"].filter((name) => parameters.get(name)).map((name) => [name, parameters.get(name)]);
    draw(await asked(`room?${new URLSearchParams(given)}`));
  } catch (error) {
    put(place, h("h1", {}, words.title), h("p", { role: "alert" }, error.message));
  }
}

refresh();
setInterval(refresh, EVERY);
