// The newest rounds as a table: what the curves say, for those who read.

import { byId, make } from "./dom.js";
import * as format from "./format.js";

const SHOWN = 50;
const columns = (figure) => [
  ["Round", (row) => format.count(row.round)], ["Counted", (row) => format.plain(row.counted)],
  [format.name(figure), (row) => format.ratio(row[`${figure} global`])], ["Test loss", (row) => format.plain(row["loss global"])],
  ["Training loss", (row) => format.plain(row.loss)], ["Up", (row) => format.bytes(row.bytes_up)],
  ["Down", (row) => format.bytes(row.bytes_down)], ["Seconds", (row) => format.seconds(row.seconds)],
  ["Committed", (row) => (row.at ? format.moment(row.at) : "")],
];

export function showRounds(store) {
  if (!byId("table-of-rounds").open) return;
  const shown = columns(store.run.figure?.name ?? "accuracy");
  const head = make("tr", {}, ...shown.map(([title]) => make("th", { scope: "col", class: "number" }, title)));
  const rows = store.order.slice(-SHOWN).reverse().map((round) => {
    const row = store.rows.get(round);
    return make("tr", {}, ...shown.map(([, text], index) => make(index ? "td" : "th", { class: "number", scope: index ? null : "row" }, text(row))));
  });
  byId("rounds").replaceChildren(make("caption", { class: "hint" }, `The newest ${rows.length} rounds`), make("thead", {}, head), make("tbody", {}, ...rows));
}
