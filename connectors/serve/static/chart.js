// Charts of series with bands. uPlot draws the lines; this module adds bands, panning, and reading by keyboard and pointer.

import { colour, h, put, say } from "./dom.js";
import { clock, day, number, stretch, wall, withBand } from "./format.js";
import { BANDED } from "./span.js";
import { strings } from "./strings.js";

const SOURCE = "static/vendor/uplot-1.6.32/uPlot.iife.min.js";
const STYLE = "static/vendor/uplot-1.6.32/uPlot.min.css";
const COLOURS = 6;
const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3], [4, 2], [12, 4]];
const DAY = 86_400;
/** Width in pixels for the names at the ends of lines. */
const NAMES = 132;
let loading = null;

/** uPlot, loaded from this origin when a chart is first drawn. */
function uplot() {
  loading ??= new Promise((done, failed) => {
    const script = h("script", { src: SOURCE, on: { load: () => done(window.uPlot), error: () => failed(new Error(strings.shell.failed)) } });
    document.head.append(h("link", { rel: "stylesheet", href: STYLE }), script);
  });
  return loading;
}

/**
 * Draw series into `place`. Each: `name`, `rows` (from, to, value, low, high, half_width, kind), `colour` and `dash` (0 to 5).
 * `at(row)` returns the time of a row in ms. Returns `{ stop }`.
 */
export async function chart(place, series, { timezone, at, label }) {
  const Plot = await uplot();
  const readout = h("p", { class: "readout", role: "status", "aria-live": "polite" });
  const frame = h("div", { class: "chart", tabindex: "0", role: "group", "aria-label": label, "aria-description": strings.history.keys });
  const data = aligned(series, at);
  const held = { plot: null, focused: null, whole: [data.x[0], data.x.at(-1)] };
  const read = (i) => say(readout, spoken(series, data, i, held.focused, timezone));
  const draw = () => {
    const kept = held.plot ? [held.plot.scales.x.min, held.plot.scales.x.max] : held.whole;
    held.plot?.destroy();
    held.plot = new Plot(options(Plot, frame, series, data, held, timezone, read), [data.x, ...data.values], frame);
    held.plot.setScale("x", { min: kept[0], max: kept[1] });
  };
  const buttons = [["−", 1.5], ["+", 1 / 1.5], ["⤢", null]].map(([text, factor]) =>
    h("button", { class: "button", "aria-label": strings.history.zoom[factor === null ? "all" : factor > 1 ? "out" : "in"], on: { click: () => zoom(held, factor) } }, text));
  read(data.x.length - 1);
  put(place, h("div", { class: "chart-head" }, readout, h("div", { class: "zoom" }, buttons)), frame);
  draw();
  moving(frame, held);
  reading(frame, held, data, read);
  const media = ["(prefers-color-scheme: dark)", "print"].map((query) => matchMedia(query));
  const sizes = new ResizeObserver(() => held.plot.setSize(sizeOf(frame)));
  sizes.observe(frame);
  addEventListener("themechange", draw);
  media.forEach((each) => each.addEventListener("change", draw));
  return { stop() {
    sizes.disconnect();
    removeEventListener("themechange", draw);
    media.forEach((each) => each.removeEventListener("change", draw));
    held.plot.destroy();
  } };
}

/** All series on one time axis, in seconds; missing values are null. */
function aligned(series, at) {
  const times = new Set();
  for (const { rows } of series) for (const row of rows) times.add(at(row));
  const x = [...times].sort((a, b) => a - b);
  const place = new Map(x.map((ms, i) => [ms, i]));
  const columns = series.map(({ rows }) => {
    const found = { value: new Array(x.length).fill(null), low: new Array(x.length).fill(null), high: new Array(x.length).fill(null), row: [] };
    for (const row of rows) {
      const i = place.get(at(row));
      [found.value[i], found.low[i], found.high[i], found.row[i]] = [row.value, row.low, row.high, row];
    }
    return found;
  });
  return { x: x.map((ms) => ms / 1000), values: columns.map((column) => column.value), columns };
}

function sizeOf(frame) {
  return { width: Math.max(200, frame.clientWidth), height: frame.clientWidth < 560 ? 260 : 340 };
}

