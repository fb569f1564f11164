//! Making elements. Texts become text nodes, so nothing that a user or a client named can become markup; there is no
//! innerHTML anywhere, and the Content-Security-Policy refuses it (require-trusted-types-for).

const SVG = "http://www.w3.org/2000/svg";

function fill(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

/// `h("a.plain", { href, onclick }, "text", other)`: an HTML element. Properties in `on…` are listeners, `null` and `false`
/// leave an attribute out.
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
  return fill(element, children);
}

/// An SVG element; of an attribute that is `null` nothing is written.
export function s(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(key, value);
  }
  return fill(element, children);
}

/// Replaces what is in an element.
export function put(element, ...children) {
  element.replaceChildren();
  return fill(element, children);
}

let numbers = 0;
/// An id that nothing else on the page has.
export const fresh = (name) => `${name}-${++numbers}`;

/// A label with its control, a hint and a place for what is wrong with it.
export function field(label, control, hint) {
  control.id ||= fresh("f");
  const parts = [h("label", { for: control.id }, label), control];
  if (hint) {
    const note = h("p.hint", { id: `${control.id}-hint` }, hint);
    control.setAttribute("aria-describedby", note.id);
    parts.push(note);
  }
  return h("div.field", {}, parts);
}

/// Marks a form while it is being sent: it is not sent twice, and its fields cannot be changed. A text typed meanwhile would be
/// selected or cleared when the answer comes.
export function busy(form, send, on) {
  send.disabled = on;
  if (on) send.setAttribute("aria-busy", "true");
  else send.removeAttribute("aria-busy");
  for (const control of form.querySelectorAll("input, textarea")) control.readOnly = on;
}

/// A menu. `options` are pairs of value and text.
export function choice(options, value, properties = {}) {
  const select = h("select", properties, options.map(([key, text]) => h("option", { value: key }, text)));
  select.value = value;
  return select;
}

/// Calls `f` when nothing has happened for `ms` milliseconds.
export function after(ms, f) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => f(...values), ms);
  };
}
