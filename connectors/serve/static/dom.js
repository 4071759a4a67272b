// All elements are created here. Text is always a text node, so that no name in a policy can become markup.

const SVG = "http://www.w3.org/2000/svg";

/** Create an HTML element. Properties: `class`, `on` (listeners by name), `data` (data-*), or attributes; children: nodes or text. */
export function h(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

/** Create an SVG element in the same way. */
export function s(tag, properties = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") Object.entries(value).forEach(([event, listener]) => element.addEventListener(event, listener));
    else if (name === "data") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Replace all children of an element. */
export function put(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Set a text only if it differs, so that screen readers announce only changes. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

let counted = 0;
/** Return an id that is unique in this document. */
export const uid = (prefix) => `${prefix}-${++counted}`;

/** Allow at most one call per `wait` milliseconds; the last call is never dropped. */
export function throttled(wait, run) {
  let timer = null;
  let again = false;
  const fire = () => {
    timer = setTimeout(() => {
      timer = null;
      if (again) {
        again = false;
        fire();
        run();
      }
    }, wait);
  };
  const call = () => {
    if (timer !== null) again = true;
    else {
      fire();
      run();
    }
  };
  call.stop = () => {
    clearTimeout(timer);
    timer = null;
    again = false;
  };
  return call;
}

/** The current colour of a CSS custom property, for a canvas. */
export function colour(name) {
  const probe = h("span", { class: "unseen" });
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}
