//! Handshake by which a worker joins: mutual challenge and response with HMAC-SHA-256 over a shared token.
//!
//! ```text
//! controller → worker   HandshakeChallenge  { protocol, version, nonce }
//! worker → controller   HandshakeResponse    { protocol, version, nonce, proof = HMAC(token, "worker" nonces) }
//! controller → worker   HandshakeResult   Welcome { proof = HMAC(token, "controller" nonces) } or Refused(sentence)
//! worker → controller   WorkerMessage::Hello
//! ```
//!
//! The token itself is never sent. The traffic afterwards is neither encrypted nor signed: it belongs on a trusted
//! network or in a tunnel, as `docs/load.md` states.
//!
//! # Pitfalls
//!
//! `HandshakeChallenge` and `HandshakeResponse` must stay readable for all versions, or a version mismatch cannot be
//! reported.

use std::io::Write;
use std::net::{IpAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

use super::framing::{self, AFTER_AUTH, BEFORE_AUTH, DeadlineReader};
use super::message::{Assignment, WorkerCommand, WorkerReport};
use crate::clock;

/// Protocol version; incremented when a message changes its meaning.
pub(crate) const PROTOCOL: u32 = 1;
/// Program version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Time limit of the whole handshake.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
/// Number of measured round trips; the shortest counts.
const PINGS: u64 = 5;

/// Self-description of a worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct WorkerHello {
    /// Identifier shared by all processes with the same CLOCK_MONOTONIC.
    pub(crate) machine: String,
    /// Available cores.
    pub(crate) cores: u32,
    /// Limit of open files.
    pub(crate) files: u64,
    /// Process id.
    pub(crate) pid: u32,
    /// Name for the report.
    pub(crate) name: String,
    /// Own source addresses.
    pub(crate) sources: Vec<IpAddr>,
}

/// Message from the controller to a joined worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ControllerMessage {
    /// Must be returned at once.
    Ping(u64),
    /// Action to take.
    Assignment(Box<Assignment>),
    /// Command during the run.
    Command(WorkerCommand),
}

/// Message from a joined worker to the controller.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum WorkerMessage {
    /// First message.
    Hello(WorkerHello),
    /// Answer to `Ping`.
    Pong(u64),
    /// Report during the run.
    Report(WorkerReport),
}

#[derive(Serialize, Deserialize)]
struct HandshakeChallenge {
    protocol: u32,
    version: String,
    nonce: String,
}

#[derive(Serialize, Deserialize)]
struct HandshakeResponse {
    protocol: u32,
    version: String,
    nonce: String,
    proof: String,
}

#[derive(Serialize, Deserialize)]
enum HandshakeResult {
    Welcome { proof: String },
    Refused(String),
}

/// Generates a random token or nonce.
pub(crate) fn random_text() -> Result<String> {
    let mut bytes = [0; 24];
    SystemRandom::new().fill(&mut bytes).map_err(|_| anyhow!("cannot get random numbers from the system"))?;
    Ok(BASE64.encode(bytes))
}

fn key(token: &str) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes())
}

/// Input of the HMAC. Lengths are included, so that different pairs of nonces are never ambiguous.
fn proof_input(side: &str, controller: &str, worker: &str) -> String {
    format!("throng load {side} {} {controller} {} {worker}", controller.len(), worker.len())
}

fn compute_proof(token: &str, side: &str, controller: &str, worker: &str) -> String {
    BASE64.encode(hmac::sign(&key(token), proof_input(side, controller, worker).as_bytes()))
}

/// Verifies a proof in constant time.
fn verify_proof(token: &str, side: &str, controller: &str, worker: &str, proof: &str) -> bool {
    let Ok(proof) = BASE64.decode(proof) else { return false };
    hmac::verify(&key(token), proof_input(side, controller, worker).as_bytes(), &proof).is_ok()
}

fn versions(worker: &str, controller: &str) -> String {
    format!(
        "the worker is throng {worker} and the controller throng {controller}; use the same version on all machines"
    )
}

/// An authenticated worker.
#[derive(Debug)]
pub(crate) struct JoinedWorker {
    /// Blocking, without a read timeout.
    pub(crate) stream: TcpStream,
    /// Its self-description.
    pub(crate) hello: WorkerHello,
    /// Half of the shortest round trip.
    pub(crate) half_trip_us: u64,
}

