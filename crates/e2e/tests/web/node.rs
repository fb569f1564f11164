//! A node with HTTP listeners: plain, TLS, and behind a proxy.

use std::net::{Ipv4Addr, TcpStream};
use std::ops::Deref;
use std::sync::Arc;

use testkit::tls::accept_any_certificate;
use throng_e2e::{TIMEOUT, ports};

use super::http_client::HttpClient;

pub(crate) const PASSWORD: &str = "correct horse";

/// A node with its listeners.
pub(crate) struct WebNode {
    node: throng_e2e::NodeProcess,
    ports: [u16; 4],
    listener_options: &'static str,
}

impl WebNode {
    /// Starts a node with the account romeo and with `more` appended to the configuration of its listeners.
    pub(crate) fn start(name: &str, more: &str) -> WebNode {
        WebNode::start_with(name, more, "allow_plain_without_tls = true\n")
    }

    /// Like `start`, with keys of the plain listener.
    pub(crate) fn start_with(name: &str, more: &str, listener_options: &'static str) -> WebNode {
        let node = throng_e2e::NodeProcess::new(&format!("web-{name}"));
        let mut node = WebNode { node, ports: ports::free(), listener_options };
        node.configure(more);
        node.add_account("romeo@localhost", PASSWORD);
        node.node.start();
        node
    }

    pub(crate) fn configure(&self, more: &str) {
        let WebNode { ports: [plain, tls, proxied, c2s], listener_options, .. } = self;
        // Listeners with `proxy_protocol` are rejected without trusted proxies.
        let proxied = if more.contains("trusted_proxies") {
            format!(
                "[[listen]]\nkind = 'http'\naddress = '127.0.0.1:{proxied}'\nproxy_protocol = true\n\
                 [[listen]]\nkind = 'c2s'\naddress = '127.0.0.1:{c2s}'\nproxy_protocol = true\ntls = 'off'\n"
            )
        } else {
            String::new()
        };
        self.node.configure(&format!(
            "data_dir = 'data'\n{more}\n[[listen]]\nkind = 'http'\naddress = '127.0.0.1:{plain}'\n{listener_options}\
             [[listen]]\nkind = 'https'\naddress = '127.0.0.1:{tls}'\n{proxied}"
        ));
    }

    pub(crate) fn reload(&self) -> String {
        self.run_ok(&["reload"])
    }

    /// Stops the node; all connections must end.
    pub(crate) fn stop_in_order(&mut self) {
        self.node.stop_in_order();
    }

    /// Starts the node again after it was stopped.
    pub(crate) fn start_again(&mut self) {
        self.node.start();
    }

    pub(crate) fn plain(&self) -> HttpClient {
        HttpClient::over(Box::new(socket(self.ports[0])))
    }

    /// A client of the listener that expects a PROXY header.
    pub(crate) fn proxied(&self) -> HttpClient {
        HttpClient::over(Box::new(socket(self.ports[2])))
    }

    /// XMPP over TCP with a PROXY header first.
    pub(crate) fn proxied_xmpp(&self) -> TcpStream {
        socket(self.ports[3])
    }

    pub(crate) fn tls(&self) -> HttpClient {
        self.tls_with(&[])
    }

    /// Offers these protocols in ALPN.
    pub(crate) fn tls_with(&self, protocols: &[&[u8]]) -> HttpClient {
        let config = Arc::new(accept_any_certificate(protocols));
        let name = "localhost".try_into().expect("a name");
        let connection = rustls::ClientConnection::new(config, name).expect("a client");
        HttpClient::over(Box::new(rustls::StreamOwned::new(connection, self.tls_socket())))
    }

    pub(crate) fn tls_socket(&self) -> TcpStream {
        socket(self.ports[1])
    }
}

impl Deref for WebNode {
    type Target = throng_e2e::NodeProcess;
    fn deref(&self) -> &throng_e2e::NodeProcess {
        &self.node
    }
}

fn socket(port: u16) -> TcpStream {
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
    socket.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    socket
}
