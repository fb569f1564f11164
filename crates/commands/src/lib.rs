//! Commands: operations for operators and users, declared once and available through several interfaces.
//!
//! A [`Command`] declares its names, input and output fields, and permissions. A feature declares its commands
//! in [`feature_api::feature::Feature::declarations`] and registers their handlers with
//! [`RegisterCommands::command`]. Interfaces (XEP-0050, the command line, HTTP) parse values with
//! [`Command::parse_input`] and run the command with [`run_command`], so that permissions, checks, errors
//! and the audit log are the same for all. Beside them: what commands do to accounts and to the node, and queries to
//! the other nodes of a cluster ([`cluster_admin`]).
//!
//! Not implemented: the interfaces, which know XML, JSON or the command line.
//!
//! # Pitfalls
//!
//! Values of [`CommandFieldKind::Secret`] must never be printed or appear in an error. They are passed as
//! [`base::Secret`], which prints as stars, until keys are derived from them.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

pub mod account_admin;
pub mod audit;
pub mod cluster_admin;
mod error;
mod field;
mod input;
pub mod log_buffer;
mod output;
pub mod paging;
pub mod password_policy;
mod scope;
pub mod shutdown;
mod table;

use std::sync::Arc;

use base::spawn::BoxFuture;
use jid::Jid;
use throng_core::session::flags;
use throng_core::{Host, Node};

pub use error::{CommandError, CommandErrorKind};
pub use field::{CommandField, CommandFieldKind};
pub use input::{CommandInput, FieldNaming, RawArguments};
pub use output::{CommandOutput, OutputRow, OutputValue};
pub use scope::TokenScope;
pub use table::{CommandEntry, Commands, RegisterCommands, commands_of, declared_commands};

/// Users permitted to run a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Administrators of the node, and any process that may open its admin socket.
    Administrator,
    /// A user, for its own account. An operator has no account, so such a command has a field for it.
    Account,
    /// Every user with an account here.
    Anyone,
}

/// The declaration of a command.
pub struct Command {
    /// Its name on the command line and in paths: lower-case letters and hyphens.
    pub name: &'static str,
    /// Its node (XEP-0050, section 3.2), unique in a host.
    pub node: &'static str,
    /// A few words for a menu.
    pub title: &'static str,
    /// One sentence that describes it.
    pub doc: &'static str,
    /// Its permitted users.
    pub role: Role,
    /// Whether it changes anything; a command that only reads is safe to repeat.
    pub changes: bool,
    /// The scope that a token needs to change something with it; see [`Command::needs`].
    pub scope: TokenScope,
    /// `FORM_TYPE` of its forms (XEP-0068); empty for none.
    pub form_type: &'static str,
    /// Input fields.
    pub input: &'static [CommandField],
    /// Output fields.
    pub output: &'static [CommandField],
}

impl Command {
    /// Empty values, for `..Command::EMPTY`.
    pub const EMPTY: Command = Command {
        name: "",
        node: "",
        title: "",
        doc: "",
        role: Role::Administrator,
        changes: true,
        scope: TokenScope::Admin,
        form_type: "",
        input: &[],
        output: &[],
    };

    /// The scope that a token needs.
    pub const fn needs(&self) -> TokenScope {
        if self.changes { self.scope } else { TokenScope::Read }
    }

    /// The number of stages in which its fields are requested; zero without fields.
    pub fn stages(&self) -> u8 {
        self.input.iter().map(|f| f.stage + 1).max().unwrap_or(0)
    }

    /// The fields of one stage.
    pub fn stage(&self, stage: u8) -> impl Iterator<Item = &'static CommandField> + use<> {
        self.input.iter().filter(move |f| f.stage == stage)
    }
}

/// On whose behalf a command runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallerIdentity {
    /// A local user, authenticated by its stream or by its password.
    Account(Jid),
    /// A process that may open the admin socket: the system user that runs the node.
    Operator,
    /// A program with a token. Its interface has compared the token's scopes with [`Command::needs`].
    Token {
        /// Its name in the log: `token:backup`.
        name: String,
        /// It has the scope [`TokenScope::Admin`].
        admin: bool,
    },
}

/// Caller of a command, and the interface that it uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// On whose behalf it runs.
    pub identity: CallerIdentity,
    /// The interface, for the log: `xmpp`, `socket`, `http`.
    pub interface: &'static str,
    /// The client's address for the log, where the interface knows it.
    pub from: String,
}

impl Caller {
    /// A user through XMPP.
    pub fn xmpp(jid: Jid) -> Caller {
        Caller { identity: CallerIdentity::Account(jid), interface: "xmpp", from: String::new() }
    }

    /// The operator through the admin socket.
    pub fn operator() -> Caller {
        Caller { identity: CallerIdentity::Operator, interface: "socket", from: String::new() }
    }

    /// Whether it may change an administrator's account: setting an administrator's password grants that role.
    pub fn may_change_admins(&self) -> bool {
        !matches!(self.identity, CallerIdentity::Token { admin: false, .. })
    }

