//! Administrators: XEP-0133 1.3.1, section 4.29, with the state that survives a restart.
//!
//! The configuration names administrators, and the command changes them; the newer of the two is in effect. The
//! command's list is stored together with the list that the configuration had at that time, and is valid as long as
//! the configuration still has that list. An edit of the file therefore takes precedence again.
//!
//! On several nodes a change is a notice ([`throng_core::feature_notice`]) to the others, which read the list again. A node whose
//! configuration names other administrators than that of the node with the change keeps its own.
//!
//! # Pitfalls
//!
//! Code that loads the configuration, at start and at each reload, must call [`effective_admins`] and not use its
//! list.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use feature_api::feature::FeatureBuilder;
use jid::Jid;
use store::{ServerKv, StoreError};
use throng_commands::{
    Command, CommandCall, CommandError, CommandErrorKind, CommandField, CommandFieldKind, CommandFuture,
    CommandOutput, CurrentValues, RegisterCommands,
};
use throng_core::feature_notice::NoticeCtx;
use throng_core::{Host, Node};

use super::{FORM_TYPE, node};

const KEY: &str = "admins";
/// The notice that the list has changed.
const NOTICE: &str = "admins";

const LIST: CommandField = CommandField::new("admin", "adminjids", "The admin list", CommandFieldKind::Jids)
    .required()
    .doc("All administrators; it replaces the previous list.");

/// Edit Admin List: XEP-0133, section 4.29.
pub(super) static EDIT: Command = Command {
    name: "edit-admin",
    node: node!("edit-admin"),
    title: "Edit Admin List",
    doc: "Replaces the list of administrators.",
    form_type: FORM_TYPE,
    input: &[LIST],
    ..Command::EMPTY
};

pub(super) fn build(builder: &mut FeatureBuilder<'_>) {
    let present = |node: &Arc<Node>, _: &Arc<Host>| -> base::spawn::BoxFuture<'static, _> {
        let list = node.admins().iter().map(Jid::to_string).collect();
        let present: Result<CurrentValues, CommandError> = Ok(vec![(LIST.name, list)]);
        Box::pin(std::future::ready(present))
    };
    let changes = builder.shared_state(ListChanges::default);
    let edited = changes.clone();
    let edit = move |call| -> CommandFuture { Box::pin(edit(edited.clone(), call)) };
    builder.command_with(&EDIT, present, edit);
    builder.notice(NOTICE, move |ctx: &NoticeCtx<'_>| on_notice(&changes, ctx));
}

/// Number of changes of the list that this node has learnt of. A read that began before the latest one is outdated.
#[derive(Default)]
struct ListChanges(AtomicU64);

impl ListChanges {
    fn begin(&self) -> u64 {
        self.0.fetch_add(1, Ordering::AcqRel) + 1
    }

    fn is_latest(&self, change: u64) -> bool {
        self.0.load(Ordering::Acquire) == change
    }
}

/// Another node has changed the list, or may have.
fn on_notice(changes: &Arc<ListChanges>, ctx: &NoticeCtx<'_>) {
    let (changes, node) = (changes.clone(), ctx.node.clone());
    let change = changes.begin();
    let task = async move {
        match AdminList::load(&*node.stores.server_kv).await {
            Ok(Some(record)) if record.configured == node.configured_admins() => {
                if changes.is_latest(change) {
                    node.set_admins(record.effective);
                }
            }
            Ok(_) => {}
            Err(error) => tracing::error!(
                %error,
                "another node has changed the administrators, and the list cannot be read; reload this node"
            ),
        }
    };
    ctx.node.spawner.spawn("administrators", Box::pin(task));
}

/// Stored value: the configuration's list, and the list that the command made.
struct AdminList {
    configured: BTreeSet<Jid>,
    effective: Vec<Jid>,
}

impl AdminList {
    async fn load(settings: &dyn ServerKv) -> Result<Option<AdminList>, StoreError> {
        Ok(settings.get(KEY).await?.and_then(|bytes| AdminList::decode(&bytes)))
    }

    async fn save(&self, settings: &dyn ServerKv) -> Result<(), StoreError> {
        let line =
            |list: &mut dyn Iterator<Item = &Jid>| list.map(Jid::as_str).collect::<Vec<_>>().join("\t");
        let text = format!("{}\n{}", line(&mut self.configured.iter()), line(&mut self.effective.iter()));
        settings.put(KEY, text.as_bytes()).await
    }

    fn decode(bytes: &[u8]) -> Option<AdminList> {
        let (configured, now) = std::str::from_utf8(bytes).ok()?.split_once('\n')?;
        let list = |line: &str| -> Option<Vec<Jid>> {
            line.split('\t').filter(|text| !text.is_empty()).map(|text| Jid::parse(text).ok()).collect()
        };
        Some(AdminList { configured: list(configured)?.into_iter().collect(), effective: list(now)? })
    }
}

/// The administrators in effect when the configuration names these.
///
/// # Errors
///
/// When the store does not answer.
pub async fn effective_admins(settings: &dyn ServerKv, configured: &[Jid]) -> Result<Vec<Jid>, StoreError> {
    let set: BTreeSet<Jid> = configured.iter().cloned().collect();
    match AdminList::load(settings).await? {
        Some(record) if record.configured == set => Ok(record.effective),
        _ => {
            AdminList { configured: set, effective: configured.to_vec() }.save(settings).await?;
            Ok(configured.to_vec())
        }
    }
}

async fn edit(changes: Arc<ListChanges>, call: CommandCall) -> Result<CommandOutput, CommandError> {
    let (node, list) = (&call.node, call.input.jids(&LIST));
    for jid in list {
        // An existing administrator may be of another server.
        if node.is_admin(jid.as_ref()) && jid.is_bare() {
            continue;
        }
        super::check_local_account(node, jid)?;
        if !node.stores.accounts.exists(jid.as_ref()).await? {
            // Otherwise the first user to register that name would control the node.
            return Err(CommandError::new(CommandErrorKind::NotFound, format!("there is no account {jid}")));
        }
    }
    let settings = &*node.stores.server_kv;
    let configured = match AdminList::load(settings).await? {
        Some(record) => record.configured,
        None => node.admins().into_iter().collect(),
    };
    AdminList { configured, effective: list.to_vec() }.save(settings).await?;
    changes.begin();
    node.set_admins(list.iter().cloned());
    if let Some(peers) = node.peers() {
        peers.send_notice(node, &call.host, NOTICE, &[]);
    }
    Ok(CommandOutput::with_note(format!(
        "there {} now",
        if list.len() == 1 {
            "is 1 administrator".to_owned()
        } else {
            format!("are {} administrators", list.len())
        }
    )))
}
