// Drives the console of a running node in Debian's Chromium, as an operator would.
//
// usage: console.js FOLDER [SCENARIO…]     pictures of every view go to FOLDER; one line for each scenario to stdout
//
//   BROWSER_MODULES, BROWSER   as for look.js
//   XMPP_MODULES               the folder whose node_modules setup.sh filled for xmpp.js
//   CONSOLE_URL                http://127.0.0.1:…
//   CONSOLE_ADMIN, CONSOLE_PASSWORD
//   CONSOLE_ACCOUNTS           the number of accounts u0, u1 … whose password is XMPP_PASSWORD
//   XMPP_SERVICE, XMPP_DOMAIN, XMPP_PASSWORD
//   LOAD                       a command, as JSON list, that puts load on the node until it is interrupted
//
// Prints `ok NAME` or `FAIL NAME reason`; the status is 1 when one failed. A scenario goes on where the one before it
// stopped. Throughout, the page may ask nobody but the node, its policy may not be violated, and the browser's console
// stays empty but for the refusals that a scenario expects.
//
// Pitfalls: the browser's console has a line for each response with status 400 and above, which the browser writes, possibly after the
// page has updated. Look for texts inside `main`, because notices repeat them. A response that Playwright reports is not yet visible on
// the page: wait for the page.

import { createRequire } from "node:module";
import { spawn } from "node:child_process";
import { mkdirSync } from "node:fs";
import { pathToFileURL } from "node:url";
import path from "node:path";

const [folder, ...chosen] = process.argv.slice(2);
const need = (name) => process.env[name] ?? (console.error(`console.js: ${name} is not set`), process.exit(2));
if (!folder) need("FOLDER");
const required = (modules, name) => createRequire(path.join(path.resolve(modules), "package.json")).resolve(name);
const { chromium } = createRequire(path.join(path.resolve(need("BROWSER_MODULES")), "package.json"))("playwright-core");
const { client: connect } = await import(pathToFileURL(required(need("XMPP_MODULES"), "@xmpp/client")));
process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";

const base = need("CONSOLE_URL");
const [admin, password, domain] = [need("CONSOLE_ADMIN"), need("CONSOLE_PASSWORD"), need("XMPP_DOMAIN")];
const accounts = Number(need("CONSOLE_ACCOUNTS"));
// Only a failure takes this long.
const TIMEOUT = 120_000;
const WEIGHT = 300_000;
/// Each view, and what it shows when it has its answers.
const VIEWS = [
  ["overview", ".plot path.line"],
  ["sessions", "tbody tr, .empty"],
  ["nodes", "tbody tr"],
  ["users", "tbody tr"],
  [`users/u1%40${domain}`, "dl.facts dd"],
  ["rooms", "tbody tr, .empty"],
  ["pubsub", "tbody tr, .empty"],
  ["messages", ".message .badge"],
  ["domains", "ul.modules li"],
  ["commands", "tbody tr"],
  ["commands/add-user", "form .field"],
  ["tokens", "tbody tr, .empty"],
  ["log", ".log li"],
  ["audit", "tbody tr"],
];

mkdirSync(folder, { recursive: true });
const check = (condition, reason) => {
  if (!condition) throw new Error(reason);
};
const until = async (what, look) => {
  const end = Date.now() + TIMEOUT;
  for (;;) {
    const found = await look();
    if (found) return found;
    check(Date.now() < end, `${what}: not within ${TIMEOUT / 1000} s`);
    await new Promise((go) => setTimeout(go, 100));
  }
};

const browser = await chromium.launch({ executablePath: process.env.BROWSER ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });

/// A window that notes what must not happen.
async function open(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  context.setDefaultTimeout(TIMEOUT);
  const page = await context.newPage();
  const window = { context, page, complaints: [], foreignRequests: [], expected: 0 };
  await page.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
  });
  page.on("pageerror", (error) => window.complaints.push(`error: ${error.message}`));
  page.on("request", (request) => !request.url().startsWith(`${base}/`) && window.foreignRequests.push(request.url()));
  page.on("console", (message) => {
    if (!["error", "warning"].includes(message.type())) return;
    // Only a scenario that plays a node that is gone refuses connections.
    if (message.text().includes("net::ERR_CONNECTION_REFUSED")) return;
    if (window.expected > 0 && message.text().startsWith("Failed to load resource")) window.expected -= 1;
    else window.complaints.push(`${message.type()}: ${message.text()}`);
  });
  return window;
}

