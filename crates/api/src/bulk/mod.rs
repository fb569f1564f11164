//! `POST /api/v1/accounts/bulk`: accounts with rosters, a line of JSON each, any number of them in one call.
//!
//! The answer is a stream of lines as well, and it drives everything: each time more of it is wanted, as much of the request
//! is read as makes a [`BATCH`], that is stored, and its lines are the next piece. So neither side can fill the memory, and a
//! client that goes away ends it after the batch that is under way.
//!
//! What is there already is left as it is, so a call that broke off may be repeated; of accounts that were created by the
//! call that broke off, the roster may be missing.
//!
//! The trap: a client that sends all before it reads may fill the buffers of both directions and wait for ever. With
//! `results=failed` there is hardly anything to read.

mod batch;
mod lines;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base::spawn::BoxFuture;
use futures_core::Stream;
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde_json::{Value, json};
use throng_core::command::{Caller, CommandError, Scope, Why};

use crate::extract::Asked;
use crate::operation::{Access, Gives, Operation, Takes};
use crate::{Api, Problem, auth};
use batch::{Last, Outcome, Ready};
use lines::{Line, Lines};

/// Accounts that are stored together.
const BATCH: usize = 500;
/// Bytes of lines that are held at most, besides the one that is read.
const BATCH_BYTES: usize = 2 << 20;
/// Calls at a time.
const CALLS: usize = 2;

/// The operations of this file.
pub(crate) fn operations() -> Vec<Operation> {
    let results = json!({ "type": "string", "enum": ["all", "failed"], "default": "all" });
    vec![
        Operation::new(Method::POST, "/accounts/bulk", "addAccounts", Access::May(Scope::Accounts), run)
            .summary("Adds any number of accounts with their rosters, a line each; what became of each is streamed back.")
            .query("results", results, "Whether only failures have lines in the answer, besides the last one.")
            .takes(Takes::Lines("BulkAccount"))
            .gives(200, Gives::Lines("BulkResult"), "A line for each account, and one at the end for all of them."),
    ]
}

/// The schemas of this file.
pub(crate) fn schemas() -> Vec<(&'static str, Value)> {
    let text = || json!({ "type": "string" });
    let number = || json!({ "type": "integer", "minimum": 0 });
    vec![
        (
            "BulkAccount",
            json!({
                "type": "object",
                "required": ["jid", "password"],
                "additionalProperties": false,
                "properties": {
                    "jid": text(),
                    "password": text(),
                    "roster": { "type": "array", "items": {
                        "type": "object",
                        "required": ["jid"],
                        "additionalProperties": false,
                        "description": "Written as it is: the other side of a subscription is the other account's roster.",
                        "properties": {
                            "jid": text(),
                            "name": { "type": ["string", "null"] },
                            "groups": { "type": "array", "maxItems": 32, "items": text() },
                            "subscription": { "enum": ["none", "to", "from", "both", null], "default": "both" },
                        },
                    } },
                },
            }),
        ),
        (
            "BulkResult",
            json!({
                "type": "object",
                "required": ["result"],
                "properties": {
                    "result": {
                        "enum": ["created", "exists", "failed", "done", "stopped"],
                        "description": "The last line is `done`, or `stopped` if the rest was not tried.",
                    },
                    "line": { "type": "integer", "minimum": 1 },
                    "jid": text(),
                    "condition": text(),
                    "detail": text(),
                    "created": number(),
                    "exists": number(),
                    "failed": number(),
                },
            }),
        ),
    ]
}

#[derive(Deserialize)]
struct Wanted {
    results: Option<Results>,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Results {
    #[default]
    All,
    Failed,
}

async fn run(
    State(api): State<Arc<Api>>,
    caller: auth::Caller,
    Asked(wanted): Asked<Wanted>,
    request: Request,
) -> Result<Response, Problem> {
    let kind = request.headers().get(header::CONTENT_TYPE).map(|v| v.as_bytes()).unwrap_or_default();
    let kind = kind.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
    if ![&b"application/x-ndjson"[..], b"application/jsonl"].contains(&kind) {
        let text = "the request must be application/x-ndjson";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "bad-request", text));
    }
    let Some(place) = Place::enter(&api) else {
        return Err(CommandError::new(Why::Unavailable, "other accounts are being added; try again").into());
    };
    let call = Call {
        api: api.clone(),
        caller: caller.as_command(),
        body: request.into_body(),
        lines: Lines::default(),
        last: Last::default(),
        quiet: wanted.results.unwrap_or_default() == Results::Failed,
        line: 0,
        counts: Counts::default(),
        over: false,
        _place: place,
    };
    let body = Body::from_stream(Pieces { idle: Some(Box::new(call)), work: None });
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

/// One of the calls that are under way.
struct Place(Arc<Api>);

