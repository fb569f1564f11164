//! Client of /api/v1. The session is an HttpOnly cookie; the CSRF token is kept in memory and sent with every request that
//! changes something.
//!
//! # Pitfalls
//!
//! The browser logs each failed request in its console, even an expected one. So the page requests the session at start only if
//! it remembers a sign-in.

import { sentence } from "./format.js";

const BASE = "/api/v1";
const SIGNED_IN_KEY = "throng-signed-in";
/// Timeout of a request, in milliseconds.
const TIMEOUT_MS = 20_000;

/// Milliseconds between two attempts to reach a node that does not respond.
const RETRY_MS = 5_000;

let csrf = "";
let sessionEndListener = () => {};
let reachabilityListener = () => {};
/// Time of the node's last response, in milliseconds since 1970, and whether it is unreachable.
let lastResponse = Date.now();
let unreachable = false;

/// An error response, or the reason why there is none; `message` is one sentence that can be shown.
export class ApiError extends Error {
  constructor(status, message, condition = "") {
    super(message);
    this.status = status;
    this.condition = condition;
  }
}

/// Calls `f` when the session has ended.
export const onSessionEnd = (f) => {
  sessionEndListener = f;
};

/// Calls `f` when the node becomes unreachable, with the time of its last response in seconds since 1970, and without a time when
/// it responds again.
export const onReachability = (f) => {
  reachabilityListener = f;
};

function markReachable() {
  lastResponse = Date.now();
  if (!unreachable) return;
  unreachable = false;
  reachabilityListener();
}

/// Polls the node until it responds: views that do not poll would stay stale.
function markUnreachable() {
  if (unreachable) return;
  unreachable = true;
  reachabilityListener(lastResponse / 1000);
  const poll = () => {
    if (unreachable && csrf && !document.hidden) get("/session").catch(() => {});
    if (unreachable) setTimeout(poll, RETRY_MS);
  };
  setTimeout(poll, RETRY_MS);
}

function rememberSignIn(on) {
  try {
    if (on) localStorage.setItem(SIGNED_IN_KEY, "1");
    else localStorage.removeItem(SIGNED_IN_KEY);
  } catch {
    // The next load of the page then requires a sign-in.
  }
}

/// Whether a session may exist.
export function hasRememberedSignIn() {
  try {
    return localStorage.getItem(SIGNED_IN_KEY) === "1";
  } catch {
    return false;
  }
}

async function toApiError(response) {
  let problem = {};
  try {
    problem = await response.json();
  } catch {
    // Responses of a proxy are not JSON.
  }
  const wait = Number(response.headers.get("retry-after"));
  const standard = {
    401: "You are not signed in",
    403: "You are not allowed to do that",
    404: "Not found",
    413: "The request is too large",
    429: "Too many requests; try again later",
    502: "The proxy cannot reach the node",
    504: "The proxy cannot reach the node",
    503: "The node is not accepting requests",
  };
  let text = problem.detail || problem.title || standard[response.status] || `The node responded with status ${response.status}`;
  if (wait > 0 && !/\d/.test(text)) text = `${text.replace(/\.$/, "")}; try again in ${wait} seconds`;
  return new ApiError(response.status, sentence(text), problem.condition ?? "");
}

async function request(method, path, body, { signal } = {}) {
  const headers = { accept: "application/json" };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (method !== "GET" && csrf) headers["x-csrf-token"] = csrf;
  const limit = AbortSignal.timeout(TIMEOUT_MS);
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
    markUnreachable();
    throw new ApiError(0, limit.aborted ? "The node did not respond in time." : navigator.onLine ? "The node cannot be reached." : "This device has no network.");
  }
  // A proxy cannot reach its node.
  if (response.status === 502 || response.status === 504) markUnreachable();
  else markReachable();
  if (!response.ok) {
    const error = await toApiError(response);
    if (response.status === 401 && path !== "/session") {
      rememberSignIn(false);
      csrf = "";
      sessionEndListener(error);
    }
    throw error;
  }
  if (response.status === 204) return {};
  try {
    const text = await response.text();
    return text ? JSON.parse(text) : {};
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(response.status, "The response of the node is not valid JSON.");
  }
}

function query(values) {
  const given = Object.entries(values ?? {}).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const text = new URLSearchParams(given).toString();
  return text ? `?${text}` : "";
}

export const get = (path, values, options) => request("GET", path + query(values), undefined, options);
export const post = (path, body = {}, options) => request("POST", path, body, options);
export const put = (path, body) => request("PUT", path, body);
export const remove = (path) => request("DELETE", path);
/// Encodes a segment of a path.
export const pathSegment = (text) => encodeURIComponent(text);

/// Signs in and returns the session.
export async function signIn(jid, password) {
  const session = await post("/session", { jid, password });
  csrf = session.csrf;
  rememberSignIn(true);
  return session;
}

/// The existing session, or `null`.
export async function session() {
  try {
    const found = await get("/session");
    csrf = found.csrf ?? "";
    return found;
  } catch (error) {
    if (error.status === 401 || error.status === 403) {
      rememberSignIn(false);
      return null;
    }
    throw error;
  }
}

/// Signs out; the page discards its session even if the request fails.
export async function signOut() {
  try {
    await remove("/session");
  } finally {
    csrf = "";
    rememberSignIn(false);
  }
}

/// Runs a command of a domain, or of the default one; returns its output with a `note`.
export async function command(name, values = {}, domain = "", options = {}) {
  return post(`/commands/${pathSegment(name)}${query({ domain })}`, values, options);
}
