//! Tests of controller and workers over real loopback sockets; the engine is a stub that speaks the protocol.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, bail};

use super::accept::{HandshakeOutcome, WorkerAcceptor};
use super::controller::{LiveStatus, RunConfig, RunObserver, conduct};
use super::framing::{self, AFTER_AUTH};
use super::handshake::{self, ControllerMessage, JoinedWorker, WorkerHello, WorkerMessage};
use super::interrupt::InterruptCounter;
use super::message::{Assignment, FinalReport, WorkerCommand, WorkerReport};
use super::worker::serve;
use crate::clock;
use crate::engine::ControllerPort;
use crate::measure::{Counter, Gauge, WorkerSnapshot};
use crate::plan::{self, AccountSource, LoadPlan, PlanTarget, PlanTls, TestAccounts, TransportSecurity};
use crate::report::model::{RunInfo, RunRecord};
use crate::server_monitor::ServerMonitorConfig;

const TOKEN: &str = "a token";

struct Silent(Vec<String>);

impl RunObserver for Silent {
    fn line(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }

    fn update(&mut self, _run: &RunRecord, _now: &LiveStatus) {}
}

fn small_plan() -> LoadPlan {
    let (prefix, password) = ("u".to_owned(), "p".to_owned());
    LoadPlan {
        name: "test".to_owned(),
        title: String::new(),
        target: PlanTarget {
            addresses: Vec::new(),
            domain: "localhost".to_owned(),
            security: TransportSecurity::None,
            tls: PlanTls::default(),
            sources: Vec::new(),
            web: Default::default(),
        },
        accounts: TestAccounts {
            source: AccountSource::Pattern { prefix, first: 0, count: 100, stride: 1, password },
            domain: "localhost".to_owned(),
        },
        phases: Vec::new(),
        starts: Vec::new(),
        sessions: Vec::new(),
        transactions: Vec::new(),
        options: plan::PlanOptions { connections: 100, drain_ms: 200, ..plan::PlanOptions::default() },
    }
}

fn setup() -> RunConfig {
    RunConfig {
        plan: small_plan(),
        about: RunInfo::default(),
        workers: 0,
        listen: None,
        expect: 0,
        token: TOKEN.to_owned(),
        host: ServerMonitorConfig::default(),
        salts: None,
        chaos: Vec::new(),
    }
}

fn hello(name: &str) -> WorkerHello {
    WorkerHello {
        name: name.to_owned(),
        cores: 2,
        files: 20_000,
        ..handshake::local_hello(String::new(), Vec::new())
    }
}

/// A worker on its own thread.
fn worker(
    at: SocketAddr,
    hello: WorkerHello,
    engine: impl FnOnce(Assignment, &mut dyn ControllerPort) -> Result<()> + Send + 'static,
) -> JoinHandle<Result<()>> {
    std::thread::spawn(move || serve(TcpStream::connect(at)?, TOKEN, hello, engine))
}

/// Waits until `wanted` workers have joined; other outcomes are in the second list.
fn joined(acceptor: &mut WorkerAcceptor, wanted: usize) -> (Vec<JoinedWorker>, Vec<String>) {
    let (mut workers, mut rejected) = (Vec::new(), Vec::new());
    let deadline = clock::now_us() + 120_000_000;
    while workers.len() < wanted {
        for outcome in acceptor.poll() {
            match outcome {
                HandshakeOutcome::Worker(worker) => workers.push(*worker),
                HandshakeOutcome::Rejected(_, reason) => rejected.push(reason),
            }
        }
        assert!(clock::now_us() < deadline, "{} of {wanted} joined; {rejected:?}", workers.len());
        std::thread::sleep(Duration::from_millis(1));
    }
    workers.sort_by(|a, b| a.hello.name.cmp(&b.hello.name));
    (workers, rejected)
}

