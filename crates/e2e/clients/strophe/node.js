// Runs scenes.js: strophe.js in Node against a running server.
//
// usage: node.js [SCENE …]
//
//   XMPP_URL        the service: ws://, wss://, http:// or https:// with a path
//   XMPP_DOMAIN, XMPP_USER_A, XMPP_USER_B, XMPP_PASSWORD
//   XMPP_MODULES    folder with the node_modules of setup.sh
//   XMPP_DEBUG      if set, the streams are printed
//   NODE_EXTRA_CA_CERTS  node's own, for wss and https
//
// Prints `ok NAME` or `FAIL NAME reason` for each scene; the exit status is 1 if one failed. All connections use relay.js, which
// can interrupt them.

import path from "node:path";
import { pathToFileURL } from "node:url";

import { relay } from "../relay.js";
import { play } from "./scenes.js";
import { XMLHttpRequest } from "./xhr.js";

const { XMPP_URL, XMPP_DOMAIN, XMPP_USER_A, XMPP_USER_B, XMPP_PASSWORD, XMPP_MODULES, XMPP_DEBUG } = process.env;
if (!XMPP_URL || !XMPP_DOMAIN || !XMPP_USER_A || !XMPP_USER_B || !XMPP_PASSWORD || !XMPP_MODULES) {
  console.error("node.js: a setting is missing; see its top");
  process.exit(2);
}

globalThis.XMLHttpRequest = XMLHttpRequest;
const file = path.resolve(XMPP_MODULES, "node_modules/strophe.js/dist/strophe.node.esm.js");
const library = await import(pathToFileURL(file));
if (XMPP_DEBUG) {
  library.Strophe.log = (_, words) => console.error(words);
  Object.assign(library.Strophe.Connection.prototype, {
    rawInput: (words) => console.error("<<", words),
    rawOutput: (words) => console.error(">>", words),
  });
} else {
  library.Strophe.setLogLevel(library.Strophe.LogLevel.FATAL);
}

const service = new URL(XMPP_URL);
const between = await relay(service.hostname, service.port);
service.port = between.port;
const lines = await play(
  {
    library,
    service: service.href,
    transport: service.protocol.startsWith("ws") ? "websocket" : "bosh",
    domain: XMPP_DOMAIN,
    password: XMPP_PASSWORD,
    users: { a: XMPP_USER_A, b: XMPP_USER_B },
    cut: between.cut,
    silence: between.silence,
    restore: between.restore,
  },
  process.argv.slice(2),
  (line) => console.log(line),
);
// Goodbyes are under way; what strophe.js leaves behind (timers, a held request) must not keep the process.
setTimeout(() => process.exit(lines.every((line) => line.startsWith("ok")) && lines.length ? 0 : 1), 500);
