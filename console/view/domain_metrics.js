//! Table of sessions and stanza rates by domain, refreshed while it is visible.

import * as api from "../app/api.js";
import { h, replaceContent } from "../app/dom.js";
import { count, value } from "../app/format.js";
import { table } from "../app/table.js";

const both = (rates, kind) => `${value(rates[`${kind}_in`], "rate")} in, ${value(rates[`${kind}_out`], "rate")} out`;
const column = (title, kind, more = "") => ({ title, class: `number wide-only${more}`, cell: ({ rates }) => both(rates, kind) });

/// A section and a function that refreshes it. It is hidden with fewer than `least` domains: one has nothing to compare with.
export function domainMetrics(signal, least = 1) {
  const container = h("div.card");
  const about = h("p.soft", {});
  const element = h("section.part", { "aria-label": "By domain", hidden: true }, h("h2", {}, "By domain"), container, about);
  const load = async () => {
    const { seconds, domains } = await api.get("/domains/metrics", {}, { signal });
    element.hidden = domains.length < least;
    replaceContent(about, seconds ? `Stanzas per second, average of the last ${count(seconds)} s.` : null);
    replaceContent(
      container,
      table({
        caption: "Metrics by domain",
        rows: domains,
        brief: ({ sessions, rates }) => `${count(sessions)} sessions · messages ${both(rates, "messages")}`,
        columns: [
          { title: "Domain", cell: ({ name }) => name },
          { title: "Sessions", class: "number wide-only", cell: ({ sessions }) => count(sessions) },
          { title: "Opened", class: "number wide-only spare", cell: (row) => count(row.sessions_opened) },
          column("Messages", "messages"),
          column("Presence", "presence", " spare"),
          column("Requests (IQ)", "iq", " spare"),
        ],
      }),
    );
  };
  return { element, load };
}
