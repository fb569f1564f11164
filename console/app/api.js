//! Requests to /api/v1. The session is a cookie that scripts cannot read; the CSRF token stands in memory and goes along
//! with everything that changes something.
//!
//! The trap: the browser reports each failed request in its console, also one that was expected. So the page asks for the
//! session at its start only if it remembers that somebody signed in here.

import { sentence } from "./format.js";

const BASE = "/api/v1";
const REMEMBERED = "throng-signed-in";
/// Milliseconds that an answer may take.
const PATIENCE = 20_000;

/// Milliseconds between two attempts to reach a node that does not answer.
const AGAIN = 5_000;

let csrf = "";
let ended = () => {};
let reach = () => {};
/// When the node last answered, in milliseconds since 1970, and whether it does.
let last = Date.now();
let down = false;

/// What the server refused, or why it could not be asked; `message` is one sentence for people.
export class ApiError extends Error {
  constructor(status, message, condition = "") {
    super(message);
    this.status = status;
    this.condition = condition;
  }
}

/// Calls `f` when the session is over.
export const onEnd = (f) => {
  ended = f;
};

/// Calls `f` when the node does not answer any more, with the time of its last answer in seconds since 1970, and without a time
/// when it answers again.
export const onReach = (f) => {
  reach = f;
};

function answered() {
  last = Date.now();
  if (!down) return;
  down = false;
  reach();
}

/// Views that do not ask by themselves would stay as they are, so the node is asked here until it answers.
function silent() {
  if (down) return;
  down = true;
  reach(last / 1000);
  const ask = () => {
    if (down && csrf && !document.hidden) get("/session").catch(() => {});
    if (down) setTimeout(ask, AGAIN);
  };
  setTimeout(ask, AGAIN);
}

function remember(on) {
  try {
    if (on) localStorage.setItem(REMEMBERED, "1");
    else localStorage.removeItem(REMEMBERED);
  } catch {
    // Then the next load of the page asks for the password.
  }
}

/// Whether it is worth asking for a session.
export function remembered() {
  try {
    return localStorage.getItem(REMEMBERED) === "1";
  } catch {
    return false;
  }
}

async function failure(response) {
  let problem = {};
  try {
    problem = await response.json();
  } catch {
    // A proxy in between answers in its own way.
  }
  const wait = Number(response.headers.get("retry-after"));
  const standard = {
    401: "You are not signed in",
    403: "You may not do that",
    404: "There is no such thing here",
    413: "That is too large",
    429: "Too many requests; wait a little",
    502: "The proxy cannot reach the node",
    504: "The proxy cannot reach the node",
    503: "The node does not take requests at the moment",
  };
  let text = problem.detail || problem.title || standard[response.status] || `The node answered with status ${response.status}`;
  if (wait > 0 && !/\d/.test(text)) text = `${text.replace(/\.$/, "")}; try again in ${wait} seconds`;
  return new ApiError(response.status, sentence(text), problem.condition ?? "");
}

async function request(method, path, body, { signal } = {}) {
  const headers = { accept: "application/json" };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (method !== "GET" && csrf) headers["x-csrf-token"] = csrf;
  const limit = AbortSignal.timeout(PATIENCE);
  let response;
  try {
    response = await fetch(BASE + path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
      cache: "no-store",
      redirect: "error",
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    silent();
    throw new ApiError(0, limit.aborted ? "The node did not answer in time." : navigator.onLine ? "The node cannot be reached." : "This device has no network.");
  }
  // A proxy says so when there is no node behind it.
  if (response.status === 502 || response.status === 504) silent();
  else answered();
  if (!response.ok) {
    const error = await failure(response);
    if (response.status === 401 && path !== "/session") {
      remember(false);
      csrf = "";
      ended(error);
    }
    throw error;
  }
  if (response.status === 204) return {};
  try {
    const text = await response.text();
    return text ? JSON.parse(text) : {};
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(response.status, "The node's answer cannot be read.");
  }
}

function query(values) {
  const given = Object.entries(values ?? {}).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const text = new URLSearchParams(given).toString();
  return text ? `?${text}` : "";
}

export const get = (path, values, options) => request("GET", path + query(values), undefined, options);
export const post = (path, body = {}, options) => request("POST", path, body, options);
export const replace = (path, body) => request("PUT", path, body);
export const remove = (path) => request("DELETE", path);
/// A part of a path.
export const part = (text) => encodeURIComponent(text);

/// Signs in; the session.
export async function signIn(jid, password) {
  const session = await post("/session", { jid, password });
  csrf = session.csrf;
  remember(true);
  return session;
}

/// The session that is there already, or `null`.
export async function session() {
  try {
    const found = await get("/session");
    csrf = found.csrf ?? "";
    return found;
  } catch (error) {
    if (error.status === 401 || error.status === 403) {
      remember(false);
      return null;
    }
    throw error;
  }
}

/// Signs out. The page forgets in any case.
export async function signOut() {
  try {
    await remove("/session");
  } finally {
    csrf = "";
    remember(false);
  }
}

/// Uses a command of a domain, of the default one if none is given; its output, with a `note` about what was done.
export async function command(name, values = {}, domain = "") {
  return post(`/commands/${part(name)}${query({ domain })}`, values);
}
