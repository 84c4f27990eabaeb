// The curves: which lines each chart has, and the charts themselves (uPlot).

import { byId, make, say } from "./dom.js";
import * as format from "./format.js";

const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [5, 5], [14, 4]];
const PHASES = ["select_s", "open_s", "fold_s", "commit_s", "evaluate_s"];
const AXES = { round: ["round", format.plain], bytes: ["bytes moved", format.bytes], seconds: ["seconds in rounds", format.duration] };

const WHOLE = [1, 2, 5].flatMap((step) => [0, 1, 2, 3, 4, 5].map((power) => step * 10 ** power)).sort((a, b) => a - b); // no half rounds

const FIGURES = [
  { title: "Accuracy", tests: true, words: format.ratio, lines: (names) => ofFigure(names), axis: format.tick },
  { title: "Loss", words: format.plain, axis: format.tick, lines: (names) => [["loss", "training"], ...chosen(names, /^loss /, (name) => name.replace("loss ", "test of ").replace(" of global", ""))].filter(([name]) => names.includes(name)) },
  { title: "Bytes of a round", zero: true, words: format.bytes, lines: () => [["bytes_up", "up"], ["bytes_down", "down"]] },
  { title: "Seconds of a round", zero: true, words: format.seconds, lines: (names) => [["seconds", "whole"], ...PHASES.filter((name) => names.includes(name)).map((name) => [name, name.slice(0, -2)])] },
];
const SHOWN = /^(worst_tenth|loss|skipped) |^(round|at|loss|seconds|bytes_up|bytes_down)$/;
let figure = "accuracy"; // by which the run's models are judged

const ofFigure = (names) => chosen(names, new RegExp(`^(${figure}|worst_tenth) `), (name) => (name === `${figure} global` ? "global model" : name.startsWith(`${figure} `) ? name.slice(figure.length + 1) : name));
const isShown = (name) => SHOWN.test(name) || name.startsWith(`${figure} `);

function chosen(names, pattern, title) {
  const rank = (name) => (name.endsWith(" global") ? `0${name}` : `1${name}`);
  const found = names.filter((name) => pattern.test(name)).sort((a, b) => (rank(a) < rank(b) ? -1 : 1));
  return found.map((name) => [name, title(name).replaceAll("_", " ")]);
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** All charts of the page. `pick` is called with a round that was chosen. */
export class Charts {
  constructor(pick) {
    this.figures = FIGURES.map((figure) => new Figure(figure, pick));
    this.other = new Figure({ title: "Other figures", words: format.plain, axis: format.tick, lines: (names) => this.otherLines(names) }, pick);
    this.choice = make("select", { ariaLabel: "Which number", onchange: () => this.again?.() });
    this.other.caption.append(this.choice);
    this.other.element.hidden = true;
    byId("charts").append(...this.figures.map((figure) => figure.element), this.other.element);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.rebuild());
  }

  otherLines(names) {
    const rest = names.filter((name) => !isShown(name) && !PHASES.includes(name)).sort();
    const known = [...this.choice.options].map((option) => option.value);
    for (const name of rest) if (!known.includes(name)) this.choice.append(make("option", { value: name }, name.replaceAll("_", " ")));
    this.other.element.hidden = rest.length === 0;
    return rest.length ? [[this.choice.value || rest[0], this.choice.value || rest[0]]] : [];
  }

  draw(store) {
    const kind = document.querySelector("input[name=axis]:checked").value;
    const names = store.names();
    figure = store.run.figure?.name ?? figure;
    this.figures[0].entitle(format.name(figure));
    this.again = () => this.draw(store);
    for (const figure of [...this.figures, this.other]) figure.draw(store, kind, names);
    const { drawn } = store.run;
    say(byId("drawn"), drawn > 1 ? `Of the older rounds one in ${format.count(drawn)} is drawn, one with a test where there is one.` : "");
  }

  rebuild() {
    for (const figure of [...this.figures, this.other]) figure.drop();
    this.again?.();
  }
}

class Figure {
  constructor({ title, words, lines, axis = words, zero = false, tests = false }, pick) {
    Object.assign(this, { title, words, lines, axis, zero, tests, pick });
    this.caption = make("figcaption", {}, title);
    this.box = make("div", { class: "chart", tabIndex: 0, role: "img", ariaLabel: title });
    this.legend = make("ul", { class: "legend" });
    this.element = make("figure", {}, this.caption, this.box, this.legend);
    this.box.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(this.box);
  }

  entitle(title) {
    if (this.title === title) return;
    this.title = title;
    say(this.caption, title);
  }

