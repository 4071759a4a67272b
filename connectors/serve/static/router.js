// Which pages there are, and who sees them. A page is one module under pages/, with `mount(place, context) -> leave`.

/**
 * The table of pages. `needs` are roles, of which one is enough ("audience" for any audience); none: everybody. A page that is
 * `placed` is of one building. `load` fetches the module when it is first asked for.
 * A page's `mount(place, context)` draws into the element `place`; it returns a function that is called when one goes elsewhere.
 */
export const PAGES = [
  { name: "live", needs: ["audience"], placed: true, load: () => import("./pages/live.js") },
  { name: "history", needs: ["audience"], placed: true, load: () => import("./pages/history.js") },
  { name: "day", needs: ["audience"], placed: true, load: () => import("./pages/day.js") },
  { name: "privacy", needs: ["audience", "account"], placed: false, load: () => import("./pages/privacy.js") },
  { name: "learn", needs: [], placed: false, load: () => import("./pages/learn.js") },
  { name: "ops", needs: ["operator"], placed: false, load: () => import("./pages/ops.js") },
];

/** The pages that a session's roles may see, in the order of the navigation. */
export function pagesFor(session) {
  const may = (needed) => session.roles.some((role) => role.split(":")[0] === needed);
  return PAGES.filter((page) => !page.needs.length || page.needs.some(may));
}

/** Where the address bar says we are: a page's name and its parameters. */
export function here() {
  const [name, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { name: name || "", parameters: new URLSearchParams(query ?? "") };
}

/** A link to a page; `site` and `audience` go along, other parameters only when they are given. */
export function link(name, parameters = {}) {
  const kept = here().parameters;
  const query = new URLSearchParams();
  for (const key of ["site", "audience"]) if (kept.get(key)) query.set(key, kept.get(key));
  for (const [key, value] of Object.entries(parameters)) {
    if (value === null || value === undefined || value === "") query.delete(key);
    else query.set(key, value);
  }
  const text = query.toString().replaceAll("%3A", ":").replaceAll("%2C", ",");
  return `#/${name}${text ? `?${text}` : ""}`;
}

/** Write parameters into the address bar without going anywhere: a reload, or a link sent to somebody, shows the same. */
export function remember(name, parameters) {
  history.replaceState(null, "", link(name, parameters));
}
