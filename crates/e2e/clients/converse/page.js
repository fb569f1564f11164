// A page with Converse.js for each user, in a Chromium of its own profile, over WebSocket; settings as in rooms.js.

import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import http from "node:http";
import path from "node:path";

import { relay } from "../relay.js";

export const env = process.env;
for (const name of ["CHAT_URL", "XMPP_DOMAIN", "XMPP_USER_A", "XMPP_USER_B", "XMPP_PASSWORD", "BROWSER_MODULES", "CONVERSE_MODULES"]) {
  if (!env[name]) {
    console.error(`page.js: ${name} is not set; see the top of rooms.js`);
    process.exit(2);
  }
}
const require = createRequire(path.join(path.resolve(env.BROWSER_MODULES), "package.json"));
const { chromium } = require("playwright-core");

export const TIMEOUT = 60_000;
const dist = path.join(env.CONVERSE_MODULES, "node_modules/converse.js/dist");
const types = { ".js": "text/javascript", ".css": "text/css", ".json": "application/json", ".wasm": "application/wasm" };
const site = http.createServer((request, response) => {
  const name = new URL(request.url, "http://localhost").pathname;
  if (!name.startsWith("/dist/") || name.includes("..")) {
    response.setHeader("content-type", "text/html; charset=utf-8");
    return response.end('<!doctype html><title>Converse</title><link rel="stylesheet" href="/dist/converse.min.css"><body class="converse-fullscreen">');
  }
  try {
    const file = readFileSync(path.join(dist, name.slice("/dist/".length)));
    response.setHeader("content-type", types[path.extname(name)] ?? "application/octet-stream");
    response.end(file);
  } catch {
    response.statusCode = 404;
    response.end();
  }
});
await new Promise((done) => site.listen(0, "127.0.0.1", done));
const origin = `http://127.0.0.1:${site.address().port}`;
const browser = await chromium.launch({
  executablePath: env.BROWSER ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu"],
});

// One user with a profile, a network and a page.
export class ConversePage {
  async start(name, nick) {
    this.nick = nick;
    this.jid = `${name}@${env.XMPP_DOMAIN}`;
    const node = new URL(env.CHAT_URL);
    this.network = await relay(node.hostname, Number(node.port));
    this.page = await (await browser.newContext()).newPage();
    this.page.setDefaultTimeout(TIMEOUT);
    this.faults = [];
    this.page.on("pageerror", (error) => this.faults.push(String(error)));
    await this.page.goto(`${origin}/`);
    await this.page.addScriptTag({ url: "/dist/converse.min.js", type: "module" });
    await this.page.waitForFunction(() => globalThis.converse);
    await this.page.evaluate(
      async ([jid, password, url]) => {
        const { converse } = globalThis;
        converse.plugins.add("probe", {
          initialize() {
            globalThis.api = this._converse.api;
          },
        });
        await converse.initialize({
          jid,
          password,
          authentication: "login",
          auto_login: true,
          auto_reconnect: true,
          allow_non_roster_messaging: true,
          assets_path: "/dist/",
          auto_join_on_invite: true,
          discover_connection_methods: false,
          websocket_url: url,
          view_mode: "fullscreen",
          whitelisted_plugins: ["probe"],
          loglevel: "error",
          i18n: "en",
        });
        await globalThis.api.waitUntil("statusInitialized");
      },
      [this.jid, env.XMPP_PASSWORD, `ws://127.0.0.1:${this.network.port}/ws`],
    );
    return this;
  }

  // Waits until an expression is true in the page.
  async waitFor(what, source) {
    const deadline = Date.now() + TIMEOUT;
    while (Date.now() < deadline) {
      if (await this.page.evaluate(source).catch(() => false)) return;
      await this.page.waitForTimeout(100);
    }
    throw new Error(`${this.nick}: no ${what}; ${this.faults.join("; ")}`);
  }
}

let failed = 0;
export async function scene(name, play) {
  try {
    await play();
    console.log(`ok ${name}`);
  } catch (error) {
    failed = 1;
    console.log(`FAIL ${name} ${error.message}`);
  }
}

// Closes everything, and says whether all scenes went well.
export async function finish(...users) {
  await browser.close();
  for (const user of users) user.network.close();
  site.close();
  console.log(failed ? "some scenes failed" : "all scenes done");
  process.exitCode = failed;
}
