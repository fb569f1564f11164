// The page: draws what the model knows and tells what people do. Text of others only ever becomes text.
//
// Events, each with a detail: "sign-in" { address, password }, "sign-out", "show" show, "open" jid, "say" body, "add" { jid,
// name }, "remove" jid, "accept" jid, "refuse" jid, "retry".
//
// The trap: the list of messages is a live region (role=log); whatever is put into it is read out by a screen reader. So
// messages are added to what is there, and only another conversation draws it anew.

const $ = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

const WORDS = { "": "available", chat: "available", away: "away", xa: "away for longer", dnd: "do not disturb" };
const day = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long" });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const date = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });

const title = (contact) => contact.name || contact.jid;

// A colour that stays the same for an address (the idea of XEP-0392), as one of the twelve classes of the style sheet.
function face(element, jid, name) {
  let sum = 0;
  for (const letter of jid) sum = (sum * 31 + letter.codePointAt(0)) >>> 0;
  element.className = `face hue${sum % 12}`;
  element.textContent = ([...(name || jid)][0] ?? "").toUpperCase();
}

// The body with its web addresses as links. Only http and https: nothing that runs.
function linked(body) {
  const parts = [];
  let at = 0;
  for (const found of body.matchAll(/https?:\/\/[^\s<>"]+[^\s<>".,;:!?)\]']/g)) {
    parts.push(body.slice(at, found.index));
    parts.push(make("a", { href: found[0], target: "_blank", rel: "noopener noreferrer" }, found[0]));
    at = found.index + found[0].length;
  }
  return [...parts, body.slice(at)];
}

export class View extends EventTarget {
  #model;
  #due = false;
  #drawn = { jid: null, count: 0, first: null, day: "" };
  #left = 0;

  constructor(model) {
    super();
    this.#model = model;
    model.addEventListener("change", () => this.draw());
    this.#listen();
  }

  #tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }

  #listen() {
    $("sign-in").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#tell("sign-in", { address: $("address").value, password: $("password").value });
    });
    $("sign-out").addEventListener("click", () => this.#tell("sign-out"));
    $("show").addEventListener("change", () => this.#tell("show", $("show").value));
    $("filter").addEventListener("input", () => this.draw());
    $("bar-retry").addEventListener("click", () => this.#tell("retry"));
    $("say").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#say();
    });
    $("text").addEventListener("keydown", (event) => {
      // Enter that ends a composition (Chinese, Japanese …) is not the end of the message.
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.#say();
      }
    });
    addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !document.querySelector("dialog[open]") && this.#model.open) location.hash = "";
    });
    addEventListener("hashchange", () => this.#tell("open", this.hash()));
    $("contacts").addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step) return;
      const links = [...$("contacts").querySelectorAll("a")];
      links[links.indexOf(document.activeElement) + step]?.focus();
      event.preventDefault();
    });
    this.#dialogs();
  }

  #dialogs() {
    $("add").addEventListener("click", () => this.ask());
    $("befriend").addEventListener("click", () => this.#tell("add", { jid: this.#model.open, name: "" }));
    $("ask-no").addEventListener("click", () => $("ask").close());
    $("ask-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#tell("add", { jid: $("ask-address").value, name: $("ask-name").value.trim() });
    });
    $("remove").addEventListener("click", () => {
      $("sure-text").textContent = `You and ${this.#model.open} will no longer see when the other is here.`;
      $("sure").returnValue = "";
      $("sure").showModal();
    });
    $("sure").addEventListener("close", () => {
      if ($("sure").returnValue === "yes") this.#tell("remove", this.#model.open);
    });
  }

  #say() {
    const body = $("text").value.trim();
    if (!body) return;
    $("text").value = "";
    this.#tell("say", body);
  }

  // The address behind the `#` of the page's own address.
  hash() {
    try {
      return decodeURIComponent(location.hash.slice(1));
    } catch {
      return "";
    }
  }

  // The form of the dialog, with what is wrong with what was typed.
  ask(why = "") {
    if (!$("ask").open) {
      $("ask-form").reset();
      $("ask").showModal();
    }
    $("ask-why").hidden = !why;
    $("ask-why").textContent = why;
    $("ask-address").focus();
  }

  asked() {
    $("ask").close();
  }

  // The form to sign in; `why` is what went wrong before.
  entry({ why = "", busy = false } = {}) {
    const shown = $("entry").hidden;
    $("app").hidden = true;
    $("entry").hidden = false;
    $("sign-in-why").hidden = !why;
    $("sign-in-why").textContent = why;
    for (const id of ["address", "password"]) $(id).readOnly = busy;
    const button = $("sign-in").querySelector("button");
    button.disabled = busy;
    button.textContent = busy ? "Signing in …" : "Sign in";
    if (why) {
      $("password").value = "";
      $("password").focus();
    } else if (shown && !busy) $("address").focus();
    document.title = "Throng chat";
  }

  // How an address looks here.
  hint(text) {
    $("address-hint").textContent = text;
  }

  // Nothing to sign in to: only a sentence.
  impossible(why) {
    this.entry({ why });
    for (const one of $("sign-in").elements) one.disabled = true;
  }

  app() {
    if (!$("app").hidden) return;
    $("entry").hidden = true;
    $("password").value = "";
    $("app").hidden = false;
    this.draw();
  }

  // How the connection is, in words; with a state "online" the line goes away.
  bar(state) {
    clearInterval(this.#left);
    const words = () => {
      const seconds = state.name === "waiting" ? Math.max(0, Math.ceil((state.at - Date.now()) / 1_000)) : 0;
      const next = seconds ? `Next attempt in ${seconds} s.` : "Trying again …";
      // The browser knows whether this device has a network; a server that is gone is not told from one that refuses.
      if (!navigator.onLine) return `There is no network. ${next}`;
      if (state.unreached) return `The server cannot be reached. ${next}`;
      if (state.name === "waiting") return `The connection is lost. ${next}`;
      return state.again ? "Connecting again …" : "Connecting …";
    };
    // While somebody signs in for the first time, the button says it.
    const first = $("app").hidden && !state.again;
    $("bar").hidden = state.name !== "waiting" && (state.name !== "connecting" || first);
    $("bar").className = state.name;
    $("bar-text").textContent = words();
    $("bar-retry").hidden = state.name !== "waiting" || state.at - Date.now() < 1_000;
    if (!$("bar").hidden) this.#left = setInterval(() => ($("bar-text").textContent = words()), 1_000);
  }

  // Soon; many changes are drawn at once.
  draw() {
    if (this.#due) return;
    this.#due = true;
    // A page in the background gets no frames, and its title shall still tell what is unread.
    const soon = document.hidden ? (then) => setTimeout(then, 50) : requestAnimationFrame;
    soon(() => {
      this.#due = false;
      this.#draw();
    });
  }

  #draw() {
    const model = this.#model;
    if (!model.own || $("app").hidden) return;
    $("me").textContent = model.own;
    face($("me-face"), model.own, "");
    $("show").value = model.show;
    const unread = model.unread;
    document.title = `${unread ? `(${unread}) ` : ""}Throng chat`;
    this.#requests();
    this.#contacts();
    this.#room();
  }

  #requests() {
    const list = $("requests");
    const wanted = [...this.#model.requests];
    if (list.dataset.drawn === wanted.join(" ")) return;
    list.dataset.drawn = wanted.join(" ");
    list.replaceChildren(
      ...wanted.map((jid) => {
        const yes = make("button", { type: "button", class: "main", "aria-label": `Accept ${jid}` }, "Accept");
        const no = make("button", { type: "button", "aria-label": `Decline ${jid}` }, "Decline");
        yes.addEventListener("click", () => this.#tell("accept", jid));
        no.addEventListener("click", () => this.#tell("refuse", jid));
        const text = make("p", { role: "status" }, make("strong", {}, jid), " wants to add you.");
        return make("li", {}, text, make("div", { class: "row" }, no, yes));
      }),
    );
  }

  #contacts() {
    const model = this.#model;
    const list = model.list($("filter").value);
    $("nobody").hidden = model.contacts.size > 0;
    const focused = document.activeElement?.closest?.("#contacts a")?.dataset.jid;
    $("contacts").replaceChildren(...list.map((contact) => make("li", {}, this.#entry(contact))));
    if (focused) $("contacts").querySelector(`a[data-jid="${CSS.escape(focused)}"]`)?.focus();
  }

  #entry(contact) {
    const { online, show, status } = this.#model.seen(contact);
    const last = contact.messages.at(-1);
    const picture = make("span", { "aria-hidden": "true" });
    face(picture, contact.jid, contact.name);
    if (online) picture.append(make("i", { class: `dot ${show}` }));
    const state = online ? WORDS[show] ?? "available" : "offline";
    const line = last ? `${last.mine ? "You: " : ""}${last.body}` : contact.asked ? "asked, no answer yet" : status || state;
    const link = make(
      "a",
      {
        href: `#${encodeURIComponent(contact.jid)}`,
        "data-jid": contact.jid,
        "aria-current": contact.jid === this.#model.open && "true",
        class: online ? "" : "offline",
      },
      picture,
      make("span", { class: "who" }, make("strong", {}, title(contact)), make("span", { class: "quiet" }, line)),
      make("span", { class: "unseen" }, `, ${state}`),
    );
    const side = make("span", { class: "side" });
    if (contact.last) side.append(make("time", { class: "quiet" }, when(contact.last)));
    if (contact.unread) {
      const count = String(Math.min(contact.unread, 999));
      side.append(make("b", { class: "unread" }, count, make("span", { class: "unseen" }, " unread")));
    }
    link.append(side);
    return link;
  }

  #room() {
    const model = this.#model;
    const contact = model.contacts.get(model.open);
    $("app").classList.toggle("talking", Boolean(contact));
    $("nothing").hidden = Boolean(contact);
    $("room").hidden = !contact;
    if (!contact) return void (this.#drawn.jid = null);
    const { online, show, status } = model.seen(contact);
    face($("peer-face"), contact.jid, contact.name);
    $("peer").textContent = title(contact);
    const state = contact.asked ? "asked, no answer yet" : online ? status || (WORDS[show] ?? "available") : "offline";
    const sees = ["to", "both"].includes(contact.subscription) || contact.asked;
    $("peer-state").textContent = [contact.name && contact.jid, sees ? state : "not among your contacts"]
      .filter(Boolean)
      .join(" · ");
    $("befriend").hidden = sees;
    $("remove").hidden = !contact.listed;
    this.#messages(contact);
  }

  #messages(contact) {
    const log = $("log");
    const drawn = this.#drawn;
    const { jid, messages } = contact;
    const low = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
    const other = drawn.jid !== jid;
    const anew = other || drawn.first !== messages[0] || drawn.count > messages.length;
    if (anew) {
      log.replaceChildren();
      // Another conversation is no news to read out.
      log.setAttribute("aria-live", "off");
      this.#drawn = { jid, count: 0, first: messages[0], day: "" };
    }
    for (const message of messages.slice(this.#drawn.count)) {
      const today = day.format(message.at);
      if (today !== this.#drawn.day) log.append(make("p", { class: "day" }, today));
      this.#drawn.day = today;
      log.append(make("div", { class: `message ${message.mine ? "mine" : ""}` }));
    }
    this.#drawn.count = messages.length;
    [...log.querySelectorAll(".message")].forEach((element, n) => this.#message(element, messages[n]));
    if (anew) {
      log.scrollTop = log.scrollHeight;
      requestAnimationFrame(() => log.setAttribute("aria-live", "polite"));
      // On a phone the keyboard would jump up.
      if (other && matchMedia("(hover: hover)").matches) $("text").focus();
    } else if (low || messages.at(-1)?.mine) log.scrollTop = log.scrollHeight;
  }

  #message(element, message) {
    const state = message.failed ? `failed` : message.waiting ? "waiting" : "sent";
    if (element.dataset.state === state) return;
    element.dataset.state = state;
    const who = make("span", { class: "unseen" }, message.mine ? "You: " : "");
    const note = message.failed ? ` · not delivered: ${message.failed}` : message.waiting ? " · waiting" : "";
    const at = make("time", { datetime: new Date(message.at).toISOString() }, clock.format(message.at));
    element.replaceChildren(who, make("p", {}, ...linked(message.body)), make("small", {}, at, note));
  }
}

// Today the time, before that the day.
function when(at) {
  const today = new Date().toDateString() === new Date(at).toDateString();
  return (today ? clock : date).format(at);
}
