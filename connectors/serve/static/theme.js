// Apply the stored theme before the first paint, so that a dark theme does not flash.
(() => {
  try {
    const chosen = localStorage.getItem("tacet-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Storage is disabled: the system's preference is used.
  }
})();
