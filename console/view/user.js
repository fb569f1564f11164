//! One account: its state, its sessions, its contacts, and what can be done to it.

import * as api from "../app/api.js";
import { address } from "../app/address.js";
import { h, put } from "../app/dom.js";
import { count, day, many, moment } from "../app/format.js";
import { empty, loader } from "../app/table.js";
import { disable, endAll, erase, password } from "./account_acts.js";
import { roster } from "./roster.js";
import { sessionTable } from "./session_table.js";
import { badge } from "./users.js";

export const title = "User";
export const titled = ([jid]) => jid;

export function open(context) {
  const { root, signal } = context;
  const jid = context.rest[0];
  const place = h("div.stack");
  const acts = h("div.acts");

  const load = loader(
    place,
    async (stopped) => {
      const options = { signal: AbortSignal.any([stopped, signal]) };
      const path = `/accounts/${api.part(jid)}`;
      const [account, { items }] = await Promise.all([api.get(path, {}, options), api.get(`${path}/sessions`, {}, options)]);
      return { account, sessions: items };
    },
    ({ account, sessions }) => {
      const state = { disabled: account.disabled, sessions: sessions.length };
      const own = context.session.jid === jid;
      put(
        acts,
        h("button", { type: "button", onclick: () => password(jid, own) }, "Change password"),
        h("button", { type: "button", disabled: own, title: own ? "This is the account that you are using" : null, onclick: async () => (await disable(jid, !account.disabled)) && load() }, account.disabled ? "Enable" : "Disable"),
        h("button.grave", { type: "button", disabled: own, title: own ? "This is the account that you are using" : null, onclick: async () => (await erase(jid)) && context.go("users") }, "Delete"),
      );
      const facts = [
        ["State", badge(state)],
        ["Created", day(account.created)],
        ["Last there", sessions.length ? "now" : account.last_seen ? moment(account.last_seen) : "never"],
        ["Contacts", count(account.contacts)],
        ["Messages waiting", count(account.offline_messages)],
      ];
      return [
        h("div.card.pad", {}, h("dl.facts", {}, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))))),
        h(
          "section.card",
          { "aria-label": "Sessions" },
          h(
            "header",
            {},
            h("h2", {}, sessions.length ? many(sessions.length, "session") : "Sessions"),
            h(
              "div.row",
              {},
              h("button.small", { type: "button", onclick: load }, "Refresh"),
              sessions.length > 1 ? h("button.small", { type: "button", onclick: async () => (await endAll(jid, sessions.length)) && load() }, "End all") : null,
            ),
          ),
          sessions.length ? sessionTable(sessions, { of: true, changed: load, caption: `Sessions of ${jid}` }) : empty("Not online"),
        ),
      ];
    },
  );
  const head = context.head();
  head.firstChild.prepend(h("a.up", { href: address("users") }, "All users"));
  head.append(acts);
  // Beside what is loaded again after each act: a page of contacts stays as it is.
  put(root, head, h("div.stack", {}, place, roster(context, jid)));
  load();
}
