//! Selection of a node, and the notice about nodes that did not answer.

import * as api from "./api.js";
import { field, h, replaceContent, selectBox } from "./dom.js";

const REASONS = {
  "no-answer": "did not answer",
  "not-supported": "has a version that does not support this",
  "too-large": "sent too large an answer",
  busy: "is busy",
  unreadable: "sent an answer that cannot be read",
};

/// A select element with all nodes. It is hidden as long as there is one node; `changed(name)` gets the selected name, empty for all
/// nodes. `load` reads the list of nodes.
export function nodeSelect(selected, { signal, changed, all = "All nodes" }) {
  const select = selectBox([["", all], ...(selected ? [[selected, selected]] : [])], selected, { onchange: () => changed(select.value) });
  const element = field("Node", select);
  element.hidden = !selected;
  const load = async () => {
    const { nodes, missing = [] } = await api.get("/nodes", {}, { signal });
    const names = [...nodes.map(({ name }) => name), ...missing.map(({ node }) => node)].sort();
    const current = select.value;
    if (current && !names.includes(current)) names.push(current);
    element.hidden = names.length < 2 && !current;
    if (names.join() === [...select.options].slice(1).map(({ value }) => value).join()) return;
    replaceContent(select, h("option", { value: "" }, all), names.map((name) => h("option", { value: name }, name)));
    select.value = current;
  };
  return { element, load };
}

/// One line for each node without an answer; nothing if all have answered.
export function missingNotice(missing = []) {
  if (!missing.length) return null;
  return h(
    "div.error-notice",
    { role: "status" },
    h("span", {}, "Not complete: ", missing.map(({ node, reason }) => `${node} ${REASONS[reason] ?? reason}`).join("; "), "."),
  );
}
