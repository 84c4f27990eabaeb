// What this page knows of the run: pictures are merged into it.

const KEPT_EVENTS = 3000;

export class Store {
  constructor() {
    this.offset = 0; // seconds that the server's clock is ahead of ours
    this.run = {};
    this.forget();
  }

  forget() {
    this.forgetRounds();
    this.known = new Set(); // names of columns, as they came
    this.clients = new Map(); // each; of a crowd none
    this.crowd = { each: true, views: {} }; // all together
    this.refused = new Map();
    this.events = []; // by cursor, ascending
  }

  forgetRounds() {
    this.rows = new Map(); // by round; of a long run's older ones some
    this.order = []; // rounds, ascending
  }

  /** A run takes the place of another on the same port. One that has no id yet may be the same. */
  isOfAnotherRun(picture) {
    return Boolean(this.run.id) && Boolean(picture.run.id) && this.run.id !== picture.run.id;
  }

  /** Merge a picture; return which parts have changed. */
  take(picture) {
    if (picture.fresh) this.forget();
    this.run = { ...picture.run, id: picture.run.id || this.run.id };
    this.offset = picture.run.now - Date.now() / 1000;
    if (picture.thinned) this.forgetRounds();
    if (picture.rounds) this.takeRounds(picture.rounds);
    if (picture.crowd) this.crowd = picture.crowd;
    if (!this.crowd.each) this.clients.clear();
    for (const client of picture.clients ?? []) {
      if (client.state === "gone") this.clients.delete(client.id);
      else this.clients.set(client.id, client);
    }
    for (const entry of picture.refused ?? []) this.refused.set(`${entry.client}\n${entry.reason}`, entry);
    this.addEvents(picture.events ?? []);
    return { rounds: picture.fresh || Boolean(picture.rounds), clients: picture.fresh || Boolean(picture.crowd) };
  }

  takeRounds(columns) {
    const names = Object.keys(columns);
    columns.round.forEach((round, index) => {
      const row = this.rows.get(round) ?? {};
      for (const name of names) {
        if (columns[name][index] === null) continue;
        row[name] = columns[name][index];
        this.known.add(name);
      }
      if (!this.rows.has(round)) {
        if (this.order.length && round < this.order.at(-1)) this.unsorted = true;
        this.order.push(round);
      }
      this.rows.set(round, row);
    });
    if (this.unsorted) this.order.sort((a, b) => a - b);
    this.unsorted = false;
  }

  /** Events come in order, older pages in front. */
  addEvents(events) {
    if (!events.length) return;
    const known = new Set(this.events.map((event) => event.cursor));
    const fresh = events.filter((event) => !known.has(event.cursor));
    this.events = [...this.events, ...fresh].sort((a, b) => a.cursor - b.cursor).slice(-KEPT_EVENTS);
  }

  now() {
    return Date.now() / 1000 + this.offset;
  }

  newest() {
    return this.rows.get(this.order.at(-1)) ?? {};
  }

  /** Names of all columns that some round has, or has had. */
  names() {
    return [...this.known];
  }

  column(name) {
    return this.order.map((round) => this.rows.get(round)[name] ?? null);
  }

  /** The x axis: rounds, or what was used up to the end of each. */
  axis(kind) {
    if (kind === "round") return this.order;
    let sum = 0;
    return this.order.map((round) => {
      const row = this.rows.get(round);
      sum += kind === "bytes" ? whole(row, "bytes_down") + whole(row, "bytes_up") : whole(row, "seconds");
      return sum;
    });
  }
}

/** What a round has used, and those before it that are not here one by one. */
const whole = (row, name) => (row[name] ?? 0) + (row[`skipped ${name}`] ?? 0);
