//! Warnings derived from the metrics of the last minutes. Thresholds are those of contrib/prometheus/alerts.yml where both have
//! the same metric.
//!
//! # Pitfalls
//!
//! A threshold that is exceeded every day teaches people to ignore it. Each of these concerns a guarantee of the node.

import { bytes, day, plural, value } from "../app/format.js";
import { summary } from "../app/series.js";

/// Seconds over which metrics are averaged.
const WINDOW = 120;

/// Warnings as { critical, text }.
export function healthWarnings(history) {
  if (!history.end) return [];
  const n = Math.round(WINDOW / history.step);
  const summaryOf = (name) => (history.has(name) ? summary(history.last(name, n)) : null);
  const out = [];
  const warn = (critical, text) => out.push({ critical, text });

  if (history.current.ready === false) warn(true, "The node is not accepting clients.");
  const full = summaryOf("queue_full");
  if (full && full.mean > 0) {
    const times = plural(Math.max(1, Math.round(full.mean * full.n * history.step)), "time");
    warn(false, `Outgoing queues of slow clients were full ${times} in the last two minutes: presence is dropped, messages are stored.`);
  }
  const lag = summaryOf("lag");
  if (lag && lag.mean > 0.1) warn(lag.mean > 1, `The event-loop lag is ${value(lag.mean, "seconds")}, at most ${value(lag.most, "seconds")}: the processors are overloaded.`);
  const delivery = summaryOf("delivery_p99");
  if (delivery && delivery.mean > 0.25) warn(false, `The p99 delivery time of messages inside the node is ${value(delivery.mean, "seconds")}.`);
  const database = summaryOf("database_p99");
  if (database && database.mean > 0.5) warn(false, `The p99 latency of database operations is ${value(database.mean, "seconds")}.`);
  const [good, failed] = [summaryOf("logins"), summaryOf("login_failures")];
  if (failed && failed.mean > 1 && failed.mean > (good?.mean ?? 0)) warn(false, `More logins fail than succeed: ${value(failed.mean, "rate")} failures.`);
  const errors = history.has("log_errors") ? summary(history.last("log_errors", Math.round(600 / history.step))) : null;
  if (errors && errors.mean > 0) warn(false, `${plural(Math.max(1, Math.round(errors.mean * errors.n * history.step)), "error")} in the log in the last ten minutes.`);
  const { certificates = [], disk_free_bytes: free, disk_size_bytes: size } = history.resources;
  for (const { names, not_after } of certificates) {
    const left = not_after - history.end;
    if (left < 14 * 86_400) warn(left < 0, `The certificate of ${names[0] ?? "this node"} ${left < 0 ? "expired" : "expires"} on ${day(not_after)}.`);
  }
  if (typeof free === "number" && (free < 1e9 || free < size / 20)) warn(free < 1e8, `The disk has ${bytes(free)} of ${bytes(size)} free.`);
  return out;
}
