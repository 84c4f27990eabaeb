// The head of the page: state, progress, budgets, tiles.

import { byId, make, mark, say } from "./dom.js";
import * as format from "./format.js";
import { here, nowInWords } from "./sentence.js";

const MOODS = { running: "busy", gathering: "busy", paused: "warn", draining: "warn", finished: "good", unreachable: "bad" };
const PACE_ROUNDS = 20;
const bars = new Map();
const tiles = new Map();

export function showOverview(store) {
  const { run } = store;
  showHead(store);
  say(byId("because"), nowInWords(store));
  const done = committed(store);
  showBar("rounds", "Rounds", done, run.rounds, `${format.count(done)} of ${format.count(run.rounds)}${remaining(store)}`);
  for (const { name, used, limit } of run.budgets ?? []) {
    const share = `${format.amount(name, used)} of ${format.amount(name, limit)}, ${Math.round((100 * used) / limit)} %`;
    const unknown = name === "energy" && !used && done;
    showBar(`budget ${name}`, `Budget of ${name}`, used, limit, unknown ? `not known of ${format.amount(name, limit)}: no client states its energy` : share);
  }
  const { name } = figureOf(run);
  forgetBars((key) => (key.startsWith("budget ") && run.budgets?.every(({ name }) => key !== `budget ${name}`)) || (key === "target" && !run.target));
  if (run.target) {
    const best = run.target.name === name ? judged(store)[0] : store.newest()[`${run.target.name} global`];
    const [far, whole] = run.target.higher ? [best ?? 0, run.target.value] : [best === undefined ? 0 : run.target.value, best ?? 1];
    showBar("target", `Target ${run.target.name}`, far, whole, `best ${best === undefined ? "none yet" : format.ratio(best)}, wanted ${run.target.value}`);
  }
  showTiles(store);
}

function showHead(store) {
  const { run } = store;
  const ended = run.state === "finished" ? run.ended || "finished" : run.state;
  say(byId("run"), [run.data ? `${run.method} on ${run.data}` : run.method, run.model, run.seats ? `${format.count(run.seats)} clients` : ""].filter(Boolean).join(" · "));
  say(byId("state"), ended);
  mark(byId("state"), "data-mood", ended === "failed" ? "bad" : ended === "stopped" ? "warn" : MOODS[run.state]);
  say(byId("run-id"), run.id ?? "");
}

/** The tab: how far, how good, what; in front what is not just going on. It is read while the page is not. */
export function showTab(store, linked) {
  const title = store.run.state ? inShort(store, linked) : "edgeflock";
  if (document.title !== title) document.title = title;
}

function inShort(store, linked) {
  const { run } = store;
  const [, , now] = judged(store);
  const far = run.state === "gathering" ? `${format.count(here(store))} of ${format.count(run.seats)} clients` : `${committed(store)}/${run.rounds}`;
  const parts = [[news(run, linked), far].filter(Boolean).join(" "), now === undefined ? "" : now.toFixed(2), run.method];
  return parts.filter(Boolean).join(" · ");
}

function news(run, linked) {
  if (run.state === "finished") return run.ended || "finished";
  if (linked !== "live") return "no connection";
  return run.state === "running" ? "" : run.state;
}

const committed = ({ run, order }) => run.round ?? order.at(-1) ?? 0;

/** An estimate from the newest rounds; none where it would be a guess. A budget may end the run before its rounds do. */
function remaining(store) {
  const { run, order } = store;
  const stuck = run.open && run.open.away === run.open.cohort - run.open.here && run.open.away > 0;
  if (run.state !== "running" || order.length < 3 || stuck) return "";
  const newest = order.slice(-PACE_ROUNDS).map((round) => store.rows.get(round).at).filter(Boolean);
  const pace = (newest.at(-1) - newest[0]) / (newest.length - 1);
  let [rounds, why] = [run.rounds - (run.round ?? 0), ""];
  for (const { name, used, limit } of run.budgets ?? []) {
    const within = used > 0 ? ((limit - used) / used) * run.round : Infinity;
    if (within < rounds) [rounds, why] = [within, `; then the budget of ${name} is used up`];
  }
  const left = rounds * pace;
  return Number.isFinite(left) && left > 0 ? `, about ${format.duration(left)} left at this pace${why}` : "";
}

