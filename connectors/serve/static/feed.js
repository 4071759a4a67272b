// The stream of an audience: says that something was released, and in which state the line is.

import { address } from "./api.js";

const FIRST_WAIT = 1000;
const LONGEST_WAIT = 30_000;

/**
 * Follow an audience's releases until the returned function is called.
 *
 * `heard(record)` is called for each release, `state(name)` with "open", "lost" or "ended". The browser takes a line
 * up again by itself, and says which release it had last; where it gives up, this does the same, more and more slowly.
 */
export function follow(audience, { heard, state }) {
  let source = null;
  let timer = null;
  let last = null;
  let wait = FIRST_WAIT;
  let stopped = false;

  const connect = () => {
    source = new EventSource(address("stream", { audience, after: last }));
    source.addEventListener("open", () => {
      wait = FIRST_WAIT;
      state("open");
    });
    source.addEventListener("release", (event) => {
      last = event.lastEventId || last;
      heard(JSON.parse(event.data));
    });
    source.addEventListener("end", () => {
      stop();
      state("ended");
    });
    source.addEventListener("error", () => {
      if (stopped) return;
      state("lost");
      if (source.readyState !== EventSource.CLOSED) return;
      timer = setTimeout(connect, wait);
      wait = Math.min(2 * wait, LONGEST_WAIT);
    });
  };
  const stop = () => {
    stopped = true;
    clearTimeout(timer);
    source.close();
  };
  connect();
  return stop;
}