let window = await open();
let { page } = window;
const main = () => page.locator("main");
const heading = (text) => page.waitForFunction((text) => document.querySelector("main h1")?.innerText === text, text);
const go = async (view, title) => {
  await page.evaluate((view) => {
    location.hash = `#/${view}`;
  }, view);
  if (title) await heading(title);
};
const dialog = () => page.locator("dialog[open]");
/// Dialogs leave the page, and give the focus back, in an event of their own.
const dialogsGone = () => page.waitForFunction(() => !document.querySelector("dialog"));
const notice = (text) => page.locator(".toast", { hasText: text }).first().waitFor();
async function signIn(window) {
  await window.page.goto(`${base}/`);
  await window.page.getByLabel("Address").fill(admin);
  await window.page.getByLabel("Password").fill(password);
  await window.page.getByRole("button", { name: "Sign in" }).click();
  await window.page.locator("nav.navigation").waitFor({ state: "attached" });
}

/// An XMPP client of one account; `stanzas` are what came.
async function login(user, resource) {
  const xmpp = connect({ service: need("XMPP_SERVICE"), domain, resource, username: user, password: need("XMPP_PASSWORD") });
  xmpp.reconnect.stop();
  const seen = { xmpp, stanzas: [], ended: "" };
  xmpp.on("stanza", (stanza) => seen.stanzas.push(stanza));
  xmpp.on("error", (error) => {
    seen.ended ||= error.text ?? error.message ?? String(error);
  });
  xmpp.on("disconnect", () => {
    seen.ended ||= "disconnected";
  });
  seen.jid = (await xmpp.start()).toString();
  await xmpp.write("<presence/>");
  return seen;
}

