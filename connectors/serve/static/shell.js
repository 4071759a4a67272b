// The frame around every page: navigation, building, reader, theme, state of the connection, playback.

import { reasonOf, send } from "./api.js";
import { h, put, say } from "./dom.js";
import { follow } from "./feed.js";
import { here, link } from "./router.js";
import { pagesFor } from "./routes.js";
import { playback } from "./playback.js";
import { signIn } from "./sign.js";
import { strings } from "./strings.js";

/** Milliseconds for which a hidden page keeps its connection. */
const UNSEEN = 120_000;
const THEMES = ["auto", "light", "dark"];
const element = (id) => document.getElementById(id);

/**
 * Draw the frame and show the page in the address.
 *
 * `known` holds session, sites and releases. A page gets a context: these, and `site` (object), `audience` (name),
 * `parameters` (of the address), `onRelease(listener)` and `announce(text)`; and an AbortSignal, `signal`, which ends with it.
 */
export function startShell(known) {
  const listeners = new Set();
  const line = h("span", { class: "line", data: { state: "waiting" } }, strings.line.waiting);
  const tools = toolbar(known, line);
  let page = { leave: () => {}, name: null };
  let followed = { audience: null, stop: () => {} };

  const audienceHere = () => {
    const asked = here().parameters.get("audience");
    return known.session.audiences.includes(asked) ? asked : known.session.audiences[0] ?? null;
  };
  const siteHere = () => known.sites.find((site) => site.site === here().parameters.get("site")) ?? known.sites[0] ?? null;

  const followHere = () => {
    const audience = audienceHere();
    if (followed.audience === audience || audience === null) return;
    followed.stop();
    const stop = follow(audience, {
      heard: (record) => listeners.forEach((listener) => listener(record)),
      state: (state) => (state === "ended" ? ended() : lineState(line, state, listeners)),
    });
    followed = { audience, stop };
  };
  const ended = () => {
    page.leave();
    put(element("tools"));
    signIn(element("main"), "ended", true, async () => location.reload());
  };
  const show = async () => {
    if (location.hash && !location.hash.startsWith("#/")) return;
    page.leave();
    const leaving = new AbortController();
    const site = siteHere();
    const audience = audienceHere();
    const mine = pagesFor(known.session);
    const found = mine.find((each) => each.name === here().name) ?? mine.find((each) => each.needs.length) ?? mine[0];
    page = { name: found?.name, leave: () => leaving.abort() };
    if (!found || (found.placed && !site)) return put(element("main"), h("p", { class: "notice" }, strings.shell.nothing));
    followHere();
    tools(found, site, audience);
    const context = {
      ...known, site, audience, parameters: here().parameters, signal: leaving.signal,
      onRelease: (listener) => { listeners.add(listener); leaving.signal.addEventListener("abort", () => listeners.delete(listener)); },
      announce: (text) => say(element("announce"), text),
    };
    await mounted(found, context, show);
  };
  const rest = () => {
    followed.stop();
    followed = { audience: null, stop: () => {} };
    lineState(line, "lost", listeners);
  };
  addEventListener("hashchange", show);
  whileHidden(rest, followHere);
  element("footer").append(h("p", {}, strings.shell.footer(known.session.version), " · ", h("a", { href: "docs" }, strings.shell.interface)));
  if (known.session.playback && siteHere()) playback(element("footer"), siteHere, () => listeners.forEach((listener) => listener(null)));
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    element("main").focus();
  });
  show();
}

/** Call `rest` when the page was hidden for a while, and `wake` when it is visible again, because browsers limit connections to a host. */
function whileHidden(rest, wake) {
  let timer = null;
  let resting = false;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(() => { resting = true; rest(); }, UNSEEN);
    else if (resting) {
      resting = false;
      wake();
    }
  });
}

/** Draw a page into the main element; if that fails, show an error with a button to try again. */
async function mounted(found, context, retry) {
  const place = h("div", { class: `page ${found.name}` });
  const main = element("main");
  const { signal } = context;
  main.setAttribute("aria-busy", "true");
  try {
    const { mount } = await found.load();
    if (signal.aborted) return;
    put(main, put(place, h("p", { class: "notice" }, strings.shell.loading)));
    const leave = await mount(place, context);
    if (leave) signal.aborted ? leave() : signal.addEventListener("abort", leave);
  } catch (error) {
    if (!signal.aborted) put(main, h("div", { class: "card failure", role: "alert" },
      h("h1", {}, strings.shell.failed),
      h("p", {}, reasonOf(error)),
      h("button", { class: "button", on: { click: retry } }, strings.shell.again)));
  } finally {
    if (!signal.aborted) main.removeAttribute("aria-busy");
  }
}

/** The parts that stay while pages change. They are created once, so that keyboard focus is kept. */
function toolbar(known, line) {
  const pages = pagesFor(known.session).map((page) => [page, h("a", {}, strings.pages[page.name])]);
  const sites = choice(strings.shell.building, known.sites.map((each) => [each.site, each.name]), "site");
  const audiences = choice(strings.shell.audience, known.session.audiences.map((name) => [name, name]), "audience");
  const name = h("span", { class: "place" });
  put(element("nav"), pages.map(([, anchor]) => anchor));
  put(element("tools"), sites?.label ?? name, audiences?.label ?? null, line, themeButton(),
    known.session.open ? null : h("button", { class: "quiet", on: { click: leave } }, strings.shell.leave));
  if (known.session.laboratory) element("header").append(h("p", { class: "laboratory" }, strings.shell.laboratory));
  return (found, site, audience) => {
    document.title = strings.shell.title(strings.pages[found.name], site?.name);
    say(name, site?.name ?? "");
    if (sites) sites.select.value = site.site;
    if (audiences) audiences.select.value = audience;
    for (const [page, anchor] of pages) {
      anchor.href = link(page.name);
      if (page === found) anchor.setAttribute("aria-current", "page");
      else anchor.removeAttribute("aria-current");
    }
  };
}

/** A choice among several values, which is written to the address; absent if there is only one. */
function choice(label, options, parameter) {
  if (options.length < 2) return null;
  const go = (event) => { location.hash = link(here().name, { [parameter]: event.target.value }); };
  const select = h("select", { "aria-label": label, on: { change: go } }, options.map(([value, text]) => h("option", { value }, text)));
  return { select, label: h("label", { class: "choice" }, h("span", { class: "choice-name" }, label), select) };
}

function lineState(line, state, listeners) {
  const before = line.dataset.state;
  line.dataset.state = state;
  say(line, strings.line[state]);
  // A reader that never received a release gets no missed ones after reconnecting: reload.
  if (state === "open" && before === "lost") listeners.forEach((listener) => listener(null));
}

function themeButton() {
  const root = document.documentElement;
  const now = () => root.dataset.theme ?? "auto";
  const button = h("button", { class: "quiet theme", on: { click: () => {
    const next = THEMES[(THEMES.indexOf(now()) + 1) % THEMES.length];
    if (next === "auto") delete root.dataset.theme;
    else root.dataset.theme = next;
    try { localStorage.setItem("tacet-theme", next); } catch { /* it holds until the page is left */ }
    label();
    dispatchEvent(new Event("themechange"));
  } } }, h("span", { class: "theme-mark", "aria-hidden": "true" }));
  const label = () => {
    button.title = strings.shell.theme[now()];
    button.setAttribute("aria-label", strings.shell.theme[now()]);
    button.dataset.theme = now();
  };
  label();
  return button;
}

async function leave() {
  await send("DELETE", "session").catch(() => {});
  location.hash = "";
  location.reload();
}
