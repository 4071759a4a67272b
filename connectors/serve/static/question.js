// A question of the detective game: its text, the released series, a form for the answer, and then the true counts.

import { reasonOf } from "./api.js";
import { chart } from "./chart.js";
import { h, put, say } from "./dom.js";
import { date } from "./format.js";
import { objects } from "./records.js";
import { strings } from "./strings.js";

const words = strings.detective;
const WEEK = 7 * 86_400_000;

/** The elements in which a question is drawn. */
export function questionParts() {
  return { question: h("h3", { class: "part-title", tabindex: "-1" }), hint: h("p", { class: "soft why" }), chart: h("div", {}), form: h("div", {}),
    outcome: h("div", { class: "game-outcome", role: "status", "aria-live": "polite" }) };
}

/**
 * Draw a task of a round into `parts`; `answered(answer)` is called with each answer.
 *
 * Returns `{ reveal(traces), stop() }`: the first draws the true counts beside the released values.
 */
export async function drawQuestion(parts, told, task, answered, signal) {
  const private_ = series(told, task);
  const label = words.questions[task.task](task.place, date(private_[0].rows[0].from, told.timezone), task.limit);
  let drawn = null;
  let stopped = false;
  const draw = async (all) => {
    drawn?.stop();
    drawn = null;
    const made = await chart(parts.chart, all, { timezone: told.timezone, at: (row) => row.to, label });
    if (signal.aborted || stopped) made.stop();
    else drawn = made;
  };
  say(parts.question, label);
  say(parts.hint, words.hints[task.task]);
  put(parts.outcome);
  put(parts.form, form(task, answered));
  await draw(private_);
  return {
    reveal: (traces) => draw([...private_, ...traces.map(({ truth }, i) => truthOf(private_[i], truth, private_.length))]),
    stop() {
      stopped = true;
      drawn?.stop();
      drawn = null;
    },
  };
}

/** The released series of a task; weeks are drawn on top of each other. */
function series(told, task) {
  return task.series.map(({ name, rows }, i) => {
    const by = task.task === "event" ? -i * WEEK : 0;
    const read = objects(told.columns, rows).map((row) => ({ ...row, from: row.from + by, to: row.to + by, kind: "noise" }));
    return { name: words.series[task.task](name), rows: read, colour: i % 6, dash: 0 };
  });
}

/** The true counts of a series: dashed, and in another colour if there is only one series. */
function truthOf(each, truth, of) {
  const rows = each.rows.map((row, i) => ({ ...row, value: truth[i], low: truth[i], high: truth[i], half_width: null, kind: "truth" }));
  return { name: words.trueSeries(each.name), rows, colour: of === 1 ? 1 : each.colour, dash: 1 };
}

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

/** The result of an answer, as text. */
export function outcome(told, task, points) {
  return [h("p", { class: "game-points" }, points), h("p", {}, words.truth[task.task](told.truth), " ", told.off ? words.off[task.task](told.off) : words.exact),
    h("p", { class: "soft why" }, words.machine(told.machine, told.machine_points)), h("p", { class: "soft why" }, words.why[task.task])];
}

/** The reason of a failed request. */
export const refusal = (error) => h("p", { class: "warning", role: "alert" }, reasonOf(error));
