// Renders the model and emits events for user actions. Text from other users is inserted as text nodes only, never as markup.
//
// Events, each with a detail: "sign-in" { address, password }, "sign-out", "show" show, "open" jid, "say" body, "add" { jid,
// name }, "remove" jid, "accept" jid, "refuse" jid, "retry".
//
// # Pitfalls
//
// The message list is a live region (role=log): a screen reader reads everything that is inserted. So messages are appended,
// and the list is replaced only for another conversation.

const byId = (id) => document.getElementById(id);

function createElement(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

const SHOW_LABELS = { "": "available", chat: "available", away: "away", xa: "away for longer", dnd: "do not disturb" };
const day = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long" });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const date = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });

const title = (contact) => contact.name || contact.jid;

// Sets the avatar's initial and a colour derived from the address (similar to XEP-0392), one of twelve classes in chat.css.
function setAvatar(element, jid, name) {
  let sum = 0;
  for (const letter of jid) sum = (sum * 31 + letter.codePointAt(0)) >>> 0;
  element.className = `avatar hue${sum % 12}`;
  element.textContent = ([...(name || jid)][0] ?? "").toUpperCase();
}

// Splits a body into text and links. Only http and https: other schemes could run code.
function linkify(body) {
  const parts = [];
  let at = 0;
  for (const found of body.matchAll(/https?:\/\/[^\s<>"]+[^\s<>".,;:!?)\]']/g)) {
    parts.push(body.slice(at, found.index));
    parts.push(createElement("a", { href: found[0], target: "_blank", rel: "noopener noreferrer" }, found[0]));
    at = found.index + found[0].length;
  }
  return [...parts, body.slice(at)];
}

export class View extends EventTarget {
  #model;
  #renderScheduled = false;
  #rendered = { jid: null, count: 0, first: null, day: "" };
  #countdownTimer = 0;

  constructor(model) {
    super();
    this.#model = model;
    model.addEventListener("change", () => this.scheduleRender());
    this.#addListeners();
  }

  #emit(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }

  #addListeners() {
    byId("sign-in").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#emit("sign-in", { address: byId("address").value, password: byId("password").value });
    });
    byId("sign-out").addEventListener("click", () => this.#emit("sign-out"));
    byId("show").addEventListener("change", () => this.#emit("show", byId("show").value));
    byId("filter").addEventListener("input", () => this.scheduleRender());
    byId("bar-retry").addEventListener("click", () => this.#emit("retry"));
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#sendMessage();
    });
    byId("text").addEventListener("keydown", (event) => {
      // Enter that ends an input-method composition does not send the message.
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.#sendMessage();
      }
    });
    addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !document.querySelector("dialog[open]") && this.#model.open) location.hash = "";
    });
    addEventListener("hashchange", () => this.#emit("open", this.hash()));
    byId("contacts").addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step) return;
      const links = [...byId("contacts").querySelectorAll("a")];
      links[links.indexOf(document.activeElement) + step]?.focus();
      event.preventDefault();
    });
    this.#dialogs();
  }

  #dialogs() {
    byId("add").addEventListener("click", () => this.openAddDialog());
    byId("subscribe").addEventListener("click", () => this.#emit("add", { jid: this.#model.open, name: "" }));
    byId("add-cancel").addEventListener("click", () => byId("add-dialog").close());
    byId("add-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#emit("add", { jid: byId("add-address").value, name: byId("add-name").value.trim() });
    });
    byId("remove").addEventListener("click", () => {
      byId("remove-dialog-text").textContent = `You and ${this.#model.open} will no longer see each other's presence.`;
      byId("remove-dialog").returnValue = "";
      byId("remove-dialog").showModal();
    });
    byId("remove-dialog").addEventListener("close", () => {
      if (byId("remove-dialog").returnValue === "yes") this.#emit("remove", this.#model.open);
    });
  }

  #sendMessage() {
    const body = byId("text").value.trim();
    if (!body) return;
    byId("text").value = "";
    this.#emit("say", body);
  }

  // The decoded fragment of the page's URL: the address of the open conversation.
  hash() {
    try {
      return decodeURIComponent(location.hash.slice(1));
    } catch {
      return "";
    }
  }

  // Opens the dialog that adds a contact; `why` is the error of the previous attempt.
  openAddDialog(why = "") {
    if (!byId("add-dialog").open) {
      byId("add-form").reset();
      byId("add-dialog").showModal();
    }
    byId("add-error").hidden = !why;
    byId("add-error").textContent = why;
    byId("add-address").focus();
  }

  closeAddDialog() {
    byId("add-dialog").close();
  }

  // Shows the sign-in form; `why` is the error of the previous attempt.
  showSignIn({ why = "", busy = false } = {}) {
    const wasHidden = byId("sign-in-page").hidden;
    byId("app").hidden = true;
    byId("sign-in-page").hidden = false;
    byId("sign-in-error").hidden = !why;
    byId("sign-in-error").textContent = why;
    for (const id of ["address", "password"]) byId(id).readOnly = busy;
    const button = byId("sign-in").querySelector("button");
    button.disabled = busy;
    button.textContent = busy ? "Signing in …" : "Sign in";
    if (why) {
      byId("password").value = "";
      byId("password").focus();
    } else if (wasHidden && !busy) byId("address").focus();
    document.title = "Throng chat";
  }

  // Sets the hint for the format of an address.
  setAddressHint(text) {
    byId("address-hint").textContent = text;
  }

  // Shows an error and disables the form.
  showUnavailable(why) {
    this.showSignIn({ why });
    for (const one of byId("sign-in").elements) one.disabled = true;
  }

  showApp() {
    if (!byId("app").hidden) return;
    byId("sign-in-page").hidden = true;
    byId("password").value = "";
    byId("app").hidden = false;
    this.scheduleRender();
  }

  // Shows the state of the connection; hidden while it is "online".
  showConnection(state) {
    clearInterval(this.#countdownTimer);
    const words = () => {
      const seconds = state.name === "waiting" ? Math.max(0, Math.ceil((state.at - Date.now()) / 1_000)) : 0;
      const next = seconds ? `Next attempt in ${seconds} s.` : "Trying again …";
      // The browser reports whether this device has a network, but not why a server cannot be reached.
      if (!navigator.onLine) return `There is no network. ${next}`;
      if (state.unreached) return `The server cannot be reached. ${next}`;
      if (state.name === "waiting") return `The connection was lost. ${next}`;
      return state.again ? "Reconnecting …" : "Connecting …";
    };
    // During the first sign-in the button shows the state.
    const first = byId("app").hidden && !state.again;
    byId("bar").hidden = state.name !== "waiting" && (state.name !== "connecting" || first);
    byId("bar").className = state.name;
    byId("bar-text").textContent = words();
    byId("bar-retry").hidden = state.name !== "waiting" || state.at - Date.now() < 1_000;
    if (!byId("bar").hidden) this.#countdownTimer = setInterval(() => (byId("bar-text").textContent = words()), 1_000);
  }

  // Renders in the next frame, once for all changes until then.
  scheduleRender() {
    if (this.#renderScheduled) return;
    this.#renderScheduled = true;
    // A page in the background gets no animation frames, but its title must still show the unread count.
    const schedule = document.hidden ? (then) => setTimeout(then, 50) : requestAnimationFrame;
    schedule(() => {
      this.#renderScheduled = false;
      this.#render();
    });
  }

  #render() {
    const model = this.#model;
    if (!model.own || byId("app").hidden) return;
    byId("me").textContent = model.own;
    setAvatar(byId("me-avatar"), model.own, "");
    byId("show").value = model.show;
    const unread = model.unread;
    document.title = `${unread ? `(${unread}) ` : ""}Throng chat`;
    this.#renderRequests();
    this.#renderContacts();
    this.#renderConversation();
  }

  #renderRequests() {
    const list = byId("requests");
    const wanted = [...this.#model.requests];
    if (list.dataset.drawn === wanted.join(" ")) return;
    list.dataset.drawn = wanted.join(" ");
    list.replaceChildren(
      ...wanted.map((jid) => {
        const yes = createElement("button", { type: "button", class: "main", "aria-label": `Accept ${jid}` }, "Accept");
        const no = createElement("button", { type: "button", "aria-label": `Decline ${jid}` }, "Decline");
        yes.addEventListener("click", () => this.#emit("accept", jid));
        no.addEventListener("click", () => this.#emit("refuse", jid));
        const text = createElement("p", { role: "status" }, createElement("strong", {}, jid), " wants to add you.");
        return createElement("li", {}, text, createElement("div", { class: "row" }, no, yes));
      }),
    );
  }

  #renderContacts() {
    const model = this.#model;
    const list = model.sortedContacts(byId("filter").value);
    byId("no-contacts").hidden = model.contacts.size > 0;
    const focused = document.activeElement?.closest?.("#contacts a")?.dataset.jid;
    byId("contacts").replaceChildren(...list.map((contact) => createElement("li", {}, this.#renderContact(contact))));
    if (focused) byId("contacts").querySelector(`a[data-jid="${CSS.escape(focused)}"]`)?.focus();
  }

  #renderContact(contact) {
    const { online, show, status } = this.#model.availability(contact);
    const last = contact.messages.at(-1);
    const picture = createElement("span", { "aria-hidden": "true" });
    setAvatar(picture, contact.jid, contact.name);
    if (online) picture.append(createElement("i", { class: `dot ${show}` }));
    const state = online ? SHOW_LABELS[show] ?? "available" : "offline";
    const line = last ? `${last.mine ? "You: " : ""}${last.body}` : contact.pendingOut ? "request pending" : status || state;
    const link = createElement(
      "a",
      {
        href: `#${encodeURIComponent(contact.jid)}`,
        "data-jid": contact.jid,
        "aria-current": contact.jid === this.#model.open && "true",
        class: online ? "" : "offline",
      },
      picture,
      createElement("span", { class: "who" }, createElement("strong", {}, title(contact)), createElement("span", { class: "secondary" }, line)),
      createElement("span", { class: "visually-hidden" }, `, ${state}`),
    );
    const side = createElement("span", { class: "side" });
    if (contact.last) side.append(createElement("time", { class: "secondary" }, formatTime(contact.last)));
    if (contact.unread) {
      const count = String(Math.min(contact.unread, 999));
      side.append(createElement("b", { class: "unread" }, count, createElement("span", { class: "visually-hidden" }, " unread")));
    }
    link.append(side);
    return link;
  }

  #renderConversation() {
    const model = this.#model;
    const contact = model.contacts.get(model.open);
    byId("app").classList.toggle("in-conversation", Boolean(contact));
    byId("no-conversation").hidden = Boolean(contact);
    byId("conversation").hidden = !contact;
    if (!contact) return void (this.#rendered.jid = null);
    const { online, show, status } = model.availability(contact);
    setAvatar(byId("peer-avatar"), contact.jid, contact.name);
    byId("peer").textContent = title(contact);
    const state = contact.pendingOut ? "request pending" : online ? status || (SHOW_LABELS[show] ?? "available") : "offline";
    const subscribed = ["to", "both"].includes(contact.subscription) || contact.pendingOut;
    byId("peer-state").textContent = [contact.name && contact.jid, subscribed ? state : "not in your contacts"]
      .filter(Boolean)
      .join(" · ");
    byId("subscribe").hidden = subscribed;
    byId("remove").hidden = !contact.listed;
    this.#renderMessages(contact);
  }

  #renderMessages(contact) {
    const log = byId("log");
    const rendered = this.#rendered;
    const { jid, messages } = contact;
    const atBottom = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
    const switched = rendered.jid !== jid;
    const replaceAll = switched || rendered.first !== messages[0] || rendered.count > messages.length;
    if (replaceAll) {
      log.replaceChildren();
      // A screen reader must not read a conversation that was opened.
      log.setAttribute("aria-live", "off");
      this.#rendered = { jid, count: 0, first: messages[0], day: "" };
    }
    for (const message of messages.slice(this.#rendered.count)) {
      const today = day.format(message.at);
      if (today !== this.#rendered.day) log.append(createElement("p", { class: "day" }, today));
      this.#rendered.day = today;
      log.append(createElement("div", { class: `message ${message.mine ? "mine" : ""}` }));
    }
    this.#rendered.count = messages.length;
    [...log.querySelectorAll(".message")].forEach((element, n) => this.#renderMessage(element, messages[n]));
    if (replaceAll) {
      log.scrollTop = log.scrollHeight;
      requestAnimationFrame(() => log.setAttribute("aria-live", "polite"));
      // On a phone, focus would open the keyboard.
      if (switched && matchMedia("(hover: hover)").matches) byId("text").focus();
    } else if (atBottom || messages.at(-1)?.mine) log.scrollTop = log.scrollHeight;
  }

  #renderMessage(element, message) {
    const state = message.failed ? `failed` : message.waiting ? "waiting" : "sent";
    if (element.dataset.state === state) return;
    element.dataset.state = state;
    const who = createElement("span", { class: "visually-hidden" }, message.mine ? "You: " : "");
    const note = message.failed ? ` · not delivered: ${message.failed}` : message.waiting ? " · not sent yet" : "";
    const at = createElement("time", { datetime: new Date(message.at).toISOString() }, clock.format(message.at));
    element.replaceChildren(who, createElement("p", {}, ...linkify(message.body)), createElement("small", {}, at, note));
  }
}

// The time for today, the date for other days.
function formatTime(at) {
  const today = new Date().toDateString() === new Date(at).toDateString();
  return (today ? clock : date).format(at);
}