    /// The name for people.
    pub fn name(&self) -> &str {
        match &self.identity {
            CallerIdentity::Account(jid) => jid.as_str(),
            CallerIdentity::Operator => "operator",
            CallerIdentity::Token { name, .. } => name,
        }
    }
}

/// A command that is being run. It owns all its data.
pub struct CommandCall {
    /// The node.
    pub node: Arc<Node>,
    /// The host whose command it is.
    pub host: Arc<Host>,
    /// Its caller.
    pub caller: Caller,
    /// Checked values.
    pub input: CommandInput,
}

/// The deferred result of a command.
pub type CommandFuture = BoxFuture<'static, Result<CommandOutput, CommandError>>;

/// Runs a command. Implemented by functions that take a [`CommandCall`] and return a [`CommandFuture`].
pub trait CommandHandler: Send + Sync {
    /// Starts the command. Must not block; long work yields with [`base::spawn::yield_now`].
    fn run(&self, call: CommandCall) -> CommandFuture;
}

impl<F> CommandHandler for F
where
    F: Fn(CommandCall) -> CommandFuture + Send + Sync,
{
    fn run(&self, call: CommandCall) -> CommandFuture {
        self(call)
    }
}

/// Present values of fields by field name, shown in a form for editing.
pub type CurrentValues = Vec<(&'static str, Vec<String>)>;

/// Reads present values. Only called for a caller that may use the command.
pub trait CurrentValuesReader: Send + Sync {
    /// Starts reading.
    fn read(
        &self,
        node: &Arc<Node>,
        host: &Arc<Host>,
    ) -> BoxFuture<'static, Result<CurrentValues, CommandError>>;
}

impl<F> CurrentValuesReader for F
where
    F: Fn(&Arc<Node>, &Arc<Host>) -> BoxFuture<'static, Result<CurrentValues, CommandError>> + Send + Sync,
{
    fn read(
        &self,
        node: &Arc<Node>,
        host: &Arc<Host>,
    ) -> BoxFuture<'static, Result<CurrentValues, CommandError>> {
        self(node, host)
    }
}

/// Whether the caller may use a command of a host.
pub fn may_use(node: &Node, host: &Host, command: &Command, caller: &Caller) -> bool {
    let CallerIdentity::Account(jid) = &caller.identity else { return true };
    let jid = jid.as_ref();
    match command.role {
        Role::Administrator => node.is_admin(jid) && !is_guest(node, jid),
        Role::Account | Role::Anyone => jid.domain() == host.domain() && !is_guest(node, jid),
    }
}

/// Whether this is a connected user without an account, whose name may be its own choice.
fn is_guest(node: &Node, jid: jid::JidRef<'_>) -> bool {
    let mut guest = false;
    if let Some(account) = node.routing_table.find(jid) {
        account.for_each_session(|session| guest |= session.flags.has(flags::EPHEMERAL));
    }
    guest
}

/// Runs a command and writes the audit line: who, through which interface, which command, on whom, and the
/// outcome.
///
/// # Errors
/// `forbidden` if the caller may not use it, or not on an administrator's account; otherwise the command's
/// error.
pub fn run_command(
    node: &Arc<Node>,
    host: &Arc<Host>,
    entry: &CommandEntry,
    caller: Caller,
    input: CommandInput,
) -> CommandFuture {
    let command = entry.command;
    let mut audit =
        AuditLine { node: node.clone(), caller: caller.clone(), command, on: input.subjects(), done: false };
    if !may_use(node, host, command, &caller) {
        let error = CommandError::forbidden();
        audit.write(Some(&error));
        return Box::pin(std::future::ready(Err(error)));
    }
    let protected = match command.changes && !caller.may_change_admins() {
        true => input.addresses().find(|jid| node.is_protected(jid.as_ref())),
        false => None,
    };
    if let Some(jid) = protected {
        let error = CommandError::protected(jid);
        audit.write(Some(&error));
        return Box::pin(std::future::ready(Err(error)));
    }
    let later = entry.run.run(CommandCall { node: node.clone(), host: host.clone(), caller, input });
    Box::pin(async move {
        let result = later.await;
        audit.write(result.as_ref().err());
        result
    })
}

/// One line of the audit log. A command that is cancelled because its stream closed is logged as well.
struct AuditLine {
    node: Arc<Node>,
    caller: Caller,
    command: &'static Command,
    on: String,
    done: bool,
}

impl AuditLine {
    fn write(&mut self, error: Option<&CommandError>) {
        self.done = true;
        self.log_outcome(error.map_or("done", |e| e.condition().as_str()));
    }

    fn log_outcome(&self, outcome: &str) {
        audit::record_audit_entry(&self.node, &self.caller, self.command.name, &self.on, outcome);
    }
}

impl Drop for AuditLine {
    fn drop(&mut self) {
        if !self.done {
            self.log_outcome("cancelled");
        }
    }
}
