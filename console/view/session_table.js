//! A table of online sessions: transport, address, client, how long idle, and a button that ends one.

import { account, resource, bare } from "../app/address.js";
import { h } from "../app/dom.js";
import { moment, NONE, span } from "../app/format.js";
import { table } from "../app/table.js";
import { end } from "./account_acts.js";

const TRANSPORTS = { tcp: "TCP", tls: "TLS", websocket: "WebSocket", bosh: "BOSH", memory: "memory", detached: "detached" };
const DETACHED = "Lost its connection; the client may resume it (XEP-0198)";

const transport = (row) => TRANSPORTS[String(row.transport).toLowerCase()] ?? row.transport ?? NONE;
const where = (row) => row.address ?? NONE;
const idle = (row) => (typeof row.idle_seconds === "number" ? span(row.idle_seconds) : NONE);
/// Whether encryption is missing where it could be.
const open = (row) => row.secure === false && row.transport !== "tcp";

/// `of`: whether all are of one account, whose address need not be repeated. `changed` is called when one was ended.
export function sessionTable(rows, { of = false, changed, caption }) {
  const columns = [
    {
      title: of ? "Resource" : "Address",
      cell: ({ jid }) => (of ? h("span.address", {}, resource(jid)) : [account(bare(jid)), h("wbr"), h("span.soft.address", {}, `/${resource(jid)}`)]),
    },
    { title: "Transport", class: "wide-only", cell: (row) => [h("span", { title: row.transport === "detached" ? DETACHED : null }, transport(row)), open(row) ? h("span.soft", {}, ", plain") : null] },
    { title: "From", class: "wide-only", cell: (row) => h("div.clip.line", { title: row.address }, where(row)) },
    { title: "Client", class: "wide-only", cell: (row) => h("div.clip", { title: row.client ?? null }, row.client || NONE) },
    { title: "Idle", class: "number wide-only", cell: idle },
    { title: "Since", class: "wide-only", cell: (row) => moment(row.since) },
    { title: "Priority", class: "number wide-only spare", cell: (row) => (typeof row.priority === "number" ? row.priority : h("span.soft", { title: "Has sent no presence" }, NONE)) },
    {
      title: "End",
      class: "acts",
      unseen: true,
      cell: ({ jid }) =>
        h("button.small", { type: "button", "aria-label": `End the session ${jid}`, onclick: async () => (await end(jid)) && changed() }, "End"),
    },
  ];
  return table({
    caption,
    rows,
    columns,
    brief: (row) => [transport(row), where(row), row.client, `idle ${idle(row)}`].filter((text) => text && text !== NONE).join(" · "),
  });
}
