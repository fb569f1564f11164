//! `options` of Tsung scenarios: settings of all sessions.
//!
//! Not implemented, but reported: everything about Tsung's own machines (ssh, hibernation, log ports), rate limits, and
//! the options of other protocols.
//!
//! # Pitfalls
//!
//! The default values are Tsung's (`tsung.app`, `ts_jabber.hrl`), not ours: the response timeout is ten minutes, and a
//! connection is retried three times.

use hashbrown::HashMap;

use super::reader::{TsungReader, XmlNode, attribute, elements};
use crate::plan::nearest;

/// Default distribution of pauses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ThinkTimeDistribution {
    /// Constant.
    Fixed,
    /// Exponentially distributed.
    Exponential,
    /// Uniformly distributed between two numbers of seconds.
    Range(f64, f64),
}

/// Values of `options`, with Tsung's defaults.
#[derive(Debug)]
pub(super) struct TsungOptions {
    pub(super) domain: String,
    pub(super) muc_service: String,
    /// `None`: no request needs it.
    pub(super) pubsub_service: Option<String>,
    pub(super) prefix: String,
    pub(super) password: String,
    pub(super) userid_max: u32,
    pub(super) global_number: u32,
    /// Id of the domain file.
    pub(super) vhost_file: Option<(String, u32)>,
    /// Ids of the files from which destinations are chosen.
    pub(super) destinations_from: Vec<String>,
    pub(super) delimiter: String,
    /// In seconds.
    pub(super) thinktime: f64,
    pub(super) chance: ThinkTimeDistribution,
    pub(super) override_thinktime: bool,
    pub(super) answer_timeout_ms: u64,
    pub(super) global_timeout_ms: u64,
    pub(super) connect_timeout_ms: u64,
    pub(super) retries: u32,
    pub(super) retry_ms: u64,
    pub(super) seed: Option<u64>,
    pub(super) receive_buffer: Option<u32>,
    pub(super) send_buffer: Option<u32>,
    pub(super) resume: bool,
    pub(super) only_tls12: bool,
    /// BOSH path on the servers.
    pub(super) bosh_path: String,
    /// WebSocket path on the servers.
    pub(super) websocket_path: String,
    /// Path of each file, by id.
    pub(super) files: HashMap<String, String>,
}

impl Default for TsungOptions {
    fn default() -> Self {
        Self {
            domain: "erlang-projects.org".to_owned(),
            muc_service: "conference.localhost".to_owned(),
            pubsub_service: None,
            prefix: "tsunguser".to_owned(),
            password: "sesame".to_owned(),
            userid_max: 10_000,
            global_number: 100,
            vhost_file: None,
            destinations_from: Vec::new(),
            delimiter: ";".to_owned(),
            thinktime: 5.0,
            chance: ThinkTimeDistribution::Fixed,
            override_thinktime: false,
            answer_timeout_ms: 600_000,
            global_timeout_ms: 3_600_000,
            connect_timeout_ms: 30_000,
            retries: 3,
            retry_ms: 10,
            seed: None,
            receive_buffer: None,
            send_buffer: None,
            resume: true,
            only_tls12: false,
            bosh_path: "/http-bind/".to_owned(),
            websocket_path: "/chat".to_owned(),
            files: HashMap::new(),
        }
    }
}

const GENERAL: [&str; 16] = [
    "thinktime",
    "ssl_ciphers",
    "ssl_versions",
    "ssl_reuse_sessions",
    "seed",
    "rate_limit",
    "hibernate",
    "ports_range",
    "connect_timeout",
    "tcp_rcv_buffer",
    "tcp_snd_buffer",
    "idle_timeout",
    "global_ack_timeout",
    "max_retries",
    "retry_timeout",
    "file_server",
];

const XMPP: [&str; 10] = [
    "global_number",
    "userid_max",
    "domain",
    "username",
    "passwd",
    "muc_service",
    "pubsub_service",
    "vhost_file",
    "random_from_fileid",
    "fileid_delimiter",
];

