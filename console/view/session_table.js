//! Table of sessions: transport, client address, client, idle time, and a button that ends one.

import { account, resource, bare } from "../app/address.js";
import { h } from "../app/dom.js";
import { dateTime, NONE, duration } from "../app/format.js";
import { table } from "../app/table.js";
import { endSession } from "./account_actions.js";

const TRANSPORTS = { tcp: "TCP", tls: "TLS", websocket: "WebSocket", bosh: "BOSH", memory: "memory", detached: "detached" };
const DETACHED = "The connection was lost; the client can resume the session (XEP-0198)";

const transport = (row) => TRANSPORTS[String(row.transport).toLowerCase()] ?? row.transport ?? NONE;
const clientAddress = (row) => row.address ?? NONE;
const idle = (row) => (typeof row.idle_seconds === "number" ? duration(row.idle_seconds) : NONE);
/// Whether a session is unencrypted although its transport supports encryption.
const isUnencrypted = (row) => row.secure === false && row.transport !== "tcp";

/// `of`: all sessions belong to one account, whose address is not repeated. `nodes`: their node is shown if there are several. `changed` is called after a session was ended.
export function sessionTable(rows, { of = false, nodes = of, changed, caption }) {
  const columns = [
    {
      title: of ? "Resource" : "Address",
      cell: ({ jid }) => (of ? h("span.address", {}, resource(jid)) : [account(bare(jid)), h("wbr"), h("span.soft.address", {}, `/${resource(jid)}`)]),
    },
    nodes && rows.some((row) => row.node !== rows[0].node) ? { title: "Node", class: "wide-only line", cell: (row) => row.node } : null,
    { title: "Transport", class: "wide-only", cell: (row) => [h("span", { title: row.transport === "detached" ? DETACHED : null }, transport(row)), isUnencrypted(row) ? h("span.soft", {}, ", plain") : null] },
    { title: "From", class: "wide-only", cell: (row) => h("div.clip.line", { title: row.address }, clientAddress(row)) },
    { title: "Client", class: "wide-only", cell: (row) => h("div.clip", { title: row.client ?? null }, row.client || NONE) },
    { title: "Idle", class: "number wide-only", cell: idle },
    { title: "Since", class: "wide-only", cell: (row) => dateTime(row.since) },
    { title: "Priority", class: "number wide-only spare", cell: (row) => (typeof row.priority === "number" ? row.priority : h("span.soft", { title: "No presence sent" }, NONE)) },
    {
      title: "End",
      class: "acts",
      unseen: true,
      cell: ({ jid }) =>
        h("button.small", { type: "button", "aria-label": `End the session ${jid}`, onclick: async () => (await endSession(jid)) && changed() }, "End"),
    },
  ];
  return table({
    caption,
    rows,
    columns: columns.filter(Boolean),
    brief: (row) => [transport(row), clientAddress(row), row.client, `idle ${idle(row)}`].filter((text) => text && text !== NONE).join(" · "),
  });
}
