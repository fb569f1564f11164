//! Names in Tsung scenarios, from `tsung-1.0.dtd` and Tsung's reader: known, refused, and ignored ones.
//!
//! Not implemented: attributes of protocols that are refused with their element.
//!
//! # Pitfalls
//!
//! Tsung ignores unknown attributes, so they are only noted here; an unknown element is an error, since Tsung would
//! read on inside it and do something the author did not mean.

/// Attributes of an element that have a meaning in Tsung; empty if the element does not exist here.
pub(super) fn attributes(element: &str) -> &'static [&'static str] {
    match element {
        "tsung" => &["loglevel", "dumptraffic", "backend", "version"],
        "client" => &["host", "cpu", "type", "batch", "scan_intf", "maxusers", "use_controller_vm", "weight"],
        "ip" => &["value", "scan"],
        "iprange" => &["value", "version"],
        "server" => &["host", "port", "weight", "type"],
        "load" => &["duration", "unit", "loop"],
        "arrivalphase" => &["phase", "duration", "unit", "wait_all_sessions_end"],
        "users" => &["interarrival", "arrivalrate", "unit", "maxnumber"],
        "session_setup" => &["name", "probability", "weight"],
        "user" => &["session", "start_time", "unit"],
        "option" => &["name", "value", "type", "override", "random", "id", "min", "max"],
        "session" => &["name", "probability", "weight", "type", "bidi", "persistent"],
        "request" => &["subst", "tag"],
        "thinktime" => &["value", "random", "min", "max"],
        "transaction" => &["name"],
        "setdynvars" => &[
            "sourcetype",
            "callback",
            "code",
            "fileid",
            "order",
            "delimiter",
            "length",
            "start",
            "end",
            "from",
            "jsonpath",
            "value",
        ],
        "var" => &["name"],
        "for" => &["from", "to", "incr", "var"],
        "repeat" => &["name", "max_repeat"],
        "while" | "until" | "if" => &["var", "eq", "neq", "gt", "gte", "lt", "lte"],
        "foreach" => &["name", "in", "include", "exclude"],
        "change_type" => &["new_type", "host", "port", "server_type", "store", "restore", "bidi"],
        "set_option" => &["name", "value", "type", "id", "min", "max"],
        "certificate" => &["cacertfile", "keyfile", "keypass", "certfile"],
        "interaction" => &["action", "id"],
        "abort" => &["type"],
        "match" => &[
            "do",
            "when",
            "name",
            "subst",
            "max_loop",
            "loop_back",
            "max_restart",
            "sleep_loop",
            "skip_headers",
            "apply_to_content",
        ],
        "dyn_variable" => &["name", "re", "regexp", "xpath", "jsonpath", "pgsql_expr", "header", "decode"],
        "jabber" => &[
            "type",
            "ack",
            "destination",
            "id",
            "size",
            "data",
            "stamped",
            "show",
            "status",
            "nick",
            "room",
            "group",
            "node",
            "node_type",
            "subid",
            "regexp",
            "resource",
            "version",
            "cacertfile",
            "keyfile",
            "keypass",
            "certfile",
            "send_version",
        ],
        "xmpp_authenticate" => &["username", "passwd"],
        _ => &[],
    }
}

/// Elements within sessions.
pub(super) const FLOW: [&str; 12] = [
    "request",
    "thinktime",
    "transaction",
    "setdynvars",
    "for",
    "repeat",
    "foreach",
    "if",
    "change_type",
    "set_option",
    "interaction",
    "abort",
];

/// Values of `type` on `jabber` that are supported.
pub(super) const REQUESTS: [&str; 37] = [
    "connect",
    "starttls",
    "close",
    "wait",
    "raw",
    "register",
    "auth_get",
    "auth_set_plain",
    "auth_sasl",
    "auth_sasl_anonymous",
    "auth_sasl_external",
    "auth_sasl_bind",
    "auth_sasl_session",
    "presence",
    "presence:initial",
    "presence:final",
    "presence:broadcast",
    "presence:directed",
    "presence:roster",
    "presence:subscribe",
    "iq:roster:get",
    "iq:roster:add",
    "iq:roster:rename",
    "iq:roster:remove",
    "chat",
    "muc:join",
    "muc:chat",
    "muc:nick",
    "muc:exit",
    "pubsub:create",
    "pubsub:delete",
    "pubsub:subscribe",
    "pubsub:unsubscribe",
    "pubsub:publish",
    "ping",
    "privacy:get_names",
    "privacy:set_active",
];

/// Why a value of `type` on `jabber` that Tsung supports is refused.
pub(super) fn refused_request(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "auth_set_digest" => {
            "this version does not run digest logins of XEP-0078; auth_set_plain and auth_sasl run"
        }
        "auth_set_sip" => "this version does not run SIP digest logins; auth_set_plain and auth_sasl run",
        _ => return None,
    })
}

/// Requests whose session is skipped if others remain: logins that servers have dropped.
pub(super) const LEFT_OUT: [(&str, &str); 2] =
    [("auth_set_digest", "digest logins of XEP-0078"), ("auth_set_sip", "SIP digest logins")];

/// Why a session or request of another protocol is refused.
pub(super) fn refused_protocol(name: &str) -> Option<String> {
    let protocol = match name {
        "http" | "webdav" => "HTTP",
        "raw" => "raw TCP",
        "pgsql" => "PostgreSQL",
        "ldap" => "LDAP",
        "mysql" => "MySQL",
        "fs" => "file system",
        "shell" => "shell",
        "job" => "job scheduler",
        "websocket" => "WebSocket",
        "amqp" => "AMQP",
        "mqtt" => "MQTT",
        _ => return None,
    };
    Some(format!("this version runs XMPP only, no {protocol} requests"))
}

/// Why a type of server is refused.
pub(super) fn refused_server(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "udp" | "udp6" => "XMPP has no UDP",
        "erlang" => "this version does not run the Erlang protocol",
        _ => return None,
    })
}
