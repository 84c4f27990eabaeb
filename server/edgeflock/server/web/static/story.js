// The event story: what happened, in sentences, the newest first.

import { byId, make } from "./dom.js";
import * as format from "./format.js";

const ROUNDS = new Set(["round_opened", "round_committed", "evaluated"]);
const BAD = new Set(["epoch_raised", "run_broken"]);
const WARN = new Set(["refused", "task_refused", "updates_rejected", "run_paused", "round_extended", "clients_missed", "run_parked", "client_quarantined", "round_cut", "round_discarded", "budget_unmeasured", "certificate", "evaluation_failed", "caution", "code_differs", "operations_not_counted"]);
const TOGETHER = { client_joined: "joined", client_ready: "became ready", client_left: "went away", client_leaving: "left" };
const [NEAR_S, NAMED] = [5, 6];
const SHOWN = 200;

const list = (value) => (Array.isArray(value) ? value.join(", ") : Object.entries(value ?? {}).map(([key, entry]) => `${key} ${entry}`).join(", "));
const SENTENCES = {
  run_started: (f) => `The server started with ${f.method}, at round ${f.round} of ${f.rounds}.`,
  classes_held: (f) => `${f.reason}.`,
  run_ended: (f) => `The run has ended, ${f.kind}: ${f.reason}.`,
  evaluation_failed: (f) => `The models of round ${f.round} cannot be tested: ${f.reason}.`,
  run_paused: (f) => `Paused: ${f.reason}.`,
  run_resumed: () => "The run goes on.",
  run_parked: (f) => `The server goes down and keeps round ${f.round} as it is.`,
  run_broken: (f) => `The server failed: ${f.reason}.`,
  pause_asked: () => "An operator has asked for a pause.",
  clients_seated: (f) => `Seats given to ${list(f.clients)}.`,
  client_joined: (f) => `${f.client} joined: ${[f.machine, f.system, f.cores ? `${f.cores} cores` : "", f.compute].filter(Boolean).join(" · ")}.`,
  client_ready: (f) => `${f.client} is ready with ${f.samples} samples.`,
  client_left: (f) => `${f.client} went away.`,
  client_leaving: (f) => `${f.client} leaves: ${f.reason}.`,
  gate_came: (f) => `Gate ${f.gate} is here, at ${f.address}.`,
  gate_left: (f) => `Gate ${f.gate} is gone: its clients go to others.`,
  client_quarantined: (f) => `${f.client} is in quarantine up to round ${f.until}, for ${f.refused} bad updates; the last one ${String(f.reason).replaceAll("_", " ")}.`,
  client_added: (f) => `${f.client} was given seat ${f.seat} by an operator.`,
  client_dropped: (f) => `${f.client} was dropped from seat ${f.seat} by an operator.`,
  client_replaced: (f) => `${f.client} was given seat ${f.seat} of ${f.before} by an operator.`,
  client_released: (f) => `${f.client} takes part again: ${f.reason}.`,
  round_opened: (f) => `Round ${f.round} opened for ${list(f.cohort)}.`,
  round_extended: (f) => `Round ${f.round} is short of updates and was extended${f.added?.length ? ` by ${list(f.added)}` : ""}.`,
  clients_missed: (f) => `Round ${f.round} goes on without ${list(f.clients)}, away for longer than ${format.seconds(f.grace_s)}.`,
  round_committed: (f) => `Round ${f.round} committed: ${f.counted} counted${Object.keys(f.not_counted ?? {}).length ? `, not ${list(f.not_counted)}` : ""}; loss ${format.plain(f.loss)}, ${format.seconds(f.seconds)}, ${format.bytes((f.bytes_up ?? 0) + (f.bytes_down ?? 0))}.`,
  round_cut: (f) => `Round ${f.round} was closed early with ${list(f.counted) || "nobody"}: ${f.reason}.`,
  round_discarded: (f) => `Round ${f.round} was discarded: ${f.reason}.`,
  budget_unmeasured: (f) => `A budget has nothing to count: ${f.reason}.`,
  caution: (f) => `${f.reason}.`,
  operations_not_counted: (f) => `${f.reason}.`,
  code_differs: (f) => `${f.client}: ${f.reason}.`,
  certificate: (f) => `The server's certificate ${f.reason}.`,
  last_round_committed: (f) => `The closing task is done: ${f.counted} answers.`,
  last_round_opened: () => "Training is over; everybody is asked once more.",
  evaluated: (f) => `After round ${f.round} ${f.model === "global" ? "the model" : f.model} has ${f.figure ?? "accuracy"} ${format.ratio(f[f.figure ?? "accuracy"])}.`,
  epoch_raised: (f) => `A state was damaged: the run goes on from round ${f.round} (rounds up to ${f.lost_up_to} are lost).`,
  updates_rejected: (f) => `Round ${f.round}: updates were rejected: ${list(f.clients)}.`,
  task_refused: (f) => `${f.client} refused its task of round ${f.round}: ${f.reason}`,
  refused: (f) => `${f.client} was refused (${String(f.reason).replace("REASON_", "").toLowerCase().replaceAll("_", " ")}): ${f.sentence}`,
};

