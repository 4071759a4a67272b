// The game against the clock: questions, points, and a leaderboard that is stored in this browser.

import { ask, send } from "./api.js";
import { h, put, say } from "./dom.js";
import { best, cleared, entered, minutes, questionAt, readBoard, stopwatch, worth } from "./game_rules.js";
import { drawQuestion, outcome, questionParts, refusal } from "./question.js";
import { exactEpsilon } from "./privacy_terms.js";
import { strings } from "./strings.js";

const words = strings.game;
const EVERY = 250;
/** Remaining seconds at which they are announced. */
const SAID = [60, 10];

/** Draw the game into `place`; returns a function that ends it. `told` is the response with a round: its epsilons and the number of rounds are used. */
export function game(place, { epsilons, epsilon: first, rounds, tasks }, signal) {
  const state = { board: readBoard(storage()), epsilon: first, rounds, tasks: tasks.length, name: "", playing: null, entry: null };
  const body = h("div", {});
  put(place, h("h2", {}, words.title), h("p", { class: "soft" }, words.intro), body);
  const idle = () => put(body, start(), table(state, idle));
  const start = () => {
    const name = h("input", { type: "text", maxlength: 24, autocomplete: "off", spellcheck: "false", value: state.name, "aria-label": words.name });
    const epsilon = h("select", { "aria-label": words.epsilon, on: { change: () => { state.epsilon = epsilon.value; idle(); body.querySelector("select").focus(); } } },
      epsilons.map((each) => h("option", { value: each, selected: each === state.epsilon }, `ε ${exactEpsilon(each)}`)));
    name.addEventListener("input", () => { state.name = name.value; });
    const begin = (event) => {
      event.preventDefault();
      state.entry = null;
      state.playing = played(body, state, signal, over);
    };
    return h("form", { class: "game-answer", on: { submit: begin } }, h("label", { class: "choice" }, words.name, name), h("label", { class: "choice" }, words.epsilon, epsilon),
      h("button", { class: "button main-button", type: "submit" }, words.start), h("small", { class: "soft" }, words.stays));
  };
  const over = (points, answers) => {
    state.playing = null;
    Object.assign(state, entered(storage(), state.board, { name: state.name, epsilon: state.epsilon, points, answers }));
    const said = h("p", { class: "game-points", role: "status", tabindex: "-1" }, words.over(points, answers));
    put(body, said, start(), table(state, idle));
    said.focus();
  };
  idle();
  return () => state.playing?.end();
}

/** Play one game in `body`; `over(points, answers)` is called when its time is up or the player ends it. Returns `{ end }`, which ends it without that call. */
function played(body, state, signal, over) {
  const watch = stopwatch();
  const parts = questionParts();
  const shown = { clock: h("b", { role: "timer", "aria-label": words.left }), points: h("b", {}), number: h("span", { class: "soft" }), said: h("p", { class: "unseen", role: "status", "aria-live": "polite" }) };
  const now = { n: 0, points: 0, answers: 0, earlier: 0, rounds: 0, told: new Map(), drawn: null, ended: false, judging: false };
  const finish = () => {
    if (now.ended) return;
    end();
    over(now.points, now.answers);
  };
  const end = () => {
    now.ended = true;
    clearInterval(timer);
    now.drawn?.stop();
  };
  const tick = () => {
    const left = watch.left();
    say(shown.clock, minutes(left));
    const near = SAID.filter((seconds) => left <= seconds * 1000).at(-1);
    if (near) say(shown.said, words.near(near));
    if (left <= 0 && !now.judging) finish();
  };
  const next = () => asked(parts, shown, state, now, watch, signal, answered).catch((error) => {
    if (!signal.aborted && !now.ended) put(parts.outcome, refusal(error), h("button", { class: "button", on: { click: next } }, strings.shell.again));
  });
  const answered = async (task, round, answer) => {
    if (now.judging || now.ended) return;
    now.judging = true;
    const took = watch.stop();
    try {
      const told = await send("POST", "learn/answers", { task: task.task, round, epsilon: state.epsilon, answer });
      if (now.ended || signal.aborted) return;
      counted(parts, shown, now, told, task, took, watch.left() > 0 && now.n + 1 < state.rounds * state.tasks ? next : finish);
      await now.drawn?.reveal(told.traces);
    } catch (error) {
      put(parts.outcome, refusal(error));
      watch.start();
    } finally {
      now.judging = false;
    }
  };
  put(body, h("div", { class: "game-head" }, h("span", {}, words.left, " ", shown.clock), h("span", {}, words.points, " ", shown.points), shown.number,
    h("button", { class: "button", on: { click: finish } }, words.end)), shown.said, parts.question, parts.hint, parts.chart, parts.form, parts.outcome);
  say(shown.points, "0");
  const timer = setInterval(tick, EVERY);
  tick();
  next();
  return { end };
}

/** Draw the next question and start the clock. */
async function asked(parts, shown, state, now, watch, signal, answered) {
  const { round, task } = questionAt(now.n, state.board.games, state.rounds, state.tasks);
  const told = await roundOf(now, round, state, signal);
  const chosen = told.tasks[task];
  now.drawn?.stop();
  say(shown.number, words.question(now.n + 1));
  now.drawn = await drawQuestion(parts, told, chosen, (answer) => answered(chosen, round, answer), signal);
  if (now.ended) return now.drawn.stop();
  parts.form.querySelector("input, select").focus();
  return watch.start();
}

async function roundOf(now, round, state, signal) {
  if (!now.told.has(round)) now.told.set(round, await ask("learn/tasks", { round, epsilon: state.epsilon }, signal));
  return now.told.get(round);
}

/** Record the score of an answer, and offer the next question. */
function counted(parts, shown, now, told, task, took, next) {
  const got = worth(told.points, took, now.earlier);
  now.points += got.total;
  now.answers += 1;
  now.n += 1;
  if (told.points > 0) now.earlier += 1;
  say(shown.points, String(now.points));
  const button = h("button", { class: "button main-button", on: { click: next } }, words.next);
  put(parts.form, button);
  put(parts.outcome, outcome(told, task, words.got(got)));
  button.focus();
}

/** The best games at the chosen epsilon. */
function table(state, again) {
  const rows = best(state.board.entries, state.epsilon);
  const forget = () => {
    Object.assign(state, { board: cleared(storage(), state.board), entry: null });
    again();
  };
  if (!rows.length) return h("p", { class: "soft game-board" }, words.noBoard(exactEpsilon(state.epsilon)));
  return h("div", { class: "scroll game-board", tabindex: "0", role: "region", "aria-label": words.board(exactEpsilon(state.epsilon)) }, h("table", { class: "table" }, h("caption", {}, words.board(exactEpsilon(state.epsilon))),
    h("thead", {}, h("tr", {}, [[words.rank, "figure"], [words.player], [words.points, "figure"], [words.answers, "figure"]].map(([text, name]) => h("th", { scope: "col", class: name }, text)))),
    h("tbody", {}, rows.map((each, i) => h("tr", { class: each === state.entry ? "sum" : "" }, h("td", { class: "figure" }, i + 1), h("th", { scope: "row" }, h("bdi", {}, each.name || words.nobody)),
      h("td", { class: "figure" }, each.points), h("td", { class: "figure" }, each.answers))))), h("button", { class: "button", on: { click: forget } }, words.forget));
}

/** The browser's storage; without it nothing is stored. */
function storage() {
  try {
    return localStorage;
  } catch {
    return { getItem: () => null, setItem: () => undefined };
  }
}
