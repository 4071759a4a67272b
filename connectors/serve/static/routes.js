// The table of pages, and who may open each. A page is one module under pages/, with `mount(place, context) -> leave`.

/**
 * `needs`: the session needs one of these roles ("audience": any audience); empty: everybody. `placed`: the page shows one
 * building. `offered`: the session says that the service has what it shows. `load` imports the module when the page is first opened. A page's `mount(place, context)` draws into the element
 * `place` and returns a function that is called when the reader leaves the page.
 */
export const PAGES = [
  { name: "live", needs: ["audience"], placed: true, load: () => import("./pages/live.js") },
  { name: "history", needs: ["audience"], placed: true, load: () => import("./pages/history.js") },
  { name: "day", needs: ["audience"], placed: true, load: () => import("./pages/day.js") },
  { name: "bookings", needs: ["audience"], placed: true, offered: (session) => session.bookings.length > 0, load: () => import("./pages/bookings.js") },
  { name: "privacy", needs: ["audience", "account"], placed: false, load: () => import("./pages/privacy.js") },
  { name: "learn", needs: [], placed: false, load: () => import("./pages/learn.js") },
  { name: "ops", needs: ["operator"], placed: false, load: () => import("./pages/ops.js") },
];

/** The pages that a session's roles may see, in the order of the navigation. */
export function pagesFor(session) {
  const may = (needed) => session.roles.some((role) => role.split(":")[0] === needed);
  return PAGES.filter((page) => (!page.needs.length || page.needs.some(may)) && (page.offered?.(session) ?? true));
}