function options(Plot, frame, series, data, held, timezone, read) {
  const [ink, grid] = [colour("--soft"), colour("--grid")];
  const many = series.length > BANDED;
  const shades = Array.from({ length: COLOURS }, (_, i) => colour(`--c${i}`));
  const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid }, font: "12px system-ui, sans-serif" };
  const lines = series.map((each) => ({
    label: each.name, stroke: shades[each.colour], width: many ? 1 : 2, dash: many ? [] : DASHES[each.dash], points: { show: false },
  }));
  const [low, high] = extent(data);
  return {
    ...sizeOf(frame), padding: [null, named(frame, series) ? NAMES : null, null, null], legend: { show: false }, series: [{}, ...lines],
    tzDate: (seconds) => shown(seconds, timezone),
    scales: { x: { time: true }, y: { range: [Math.min(0, low), Math.max(5, high) * 1.04] } },
    axes: [{ ...axis, values: (_, splits, __, ___, step) => splits.map((seconds) => tick(seconds, step, timezone)), space: 70 }, { ...axis, size: 44, values: (_, splits) => splits.map(number) }],
    cursor: { drag: { x: false, y: false }, y: false, points: { show: !many, size: 7 }, focus: { prox: many ? 24 : -1 } },
    focus: { alpha: many ? 0.25 : 1 },
    hooks: {
      drawAxes: [(plot) => bands(plot, data, many ? [held.focused ?? 0] : series.keys(), series, shades)],
      draw: [(plot) => { if (named(frame, series)) names(plot, data, series, shades); }],
      setSeries: [(plot, i) => { if (many && i !== null && i - 1 !== held.focused) { held.focused = i - 1; plot.redraw(false); } }],
      setCursor: [(plot) => { if (typeof plot.cursor.idx === "number") read(plot.cursor.idx); }],
    },
  };
}

/** A Date whose local fields are those of the site's local time. */
function shown(seconds, timezone) {
  const w = wall(seconds * 1000, timezone);
  return new Date(w.year, w.month - 1, w.day, w.hour, w.minute, w.second);
}

function tick(seconds, step, timezone) {
  const ms = seconds * 1000;
  const w = wall(ms, timezone);
  return step >= DAY || (w.hour === 0 && w.minute === 0) ? day(ms, timezone) : clock(ms, timezone);
}

function extent({ columns }) {
  let [low, high] = [0, 0];
  for (const column of columns) for (let i = 0; i < column.value.length; i += 1) {
    if (column.low[i] !== null && column.low[i] < low) low = column.low[i];
    if (column.high[i] !== null && column.high[i] > high) high = column.high[i];
  }
  return [low, high];
}

/** Fill the bands of some series between visible points. */
function bands(plot, { x, columns }, which, series, shades) {
  const { ctx } = plot;
  const [first, last] = plot.series[0].idxs ?? [0, x.length - 1];
  ctx.save();
  ctx.beginPath();
  ctx.rect(plot.bbox.left, plot.bbox.top, plot.bbox.width, plot.bbox.height);
  ctx.clip();
  ctx.globalAlpha = 0.2;
  for (const k of which) {
    ctx.fillStyle = shades[series[k].colour];
    for (const [a, b] of runs(columns[k].value, Math.max(0, first - 1), Math.min(x.length - 1, last + 1))) {
      ctx.beginPath();
      for (let i = a; i <= b; i += 1) ctx.lineTo(plot.valToPos(x[i], "x", true), plot.valToPos(columns[k].high[i], "y", true));
      for (let i = b; i >= a; i -= 1) ctx.lineTo(plot.valToPos(x[i], "x", true), plot.valToPos(columns[k].low[i], "y", true));
      ctx.fill();
    }
  }
  ctx.restore();
}

/** Whether each line has its name at its end, because colours alone are not accessible. */
const named = (frame, series) => series.length > 1 && series.length <= BANDED && frame.clientWidth >= 560;