function mood(event) {
  if (event.name === "run_ended") return event.fields.kind === "completed" ? "good" : event.fields.kind === "failed" ? "bad" : "warn";
  if (BAD.has(event.name)) return "bad";
  if (event.name === "round_committed" && Object.keys(event.fields.not_counted ?? {}).length) return "warn";
  return WARN.has(event.name) ? "warn" : "";
}

function sentence(event) {
  const known = SENTENCES[event.name];
  if (known) return known(event.fields);
  const fields = Object.entries(event.fields).map(([key, value]) => `${key} ${typeof value === "object" ? JSON.stringify(value) : value}`);
  return `${event.name.replaceAll("_", " ")}${fields.length ? `: ${fields.join(", ")}` : ""}`;
}

const VIEWS = { all: () => true, quiet: (event) => !ROUNDS.has(event.name), trouble: (event) => ["warn", "bad"].includes(mood(event)) };

export class Story {
  constructor() {
    this.most = SHOWN;
    this.items = new Map();
    byId("kinds").addEventListener("change", () => { this.most = SHOWN; this.draw(); });
    byId("older").addEventListener("click", () => this.older());
  }

  draw(store = this.store) {
    if (!store) return;
    this.store = store;
    const kind = document.querySelector("input[name=kind]:checked").value;
    const shown = grouped(store.events.filter(VIEWS[kind])).slice(-this.most).reverse();
    const items = new Map(shown.map((group) => [keyOf(group), this.items.get(keyOf(group)) ?? item(group)]));
    const key = [kind, ...items.keys()].join();
    if (key === this.key) return;
    this.key = key;
    this.items = items;
    byId("story").replaceChildren(...(items.size ? items.values() : [make("li", { class: "hint" }, "Nothing of this kind among the newest events.")]));
  }

  async older() {
    const first = this.store?.events[0]?.cursor ?? 1;
    this.most += SHOWN;
    byId("older").disabled = true;
    try {
      const kind = document.querySelector("input[name=kind]:checked").value;
      const answer = await fetch(`/api/events?before=${first}&rounds=${kind === "all" ? 1 : 0}`);
      if (answer.ok) this.store.addEvents(await answer.json());
    } finally {
      byId("older").disabled = false;
    }
    this.draw();
  }
}

/** Put clients that do the same one after the other into one line. */
function grouped(events) {
  const groups = [];
  for (const event of events) {
    const last = groups.at(-1);
    if (event.name in TOGETHER && last?.[0].name === event.name && event.at - last.at(-1).at < NEAR_S) last.push(event);
    else groups.push([event]);
  }
  return groups;
}

const keyOf = (group) => `${group[0].cursor}+${group.length}`;

function item(group) {
  const event = group.at(-1);
  const date = new Date(event.at * 1000).toISOString();
  return make("li", { "data-mood": mood(event) }, make("time", { dateTime: date }, format.moment(event.at)), group.length > 1 ? together(group) : sentence(event));
}

function together(group) {
  const names = group.slice(0, NAMED).map((event) => event.fields.client).join(", ");
  const more = group.length > NAMED ? ` and ${group.length - NAMED} more` : "";
  return `${group.length} times, a client ${TOGETHER[group[0].name]}: ${names}${more}.`;
}
