//! Commands: what an operator or a user may have done, declared once, and reached through several doors.
//!
//! A [`Command`] says everything that an interface has to know: names, fields in and out, and who may use it. A feature declares
//! its commands in [`crate::feature::Feature::commands`] and registers what they do with
//! [`crate::feature::FeatureBuilder::command`]. Doors (XEP-0050, the command line, HTTP) read values by [`Command::parse_input`] and use
//! the command by [`Node::run_command`], so that rights, checks, errors and the log are the same behind each of them.
//!
//! Left out: the doors, which know XML, JSON or words.
//!
//! The trap: values of [`CommandFieldKind::Secret`] must never be printed, and nothing of them may stand in an error. They travel
//! as [`base::Secret`], which prints as stars; keep them so until they are derived.

mod error;
mod field;
mod input;
mod output;
mod scope;
mod table;

use std::sync::Arc;

use base::spawn::BoxFuture;
use jid::Jid;

pub use error::{CommandError, CommandErrorKind};
pub use field::{CommandField, CommandFieldKind};
pub use input::{CommandInput, FieldNaming, RawArguments};
pub use output::{CommandOutput, OutputRow, OutputValue};
pub use scope::TokenScope;
pub use table::{CommandEntry, Commands};

use crate::host::Host;
use crate::node::Node;
use crate::session::flags;

/// Who may use a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Administrators of the node, and whoever may open its admin socket.
    Administrator,
    /// A user for its own account. An operator has no account, so such a command has a field for it.
    Account,
    /// Everybody with an account here.
    Anyone,
}

/// What is known of a command without running it.
pub struct Command {
    /// Its name on the command line and in paths: small letters and hyphens.
    pub name: &'static str,
    /// Its node (XEP-0050 section 3.2), unique in a host.
    pub node: &'static str,
    /// A few words for a menu.
    pub title: &'static str,
    /// One sentence that says what it does.
    pub doc: &'static str,
    /// Who may use it.
    pub role: Role,
    /// Whether it changes anything; what only reads is safe to repeat.
    pub changes: bool,
    /// What a token must be for that changes something with it; see [`Command::needs`].
    pub scope: TokenScope,
    /// `FORM_TYPE` of its forms (XEP-0068); empty for none.
    pub form_type: &'static str,
    /// What it is given.
    pub input: &'static [CommandField],
    /// What it answers.
    pub output: &'static [CommandField],
}

impl Command {
    /// Nothing; for `..Command::EMPTY`.
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

    /// What a token must be for.
    pub const fn needs(&self) -> TokenScope {
        if self.changes { self.scope } else { TokenScope::Read }
    }
    /// The number of stages in which its fields are asked for; zero if it has none.
    pub fn stages(&self) -> u8 {
        self.input.iter().map(|f| f.stage + 1).max().unwrap_or(0)
    }
    /// The fields of one stage.
    pub fn stage(&self, stage: u8) -> impl Iterator<Item = &'static CommandField> + use<> {
        self.input.iter().filter(move |f| f.stage == stage)
    }
}

/// Whose wish it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallerIdentity {
    /// A local user, as its stream or another proof of its password says.
    Account(Jid),
    /// Whoever may open the admin socket: the system's user that runs the node.
    Operator,
    /// A program with a token. Its interface has compared the token's scopes with [`Command::needs`].
    Token {
        /// As the log names it: `token:backup`.
        name: String,
        /// It has the scope [`TokenScope::Admin`].
        admin: bool,
    },
}

/// Who uses a command, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Whose wish it is.
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
    /// Whether it may change an administrator's account: whoever sets an administrator's password becomes one.
    pub fn may_change_admins(&self) -> bool {
        !matches!(self.identity, CallerIdentity::Token { admin: false, .. })
    }
    /// For people.
    pub fn name(&self) -> &str {
        match &self.identity {
            CallerIdentity::Account(jid) => jid.as_str(),
            CallerIdentity::Operator => "operator",
            CallerIdentity::Token { name, .. } => name,
        }
    }
}

/// A command that is carried out. It owns all it needs.
pub struct CommandCall {
    /// The node.
    pub node: Arc<Node>,
    /// The host whose command it is.
    pub host: Arc<Host>,
    /// Who wants it.
    pub caller: Caller,
    /// Checked values.
    pub input: CommandInput,
}

/// What a command answers, later.
pub type CommandFuture = BoxFuture<'static, Result<CommandOutput, CommandError>>;

/// Carries a command out. A function that takes a [`CommandCall`] and returns a [`CommandFuture`] is one.
pub trait CommandHandler: Send + Sync {
    /// Begins. Must not block; what takes long gives way with [`yield_now`].
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

/// The values that fields have at present, by name of the field: a form that edits shows them.
pub type CurrentValues = Vec<(&'static str, Vec<String>)>;

/// Reads present values. Only asked for somebody who may use the command.
pub trait CurrentValuesReader: Send + Sync {
    /// Begins.
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

impl Node {
    /// Whether somebody may use a command of a host.
    pub fn may_use(&self, host: &Host, command: &Command, caller: &Caller) -> bool {
        let CallerIdentity::Account(jid) = &caller.identity else { return true };
        let jid = jid.as_ref();
        match command.role {
            Role::Administrator => self.is_admin(jid) && !self.is_guest(jid),
            Role::Account | Role::Anyone => jid.domain() == host.domain() && !self.is_guest(jid),
        }
    }

    /// Whether somebody is connected who has no account: what it is called, it may have chosen.
    fn is_guest(&self, jid: jid::JidRef<'_>) -> bool {
        let mut guest = false;
        if let Some(account) = self.routing_table.find(jid) {
            account.for_each_session(|session| guest |= session.flags.has(flags::EPHEMERAL));
        }
        guest
    }

    /// Carries a command out and writes the audit line: who, through which interface, which command, on whom, and how it ended.
    ///
    /// # Errors
    /// `forbidden` if the caller may not use it, or not on an administrator's account; otherwise what the command says.
    pub fn run_command(
        self: &Arc<Self>,
        host: &Arc<Host>,
        entry: &CommandEntry,
        caller: Caller,
        input: CommandInput,
    ) -> CommandFuture {
        let command = entry.command;
        let mut audit = AuditLine {
            node: self.clone(),
            caller: caller.clone(),
            command,
            on: input.subjects(),
            done: false,
        };
        if !self.may_use(host, command, &caller) {
            let error = CommandError::forbidden();
            audit.write(Some(&error));
            return Box::pin(std::future::ready(Err(error)));
        }
        let protected = match command.changes && !caller.may_change_admins() {
            true => input.addresses().find(|jid| self.is_protected(jid.as_ref())),
            false => None,
        };
        if let Some(jid) = protected {
            let error = CommandError::protected(jid);
            audit.write(Some(&error));
            return Box::pin(std::future::ready(Err(error)));
        }
        let later = entry.run.run(CommandCall { node: self.clone(), host: host.clone(), caller, input });
        Box::pin(async move {
            let result = later.await;
            audit.write(result.as_ref().err());
            result
        })
    }
}

/// One line of the audit log. A command that is given up on the way, since its stream is gone, has its line as well.
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
        self.node.audit(&self.caller, self.command.name, &self.on, outcome);
    }
}

impl Drop for AuditLine {
    fn drop(&mut self) {
        if !self.done {
            self.log_outcome("given up");
        }
    }
}

/// Lets other tasks run before it goes on: for work over everybody who is online.
pub async fn yield_now() {
    let mut given_way = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut given_way, true) {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}
