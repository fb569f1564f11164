//! Resident memory of connections, measured in a separate process against a server in another.
//!
//! # Pitfalls
//!
//! The two roles below are not tests. They receive commands over standard input and exit when it is closed.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::*;

const WARM_UP: usize = 100;
const CONNECTIONS: usize = 1_000;

/// Runs one of the roles in a process; its replies begin with the marker.
struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(role: &str) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("socket::tests::memory::{role}"), "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Process { child, input, output: BufReader::new(output) }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the process ended");
            if let Some((_, answer)) = line.split_once("answer=") {
                return answer.trim().to_owned();
            }
        }
    }

    fn end(mut self) {
        drop(self.input);
        io::copy(&mut self.output, &mut io::sink()).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

fn input() -> Option<String> {
    let mut line = String::new();
    (io::stdin().read_line(&mut line).unwrap() > 0).then(|| line.trim().to_owned())
}

/// Accepts connections, answers one message each, and keeps them open.
#[test]
#[ignore = "a role of the test below"]
fn server() {
    let Some(tls) = input() else { return };
    let (address, _) = serve(move |listener| {
        let config = Arc::new(server_config(&self_signed(NAME)));
        let mut held: Vec<Box<dyn std::any::Any + Send>> = Vec::new();
        let mut got = [0; 5];
        loop {
            if tls == "tls" {
                let mut stream = accept(&listener, &config);
                stream.read_exact(&mut got).unwrap();
                stream.write_all(b"answer").unwrap();
                held.push(Box::new(stream));
            } else {
                let (mut stream, _) = listener.accept().unwrap();
                stream.read_exact(&mut got).unwrap();
                stream.write_all(b"answer").unwrap();
                held.push(Box::new(stream));
            }
        }
    });
    println!("answer={address}");
    input();
}

/// Connects, and reports the growth of its resident memory, in bytes per connection.
#[test]
#[ignore = "a role of the test below"]
fn holder() {
    let Some(how) = input() else { return };
    let address = input().unwrap().parse().unwrap();
    let shared = client(|options| options.resumption = how != "tls-full");
    let mut scratch = WorkerBuffers::new();
    let mut held = Vec::with_capacity(WARM_UP + CONNECTIONS);
    let (mut before, mut cpu) = (0, 0);
    for turn in 0..WARM_UP + CONNECTIONS {
        if turn == WARM_UP {
            (before, cpu) = (resident(), crate::clock::cpu_us());
        }
        let socket = Socket::connect(address, None, &SocketOptions::default()).unwrap();
        let mut peer = Client::new(socket, scratch);
        wait(&peer.socket, PollFlags::OUT);
        if how != "plain" {
            peer = peer.with_tls(&shared, NAME, false);
            peer.handshake().unwrap();
        }
        peer.send(b"hello").unwrap();
        peer.read_bytes(6);
        if how != "plain" {
            let resumed = peer.socket.negotiated_tls().unwrap().resumed;
            assert_eq!(resumed, turn > 0 && how == "tls", "{turn}");
        }
        assert_eq!(peer.socket.held(), 0);
        held.push(peer.socket);
        scratch = peer.scratch;
    }
    let grown = resident() - before;
    let cpu = crate::clock::cpu_us() - cpu;
    println!("answer={} {}", grown / CONNECTIONS as u64, cpu / CONNECTIONS as u64);
    input();
}

/// Resident bytes of this process, private ones only.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = text.lines().find(|line| line.starts_with("Anonymous:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1_024
}

fn measure(how: &str) -> u64 {
    let mut server = Process::start("server");
    server.say(if how == "plain" { "plain" } else { "tls" });
    let address = server.answer();
    let mut holder = Process::start("holder");
    holder.say(how);
    holder.say(&address);
    let answer = holder.answer();
    let (bytes, cpu) = answer.split_once(' ').unwrap();
    println!("{how}: {bytes} bytes a connection, {cpu} us CPU of the client");
    holder.end();
    server.end();
    bytes.parse().unwrap()
}

/// The budgets of a whole connection are 1 kB and 4.5 kB; these are the socket's shares.
#[test]
fn connections_stay_within_their_memory() {
    assert!(measure("plain") <= 100);
    assert!(measure("tls-full") <= 700);
    // This includes the ticket store, which does not grow with connections.
    assert!(measure("tls") <= 1_200);
}

#[test]
fn an_established_connection_is_small() {
    let size = size_of::<crate::socket::tls::TlsConnection>();
    assert!(size <= 480, "{size}");
}

/// A measurement, not a test: `cargo test -p throng-loadgen --lib socket -- --ignored cost --nocapture`.
#[test]
#[ignore = "prints a figure that depends on the machine"]
fn cost_of_a_record() {
    const TIMES: u64 = 200_000;
    let layer = |ours, theirs| {
        let secret = |byte| tls_records::TrafficSecret::new(&[byte; 48]).unwrap();
        let suite = rustls::CipherSuite::TLS13_AES_256_GCM_SHA384;
        tls_records::RecordLayer::new(suite, secret(ours), secret(theirs), None).unwrap()
    };
    let (mut here, mut there) = (layer(1, 2), layer(2, 1));
    let WorkerBuffers { mut input, mut sealed, .. } = WorkerBuffers::new();
    for size in [100, 300, 16_384] {
        let (data, mut bytes) = (pattern(size), 0);
        let begun = crate::clock::cpu_us();
        for _ in 0..TIMES {
            sealed.clear();
            assert!(there.seal_data(&data, &mut sealed));
            let length = sealed.bytes().len();
            input[..length].copy_from_slice(sealed.bytes());
            sealed.clear();
            let opened = here.open(&mut input[..length], &mut sealed, &mut |data| bytes += data.len());
            assert!(opened.is_ok());
        }
        let spent = crate::clock::cpu_us() - begun;
        assert_eq!(bytes as u64, TIMES * size as u64);
        println!("{size} bytes: {:.2} us to seal and open", spent as f64 / TIMES as f64);
    }
}
