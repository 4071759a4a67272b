// Tooltips, shown by pointer and keyboard.

import { h, put } from "./dom.js";

const tip = h("div", { class: "tip", role: "tooltip", id: "tip", hidden: true });
const EDGE = 8;

/** Show `lines()` (nodes or texts) beside each element of `place` that matches `selector`, while it is hovered or has the focus. */
export function tips(place, selector, lines) {
  const show = (event) => {
    const target = event.target.closest?.(selector);
    if (!target) return;
    if (!tip.isConnected) document.body.append(tip);
    put(tip, lines(target));
    tip.hidden = false;
    beside(target);
  };
  const hide = () => { tip.hidden = true; };
  place.addEventListener("pointerover", (event) => (event.target.closest?.(selector) ? show(event) : hide()));
  place.addEventListener("pointerleave", hide);
  place.addEventListener("focusin", show);
  place.addEventListener("focusout", hide);
  place.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  return hide;
}

function beside(target) {
  const box = target.getBoundingClientRect();
  const own = tip.getBoundingClientRect();
  const left = Math.min(Math.max(EDGE, box.left + box.width / 2 - own.width / 2), innerWidth - own.width - EDGE);
  const above = box.top - own.height - EDGE;
  tip.style.left = `${Math.max(EDGE, left)}px`;
  tip.style.top = `${above > EDGE ? above : box.bottom + EDGE}px`;
}

/** Let arrow keys move within a list that has one Tab stop (roving tabindex). */
export function roving(list, selector) {
  const all = () => [...list.querySelectorAll(selector)];
  all().forEach((each, i) => each.setAttribute("tabindex", i === 0 ? "0" : "-1"));
  list.addEventListener("keydown", (event) => {
    const found = all();
    const at = found.indexOf(event.target.closest(selector));
    const to = at < 0 ? undefined : goal(event.key, at, found);
    if (to === undefined) return;
    event.preventDefault();
    found.forEach((each) => each.setAttribute("tabindex", "-1"));
    found[to].setAttribute("tabindex", "0");
    found[to].focus();
  });
}

function goal(key, at, found) {
  const last = found.length - 1;
  if (key === "ArrowRight") return Math.min(last, at + 1);
  if (key === "ArrowLeft") return Math.max(0, at - 1);
  if (key === "Home") return 0;
  if (key === "End") return last;
  if (key === "ArrowDown" || key === "ArrowUp") return nextRow(found, at, key === "ArrowDown" ? 1 : -1);
  return undefined;
}

/** The next element below or above, by position on the screen. */
function nextRow(found, at, way) {
  const here = found[at].getBoundingClientRect();
  const there = found
    .map((each, i) => ({ i, box: each.getBoundingClientRect() }))
    .filter(({ box }) => way * (box.top - here.top) > here.height / 2)
    .sort((a, b) => way * (a.box.top - b.box.top) || Math.abs(a.box.left - here.left) - Math.abs(b.box.left - here.left));
  return there[0]?.i ?? at;
}
