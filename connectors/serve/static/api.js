// What the page asks of the service. Every answer is JSON; an error says what, which rule, and perhaps which value.

const BASE = "api/v1/";

/** An error that the service has answered with. */
export class Refused extends Error {
  constructor(status, what, rule, value) {
    super(what);
    this.status = status;
    this.rule = rule ?? "";
    this.value = value ?? "";
  }
}

/** The address of a question, for links and streams too. */
export function address(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, value);
  }
  const text = query.toString();
  return BASE + path + (text ? `?${text}` : "");
}

async function answer(response) {
  if (response.status === 204) return null;
  const body = await response.json().catch(() => null);
  if (response.ok) return body;
  const error = body?.error ?? {};
  throw new Refused(response.status, error.what ?? `${response.status}`, error.rule, error.value);
}

/** Ask; a number as `signal` is not meant: pass an AbortSignal to give up. */
export async function ask(path, parameters = {}, signal = undefined) {
  return answer(await fetch(address(path, parameters), { headers: { Accept: "application/json" }, signal, cache: "no-store" }));
}

/** A way to ask of which the newest counts: each signal it gives ends the one before, and ends when the page is left. */
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

/** Send an object, or end something. */
export async function send(method, path, body = null) {
  return answer(await fetch(BASE + path, {
    method,
    headers: body === null ? {} : { "Content-Type": "application/json" },
    body: body === null ? undefined : JSON.stringify(body),
  }));
}

/** All rows of a question of records, page after page. */
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
