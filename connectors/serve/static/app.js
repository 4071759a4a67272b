// Entry point: reads the one-time link from the address, loads the session, and shows the first page.

import { ask, send } from "./api.js";
import { h, put } from "./dom.js";
import { here } from "./router.js";
import { startShell } from "./shell.js";
import { signIn } from "./sign.js";
import { strings } from "./strings.js";

const main = document.getElementById("main");

/** Load the data that all pages need. */
async function begin() {
  put(main, h("p", { class: "notice" }, strings.shell.loading));
  const [session, { sites }, { releases }] = await Promise.all([ask("session"), ask("sites"), ask("releases")]);
  startShell({ session, sites, releases });
}

async function start() {
  const secret = /^#link=(.+)$/.exec(location.hash)?.[1];
  try {
    if (secret) {
      history.replaceState(null, "", "#/live");
      await send("POST", "session", { link: secret });
    }
    await begin();
  } catch (error) {
    signIn(main, error, secret !== undefined, begin);
  }
}

document.querySelector(".skip").textContent = strings.shell.skip;
document.getElementById("nav").setAttribute("aria-label", strings.shell.pages);
if (!here().name && !location.hash.startsWith("#link=")) history.replaceState(null, "", "#/live");
start();
