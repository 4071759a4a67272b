// Begins: takes the one-time link out of the address, asks who we are, and shows the first page.

import { ask, send } from "./api.js";
import { h, put } from "./dom.js";
import { here } from "./router.js";
import { startShell } from "./shell.js";
import { signIn } from "./sign.js";
import { strings } from "./strings.en.js";

const main = document.getElementById("main");

/** Ask for everything that the pages need to know once. */
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

document.documentElement.lang = strings.locale;
if (!here().name && !location.hash.startsWith("#link=")) history.replaceState(null, "", "#/live");
start();
