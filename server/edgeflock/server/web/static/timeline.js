// One round: the server's seconds, and what each member spent on fetching, training, delivering and waiting.

import { byId, make, say } from "./dom.js";
import * as format from "./format.js";
import { showSpread } from "./spread.js";

const PHASES = [["fetch_s", "fetch"], ["train_s", "train"], ["deliver_s", "deliver"], ["wait_s", "wait"]];
const SERVER = ["select_s", "open_s", "fold_s", "commit_s", "evaluate_s"];
const PAUSE_MS = 2000; // between two questions while the newest is followed

export class Timeline {
  constructor() {
    this.seen = false;
    this.asked = 0;
    byId("phases").append(...PHASES.map(([, name], index) => make("li", { class: `p${index + 1}` }, make("span", { class: "swatch" }), name)));
    byId("before").addEventListener("click", () => this.go(this.number - 1));
    byId("after").addEventListener("click", () => this.go(this.number + 1));
    byId("number").addEventListener("change", (event) => this.go(event.target.valueAsNumber));
    byId("number").addEventListener("blur", () => this.showNumber());
    byId("follow").addEventListener("change", () => this.draw());
    byId("member").addEventListener("change", () => this.load());
    new IntersectionObserver(([entry]) => { this.seen = entry.isIntersecting; this.draw(); }).observe(byId("round"));
  }

  /** Show a round that was chosen and stay there. */
  go(number) {
    if (!Number.isInteger(number) || number < 1) return;
    byId("follow").checked = false;
    this.number = number;
    this.load();
  }

  pick(number) {
    this.go(number);
    byId("round").scrollIntoView({ block: "start" });
  }

  draw(store = this.store) {
    this.store = store;
    const newest = store?.order.at(-1);
    const over = store?.run.state === "finished"; // the server leaves: what nobody looks at now may be read later
    if (!newest || !byId("follow").checked || !(this.seen || over)) return;
    if (newest === this.shown && this.complete) return;
    if (Date.now() - this.asked < PAUSE_MS && !(over && newest !== this.number)) return;
    this.number = newest;
    this.load();
  }

  /** Whoever is in the field may be typing. */
  showNumber() {
    if (this.number && document.activeElement !== byId("number")) byId("number").value = String(this.number);
  }

  async load() {
    this.asked = Date.now();
    const wanted = this.number;
    this.showNumber();
    let answer;
    try {
      answer = await fetch(`/api/rounds/${wanted}?${new URLSearchParams({ find: byId("member").value.trim() })}`);
    } catch {
      say(byId("round-note"), this.shown ? `The server is not reached; this is round ${this.shown}, which was seen last.` : "The server is not reached.");
      return;
    }
    if (wanted !== this.number) return;
    if (!answer.ok) {
      say(byId("round-note"), answer.status === 404 ? `There is no round ${wanted} yet.` : "The round cannot be read now.");
      return;
    }
    this.show(await answer.json());
  }

  show(round) {
    this.shown = round.round;
    this.complete = round.complete;
    const open = round.count === 0;
    const epoch = round.epoch ? `, epoch ${round.epoch}` : "";
    say(byId("round-note"), open ? `Round ${round.round} is not committed: its costs come with the commit.` : `Round ${round.round}${epoch}: ${format.count(round.count)} members, and how they spent their time, as they state it${this.complete ? "" : "; what they have not told yet comes with the next round"}.${crowdOf(round)}`);
    byId("member-part").hidden = byId("round-spread-part").hidden = !round.spread;
    if (round.spread) showSpread(byId("round-spread"), `Of ${format.count(round.count)} members`, round.spread, PHASES.map(([name, title]) => [name, title, format.seconds]));
    this.showServer(round.server);
    const whole = Math.max(1e-9, ...round.members.map(total));
    const titles = ["Member", "Update", "Time line", ...PHASES.map(([, name]) => name), "CPU", "Up", "Down"];
    const head = make("tr", { role: "row" }, ...titles.map((title) => make("th", { scope: "col", role: "columnheader" }, title)));
    byId("timeline").replaceChildren(make("thead", { role: "rowgroup" }, head), make("tbody", { role: "rowgroup" }, ...round.members.map((member) => row(member, whole))));
  }

  showServer(server) {
    const parts = SERVER.map((name, index) => [index, name.slice(0, -2), server[name]]).filter(([, , value]) => value !== undefined);
    const sum = parts.reduce((all, [, , value]) => all + value, 0);
    const words = parts.map(([index, name, value]) => make("li", { class: `s${index}` }, make("span", { class: "swatch" }), `${name} ${format.seconds(value)}`));
    const told = [make("p", { class: "title" }, `The server: ${format.seconds(sum)}`), line(parts.map(([index, , value]) => [`s${index}`, value]), sum), make("ul", { class: "legend" }, ...words)];
    byId("server-line").replaceChildren(...(parts.length ? told : []));
  }
}

/** What became of a crowd's updates, and who of it is shown. */
function crowdOf({ spread, verdicts, found, members }) {
  if (!spread) return "";
  const said = verdicts.map(([verdict, many]) => `${format.count(many)} ${verdict.replaceAll("_", " ")}`).join(", ");
  const who = members.length < found ? `the ${members.length} that took longest of ${format.count(found)}` : `${format.count(found)}`;
  return ` Updates: ${said}. Shown: ${who}.`;
}

const total = (member) => PHASES.reduce((sum, [name]) => sum + (member[name] ?? 0), 0);

function line(parts, whole) {
  const spans = parts.map(([kind, value]) => {
    const span = make("span", { class: kind });
    span.style.width = `${(100 * value) / (whole || 1)}%`;
    return span;
  });
  return make("div", { class: "line", ariaHidden: "true" }, ...spans);
}

function row(member, whole) {
  const cell = (label, text, kind = "number") => make("td", { role: "cell", class: kind, "data-label": label }, text);
  const parts = PHASES.map(([name], index) => [`p${index + 1}`, member[name] ?? 0]);
  return make("tr", { role: "row" },
    make("th", { scope: "row", role: "rowheader" }, member.id), cell("", member.verdict.replaceAll("_", " "), "wide"),
    make("td", { role: "cell", class: "bar wide" }, line(parts, whole)),
    ...PHASES.map(([name, label]) => cell(label, format.seconds(member[name]))),
    cell("CPU", format.seconds(member.cpu_s)), cell("up", format.bytes(member.bytes_up)), cell("down", format.bytes(member.bytes_down)));
}
