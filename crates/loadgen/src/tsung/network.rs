//! `servers` and `clients` of Tsung scenarios: target and source addresses.
//!
//! Not implemented, but reported: other machines (they join with `throng load worker`), and limits of Tsung's virtual
//! machines.
//!
//! # Pitfalls
//!
//! Tsung chooses a server at random by weight; a plan's addresses get equal numbers of users, so a server is listed as often as
//! its weight requires.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};

use super::names;
use super::reader::{TsungReader, XmlNode, attribute, elements};
use crate::plan::{HttpBinding, PlanOverrides, StreamTransport, TransportSecurity};

/// Target servers.
#[derive(Debug, Default)]
pub(super) struct TsungServers {
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) security: TransportSecurity,
    pub(super) web: HttpBinding,
}

/// Maximum length of the address list for weighted servers.
const MAX_TURNS: f64 = 1_000.0;
/// Maximum number of source addresses in a range.
const MAX_SOURCES: usize = 4_096;
const SERVER_TYPES: [&str; 8] =
    ["tcp", "ssl", "tcp6", "ssl6", "bosh", "bosh_ssl", "websocket", "websocket_ssl"];

/// Server type: transport, transport security, and whether its IPv6 address is meant.
pub(super) type ServerType = (StreamTransport, TransportSecurity, bool);

impl TsungReader<'_> {
    pub(super) fn read_servers(
        &mut self,
        servers: Option<XmlNode<'_>>,
        arguments: &PlanOverrides,
    ) -> TsungServers {
        let mut found: Vec<(SocketAddr, f64)> = Vec::new();
        let mut used: Option<(StreamTransport, TransportSecurity)> = None;
        for node in servers.into_iter().flat_map(elements) {
            if node.tag_name().name() != "server" {
                self.unknown(node, ["server"]);
                continue;
            }
            self.known_attributes(node);
            let kind = self.server_type(node, "type");
            let host = self.needed(node, "host");
            let port = self.needed(node, "port").and_then(|_| self.whole(node, "port", 1, 65_535));
            let weight = self.number(node, "weight").unwrap_or(1.0);
            let (Some((transport, security, six)), Some(host), Some(port)) = (kind, host, port) else {
                continue;
            };
            let kind = (transport, security);
            if used.is_some_and(|other| other != kind) {
                let text = "this version supports one type of server per run";
                self.error(node, "server", text);
            }
            used = Some(kind);
            // Names overridden by the command line are not resolved, so that a scenario of another network runs too.
            if arguments.addresses.is_empty()
                && let Some(address) = self.resolved(node, host, port, six)
            {
                found.push((address, weight));
            }
        }
        match used {
            None if servers.is_none_or(|node| elements(node).next().is_none()) => {
                self.wrong_plan("no server is defined");
            }
            Some(_) if !arguments.addresses.is_empty() => {
                self.note_plan("the servers are replaced by --target")
            }
            _ => {}
        }
        let addresses =
            if arguments.addresses.is_empty() { turns(&found) } else { arguments.addresses.clone() };
        let (transport, security) = used.unwrap_or_default();
        let path = match transport {
            StreamTransport::Tcp => String::new(),
            StreamTransport::Bosh => self.settings.bosh_path.clone(),
            StreamTransport::WebSocket => self.settings.websocket_path.clone(),
        };
        let web = HttpBinding { transport, path, ..HttpBinding::default() };
        let requested = arguments
            .security
            .filter(|requested| !(transport.is_web() && *requested == TransportSecurity::Auto));
        TsungServers { addresses, security: requested.unwrap_or(security), web }
    }

    /// Parses the type of a server.
    pub(super) fn server_type(&mut self, node: XmlNode<'_>, name: &str) -> Option<ServerType> {
        let kind = self.needed(node, name)?;
        if let Some(reason) = names::refused_server(kind) {
            self.error(node, kind, reason);
            return None;
        }
        let kind = self.choice(node, name, &SERVER_TYPES)?;
        let transport = match kind {
            "bosh" | "bosh_ssl" => StreamTransport::Bosh,
            "websocket" | "websocket_ssl" => StreamTransport::WebSocket,
            _ => StreamTransport::Tcp,
        };
        let security = if kind.contains("ssl") { TransportSecurity::Direct } else { TransportSecurity::Auto };
        Some((transport, security, kind.ends_with('6')))
    }

    /// Resolves a host.
    pub(super) fn resolved(
        &mut self,
        node: XmlNode<'_>,
        host: &str,
        port: i64,
        six: bool,
    ) -> Option<SocketAddr> {
        let port = u16::try_from(port).unwrap_or(5222);
        let key = node.tag_name().name();
        match (host, port).to_socket_addrs() {
            Ok(addresses) => {
                let all: Vec<SocketAddr> = addresses.collect();
                let address = all.iter().find(|address| address.is_ipv6() == six).or(all.first()).copied();
                if address.is_none() {
                    self.error(node, key, format!("{host}: no address"));
                }
                address
            }
            Err(error) => {
                self.error(node, key, format!("{host}: {error}; use --target to give another address"));
                None
            }
        }
    }

    pub(super) fn read_clients(&mut self, clients: Option<XmlNode<'_>>) -> Vec<IpAddr> {
        let mut sources = Vec::new();
        for node in clients.into_iter().flat_map(elements) {
            if node.tag_name().name() != "client" {
                self.unknown(node, ["client"]);
                continue;
            }
            self.known_attributes(node);
            let host = attribute(node, "host").unwrap_or("localhost");
            let here = ["localhost", "127.0.0.1", "::1"].contains(&host);
            if attribute(node, "type") == Some("batch") {
                self.note(
                    node,
                    "client: machines of a job scheduler are ignored; let them join with `throng load \
                     worker`",
                );
                continue;
            } else if !here {
                self.note(
                    node,
                    format!("client {host} is ignored; let other machines join with `throng load worker`"),
                );
            }
            for name in ["cpu", "maxusers", "weight"] {
                if attribute(node, name).is_some() {
                    self.note(
                        node,
                        format!("client: {name} is ignored: the number of workers is chosen automatically"),
                    );
                }
            }
            for address in elements(node) {
                match address.tag_name().name() {
                    "ip" | "iprange" if !here => {}
                    "ip" => self.source(address, &mut sources),
                    "iprange" => self.range(address, &mut sources),
                    _ => self.unknown(address, ["ip", "iprange"]),
                }
            }
        }
        sources
    }

    fn source(&mut self, node: XmlNode<'_>, sources: &mut Vec<IpAddr>) {
        self.known_attributes(node);
        let Some(value) = self.needed(node, "value") else { return };
        if self.flag(node, "scan", false) {
            self.note(
                node,
                format!("ip: the addresses of {value} are not detected; give them with --source"),
            );
        } else if value == "resolve" {
            self.note(node, "ip: the address of this machine is the default; nothing changes");
        } else if let Ok(address) = value.parse() {
            sources.push(address);
        } else {
            self.error(node, "ip", format!("value=\"{value}\" is not an IP address"));
        }
    }

    /// `172.28.1-20.0-254`: each part of an IPv4 address may be a range.
    fn range(&mut self, node: XmlNode<'_>, sources: &mut Vec<IpAddr>) {
        self.known_attributes(node);
        let Some(value) = self.needed(node, "value") else { return };
        let parts: Option<Vec<(u8, u8)>> = value.split('.').map(part).collect();
        let Some([a, b, c, d]) = parts.as_deref().and_then(|parts| <&[(u8, u8); 4]>::try_from(parts).ok())
        else {
            self.error(
                node,
                "iprange",
                format!("value=\"{value}\" is not a range such as 172.28.1-20.0-254"),
            );
            return;
        };
        for a in a.0..=a.1 {
            for b in b.0..=b.1 {
                for c in c.0..=c.1 {
                    for d in d.0..=d.1 {
                        if sources.len() == MAX_SOURCES {
                            self.note(
                                node,
                                format!("iprange: only the first {MAX_SOURCES} addresses are used"),
                            );
                            return;
                        }
                        sources.push(IpAddr::V4(Ipv4Addr::new(a, b, c, d)));
                    }
                }
            }
        }
    }
}