  size() {
    return { width: Math.max(200, this.box.clientWidth), height: 220 };
  }

  draw(store, kind, names) {
    const lines = this.lines(names);
    const key = JSON.stringify([kind, lines]);
    const data = [store.axis(kind), ...lines.map(([name]) => store.column(name))];
    this.order = store.order;
    this.data = data;
    if (this.key_ !== key) this.drop();
    this.key_ = key;
    if (!lines.length || !store.order.length) { this.showEmpty(store); return; }
    if (!this.plot) this.build(kind, lines);
    const index = this.plot.cursor.idx;
    this.plot.setData(data);
    this.tell(index ?? null);
    this.box.ariaLabel = this.summary(lines);
  }

  /** Why there is no line, to those who see and those who hear. */
  showEmpty({ run, order }) {
    const untested = run.eval_every === 0 ? "No test yet: --eval-every 0 tests no round." : "No test yet.";
    const text = !order.length ? "No round is committed yet." : this.tests ? untested : "No figure yet.";
    if (this.box.textContent !== text) this.box.replaceChildren(make("p", { class: "empty" }, text));
    this.box.ariaLabel = `${this.title}. ${text}`;
  }

  drop() {
    this.plot?.destroy();
    this.plot = undefined;
    this.values = [];
    this.legend.replaceChildren();
  }

  build(kind, lines) {
    this.box.replaceChildren();
    const [name, words] = AXES[kind];
    const series = lines.map(([, title], index) => ({
      label: title, stroke: colour(`--c${(index % 6) + 1}`), width: 2, dash: DASHES[index % 6], spanGaps: true, points: { show: (plot) => plot.data[0].length < 30 },
    }));
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { stroke: colour("--grid"), width: 1 }, font: "12px system-ui, sans-serif" };
    const values = (format_) => (plot, splits, axis, space, step) => splits.map((value) => format_(value, step));
    this.plot = new uPlot({
      ...this.size(), legend: { show: false }, scales: { x: { time: false }, y: this.zero ? { range: (plot, low, high) => [0, (high || 1) * 1.05] } : {} },
      cursor: { y: false, points: { size: 6 } },
      axes: [{ ...axis, values: values(words), space: 64, size: 28, gap: 3, label: name, labelFont: "12px system-ui, sans-serif", labelSize: 16, labelGap: 0, ...(kind === "round" ? { incrs: WHOLE } : {}) }, { ...axis, values: values(this.axis), size: 64 }],
      series: [{}, ...series],
      hooks: { setCursor: [(plot) => this.tell(plot.cursor.idx)] },
    }, this.data, this.box);
    this.plot.over.addEventListener("click", () => this.choose());
    this.values = lines.map(() => make("span"));
    this.legend.replaceChildren(...lines.map(([, title], index) => {
      const swatch = make("span", { class: "swatch" });
      swatch.style.borderTopColor = series[index].stroke;
      swatch.style.borderTopStyle = index === 0 ? "solid" : index % 2 ? "dashed" : "dotted";
      return make("li", {}, swatch, `${title} `, this.values[index]);
    }), this.at = make("li", { class: "soft" }));
  }

  /** Show the values under the cursor, or else the newest. */
  tell(index) {
    const at = index ?? this.order.length - 1;
    this.values.forEach((value, line) => {
      const column = this.data[line + 1];
      let place = at;
      if (index === null) while (place > 0 && (column[place] ?? null) === null) place -= 1;
      say(value, column[place] === null || column[place] === undefined ? "–" : this.words(column[place]));
    });
    if (this.at) say(this.at, index === null || index === undefined ? "newest" : `in round ${this.order[index]}`);
  }

  summary(lines) {
    const told = lines.map(([, title], index) => `${title} ${this.values[index].textContent}`);
    return `${this.title}, up to round ${format.count(this.order.at(-1))}. Newest: ${told.join(", ")}. Arrow keys read the rounds.`;
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
    if (!this.plot || (step === undefined && event.key !== "Enter")) return;
    event.preventDefault();
    if (event.key === "Enter") { this.choose(); return; }
    const last = this.order.length - 1;
    const index = Math.min(last, Math.max(0, (this.plot.cursor.idx ?? last) + step));
    this.plot.setCursor({ left: this.plot.valToPos(this.data[0][index], "x"), top: 10 });
    this.tell(index);
    this.legend.ariaLive = "polite"; // only who moves the cursor is told
  }

  choose() {
    const index = this.plot?.cursor.idx;
    if (index !== null && index !== undefined) this.pick(this.order[index]);
  }
}