const scenarios = {
  async the_page_is_small_and_self_contained() {
    let weight = 0;
    const files = [];
    page.on("response", async (response) => {
      const bytes = await response.body().catch(() => Buffer.alloc(0));
      weight += bytes.length;
      files.push(response.url().slice(base.length));
    });
    const answer = await page.goto(`${base}/`, { waitUntil: "networkidle" });
    const policy = answer.headers()["content-security-policy"] ?? "";
    check(policy.includes("default-src 'self'") && !policy.includes("unsafe"), `the policy is ${policy}`);
    check(answer.headers()["x-content-type-options"] === "nosniff", "no nosniff");
    await until("the files", () => files.length > 10 && weight > 20_000);
    check(weight < WEIGHT, `${weight} bytes in ${files.length} files`);
    // What the policy is for, in a window of its own.
    const other = await open();
    await other.page.goto(`${base}/`);
    const ran = await other.page.evaluate(() => {
      const script = document.createElement("script");
      try {
        script.text = "window.intruder = true";
        document.body.append(script);
      } catch {
        return false;
      }
      return window.intruder === true;
    });
    check(!ran, "an inline script ran");
    await until("the violation", () => other.complaints.some((text) => text.includes("policy: ")));
    await other.context.close();
    return `${weight} bytes, ${files.length} files`;
  },

  async a_wrong_password_is_reported_in_one_sentence() {
    await page.goto(`${base}/`);
    window.expected = 1;
    await page.getByLabel("Address").fill(admin);
    await page.getByLabel("Password").fill("not this one");
    await page.keyboard.press("Enter");
    const text = await page.getByRole("alert").filter({ hasText: "wrong" }).innerText();
    check(/^The .* is wrong\.$/.test(text), `it says ${text}`);
    check((await page.context().cookies()).length === 0, "there is a cookie");
  },

  async an_administrator_signs_in_by_keyboard() {
    await page.goto(`${base}/`);
    await page.waitForFunction((field) => field === document.activeElement, await page.getByLabel("Address").elementHandle());
    await page.keyboard.type(admin);
    await page.keyboard.press("Tab");
    await page.keyboard.type(password);
    await page.keyboard.press("Enter");
    await heading("Overview");
    const [cookie] = await page.context().cookies();
    check(cookie.httpOnly && cookie.sameSite === "Strict" && cookie.path === "/", JSON.stringify(cookie));
    check(!(await page.evaluate(() => document.cookie)), "a script sees the cookie");
    await page.reload();
    await heading("Overview");
  },

  async metrics_change_under_load() {
    await page.locator(".plot path.line").first().waitFor({ state: "attached" });
    const figure = (title, at) => page.getByRole("region", { name: title, exact: true }).locator("dd").nth(at).innerText().then((text) => Number(text.replace(/[^\d.]/g, "")));
    const before = await figure("Users online", 0);
    const [program, ...words] = JSON.parse(need("LOAD"));
    const load = spawn(program, words, { stdio: ["ignore", "ignore", "inherit"] });
    const ended = new Promise((done) => load.on("exit", done));
    const running = () => check(load.exitCode === null, `the load ended with ${load.exitCode}`);
    await until("users online", async () => (running(), (await figure("Users online", 0)) >= before + 50));
    await until("messages", async () => (running(), (await figure("Messages", 1)) >= 10));
    await until("delivery times", async () => (running(), (await figure("Message delivery inside the node", 0)) > 0));
    // The cursor goes through all charts, by keyboard as well.
    await page.getByRole("slider", { name: /^Messages/ }).focus();
    const now = await page.getByRole("slider", { name: /^Users online/ }).getAttribute("aria-valuetext");
    for (let i = 0; i < 5; i++) await page.keyboard.press("ArrowLeft");
    const then = await page.getByRole("slider", { name: /^Users online/ }).getAttribute("aria-valuetext");
    check(now !== then && /^\d\d:\d\d:\d\d: [\d–]/.test(then), `from ${now} to ${then}`);
    await page.keyboard.press("Escape");
    await page.getByText("1 hour").click();
    check((await page.getByRole("slider", { name: /^Messages/ }).getAttribute("aria-valuemax")) === "1799", "not an hour");
    await page.screenshot({ path: path.join(folder, "under-load.png"), fullPage: true });
    running();
    load.kill("SIGINT");
    await ended;
  },

  async the_overview_shows_resources_and_events() {
    await go("overview", "Overview");
    const facts = main().locator(".state");
    for (const fact of [/Errors, last hour \d/, /Certificate until \d{4}-\d\d-\d\d/, /Disk free [\d.]+\s?.?B of/, /Database [\d.]+\s?.?B/, /Up for/]) {
      await facts.locator(".fact", { hasText: fact }).waitFor();
    }
    const events = main().getByRole("region", { name: "Recent events" });
    await events.locator("li", { hasText: `${admin}: sign-in` }).first().waitFor();
    check((await events.locator("li time").first().innerText()).match(/\d\d:\d\d:\d\d$/), "an event has no time");
    await events.getByRole("link", { name: "sign-in" }).first().click();
    await heading("Audit");
    await go("domains", "Domains and modules");
    const row = main().getByRole("region", { name: "By domain" }).locator("tbody tr", { hasText: domain });
    await until("rates", async () => /\d\/s in, [\d.]+\/s out/.test(await row.innerText()));
  },

  async an_unreachable_node_is_shown_as_such() {
    await go("overview", "Overview");
    await main().locator(".lamp").waitFor();
    await page.route("**/api/**", (route) => route.abort("connectionrefused"));
    const banner = page.getByRole("alert").filter({ hasText: "does not respond" });
    await banner.waitFor();
    check(/last response was at \d\d:\d\d:\d\d/.test(await banner.innerText()), `it says ${await banner.innerText()}`);
    await main().locator(".state", { hasText: "cannot be reached" }).waitFor();
    check(/Metrics of \d\d:\d\d:\d\d/.test(await main().locator(".state").innerText()), "the metrics have no time");
    const seen = await page.evaluate(() => {
      const style = (selector, name) => getComputedStyle(document.querySelector(selector))[name];
      const probe = document.createElement("i");
      document.body.append(probe);
      probe.style.color = "var(--good)";
      const good = getComputedStyle(probe).color;
      probe.remove();
      return { good, lamp: style(".lamp", "backgroundColor"), line: style(".plot", "filter"), lamps: document.querySelectorAll(".lamp:not(.bad)").length };
    });
    check(seen.lamp !== seen.good && seen.lamps === 0, `the lamp is ${seen.lamp}`);
    check(seen.line === "grayscale(1)", "the lines have their colours");
    await page.screenshot({ path: path.join(folder, "down.png") });
    // On each view, and until it answers again.
    await go("tokens", "API tokens");
    await banner.waitFor();
    await page.unroute("**/api/**");
    await banner.waitFor({ state: "detached" });
    await go("overview", "Overview");
    await main().locator(".lamp:not(.bad)").waitFor();
  },

  async a_user_is_found_among_all() {
    await go("users", "Users");
    await main().locator("tbody tr").first().waitFor();
    const total = await main().locator(".head p").innerText();
    check(total.replace(/\D/g, "") === String(accounts + 1), `it says ${total}`);
    const wanted = `u${accounts - 1}`;
    await page.keyboard.press("/");
    let requests = 0;
    const count = (request) => (requests += request.url().includes("/accounts?"));
    page.on("request", count);
    const began = Date.now();
    await page.keyboard.type(wanted);
    await page.waitForFunction(() => document.querySelectorAll("main tbody tr").length === 1);
    const took = Date.now() - began;
    page.off("request", count);
    check(requests >= 1 && requests <= wanted.length, `${requests} requests for ${wanted.length} letters`);
    await page.keyboard.press("Enter");
    await heading(`${wanted}@${domain}`);
    await page.goBack();
    await heading("Users");
    check((await main().getByRole("searchbox").inputValue()) === wanted, "the search is forgotten on the way back");
    return `${took} ms among ${accounts}`;
  },

  async pages_are_turned_forward_and_back() {
    await go("users?search=", "Users");
    const rows = () => main().locator("tbody th").allInnerTexts();
    const turn = async (name) => {
      const before = (await rows())[0];
      await main().getByRole("button", { name }).click();
      await page.waitForFunction((before) => document.querySelector("main tbody th")?.innerText !== before, before);
      return rows();
    };
    await main().locator("tbody tr").nth(49).waitFor();
    const first = await rows();
    const second = await turn("Next");
    const third = await turn("Next");
    check(new Set([...first, ...second, ...third]).size === 150, "pages overlap");
    await page.reload();
    await main().locator("tbody tr").first().waitFor();
    check((await rows())[0] === third[0], "a reload lost the page");
    await turn("First");
    await turn("Next");
    check((await turn("Previous"))[0] === first[0], "the way back leads elsewhere");
  },

  async an_account_is_added_changed_and_deleted() {
    await go("users", "Users");
    await page.getByRole("button", { name: "Add user" }).click();
    await dialog().getByLabel("Name").fill("newcomer");
    await dialog().getByLabel("Password", { exact: true }).fill("a first one");
    await dialog().getByLabel("Password again").fill("another");
    await page.keyboard.press("Enter");
    await dialog().getByText("The two passwords differ.").waitFor();
    await dialog().getByLabel("Password again").fill("a first one");
    await page.keyboard.press("Enter");
    await heading(`newcomer@${domain}`);
    await notice("was added");
    await dialogsGone();

    await page.getByRole("button", { name: "Change password" }).click();
    await dialog().getByLabel("Password", { exact: true }).fill("a second one");
    await dialog().getByLabel("Password again").fill("a second one");
    await page.keyboard.press("Enter");
    await notice("password of newcomer");
    await dialogsGone();

    await page.getByRole("button", { name: "Disable" }).click();
    await dialog().getByRole("button", { name: "Disable" }).click();
    await main().locator(".badge", { hasText: "Disabled" }).waitFor();
    await dialogsGone();
    await page.getByRole("button", { name: "Enable" }).click();
    await dialog().getByRole("button", { name: "Enable" }).click();
    await main().locator("dd", { hasText: "Offline" }).waitFor();
    await dialogsGone();

    await page.getByRole("button", { name: "Delete" }).click();
    const send = dialog().getByRole("button", { name: "Delete permanently" });
    check(await send.isDisabled(), "it can be deleted without typing");
    await dialog().getByRole("textbox").fill("newcomer");
    await send.click();
    await heading("Users");
    await dialogsGone();
    // Adding somebody who is there already is refused inside the dialog.
    await page.getByRole("button", { name: "Add user" }).click();
    await dialog().getByLabel("Name").fill("u1");
    await dialog().getByLabel("Password", { exact: true }).fill("x1");
    await dialog().getByLabel("Password again").fill("x1");
    window.expected = 1;
    await page.keyboard.press("Enter");
    const text = await dialog().getByRole("alert").filter({ hasText: "u1" }).innerText();
    check(/already exists\.$/.test(text), `it says ${text}`);
    await page.keyboard.press("Escape");
    await dialogsGone();
  },

  async a_session_is_ended_by_keyboard() {
    const seen = await login("u7", "balcony");
    await go("sessions", "Sessions");
    await page.keyboard.press("/");
    await page.keyboard.type("u7@");
    await page.waitForURL(/search=u7/);
    await page.locator("main [aria-busy]").waitFor({ state: "detached" });
    const end = main().getByRole("button", { name: `End the session ${seen.jid}` });
    await end.waitFor();
    const row = await main().locator("tbody tr", { hasText: "/balcony" }).innerText();
    for (const part of ["127.0.0.1", "TLS"]) check(row.includes(part), `no ${part} in ${row}`);
    for (let i = 0; i < 60 && !(await end.evaluate((button) => button === document.activeElement)); i++) await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await dialog().waitFor();
    // The focus stays inside, and Escape gives it back.
    for (let i = 0; i < 6; i++) {
      await page.keyboard.press("Tab");
      const inside = await page.evaluate(() => document.querySelector("dialog[open]").contains(document.activeElement));
      check(inside, "the focus left the dialog");
    }
    await page.keyboard.press("Escape");
    // The focus is given back, in an event of its own.
    await page.waitForFunction((button) => button === document.activeElement, await end.elementHandle());
    check(!seen.ended, "it ended without being asked");
    await page.keyboard.press("Enter");
    await dialog().waitFor();
    await page.keyboard.press("Enter");
    await notice("was ended");
    await dialogsGone();
    await until("the end of the stream", () => seen.ended);
    await main().locator("tbody tr", { hasText: "/balcony" }).waitFor({ state: "detached" });
    await seen.xmpp.stop().catch(() => {});
  },

  async a_session_without_a_connection_is_detached() {
    const seen = await login("u10", "cell");
    const enabled = () => seen.xmpp.streamManagement?.enabled;
    await until("stream management", enabled);
    seen.xmpp.socket.socket?.destroy?.() ?? seen.xmpp.socket.destroy();
    await until("the loss", () => seen.ended);
    await go("sessions?search=u10%40", "Sessions");
    const row = main().locator("tbody tr", { hasText: "/cell" });
    await until("the word", async () => {
      await page.getByRole("button", { name: "Refresh" }).click();
      return (await row.innerText()).includes("detached");
    });
  },

  async a_roster_is_read_in_pages() {
    const seen = await login("u9", "garden");
    const items = Array.from({ length: 60 }, (_, n) => `c${String(n).padStart(2, "0")}@${domain}`);
    const answered = () => seen.stanzas.filter((stanza) => stanza.is("iq") && stanza.attrs.type === "result").length;
    for (const [n, jid] of items.entries()) {
      await seen.xmpp.write(`<iq type='set' id='r${n}'><query xmlns='jabber:iq:roster'><item jid='${jid}' name='Friend ${n}'><group>Friends</group></item></query></iq>`);
    }
    await until("the roster", () => answered() >= items.length);
    await seen.xmpp.stop();
    await go(`users/u9%40${domain}`, `u9@${domain}`);
    const section = main().getByRole("region", { name: "Contacts" });
    await section.getByRole("heading", { name: "60 contacts" }).waitFor();
    const rows = () => section.locator("tbody th").allInnerTexts();
    await page.screenshot({ path: path.join(folder, "roster.png") });
    check((await rows()).length === 50 && (await rows())[0].startsWith(items[0]), "the first page is another");
    await section.getByRole("button", { name: "Next" }).click();
    await section.getByText("51 to 60 of 60").waitFor();
    // A reload shows the same page; a search finds names and begins anew.
    await page.reload();
    await section.getByText("51 to 60 of 60").waitFor();
    await section.getByRole("searchbox").fill("friend 7");
    await section.getByRole("heading", { name: "1 contact found" }).waitFor();
    check((await rows())[0].startsWith(items[7]), `it finds ${await rows()}`);
    check((await section.locator("tbody td", { hasText: "none" }).count()) === 1, "the subscription is not shown");
  },

  async messages_arrive_at_clients() {
    const seen = await login("u8", "orchard");
    const body = (text) => until(text, () => seen.stanzas.some((stanza) => stanza.is("message") && stanza.getChildText("body") === text));
    await go("messages", "Messages");
    await main().getByLabel("Announcement", { exact: true }).last().fill("Back in five minutes.\nPlease <wait> & see.");
    await page.getByRole("button", { name: "Send announcement" }).click();
    await dialog().getByRole("button", { name: "Send" }).click();
    await body("Back in five minutes.\nPlease <wait> & see.");
    // Closing the dialog moves the focus and scrolls, and a click that is half done meanwhile is none.
    await dialogsGone();
    await main().locator("[aria-busy]").first().waitFor({ state: "detached" });
    await main().getByRole("region", { name: "Message of the day" }).getByRole("textbox").fill("Good morning.");
    await page.getByRole("button", { name: "Send to all" }).click();
    await main().getByRole("region", { name: "Message of the day" }).getByText("Set", { exact: true }).waitFor();
    await body("Good morning.");
    await page.getByRole("button", { name: "Edit without sending again" }).waitFor();
    await page.reload();
    await page.getByRole("button", { name: "Edit without sending again" }).waitFor();
    check((await main().getByRole("region", { name: "Message of the day" }).getByRole("textbox").inputValue()) === "Good morning.", "the text is not shown again");
    await main().getByRole("region", { name: "Message of the day" }).getByRole("button", { name: "Remove" }).click();
    await page.getByRole("button", { name: "Edit without sending again" }).waitFor({ state: "hidden" });
    await seen.xmpp.stop();
  },

  async a_command_is_a_form() {
    await go("commands", "Commands");
    await main().getByRole("searchbox").fill("roster");
    await main().getByRole("link", { name: "Get User Roster" }).click();
    await heading("Get User Roster");
    await page.getByRole("button", { name: "Show" }).click();
    await main().getByRole("alert").filter({ hasText: "is required" }).waitFor();
    await main().getByLabel("The addresses of the accounts").fill(`u1@${domain}\nu2@${domain}`);
    await page.getByRole("button", { name: "Show" }).click();
    await main().getByRole("region", { name: "Outcome" }).getByText(`u1@${domain}`).first().waitFor();
  },

  async a_room_is_created_changed_and_destroyed() {
    const room = `orchard@conference.${domain}`;
    await go("rooms", "Rooms");
    await page.getByRole("button", { name: "Create room" }).click();
    await dialog().getByLabel("Address").fill(room);
    await dialog().getByLabel("Owner").fill(`u1@${domain}`);
    await dialog().getByRole("button", { name: "Create" }).click();
    await heading(room);
    await main().getByText("Nobody is in the room").waitFor();
    await main().getByRole("row", { name: `u1@${domain}` }).getByRole("cell", { name: "Owner" }).waitFor();
    await page.getByRole("button", { name: "Add affiliation" }).click();
    await dialog().getByLabel("Address").fill(`u2@${domain}`);
    await dialog().getByRole("button", { name: "Save" }).click();
    await main().getByRole("row", { name: `u2@${domain}` }).getByRole("cell", { name: "Member" }).waitFor();
    await page.screenshot({ path: path.join(folder, "room.png") });
    await page.getByRole("button", { name: `Change the affiliation of u2@${domain}` }).click();
    await dialog().getByLabel("Affiliation").selectOption("outcast");
    await dialog().getByRole("button", { name: "Save" }).click();
    await main().getByRole("row", { name: `u2@${domain}` }).getByRole("cell", { name: "Banned" }).waitFor();
    await dialogsGone();
    await main().getByRole("link", { name: "All rooms" }).click();
    await main().getByRole("searchbox").fill("orch");
    await main().getByRole("link", { name: room }).click();
    await heading(room);
    await page.getByRole("button", { name: "Destroy" }).click();
    await dialog().getByRole("button", { name: "Destroy" }).click();
    await dialogsGone();
    await main().getByText(/No rooms yet|No matching rooms/).waitFor();
  },

  async a_node_is_created_and_deleted() {
    await go("pubsub", "PubSub");
    await main().getByText("0 items published in the last minute").waitFor();
    await page.getByRole("button", { name: "Create node" }).click();
    await dialog().getByLabel("Name").fill("musings & more");
    await dialog().getByLabel("Owner").fill(`u1@${domain}`);
    await dialog().getByRole("button", { name: "Create" }).click();
    await heading("musings & more");
    await main().getByText("No subscribers").waitFor();
    await main().getByRole("row", { name: `u1@${domain}` }).getByRole("cell", { name: "owner" }).waitFor();
    await main().getByRole("row", { name: "pubsub#access_model" }).getByRole("cell", { name: "open" }).waitFor();
    await dialogsGone();
    await page.screenshot({ path: path.join(folder, "pubsub.png") });
    await main().getByRole("link", { name: "All nodes" }).click();
    await main().getByRole("link", { name: "musings & more" }).click();
    await heading("musings & more");
    await page.getByRole("button", { name: "Delete" }).click();
    await dialog().getByRole("button", { name: "Delete" }).click();
    await dialogsGone();
    await main().getByText("No nodes yet").waitFor();
  },

  async a_token_is_shown_once() {
    await go("tokens", "API tokens");
    await page.getByRole("button", { name: "Add token" }).click();
    await dialog().waitFor();
    const reads = await dialog().locator("label", { hasText: "the log" }).allInnerTexts();
    check(reads.some((text) => /^read .*not the log$/.test(text)) && reads.some((text) => /^node Read the log/.test(text)), `the scopes say ${reads}`);
    await page.screenshot({ path: path.join(folder, "token-dialog.png") });
    await dialog().getByLabel("Name", { exact: true }).fill("prometheus");
    await dialog().getByRole("button", { name: "Add" }).click();
    const token = await dialog().locator(".secret code").innerText();
    const response = await page.request.get(`${base}/api/v1/nodes`, { headers: { authorization: `Bearer ${token}` } });
    check(response.status() === 200, `the token is answered with ${response.status()}`);
    await page.keyboard.press("Escape");
    await dialogsGone();
    check(!(await page.content()).includes(token), "the token is still there");
    await page.getByRole("button", { name: "Remove the token prometheus" }).click();
    await dialog().getByRole("button", { name: "Remove" }).click();
    await dialogsGone();
    await main().getByText("No tokens").waitFor();
  },

  async actions_are_in_the_audit_log() {
    await go("audit", "Audit");
    await main().locator("tbody tr").first().waitFor();
    const text = await main().locator("table").innerText();
    for (const part of ["sign-in", "add-user", "change-user-password", "delete-user", "end-user-session", "announce", `newcomer@${domain}`, admin, "127.0.0.1", "conflict"]) {
      check(text.includes(part), `the audit has no ${part}`);
    }
    check(!text.includes("a second one"), "the audit has a password");
    await go("log", "Log");
    await main().locator(".log li").first().waitFor();
    await main().getByRole("searchbox").fill("announce");
    await main().locator(".log li", { hasText: "announce" }).first().waitFor();
    await go("domains", "Domains and modules");
    await main().getByRole("region", { name: domain }).getByText("stream_management").waitFor();
    await page.getByRole("button", { name: "Reload configuration" }).click();
    await dialog().getByRole("button", { name: "Reload" }).click();
    await notice("configuration");
    await dialogsGone();
    await go("nodes", "Nodes");
    await main().locator("tbody tr").first().waitFor();
    check((await main().locator("tbody tr").count()) === 1, "there is more than one node");
  },

  async every_view_is_responsive_and_accessible() {
    const problems = [];
    for (const [name, width, height, colorScheme] of [["wide-light", 1280, 900, "light"], ["wide-dark", 1280, 900, "dark"], ["phone-light", 360, 740, "light"], ["phone-dark", 360, 740, "dark"]]) {
      const other = await open({ viewport: { width, height }, colorScheme, reducedMotion: "reduce" });
      await signIn(other);
      for (const [view, shown] of VIEWS) {
        await other.page.evaluate((view) => {
          location.hash = `#/${view}`;
        }, view);
        await other.page.locator(`.navigation a[aria-current=page][data-path=${view.split("/")[0]}]`).waitFor({ state: "attached" });
        await other.page.locator("main").locator(shown).first().waitFor({ state: "attached" });
        await other.page.locator("main [aria-busy]").first().waitFor({ state: "detached" });
        const found = await other.page.evaluate(facts);
        await other.page.screenshot({ path: path.join(folder, `${view.replace(/\W+/g, "-")}-${name}.png`), fullPage: true });
        const dark = colorScheme === "dark";
        if (found.content > found.window) problems.push(`${view} ${name} is ${found.content} wide: ${found.out}`);
        if (dark ? found.ground > 0.2 || found.ink < 0.7 : found.ground < 0.9 || found.ink > 0.3) problems.push(`${view} ${name}: colours`);
        if (found.headings !== 1) problems.push(`${view}: ${found.headings} first headings`);
        if (found.nameless.length) problems.push(`${view}: no name for ${found.nameless}`);
        if (found.small.length && name.startsWith("phone")) problems.push(`${view}: too small to touch: ${found.small}`);
      }
      problems.push(...other.complaints, ...other.foreignRequests);
      await other.context.close();
    }
    check(problems.length === 0, problems.slice(0, 8).join("; "));
  },

  async signing_out_ends_the_session() {
    const cookies = await page.context().cookies();
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByRole("button", { name: "Sign in" }).waitFor();
    await page.context().addCookies(cookies);
    const response = await page.request.get(`${base}/api/v1/session`);
    check(response.status() === 401, `the old cookie is answered with ${response.status()}`);
    await page.context().clearCookies();
    await page.goto(`${base}/#/users`);
    await page.getByRole("button", { name: "Sign in" }).waitFor();
  },

  async a_session_that_ends_elsewhere_leads_back_to_sign_in() {
    await signIn(window);
    await go("users", "Users");
    await main().locator("tbody tr").first().waitFor();
    await page.context().clearCookies();
    window.expected = 1;
    await main().getByRole("searchbox").fill("u5");
    await page.getByRole("button", { name: "Sign in" }).waitFor();
    check((await page.getByRole("alert").innerText()).endsWith("."), "it does not say why");
  },

  // Its answer is held back, as on a slow network.
  async a_submitted_form_waits_for_its_response() {
    await page.goto(`${base}/`);
    let answer = () => {};
    const held = new Promise((go) => (answer = go));
    let requests = 0;
    await page.route("**/api/v1/session", async (route) => {
      requests += 1;
      await held;
      await route.fulfill({ status: 503, contentType: "application/problem+json", body: '{"detail":"the node is busy"}' });
    });
    window.expected = 1;
    await page.getByLabel("Address").fill(admin);
    await page.getByLabel("Password").fill("first");
    await page.keyboard.press("Enter");
    await page.locator("form button[aria-busy=true]").waitFor();
    await page.keyboard.type("second");
    await page.keyboard.press("Enter");
    check((await page.getByLabel("Password").inputValue()) === "first", "a field changes while the form is sent");
    answer();
    await page.getByRole("alert").filter({ hasText: "busy" }).waitFor();
    check(requests === 1, `${requests} requests`);
    const focused = await page.getByLabel("Password").evaluate((field) => field === document.activeElement && !field.readOnly);
    check(focused, "the password cannot be typed again");
    await page.unroute("**/api/v1/session");
  },

  // The last one: it locks the account for this address.
  async wrong_passwords_are_limited() {
    const tries = 8;
    window.expected = tries + 1;
    await page.goto(`${base}/`);
    await page.getByLabel("Address").fill(admin);
    const statuses = [];
    for (let i = 0; i < tries; i++) {
      await page.getByLabel("Password").fill(`wrong ${i}`);
      // Once the field can be changed again, which `fill` waits for, the answer before is shown and the form may be sent.
      const answer = page.waitForResponse((response) => response.url().endsWith("/session"));
      await page.keyboard.press("Enter");
      statuses.push((await answer).status());
    }
    check(statuses[0] === 401 && statuses.at(-1) === 429, `the answers are ${statuses}`);
    const text = await page.getByRole("alert").filter({ hasText: "many" }).innerText();
    check(/^Too many .*\.$/.test(text), `it says ${text}`);
    await page.getByLabel("Password").fill(password);
    const answer = page.waitForResponse((response) => response.url().endsWith("/session"));
    await page.keyboard.press("Enter");
    check((await answer).status() === 429, "the right password goes round the limit");
  },
};

