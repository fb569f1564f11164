//! What of the figures needs somebody: the same bounds as the alert rules for Prometheus, over the last minutes.
//!
//! The trap: a bound that is crossed every day teaches people to look away. Each of these is about the node's own promises.

import { count, value } from "../app/format.js";
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

  const drops = of("drops");
  if (drops && drops.mean > 0) say(true, `Stanzas are dropped: ${count(Math.max(1, drops.mean * drops.n * history.step))} in the last two minutes.`);
  const lag = of("lag");
  if (lag && lag.most > 0.25) say(lag.most > 1, `The node’s own work was up to ${value(lag.most, "seconds")} late: its processors are busy.`);
  const delivery = of("delivery_p99");
  if (delivery && delivery.mean > 0.1) say(false, `Of a hundred messages one takes ${value(delivery.mean, "seconds")} or longer inside the node.`);
  const database = of("database_p99");
  if (database && database.mean > 0.25) say(false, `Of a hundred database operations one takes ${value(database.mean, "seconds")} or longer.`);
  const [good, failed] = [of("logins"), of("login_failures")];
  if (failed && failed.mean > 1 && failed.mean > (good?.mean ?? 0)) say(false, `More logins fail than succeed: ${value(failed.mean, "rate")} fail.`);
  return out;
}
