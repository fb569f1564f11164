//! PubSub nodes of a domain: list, publish rate, creation, and for one node its subscribers, items, affiliations and configuration.

import * as api from "../app/api.js";
import { address } from "../app/address.js";
import { formDialog } from "../app/dialog.js";
import { field, h, replaceContent } from "../app/dom.js";
import { count, plural, NONE } from "../app/format.js";
import { pager, pageSize, PageHistory } from "../app/paging.js";
import { toast } from "../app/toast.js";
import { emptyState, loader, table } from "../app/table.js";
import { showDomainMenu } from "./domain_names.js";

export const title = "PubSub";
export const titled = ([node]) => node ?? title;

const pageHistory = new PageHistory();
/// Subscribers and items of a node's page.
const SHOWN = 100;

/// Address of the page of a node; `domain` is the one that offers it.
const nodeAddress = (node, domain) => address(`pubsub/${encodeURIComponent(node)}`, { domain });
const nodeLink = (node, domain) => h("a.address", { href: nodeAddress(node, domain), title: node }, node);

export function open(context) {
  if (context.rest[0]) return openNode(context, context.rest[0]);
  const { root, values, signal } = context;
  const container = h("div.card");
  const rate = h("p.soft", { role: "status" });
  const domains = h("div.field", { hidden: true });
  const show = (at) => {
    context.keep("pubsub", at);
    return load();
  };
  const list = pager(pageHistory, { values, keys: ["domain"], show });
  const { state } = list;
  const load = loader(
    container,
    async (stopped) => {
      const both = { signal: AbortSignal.any([stopped, signal]) };
      const input = { "max-items": pageSize(), ...(state.after && { after: state.after }) };
      const [nodes, statistics] = await Promise.all([
        api.command("get-pubsub-nodes-list", input, state.domain, both),
        api.command("get-pubsub-statistics", {}, state.domain, both),
      ]);
      return { ...nodes, statistics };
    },
    ({ nodes, next, statistics }) => {
      replaceContent(rate, `${plural(statistics["per-minute"], "item")} published in the last minute, ${count(statistics.published)} since the start.`);
      if (!nodes.length && !state.after && !next) return emptyState("No nodes yet", "Users create nodes with their clients; others can be created above.");
      return [
        table({
          caption: "PubSub nodes",
          rows: nodes,
          brief: (row) => row.title || null,
          columns: [
            { title: "Name", cell: ({ node }) => nodeLink(node, state.domain) },
            { title: "Title", class: "wide-only", cell: (row) => row.title || h("span.soft", {}, NONE) },
          ],
        }),
        list.below(nodes.length, undefined, next),
      ];
    },
  );
  const addButton = h("button.main", { type: "button", onclick: async () => {
    const node = await createNode(state.domain);
    if (node) location.hash = nodeAddress(node, state.domain);
  } }, "Create node");
  const tools = h("form.tools", { method: "post", onsubmit: (event) => event.preventDefault() }, domains);
  replaceContent(root, context.head("", h("button", { type: "button", onclick: load }, "Refresh"), addButton), tools, rate, container);
  showDomainMenu(domains, state, signal, () => list.restart());
  list.list();
}

/// Asks for a node and returns its name, or `null`.
async function createNode(domain) {
  const node = h("input", { type: "text", required: true, autocomplete: "off", autocapitalize: "none", spellcheck: "false" });
  const owner = h("input", { type: "text", required: true, autocomplete: "off", autocapitalize: "none", spellcheck: "false" });
  let created = null;
  await formDialog({
    title: "Create a node",
    body: [field("Name", node, "Its owner configures it with a client."), field("Owner", owner, "The address of a user.")],
    confirm: "Create",
    act: async () => {
      if (!node.value.trim() || !owner.value.trim()) throw new Error("Enter the name of the node and its owner.");
      await api.command("create-pubsub-node", { node: node.value.trim(), owner: owner.value.trim() }, domain);
      created = node.value.trim();
    },
  });
  return created;
}

function openNode(context, node) {
  const { root, values, signal } = context;
  const domain = values.get("domain") ?? "";
  const run = (name, stopped, more = {}) => api.command(name, { node, ...more }, domain, { signal: AbortSignal.any([stopped, signal]) });
  const rows = (caption, all, columns, nothing) => (all.length ? table({ caption, rows: all, columns }) : emptyState(nothing));
  const facts = h("div.card");
  const affiliations = h("div.card");
  const config = h("div.card");
  const loadFacts = loader(
    facts,
    (stopped) => run("get-pubsub-node", stopped),
    (found) => {
      const fact = (name, shown) => [h("dt", {}, name), h("dd", {}, shown)];
      replaceContent(affiliations, rows("Affiliations", found.affiliations, [
        { title: "Address", cell: ({ jid }) => jid },
        { title: "Affiliation", cell: ({ affiliation }) => affiliation },
      ], "No affiliations"));
      replaceContent(config, rows("Configuration", found.config, [
        { title: "Field", cell: (row) => h("code", {}, row.field) },
        { title: "Value", cell: ({ value }) => value || h("span.soft", {}, NONE) },
      ], "The default configuration"));
      return h("dl.facts", {}, ...fact("Creator", found.creator), ...fact("Created", found.created), ...fact("Items", count(found.items)), ...fact("Subscribers", count(found.subscribers)));
    },
  );
  const subscribers = h("div.card");
  const loadSubscribers = loader(
    subscribers,
    (stopped) => run("get-pubsub-subscribers", stopped, { "max-items": SHOWN }),
    ({ subscribers: found, next }) => [
      rows("Subscribers", found, [{ title: "Address", cell: ({ jid }) => jid }], "No subscribers"),
      next ? h("p.soft", {}, `The first ${count(found.length)} are shown.`) : null,
    ],
  );
  const items = h("div.card");
  const loadItems = loader(
    items,
    (stopped) => run("get-pubsub-items", stopped, { "max-items": SHOWN }),
    ({ items: found }) => rows("Newest items", found, [
      { title: "Id", cell: ({ id }) => h("code", {}, id) },
      { title: "Publisher", class: "wide-only", cell: ({ publisher }) => publisher },
      { title: "Published", class: "wide-only", cell: ({ published }) => published },
    ], "No items"),
  );
  const load = () => {
    loadFacts();
    loadSubscribers();
    loadItems();
  };
  const remove = h("button.destructive", { type: "button", onclick: async () => {
    if (await deleteNode(node, domain)) context.go("pubsub", { domain });
  } }, "Delete");
  const head = context.head("", h("button", { type: "button", onclick: load }, "Refresh"), remove);
  head.firstChild.prepend(h("a.up", { href: address("pubsub", { domain }) }, "All nodes"));
  const part = (name, card) => [h("h2", {}, name), card];
  replaceContent(root, head, facts, ...part("Subscribers", subscribers), ...part("Items", items), ...part("Affiliations", affiliations), ...part("Configuration", config));
  load();
}

async function deleteNode(node, domain) {
  const done = await formDialog({
    title: `Delete ${node}?`,
    text: "Its items and all subscriptions are removed, and subscribers are notified.",
    body: [],
    confirm: "Delete",
    destructive: true,
    act: () => api.command("delete-pubsub-node", { node }, domain),
  });
  if (done) toast(`The node ${node} was deleted`);
  return done;
}
