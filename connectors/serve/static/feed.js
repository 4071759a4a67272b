// The stream of an audience: says that something was released, and in which state the line is.

import { address, ask } from "./api.js";

const FIRST_WAIT = 1000;
const LONGEST_WAIT = 30_000;

/**
 * Follow an audience's releases until the returned function is called.
 *
 * `heard(record)` is called for each release, `state(name)` with "open", "lost" or "ended". The browser takes a line
 * up again by itself, and says which release it had last. Where it gives up, because it was answered with a refusal,
 * this asks whether the session still holds, and if so tries again, more and more slowly, from now on: whoever hears
 * "open" after "lost" has to ask for the newest figures anyway.
 */
export function follow(audience, { heard, state }) {
  let source = null;
  let timer = null;
  let wait = FIRST_WAIT;
  let stopped = false;

  const connect = () => {
    source = new EventSource(address("stream", { audience }));
    source.addEventListener("open", () => {
      wait = FIRST_WAIT;
      state("open");
    });
    source.addEventListener("release", (event) => heard(JSON.parse(event.data)));
    source.addEventListener("end", (event) => {
      source.close();
      if (JSON.parse(event.data).why === "revoked") end();
      else later();
    });
    source.addEventListener("error", () => {
      if (stopped) return;
      state("lost");
      if (source.readyState === EventSource.CLOSED) later();
    });
  };
  const later = () => {
    state("lost");
    clearTimeout(timer);
    timer = setTimeout(again, wait);
    wait = Math.min(2 * wait, LONGEST_WAIT);
  };
  const again = () => ask("session").then(connect, (error) => (error.status === 401 ? end() : later()));
  const stop = () => {
    stopped = true;
    clearTimeout(timer);
    source.close();
  };
  const end = () => {
    stop();
    state("ended");
  };
  connect();
  return stop;
}
