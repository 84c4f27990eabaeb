// What the run does now, in one sentence: the first thing that somebody who comes to the page reads.

import * as format from "./format.js";

const PHASES = {
  opening: (round) => `${round} is being opened.`,
  open: (round, store) => `${round} is open: ${updates(store.run.open)}.`,
  folding: (round) => `${round}: the updates are being summed up.`,
  committing: (round) => `${round}: the new model is being saved.`,
};
const SENTENCES = {
  gathering: (store) => `Waiting for clients: ${format.count(here(store))} of ${format.count(store.run.seats)} are here.`,
  running: (store) => opened(store),
  paused: ({ run }) => run.reason,
  draining: () => "The server is going down; it will go on from here when it is started again.",
  unreachable: () => "The server does not answer; this is what was seen last. If it has gone, fl-server --run-dir, or fl-lab run, goes on with it.",
  finished: ({ run }) => run.reason,
};

export function nowInWords(store) {
  return (SENTENCES[store.run.state]?.(store) ?? "") || "";
}

function opened(store) {
  const { open } = store.run;
  if (!open) return "No round is open.";
  return PHASES[open.phase]?.(open.closing ? "The closing task" : `Round ${format.count(open.round)}`, store) ?? "";
}

function updates({ here, cohort, away }) {
  const gone = away ? `, ${format.count(away)} of the missing client${away === 1 ? " is" : "s are"} away` : "";
  return `${format.count(here)} of ${format.count(cohort)} updates are here${gone}`;
}

/** Whether a client is connected. */
export const isHere = (client) => !["away", "left", "unknown"].includes(client.state);

export const here = (store) => store.crowd.views.online ?? 0;