// Runs in the page.
function facts() {
  const root = document.documentElement;
  const light = (name) => {
    const [r, g, b] = getComputedStyle(document.body)[name].match(/[\d.]+/g).map(Number);
    return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
  };
  const shown = (element) => element.checkVisibility() && element.getClientRects().length > 0;
  const name = (element) => (element.labels?.length ? [...element.labels].map((label) => label.innerText).join(" ") : "") || element.getAttribute("aria-label") || element.innerText || "";
  const controls = [...document.querySelectorAll("button, a, input, select, textarea, [tabindex='0']")].filter(shown);
  const described = (element) => `${element.tagName.toLowerCase()} ${name(element)}`;
  const sticks = [...document.querySelectorAll("main *")].filter((element) => element.getBoundingClientRect().right > root.clientWidth + 1);
  return {
    window: root.clientWidth,
    content: root.scrollWidth,
    out: sticks.slice(0, 3).map((element) => `${element.tagName} ${element.className}`),
    ground: light("backgroundColor"),
    ink: light("color"),
    headings: document.querySelectorAll("h1").length,
    nameless: controls.filter((element) => !name(element).trim()).map(described),
    // WCAG 2.2, section 2.5.8.
    small: controls.filter((element) => element.matches("button, select, input:not([type=radio], [type=checkbox])") && element.getBoundingClientRect().height < 24).map(described),
  };
}

