// Scenarios of the page /chat in Debian's Chromium, over WebSocket and over BOSH.
//
// usage: chat.js FOLDER     pictures go to FOLDER; one line for each scene to stdout: `ok NAME` or `FAIL NAME reason`
//
//   CHAT_URL         a listener of the node, such as http://127.0.0.1:5280 or https://127.0.0.1:5281, whose certificate the
//                    browser need not know; over https it speaks HTTP/2
//   XMPP_DOMAIN, XMPP_USER_A, XMPP_USER_B, XMPP_PASSWORD
//   BROWSER_MODULES  the folder whose node_modules setup.sh filled
//   BROWSER          the program; absent: chromium
//
// Elements are found by role and label, as a screen reader finds them. Each scene continues where the
// previous one ended.
//
// Pitfalls: all traffic goes through relay.js, whose port is the page's origin; a password on an http page is safe there, because it
// stays on the machine. Every message in the browser's console is an error, except those of connections that the scene cuts.

import { createRequire } from "node:module";
import { mkdirSync } from "node:fs";
import path from "node:path";

import { relay } from "../relay.js";

const [folder] = process.argv.slice(2);
const { CHAT_URL, XMPP_DOMAIN, XMPP_USER_A, XMPP_USER_B, XMPP_PASSWORD, BROWSER_MODULES, BROWSER } = process.env;
if (!folder || !CHAT_URL || !XMPP_DOMAIN || !XMPP_USER_A || !XMPP_USER_B || !XMPP_PASSWORD || !BROWSER_MODULES) {
  console.error("chat.js: a setting is missing; see its top");
  process.exit(2);
}
const require = createRequire(path.join(path.resolve(BROWSER_MODULES), "package.json"));
const { chromium } = require("playwright-core");

// Only a failure takes this long.
const TIMEOUT = 120_000;
const node = new URL(CHAT_URL);
const network = await relay(node.hostname, Number(node.port));
const url = `${node.protocol}//127.0.0.1:${network.port}/chat`;
const a = `${XMPP_USER_A}@${XMPP_DOMAIN}`;
const b = `${XMPP_USER_B}@${XMPP_DOMAIN}`;
mkdirSync(folder, { recursive: true });

const browser = await chromium.launch({
  executablePath: BROWSER ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu"],
});

class Failure extends Error {}

function check(condition, reason) {
  if (!condition) throw new Failure(reason);
}

const complaints = [];
const foreign = [];
let bytes = 0;

// A tab. `context` is a browser of somebody: tabs of one share nothing here but that.
async function tab(context) {
  const page = await context.newPage();
  page.setDefaultTimeout(TIMEOUT);
  // A lost connection is a complaint of the browser's, and no mistake of the page.
  const lost = /WebSocket connection to|Failed to load resource|ERR_|request id|Websocket|HTTP|request errored/;
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type()) && !lost.test(message.text())) complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("request", (request) => {
    if (new URL(request.url()).port !== String(network.port)) foreign.push(request.url());
  });
  page.on("response", async (response) => {
    const size = await response.request().sizes().catch(() => null);
    bytes += size?.responseBodySize ?? 0;
  });
  await page.goto(url, { waitUntil: "load" });
  return page;
}

const person = (options = {}) =>
  browser.newContext({ viewport: { width: 1100, height: 740 }, ignoreHTTPSErrors: true, ...options });

async function submitLogin(page, address, password) {
  await page.getByLabel("Address", { exact: true }).first().fill(address);
  await page.getByLabel("Password").fill(password);
  await page.getByLabel("Password").press("Enter");
}

const online = (page, transport) =>
  page.waitForSelector(`html[data-connection=online]${transport ? `[data-transport=${transport}]` : ""}`, { state: "attached" });

const session = (page) => page.evaluate(() => document.documentElement.dataset.session.split(" "));

async function signIn(page, address, transport) {
  await submitLogin(page, address, XMPP_PASSWORD);
  await online(page, transport);
}

const entry = (page, jid) => page.locator(`#contacts a[data-jid="${jid}"]`);

async function open(page, jid) {
  await entry(page, jid).click();
  await page.getByRole("textbox", { name: "Message" }).waitFor();
}

async function send(page, text) {
  await page.getByRole("textbox", { name: "Message" }).fill(text);
  await page.getByRole("textbox", { name: "Message" }).press("Enter");
}

const bodies = (page) => page.locator("#log .message p").allInnerTexts();

// Waits for a message that is there, once.
async function receives(page, text) {
  await page.locator("#log .message p", { hasText: text }).first().waitFor();
  const all = await bodies(page);
  check(all.filter((one) => one === text).length === 1, `'${text}' is there ${all.filter((one) => one === text).length} times`);
}

