// Learn: the effect of epsilon on a simulated day, and the detective game on series with known true counts.

import { ask, newestOf, reasonOf } from "../api.js";
import { chart } from "../chart.js";
import { segmented } from "../controls.js";
import { detective } from "../detective.js";
import { h, put, say, throttled } from "../dom.js";
import { clock, date, number, range, withBand } from "../format.js";
import { game } from "../game.js";
import { exactEpsilon, factorOf } from "../privacy_terms.js";
import { objects } from "../records.js";
import { strings } from "../strings.js";

const words = strings.learn;
const WAIT = 150;
const HOURLY = 12;

/** Draw the page; see shell.js for the context. */
export async function mount(place, context) {
  const { signal } = context;
  const state = { place: "building", mechanism: "laplace", epsilon: "0.1" };
  const first = await ask("learn/day", state, signal);
  const parts = { chart: h("div", {}), said: h("p", { class: "lesson-said", role: "status", "aria-live": "polite" }), why: h("p", { class: "soft why" }), table: h("div", {}), drawn: null };
  const slider = epsilonSlider(first.epsilons, state.epsilon, (epsilon) => changed({ epsilon }));
  const asking = newestOf(signal);
  const refresh = async () => {
    const mine = asking();
    try {
      const told = await ask("learn/day", state, mine);
      if (!mine.aborted) await drawDay(parts, told, mine);
    } catch (error) {
      if (!mine.aborted) say(parts.said, reasonOf(error));
    }
  };
  const later = throttled(WAIT, refresh);
  const changed = (changes) => {
    Object.assign(state, changes);
    later();
  };
  const choice = h("select", { "aria-label": words.place, on: { change: () => changed({ place: choice.value }) } },
    first.places.map((each) => h("option", { value: each }, each === "building" ? strings.node.building : words.room(each))));
  const questions = h("section", { class: "card game" });
  const against = h("section", { class: "card against" });
  put(place, h("h1", {}, words.title), h("p", { class: "soft" }, words.intro),
    h("section", { class: "card lesson" }, h("h2", {}, words.slider), h("p", { class: "soft" }, words.sliderText), slider,
      h("div", { class: "controls" }, h("label", { class: "choice" }, h("span", { class: "choice-name" }, words.place), choice),
        segmented(words.mechanism, "mechanism", first.mechanisms.map((name) => [name, words.mechanisms[name]]), state.mechanism, (_, mechanism) => changed({ mechanism }))),
      parts.said, parts.chart, parts.why, h("details", { class: "figures" }, h("summary", {}, words.table), parts.table)), questions, against);
  await drawDay(parts, first, signal);
  const leisure = await detective(questions, signal);
  const stopGame = game(against, leisure.told, signal);
  return () => {
    later.stop();
    parts.drawn?.stop();
    leisure.stop();
    stopGame();
  };
}

/** The slider of epsilon, with a description that changes as it moves. */
function epsilonSlider(epsilons, chosen, change) {
  const said = h("output", { class: "lesson-epsilon" });
  const field = h("input", { type: "range", min: 0, max: epsilons.length - 1, step: 1, value: epsilons.indexOf(chosen), "aria-label": words.epsilonLabel });
  const show = () => {
    const epsilon = epsilons[Number(field.value)];
    const factor = factorOf(epsilon);
    say(said, words.epsilon(exactEpsilon(epsilon), factor));
    field.setAttribute("aria-valuetext", words.epsilon(exactEpsilon(epsilon), factor));
    return epsilon;
  };
  field.addEventListener("input", () => change(show()));
  show();
  return h("div", { class: "lesson-slider" }, h("span", { "aria-hidden": "true" }, words.hides), field, h("span", { "aria-hidden": "true" }, words.tells), said);
}

async function drawDay(parts, told, signal) {
  const rows = objects(told.columns, told.rows).map((row) => ({ ...row, kind: told.kind }));
  const truth = rows.map((row, i) => ({ ...row, value: told.truth[i], low: told.truth[i], high: told.truth[i], half_width: null, kind: "truth" }));
  const name = told.place === "building" ? strings.node.building : words.room(told.place);
  const series = [{ name: words.released, rows, colour: 0, dash: 0 }, { name: words.truth, rows: truth, colour: 1, dash: 1 }];
  say(parts.said, words.error(told.mean_error < 0.05 ? words.hardly : number(told.mean_error), number(told.mean_count)));
  say(parts.why, strings.number.kinds[told.kind] ?? "");
  parts.drawn?.stop();
  parts.drawn = null;
  const drawn = await chart(parts.chart, series, { timezone: told.timezone, at: (row) => row.to, label: words.chart(name, date(rows[0].from, told.timezone)) });
  if (signal.aborted) drawn.stop();
  else parts.drawn = drawn;
  const hourly = rows.map((row, i) => [row, told.truth[i]]).filter((_, i) => i % HOURLY === HOURLY - 1);
  put(parts.table, h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": words.table }, h("table", { class: "table" },
    h("thead", {}, h("tr", {}, [words.columns.time, words.truth, words.released, strings.history.columns.band].map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", {}, hourly.map(([row, exact]) => h("tr", {}, h("th", { scope: "row" }, clock(row.to, told.timezone)), h("td", {}, number(exact)), h("td", {}, withBand(row)), h("td", {}, range(row))))))));
}