function showBar(key, name, value, max, text) {
  let bar = bars.get(key);
  if (!bar) {
    const progress = make("progress", { id: `bar-${key.replaceAll(" ", "-")}` });
    const words = make("span");
    const element = make("div", { class: "bar-line" }, make("label", { htmlFor: progress.id }, make("span", {}, name), words), progress);
    bar = { progress, words, element };
    byId("bars").append(element);
    bars.set(key, bar);
  }
  bar.progress.max = max || 1;
  bar.progress.value = Math.min(value, max || 1);
  say(bar.words, text);
}

/** A run that goes on may have other budgets, and another target. */
function forgetBars(holds) {
  for (const key of [...bars.keys()].filter(holds)) {
    bars.get(key).element.remove();
    bars.delete(key);
  }
}

function showTiles(store) {
  const { run } = store;
  const row = store.newest();
  const { crowd } = store;
  const [best, bestRound, last] = judged(store);
  const [up, down] = [crowd.up ?? 0, crowd.down ?? 0];
  byId("tiles").hidden = !store.order.length && run.state === "gathering";
  tile(format.name(figureOf(run).name), last === undefined ? "none yet" : format.ratio(last), best === undefined ? "" : `best ${format.ratio(best)} in round ${bestRound}`);
  tile("Training loss", row.loss === undefined ? "none yet" : format.plain(row.loss), "");
  tile("Open round", openRound(run), openDetail(store));
  const seats = format.count(run.seats ?? crowd.seated ?? 0);
  if (run.state === "finished") tile("Clients", seats, "the run is over");
  else tile("Clients", `${format.count(crowd.seated_here ?? 0)} of ${seats} online`, doingNow(crowd.views));
  tile("Bytes moved", format.bytes(up + down), `${format.bytes(up)} up, ${format.bytes(down)} down`);
  tile("Time in rounds", format.duration(run.seconds ?? 0), row.seconds === undefined ? "" : `newest round ${format.seconds(row.seconds)}`);
  if (crowd.energy) tile("Energy of clients", format.amount("energy", crowd.energy), crowd.sources.map((source) => (source === "model" ? "stated watts, not measured" : `measured by ${source}`)).join("; "));
  const { server = {} } = run;
  if (server.rss || tiles.has("Server process")) tile("Server process", server.rss ? format.bytes(server.rss) : "–", server.rss ? `${format.plain(server.cpu_percent)} % of a core, ${format.duration(server.cpu_s)} CPU` : "");
}

function openRound(run) {
  return run.open ? `${format.count(run.open.round)}${run.open.closing ? " (closing)" : ""}` : "none";
}

function openDetail(store) {
  const { open } = store.run;
  if (!open) return "";
  const left = open.deadline === undefined ? "" : `, deadline in ${format.duration(open.deadline - store.now())}`;
  return `${open.phase}, for ${format.duration(store.now() - open.began)}${left}`;
}

function doingNow(views) {
  const said = [...["training", "uploading", "delivered", "overdue"].map((state) => [views[state], state]), [views.quarantined, "in quarantine"]];
  return said.filter(([number]) => number).map(([number, state]) => `${format.count(number)} ${state}`).join(", ");
}

const figureOf = (run) => run.figure ?? { name: "accuracy", higher: true };

/** The best value of what the run is judged by, its round, and the last value. */
function judged(store) {
  const { name, higher } = figureOf(store.run);
  let [best, bestRound] = store.run.best ?? []; // of all rounds, while a page may have some
  let last;
  for (const round of store.order) {
    const value = store.rows.get(round)[`${name} global`];
    if (value === undefined) continue;
    last = value;
    if (best === undefined || (higher ? value > best : value < best)) [best, bestRound] = [value, round];
  }
  return [best, bestRound, last];
}

function tile(name, text, detail) {
  let shown = tiles.get(name);
  if (!shown) {
    shown = { text: make("span"), detail: make("small") };
    byId("tiles").append(make("div", {}, make("dt", {}, name), make("dd", {}, shown.text, shown.detail)));
    tiles.set(name, shown);
  }
  say(shown.text, text);
  say(shown.detail, detail);
}
