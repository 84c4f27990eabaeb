// Numbers and times in words.

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { dateStyle: "short", timeStyle: "medium" });

export const count = (value) => number.format(value);

/** Bytes in powers of 1000, as the commands print them. */
export function bytes(value) {
  if (!Number.isFinite(value)) return "";
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let power = 0;
  while (value >= 999.5 && power < units.length - 1) { value /= 1000; power += 1; }
  return `${power === 0 || value >= 100 ? value.toFixed(0) : value.toFixed(1)} ${units[power]}`;
}

export function seconds(value) {
  if (!Number.isFinite(value)) return "";
  if (value < 0.001) return value === 0 ? "0 s" : `${(value * 1e6).toFixed(0)} µs`;
  if (value < 1) return `${(value * 1000).toFixed(value < 0.01 ? 1 : 0)} ms`;
  if (value < 100) return `${value.toFixed(value < 10 ? 2 : 1)} s`;
  return duration(value);
}

export function duration(value) {
  if (!Number.isFinite(value)) return "";
  const whole = Math.max(0, Math.round(value));
  if (whole < 60) return `${whole} s`;
  const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60];
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  return `${minutes} min ${whole % 60} s`;
}

export function ratio(value) {
  return Number.isFinite(value) ? value.toFixed(4) : "";
}

/** The name of a metric as a title. */
export const name = (metric) => metric.charAt(0).toUpperCase() + metric.slice(1).replaceAll("_", " ");

export function plain(value) {
  if (!Number.isFinite(value)) return "";
  const size = Math.abs(value);
  if (size < 1e9 && Number.isInteger(value)) return number.format(value);
  return size >= 1e5 || size < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

/** A number beside a tick of an axis, where there is little room: as many digits as tell it from the next tick. */
export function tick(value, step) {
  if (!Number.isFinite(value)) return "";
  const size = Math.abs(value);
  if (size && (size >= 1e5 || size < 1e-3)) {
    const digits = 1 + Math.floor(Math.log10(size)) + decimals(step);
    return Number(value.toPrecision(Math.min(9, Math.max(3, digits)))).toExponential();
  }
  return Number.isInteger(value) ? number.format(value) : String(Number(value.toFixed(decimals(step))));
}

/** Decimals that a step has: 2 of 0.25, -3 of 1000. */
function decimals(step) {
  const power = -Math.floor(Math.log10(step) + 1e-9);
  const whole = Number((step * 10 ** power).toFixed(6));
  return Math.min(9, power + (Number.isInteger(whole) ? 0 : 1));
}

/** A moment, with its day if that is not today. */
export function moment(unix) {
  const date = new Date(unix * 1000);
  return date.toDateString() === new Date().toDateString() ? clock.format(date) : day.format(date);
}

export const ago = (seconds) => (seconds < 2 ? "now" : `${duration(seconds)} ago`);

/** A budget's amount in its unit. */
export function amount(name, value) {
  if (name === "bytes") return bytes(value);
  if (name === "energy") return value >= 1000 ? `${(value / 1000).toFixed(1)} kJ` : `${value.toFixed(0)} J`;
  return duration(value);
}

/** Kinds with how many are of each; of one kind no number. */
export const kinds = (found) => found.map(([word, many]) => (found.length > 1 ? `${word} (${count(many)})` : word)).join(", ");

/** Heads of a table of how values lie. */
export const PLACES = ["least", "10 % up to", "median", "90 % up to", "most"];
