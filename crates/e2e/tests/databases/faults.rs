//! Each way in which a database fails, end to end and under load, on one node that is never restarted: online users exchange
//! messages all the time, logins succeed or fail temporarily, and what was acknowledged for offline users is delivered.
//!
//! The counts of messages sent, acknowledged and found are printed:
//! `cargo test -p throng-e2e --test databases faults -- --nocapture`.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use test_databases::{Proxy, Server, ServerKind, ServerSetup};
use throng_e2e::text_client::{DOMAIN, TextClient};
use throng_e2e::{NodeProcess, ports, wait};

use crate::add_accounts;
use crate::load::{Chat, OfflineLoad};

const SENDERS: usize = 2;

/// Delay of each answer of a slow database.
const DELAY: Duration = Duration::from_millis(300);

/// Round trips of the online users during each phase of a fault.
const ROUND_TRIPS: u64 = 50;

/// Messages that are acknowledged before and after a fault, of each sender.
const ACKNOWLEDGED: u64 = 20;

/// Time for a login to succeed or to fail: two reads of 5 s each, on a busy machine. No client gives up earlier.
const MAX_LOGIN_TIME: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// Answers take [`DELAY`].
    Slow,
    /// The disk is full.
    Full,
    /// The server is killed and started again, twice.
    Restarting,
    /// The server is restarted so that it refuses writes.
    ReadOnly,
    /// As clients see a failover behind one address: the old primary refuses writes, then no connection is accepted, then a
    /// server that accepts writes has the data. It is not a replica: the same server becomes primary again.
    FailingOver,
    /// The server is stopped.
    Gone,
}

/// A node with a database behind a proxy, and its online users.
struct Trial {
    server: Server,
    proxy: Proxy,
    node: NodeProcess,
    port: u16,
    http: u16,
    chat: Chat,
}

impl Trial {
    fn start(kind: ServerKind, faults: &[Fault]) -> Trial {
        let disk_megabytes = faults.contains(&Fault::Full).then_some(400);
        let server = Server::start_with(kind, &ServerSetup { disk_megabytes, ..ServerSetup::default() });
        let proxy = Proxy::start(server.address());
        let url = server.default_url();
        let url = url.replacen(&server.address().to_string(), &proxy.address().to_string(), 1);
        let [port, http] = ports::free();
        let mut node = NodeProcess::new(&format!("database-faults-{kind:?}-{}", faults.len()));
        node.configure(&format!(
            "hosts = ['{DOMAIN}']\ndata_dir = 'data'\n[auth]\nscram_iterations = 4096\n\
             [storage]\nurl = '{url}'\n[limits]\nnew_connections_per_second = 0\n\
             [modules.offline]\nmax_messages = 1000000\nmax_bytes = 1000000000\nsender_percent = 100\n\
             [[listen]]\nkind = 'c2s'\naddress = '127.0.0.1:{port}'\ntls = 'off'\n\
             [[listen]]\nkind = 'http'\naddress = '127.0.0.1:{http}'\n"
        ));
        add_accounts(&node, &["romeo", "juliet", "visitor"]);
        for number in 0..SENDERS {
            add_accounts(&node, &[&format!("sender{number}")]);
            for fault in faults {
                add_accounts(&node, &[&absent(*fault, number)]);
            }
        }
        node.start();
        let chat = Chat::start(port, ["romeo", "juliet"]);
        chat.wait_for_round_trips(1);
        Trial { server, proxy, node, port, http, chat }
    }

    /// Whether a login succeeds; otherwise it fails temporarily.
    fn can_login(&self) -> bool {
        let begun = Instant::now();
        let result = TextClient::try_login(self.port, "visitor");
        assert!(begun.elapsed() < MAX_LOGIN_TIME, "{:?}", begun.elapsed());
        if let Err(failure) = &result {
            assert!(failure.contains("<temporary-auth-failure"), "{failure}");
        }
        result.is_ok()
    }

    /// Puts the database right while a login waits for it.
    fn recover_during_login(&self, recover: impl FnOnce()) {
        thread::scope(|scope| {
            let login = scope.spawn(|| self.can_login());
            self.chat.wait_for_round_trips(ROUND_TRIPS);
            recover();
            let succeeded = login.join().expect("no panic");
            println!("{:?}: a login during the recovery succeeds: {succeeded}", self.server.kind());
        });
    }

    fn survive(&self, fault: Fault) {
        let pairs = (0..SENDERS).map(|number| [format!("sender{number}"), absent(fault, number)]).collect();
        // Messages of some kilobytes need space that the database has not reserved.
        let load = OfflineLoad::start(self.port, pairs, if fault == Fault::Full { 3000 } else { 300 });
        load.wait_for_acknowledged(ACKNOWLEDGED);
        self.chat.take_slowest();
        self.inject(fault, &load);
        let slowest = self.chat.take_slowest();
        load.wait_for_acknowledged(ACKNOWLEDGED);
        wait("a login after the fault", || self.can_login().then_some(()));
        let counts = load.end(self.port);
        println!(
            "{:?}, {fault:?}: {counts:?}, the slowest round trip of online users took {slowest:?}",
            self.server.kind()
        );
    }

