//! Rooms of a domain: search, creation, and for one room its occupants and affiliations.

import * as api from "../app/api.js";
import { address } from "../app/address.js";
import { formDialog } from "../app/dialog.js";
import { selectBox, field, h, replaceContent } from "../app/dom.js";
import { count, plural, NONE } from "../app/format.js";
import { pager, pageSize, PageHistory } from "../app/paging.js";
import { toast } from "../app/toast.js";
import { emptyState, loader, table } from "../app/table.js";
import { showDomainMenu } from "./domain_names.js";

export const title = "Rooms";
export const titled = ([jid]) => jid ?? title;

const AFFILIATIONS = [["owner", "Owner"], ["admin", "Administrator"], ["member", "Member"], ["outcast", "Banned"], ["none", "None"]];

const pageHistory = new PageHistory();

/// Address of the page of a room; `domain` is the one that offers the rooms.
const roomAddress = (jid, domain) => address(`rooms/${encodeURIComponent(jid)}`, { domain });
const roomLink = (jid, domain) => h("a.address", { href: roomAddress(jid, domain), title: jid }, jid);

export function open(context) {
  if (context.rest[0]) return openRoom(context, context.rest[0]);
  const { root, values, signal } = context;
  const container = h("div.card");
  const domains = h("div.field", { hidden: true });
  const show = (at) => {
    context.keep("rooms", at);
    return load();
  };
  const list = pager(pageHistory, { values, keys: ["domain", "search"], placeholder: "Part of an address or a name", show });
  const { state } = list;
  const load = loader(
    container,
    (stopped) => {
      const { search, after } = state;
      const input = { "max-items": pageSize(), ...(search && { search }), ...(after && { after }) };
      return api.command("get-rooms-list", input, state.domain, { signal: AbortSignal.any([stopped, signal]) });
    },
    ({ rooms, next }) => {
      if (!rooms.length && !state.after && !next) {
        return state.search ? emptyState("No matching rooms", `No room has “${state.search}” in its address or name.`) : emptyState("No rooms yet", "Users create rooms by entering them; persistent ones can be created above.");
      }
      return [
        table({
          caption: "Rooms",
          rows: rooms,
          brief: (row) => [plural(row.occupants, "session"), row.name ? ` · ${row.name}` : null],
          columns: [
            { title: "Address", cell: ({ jid }) => roomLink(jid, state.domain) },
            { title: "Name", class: "wide-only", cell: ({ name }) => name || h("span.soft", {}, NONE) },
            { title: "Kind", class: "wide-only", cell: ({ persistent }) => (persistent ? "Persistent" : h("span.soft", {}, "Temporary")) },
            { title: "Sessions", class: "wide-only", cell: ({ occupants }) => count(occupants) },
          ],
        }),
        list.below(rooms.length, undefined, next),
      ];
    },
  );
  const addButton = h("button.main", { type: "button", onclick: async () => {
    const jid = await createRoom(state.domain);
    if (jid) location.hash = roomAddress(jid, state.domain);
  } }, "Create room");
  const tools = h("form.tools", { role: "search", method: "post", onsubmit: (event) => event.preventDefault() }, list.tools[0], domains, list.tools[1]);
  replaceContent(root, context.head("", h("button", { type: "button", onclick: load }, "Refresh"), addButton), tools, container);
  showDomainMenu(domains, state, signal, () => list.restart());
  list.list();
}

/// Asks for a room and returns its address, or `null`.
async function createRoom(domain) {
  const room = h("input", { type: "text", required: true, autocomplete: "off", autocapitalize: "none", spellcheck: "false", placeholder: "name@conference.example.org" });
  const owner = h("input", { type: "text", required: true, autocomplete: "off", autocapitalize: "none", spellcheck: "false" });
  let created = null;
  await formDialog({
    title: "Create a room",
    body: [field("Address", room, "The room is persistent; its owner configures it with a client."), field("Owner", owner, "The address of a user.")],
    confirm: "Create",
    act: async () => {
      if (!room.value.trim() || !owner.value.trim()) throw new Error("Enter the address of the room and its owner.");
      await api.command("create-room", { room: room.value.trim(), owner: owner.value.trim() }, domain);
      created = room.value.trim().toLowerCase();
    },
  });
  return created;
}

