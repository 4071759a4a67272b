// The address bar: the open page and its parameters, and links to pages. It imports nothing, so that pages can use it.

/** The page and parameters in the address bar. */
export function here() {
  const [name, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { name: name || "", parameters: new URLSearchParams(query ?? "") };
}

/** A link to a page. It keeps `site` and `audience`, and has other parameters only if they are given. */
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

/** Write parameters into the address bar without navigation, so that a reload or a shared link shows the same. */
export function remember(name, parameters) {
  history.replaceState(null, "", link(name, parameters));
}
