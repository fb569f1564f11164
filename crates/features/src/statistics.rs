//! Statistics Gathering: XEP-0039 0.6.0, the metrics of the node for administrators and permitted users.
//!
//! Section 3.5 proposes three tiers; here `public` lists the metrics that every user of this server may read, and
//! `readers` the users who may read all of them, as administrators may.
//!
//! Not implemented: bytes, which the streams do not count; values that are not numbers.
//!
//! # Pitfalls
//!
//! The error codes inside a metric are those of the specification: legacy numbers with a text.

use std::collections::BTreeSet;
use std::sync::Arc;

use feature_api::feature::{
    DiscoFeature, Feature, FeatureBuilder, OptionKind, OptionSpec, OptionValue, Spec,
};
use jid::JidRef;
use stanza::{StanzaCondition, StanzaError};
use throng_core::iq::{IqFlow, IqKey, IqRequest, IqTarget};
use throng_core::{Host, Node};
use xml::{Ns, Writer};

/// Statistics Gathering.
pub static FEATURE: Feature = Feature {
    name: "statistics",
    summary: "Statistics of the node for administrators.",
    specs: &[Spec {
        name: "XEP-0039",
        title: "Statistics Gathering",
        version: "0.6.0",
        not_implemented: "bandwidth in bytes",
    }],
    disco: &[DiscoFeature::Server(Ns::Stats.as_str())],
    iq: &[KEY],
    options: &[
        OptionSpec {
            key: "public",
            kind: OptionKind::Texts,
            default: OptionValue::Texts(Vec::new()),
            doc: "Statistics that every user of this server can query, such as `time/uptime`.",
        },
        OptionSpec {
            key: "readers",
            kind: OptionKind::Texts,
            default: OptionValue::Texts(Vec::new()),
            doc: "Addresses of users who can query all statistics, in addition to administrators.",
        },
    ],
    build,
    ..Feature::EMPTY
};

const KEY: IqKey = IqKey::get(IqTarget::Server, Ns::Stats, "query");
/// Limit of metrics in one request, above the number that exist.
const MAX_STATS: usize = 64;

/// Name and unit of each metric.
const STATISTICS: [(&str, &str); 12] = [
    ("time/uptime", "seconds"),
    ("users/online", "users"),
    ("users/total", "users"),
    ("users/all-hosts/online", "users"),
    ("users/all-hosts/total", "users"),
    ("sessions/online", "sessions"),
    ("connections/open", "connections"),
    ("bandwidth/packets-in", "packets"),
    ("bandwidth/packets-out", "packets"),
    ("messages/in", "packets"),
    ("messages/out", "packets"),
    ("messages/offline", "packets"),
];

struct StatisticsAccess {
    open: BTreeSet<String>,
    readers: BTreeSet<String>,
}