let failed = 0;
for (const [name, play] of Object.entries(scenarios)) {
  if (chosen.length && !chosen.includes(name)) continue;
  try {
    const note = await play();
    // A refusal stands in the browser's console some time after the page has shown it.
    await until("the refusals that were expected", () => window.expected <= 0);
    check(window.complaints.length === 0, `the console says ${window.complaints.slice(0, 3).join(" | ")}`);
    check(window.foreignRequests.length === 0, `it asks ${window.foreignRequests[0]}`);
    console.log(`ok ${name}${note ? ` (${note})` : ""}`);
  } catch (error) {
    failed += 1;
    const shown = await page.locator("[role=alert], .toast").allInnerTexts().catch(() => []);
    const said = [...shown, ...window.complaints].map((text) => text.trim()).filter(Boolean);
    console.log(`FAIL ${name} ${error.message.split("\n").slice(0, 3).join(" ")}; the page says: ${said.slice(0, 5).join(" | ") || "nothing"}`);
    await page.screenshot({ path: path.join(folder, `failed-${name}.png`) }).catch(() => {});
    // What is still open must not fail what comes next.
    await page.goto(`${base}/`).catch(() => {});
  }
  window.complaints = [];
  window.foreignRequests = [];
  window.expected = 0;
}
await browser.close();
process.exit(failed ? 1 : 0);