fn part(text: &str) -> Option<(u8, u8)> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let (from, to) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
    (from <= to).then_some((from, to))
}

/// Repeats each address according to its weight.
fn turns(found: &[(SocketAddr, f64)]) -> Vec<SocketAddr> {
    let least =
        found.iter().map(|(_, weight)| *weight).filter(|weight| *weight > 0.0).fold(f64::INFINITY, f64::min);
    let total: f64 = found.iter().map(|(_, weight)| weight / least).sum();
    let shrink = (MAX_TURNS / total).min(1.0);
    let mut addresses = Vec::new();
    for (address, weight) in found {
        let times = if *weight > 0.0 { (weight / least * shrink).round().max(1.0) } else { 0.0 };
        addresses.extend(std::iter::repeat_n(*address, times as usize));
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_selected_by_weight() {
        let a: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let b: SocketAddr = "127.0.0.1:2".parse().unwrap();
        assert_eq!(turns(&[(a, 1.0), (b, 1.0)]), [a, b]);
        assert_eq!(turns(&[(a, 2.0), (b, 0.5)]), [a, a, a, a, b]);
        assert_eq!(turns(&[(a, 0.0), (b, 0.5)]), [b]);
        assert!(turns(&[(a, 1e9), (b, 0.001)]).len() <= 1_002);
    }
}
