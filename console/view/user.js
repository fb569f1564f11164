//! Page of one account: state, sessions, contacts and actions.

import * as api from "../app/api.js";
import { address } from "../app/address.js";
import { h, replaceContent } from "../app/dom.js";
import { count, day, plural, dateTime } from "../app/format.js";
import { emptyState, loader } from "../app/table.js";
import { setDisabled, endAllSessions, deleteAccount, changePassword } from "./account_actions.js";
import { roster } from "./roster.js";
import { sessionTable } from "./session_table.js";
import { badge } from "./users.js";

export const title = "User";
export const titled = ([jid]) => jid;

export function open(context) {
  const { root, signal } = context;
  const jid = context.rest[0];
  const container = h("div.stack");
  const acts = h("div.acts");

  const load = loader(
    container,
    async (stopped) => {
      const options = { signal: AbortSignal.any([stopped, signal]) };
      const path = `/accounts/${api.pathSegment(jid)}`;
      const [account, { items }] = await Promise.all([api.get(path, {}, options), api.get(`${path}/sessions`, {}, options)]);
      return { account, sessions: items };
    },
    ({ account, sessions }) => {
      const state = { disabled: account.disabled, sessions: sessions.length };
      const own = context.session.jid === jid;
      replaceContent(
        acts,
        h("button", { type: "button", onclick: () => changePassword(jid, own) }, "Change password"),
        h("button", { type: "button", disabled: own, title: own ? "This is your own account" : null, onclick: async () => (await setDisabled(jid, !account.disabled)) && load() }, account.disabled ? "Enable" : "Disable"),
        h("button.destructive", { type: "button", disabled: own, title: own ? "This is your own account" : null, onclick: async () => (await deleteAccount(jid)) && context.go("users") }, "Delete"),
      );
      const facts = [
        ["State", badge(state)],
        ["Created", day(account.created)],
        ["Last seen", sessions.length ? "now" : account.last_seen ? dateTime(account.last_seen) : "never"],
        ["Contacts", count(account.contacts)],
        ["Offline messages", count(account.offline_messages)],
      ];
      return [
        h("div.card.pad", {}, h("dl.facts", {}, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))))),
        h(
          "section.card",
          { "aria-label": "Sessions" },
          h(
            "header",
            {},
            h("h2", {}, sessions.length ? plural(sessions.length, "session") : "Sessions"),
            h(
              "div.row",
              {},
              h("button.small", { type: "button", onclick: load }, "Refresh"),
              sessions.length > 1 ? h("button.small", { type: "button", onclick: async () => (await endAllSessions(jid, sessions.length)) && load() }, "End all") : null,
            ),
          ),
          sessions.length ? sessionTable(sessions, { of: true, changed: load, caption: `Sessions of ${jid}` }) : emptyState("Not online"),
        ),
      ];
    },
  );
  const head = context.head();
  head.firstChild.prepend(h("a.up", { href: address("users") }, "All users"));
  head.append(acts);
  // The contacts are outside the container that is reloaded after each action, so their page is kept.
  replaceContent(root, head, h("div.stack", {}, container, roster(context, jid)));
  load();
}
