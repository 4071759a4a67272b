// The event stream of an audience: reports new releases and the state of the connection.

import { address, ask } from "./api.js";

const FIRST_WAIT = 1000;
const LONGEST_WAIT = 30_000;

/**
 * Follow an audience's releases until the returned function is called.
 *
 * `heard(record)` is called for each release, `state(name)` with "open", "lost" or "ended". The browser reconnects
 * by itself and sends the id of its last release. If it gives up because the service refused the connection,
 * this function checks whether the session is still valid, and if so reconnects with increasing delays, from the present.
 * A caller must load the newest figures at "open" after "lost" anyway.
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
