// Drives the console of one of several nodes in Debian's Chromium: sessions and metrics of all nodes, and the end of a session of another
// node.
//
// usage: console_nodes.js FOLDER     a picture of each view goes to FOLDER
//
//   BROWSER_MODULES, BROWSER   as for look.js
//   CONSOLE_URL                http://127.0.0.1:… of node-1
//   CONSOLE_ADMIN, CONSOLE_PASSWORD
//
// The nodes are node-1 and node-2. `romeo` has a session on the first, and `juliet` on the second; nobody else is online.
// Prints `ok NAME` for each scenario, or fails with the reason.

import { createRequire } from "node:module";
import { mkdirSync } from "node:fs";
import path from "node:path";

const [folder] = process.argv.slice(2);
const need = (name) => process.env[name] ?? (console.error(`console_nodes.js: ${name} is not set`), process.exit(2));
if (!folder) need("FOLDER");
const { chromium } = createRequire(path.join(path.resolve(need("BROWSER_MODULES")), "package.json"))("playwright-core");
const base = need("CONSOLE_URL");
mkdirSync(folder, { recursive: true });

const browser = await chromium.launch({ executablePath: process.env.BROWSER ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
page.setDefaultTimeout(60_000);
const complaints = [];
page.on("pageerror", (error) => complaints.push(error.message));

const check = (condition, reason) => {
  if (!condition) throw new Error(reason);
};
const main = () => page.locator("main");
const row = (text) => main().locator("tbody tr", { hasText: text });
async function go(view, title) {
  await page.evaluate((view) => {
    location.hash = `#/${view}`;
  }, view);
  await page.waitForFunction((title) => document.querySelector("main h1")?.innerText === title, title);
}
const number = (text) => Number(text.replace(/\D/g, ""));
/// Waits until the chart shows this value.
const figure = (title, wanted) =>
  page.waitForFunction(
    ([title, wanted]) => [...document.querySelectorAll("main section, main figure, main [role=region], main [aria-label]")].some((part) => part.getAttribute("aria-label") === title && part.querySelector("dd")?.innerText.replace(/\D/g, "") === String(wanted)),
    [title, wanted],
  );

const scenarios = {
  async an_administrator_signs_in() {
    await page.goto(`${base}/`);
    await page.getByLabel("Address").fill(need("CONSOLE_ADMIN"));
    await page.getByLabel("Password").fill(need("CONSOLE_PASSWORD"));
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.locator("nav.navigation").waitFor({ state: "attached" });
  },

  async the_table_of_nodes_has_both_and_their_sum() {
    await go("nodes", "Nodes");
    await row("All nodes").waitFor();
    check((await main().locator("tbody tr").count()) === 3, "there are not two nodes and their sum");
    const sessions = (name) => row(name).locator("td").nth(4).innerText().then(number);
    const [first, second, all] = [await sessions("node-1"), await sessions("node-2"), await sessions("All nodes")];
    check(first === 1 && second === 1 && all === 2, `the sessions are ${first}, ${second} and ${all}`);
    check((await row("node-1").innerText()).includes("(this one)"), "it does not say which node this one is");
  },

  async metrics_are_sums_or_those_of_one_node() {
    await go("overview", "Overview");
    await figure("Users online", 2);
    await page.getByLabel("Node", { exact: true }).selectOption("node-2");
    await figure("Users online", 1);
    await page.getByLabel("Node", { exact: true }).selectOption("");
    await figure("Users online", 2);
  },

  async sessions_of_both_nodes_are_listed() {
    await go("sessions", "Sessions");
    await row("juliet@").waitFor();
    for (const [user, node] of [["romeo@", "node-1"], ["juliet@", "node-2"]]) {
      const text = await row(user).innerText();
      check(text.includes(node), `no ${node} in ${text}`);
    }
    check(number(await main().locator(".head p").innerText()) === 2, "the total is not that of both nodes");
    await page.getByLabel("Node", { exact: true }).selectOption("node-1");
    await row("juliet@").waitFor({ state: "detached" });
    await row("romeo@").waitFor();
    await page.getByLabel("Node", { exact: true }).selectOption("");
  },

  async a_session_of_the_other_node_is_found_and_ended() {
    await main().getByRole("searchbox").fill("juliet@");
    await row("romeo@").waitFor({ state: "detached" });
    await row("juliet@").getByRole("button", { name: /^End the session juliet@/ }).click();
    await page.locator("dialog[open]").getByRole("button", { name: /^End/ }).click();
    await page.locator(".toast", { hasText: "was ended" }).first().waitFor();
    await row("juliet@").waitFor({ state: "detached" });
  },
};

for (const [name, play] of Object.entries(scenarios)) {
  try {
    await play();
    check(complaints.length === 0, complaints.join("; "));
    await page.screenshot({ path: path.join(folder, `${name}.png`) });
    console.log(`ok ${name}`);
  } catch (error) {
    await page.screenshot({ path: path.join(folder, `failed-${name}.png`) }).catch(() => {});
    const shown = await main().innerText().catch(() => "");
    console.log(`FAIL ${name} ${error.message.split("\n").slice(0, 3).join(" ")}; the page says: ${shown.slice(0, 800)}`);
    await browser.close();
    process.exit(1);
  }
}
await browser.close();
