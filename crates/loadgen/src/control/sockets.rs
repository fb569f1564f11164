//! Controller and workers over real loopback sockets; the engine is a stand-in that speaks the protocol.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, bail};

use super::drive::{Moment, Setup, Watch, conduct};
use super::frame::{self, AFTER_AUTH};
use super::gate::{Came, Gate};
use super::handshake::{self, Down, Hello, Joined, Up};
use super::interrupt::Interrupts;
use super::message::{Assignment, Command, Final, Report};
use super::worker::serve;
use crate::clock;
use crate::engine::Port;
use crate::host::Host;
use crate::measure::{Counter, Gauge, Snapshot};
use crate::plan::{self, AccountSource, Accounts, Plan, Security, Target, Tls};
use crate::report::model::{About, Run};

const TOKEN: &str = "a token";

struct Silent(Vec<String>);

impl Watch for Silent {
    fn line(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }
    fn update(&mut self, _run: &Run, _now: &Moment) {}
}

fn small_plan() -> Plan {
    let (prefix, password) = ("u".to_owned(), "p".to_owned());
    Plan {
        name: "test".to_owned(),
        title: String::new(),
        target: Target {
            addresses: Vec::new(),
            domain: "localhost".to_owned(),
            security: Security::None,
            tls: Tls::default(),
            sources: Vec::new(),
            web: Default::default(),
        },
        accounts: Accounts {
            source: AccountSource::Pattern { prefix, first: 0, count: 100, stride: 1, password },
            domain: "localhost".to_owned(),
        },
        phases: Vec::new(),
        starts: Vec::new(),
        sessions: Vec::new(),
        transactions: Vec::new(),
        options: plan::Options { connections: 100, drain_ms: 200, ..plan::Options::default() },
    }
}

fn setup() -> Setup {
    Setup {
        plan: small_plan(),
        about: About::default(),
        workers: 0,
        listen: None,
        expect: 0,
        token: TOKEN.to_owned(),
        host: Host::default(),
        salts: None,
    }
}

fn hello(name: &str) -> Hello {
    Hello { name: name.to_owned(), cores: 2, files: 20_000, ..handshake::myself(String::new(), Vec::new()) }
}

/// A worker on a thread of its own.
fn worker(
    at: SocketAddr,
    hello: Hello,
    engine: impl FnOnce(Assignment, &mut dyn Port) -> Result<()> + Send + 'static,
) -> JoinHandle<Result<()>> {
    std::thread::spawn(move || serve(TcpStream::connect(at)?, TOKEN, hello, engine))
}

/// Waits until so many have joined; what else came is in the second list.
fn joined(gate: &mut Gate, wanted: usize) -> (Vec<Joined>, Vec<String>) {
    let (mut workers, mut strangers) = (Vec::new(), Vec::new());
    let deadline = clock::now_us() + 20_000_000;
    while workers.len() < wanted {
        for came in gate.poll() {
            match came {
                Came::Worker(worker) => workers.push(*worker),
                Came::Stranger(_, why) => strangers.push(why),
            }
        }
        assert!(clock::now_us() < deadline, "{} of {wanted} joined; {strangers:?}", workers.len());
        std::thread::sleep(Duration::from_millis(1));
    }
    workers.sort_by(|a, b| a.hello.name.cmp(&b.hello.name));
    (workers, strangers)
}

