// The table of clients: filtered, sorted, and only what has changed is written again. Of a crowd the server
// picks a page of those that are wanted.

import { byId, make, mark, say } from "./dom.js";
import * as format from "./format.js";
import { isHere } from "./sentence.js";
import { showSpread } from "./spread.js";

const PAUSE_MS = 300; // of whoever types
const SPREAD = [["up", "Up", format.bytes], ["down", "Down", format.bytes], ["cpu", "CPU", format.seconds], ["rss", "Memory", format.bytes], ["temperature", "Heat", (value) => `${value.toFixed(0)} °C`], ["energy", "Energy", (value) => format.amount("energy", value)]];
const VERSIONS = [["software", "edgeflock "], ["torch", "torch "], ["machine", ""]];
const WORDS = { training: "training", uploading: "uploading", delivered: "delivered", overdue: "overdue", refused: "refused the task", quarantined: "in quarantine", away: "away", left: "left", waiting: "waits for a seat", preparing: "preparing", idle: "idle", unknown: "unknown" };
const MOODS = { training: "busy", uploading: "busy", delivered: "good", overdue: "warn", refused: "warn", quarantined: "bad", away: "bad" };
const VERDICTS = { counted: "", late: "warn" };
const RANKS = Object.keys(WORDS);
const working = ["training", "uploading", "delivered", "overdue", "refused"];
const VIEWS = [
  ["all", () => true], ["online", isHere], ...working.map((state) => [state, (c) => c.state === state]),
  ["late", (c) => c.verdict === "late"], ["quarantined", (c) => Boolean(c.until)], ["away", (c) => c.state === "away"], ["left", (c) => c.state === "left"],
];
const COLUMNS = [
  ["Client", (c) => c.seat ?? 1e9], ["Doing", (c) => RANKS.indexOf(c.state)], ["Progress", (c) => -share(c)], ["Last update", (c) => c.verdict ?? ""],
  ["Seen", (c) => -(c.seen ?? 0)], ["Up", (c) => -(c.up ?? 0)], ["Down", (c) => -(c.down ?? 0)], ["CPU", (c) => -(c.cpu ?? 0)],
  ["Memory", (c) => -(c.rss ?? 0)], ["Heat", (c) => -(c.temperature ?? 0)], ["Device", (c) => device(c.device)],
];

const share = (c) => (c.total ? c.done / c.total : 0);

