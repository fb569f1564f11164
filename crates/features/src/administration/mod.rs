//! Service Administration: XEP-0133 1.3.1, as commands that every interface offers.
//!
//! Users ([`users`]), counts and lists ([`lists`]), announcements ([`announce`]), the message of the day ([`motd`]),
//! the welcome message ([`welcome`]), the administrators ([`admins`]), the password policy ([`policy`]), shutdown and
//! restart of the node ([`service`]), sessions and nodes of a cluster ([`nodes`]).
//!
//! Not implemented: retrieving a password (section 4.6, retracted: only keys are stored), black and white lists
//! (sections 4.11 and 4.12; a blocklist belongs to an account, access to a closed service to its firewall), and the
//! addresses and rates of a user's statistics, which are not recorded.
//!
//! # Pitfalls
//!
//! A node may have a million users online. Code that visits all of them must iterate the table shard by shard and
//! yield in between; see [`announce::for_each_online`].

pub mod admins;
mod announce;
mod lists;
mod motd;
mod nodes;
mod policy;
mod service;
mod users;
mod welcome;

#[cfg(test)]
mod tests;

use feature_api::feature::FeatureDeclaration;
use feature_api::feature::{Feature, FeatureBuilder, Spec};
use jid::Jid;
use throng_commands::cluster_admin::{MissingNode, describe_missing};
use throng_commands::{
    CommandCall, CommandError, CommandErrorKind, CommandField, CommandFieldKind, CommandOutput, OutputValue,
};
use throng_core::Node;

/// Service Administration.
pub static FEATURE: Feature = Feature {
    name: "administration",
    summary: "Commands for administrators: users, lists, announcements, the message of the day and the node.",
    specs: &[Spec {
        name: "XEP-0133",
        title: "Service Administration",
        version: "1.3.1",
        not_implemented: "section 4.6 (retracted); section 4.10: addresses and rates; sections 4.11 and \
         4.12: blacklist and whitelist",
    }],
    declarations: COMMANDS,
    build,
    ..Feature::EMPTY
};

static COMMANDS: &[&dyn FeatureDeclaration] = &[
    &users::ADD,
    &users::DELETE,
    &users::DISABLE,
    &users::REENABLE,
    &users::END_SESSION,
    &users::CHANGE_PASSWORD,
    &users::ROSTER,
    &users::LAST_LOGIN,
    &users::STATISTICS,
    &lists::REGISTERED_NUM,
    &lists::DISABLED_NUM,
    &lists::ONLINE_NUM,
    &lists::ACTIVE_NUM,
    &lists::IDLE_NUM,
    &lists::REGISTERED,
    &lists::DISABLED,
    &lists::ONLINE,
    &lists::ACTIVE,
    &lists::IDLE,
    &announce::ANNOUNCE,
    &motd::SET,
    &motd::EDIT,
    &motd::DELETE,
    &welcome::SET,
    &welcome::DELETE,
    &admins::EDIT,
    &policy::GET,
    &policy::CHANGE,
    &service::RESTART,
    &service::SHUTDOWN,
    &service::DRAIN,
    &nodes::SESSIONS,
    &nodes::NODES,
];

/// `FORM_TYPE` of every form (XEP-0133, section 7.2).
const FORM_TYPE: &str = "http://jabber.org/protocol/admin";

/// The node of a command of XEP-0133; its name is the part after the `#`.
macro_rules! node {
    ($name:literal) => {
        concat!("http://jabber.org/protocol/admin#", $name)
    };
}
use node;

const USER: CommandField =
    CommandField::new("user", "accountjid", "The address of the account", CommandFieldKind::Jid).required();
const USERS: CommandField =
    CommandField::new("user", "accountjids", "The addresses of the accounts", CommandFieldKind::Jids)
        .required();

static MISSING_NODES: CommandField = MISSING;
const MISSING: CommandField = CommandField::new(
    "missing-nodes",
    "x-missing-nodes",
    "Nodes that did not answer",
    CommandFieldKind::Lines,
)
.doc("Absent if all nodes have answered.");

/// Adds the nodes whose part is missing, as a field and for people.
fn name_missing(output: CommandOutput, missing: &[MissingNode]) -> CommandOutput {
    let Some(text) = describe_missing(missing) else { return output };
    let names = missing.iter().map(|one| one.node.clone()).collect();
    let note = match output.note.is_empty() {
        true => text,
        false => format!("{}, {text}", output.note),
    };
    CommandOutput { note, ..output }.with(&MISSING_NODES, OutputValue::Texts(names))
}

fn build(builder: &mut FeatureBuilder<'_>) {
    users::build(builder);
    lists::build(builder);
    announce::build(builder);
    motd::build(builder);
    welcome::build(builder);
    admins::build(builder);
    policy::build(builder);
    service::build(builder);
    nodes::build(builder);
}

/// Checks that an address is that of an account of this node. The account need not exist.
fn check_local_account(node: &Node, jid: &Jid) -> Result<(), CommandError> {
    let wrong = |text: String| Err(CommandError::new(CommandErrorKind::NotAcceptable, text));
    if jid.local().is_none() {
        return wrong(format!("{jid} is not the address of an account"));
    }
    if jid.resource().is_some() {
        return wrong(format!("{jid} has a resource; remove it"));
    }
    match node.host(jid.domain()) {
        Some(_) => Ok(()),
        None => wrong(format!("{} is not served here", jid.domain())),
    }
}

/// Checks that all of these accounts exist, before the first of them is changed.
async fn check_accounts_exist(call: &CommandCall, jids: &[Jid]) -> Result<(), CommandError> {
    for jid in jids {
        check_local_account(&call.node, jid)?;
        if !call.node.stores.accounts.exists(jid.as_ref()).await? {
            return Err(CommandError::no_account(jid));
        }
    }
    Ok(())
}

/// `1 account`, `2 accounts`.
fn pluralize(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}
