// Before anything is painted: the theme that was chosen here last, so that a dark room stays dark.
(() => {
  try {
    const chosen = localStorage.getItem("tacet-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Storage is switched off: the machine's own preference holds.
  }
})();
