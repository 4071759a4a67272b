// The address bar: which page is open with which parameters, and links to pages. Imports nothing, so that pages can use it.

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
