// The detective's game: a question, a private series, an answer, and what it is worth.

import { ask, send } from "./api.js";
import { chart } from "./chart.js";
import { segmented } from "./controls.js";
import { h, put, say } from "./dom.js";
import { date } from "./format.js";
import { objects } from "./records.js";
import { strings } from "./strings.en.js";

const words = strings.detective;
const WEEK = 7 * 86_400_000;

/** Draw the game into `place`; returns a function that ends it. */
export async function detective(place, signal) {
  const state = { round: 0, epsilon: "0.3", task: 0, told: null, drawn: null };
  const points = new Map();
  const parts = { total: h("p", { class: "game-total" }), tasks: h("div", {}), question: h("h3", { class: "part-title" }), hint: h("p", { class: "soft why" }),
    chart: h("div", {}), form: h("div", {}), outcome: h("div", { class: "game-outcome", role: "status", "aria-live": "polite" }) };
  const load = async () => {
    try {
      state.told = await ask("learn/tasks", { round: state.round, epsilon: state.epsilon }, signal);
      await show();
    } catch (error) {
      if (!signal.aborted) put(parts.outcome, h("p", { class: "warning", role: "alert" }, `${error.message} ${error.rule ?? ""}`));
    }
  };
  const show = () => drawTask(parts, state, points, signal);
  state.told = await ask("learn/tasks", { round: state.round, epsilon: state.epsilon }, signal);
  const round = h("select", { "aria-label": words.round, on: { change: () => { state.round = Number(round.value); load(); } } },
    Array.from({ length: state.told.rounds }, (_, i) => h("option", { value: i }, words.roundOf(i + 1))));
  const epsilon = h("select", { "aria-label": words.epsilon, on: { change: () => { state.epsilon = epsilon.value; load(); } } },
    state.told.epsilons.map((each) => h("option", { value: each, selected: each === state.epsilon }, `ε ${each}`)));
  put(parts.tasks, segmented(words.task, "task", state.told.tasks.map((each, i) => [String(i), words.names[each.task]]), "0", (_, i) => { state.task = Number(i); show(); }));
  put(place, h("h2", {}, words.title), h("p", { class: "soft" }, words.intro), h("div", { class: "controls" },
    h("label", { class: "choice" }, h("span", { class: "choice-name" }, words.round), round),
    h("label", { class: "choice" }, h("span", { class: "choice-name" }, words.epsilon), epsilon), parts.tasks),
    parts.question, parts.hint, parts.chart, parts.form, parts.outcome, parts.total);
  await show();
  return () => state.drawn?.stop();
}

async function drawTask(parts, state, points, signal) {
  const { told } = state;
  const task = told.tasks[state.task];
  const all = task.series.map((each) => objects(told.columns, each.rows).map((row) => ({ ...row, kind: "noise" })));
  const day = date(all[0][0].from, told.timezone);
  say(parts.question, words.questions[task.task](task.place, day, task.limit));
  say(parts.hint, words.hints[task.task]);
  const series = all.map((rows, i) => ({ name: words.series[task.task](task.series[i].name), rows: task.task === "event" ? moved(rows, -i * WEEK) : rows, colour: i % 6, dash: 0 }));
  put(parts.outcome);
  put(parts.form, form(task, (answer) => judge(parts, state, task, answer, points)));
  total(parts, points);
  state.drawn?.stop();
  state.drawn = null;
  const drawn = await chart(parts.chart, series, { timezone: told.timezone, at: (row) => row.to, label: words.questions[task.task](task.place, day, task.limit) });
  if (signal.aborted || told.tasks[state.task] !== task) drawn.stop();
  else state.drawn = drawn;
}

const moved = (rows, by) => rows.map((row) => ({ ...row, from: row.from + by, to: row.to + by }));

function form(task, answered) {
  const label = words.answers[task.task];
  const field = task.options.length ? h("select", { "aria-label": label, required: true }, h("option", { value: "" }, words.choose), task.options.map((each) => h("option", { value: each }, strings.learn.room(each))))
    : task.task === "above" ? h("input", { type: "number", min: 0, max: 288, required: true, "aria-label": label })
      : h("input", { type: "time", required: true, "aria-label": label });
  const enter = (event) => {
    event.preventDefault();
    if (field.value) answered(field.value.slice(0, 5));
  };
  return h("form", { class: "game-answer", on: { submit: enter } }, h("label", { class: "choice" }, label, field), h("button", { class: "button main-button", type: "submit" }, words.answer));
}

/** Ask what an answer is worth; only the first one to a question counts. */
async function judge(parts, state, task, answer, points) {
  const { round, epsilon } = state;
  try {
    const told = await send("POST", "learn/answers", { task: task.task, round, epsilon, answer });
    const key = `${round}/${epsilon}/${task.task}`;
    const again = points.has(key);
    if (!again) points.set(key, told.points);
    put(parts.outcome, h("p", { class: "game-points" }, words.points(told.points), again ? h("small", { class: "soft" }, ` ${words.again}`) : null),
      h("p", {}, words.truth[task.task](told.truth), " ", told.off ? words.off[task.task](told.off) : words.exact),
      h("p", { class: "soft why" }, words.machine(told.machine, told.machine_points)), h("p", { class: "soft why" }, words.why[task.task]));
    total(parts, points);
  } catch (error) {
    put(parts.outcome, h("p", { class: "warning", role: "alert" }, `${error.message} ${error.rule ?? ""}`));
  }
}

function total(parts, points) {
  const sum = [...points.values()].reduce((all, each) => all + each, 0);
  say(parts.total, points.size ? words.total(sum, points.size) : words.none);
}
