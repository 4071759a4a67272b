// Requests to the service. Every response is JSON. An error contains the field, the rule and sometimes the value.

import { strings } from "./strings.js";

const BASE = "api/v1/";

/** An error response of the service. */
export class Refused extends Error {
  constructor(status, what, rule, value) {
    super(what);
    this.status = status;
    this.rule = rule ?? "";
    this.value = value ?? "";
  }
}

/** Why a request failed, in the page's language: by the status, with the field and, in English, the service's own words. */
export function reasonOf(error) {
  const words = strings.refusals;
  if (!(error instanceof Refused)) return error.message;
  return `${words[error.status] ?? words.other}${error.rule ? words.detail(error.message, error.rule) : ""}`;
}

/** The URL of a request, also for links and streams. */
export function address(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, value);
  }
  const text = query.toString();
  return BASE + path + (text ? `?${text}` : "");
}

async function answer(asked) {
  const response = await asked.catch((error) => {
    throw error.name === "AbortError" ? error : new Refused(0, "service");
  });
  if (response.status === 204) return null;
  const body = await response.json().catch(() => null);
  if (response.ok) return body;
  const error = body?.error ?? {};
  throw new Refused(response.status, error.what ?? `${response.status}`, error.rule, error.value);
}

/** Send a GET request. `signal` is an AbortSignal that cancels it. */
export async function ask(path, parameters = {}, signal = undefined) {
  return answer(fetch(address(path, parameters), { headers: { Accept: "application/json" }, signal, cache: "no-store" }));
}

/** Return a function that gives AbortSignals: each new one aborts the previous one, and all end when the page is left. */
export function newestOf(left) {
  let asking = new AbortController();
  return () => {
    asking.abort();
    asking = new AbortController();
    const mine = asking;
    left.addEventListener("abort", () => mine.abort(), { signal: mine.signal });
    return mine.signal;
  };
}

/** Send a POST or DELETE request. */
export async function send(method, path, body = null) {
  return answer(fetch(BASE + path, {
    method,
    headers: body === null ? {} : { "Content-Type": "application/json" },
    body: body === null ? undefined : JSON.stringify(body),
  }));
}

/** All rows of a records request, page by page. */
export async function allRows(release, parameters, signal, most = 600_000) {
  const rows = [];
  let columns = [];
  let timezone = "UTC";
  let after = null;
  do {
    const part = await ask(`releases/${encodeURIComponent(release)}/records`, { ...parameters, after, limit: 50_000 }, signal);
    ({ columns, timezone } = part);
    for (const row of part.rows) rows.push(row);
    after = part.next;
  } while (after !== null && rows.length < most);
  return { columns, rows, timezone, whole: after === null };
}