fn stranger(gate: &mut Gate) -> String {
    let deadline = clock::now_us() + 20_000_000;
    loop {
        match gate.poll().into_iter().next() {
            Some(Came::Stranger(_, why)) => return why,
            Some(Came::Worker(_)) => panic!("it was let in"),
            None => {}
        }
        assert!(clock::now_us() < deadline, "nothing came");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The next commands, waiting for them.
fn wait(port: &mut dyn Port) -> Result<Vec<Command>> {
    loop {
        let commands = port.receive()?;
        if !commands.is_empty() {
            return Ok(commands);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn wait_for(port: &mut dyn Port, wanted: impl Fn(&Command) -> bool) -> Result<Command> {
    loop {
        if let Some(found) = wait(port)?.into_iter().find(&wanted) {
            return Ok(found);
        }
    }
}

fn snapshot(second: u32, sent: u64, users: i64) -> Report {
    let mut counters = vec![0; Counter::ALL.len()];
    counters[Counter::MessagesSent as usize] = sent;
    let mut gauges = vec![0; Gauge::ALL.len()];
    gauges[Gauge::Users as usize] = users;
    Report::Snapshot(Box::new(Snapshot { second, counters, gauges, ..Snapshot::default() }))
}

/// A worker's part of a short run, in order: ready, start, a snapshot, drain, close, final.
fn scripted(assignment: Assignment, port: &mut dyn Port) -> Result<()> {
    port.send(Report::Ready { rss: 5 })?;
    wait_for(port, |command| matches!(command, Command::Start { .. }))?;
    port.send(snapshot(0, 10, 20))?;
    port.send(Report::Draining)?;
    port.send(snapshot(1, 0, 20))?;
    wait_for(port, |command| *command == Command::Close)?;
    let me = u32::from(assignment.worker);
    // Each sends ten to the next one's first user; worker 0's loses one of them.
    let next = (me + 1) % assignment.owners.len() as u32;
    let last = Final {
        snapshot: Snapshot { second: 2, ..Snapshot::default() },
        sent: vec![(next, 10)],
        arrived: vec![(me, if me == 0 { 9 } else { 10 })],
        steady: vec![me],
        ..Final::default()
    };
    port.send(Report::Final(Box::new(last)))
}

#[test]
fn three_workers_are_one_run() {
    let mut gate = Gate::open(None, TOKEN.to_owned()).unwrap();
    let at = gate.local().unwrap();
    let workers: Vec<_> = ["a", "b", "c"].map(|name| worker(at, hello(name), scripted)).into();
    let (workers_joined, _) = joined(&mut gate, 3);
    assert!(workers_joined.iter().all(|worker| worker.half_trip_us < 1_000_000));
    let mut watch = Silent(Vec::new());
    let run = conduct(setup(), workers_joined, sync_channel(64), &mut watch, &Interrupts::default()).unwrap();
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
fn all_begin_at_one_moment_of_one_clock() {
    let mut gate = Gate::open(None, TOKEN.to_owned()).unwrap();
    let at = gate.local().unwrap();
    let (tell, told) = sync_channel(8);
    let workers: Vec<_> = ["a", "b", "far"]
        .map(|name| {
            let tell = tell.clone();
            let mut hello = hello(name);
            if name == "far" {
                hello.machine = "another boot".to_owned();
            }
            worker(at, hello, move |assignment, port| {
                port.send(Report::Ready { rss: 0 })?;
                let Command::Start { in_us, at_us } =
                    wait_for(port, |command| matches!(command, Command::Start { .. }))?
                else {
                    bail!("no start")
                };
                tell.send((assignment.clocks.clone(), in_us, at_us, clock::now_us()))?;
                port.send(Report::Refused("enough".to_owned()))
            })
        })
        .into();
    let (workers_joined, _) = joined(&mut gate, 3);
    let run =
        conduct(setup(), workers_joined, sync_channel(64), &mut Silent(Vec::new()), &Interrupts::default());
    assert_eq!(run.unwrap().about.end, "enough");
    drop(workers);
    let starts: Vec<_> = told.try_iter().collect();
    assert_eq!(starts.len(), 3);
    for (clocks, in_us, at_us, heard_us) in &starts {
        assert_eq!(*clocks, [0, 0, 1]);
        // One moment for all, and the delay never leads beyond it: what a worker hears late is only the way of the
        // frame, which is taken off.
        assert_eq!(*at_us, starts[0].2);
        assert!(*heard_us + 1 >= at_us.saturating_sub(*in_us + 1_000_000) && *in_us <= 500_000, "{starts:?}");
        assert!(heard_us < at_us, "told before the start: {starts:?}");
    }
}

#[test]
fn a_worker_that_dies_is_told_to_the_others_and_the_run_goes_on() {
    let mut gate = Gate::open(None, TOKEN.to_owned()).unwrap();
    let at = gate.local().unwrap();
    let survivor = worker(at, hello("a"), |_, port| {
        port.send(Report::Ready { rss: 0 })?;
        wait_for(port, |command| *command == Command::Gone(1))?;
        port.send(Report::Draining)?;
        port.send(snapshot(1, 0, 0))?;
        wait_for(port, |command| *command == Command::Close)?;
        port.send(Report::Final(Box::default()))
    });
    let victim = std::thread::spawn(move || {
        let stream = TcpStream::connect(at).unwrap();
        handshake::join(&stream, TOKEN, hello("b")).unwrap();
        let mut out = &stream;
        out.write_all(&frame::encode(&Up::Report(Report::Ready { rss: 0 })).unwrap()).unwrap();
        let start: Down = frame::read(&mut &stream, AFTER_AUTH).unwrap().unwrap();
        assert!(matches!(start, Down::Command(Command::Start { .. })));
        out.write_all(&frame::encode(&Up::Report(snapshot(0, 1, 33))).unwrap()).unwrap();
        // Killed: the kernel closes its connection.
    });
    let (workers, _) = joined(&mut gate, 2);
    let run =
        conduct(setup(), workers, sync_channel(64), &mut Silent(Vec::new()), &Interrupts::default()).unwrap();
    survivor.join().unwrap().unwrap();
    victim.join().unwrap();
    assert_eq!(run.about.end, "finished");
    assert_eq!(run.workers[1].died.map(|died| died.1), Some(33));
    assert!(run.warnings[0].starts_with("worker 1 (b, process "), "{:?}", run.warnings);
}

#[test]
fn ctrl_c_once_ends_in_order() {
    let mut gate = Gate::open(None, TOKEN.to_owned()).unwrap();
    let at = gate.local().unwrap();
    let interrupts = Interrupts::default();
    let pressed = interrupts.clone();
    let worker = worker(at, hello("a"), move |_, port| {
        port.send(Report::Ready { rss: 0 })?;
        wait_for(port, |command| matches!(command, Command::Start { .. }))?;
        pressed.add();
        wait_for(port, |command| *command == Command::Stop)?;
        port.send(Report::Draining)?;
        wait_for(port, |command| *command == Command::Close)?;
        port.send(Report::Final(Box::default()))
    });
    let (workers, _) = joined(&mut gate, 1);
    let run = conduct(setup(), workers, sync_channel(64), &mut Silent(Vec::new()), &interrupts).unwrap();
    worker.join().unwrap().unwrap();
    assert_eq!(run.about.end, "interrupted");
    assert_eq!(run.workers[0].died, None);
}

#[test]
fn an_engine_that_fails_says_why() {
    let mut gate = Gate::open(None, TOKEN.to_owned()).unwrap();
    let worker = worker(gate.local().unwrap(), hello("a"), |_, _| bail!("no file is left"));
    let (workers, _) = joined(&mut gate, 1);
    let error = conduct(setup(), workers, sync_channel(64), &mut Silent(Vec::new()), &Interrupts::default());
    assert_eq!(error.unwrap_err().to_string(), "no file is left");
    assert!(worker.join().unwrap().is_err());
}

#[test]
fn a_wrong_token_is_refused_on_both_sides() {
    let mut gate = Gate::open(None, TOKEN.to_owned()).unwrap();
    let at = gate.local().unwrap();
    let guess = std::thread::spawn(move || {
        handshake::join(&TcpStream::connect(at).unwrap(), "another token", hello("a"))
            .unwrap_err()
            .to_string()
    });
    assert!(stranger(&mut gate).starts_with("the token is wrong"));
    assert!(guess.join().unwrap().starts_with("the token is wrong"));
    // And a controller that does not know it learns nothing but nonces: the worker leaves before saying who it is.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let worker = std::thread::spawn(move || {
        handshake::join(&TcpStream::connect(at).unwrap(), TOKEN, hello("a")).unwrap_err().to_string()
    });
    let (mut stream, _) = listener.accept().unwrap();
    let raw = |text: &str| [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat();
    stream.write_all(&raw(r#"{"protocol":1,"version":"0","nonce":"n"}"#)).unwrap();
    let answer: serde_json::Value = frame::read(&mut stream, 1_024).unwrap().unwrap();
    assert!(answer["proof"].is_string());
    stream.write_all(&raw(r#"{"Welcome":{"proof":"AAAA"}}"#)).unwrap();
    assert!(worker.join().unwrap().contains("does not know the token"));
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"");
}

#[test]
fn another_version_is_told_so() {
    let mut gate = Gate::open(None, TOKEN.to_owned()).unwrap();
    let mut stream = TcpStream::connect(gate.local().unwrap()).unwrap();
    let read = std::thread::spawn(move || {
        let _: serde_json::Value = frame::read(&mut stream, 1_024).unwrap().unwrap();
        let text = r#"{"protocol":99,"version":"9.9","nonce":"n","proof":"","more":1}"#;
        stream.write_all(&[&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()).unwrap();
        let verdict: serde_json::Value = frame::read(&mut stream, 1_024).unwrap().unwrap();
        verdict["Refused"].as_str().unwrap().to_owned()
    });
    let why = stranger(&mut gate);
    assert!(why.starts_with("the worker is throng 9.9 and the controller throng "), "{why}");
    assert_eq!(read.join().unwrap(), why);
}

#[test]
fn strangers_are_told_nothing_and_let_in_nowhere() {
    let mut gate = Gate::open(None, TOKEN.to_owned()).unwrap();
    let at = gate.local().unwrap();
    // Garbage: its first bytes announce a length beyond the limit.
    let mut stream = TcpStream::connect(at).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(stranger(&mut gate), "a frame of 1195725856 bytes is longer than the 1024 allowed here");
    // A frame in size that says nothing sensible.
    let mut stream = TcpStream::connect(at).unwrap();
    stream.write_all(b"\0\0\0\x02{}").unwrap();
    assert!(stranger(&mut gate).starts_with("a frame is not a message of this version"));
    // Nothing at all, and gone.
    drop(TcpStream::connect(at).unwrap());
    assert!(!stranger(&mut gate).is_empty());
    // Meanwhile a worker comes in.
    let _silent = TcpStream::connect(at).unwrap();
    let worker = worker(at, hello("a"), |_, _| Ok(()));
    assert_eq!(joined(&mut gate, 1).0.len(), 1);
    assert!(worker.join().unwrap().is_err(), "the gate let it go");
}

#[test]
fn an_oversized_frame_of_a_worker_is_its_death() {
    let mut gate = Gate::open(None, TOKEN.to_owned()).unwrap();
    let at = gate.local().unwrap();
    let bad = std::thread::spawn(move || {
        let stream = TcpStream::connect(at).unwrap();
        handshake::join(&stream, TOKEN, hello("a")).unwrap();
        let mut out = &stream;
        out.write_all(&frame::encode(&Up::Report(Report::Ready { rss: 0 })).unwrap()).unwrap();
        let _: Down = frame::read(&mut &stream, AFTER_AUTH).unwrap().unwrap();
        out.write_all(&u32::MAX.to_be_bytes()).unwrap();
        let _ = (&stream).read_to_end(&mut Vec::new());
    });
    let (workers, _) = joined(&mut gate, 1);
    let run =
        conduct(setup(), workers, sync_channel(64), &mut Silent(Vec::new()), &Interrupts::default()).unwrap();
    bad.join().unwrap();
    assert_eq!(run.about.end, "no worker is left");
    assert!(run.warnings[0].contains("longer than the 67108864 allowed"), "{:?}", run.warnings);
}

#[test]
fn a_link_never_waits_for_a_controller_that_does_not_read() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut controller, _) = listener.accept().unwrap();
    let mut link = super::link::Link::new(stream).unwrap();
    let log = vec!["x".repeat(1_000); 100];
    // Ten megabytes, far beyond what the kernel keeps.
    for second in 0..100 {
        let snapshot = Snapshot { second, log: log.clone(), ..Snapshot::default() };
        link.send(Report::Snapshot(Box::new(snapshot))).unwrap();
        assert!(link.receive().unwrap().is_empty());
    }
    let reader = std::thread::spawn(move || {
        let mut seen = 0;
        while let Some(Up::Report(Report::Snapshot(snapshot))) =
            frame::read(&mut controller, AFTER_AUTH).unwrap()
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
    let mut link = super::link::Link::new(stream).unwrap();
    drop(listener.accept().unwrap());
    let error = loop {
        match link.receive() {
            Ok(_) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => break error,
        }
    };
    assert_eq!(error.to_string(), "the controller is gone");
}