fn build(builder: &mut FeatureBuilder<'_>) {
    let set = |key: &str| builder.options.texts(key).iter().cloned().collect();
    let rights = Arc::new(StatisticsAccess { open: set("public"), readers: set("readers") });
    builder
        .iq(KEY, move |request: &mut IqRequest<'_>| answer(&rights, request).unwrap_or_else(IqFlow::error));
}

impl StatisticsAccess {
    fn may_read_all(&self, node: &Node, from: JidRef<'_>) -> bool {
        node.is_admin(from) || self.readers.contains(from.bare().as_str())
    }

    fn may_read(&self, all: bool, name: &str) -> bool {
        all || self.open.contains(name)
    }
}

fn answer(rights: &Arc<StatisticsAccess>, request: &IqRequest<'_>) -> Result<IqFlow, StanzaError> {
    let all = rights.may_read_all(request.node, request.from);
    let local = request.node.host(request.from.domain()).is_some();
    if !all && (!local || rights.open.is_empty()) {
        // Section 3.3: code 401.
        return Err(StanzaCondition::NotAuthorized.into());
    }
    let tree = request.tree()?;
    let query = tree.root().child("query", Ns::Stats).ok_or(StanzaCondition::BadRequest)?;
    let requested = query.child_elements().filter(|c| c.is("stat", Ns::Stats)).filter_map(|c| c.attr("name"));
    let requested: Vec<String> = requested.take(MAX_STATS).map(|name| name.into_owned()).collect();
    if requested.is_empty() {
        return Ok(IqFlow::result(|w| {
            w.start_ns("query", Ns::Stats);
            for (name, _) in STATISTICS.iter().filter(|(name, _)| rights.may_read(all, name)) {
                w.start("stat").attr("name", name).end();
            }
            w.end();
        }));
    }
    let (node, host, rights) = (request.node.clone(), request.host.clone(), rights.clone());
    Ok(IqFlow::wait(async move {
        let mut out = Vec::with_capacity(256);
        let mut w = Writer::new(&mut out);
        w.start_ns("query", Ns::Stats);
        for name in &requested {
            let known = STATISTICS.iter().find(|(n, _)| n == name);
            w.start("stat").attr("name", name);
            let failed = match known {
                None => Some(("404", "Not Found")),
                Some(_) if !rights.may_read(all, name) => Some(("401", "Unauthorized")),
                Some((_, unit)) => match value(&node, &host, name).await {
                    Ok(value) => {
                        w.attr("units", unit).attr("value", &value.to_string());
                        None
                    }
                    Err(error) => {
                        tracing::warn!(%error, figure = name, "cannot read a statistic");
                        Some(("503", "Service Unavailable"))
                    }
                },
            };
            if let Some((code, text)) = failed {
                w.start("error").attr("code", code).text(text).end();
            }
            w.end();
        }
        w.end();
        Ok(out)
    }))
}

async fn value(node: &Arc<Node>, host: &Arc<Host>, name: &str) -> Result<u64, store::StoreError> {
    let [received, sent] = node.metrics.stanzas();
    let accounts = &node.stores.accounts;
    Ok(match name {
        "time/uptime" => u64::from(node.seconds()),
        "users/online" => {
            let mut online = 0;
            for part in 0..node.routing_table.shard_count() {
                node.routing_table
                    .for_each_in_shard(part, |a| online += u64::from(a.jid.domain() == host.domain()));
                base::spawn::yield_now().await;
            }
            online
        }
        "users/total" => accounts.count(host.domain()).await?,
        "users/all-hosts/online" => node.routing_table.accounts() as u64,
        "users/all-hosts/total" => {
            let mut total = 0;
            for host in node.hosts() {
                total += accounts.count(host.domain()).await?;
            }
            total
        }
        "sessions/online" => node.routing_table.sessions() as u64,
        "connections/open" => node.outboxes.len() as u64,
        "bandwidth/packets-in" => received.iter().sum(),
        "bandwidth/packets-out" => sent.iter().sum(),
        "messages/in" => received[0],
        "messages/out" => sent[0],
        _ => node.metrics.offline_stored.get(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use jid::Jid;
    use testkit::{NodeClient, TestNode, assert_same};

    fn engine(open: &[&str]) -> (TestNode, NodeClient, NodeClient) {
        let texts = |list: &[&str]| OptionValue::Texts(list.iter().map(|t| (*t).to_owned()).collect());
        let options = [("public", texts(open)), ("readers", texts(&["nurse@example.com"]))];
        let engine = TestNode::with_options(&FEATURE, &options);
        for user in ["admin", "romeo", "nurse", "paris@example.net"] {
            engine.create_user(user);
        }
        engine.node.set_admins([Jid::parse("admin@example.com").unwrap()]);
        let (admin, romeo) = (engine.connect("admin", "globe"), engine.connect("romeo", "orchard"));
        (engine, admin, romeo)
    }

    fn ask(client: &NodeClient, names: &[&str]) -> String {
        let stats: String = names.iter().map(|name| format!("<stat name='{name}'/>")).collect();
        let query = format!("<query xmlns='http://jabber.org/protocol/stats'>{stats}</query>");
        client.request(&format!("<iq type='get' to='example.com' id='1'>{query}</iq>")).join("")
    }

    #[test]
    fn section_2_5_statistics_are_listed_and_read() {
        let (engine, admin, _romeo) = engine(&[]);
        let list = ask(&admin, &[]);
        for (name, _) in STATISTICS {
            assert!(list.contains(&format!("<stat name='{name}'/>")), "{list}");
        }
        engine.advance(90);
        let answer = ask(&admin, &["time/uptime", "users/online", "users/total", "users/all-hosts/total"]);
        assert_same(
            &[answer],
            &["<iq type='result' from='example.com' to='admin@example.com/globe' id='1'>\
               <query xmlns='http://jabber.org/protocol/stats'>\
               <stat name='time/uptime' units='seconds' value='90'/>\
               <stat name='users/online' units='users' value='2'/>\
               <stat name='users/total' units='users' value='3'/>\
               <stat name='users/all-hosts/total' units='users' value='4'/></query></iq>"
                .to_owned()],
        );
        let packets = ask(&admin, &["bandwidth/packets-in", "bandwidth/packets-out", "messages/in"]);
        assert!(packets.contains("name='bandwidth/packets-in' units='packets' value='3'"), "{packets}");
    }

    #[test]
    fn section_2_6_an_unknown_or_failing_statistic_has_its_own_error() {
        let (engine, admin, _romeo) = engine(&[]);
        let answer = ask(&admin, &["time/uptime", "tea/cups"]);
        assert!(
            answer.contains("<stat name='tea/cups'><error code='404'>Not Found</error></stat>"),
            "{answer}"
        );
        engine.set_store_failing(true);
        let answer = ask(&admin, &["users/total", "time/uptime"]);
        assert!(answer.contains("<error code='503'>Service Unavailable</error>"), "{answer}");
        assert!(answer.contains("name='time/uptime' units='seconds'"), "{answer}");
    }

    #[test]
    fn section_3_5_access_is_restricted_by_name_and_reader() {
        let (engine, _admin, romeo) = engine(&[]);
        assert!(ask(&romeo, &[]).contains("<not-authorized "));
        let nurse = engine.connect("nurse", "hall");
        assert!(ask(&nurse, &["users/total"]).contains("value='3'"));
        let (engine, _admin, romeo) = self::engine(&["users/online"]);
        let answer = ask(&romeo, &["users/online", "users/total"]);
        assert!(answer.contains("name='users/online' units='users' value='2'"), "{answer}");
        assert!(answer.contains("<stat name='users/total'><error code='401'>Unauthorized</error></stat>"));
        assert!(!ask(&romeo, &[]).contains("users/total"));
        let paris = engine.connect("paris@example.net", "x");
        assert!(ask(&paris, &["users/online"]).contains("value='2'"));
    }

    #[test]
    fn statistics_in_one_request_are_limited() {
        let (_engine, admin, _romeo) = engine(&[]);
        let answer = ask(&admin, &["x/y"; 5_000]);
        assert_eq!(answer.matches("<stat ").count(), MAX_STATS);
    }
}