impl TsungReader<'_> {
    /// Reads all options.
    pub(super) fn read_options(&mut self, options: XmlNode<'_>) {
        for node in elements(options) {
            if node.tag_name().name() != "option" {
                self.unknown(node, ["option"]);
                continue;
            }
            self.known_attributes(node);
            let Some(name) = self.needed(node, "name") else { continue };
            match attribute(node, "type") {
                None | Some("") => self.general(node, name),
                Some("ts_jabber") => self.xmpp(node, name),
                Some(other) => {
                    self.note(node, format!("option {name} of {other} is ignored: only XMPP is supported"))
                }
            }
        }
    }

    fn general(&mut self, node: XmlNode<'_>, name: &str) {
        match name {
            "thinktime" => self.default_thinktime(node),
            "connect_timeout" => {
                if let Some(ms) = self.whole(node, "value", 1, i64::from(u32::MAX)) {
                    self.settings.connect_timeout_ms = ms.unsigned_abs();
                }
            }
            "idle_timeout" => {
                if let Some(ms) = self.whole(node, "value", 1, i64::from(u32::MAX)) {
                    self.settings.answer_timeout_ms = ms.unsigned_abs();
                }
            }
            "global_ack_timeout" => {
                if attribute(node, "value") == Some("infinity") {
                    self.settings.global_timeout_ms = u64::from(u32::MAX);
                } else if let Some(ms) = self.whole(node, "value", 1, i64::from(u32::MAX)) {
                    self.settings.global_timeout_ms = ms.unsigned_abs();
                }
            }
            "max_retries" => self.settings.retries = self.count(node, "value").unwrap_or(3),
            "retry_timeout" => self.settings.retry_ms = u64::from(self.count(node, "value").unwrap_or(10)),
            "tcp_rcv_buffer" => self.settings.receive_buffer = self.count(node, "value"),
            "tcp_snd_buffer" => self.settings.send_buffer = self.count(node, "value"),
            "seed" => {
                if attribute(node, "value") != Some("now") {
                    self.settings.seed = self.whole(node, "value", 0, i64::MAX).map(i64::unsigned_abs);
                }
            }
            "ssl_reuse_sessions" => self.settings.resume = self.flag(node, "value", true),
            "ssl_versions" => self.tls_version(node),
            "global_number" => self.settings.global_number = self.count(node, "value").unwrap_or(100),
            "file_server" | "local_file_server" => {
                let Some(path) = self.needed(node, "value").filter(|path| !path.is_empty()) else { return };
                let id = attribute(node, "id").unwrap_or("default").to_owned();
                if self.settings.files.insert(id.clone(), path.to_owned()).is_some() {
                    self.error(node, "option", format!("file_server: there are two files with the id {id}"));
                }
            }
            "ports_range" => {
                let text =
                    "ports_range is ignored: the kernel chooses ports; use --source for more addresses";
                self.note(node, text);
            }
            "rate_limit" => {
                self.note(node, "rate_limit is ignored: this version does not limit the receive rate")
            }
            "ssl_ciphers" => {
                self.note(node, "ssl_ciphers is ignored: the server chooses among the default ciphers")
            }
            "ssl_disable_sni" => {
                if self.flag(node, "value", false) {
                    self.note(
                        node,
                        "ssl_disable_sni is ignored: the TLS handshake always contains the domain (SNI)",
                    );
                }
            }
            "ip_transparent" | "ip_bind_address_no_port" | "tcp_reuseaddr" | "tcp_reuseport" => {
                if self.flag(node, "value", false) {
                    self.note(
                        node,
                        format!("{name} is ignored: sockets are always tuned for many connections"),
                    );
                }
            }
            "hibernate" | "max_ssh_startup_per_core" | "job_notify_port" => {
                self.note(node, format!("{name} is ignored: it concerns Tsung's own processes"));
            }
            "bosh_path" | "websocket_path" => self.web_path(node, name),
            "websocket_frame" | "websocket_subprotocols" | "websocket_origin" => {
                self.note(
                    node,
                    format!(
                        "{name} is ignored: XMPP over WebSocket uses text frames and the \
                 subprotocol xmpp (RFC 7395)"
                    ),
                );
            }
            "udp_rcv_buffer" | "udp_snd_buffer" => {
                self.note(node, format!("{name} is ignored: XMPP has no UDP"));
            }
            _ => {
                let near = nearest(name, GENERAL);
                self.note(node, format!("option {name} is not known to Tsung and is ignored{near}"));
            }
        }
    }

    /// Reads the path of BOSH or WebSocket.
    fn web_path(&mut self, node: XmlNode<'_>, name: &str) {
        let Some(path) = self.needed(node, "value") else { return };
        if !path.starts_with('/') || path.contains([' ', '\r', '\n']) {
            self.error(node, "option", format!("{name}: must begin with / and contain no spaces"));
            return;
        }
        let settings = &mut self.settings;
        let place = if name == "bosh_path" { &mut settings.bosh_path } else { &mut settings.websocket_path };
        path.clone_into(place);
    }

    fn xmpp(&mut self, node: XmlNode<'_>, name: &str) {
        if matches!(name, "bosh_path" | "websocket_path") {
            return self.web_path(node, name);
        }
        let value = attribute(node, "value").map(str::to_owned);
        let settings = &mut self.settings;
        match (name, value) {
            ("domain", Some(value)) => settings.domain = value,
            ("muc_service", Some(value)) => settings.muc_service = value,
            ("pubsub_service", Some(value)) => settings.pubsub_service = Some(value),
            ("username", Some(value)) => settings.prefix = value,
            ("passwd", Some(value)) => settings.password = value,
            ("fileid_delimiter", Some(value)) => settings.delimiter = value,
            ("random_from_fileid" | "offline_from_fileid", Some(value)) => {
                settings.destinations_from.push(value)
            }
            ("vhost_file", Some(value)) => {
                let line = self.line(node);
                self.settings.vhost_file = Some((value, line));
            }
            ("userid_max", Some(_)) => self.settings.userid_max = self.count(node, "value").unwrap_or(10_000),
            ("global_number", Some(_)) => {
                self.settings.global_number = self.count(node, "value").unwrap_or(100)
            }
            (known, None) if XMPP.contains(&known) || known == "offline_from_fileid" => {}
            _ => {
                let near = nearest(name, XMPP);
                self.error(node, "option", format!("{name}: unknown option of ts_jabber{near}"));
            }
        }
    }

    fn tls_version(&mut self, node: XmlNode<'_>) {
        match attribute(node, "value") {
            Some("tlsv1.2") => self.settings.only_tls12 = true,
            Some("tlsv1.3") => self.note(node, "ssl_versions tlsv1.3 is ignored: TLS 1.2 is also accepted"),
            None | Some("negotiate") => {}
            Some(other) => {
                let text = format!("ssl_versions: this version supports TLS 1.2 and 1.3, not {other}");
                self.error(node, "option", text);
            }
        }
    }

    fn default_thinktime(&mut self, node: XmlNode<'_>) {
        if let Some(value) = self.number(node, "value") {
            self.settings.thinktime = value;
        }
        let range = (self.number(node, "min"), self.number(node, "max"));
        self.settings.chance = match range {
            (Some(min), Some(max)) if min <= max && max > 0.0 => ThinkTimeDistribution::Range(min, max),
            (None, None) if self.flag(node, "random", false) => ThinkTimeDistribution::Exponential,
            (None, None) => ThinkTimeDistribution::Fixed,
            _ => {
                self.error(
                    node,
                    "option",
                    "thinktime: requires both min and max, and min must not exceed max",
                );
                ThinkTimeDistribution::Fixed
            }
        };
        self.settings.override_thinktime = self.flag(node, "override", false);
    }

    /// Domain, from the domain file if that contains only one.
    pub(super) fn domain(&mut self) -> String {
        let Some((id, line)) = self.settings.vhost_file.clone() else { return self.settings.domain.clone() };
        let content = match self.settings.files.get(&id).cloned() {
            Some(path) => (self.files)(&path).map_err(|error| format!("{path}: {error}")),
            None => Err(format!("there is no file_server with the id {id}")),
        };
        match content {
            Ok(content) => {
                let mut domains = content.lines().map(str::trim).filter(|line| !line.is_empty());
                if let (Some(domain), None) = (domains.next(), domains.next()) {
                    return domain.to_owned();
                }
                let text = "vhost_file: this version supports one domain per run, and the file does not contain \
                     exactly one";
                self.wrong_line(line, "option", text);
            }
            Err(error) => self.wrong_line(line, "option", format!("vhost_file: {error}")),
        }
        String::new()
    }
}
