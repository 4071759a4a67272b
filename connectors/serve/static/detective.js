// The detective game without a clock: any round, epsilon and question, and the score of an answer.

import { ask, send } from "./api.js";
import { segmented } from "./controls.js";
import { h, put, say } from "./dom.js";
import { drawQuestion, outcome, questionParts, refusal } from "./question.js";
import { exactEpsilon } from "./privacy_terms.js";
import { strings } from "./strings.js";

const words = strings.detective;

/** Draw the questions into `place`; returns `{ told, stop }`: the response with the first round, and a function that ends them. */
export async function detective(place, signal) {
  const state = { round: 0, epsilon: "0.3", task: 0, told: null, drawn: null };
  const points = new Map();
  const parts = { ...questionParts(), total: h("p", { class: "game-total" }), tasks: h("div", {}) };
  const load = async () => {
    try {
      state.told = await ask("learn/tasks", { round: state.round, epsilon: state.epsilon }, signal);
      await show();
    } catch (error) {
      if (!signal.aborted) put(parts.outcome, refusal(error));
    }
  };
  const show = () => drawTask(parts, state, points, signal);
  state.told = await ask("learn/tasks", { round: state.round, epsilon: state.epsilon }, signal);
  const round = h("select", { "aria-label": words.round, on: { change: () => { state.round = Number(round.value); load(); } } },
    Array.from({ length: state.told.rounds }, (_, i) => h("option", { value: i }, words.roundOf(i + 1))));
  const epsilon = h("select", { "aria-label": words.epsilon, on: { change: () => { state.epsilon = epsilon.value; load(); } } },
    state.told.epsilons.map((each) => h("option", { value: each, selected: each === state.epsilon }, `ε ${exactEpsilon(each)}`)));
  put(parts.tasks, segmented(words.task, "task", state.told.tasks.map((each, i) => [String(i), words.names[each.task]]), "0", (_, i) => { state.task = Number(i); show(); }));
  put(place, h("h2", {}, words.title), h("p", { class: "soft" }, words.intro), h("div", { class: "controls" },
    h("label", { class: "choice" }, h("span", { class: "choice-name" }, words.round), round),
    h("label", { class: "choice" }, h("span", { class: "choice-name" }, words.epsilon), epsilon), parts.tasks),
    parts.question, parts.hint, parts.chart, parts.form, parts.outcome, parts.total);
  await show();
  return { told: state.told, stop: () => state.drawn?.stop() };
}

async function drawTask(parts, state, points, signal) {
  const { told } = state;
  const task = told.tasks[state.task];
  state.drawn?.stop();
  state.drawn = null;
  total(parts, points);
  const drawn = await drawQuestion(parts, told, task, (answer) => judge(parts, state, task, answer, points), signal);
  if (signal.aborted || state.told !== told || told.tasks[state.task] !== task) drawn.stop();
  else state.drawn = drawn;
}

/** Request the score of an answer. Only the first answer to a question counts. */
async function judge(parts, state, task, answer, points) {
  const { round, epsilon, drawn } = state;
  try {
    const told = await send("POST", "learn/answers", { task: task.task, round, epsilon, answer });
    const key = `${round}/${epsilon}/${task.task}`;
    const again = points.has(key);
    if (!again) points.set(key, told.points);
    put(parts.outcome, outcome(told, task, [words.points(told.points), again ? h("small", { class: "soft" }, ` ${words.again}`) : null]));
    total(parts, points);
    if (state.drawn === drawn) await drawn?.reveal(told.traces);
  } catch (error) {
    put(parts.outcome, refusal(error));
  }
}

function total(parts, points) {
  const sum = [...points.values()].reduce((all, each) => all + each, 0);
  say(parts.total, points.size ? words.total(sum, points.size) : words.none);
}
