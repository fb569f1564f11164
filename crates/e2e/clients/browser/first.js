// The first chat of README.md: two users sign in to the web chat, one adds the other and sends a message.
//
// usage: first.js ADDRESS ADDRESS      prints `ok`; on failure the reason to stderr, exit status 1
//
//   CHAT_URL         the page, such as http://127.0.0.1:5280/chat
//   CHAT_PASSWORD    the password of both
//   BROWSER_MODULES  folder with the node_modules of setup.sh
//   BROWSER          browser; default: chromium
//
// chat.js tests the other functions of the page. Pitfall: as in README.md, both users are tabs of one browser.

import { createRequire } from "node:module";
import path from "node:path";

const [alice, bob] = process.argv.slice(2);
const { CHAT_URL, CHAT_PASSWORD, BROWSER_MODULES, BROWSER } = process.env;
if (!alice || !bob || !CHAT_URL || !CHAT_PASSWORD || !BROWSER_MODULES) {
  console.error("first.js: a setting is missing; see its top");
  process.exit(2);
}
const require = createRequire(path.join(path.resolve(BROWSER_MODULES), "package.json"));
const { chromium } = require("playwright-core");

const browser = await chromium.launch({
  executablePath: BROWSER ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu"],
});
const context = await browser.newContext();

async function signIn(address) {
  const page = await context.newPage();
  await page.goto(CHAT_URL, { waitUntil: "load" });
  if (await page.getByText("The chat is not part of this build").count()) throw new Error("the page is not in this build");
  await page.getByLabel("Address", { exact: true }).first().fill(address);
  await page.getByLabel("Password").fill(CHAT_PASSWORD);
  await page.getByLabel("Password").press("Enter");
  await page.waitForSelector("html[data-connection=online]", { state: "attached" });
  return page;
}

async function open(page, address) {
  await page.locator(`#contacts a[data-jid="${address}"]`).click();
  await page.getByRole("textbox", { name: "Message" }).waitFor();
}

let code = 0;
try {
  const first = await signIn(alice);
  const second = await signIn(bob);
  await second.getByRole("button", { name: "Add a contact" }).click();
  await second.getByRole("dialog").getByLabel("Address").fill(alice);
  await second.getByRole("dialog").getByRole("button", { name: "Add" }).click();
  await first.getByRole("button", { name: `Accept ${bob}` }).click();
  await second.locator(`#contacts a[data-jid="${alice}"]:not(.offline)`).waitFor();
  await open(second, alice);
  await second.getByRole("textbox", { name: "Message" }).fill("Hello!");
  await second.getByRole("textbox", { name: "Message" }).press("Enter");
  await open(first, bob);
  await first.locator("#log .message p", { hasText: "Hello!" }).waitFor();
  console.log("ok");
} catch (error) {
  console.error(`first.js: ${error.message}`);
  code = 1;
}
await browser.close();
process.exit(code);