const shot = (page, name) => page.screenshot({ path: path.join(folder, `${name}.png`) });

// What is wider than the window, and whether day and night are what they should be.
async function fits(page, name, dark) {
  const seen = await page.evaluate(() => {
    const light = (color) => {
      const [r, g, b] = color.match(/[\d.]+/g).map(Number);
      return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
    };
    const style = getComputedStyle(document.documentElement);
    return {
      content: document.documentElement.scrollWidth,
      window: document.documentElement.clientWidth,
      ground: light(style.backgroundColor),
      ink: light(style.color),
    };
  });
  check(seen.content <= seen.window, `${name} is ${seen.content} pixels wide in ${seen.window}`);
  const good = dark ? seen.ground < 0.2 && seen.ink > 0.7 : seen.ground > 0.8 && seen.ink < 0.3;
  check(good, `${name}: ground ${seen.ground}, ink ${seen.ink}`);
  await shot(page, name);
}

const romeo = await person();
const juliet = await person({ viewport: { width: 390, height: 780 }, colorScheme: "dark", isMobile: true, hasTouch: true });
let one, two, other;

const scenes = [
  async function the_page_is_small_and_strict() {
    one = await tab(romeo);
    const without = await one.getByText("The chat is not part of this build").count();
    check(!without, "the server was built without strophe.js: run chat/fetch.sh and build it again");
    await one.getByRole("heading", { name: "Throng chat" }).waitFor();
    await fits(one, "entry", false);
    check(bytes > 20_000 && bytes < 100_000, `the page has ${bytes} bytes`);
    const answer = await one.request.get(`${url}/`);
    const policy = answer.headers()["content-security-policy"];
    check(policy?.includes("default-src 'none'") && !policy.includes("unsafe"), `the policy is ${policy}`);
  },

  async function a_wrong_password_is_reported() {
    await submitLogin(one, XMPP_USER_A, "not the password");
    await one.getByRole("alert").filter({ hasText: "wrong" }).waitFor();
    check((await one.getByLabel("Password").inputValue()) === "", "the wrong password is still there");
    await shot(one, "wrong");
  },

  async function an_unreachable_server_and_a_missing_network_are_distinguished() {
    const page = await tab(romeo);
    network.cut();
    await submitLogin(page, a, XMPP_PASSWORD); // The whole address: the page may have been cut off before it learned its domain.
    await page.getByText(/^The server cannot be reached\. (Next attempt in \d+ s\.|Trying again …)$/).waitFor();
    await shot(page, "unreached");
    await romeo.setOffline(true);
    await page.getByText("There is no network.").waitFor();
    await romeo.setOffline(false);
    await page.getByText("The server cannot be reached.").waitFor();
    // It goes on by itself.
    network.restore();
    await online(page);
    check(await page.locator("#bar").isHidden(), "the line is still there");
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByRole("button", { name: "Sign in" }).waitFor();
    await page.close();
  },

  async function two_people_sign_in() {
    // The name alone: the page knows the domain.
    await signIn(one, XMPP_USER_A, "websocket");
    two = await tab(juliet);
    await signIn(two, b, "websocket");
    await one.getByText("No contacts yet").waitFor();
  },

  async function a_contact_is_added_and_answers() {
    await one.getByRole("button", { name: "Add a contact" }).click();
    await one.getByRole("dialog").getByLabel("Address").fill("no address/at all");
    await one.getByRole("dialog").getByRole("button", { name: "Add" }).click();
    await one.getByRole("alert").filter({ hasText: "not a valid address" }).waitFor();
    await one.getByRole("dialog").getByLabel("Address").fill(b);
    await one.getByRole("dialog").getByLabel("Name").fill("Juliet Capulet");
    await shot(one, "add");
    await one.getByRole("dialog").getByRole("button", { name: "Add" }).click();
    await two.getByText("wants to add you").waitFor();
    await fits(two, "request", true);
    await two.getByRole("button", { name: `Accept ${a}` }).click();
    // RFC 6121 section 3.4: who asked has approved in advance, and is not asked back.
    await one.locator(`#contacts a[data-jid="${b}"]:not(.offline)`).waitFor();
    await two.locator(`#contacts a[data-jid="${a}"]:not(.offline)`).waitFor();
    check((await one.getByRole("button", { name: /^Accept/ }).count()) === 0, "who asked is asked back");
    await two.getByText("wants to add you").waitFor({ state: "detached" });
    // Presence of a kind.
    await two.getByLabel("My presence").selectOption("dnd");
    await one.locator("#peer-state", { hasText: "do not disturb" }).waitFor();
  },

  async function they_chat_with_unread_marks() {
    await open(one, b);
    await send(one, "But soft, what light through yonder window breaks?");
    await send(one, "It is https://example.org/east, and <b>Juliet</b> is the sun. 你好 & Grüße");
    await entry(two, a).getByText("2", { exact: false }).first().waitFor();
    await two.waitForFunction(() => document.title.startsWith("(2) "));
    await fits(two, "unread", true);
    await open(two, a);
    await two.waitForFunction(() => !document.title.startsWith("("));
    await receives(two, "It is https://example.org/east, and <b>Juliet</b> is the sun. 你好 & Grüße");
    check((await two.locator("#log a").getAttribute("href")) === "https://example.org/east", "the link is another");
    check((await two.locator("#log b").count()) === 0, "somebody else's markup is markup");
    await send(two, "Ay me!");
    await receives(one, "Ay me!");
    await fits(one, "talk", false);
    await fits(two, "talk-phone", true);
  },

  async function a_second_tab_sees_the_same() {
    other = await tab(romeo);
    await signIn(other, a, "websocket");
    const [, mine] = await session(one);
    const [, its] = await session(other);
    check(mine !== its, `both tabs are ${mine}`);
    await send(one, "written in the first tab");
    await entry(other, b).waitFor();
    await open(other, b);
    await receives(other, "written in the first tab");
    await send(two, "for both tabs");
    await receives(one, "for both tabs");
    await receives(other, "for both tabs");
    await other.getByRole("button", { name: "Sign out" }).click();
    await other.getByRole("button", { name: "Sign in" }).waitFor();
    check((await other.evaluate(() => sessionStorage.length)) === 0, "something is left after signing out");
    await other.close();
  },

  async function a_reload_resumes_the_stream() {
    const before = await session(one);
    await send(two, "before the reload");
    await receives(one, "before the reload");
    await one.reload();
    await online(one, "websocket");
    const after = await session(one);
    check(after[0] === "resumed" && after[1] === before[1], `${before} became ${after}`);
    await receives(one, "Ay me!");
    await one.locator(`#contacts a[data-jid="${b}"]:not(.offline)`).waitFor();
    await send(two, "after the reload");
    await receives(one, "after the reload");
    check((await two.locator("#peer-state").innerText()).includes("available"), "the friend saw the reload");
  },

  async function a_lost_network_comes_back() {
    network.cut();
    await one.getByText("The server cannot be reached.").waitFor();
    await send(one, "written without a network");
    await one.locator(".message[data-state=waiting]").waitFor();
    await shot(one, "lost");
    network.restore();
    await one.getByRole("button", { name: "Try now" }).click({ timeout: 2_000 }).catch(() => {});
    await online(one);
    await online(two);
    await receives(two, "written without a network");
    await one.locator(".message[data-state=waiting]").waitFor({ state: "detached" });
    check((await session(one))[0] === "resumed", "the stream was not resumed");
    await send(two, "I hear you");
    await receives(one, "I hear you");
  },

  async function a_silent_network_is_noticed() {
    network.silence();
    // The system says that the network is gone; the socket does not.
    await romeo.setOffline(true);
    await one.getByText("There is no network.").waitFor();
    await send(one, "into the silence");
    network.restore();
    await romeo.setOffline(false);
    await online(one);
    await online(two);
    await receives(two, "into the silence");
  },

  async function a_duplicated_tab_gets_a_separate_session() {
    const kept = await one.evaluate(() => JSON.stringify({ ...sessionStorage }));
    const copy = await romeo.newPage();
    await copy.addInitScript((kept) => {
      if (!sessionStorage.length) for (const [key, value] of Object.entries(JSON.parse(kept))) sessionStorage.setItem(key, value);
    }, kept);
    await copy.goto(url);
    await online(copy);
    const [how, its] = await session(copy);
    check(how === "new" && its !== (await session(one))[1], `the copy is ${how} ${its}`);
    await send(two, "for the tab and its copy");
    await receives(one, "for the tab and its copy");
    await open(copy, b);
    await receives(copy, "for the tab and its copy");
    await copy.getByRole("button", { name: "Sign out" }).click();
    await copy.close();
  },

  async function the_keyboard_is_enough() {
    await one.keyboard.press("Escape");
    await one.locator("#no-conversation").waitFor();
    await entry(one, b).focus();
    await one.keyboard.press("Enter");
    await one.waitForFunction(() => document.activeElement.id === "text");
    await one.keyboard.type("first line");
    await one.keyboard.press("Shift+Enter");
    await one.keyboard.type("second line");
    await one.keyboard.press("Enter");
    await receives(two, "first line\nsecond line");
    const nameless = await one.evaluate(() =>
      [...document.querySelectorAll("button, a, input, select, textarea")]
        .filter((one) => one.checkVisibility())
        .filter((one) => !(one.ariaLabel || one.innerText.trim() || one.labels?.length))
        .map((one) => one.outerHTML),
    );
    check(nameless.length === 0, `without a name: ${nameless}`);
  },

  async function signing_out_ends_the_session() {
    await one.emulateMedia({ colorScheme: "dark" });
    await fits(one, "talk-dark", true);
    await one.emulateMedia({ colorScheme: "light" });
    await one.getByRole("button", { name: "Sign out" }).click();
    await one.getByRole("button", { name: "Sign in" }).waitFor();
    await two.locator("#peer-state", { hasText: "offline" }).waitFor();
    await one.reload();
    await one.getByRole("button", { name: "Sign in" }).waitFor();
  },

  async function bosh_is_used_without_websocket() {
    network.plain(true);
    if (node.protocol === "https:") {
      // Nobody in between sees what is asked for, so the browser itself has to refuse.
      await one.addInitScript(() => {
        globalThis.WebSocket = class {
          constructor() {
            setTimeout(() => this.onerror?.(new Event("error")));
          }
          close() {}
        };
      });
      await one.reload();
    }
    await signIn(one, a, "bosh");
    await two.locator("#peer-state", { hasText: "available" }).waitFor();
    await open(one, b);
    await send(one, "by BOSH");
    await receives(two, "by BOSH");
    await send(two, "to BOSH");
    await receives(one, "to BOSH");
  },

  async function a_reload_resumes_the_bosh_session() {
    const before = await session(one);
    await one.reload();
    await online(one, "bosh");
    const after = await session(one);
    check(after[0] === "resumed" && after[1] === before[1], `${before} became ${after}`);
    await receives(one, "to BOSH");
    await send(two, "after the reload over BOSH");
    await receives(one, "after the reload over BOSH");
  },

  async function stanzas_in_flight_during_a_reload_are_not_lost() {
    // From now on no answer reaches the page, as if it were gone already.
    const bosh = "**/bosh";
    let answered = () => {};
    const swallowed = new Promise((resolve) => (answered = resolve));
    await one.route(bosh, async (route) => {
      const answer = await route.fetch().catch(() => null);
      const text = await answer?.text().catch(() => "");
      if (text?.includes("into the void")) answered();
      else if (answer) await route.fulfill({ response: answer }).catch(() => {});
    });
    // The request that is held now was sent before; the next one is not.
    await send(one, "a request of its own");
    await receives(two, "a request of its own");
    await send(two, "into the void");
    await swallowed;
    await one.unroute(bosh);
    await one.reload();
    await online(one, "bosh");
    await receives(one, "into the void");
    check((await session(one))[0] === "resumed", "the session is another");
  },

  async function bosh_survives_a_short_interruption() {
    network.cut();
    await one.waitForSelector("html[data-connection=connecting]", { state: "attached" });
    setTimeout(() => network.restore(), 1_000);
    await online(one, "bosh");
    await online(two);
    await send(one, "BOSH again");
    await receives(two, "BOSH again");
    check((await session(one))[0] === "resumed", "the session is another");
  },

  async function an_expired_bosh_session_is_replaced() {
    await one.evaluate(() => {
      const kept = JSON.parse(sessionStorage.getItem("strophe-bosh-session"));
      addEventListener("pagehide", () =>
        sessionStorage.setItem("strophe-bosh-session", JSON.stringify({ ...kept, sid: "long-forgotten" })),
      );
    });
    await one.reload();
    await one.waitForSelector('html[data-session^="new"]', { state: "attached" });
    await online(one, "bosh");
    await send(two, "to the new session");
    await receives(one, "to the new session");
  },

  async function a_removed_contact_disappears_for_both() {
    network.plain(false);
    await one.getByRole("button", { name: "Remove this contact" }).click();
    await one.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
    await one.locator("#peer-state", { hasText: "not in your contacts" }).waitFor();
    await two.locator("#peer-state", { hasText: "not in your contacts" }).waitFor();
  },

  async function the_browser_reports_no_errors() {
    check(complaints.length === 0, complaints.join("; "));
    check(foreign.length === 0, `asked elsewhere: ${foreign}`);
  },
];

let failed = 0;
for (const scene of scenes) {
  try {
    await scene();
    console.log(`ok ${scene.name}`);
  } catch (error) {
    failed = 1;
    console.log(`FAIL ${scene.name} ${error instanceof Failure ? error.message : error.stack}`);
    for (const [name, page] of Object.entries({ one, two })) await page?.screenshot({ path: path.join(folder, `failed-${name}.png`) }).catch(() => {});
    // What follows leans on it.
    break;
  }
}
await browser.close();
network.close();
process.exitCode = failed;
