//! `POST /api/v1/accounts/bulk`: accounts with rosters, one line of JSON each, any number of them in one call.
//!
//! The response is a stream of lines as well, and it drives the work: each time the client reads on, up to
//! [`BATCH_ACCOUNTS`] lines of the request are read and stored, and their results are the next chunk. So neither side
//! can fill the memory, and when a client disconnects the call ends after the current batch.
//!
//! Existing accounts remain unchanged, so an interrupted call may be repeated; accounts created by the interrupted
//! call may lack their roster.
//!
//! # Pitfalls
//!
//! A client that sends everything before it reads may fill the buffers of both directions and deadlock. With
//! `results=failed` the response is almost empty.

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
use batch::{BulkOutcome, LastDerivedKeys, ValidatedAccount};
use futures_core::Stream;
use http_body_util::BodyExt as _;
use lines::{BodyLine, LineSplitter};
use serde::Deserialize;
use serde_json::{Value, json};
use throng_commands::audit::record_audit_entry;
use throng_commands::{Caller, CommandError, CommandErrorKind, TokenScope};

use crate::extract::QueryParams;
use crate::operation::{Access, ApiOperation, RequestBody, ResponseBody};
use crate::{Api, Problem, auth};

/// Accounts that are stored together.
const BATCH_ACCOUNTS: usize = 500;
/// Maximum bytes of buffered lines, besides the one being read.
const BATCH_BYTES: usize = 2 << 20;
/// Calls at a time.
const MAX_CONCURRENT_CALLS: usize = 2;

