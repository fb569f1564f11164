// strophe.js over WebSocket and over BOSH, and xmpp.js over WebSocket, in Debian's Chromium: runs strophe/scenes.js and
// xmppjs/scenes.js in a page.
//
// usage: libraries.js      prints one line for each scene: `ok LIBRARY TRANSPORT NAME` or `FAIL LIBRARY TRANSPORT NAME reason`
//
//   CHAT_URL         the node's HTTP listener; CHAT_URL_TLS: the one with TLS, whose certificate is not verified
//   XMPP_DOMAIN, XMPP_USER_A, XMPP_USER_B, XMPP_PASSWORD
//   BROWSER_MODULES, STROPHE_MODULES, XMPPJS_MODULES   folders with the node_modules of setup.sh
//   BROWSER          browser; default: chromium
//
// The page is served by this script, so all its requests are cross-origin (CORS) for the node, as for most web clients.
// Pitfall: an http page may open wss, but an https page may not open ws.

import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import http from "node:http";
import path from "node:path";
import { fileURLToPath } from "node:url";

import { relay } from "../relay.js";

const env = process.env;
const needed = ["CHAT_URL", "CHAT_URL_TLS", "XMPP_DOMAIN", "XMPP_USER_A", "XMPP_USER_B", "XMPP_PASSWORD"];
for (const name of [...needed, "BROWSER_MODULES", "STROPHE_MODULES", "XMPPJS_MODULES"]) {
  if (!env[name]) {
    console.error(`libraries.js: ${name} is not set; see its top`);
    process.exit(2);
  }
}
const require = createRequire(path.join(path.resolve(env.BROWSER_MODULES), "package.json"));
const { chromium } = require("playwright-core");

const here = path.dirname(fileURLToPath(import.meta.url));
const files = {
  "/strophe/library.js": path.join(env.STROPHE_MODULES, "node_modules/strophe.js/dist/strophe.umd.min.js"),
  "/strophe/scenes.js": path.join(here, "../strophe/scenes.js"),
  "/xmppjs/library.js": path.join(env.XMPPJS_MODULES, "node_modules/@xmpp/client/dist/xmpp.min.js"),
  "/xmppjs/scenes.js": path.join(here, "../xmppjs/scenes.js"),
};
const site = http.createServer((request, response) => {
  const file = files[request.url];
  response.setHeader("content-type", `${file ? "text/javascript" : "text/html"}; charset=utf-8`);
  response.end(file ? readFileSync(file) : "<!doctype html><title>A web client</title>");
});
await new Promise((done) => site.listen(0, "127.0.0.1", done));
const origin = `http://127.0.0.1:${site.address().port}`;

const browser = await chromium.launch({
  executablePath: env.BROWSER ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu"],
});
let failed = 0;

// Plays the scenes of one library against one address of the node.
async function play(library, base, scheme, where) {
  const node = new URL(base);
  const network = await relay(node.hostname, Number(node.port));
  const context = await browser.newContext({ ignoreHTTPSErrors: true });
  const page = await context.newPage();
  await page.exposeFunction("cut", network.cut);
  await page.exposeFunction("restore", network.restore);
  await page.goto(`${origin}/`);
  await page.addScriptTag({ url: `/${library}/library.js` });
  const world = {
    service: `${scheme}://127.0.0.1:${network.port}${where}`,
    transport: where === "/ws" ? "websocket" : "bosh",
    domain: env.XMPP_DOMAIN,
    password: env.XMPP_PASSWORD,
    users: { a: env.XMPP_USER_A, b: env.XMPP_USER_B },
  };
  const lines = await page.evaluate(
    async ([library, world]) => {
      const { play } = await import(`/${library}/scenes.js`);
      const { Strophe, $iq, $msg, $pres, XMPP } = globalThis;
      const strophe = () => ({ Strophe, $iq, $msg, $pres, MemoryStorageBackend: Strophe.MemoryStorageBackend });
      Strophe?.setLogLevel(Strophe.LogLevel.FATAL);
      const { cut, restore } = globalThis;
      return play({ ...world, library: library === "strophe" ? strophe() : XMPP, cut, restore });
    },
    [library, world],
  );
  for (const line of lines) {
    const [verdict, ...rest] = line.split(" ");
    console.log([verdict, library, world.transport, ...rest].join(" "));
    if (verdict !== "ok") failed = 1;
  }
  await context.close();
  network.close();
}

await play("strophe", env.CHAT_URL, "ws", "/ws");
await play("strophe", env.CHAT_URL, "http", "/bosh");
await play("xmppjs", env.CHAT_URL_TLS, "wss", "/ws");
await browser.close();
site.close();
console.log(failed ? "some scenes failed" : "all libraries done");
process.exitCode = failed;