fn rejected(acceptor: &mut WorkerAcceptor) -> String {
    let deadline = clock::now_us() + 120_000_000;
    loop {
        match acceptor.poll().into_iter().next() {
            Some(HandshakeOutcome::Rejected(_, reason)) => return reason,
            Some(HandshakeOutcome::Worker(_)) => panic!("it was let in"),
            None => {}
        }
        assert!(clock::now_us() < deadline, "nothing came");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits for the next commands.
fn wait(port: &mut dyn ControllerPort) -> Result<Vec<WorkerCommand>> {
    loop {
        let commands = port.receive()?;
        if !commands.is_empty() {
            return Ok(commands);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn wait_for(port: &mut dyn ControllerPort, wanted: impl Fn(&WorkerCommand) -> bool) -> Result<WorkerCommand> {
    loop {
        if let Some(found) = wait(port)?.into_iter().find(&wanted) {
            return Ok(found);
        }
    }
}

fn snapshot(second: u32, sent: u64, users: i64) -> WorkerReport {
    let mut counters = vec![0; Counter::ALL.len()];
    counters[Counter::MessagesSent as usize] = sent;
    let mut gauges = vec![0; Gauge::ALL.len()];
    gauges[Gauge::Users as usize] = users;
    WorkerReport::Snapshot(Box::new(WorkerSnapshot { second, counters, gauges, ..WorkerSnapshot::default() }))
}

/// A worker's part of a short run, in order: ready, start, a snapshot, drain, close, final.
fn scripted(assignment: Assignment, port: &mut dyn ControllerPort) -> Result<()> {
    port.send(WorkerReport::Ready { rss: 5 })?;
    wait_for(port, |command| matches!(command, WorkerCommand::Start { .. }))?;
    port.send(snapshot(0, 10, 20))?;
    port.send(WorkerReport::Draining)?;
    port.send(snapshot(1, 0, 20))?;
    wait_for(port, |command| *command == WorkerCommand::Close)?;
    let me = u32::from(assignment.worker);
    // Each sends ten to the next one's first user; worker 0's loses one of them.
    let next = (me + 1) % assignment.owners.len() as u32;
    let last = FinalReport {
        snapshot: WorkerSnapshot { second: 2, ..WorkerSnapshot::default() },
        sent: vec![(next, 10)],
        arrived: vec![(me, if me == 0 { 9 } else { 10 })],
        steady: vec![me],
        ..FinalReport::default()
    };
    port.send(WorkerReport::Final(Box::new(last)))
}

#[test]
fn three_workers_are_reported_as_one_run() {
    let mut acceptor = WorkerAcceptor::open(None, TOKEN.to_owned()).unwrap();
    let at = acceptor.local().unwrap();
    let workers: Vec<_> = ["a", "b", "c"].map(|name| worker(at, hello(name), scripted)).into();
    let (workers_joined, _) = joined(&mut acceptor, 3);
    assert!(workers_joined.iter().all(|worker| worker.half_trip_us < 1_000_000));
    let mut watch = Silent(Vec::new());
    let run =
        conduct(setup(), workers_joined, sync_channel(64), &mut watch, &InterruptCounter::default()).unwrap();
    for worker in workers {
        worker.join().unwrap().unwrap();
    }
    assert_eq!(run.about.end, "finished");
    assert_eq!(run.totals.counters["messages_sent"].total, 30);
    assert_eq!(run.totals.counters["messages_lost"].total, 1);
    assert_eq!(run.totals.gauges["users"], 60);
    assert_eq!(
        run.workers.iter().map(|w| (w.name.as_str(), w.rss_empty)).collect::<Vec<_>>(),
        [("a", 5), ("b", 5), ("c", 5)]
    );
    assert_eq!(run.warnings, [""; 0]);
}

#[test]
fn all_workers_begin_at_the_same_instant() {
    let mut acceptor = WorkerAcceptor::open(None, TOKEN.to_owned()).unwrap();
    let at = acceptor.local().unwrap();
    let (sender, receiver) = sync_channel(8);
    let workers: Vec<_> = ["a", "b", "far"]
        .map(|name| {
            let sender = sender.clone();
            let mut hello = hello(name);
            if name == "far" {
                hello.machine = "another boot".to_owned();
            }
            worker(at, hello, move |assignment, port| {
                port.send(WorkerReport::Ready { rss: 0 })?;
                let WorkerCommand::Start { in_us, at_us } =
                    wait_for(port, |command| matches!(command, WorkerCommand::Start { .. }))?
                else {
                    bail!("no start")
                };
                sender.send((assignment.clocks.clone(), in_us, at_us, clock::now_us()))?;
                port.send(WorkerReport::Refused("enough".to_owned()))
            })
        })
        .into();
    let (workers_joined, _) = joined(&mut acceptor, 3);
    let run = conduct(
        setup(),
        workers_joined,
        sync_channel(64),
        &mut Silent(Vec::new()),
        &InterruptCounter::default(),
    );
    assert_eq!(run.unwrap().about.end, "enough");
    drop(workers);
    let starts: Vec<_> = receiver.try_iter().collect();
    assert_eq!(starts.len(), 3);
    for (clocks, in_us, at_us, last_message_us) in &starts {
        assert_eq!(*clocks, [0, 0, 1]);
        // All start at the same time, and the delay never exceeds it: a worker that receives the command late only saw
        // the frame's transit time, which is subtracted.
        assert_eq!(*at_us, starts[0].2);
        assert!(
            *last_message_us + 1 >= at_us.saturating_sub(*in_us + 1_000_000) && *in_us <= 500_000,
            "{starts:?}"
        );
    }
}

#[test]
fn a_dead_worker_is_reported_to_the_others_and_the_run_continues() {
    let mut acceptor = WorkerAcceptor::open(None, TOKEN.to_owned()).unwrap();
    let at = acceptor.local().unwrap();
    let survivor = worker(at, hello("a"), |_, port| {
        port.send(WorkerReport::Ready { rss: 0 })?;
        wait_for(port, |command| *command == WorkerCommand::Gone(1))?;
        port.send(WorkerReport::Draining)?;
        port.send(snapshot(1, 0, 0))?;
        wait_for(port, |command| *command == WorkerCommand::Close)?;
        port.send(WorkerReport::Final(Box::default()))
    });
    let victim = std::thread::spawn(move || {
        let stream = TcpStream::connect(at).unwrap();
        handshake::join(&stream, TOKEN, hello("b")).unwrap();
        let mut out = &stream;
        out.write_all(&framing::encode(&WorkerMessage::Report(WorkerReport::Ready { rss: 0 })).unwrap())
            .unwrap();
        let start: ControllerMessage = framing::read(&mut &stream, AFTER_AUTH).unwrap().unwrap();
        assert!(matches!(start, ControllerMessage::Command(WorkerCommand::Start { .. })));
        out.write_all(&framing::encode(&WorkerMessage::Report(snapshot(0, 1, 33))).unwrap()).unwrap();
        // Killed: the kernel closes its connection.
    });
    let (workers, _) = joined(&mut acceptor, 2);
    let run =
        conduct(setup(), workers, sync_channel(64), &mut Silent(Vec::new()), &InterruptCounter::default())
            .unwrap();
    survivor.join().unwrap().unwrap();
    victim.join().unwrap();
    assert_eq!(run.about.end, "finished");
    assert_eq!(run.workers[1].died.map(|died| died.1), Some(33));
    assert!(run.warnings[0].starts_with("worker 1 (b, process "), "{:?}", run.warnings);
}

#[test]
fn one_ctrl_c_ends_the_run_gracefully() {
    let mut acceptor = WorkerAcceptor::open(None, TOKEN.to_owned()).unwrap();
    let at = acceptor.local().unwrap();
    let interrupts = InterruptCounter::default();
    let second_interrupt = interrupts.clone();
    let worker = worker(at, hello("a"), move |_, port| {
        port.send(WorkerReport::Ready { rss: 0 })?;
        wait_for(port, |command| matches!(command, WorkerCommand::Start { .. }))?;
        second_interrupt.add();
        wait_for(port, |command| *command == WorkerCommand::Stop)?;
        port.send(WorkerReport::Draining)?;
        wait_for(port, |command| *command == WorkerCommand::Close)?;
        port.send(WorkerReport::Final(Box::default()))
    });
    let (workers, _) = joined(&mut acceptor, 1);
    let run = conduct(setup(), workers, sync_channel(64), &mut Silent(Vec::new()), &interrupts).unwrap();
    worker.join().unwrap().unwrap();
    assert_eq!(run.about.end, "interrupted");
    assert_eq!(run.workers[0].died, None);
}

#[test]
fn a_failing_engine_reports_the_reason() {
    let mut acceptor = WorkerAcceptor::open(None, TOKEN.to_owned()).unwrap();
    let worker = worker(acceptor.local().unwrap(), hello("a"), |_, _| bail!("no file is left"));
    let (workers, _) = joined(&mut acceptor, 1);
    let error =
        conduct(setup(), workers, sync_channel(64), &mut Silent(Vec::new()), &InterruptCounter::default());
    assert_eq!(error.unwrap_err().to_string(), "no file is left");
    assert!(worker.join().unwrap().is_err());
}

#[test]
fn a_wrong_token_is_refused_on_both_sides() {
    let mut acceptor = WorkerAcceptor::open(None, TOKEN.to_owned()).unwrap();
    let at = acceptor.local().unwrap();
    let guess = std::thread::spawn(move || {
        handshake::join(&TcpStream::connect(at).unwrap(), "another token", hello("a"))
            .unwrap_err()
            .to_string()
    });
    assert!(rejected(&mut acceptor).starts_with("the token is wrong"));
    assert!(guess.join().unwrap().starts_with("the token is wrong"));
    // A controller without the token learns nothing but nonces: the worker leaves before it describes itself.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let worker = std::thread::spawn(move || {
        handshake::join(&TcpStream::connect(at).unwrap(), TOKEN, hello("a")).unwrap_err().to_string()
    });
    let (mut stream, _) = listener.accept().unwrap();
    let raw = |text: &str| [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat();
    stream.write_all(&raw(r#"{"protocol":1,"version":"0","nonce":"n"}"#)).unwrap();
    let answer: serde_json::Value = framing::read(&mut stream, 1_024).unwrap().unwrap();
    assert!(answer["proof"].is_string());
    stream.write_all(&raw(r#"{"Welcome":{"proof":"AAAA"}}"#)).unwrap();
    assert!(worker.join().unwrap().contains("refused the token"));
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"");
}

#[test]
fn another_version_is_refused_with_the_reason() {
    let mut acceptor = WorkerAcceptor::open(None, TOKEN.to_owned()).unwrap();
    let mut stream = TcpStream::connect(acceptor.local().unwrap()).unwrap();
    let read = std::thread::spawn(move || {
        let _: serde_json::Value = framing::read(&mut stream, 1_024).unwrap().unwrap();
        let text = r#"{"protocol":99,"version":"9.9","nonce":"n","proof":"","more":1}"#;
        stream.write_all(&[&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()).unwrap();
        let verdict: serde_json::Value = framing::read(&mut stream, 1_024).unwrap().unwrap();
        verdict["Refused"].as_str().unwrap().to_owned()
    });
    let reason = rejected(&mut acceptor);
    assert!(reason.starts_with("the worker is throng 9.9 and the controller throng "), "{reason}");
    assert_eq!(read.join().unwrap(), reason);
}

#[test]
fn unauthenticated_connections_get_no_information_and_are_rejected() {
    let mut acceptor = WorkerAcceptor::open(None, TOKEN.to_owned()).unwrap();
    let at = acceptor.local().unwrap();
    // Garbage: its first bytes announce a length beyond the limit.
    let mut stream = TcpStream::connect(at).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(rejected(&mut acceptor), "a frame of 1195725856 bytes is longer than the 1024 allowed here");
    // A frame of legal size with meaningless content.
    let mut stream = TcpStream::connect(at).unwrap();
    stream.write_all(b"\0\0\0\x02{}").unwrap();
    assert!(rejected(&mut acceptor).starts_with("a frame is not a valid message of this version"));
    // Nothing at all, then closed.
    drop(TcpStream::connect(at).unwrap());
    assert!(!rejected(&mut acceptor).is_empty());
    // A worker joins meanwhile.
    let _silent = TcpStream::connect(at).unwrap();
    let worker = worker(at, hello("a"), |_, _| Ok(()));
    assert_eq!(joined(&mut acceptor, 1).0.len(), 1);
    assert!(worker.join().unwrap().is_err(), "the gate let it go");
}

#[test]
fn an_oversized_frame_drops_its_worker() {
    let mut acceptor = WorkerAcceptor::open(None, TOKEN.to_owned()).unwrap();
    let at = acceptor.local().unwrap();
    let bad = std::thread::spawn(move || {
        let stream = TcpStream::connect(at).unwrap();
        handshake::join(&stream, TOKEN, hello("a")).unwrap();
        let mut out = &stream;
        out.write_all(&framing::encode(&WorkerMessage::Report(WorkerReport::Ready { rss: 0 })).unwrap())
            .unwrap();
        let _: ControllerMessage = framing::read(&mut &stream, AFTER_AUTH).unwrap().unwrap();
        out.write_all(&u32::MAX.to_be_bytes()).unwrap();
        let _ = (&stream).read_to_end(&mut Vec::new());
    });
    let (workers, _) = joined(&mut acceptor, 1);
    let run =
        conduct(setup(), workers, sync_channel(64), &mut Silent(Vec::new()), &InterruptCounter::default())
            .unwrap();
    bad.join().unwrap();
    assert_eq!(run.about.end, "all workers have ended");
    assert!(run.warnings[0].contains("longer than the 67108864 allowed"), "{:?}", run.warnings);
}

#[test]
fn a_worker_never_blocks_on_a_controller_that_does_not_read() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut controller, _) = listener.accept().unwrap();
    let mut link = super::controller_connection::ControllerConnection::new(stream).unwrap();
    let log = vec!["x".repeat(1_000); 100];
    // Ten megabytes, far beyond the kernel's buffers.
    for second in 0..100 {
        let snapshot = WorkerSnapshot { second, log: log.clone(), ..WorkerSnapshot::default() };
        link.send(WorkerReport::Snapshot(Box::new(snapshot))).unwrap();
        assert!(link.receive().unwrap().is_empty());
    }
    let reader = std::thread::spawn(move || {
        let mut seen = 0;
        while let Some(WorkerMessage::Report(WorkerReport::Snapshot(snapshot))) =
            framing::read(&mut controller, AFTER_AUTH).unwrap()
        {
            assert_eq!(snapshot.second, seen);
            seen += 1;
        }
        seen
    });
    link.finish().unwrap();
    assert_eq!(reader.join().unwrap(), 100);
}

#[test]
fn a_worker_ends_when_its_controller_is_gone() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut link = super::controller_connection::ControllerConnection::new(stream).unwrap();
    drop(listener.accept().unwrap());
    let error = loop {
        match link.receive() {
            Ok(_) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => break error,
        }
    };
    assert_eq!(error.to_string(), "the connection to the controller was lost");
}
