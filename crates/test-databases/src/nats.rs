//! A NATS server with JetStream, in a directory and on a port of its own.

use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::server_directory::{make_directory, unprivileged, write_private};
use crate::supervisor::Supervisor;
use crate::{MAX_STARTS, START_TIMEOUT, ports};

/// Where `setup.sh` installs it: Debian's is too old, and `nobody` must be able to run it.
const PROGRAM: &str = "/usr/local/lib/throng-tests-nats/nats-server";

/// What a server has besides the defaults.
#[derive(Clone, Debug, Default)]
pub struct NatsSetup {
    /// A certificate and its private key in PEM. The server accepts encrypted connections only.
    pub certificate: Option<[String; 2]>,
    /// Authorities in PEM that sign the certificates of clients, which must have one.
    pub client_authorities: Option<String>,
    /// Lines of the configuration, such as users.
    pub configuration: String,
    /// Where it listens instead of the loopback address, such as in a network namespace.
    pub address: Option<Ipv4Addr>,
}

/// A running server. Its data survive [`Self::kill`] and [`Self::stop`], except what is in memory.
#[derive(Debug)]
pub struct NatsServer {
    directory: PathBuf,
    address: SocketAddr,
    supervisor: Supervisor,
}

impl NatsServer {
    /// Starts a server.
    ///
    /// # Panics
    /// If it is not installed or does not start; the message says what to do.
    pub fn start() -> NatsServer {
        NatsServer::start_with(&NatsSetup::default())
    }

    /// Starts a server with further properties.
    ///
    /// # Panics
    /// If it is not installed or does not start; the message says what to do.
    pub fn start_with(setup: &NatsSetup) -> NatsServer {
        assert!(
            Path::new(PROGRAM).exists(),
            "this test needs {PROGRAM}: run `crates/test-databases/setup.sh`, or put nats-server 2.10 or newer there"
        );
        let directory = make_directory();
        let [port] = ports::free();
        let address = SocketAddr::from((setup.address.unwrap_or(Ipv4Addr::LOCALHOST), port));
        let configuration = write_configuration(&directory, address, setup);
        let run = [PROGRAM.into(), "--config".into(), configuration.into_os_string()];
        let supervisor = Supervisor::start(unprivileged("sh", &directory), &directory, "TERM", run);
        let server = NatsServer { directory, address, supervisor };
        server.run();
        server
    }

    /// Starts three servers that are a cluster.
    ///
    /// # Panics
    /// If they are not installed or do not start; the message says what to do.
    pub fn start_cluster() -> [NatsServer; 3] {
        let routes = ports::free::<3>();
        let urls = routes.map(|port| format!("\"nats://127.0.0.1:{port}\"")).join(", ");
        routes.map(|port| {
            let configuration = format!(
                "server_name: \"nats-{port}\"\ncluster {{ name: test, listen: \"127.0.0.1:{port}\", routes: [{urls}] }}"
            );
            NatsServer::start_with(&NatsSetup { configuration, ..NatsSetup::default() })
        })
    }

    /// Changes the properties of the server, from its next start on. It keeps its address.
    ///
    /// # Panics
    /// If the files cannot be written.
    pub fn configure(&self, setup: &NatsSetup) {
        write_configuration(&self.directory, self.address, setup);
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("nats://{}", self.address())
    }

    /// The process above that of the server, which lives as long as this value.
    pub fn process(&self) -> u32 {
        self.supervisor.process()
    }

    /// Starts the server again after [`Self::stop`] or [`Self::kill`], and waits until it accepts connections.
    ///
    /// # Panics
    /// If it does not start.
    pub fn run(&self) {
        let begun = Instant::now();
        for _ in 0..MAX_STARTS {
            let process = self.supervisor.command("start");
            while begun.elapsed() < START_TIMEOUT && Path::new("/proc").join(&process).exists() {
                if self.greets() {
                    return;
                }
                if is_zombie(&process) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            self.supervisor.command("kill");
        }
        panic!("the NATS server does not start:\n{}", self.log());
    }

    /// Stops the server as an administrator would.
    pub fn stop(&self) {
        self.supervisor.command("stop");
    }

    /// Kills the server.
    pub fn kill(&self) {
        self.supervisor.command("kill");
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// The server greets each client with its properties.
    fn greets(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(self.address()) else { return false };
        let mut greeting = [0; 5];
        stream.set_read_timeout(Some(Duration::from_secs(5))).is_ok()
            && stream.read_exact(&mut greeting).is_ok()
            && &greeting == b"INFO "
    }
}

/// Writes the configuration of a server, and the files that it names.
fn write_configuration(directory: &Path, address: SocketAddr, setup: &NatsSetup) -> PathBuf {
    let mut text = format!(
        "listen: \"{address}\"\njetstream {{ store_dir: \"{}\", max_memory_store: 64MB, max_file_store: 64MB }}\n{}\n",
        directory.join("data").display(),
        setup.configuration
    );
    if let Some([certificate, key]) = &setup.certificate {
        let certificate = write_private(directory, "certificate.pem", certificate);
        let key = write_private(directory, "key.pem", key);
        let _ = write!(text, "tls {{ cert_file: {certificate:?}, key_file: {key:?}");
        if let Some(authorities) = &setup.client_authorities {
            let authorities = write_private(directory, "authorities.pem", authorities);
            let _ = write!(text, ", ca_file: {authorities:?}, verify: true");
        }
        text.push_str(" }\n");
    }
    write_private(directory, "nats.conf", &text)
}

fn is_zombie(process: &str) -> bool {
    let status = fs::read_to_string(Path::new("/proc").join(process).join("status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && line.contains('Z'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_starts_again_after_a_kill_and_leaves_nothing() {
        let server = NatsServer::start();
        let directory = server.directory.clone();
        server.kill();
        assert!(!server.greets());
        server.run();
        server.stop();
        server.run();
        assert!(server.greets());
        drop(server);
        assert!(!directory.exists());
    }
}