export class Clients {
  constructor() {
    this.rows = new Map();
    this.skip = 0; // clients before the page
    this.sort = { column: 0, down: false };
    this.body = make("tbody", { role: "rowgroup" });
    this.heads = COLUMNS.map(([title], index) => make("th", { scope: "col", role: "columnheader", class: title.toLowerCase() }, make("button", { type: "button", onclick: () => this.sortBy(index) }, title)));
    byId("members").append(make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, ...this.heads)), this.body);
    this.views = VIEWS.map(([name], index) => {
      const many = make("span");
      const input = make("input", { type: "radio", name: "view", value: String(index), checked: index === 0, onchange: () => this.begin() });
      const label = make("label", {}, input, `${name} `, many);
      byId("doing").append(label);
      return { input, label, many };
    });
    byId("search").addEventListener("input", () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.begin(), this.store?.crowd.each ? 0 : PAUSE_MS);
    });
    byId("page-before").addEventListener("click", () => this.turn(-1));
    byId("page-after").addEventListener("click", () => this.turn(1));
  }

  /** What is wanted is another thing: from its first page on. */
  begin() {
    this.skip = 0;
    this.draw();
  }

  turn(pages) {
    this.skip = Math.max(0, this.page.skip + pages * this.store.crowd.page);
    this.draw();
  }

  sortBy(column) {
    this.sort = { column, down: this.sort.column === column && !this.sort.down };
    this.begin();
  }

  draw(store = this.store) {
    if (!store) return;
    this.store = store;
    const { crowd } = store;
    const all = [...store.clients.values()];
    VIEWS.forEach(([name, holds], index) => this.showView(this.views[index], crowd.each ? all.filter(holds).length : crowd.views[name]));
    const hot = crowd.each ? all.some((client) => client.temperature !== undefined || client.throttled) : crowd.spread?.temperature || crowd.throttled;
    mark(byId("members"), "data-heat", hot ? "yes" : "");
    this.heads.forEach((head, index) => mark(head, "aria-sort", index !== this.sort.column ? "" : this.sort.down ? "descending" : "ascending"));
    if (crowd.each) this.showEach(this.chosen(all));
    else this.ask();
    this.showTogether(crowd);
    this.showRefused(store);
  }

  showEach(shown) {
    say(byId("found"), `${format.count(shown.length)} shown`);
    this.showRows(shown);
  }

  showRows(clients) {
    const rows = clients.map((client) => this.row(client));
    if (rows.length !== this.body.children.length || rows.some((row, index) => this.body.children[index] !== row)) this.body.replaceChildren(...rows);
    const shown = new Set(clients.map((client) => client.id));
    for (const id of this.rows.keys()) if (!shown.has(id) && !this.store.clients.has(id)) this.rows.delete(id);
  }

  /** Ask for a page, if what is wanted or what is known has changed; once at a time. */
  async ask() {
    const [wanted, { crowd }] = [this.wanted(), this.store];
    if (this.asking || (this.page?.wanted === wanted && this.page.crowd === crowd)) return;
    this.asking = true;
    try {
      const answer = await fetch(`/api/clients?${wanted}`);
      if (!answer.ok) return;
      this.page = { wanted, crowd, ...(await answer.json()) };
    } catch {
      return; // what was seen last stays; the head of the page says that the link is lost
    } finally {
      this.asking = false;
    }
    this.showPage(this.page);
    this.draw();
  }

  wanted() {
    const show = VIEWS[Number(document.querySelector("input[name=view]:checked").value)][0];
    const by = COLUMNS[this.sort.column][0].toLowerCase();
    return new URLSearchParams({ show, by, down: this.sort.down ? "1" : "0", find: byId("search").value.trim(), skip: String(this.skip) }).toString();
  }

  showPage({ found, skip, clients }) {
    this.skip = skip;
    const last = skip + clients.length;
    say(byId("found"), found > clients.length ? `${format.count(skip + 1)} to ${format.count(last)} of ${format.count(found)}` : `${format.count(found)} shown`);
    byId("page-before").hidden = byId("page-after").hidden = found <= clients.length;
    byId("page-before").disabled = !skip;
    byId("page-after").disabled = last >= found;
    this.showRows(clients);
  }

  /** What is told of all: their versions, and of a crowd how they spread. */
  showTogether(crowd) {
    const versions = VERSIONS.filter(([name]) => crowd.versions?.[name]?.length).map(([name, title]) => title + format.kinds(crowd.versions[name]));
    say(byId("versions"), versions.length ? `Versions: ${versions.join("; ")}` : "");
    byId("spread-part").hidden = !crowd.spread;
    if (crowd.spread) showSpread(byId("spread"), `Of ${format.count(crowd.seated)} clients`, crowd.spread, SPREAD);
  }

  /** A choice of which there is none is hidden, but for the one that is chosen. */
  showView({ input, label, many }, number) {
    say(many, format.count(number));
    label.hidden = !number && !input.checked && input.value !== "0";
  }

  chosen(all) {
    const holds = VIEWS[Number(document.querySelector("input[name=view]:checked").value)][1];
    const text = byId("search").value.trim().toLowerCase();
    const key = COLUMNS[this.sort.column][1];
    const found = all.filter((client) => holds(client) && client.id.toLowerCase().includes(text));
    const sign = this.sort.down ? -1 : 1;
    return found.sort((a, b) => sign * order(key(a), key(b)) || order(a.seat ?? 1e9, b.seat ?? 1e9) || order(a.id, b.id));
  }

  row(client) {
    let row = this.rows.get(client.id);
    if (!row) {
      row = new Row(client.id);
      this.rows.set(client.id, row);
    }
    row.show(client, this.store.now());
    return row.element;
  }

  showRefused(store) {
    const entries = [...store.refused.values()].sort((a, b) => b.at - a.at);
    byId("refused-part").hidden = entries.length === 0;
    const key = entries.map((entry) => entry.cursor).join();
    if (this.refusedKey === key) return;
    this.refusedKey = key;
    byId("refused").replaceChildren(...entries.map((entry) => make("li", { "data-mood": "warn" },
      make("time", {}, format.moment(entry.at)), make("strong", {}, String(entry.client)), ` ${reason(entry.reason)}, ${times(entry.times)}: ${entry.sentence ?? ""}`)));
  }
}