/** Write each series' name beside its last visible point. Names that would overlap are moved apart. */
function names(plot, { columns }, series, shades) {
  const { ctx } = plot;
  const last = plot.series[0].idxs?.[1] ?? 0;
  const ratio = window.devicePixelRatio;
  const ends = series.map((each, k) => ({ each, value: columns[k].value.findLast((value, i) => i <= last && value !== null) }));
  let above = -Infinity;
  ctx.save();
  ctx.font = `${12 * ratio}px system-ui, sans-serif`;
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  for (const { each, value } of ends.filter((end) => end.value !== undefined).sort((a, b) => b.value - a.value)) {
    above = Math.max(plot.valToPos(value, "y", true), above + 14 * ratio);
    ctx.fillStyle = shades[each.colour];
    ctx.fillText(each.name, plot.bbox.left + plot.bbox.width + 6 * ratio, above, (NAMES - 8) * ratio);
  }
  ctx.restore();
}

/** The runs of an array without null, as [first, last]. */
function runs(values, first, last) {
  const found = [];
  let begun = null;
  for (let i = first; i <= last; i += 1) {
    if (values[i] !== null && begun === null) begun = i;
    if (begun !== null && (values[i] === null || i === last)) {
      found.push([begun, values[i] === null ? i - 1 : i]);
      begun = null;
    }
  }
  return found;
}

/** "Thu 1 Feb 14:30 to 14:35 PST: Building 143 ±25 · Floor 2 34 ±11" */
function spoken(series, { x, columns }, i, focused, timezone) {
  const named = series.length > BANDED ? [focused ?? 0] : [...series.keys()];
  const figures = named.filter((k) => columns[k].row[i]).map((k) => `${series[k].name} ${withBand(columns[k].row[i])}`);
  const row = columns.map((column) => column.row[i]).find(Boolean);
  return `${strings.history.at(stretch(row.from, row.to, timezone))} ${figures.join(" · ")}`;
}

/** Pan by dragging: at most once a frame, along the time axis only. */
function moving(frame, held) {
  let [start, waiting] = [null, false];
  frame.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    const { min, max } = held.plot.scales.x;
    start = { x: event.clientX, min, max, now: event.clientX };
    frame.setPointerCapture(event.pointerId);
  });
  frame.addEventListener("pointermove", (event) => {
    if (start === null) return;
    start.now = event.clientX;
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      if (start === null) return;
      const by = ((start.x - start.now) / held.plot.over.clientWidth) * (start.max - start.min);
      within(held, start.min + by, start.max + by);
    });
  });
  for (const name of ["pointerup", "pointercancel"]) frame.addEventListener(name, () => { start = null; });
  frame.addEventListener("dblclick", () => zoom(held, null));
  frame.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(held, event.deltaY > 0 ? 1.2 : 1 / 1.2);
  }, { passive: false });
}

/** Show this time range, limited to the range of the data. */
function within(held, min, max) {
  const [first, last] = held.whole;
  const span = Math.min(max - min, last - first);
  const from = Math.min(Math.max(min, first), last - span);
  held.plot.setScale("x", { min: from, max: from + span });
}

function zoom(held, factor) {
  const [first, last] = held.whole;
  const { min, max } = held.plot.scales.x;
  if (factor === null) return within(held, first, last);
  const half = ((max - min) * factor) / 2;
  return within(held, (min + max) / 2 - half, (min + max) / 2 + half);
}

/** Arrow keys read points; with Shift they pan; + and - zoom; 0 shows all. */
function reading(frame, held, data, read) {
  let at = null;
  frame.addEventListener("keydown", (event) => {
    const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const { min, max } = held.plot.scales.x;
    if (way && event.shiftKey) within(held, min + way * 0.25 * (max - min), max + way * 0.25 * (max - min));
    else if (way || event.key === "Home" || event.key === "End") {
      at = next(event.key, at, way, data.x.length);
      if (data.x[at] < min || data.x[at] > max) within(held, data.x[at] - (max - min) / 2, data.x[at] + (max - min) / 2);
      queueMicrotask(() => held.plot.setCursor({ left: held.plot.valToPos(data.x[at], "x"), top: 0 }));
      read(at);
    } else if (event.key === "+" || event.key === "=") zoom(held, 1 / 1.5);
    else if (event.key === "-") zoom(held, 1.5);
    else if (event.key === "0") zoom(held, null);
    else return;
    event.preventDefault();
  });
}

function next(key, at, way, count) {
  if (key === "Home") return 0;
  if (key === "End" || at === null) return count - 1;
  return Math.min(count - 1, Math.max(0, at + way));
}
