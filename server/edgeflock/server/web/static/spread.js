// How the values of very many lie, as a table: a row for each quantity.

import { make } from "./dom.js";
import { PLACES } from "./format.js";

/** Fill a table; `titles` are [name, title, words of a number]. */
export function showSpread(table, of, spread, titles) {
  const cell = (kind, text, scope) => make(kind, { class: kind === "td" || scope === "col" ? "number" : "", scope }, text);
  const head = make("tr", {}, cell("th", of, "row"), ...PLACES.map((place) => cell("th", place, "col")));
  const rows = titles.filter(([name]) => spread[name]).map(([name, title, words]) =>
    make("tr", {}, cell("th", title, "row"), ...spread[name].map((value) => cell("td", words(value)))));
  table.replaceChildren(make("thead", {}, head), make("tbody", {}, ...rows));
}