class Row {
  constructor(id) {
    const cell = (label, properties = {}) => make("td", { role: "cell", "data-label": label, ...properties });
    this.doing = cell("", { class: "wide" });
    this.progress = cell("", { class: "wide" });
    this.bar = make("progress", { ariaLabel: `Progress of ${id}` });
    this.far = make("small");
    this.word = cell("last update");
    this.verdict = make("span");
    this.record = make("small");
    this.word.append(this.verdict, this.record);
    this.seen = cell("seen");
    this.up = cell("up", { class: "number" });
    this.down = cell("down", { class: "number" });
    this.cpu = cell("CPU", { class: "number" });
    this.memory = cell("memory", { class: "number" });
    this.heat = cell("heat", { class: "heat" });
    this.device = cell("", { class: "wide" });
    this.element = make("tr", { role: "row" }, make("th", { scope: "row", role: "rowheader" }, id), this.doing, this.progress, this.word, this.seen, this.up, this.down, this.cpu, this.memory, this.heat, this.device);
  }

  show(client, now) {
    say(this.doing, doing(client));
    mark(this.doing, "data-mood", MOODS[client.state]);
    this.showProgress(client);
    mark(this.word, "data-empty", client.verdict === undefined ? "yes" : "");
    say(this.verdict, client.verdict === undefined ? "" : `${client.verdict.replaceAll("_", " ")} in round ${format.count(client.last_round)}`);
    say(this.record, record(client));
    mark(this.verdict, "data-mood", client.verdict === undefined ? "" : VERDICTS[client.verdict] ?? "bad");
    say(this.seen, client.seen ? format.ago(now - client.seen) : "");
    say(this.up, client.up === undefined ? "" : format.bytes(client.up));
    say(this.down, client.down === undefined ? "" : format.bytes(client.down));
    say(this.cpu, client.cpu === undefined ? "" : format.seconds(client.cpu));
    say(this.memory, client.rss === undefined ? "" : format.bytes(client.rss));
    say(this.heat, heat(client));
    mark(this.heat, "data-mood", client.throttled ? "warn" : "");
    say(this.device, device(client.device));
  }

  showProgress(client) {
    if (!client.total) { this.progress.replaceChildren(); return; }
    if (!this.progress.firstChild) this.progress.append(this.bar, this.far);
    this.bar.max = client.total;
    this.bar.value = client.done;
    const percent = `${Math.floor(100 * share(client))} %`;
    say(this.far, client.state === "uploading" ? `${percent} of ${format.bytes(client.total)}` : `${percent}, ${format.count(client.done)} of ${format.count(client.total)} steps${client.spent ? `, ${format.seconds(client.spent)} CPU` : ""}`);
  }
}

function doing(client) {
  const word = WORDS[client.state] ?? client.state;
  if (!client.until) return word;
  const why = `up to round ${format.count(client.until)}, for ${format.count(client.bad)} bad updates; the last one ${client.why.replaceAll("_", " ")}`;
  return client.state === "quarantined" ? `${word} ${why}` : `${word}, in quarantine ${why}`;
}

function record(client) {
  const missed = (client.late ?? 0) + (client.missed ?? 0);
  if (!missed) return "";
  const parts = [[client.counted, "counted"], [client.late, "late"], [client.missed, "not counted for another reason"]];
  return parts.filter(([many]) => many).map(([many, what]) => `${format.count(many)} ${what}`).join(", ");
}

function device(of) {
  if (!of) return "";
  const memory = of.memory_bytes ? format.bytes(of.memory_bytes) : "";
  const cores = of.cores ? `${of.cores} cores` : "";
  return [of.machine, of.system, cores, memory, of.compute].filter(Boolean).join(" · ");
}

function heat(client) {
  const degrees = client.temperature === undefined ? "" : `${client.temperature.toFixed(0)} °C`;
  return [degrees, client.throttled ? "throttled" : ""].filter(Boolean).join(", ");
}

const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
const reason = (name) => String(name).replace(/^REASON_/, "").toLowerCase().replaceAll("_", " ");
const times = (many) => (many === 1 ? "once" : `${format.count(many)} times or more`);
