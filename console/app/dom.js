//! Creates DOM elements. Strings become text nodes, so names chosen by users or clients cannot become markup; innerHTML is not
//! used, and the Content-Security-Policy forbids it (require-trusted-types-for).

const SVG = "http://www.w3.org/2000/svg";

function appendAll(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

/// `h("a.plain", { href, onclick }, "text", other)`: an HTML element. Properties `on…` are listeners; `null` and `false` omit an
/// attribute.
export function h(name, properties = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "class") element.className = [element.className, value].filter(Boolean).join(" ");
    else if (key === "value") element.value = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  return appendAll(element, children);
}

/// An SVG element; `null` omits an attribute.
export function s(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(key, value);
  }
  return appendAll(element, children);
}

/// Replaces the children of an element.
export function replaceContent(element, ...children) {
  element.replaceChildren();
  return appendAll(element, children);
}

let lastId = 0;
/// An id that is unique on the page.
export const uniqueId = (name) => `${name}-${++lastId}`;

/// A label with its control and an optional hint.
export function field(label, control, hint) {
  control.id ||= uniqueId("f");
  const parts = [h("label", { for: control.id }, label), control];
  if (hint) {
    const note = h("p.hint", { id: `${control.id}-hint` }, hint);
    control.setAttribute("aria-describedby", note.id);
    parts.push(note);
  }
  return h("div.field", {}, parts);
}

/// Marks a form as being submitted: it cannot be submitted twice, and its fields are read-only. Text typed meanwhile would be
/// lost when the response arrives.
export function setBusy(form, send, on) {
  send.disabled = on;
  if (on) send.setAttribute("aria-busy", "true");
  else send.removeAttribute("aria-busy");
  for (const control of form.querySelectorAll("input, textarea")) control.readOnly = on;
}

/// A select element. `options` are pairs of value and text.
export function selectBox(options, value, properties = {}) {
  const select = h("select", properties, options.map(([key, text]) => h("option", { value: key }, text)));
  select.value = value;
  return select;
}

/// Calls `f` after `ms` milliseconds without another call.
export function debounce(ms, f) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => f(...values), ms);
  };
}
