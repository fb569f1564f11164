//! A node with doors for HTTP: plain, TLS, and behind a proxy.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use base::clock::{Clock, SystemClock};
use testkit::tls::trusting;

use super::client::Web;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const PASSWORD: &str = "correct horse";

/// A folder, its configuration and the node in it.
pub(crate) struct Node {
    folder: PathBuf,
    ports: [u16; 4],
    door: &'static str,
    process: Option<Child>,
}

impl Node {
    /// A node with this configuration besides its listeners, and the account romeo.
    pub(crate) fn start(name: &str, more: &str) -> Node {
        Node::start_with(name, more, "plain_without_tls = true\n")
    }
    /// The same with keys of the plain listener.
    pub(crate) fn start_with(name: &str, more: &str, door: &'static str) -> Node {
        let folder = std::env::temp_dir().join(format!("throng-web-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let ports = [(); 4].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"));
        let ports = ports.map(|listener| listener.local_addr().expect("a bound port").port());
        let mut node = Node { folder, ports, door, process: None };
        node.configure(more);
        node.good(&["account", "add", "--password", PASSWORD, "romeo@localhost", "--config", "throng.toml"]);
        let log = fs::File::create(node.folder.join("log")).expect("a log");
        let mut command = node.command(&["serve", "--config", "throng.toml"]);
        command.stdout(log.try_clone().expect("a log")).stderr(log);
        node.process = Some(command.spawn().expect("throng starts"));
        node.logged("Stop with");
        node
    }
    pub(crate) fn configure(&self, more: &str) {
        let Node { ports: [plain, tls, proxied, c2s], door, .. } = self;
        // The last one is refused without somebody who may send the header.
        let proxied = if more.contains("trusted_proxies") {
            format!(
                "[[listen]]\nkind = 'http'\naddress = '127.0.0.1:{proxied}'\nproxy_protocol = true\n\
                 [[listen]]\nkind = 'c2s'\naddress = '127.0.0.1:{c2s}'\nproxy_protocol = true\ntls = 'off'\n"
            )
        } else {
            String::new()
        };
        let text = format!(
            "data_dir = 'data'\n{more}\n[[listen]]\nkind = 'http'\naddress = '127.0.0.1:{plain}'\n{door}\
             [[listen]]\nkind = 'https'\naddress = '127.0.0.1:{tls}'\n{proxied}"
        );
        fs::write(self.folder.join("throng.toml"), text).expect("a configuration");
    }
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(throng());
        command.args(words).current_dir(&self.folder).stdin(Stdio::null());
        command
    }
    fn good(&self, words: &[&str]) -> String {
        let output = self.command(words).output().expect("throng ends");
        let text = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
        assert!(output.status.success(), "{words:?}: {text}\n{}", self.log());
        text
    }
    pub(crate) fn reload(&self) -> String {
        self.good(&["reload", "--config", "throng.toml"])
    }
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
    /// Waits until the log has this.
    pub(crate) fn logged(&self, what: &str) {
        let clock = SystemClock::new();
        while !self.log().contains(what) {
            assert!(clock.now().0 < PATIENCE.as_millis() as u64, "no {what} in {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    /// Ends the node in good order; how long it took.
    pub(crate) fn stop(&mut self) -> Duration {
        let clock = SystemClock::new();
        let mut process = self.process.take().expect("a running node");
        let sent = Command::new("sh").args(["-c", &format!("kill -TERM {}", process.id())]).status();
        assert!(sent.expect("sh").success());
        assert!(process.wait().expect("a child").success(), "{}", self.log());
        Duration::from_millis(clock.now().0)
    }
    pub(crate) fn plain(&self) -> Web {
        Web::over(Box::new(socket(self.ports[0])))
    }
    /// Where a PROXY header comes first.
    pub(crate) fn proxied(&self) -> Web {
        Web::over(Box::new(socket(self.ports[2])))
    }
    /// XMPP over TCP where a PROXY header comes first.
    pub(crate) fn proxied_xmpp(&self) -> TcpStream {
        socket(self.ports[3])
    }
    pub(crate) fn tls(&self) -> Web {
        self.tls_with(&[])
    }
    /// With these protocols on offer.
    pub(crate) fn tls_with(&self, protocols: &[&[u8]]) -> Web {
        let config = Arc::new(trusting(protocols));
        let name = "localhost".try_into().expect("a name");
        let connection = rustls::ClientConnection::new(config, name).expect("a client");
        Web::over(Box::new(rustls::StreamOwned::new(connection, self.tls_socket())))
    }
    pub(crate) fn tls_socket(&self) -> TcpStream {
        socket(self.ports[1])
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

fn socket(port: u16) -> TcpStream {
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket
}

/// The program, beside this test's own.
fn throng() -> PathBuf {
    let own = std::env::current_exe().expect("the path of the test");
    let folder = own.parent().and_then(|deps| deps.parent()).expect("target/debug");
    folder.join("throng")
}