    fn inject(&self, fault: Fault, load: &OfflineLoad) {
        let Trial { server, proxy, chat, .. } = self;
        match fault {
            Fault::Slow => {
                proxy.delay(DELAY);
                chat.wait_for_round_trips(ROUND_TRIPS);
                let begun = Instant::now();
                assert!(self.can_login());
                assert!(begun.elapsed() > DELAY);
                load.wait_for_acknowledged(ACKNOWLEDGED);
                proxy.delay(Duration::ZERO);
            }
            Fault::Full => {
                server.fill_disk();
                load.wait_for_refused(1);
                chat.wait_for_round_trips(ROUND_TRIPS);
                assert!(self.can_login());
                server.free_disk();
            }
            Fault::Restarting => {
                for _ in 0..2 {
                    server.kill();
                    self.recover_during_login(|| server.run());
                    load.wait_for_acknowledged(1);
                }
            }
            Fault::ReadOnly => {
                server.restart_read_only(true);
                load.wait_for_refused(1);
                chat.wait_for_round_trips(ROUND_TRIPS);
                assert!(self.can_login());
                server.restart_read_only(false);
            }
            Fault::FailingOver => {
                server.restart_read_only(true);
                chat.wait_for_round_trips(ROUND_TRIPS);
                proxy.refuse(true);
                self.recover_during_login(|| {
                    server.restart_read_only(false);
                    proxy.refuse(false);
                });
            }
            Fault::Gone => self.inject_gone(),
        }
    }

    /// The metrics of the pools show it.
    fn inject_gone(&self) {
        assert_eq!(self.pool("login", "connections_max"), 1.0);
        assert_eq!(self.pool("read", "connections_max"), 12.0);
        assert_eq!(self.pool("read", "connections_min"), 2.0);
        for pool in ["login", "write"] {
            assert_eq!(self.pool(pool, "circuit_open"), 0.0, "{pool}");
        }
        let failures = self.pool("write", "connect_failures_total");
        self.server.stop();
        self.chat.wait_for_round_trips(ROUND_TRIPS);
        assert!(!self.can_login());
        self.chat.wait_for_round_trips(ROUND_TRIPS);
        for pool in ["login", "write"] {
            wait("an open circuit", || (self.pool(pool, "circuit_open") == 1.0).then_some(()));
            assert_eq!(self.pool(pool, "connections_idle"), 0.0, "{pool}");
        }
        assert!(self.pool("write", "connect_failures_total") > failures);
        self.server.run();
        wait("a login", || self.can_login().then_some(()));
        for pool in ["login", "write"] {
            wait("a closed circuit", || (self.pool(pool, "circuit_open") == 0.0).then_some(()));
        }
    }

    /// The value of a metric of a pool.
    fn pool(&self, pool: &str, name: &str) -> f64 {
        let request = "GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n";
        let mut page = String::new();
        let read = TcpStream::connect((Ipv4Addr::LOCALHOST, self.http)).and_then(|mut stream| {
            stream.write_all(request.as_bytes())?;
            stream.read_to_string(&mut page)
        });
        read.expect("the metrics");
        let (name, label) = (format!("throng_store_pool_{name}{{"), format!("pool=\"{pool}\""));
        let mut lines = page.lines();
        let line = lines.find(|line| line.starts_with(&name) && line.contains(&label));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        value.unwrap_or_else(|| panic!("no {name} of {pool} in {page}"))
    }
}

/// An account that is offline until the end of a fault.
fn absent(fault: Fault, number: usize) -> String {
    format!("absent-{fault:?}-{number}").to_lowercase()
}

fn survives(kind: ServerKind, faults: &[Fault]) {
    let mut trial = Trial::start(kind, faults);
    let process = trial.node.pid();
    for fault in faults {
        trial.survive(*fault);
    }
    trial.chat.wait_for_round_trips(ROUND_TRIPS);
    trial.chat.end();
    assert_eq!(trial.node.pid(), process);
    trial.node.stop_in_order();
}

/// Those that need no disk of their own.
const FAULTS: [Fault; 5] = [Fault::Slow, Fault::Restarting, Fault::ReadOnly, Fault::FailingOver, Fault::Gone];

#[test]
fn nothing_is_lost_or_stalled_when_postgresql_fails_in_any_way() {
    survives(ServerKind::Postgres, &FAULTS);
}

#[test]
fn nothing_is_lost_or_stalled_when_mariadb_fails_in_any_way() {
    survives(ServerKind::MariaDb, &FAULTS);
}

#[test]
fn nothing_is_lost_or_stalled_when_mysql_fails_over() {
    survives(ServerKind::MySql, &[Fault::FailingOver]);
}

#[test]
fn nothing_is_lost_or_stalled_when_the_disk_of_postgresql_is_full() {
    survives(ServerKind::Postgres, &[Fault::Full]);
}

#[test]
fn nothing_is_lost_or_stalled_when_the_disk_of_mariadb_is_full() {
    survives(ServerKind::MariaDb, &[Fault::Full]);
}
