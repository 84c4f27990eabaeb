// What to type so that the clients come: the first thing to do on an empty page.

import { byId, say } from "./dom.js";
import * as format from "./format.js";
import { here } from "./sentence.js";

const SHOWN_MS = 2000;
const EMPTY = ["curves", "round"]; // parts that have nothing to show before the first round

export function showInvitation(store) {
  const { run } = store;
  const missing = (run.seats ?? 0) - here(store);
  byId("come").hidden = run.state !== "gathering" || !run.command || missing <= 0;
  say(byId("come-title"), `${format.count(missing)} of ${format.count(run.seats ?? 0)} clients ${missing === 1 ? "is" : "are"} missing`);
  say(byId("command"), run.command ?? "");
  say(byId("come-hint"), hint(run.command ?? ""));
  const empty = run.state === "gathering" && !store.order.length;
  for (const id of EMPTY) {
    byId(id).hidden = empty;
    document.querySelector(`nav a[href="#${id}"]`).hidden = empty;
  }
}

/** What stands for something else in the command. */
function hint(command) {
  const words = [];
  if (command.includes("ADDRESS-OF-THIS-MACHINE")) words.push("ADDRESS-OF-THIS-MACHINE is the name or number by which devices reach this machine.");
  if (command.includes("--tls")) words.push("The certificates are those that fl-lab certs has made for the device; with its join file, fl-client --config ID.toml is enough.");
  if (command.includes("FILE.npz")) words.push("FILE.npz holds the device's own data; a folder of images will do, too.");
  return words.join(" ");
}

/** Copy the command; where a browser does not let us (a page from another machine), select it. */
async function copy() {
  try {
    await navigator.clipboard.writeText(byId("command").textContent);
    told("copied");
  } catch {
    getSelection().selectAllChildren(byId("command"));
    told("selected: Ctrl-C copies it");
  }
}

function told(text) {
  say(byId("copied"), text);
  setTimeout(() => say(byId("copied"), ""), SHOWN_MS);
}

byId("copy").addEventListener("click", copy);