function openRoom(context, jid) {
  const { root, values, signal } = context;
  const domain = values.get("domain") ?? "";
  const run = (name, stopped) => api.command(name, { room: jid }, domain, { signal: AbortSignal.any([stopped, signal]) });
  const occupants = h("div.card");
  const loadOccupants = loader(
    occupants,
    (stopped) => run("get-room-occupants", stopped),
    ({ occupants: rows }) =>
      rows.length
        ? table({
            caption: "Occupants",
            rows,
            columns: [
              { title: "Nickname", cell: ({ nick }) => nick },
              { title: "Session", cell: (row) => h("code", {}, row.jid) },
            ],
          })
        : emptyState("Nobody is in the room"),
  );
  const affiliations = h("div.card");
  const loadAffiliations = loader(
    affiliations,
    (stopped) => run("get-room-affiliations", stopped),
    ({ affiliations: rows }) =>
      rows.length
        ? table({
            caption: "Affiliations",
            rows,
            brief: (row) => label(row.affiliation),
            columns: [
              { title: "Address", cell: (row) => row.jid },
              { title: "Affiliation", class: "wide-only", cell: (row) => label(row.affiliation) },
              { title: "Nickname", class: "wide-only", cell: ({ nick }) => nick || h("span.soft", {}, NONE) },
              { title: "Reason", class: "wide-only spare", cell: ({ reason }) => reason || h("span.soft", {}, NONE) },
              {
                title: "Change",
                class: "acts",
                unseen: true,
                cell: (row) => h("button.small", { type: "button", "aria-label": `Change the affiliation of ${row.jid}`, onclick: () => change(row) }, "Change"),
              },
            ],
          })
        : emptyState("No affiliations"),
  );
  const load = () => {
    loadOccupants();
    loadAffiliations();
  };
  const change = async (row) => {
    if (await setAffiliation(jid, domain, row)) load();
  };
  const destroy = h("button.destructive", { type: "button", onclick: async () => {
    if (await destroyRoom(jid, domain)) context.go("rooms", { domain });
  } }, "Destroy");
  const add = h("button.main", { type: "button", onclick: () => change() }, "Add affiliation");
  const head = context.head("", h("button", { type: "button", onclick: load }, "Refresh"), destroy, add);
  head.firstChild.prepend(h("a.up", { href: address("rooms", { domain }) }, "All rooms"));
  replaceContent(root, head, h("h2", {}, "Occupants"), occupants, h("h2", {}, "Affiliations"), affiliations);
  load();
}

const label = (affiliation) => AFFILIATIONS.find(([value]) => value === affiliation)?.[1] ?? affiliation;

async function setAffiliation(room, domain, row) {
  const user = h("input", { type: "text", required: true, autocomplete: "off", autocapitalize: "none", spellcheck: "false", value: row?.jid ?? "", readonly: Boolean(row) });
  const menu = selectBox(AFFILIATIONS, row?.affiliation ?? "member");
  const done = await formDialog({
    title: row ? `Change the affiliation of ${row.jid}` : "Add an affiliation",
    body: [field("Address", user, "A user, or a domain to ban."), field("Affiliation", menu)],
    confirm: "Save",
    act: async () => {
      if (!user.value.trim()) throw new Error("Enter an address.");
      await api.command("set-room-affiliation", { room, user: user.value.trim(), affiliation: menu.value }, domain);
    },
  });
  if (done) toast("The affiliation was saved");
  return done;
}

async function destroyRoom(room, domain) {
  const reason = h("input", { type: "text", autocomplete: "off" });
  const alternate = h("input", { type: "text", autocomplete: "off", autocapitalize: "none", spellcheck: "false" });
  const done = await formDialog({
    title: `Destroy ${room}?`,
    text: "Its occupants leave, and its history, configuration and lists are deleted.",
    body: [field("Reason", reason, "Occupants see it."), field("Room in which the discussion goes on", alternate)],
    confirm: "Destroy",
    destructive: true,
    act: () => {
      const [why, venue] = [reason.value.trim(), alternate.value.trim()];
      return api.command("destroy-room", { room, ...(why && { reason: why }), ...(venue && { alternate: venue }) }, domain);
    },
  });
  if (done) toast(`The room ${room} was destroyed`);
  return done;
}
