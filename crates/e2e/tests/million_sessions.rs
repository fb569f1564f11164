//! Cost of a million sessions in one process: memory, presence, messages, a broadcast.
//!
//! Real streams and stanzas over connections in memory (`net::Pipe`), all features, the memory store, rosters of 10 contacts who are
//! all online, one thread. `cargo xtask bench million-sessions` runs the measurement; a few sessions run with the other tests.
//!
//! Not measured: sockets, TLS, a database. The memory of accounts and rosters in the store is not counted; that of the pipes is
//! stated apart.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::cast_precision_loss,
    reason = "it measures time, prints what it has measured, and runs connections on its own thread"
)]

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use features::registry::ALL;
use jid::Jid;
use net::{ConnectionLimiter, Pipe};
use sasl::Credentials;
use store::{AddressId, BulkItem, BulkRoster, NewAccount, Subscription};
use testkit::server::{PASSWORD, STREAM_HEADER, TestServer, TestServerConfig, run_until_idle};
use throng_core::{Effects, Multicast, SharedStanza};

/// Contacts on each side of a user in the ring of all.
const CONTACTS_EACH_SIDE: usize = 5;
/// Connections that log in together.
const BATCH: usize = 500;
/// Capacity of a connection in each direction.
const PIPE_BYTES: usize = 65_536;

struct Sessions {
    server: TestServer,
    clients: Vec<Pipe>,
    /// What was read last.
    input: Vec<u8>,
}

fn bare(number: usize) -> Jid {
    Jid::parse(&format!("u{number}@example.com")).unwrap()
}

/// Appends what a client has received.
fn read(client: &mut Pipe, into: &mut Vec<u8>) -> usize {
    let mut cx = Context::from_waker(Waker::noop());
    let before = into.len();
    let mut chunk = [0; 4096];
    while let Poll::Ready(count @ 1..) = client.poll_read(&mut cx, &mut chunk) {
        into.extend_from_slice(&chunk[..count]);
    }
    into.len() - before
}

fn write(client: &mut Pipe, text: &str) {
    let mut cx = Context::from_waker(Waker::noop());
    assert!(
        matches!(client.poll_write(&mut cx, text.as_bytes()), Poll::Ready(Ok(count)) if count == text.len())
    );
}

fn live() -> f64 {
    counting_allocator::live_bytes() as f64
}

/// Resident memory of this process, in octets.
fn resident() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .map_or(0.0, |pages: f64| pages * 4096.0)
}

fn micros(time: Duration, count: usize) -> f64 {
    time.as_secs_f64() * 1e6 / count as f64
}

impl Sessions {
    /// A server with this number of accounts, each with its neighbours as contacts.
    async fn new(count: usize) -> Sessions {
        let mut config = TestServerConfig { features: ALL.to_vec(), ..TestServerConfig::default() };
        config.certificates = false;
        config.policy.allow_plain_without_tls = true;
        let mut server = config.start();
        // Without limits.
        server.connection_limiter = ConnectionLimiter::default();
        let credentials: Arc<[u8]> = Credentials::derive(PASSWORD, 64, b"salt").unwrap().encode().into();
        let accounts: Vec<NewAccount> = (0..count)
            .map(|number| NewAccount { jid: bare(number), credentials: credentials.clone() })
            .collect();
        let created = server.stores.accounts.create_bulk(accounts).await.unwrap();
        let ids: Vec<AddressId> = created.into_iter().map(|outcome| outcome.id()).collect();
        for (number, owner) in ids.iter().enumerate() {
            let neighbours = (1..=CONTACTS_EACH_SIDE).flat_map(|step| [number + step, number + count - step]);
            let items = neighbours.map(|neighbour| BulkItem {
                contact: ids[neighbour % count],
                name: None,
                groups: Vec::new(),
                subscription: Subscription::BOTH | Subscription::IN_ROSTER,
            });
            let roster = BulkRoster { owner: *owner, items: items.collect() };
            server.stores.roster.put_bulk(vec![roster]).await.unwrap();
        }
        Sessions { server, clients: Vec::new(), input: Vec::new() }
    }

    /// Reads what a client has received; it must contain this text.
    fn expect(&mut self, client: usize, text: &str) {
        self.input.clear();
        read(&mut self.clients[client], &mut self.input);
        let received = String::from_utf8_lossy(&self.input);
        assert!(received.contains(text), "{client}: {received}");
    }

