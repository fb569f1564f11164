//! What of the figures needs somebody, over the last minutes. Where contrib/prometheus/alerts.yml has the same figure, the
//! bound is the same.
//!
//! The trap: a bound that is crossed every day teaches people to look away. Each of these is about the node's own promises.

import { bytes, day, many, value } from "../app/format.js";
import { summary } from "../app/series.js";

/// Seconds that a figure is looked at.
const WINDOW = 120;

/// Sentences, each with whether it is grave.
export function concerns(history) {
  if (!history.end) return [];
  const n = Math.round(WINDOW / history.step);
  const of = (name) => (history.has(name) ? summary(history.last(name, n)) : null);
  const out = [];
  const say = (grave, text) => out.push({ grave, text });

  if (history.current.ready === false) say(true, "The node takes no clients at the moment.");
  const full = of("queue_full");
  if (full && full.mean > 0) {
    const times = many(Math.max(1, Math.round(full.mean * full.n * history.step)), "time");
    say(false, `Queues of clients that do not read were full ${times} in the last two minutes: presence is dropped, messages are stored.`);
  }
  const lag = of("lag");
  if (lag && lag.mean > 0.1) say(lag.mean > 1, `The node’s own work is ${value(lag.mean, "seconds")} late, and was up to ${value(lag.most, "seconds")}: its processors are busy.`);
  const delivery = of("delivery_p99");
  if (delivery && delivery.mean > 0.25) say(false, `Of a hundred messages one takes ${value(delivery.mean, "seconds")} or longer inside the node.`);
  const database = of("database_p99");
  if (database && database.mean > 0.5) say(false, `Of a hundred database operations one takes ${value(database.mean, "seconds")} or longer.`);
  const [good, failed] = [of("logins"), of("login_failures")];
  if (failed && failed.mean > 1 && failed.mean > (good?.mean ?? 0)) say(false, `More logins fail than succeed: ${value(failed.mean, "rate")} fail.`);
  const errors = history.has("log_errors") ? summary(history.last("log_errors", Math.round(600 / history.step))) : null;
  if (errors && errors.mean > 0) say(false, `${many(Math.max(1, Math.round(errors.mean * errors.n * history.step)), "error")} in the log in the last ten minutes.`);
  const { certificates = [], disk_free_bytes: free, disk_size_bytes: size } = history.resources;
  for (const { names, not_after } of certificates) {
    const left = not_after - history.end;
    if (left < 14 * 86_400) say(left < 0, `The certificate of ${names[0] ?? "this node"} ${left < 0 ? "expired" : "expires"} on ${day(not_after)}.`);
  }
  if (typeof free === "number" && (free < 1e9 || free < size / 20)) say(free < 1e8, `The disk has ${bytes(free)} left of ${bytes(size)}.`);
  return out;
}
