// The part of XMLHttpRequest that strophe.js uses (https://xhr.spec.whatwg.org), for Node, over persistent connections.
//
// Not implemented: synchronous requests, progress, uploads, cookies, redirects.
// Pitfall: strophe.js 5 reads responses from `responseXML` only.

import http from "node:http";
import https from "node:https";

export class XMLHttpRequest {
  readyState = 0;
  status = 0;
  responseText = "";
  responseXML = null;
  onreadystatechange = null;
  #headers = {};
  #asked = null;
  #target = null;
  #got = {};

  open(method, url) {
    this.#target = { method, url: new URL(url) };
    this.#state(1);
  }

  overrideMimeType() {}

  setRequestHeader(name, value) {
    this.#headers[name] = value;
  }

  getAllResponseHeaders() {
    return Object.entries(this.#got).map(([name, value]) => `${name}: ${value}\r\n`).join("");
  }

  send(body) {
    const { method, url } = this.#target;
    const library = url.protocol === "https:" ? https : http;
    const headers = { ...this.#headers, "Content-Length": Buffer.byteLength(body) };
    this.#asked = library.request(url, { method, headers }, (answer) => {
      this.#got = answer.headers;
      const parts = [];
      answer.on("data", (part) => parts.push(part));
      answer.on("aborted", () => this.#failed());
      answer.on("end", () => {
        if (!answer.complete) return;
        this.status = answer.statusCode;
        this.responseText = Buffer.concat(parts).toString("utf8");
        if (this.responseText.startsWith("<")) {
          this.responseXML = new DOMParser().parseFromString(this.responseText, "text/xml");
        }
        this.#state(4);
      });
    });
    this.#asked.on("error", () => this.#failed());
    this.#asked.end(body);
  }

  abort() {
    const asked = this.#asked;
    this.#asked = null;
    asked?.destroy();
    if (this.readyState > 0 && this.readyState < 4) this.#state(4);
    this.readyState = 0;
  }

  #failed() {
    if (!this.#asked || this.readyState === 4) return;
    this.#asked = null;
    this.#state(4);
  }

  #state(state) {
    this.readyState = state;
    this.onreadystatechange?.();
  }
}
