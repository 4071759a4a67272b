// The page's texts in a language: of `?lang=` in the address, else the first of the browser's that there is, else English.

/** A language is a file and a line here. */
const LANGUAGES = {
  de: () => import("./strings.de.js"),
  en: () => import("./strings.en.js"),
};

const wanted = [new URLSearchParams(location.search).get("lang"), ...navigator.languages].map((tag) => String(tag).toLowerCase().split("-")[0]);
const chosen = wanted.find((language) => Object.hasOwn(LANGUAGES, language)) ?? "en";

export const { strings } = await LANGUAGES[chosen]();
document.documentElement.lang = strings.locale;
