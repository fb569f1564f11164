//! Administrators: XEP-0133 1.3.1, section 4.29, with the state that survives a restart.
//!
//! The configuration names administrators, and the command changes them; the newer of the two is in effect. The
//! command's list is stored together with the list that the configuration had at that time, and is valid as long as
//! the configuration still has that list. An edit of the file therefore takes precedence again.
//!
//! # Pitfalls
//!
//! Code that loads the configuration, at start and at each reload, must call [`effective_admins`] and not use its
//! list.

use std::collections::BTreeSet;
use std::sync::Arc;

use feature_api::feature::FeatureBuilder;
use jid::Jid;
use store::{ServerKv, StoreError};
use throng_commands::{
    Command, CommandCall, CommandError, CommandErrorKind, CommandField, CommandFieldKind, CommandFuture,
    CommandOutput, CurrentValues, RegisterCommands,
};
use throng_core::{Host, Node};

use super::{FORM_TYPE, node};

const KEY: &str = "admins";

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
    builder.command_with(&EDIT, present, |call| -> CommandFuture { Box::pin(edit(call)) });
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

async fn edit(call: CommandCall) -> Result<CommandOutput, CommandError> {
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
    node.set_admins(list.iter().cloned());
    Ok(CommandOutput::with_note(format!(
        "there {} now",
        if list.len() == 1 {
            "is 1 administrator".to_owned()
        } else {
            format!("are {} administrators", list.len())
        }
    )))
}