/// The operations of this file.
pub(crate) fn operations() -> Vec<ApiOperation> {
    let results = json!({ "type": "string", "enum": ["all", "failed"], "default": "all" });
    vec![
        ApiOperation::new(
            Method::POST,
            "/accounts/bulk",
            "addAccounts",
            Access::Scoped(TokenScope::Accounts),
            run,
        )
        .summary(
            "Adds any number of accounts with their rosters, one per line, and streams the result of each.",
        )
        .query("results", results, "Report only failures, besides the last line.")
        .request_body(RequestBody::JsonLines("BulkAccount"))
        .response(
            200,
            ResponseBody::JsonLines("BulkResult"),
            "A line per account and a summary as the last line.",
        ),
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
                        "description": "Stored unchanged: the other side of a subscription belongs to the \
                         roster of the contact.",
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
                        "description": "Status of the line; the last line is `done`, or `stopped` if the \
                         rest was not processed.",
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
struct BulkQuery {
    results: Option<BulkResultFilter>,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum BulkResultFilter {
    #[default]
    All,
    Failed,
}

async fn run(
    State(api): State<Arc<Api>>,
    caller: auth::ApiCaller,
    QueryParams(wanted): QueryParams<BulkQuery>,
    request: Request,
) -> Result<Response, Problem> {
    let kind = request.headers().get(header::CONTENT_TYPE).map(|v| v.as_bytes()).unwrap_or_default();
    let kind = kind.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
    if ![&b"application/x-ndjson"[..], b"application/jsonl"].contains(&kind) {
        let text = "the content type must be application/x-ndjson";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "bad-request", text));
    }
    let Some(permit) = BulkCallPermit::try_acquire(&api) else {
        return Err(CommandError::new(
            CommandErrorKind::Unavailable,
            "another bulk request is in progress; try again",
        )
        .into());
    };
    let call = BulkCall {
        api: api.clone(),
        caller: caller.to_command_caller(),
        body: request.into_body(),
        lines: LineSplitter::default(),
        last: LastDerivedKeys::default(),
        failures_only: wanted.results.unwrap_or_default() == BulkResultFilter::Failed,
        line: 0,
        counts: BulkCounts::default(),
        finished: false,
        _permit: permit,
    };
    let body = Body::from_stream(BulkResponseStream { idle: Some(Box::new(call)), work: None });
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

/// Permit of one call in progress.
struct BulkCallPermit(Arc<Api>);

impl BulkCallPermit {
    fn try_acquire(api: &Arc<Api>) -> Option<BulkCallPermit> {
        let before = api.bulk.fetch_add(1, Ordering::AcqRel);
        let permit = BulkCallPermit(api.clone());
        (before < MAX_CONCURRENT_CALLS).then_some(permit)
    }
}

impl Drop for BulkCallPermit {
    fn drop(&mut self) {
        self.0.bulk.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Number of calls in progress.
pub(crate) type ActiveBulkCalls = AtomicUsize;

#[derive(Default)]
struct BulkCounts {
    created: u64,
    exists: u64,
    failed: u64,
}

/// A call in progress.
struct BulkCall {
    api: Arc<Api>,
    caller: Caller,
    body: Body,
    lines: LineSplitter,
    last: LastDerivedKeys,
    failures_only: bool,
    line: u64,
    counts: BulkCounts,
    finished: bool,
    _permit: BulkCallPermit,
}

impl BulkCall {
    /// The next chunk of the response; `None` at the end.
    async fn next_chunk(&mut self) -> Option<Vec<u8>> {
        if self.finished {
            return None;
        }
        let mut out = Vec::new();
        while out.is_empty() && !self.finished {
            let (lines, more) = match self.read_batch().await {
                Ok(gathered) => gathered,
                Err(error) => {
                    self.end("stopped", Some(&error), &mut out);
                    break;
                }
            };
            if let Err(error) = self.store_batch(lines, &mut out).await {
                self.end("stopped", Some(&error), &mut out);
                break;
            }
            if !more {
                self.end("done", None, &mut out);
            }
        }
        Some(out)
    }

    /// Reads lines for one batch; false when there are no more.
    async fn read_batch(&mut self) -> Result<(Vec<BodyLine>, bool), CommandError> {
        let (mut lines, mut bytes) = (Vec::new(), 0);
        loop {
            while lines.len() < BATCH_ACCOUNTS && bytes < BATCH_BYTES {
                let Some(line) = self.lines.take() else { break };
                bytes += if let BodyLine::Text(text) = &line { text.len() } else { 0 };
                lines.push(line);
            }
            if lines.len() == BATCH_ACCOUNTS || bytes >= BATCH_BYTES {
                return Ok((lines, true));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => frame.data_ref().into_iter().for_each(|piece| self.lines.push(piece)),
                Some(Err(_)) => {
                    return Err(CommandError::new(CommandErrorKind::Invalid, "the request is incomplete"));
                }
                None => {
                    self.lines.end();
                    // The last line may lack a line feed.
                    lines.extend(std::iter::from_fn(|| self.lines.take()));
                    return Ok((lines, false));
                }
            }
        }
    }

    async fn store_batch(&mut self, lines: Vec<BodyLine>, out: &mut Vec<u8>) -> Result<(), CommandError> {
        let node = self.api.node.clone();
        let mut ready: Vec<(u64, ValidatedAccount)> = Vec::with_capacity(lines.len());
        let mut outcomes: Vec<(u64, BulkOutcome)> = Vec::with_capacity(lines.len());
        for line in lines {
            self.line += 1;
            let read = match &line {
                BodyLine::Text(text) => {
                    batch::parse_line(&node, text).and_then(|one| one.authorize(&node, &self.caller))
                }
                BodyLine::TooLong => {
                    let error = CommandError::new(CommandErrorKind::NotAcceptable, "the line is too long");
                    Err(BulkOutcome::Failed(None, error))
                }
            };
            match read {
                Ok(one) => ready.push((self.line, one)),
                Err(outcome) => outcomes.push((self.line, outcome)),
            }
        }
        let (numbers, ready): (Vec<u64>, Vec<ValidatedAccount>) = ready.into_iter().unzip();
        let created = batch::create_accounts(&node, ready, &mut self.last).await;
        let result = created.map(|created| outcomes.extend(numbers.into_iter().zip(created)));
        outcomes.sort_unstable_by_key(|(line, _)| *line);
        for (line, outcome) in outcomes {
            self.report_line(line, &outcome, out);
        }
        result
    }

    fn report_line(&mut self, line: u64, outcome: &BulkOutcome, out: &mut Vec<u8>) {
        let value = match outcome {
            BulkOutcome::Created(jid) => {
                self.counts.created += 1;
                json!({ "line": line, "result": "created", "jid": jid.as_str() })
            }
            BulkOutcome::Exists(jid) => {
                self.counts.exists += 1;
                json!({ "line": line, "result": "exists", "jid": jid.as_str() })
            }
            BulkOutcome::Failed(jid, error) => {
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
        if !self.failures_only || matches!(outcome, BulkOutcome::Failed(..)) {
            write(&value, out);
        }
    }

    /// Writes the summary line, and an entry of the audit log.
    fn end(&mut self, result: &str, error: Option<&CommandError>, out: &mut Vec<u8>) {
        let BulkCounts { created, exists, failed } = self.counts;
        let mut value = json!({ "result": result, "created": created, "exists": exists, "failed": failed });
        if let Some(error) = error {
            value["condition"] = json!(error.condition().as_str());
            value["detail"] = json!(error.text);
        }
        write(&value, out);
        self.audit(error.map_or("done", |e| e.condition().as_str()));
    }

    fn audit(&mut self, outcome: &str) {
        self.finished = true;
        let on = format!("{} accounts", self.counts.created);
        record_audit_entry(&self.api.node, &self.caller, "account bulk", &on, outcome);
    }
}

impl Drop for BulkCall {
    fn drop(&mut self) {
        if !self.finished {
            self.audit("cancelled");
        }
    }
}

fn write(value: &Value, out: &mut Vec<u8>) {
    out.extend_from_slice(value.to_string().as_bytes());
    out.push(b'\n');
}

/// A call after a step, and the chunk that it produced.
type StepResult = (Box<BulkCall>, Option<Vec<u8>>);

/// The response body: each poll for a chunk drives the call one step.
struct BulkResponseStream {
    idle: Option<Box<BulkCall>>,
    work: Option<BoxFuture<'static, StepResult>>,
}

impl Stream for BulkResponseStream {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(mut call) = this.idle.take() {
            this.work = Some(Box::pin(async move {
                let piece = call.next_chunk().await;
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