impl Place {
    fn enter(api: &Arc<Api>) -> Option<Place> {
        let before = api.bulk.fetch_add(1, Ordering::AcqRel);
        let place = Place(api.clone());
        (before < CALLS).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.bulk.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Calls that are under way.
pub(crate) type Calls = AtomicUsize;

#[derive(Default)]
struct Counts {
    created: u64,
    exists: u64,
    failed: u64,
}

/// A call that is under way.
struct Call {
    api: Arc<Api>,
    caller: Caller,
    body: Body,
    lines: Lines,
    last: Last,
    quiet: bool,
    line: u64,
    counts: Counts,
    over: bool,
    _place: Place,
}

impl Call {
    /// The next piece of the answer; nothing at the end.
    async fn step(&mut self) -> Option<Vec<u8>> {
        if self.over {
            return None;
        }
        let mut out = Vec::new();
        while out.is_empty() && !self.over {
            let (lines, more) = match self.gather().await {
                Ok(gathered) => gathered,
                Err(error) => {
                    self.end("stopped", Some(&error), &mut out);
                    break;
                }
            };
            if let Err(error) = self.store(lines, &mut out).await {
                self.end("stopped", Some(&error), &mut out);
                break;
            }
            if !more {
                self.end("done", None, &mut out);
            }
        }
        Some(out)
    }

    /// Lines for one batch, and whether there may be more.
    async fn gather(&mut self) -> Result<(Vec<Line>, bool), CommandError> {
        let (mut lines, mut bytes) = (Vec::new(), 0);
        loop {
            while lines.len() < BATCH && bytes < BATCH_BYTES {
                let Some(line) = self.lines.take() else { break };
                bytes += if let Line::Text(text) = &line { text.len() } else { 0 };
                lines.push(line);
            }
            if lines.len() == BATCH || bytes >= BATCH_BYTES {
                return Ok((lines, true));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => frame.data_ref().into_iter().for_each(|piece| self.lines.push(piece)),
                Some(Err(_)) => {
                    return Err(CommandError::new(Why::Invalid, "the request broke off"));
                }
                None => {
                    self.lines.end();
                    // The last line has no end of its own.
                    lines.extend(std::iter::from_fn(|| self.lines.take()));
                    return Ok((lines, false));
                }
            }
        }
    }

    async fn store(&mut self, lines: Vec<Line>, out: &mut Vec<u8>) -> Result<(), CommandError> {
        let node = self.api.node.clone();
        let mut ready: Vec<(u64, Ready)> = Vec::with_capacity(lines.len());
        let mut outcomes: Vec<(u64, Outcome)> = Vec::with_capacity(lines.len());
        for line in lines {
            self.line += 1;
            let read = match &line {
                Line::Text(text) => {
                    batch::read(&node, text).and_then(|one| one.permitted(&node, &self.caller))
                }
                Line::TooLong => {
                    let error = CommandError::new(Why::NotAcceptable, "the line is longer than allowed");
                    Err(Outcome::Failed(None, error))
                }
            };
            match read {
                Ok(one) => ready.push((self.line, one)),
                Err(outcome) => outcomes.push((self.line, outcome)),
            }
        }
        let (numbers, ready): (Vec<u64>, Vec<Ready>) = ready.into_iter().unzip();
        let created = batch::create(&node, ready, &mut self.last).await;
        let result = created.map(|created| outcomes.extend(numbers.into_iter().zip(created)));
        outcomes.sort_unstable_by_key(|(line, _)| *line);
        for (line, outcome) in outcomes {
            self.tell(line, &outcome, out);
        }
        result
    }

    fn tell(&mut self, line: u64, outcome: &Outcome, out: &mut Vec<u8>) {
        let value = match outcome {
            Outcome::Created(jid) => {
                self.counts.created += 1;
                json!({ "line": line, "result": "created", "jid": jid.as_str() })
            }
            Outcome::Exists(jid) => {
                self.counts.exists += 1;
                json!({ "line": line, "result": "exists", "jid": jid.as_str() })
            }
            Outcome::Failed(jid, error) => {
                self.counts.failed += 1;
                let condition = error.condition().as_str();
                let mut value =
                    json!({ "line": line, "result": "failed", "condition": condition, "detail": error.text });
                if let Some(jid) = jid {
                    value["jid"] = json!(jid.as_str());
                }
                value
            }
        };
        if !self.quiet || matches!(outcome, Outcome::Failed(..)) {
            write(&value, out);
        }
    }

    /// The last line, and that of the audit log.
    fn end(&mut self, result: &str, error: Option<&CommandError>, out: &mut Vec<u8>) {
        let Counts { created, exists, failed } = self.counts;
        let mut value = json!({ "result": result, "created": created, "exists": exists, "failed": failed });
        if let Some(error) = error {
            value["condition"] = json!(error.condition().as_str());
            value["detail"] = json!(error.text);
        }
        write(&value, out);
        self.note(error.map_or("done", |e| e.condition().as_str()));
    }

    fn note(&mut self, outcome: &str) {
        self.over = true;
        let on = format!("{} accounts", self.counts.created);
        self.api.node.audit(&self.caller, "account bulk", &on, outcome);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.over {
            self.note("given up");
        }
    }
}

fn write(value: &Value, out: &mut Vec<u8>) {
    out.extend_from_slice(value.to_string().as_bytes());
    out.push(b'\n');
}

/// A call after a step, and the piece that it made.
type Stepped = (Box<Call>, Option<Vec<u8>>);

/// The answer: whenever a piece is wanted, the call takes a step.
struct Pieces {
    idle: Option<Box<Call>>,
    work: Option<BoxFuture<'static, Stepped>>,
}

impl Stream for Pieces {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(mut call) = this.idle.take() {
            this.work = Some(Box::pin(async move {
                let piece = call.step().await;
                (call, piece)
            }));
        }
        let Some(work) = &mut this.work else { return Poll::Ready(None) };
        let (call, piece) = std::task::ready!(work.as_mut().poll(cx));
        this.work = None;
        this.idle = piece.is_some().then_some(call);
        Poll::Ready(piece.map(|piece| Ok(Bytes::from(piece))))
    }
}