/// Controller's side. An error is one sentence about the peer, which was sent nothing else.
pub(crate) fn admit(stream: TcpStream, token: &str) -> Result<JoinedWorker> {
    let deadline = clock::now_us() + TIMEOUT.as_micros() as u64;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let nonce = random_text()?;
    let greeting =
        HandshakeChallenge { protocol: PROTOCOL, version: VERSION.to_owned(), nonce: nonce.clone() };
    (&stream).write_all(&framing::encode(&greeting)?)?;
    let answer: HandshakeResponse =
        framing::read(&mut DeadlineReader { stream: &stream, deadline }, BEFORE_AUTH)?
            .context("it closed the connection without a response")?;
    let refusal = if answer.protocol != PROTOCOL || answer.version != VERSION {
        Some(versions(&answer.version, VERSION))
    } else if !verify_proof(token, "worker", &nonce, &answer.nonce, &answer.proof) {
        Some("the token is wrong; give the worker the --token of the controller".to_owned())
    } else {
        None
    };
    if let Some(sentence) = refusal {
        (&stream).write_all(&framing::encode(&HandshakeResult::Refused(sentence.clone()))?)?;
        bail!(sentence);
    }
    let proof = compute_proof(token, "controller", &nonce, &answer.nonce);
    (&stream).write_all(&framing::encode(&HandshakeResult::Welcome { proof })?)?;
    let mut limited = DeadlineReader { stream: &stream, deadline };
    let Some(WorkerMessage::Hello(hello)) = framing::read(&mut limited, AFTER_AUTH)? else {
        bail!("it did not introduce itself");
    };
    let mut half_trip_us = u64::MAX;
    for number in 0..PINGS {
        let sent = clock::now_us();
        (&stream).write_all(&framing::encode(&ControllerMessage::Ping(number))?)?;
        match framing::read(&mut limited, AFTER_AUTH)? {
            Some(WorkerMessage::Pong(back)) if back == number => {}
            _ => bail!("it did not respond to a ping"),
        }
        half_trip_us = half_trip_us.min((clock::now_us() - sent) / 2);
    }
    stream.set_read_timeout(None)?;
    Ok(JoinedWorker { stream, hello, half_trip_us })
}

/// Worker's side up to its assignment, which may take long to arrive.
pub(crate) fn join(stream: &TcpStream, token: &str, hello: WorkerHello) -> Result<Assignment> {
    let deadline = clock::now_us() + TIMEOUT.as_micros() as u64;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut limited = DeadlineReader { stream, deadline };
    let greeting: HandshakeChallenge = framing::read(&mut limited, BEFORE_AUTH)
        .context("there is no throng load controller at this address")?
        .context("the controller closed the connection immediately; it may already have all its workers")?;
    if greeting.protocol != PROTOCOL {
        bail!(versions(VERSION, &greeting.version));
    }
    let nonce = random_text()?;
    let proof = compute_proof(token, "worker", &greeting.nonce, &nonce);
    let answer =
        HandshakeResponse { protocol: PROTOCOL, version: VERSION.to_owned(), nonce: nonce.clone(), proof };
    let mut out = stream;
    out.write_all(&framing::encode(&answer)?)?;
    match framing::read(&mut limited, BEFORE_AUTH)?.context("the controller closed the connection")? {
        HandshakeResult::Refused(sentence) => bail!(sentence),
        HandshakeResult::Welcome { proof } => {
            if !verify_proof(token, "controller", &greeting.nonce, &nonce, &proof) {
                bail!("the controller refused the token; check --join and --token");
            }
        }
    }
    out.write_all(&framing::encode(&WorkerMessage::Hello(hello))?)?;
    stream.set_read_timeout(None)?;
    let mut reading = stream;
    loop {
        match framing::read(&mut reading, AFTER_AUTH)?.context("the controller ended before the run began")? {
            ControllerMessage::Ping(number) => {
                out.write_all(&framing::encode(&WorkerMessage::Pong(number))?)?
            }
            ControllerMessage::Assignment(assignment) => return Ok(*assignment),
            ControllerMessage::Command(_) => bail!("the controller sent a command before the plan"),
        }
    }
}

/// Self-description of this process.
pub(crate) fn local_hello(name: String, sources: Vec<IpAddr>) -> WorkerHello {
    WorkerHello {
        machine: machine(),
        cores: cores(),
        files: raise_files(),
        pid: std::process::id(),
        name,
        sources,
    }
}

/// Cores available to this process.
pub(crate) fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
}

/// Identifier from the boot and the time namespace, shared by all processes with the same CLOCK_MONOTONIC.
pub(crate) fn machine() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    // Without a boot id no sharing can be assumed; a random name matches nobody.
    if boot.trim().is_empty() {
        return random_text().unwrap_or_default();
    }
    format!("{} {}", boot.trim(), space.display())
}

/// Raises the limit of open files as far as possible, and returns it.
pub(crate) fn raise_files() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let highest = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let reached = if setrlimit(Resource::Nofile, highest).is_ok() { limit.maximum } else { limit.current };
    reached.unwrap_or(u64::MAX)
}
