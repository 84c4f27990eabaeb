// Brings the parts of the page together: one stream in, each part drawn when it has changed.

import { Charts } from "./charts.js";
import { Clients } from "./clients.js";
import { byId, mark, say } from "./dom.js";
import * as format from "./format.js";
import { showInvitation } from "./invitation.js";
import { showOverview, showTab } from "./overview.js";
import { showRounds } from "./rounds.js";
import { Store } from "./store.js";
import { Story } from "./story.js";
import { follow } from "./stream.js";
import { Timeline } from "./timeline.js";

const store = new Store();
const timeline = new Timeline();
const charts = new Charts((round) => timeline.pick(round));
const clients = new Clients();
const story = new Story();
let stale = false; // a picture came while nobody looked
let lostAt = 0;
let linked = "lost";

function draw(changed = { rounds: true, clients: true }) {
  showOverview(store);
  showTab(store, linked);
  showInvitation(store);
  if (changed.rounds) {
    charts.draw(store);
    showRounds(store);
  }
  clients.draw(store);
  timeline.draw(store);
  story.draw(store);
}

function take(picture) {
  if (store.isOfAnotherRun(picture)) {
    location.replace("/"); // nothing of the run before is to stay, not even what was typed
    return;
  }
  const changed = store.take(picture);
  link(linked); // of a run that is over nothing is live
  if (document.hidden && store.run.state !== "finished") { stale = true; showTab(store, linked); return; }
  draw(stale ? undefined : changed);
  stale = false;
}

function link(state) {
  linked = state;
  lostAt = state === "live" ? 0 : lostAt || Date.now();
  const since = lostAt ? format.moment(lostAt / 1000) : "";
  const again = store.run.state === "finished" ? "" : "; trying again";
  const words = { live: store.run.state === "finished" ? "" : "live", lost: `no connection since ${since}; trying again`, left: `the server left at ${since}${again}` };
  say(byId("link"), words[state]);
  mark(byId("link"), "data-lost", state === "lost" || (state === "left" && store.run.state !== "finished") ? "yes" : "");
  showTab(store, linked);
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && stale) { stale = false; draw(); }
});
byId("axis").addEventListener("change", () => charts.draw(store));
byId("table-of-rounds").addEventListener("toggle", () => showRounds(store));
follow(take, link);