    /// The next users log in, fetch their rosters and become available.
    async fn log_in(&mut self, count: usize) {
        let from = self.clients.len();
        for _ in from..from + count {
            let (connection, client) = self.server.connection(PIPE_BYTES);
            tokio::spawn(connection);
            self.clients.push(client);
        }
        let all = from..from + count;
        let steps: [(&str, &dyn Fn(usize) -> String); 4] = [
            ("</stream:features>", &|_| STREAM_HEADER.to_owned()),
            ("<success", &|number| {
                let response = sasl::client::plain(None, &format!("u{number}"), PASSWORD);
                let response = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, response);
                format!("<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>{response}</auth>")
            }),
            ("</stream:features>", &|_| STREAM_HEADER.to_owned()),
            ("<presence", &|_| {
                "<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><resource>r</resource></bind></iq>\
                 <iq type='get' id='r'><query xmlns='jabber:iq:roster'/></iq><presence/>"
                    .to_owned()
            }),
        ];
        for (answer, text) in steps {
            for number in all.clone() {
                write(&mut self.clients[number], &text(number));
            }
            run_until_idle().await;
            for number in all.clone() {
                self.expect(number, answer);
            }
        }
    }

    /// Reads everything; the number of octets.
    fn read_all(&mut self) -> usize {
        let mut octets = 0;
        for client in &mut self.clients {
            self.input.clear();
            octets += read(client, &mut self.input);
        }
        octets
    }

    /// One user sends, and all of these receive something.
    async fn send_and_read(&mut self, sender: usize, text: &str, receivers: &[usize]) -> Duration {
        let begun = Instant::now();
        write(&mut self.clients[sender], text);
        run_until_idle().await;
        let taken = begun.elapsed();
        for receiver in receivers {
            self.input.clear();
            assert!(read(&mut self.clients[*receiver], &mut self.input) > 0, "{receiver} received nothing");
        }
        taken
    }
}

async fn measure(count: usize, samples: usize) {
    let before = live();
    let pipes: Vec<(Pipe, Pipe)> = (0..1_000).map(|_| Pipe::pair(PIPE_BYTES)).collect();
    let pipe = (live() - before) / pipes.len() as f64;
    drop(pipes);

    let mut sessions = Sessions::new(count).await;
    sessions.clients.reserve_exact(count);
    let (allocated, was_resident, begun) = (live(), resident(), Instant::now());
    while sessions.clients.len() < count {
        let next = BATCH.min(count - sessions.clients.len());
        sessions.log_in(next).await;
    }
    let logins = begun.elapsed();
    sessions.read_all();
    run_until_idle().await;
    let each = (live() - allocated) / count as f64;
    println!("figure login {:.1} us", micros(logins, count));
    println!("figure memory.pipe {pipe:.0} B");
    println!("figure memory.session {:.0} B", each - pipe);
    println!("figure memory.resident {:.0} B", (resident() - was_resident) / count as f64);

    let (mut presence, mut messages) = (Duration::ZERO, Duration::ZERO);
    let mut random = fastrand::Rng::with_seed(1);
    for sample in 0..samples {
        let sender = random.usize(..count);
        let contacts: Vec<usize> = (1..=CONTACTS_EACH_SIDE)
            .flat_map(|step| [(sender + step) % count, (sender + count - step) % count])
            .collect();
        let show = if sample % 2 == 0 { "<presence><show>away</show></presence>" } else { "<presence/>" };
        presence += sessions.send_and_read(sender, show, &contacts).await;
        sessions.input.clear();
        // The sender receives its own presence.
        read(&mut sessions.clients[sender], &mut sessions.input);
        let to = random.usize(..count);
        let text =
            format!("<message to='u{to}@example.com' type='chat'><body>Art thou not Romeo?</body></message>");
        messages += sessions.send_and_read(sender, &text, &[to]).await;
    }
    println!("figure presence {:.2} us", micros(presence, samples * 2 * CONTACTS_EACH_SIDE));
    println!("figure message {:.2} us", micros(messages, samples));

    let from = Jid::parse("example.com").unwrap();
    let text = b"<message from='example.com' type='headline'><body>Maintenance at noon</body></message>";
    let recipients: Arc<[Jid]> = (0..count).map(bare).collect();
    let mut effects = Effects::default();
    effects.multicast(Multicast::new(SharedStanza::parse(text).unwrap(), from, recipients));
    let begun = Instant::now();
    sessions.server.node.perform(effects);
    let mut first_without = 0;
    while first_without < count {
        tokio::task::yield_now().await;
        let mut cx = Context::from_waker(Waker::noop());
        let rest = &mut sessions.clients[first_without..];
        let ready = rest.iter_mut().map_while(|client| client.poll_peek(&mut cx).is_ready().then_some(()));
        first_without += ready.count();
        assert!(begun.elapsed() < Duration::from_secs(300), "a copy is lost");
    }
    println!("figure broadcast {:.2} s", begun.elapsed().as_secs_f64());
    for client in 0..count {
        sessions.expect(client, "Maintenance at noon");
    }
    println!("figure memory.session_after {:.0} B", (live() - allocated) / count as f64 - pipe);
}

fn on_this_thread(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
}

#[test]
#[ignore = "a measurement"]
fn measure_a_million_sessions() {
    on_this_thread(measure(1_000_000, 20_000));
}

#[test]
fn the_measurement_works_with_few_sessions() {
    on_this_thread(measure(600, 20));
}
