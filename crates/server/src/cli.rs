//! Command-line interface. The names are a contract: tools depend on them.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use throng_commands::TokenScope;

/// An XMPP server for very large services.
#[derive(Parser)]
#[command(name = "throng", version, about, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

#[derive(Subcommand)]
pub(crate) enum CliCommand {
    /// Run a node. Without a configuration file: domain localhost, SQLite in ./data, an administrator account created
    /// at the first start.
    Serve {
        /// The configuration file (TOML).
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Validate the configuration, certificates, addresses and database. Exits with 1 and a list of errors if any is
    /// invalid.
    Check {
        /// The configuration file (TOML).
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Report compliance of this configuration with XEP-0479, XMPP Compliance Suites, instead.
        #[arg(long)]
        compliance: bool,
    },
    /// Apply changes of the configuration to the running node. Exits with 1, and changes nothing, if the configuration
    /// is invalid.
    Reload {
        /// The configuration file (TOML).
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Empty a running node and stop it: it takes no new connections and ends those that exist at a rate, so that its clients
    /// move to other nodes. Waits until the node has stopped.
    Drain(DrainArgs),
    /// Manage accounts, through the admin socket of a running node or directly in the database of a stopped one.
    Account {
        #[command(subcommand)]
        command: AccountCommand,
    },
    /// Make PubSub nodes and subscriptions for load tests in the database of a stopped node.
    #[command(name = "pubsub")]
    PubSub {
        #[command(subcommand)]
        command: PubSubCommand,
    },
    /// Manage tokens for programs that use the HTTP API at /api/v1.
    Token {
        #[command(subcommand)]
        command: TokenCommand,
    },
    /// Import accounts of another server with rosters, private data, vCards, blocklists and offline messages. Nobody has to
    /// change a password. An interrupted import is continued by the same command.
    Import(ImportArgs),
    /// Export accounts with their data as XEP-0227, also while the node runs. The file contains the keys of all
    /// passwords.
    Export(ExportArgs),
    /// Copy an SQLite database, also while the node runs.
    Backup(BackupArgs),
    /// Run a load test against an XMPP server: a named workload, a TOML plan or a Tsung scenario.
    Load(Box<loadgen::cli::LoadCommand>),
    /// Show the status and metrics of a running node.
    Status {
        /// The configuration file (TOML).
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Run a command of a running node with administrator rights; --list shows all commands with their fields.
    #[command(name = "command")]
    AdHoc(AdHocArgs),
    /// Show the metrics of a running node live; q quits.
    Top {
        /// The configuration file (TOML).
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Print one snapshot as text; default if standard output is not a terminal.
        #[arg(long)]
        once: bool,
    },
}

#[derive(Subcommand)]
pub(crate) enum AccountCommand {
    /// Add an account. Without --password, the password is prompted for on a terminal or read as one line from standard
    /// input.
    Add {
        #[command(flatten)]
        file: ConfigArg,
        /// Create the database if it does not exist.
        #[arg(long)]
        create: bool,
        /// The address, such as alice@example.org.
        jid: String,
        /// The password; other users of this machine can see it in the process list.
        #[arg(long)]
        password: Option<String>,
    },
    /// Change a password. Without --password, it is prompted for as with `account add`.
    Passwd {
        #[command(flatten)]
        file: ConfigArg,
        /// The address.
        jid: String,
        /// The password; other users of this machine can see it in the process list.
        #[arg(long)]
        password: Option<String>,
    },
    /// Remove an account with all its data and notify its contacts.
    Remove {
        #[command(flatten)]
        file: ConfigArg,
        /// The address.
        jid: String,
    },
    /// Disable an account: end its sessions and refuse its logins.
    Disable {
        #[command(flatten)]
        file: ConfigArg,
        /// The address.
        jid: String,
    },
    /// Enable a disabled account.
    Enable {
        #[command(flatten)]
        file: ConfigArg,
        /// The address.
        jid: String,
    },
    /// List the accounts of a domain.
    List {
        #[command(flatten)]
        file: ConfigArg,
        /// The domain; the default domain if absent.
        domain: Option<String>,
    },
    /// Show one account.
    Show {
        #[command(flatten)]
        file: ConfigArg,
        /// The address.
        jid: String,
    },
    /// Add many accounts with the same password: `PREFIX<FROM>` to `PREFIX<FROM+COUNT-1>`.
    Bulk {
        #[command(flatten)]
        file: ConfigArg,
        /// Create the database if it does not exist.
        #[arg(long)]
        create: bool,
        /// The domain.
        #[arg(long, value_name = "D")]
        domain: Option<String>,
        /// Prefix of the names.
        #[arg(long, value_name = "P")]
        prefix: String,
        /// The first number.
        #[arg(long, value_name = "N", default_value_t = 0)]
        from: u64,
        /// Number of accounts.
        #[arg(long, value_name = "K")]
        count: u64,
        /// Their password; prompted for if absent.
        #[arg(long, alias = "pw", value_name = "PW")]
        password: Option<String>,
        /// Contacts: with `ring:R`, each account has its R nearest neighbours as mutual contacts.
        #[arg(long, value_name = "ring:R")]
        roster: Option<String>,
    },
}

impl AccountCommand {
    /// The configuration file of a command.
    pub(crate) fn file(&self) -> &ConfigArg {
        match self {
            AccountCommand::Add { file, .. }
            | AccountCommand::Passwd { file, .. }
            | AccountCommand::Remove { file, .. }
            | AccountCommand::Disable { file, .. }
            | AccountCommand::Enable { file, .. }
            | AccountCommand::List { file, .. }
            | AccountCommand::Show { file, .. }
            | AccountCommand::Bulk { file, .. } => file,
        }
    }

    /// The address of the account, if the command concerns a single one.
    pub(crate) fn jid(&self) -> Option<&str> {
        match self {
            AccountCommand::Add { jid, .. }
            | AccountCommand::Passwd { jid, .. }
            | AccountCommand::Remove { jid, .. }
            | AccountCommand::Disable { jid, .. }
            | AccountCommand::Enable { jid, .. }
            | AccountCommand::Show { jid, .. } => Some(jid),
            AccountCommand::List { .. } | AccountCommand::Bulk { .. } => None,
        }
    }
}

#[derive(Subcommand)]
pub(crate) enum PubSubCommand {
    /// Add many nodes, `PREFIX0` to `PREFIX<NODES-1>`, and subscribe accounts to them, each node others. An interrupted command
    /// can be repeated.
    Bulk(PubSubBulkArgs),
}

#[derive(clap::Args)]
pub(crate) struct PubSubBulkArgs {
    #[command(flatten)]
    pub(crate) file: ConfigArg,
    /// Create the database if it does not exist.
    #[arg(long)]
    pub(crate) create: bool,
    /// The domain.
    #[arg(long, value_name = "D")]
    pub(crate) domain: Option<String>,
    /// The address of the service; pubsub.DOMAIN if absent.
    #[arg(long, value_name = "S")]
    pub(crate) service: Option<String>,
    /// The owner of the nodes; admin@DOMAIN if absent.
    #[arg(long, value_name = "JID")]
    pub(crate) owner: Option<String>,
    /// Prefix of the names of the nodes.
    #[arg(long, value_name = "P", default_value = "node")]
    pub(crate) prefix: String,
    /// Number of nodes.
    #[arg(long, value_name = "N")]
    pub(crate) nodes: u32,
    /// A field of the nodes' configuration. Can be repeated.
    #[arg(long, value_name = "VAR=VALUE")]
    pub(crate) field: Vec<String>,
    /// Prefix of the names of the accounts that are subscribed.
    #[arg(long, value_name = "P", default_value = "u")]
    pub(crate) subscriber_prefix: String,
    /// Number of these accounts.
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub(crate) subscribers: u32,
    /// Subscriptions of each node.
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub(crate) each: u32,
}

/// The help of `--scope`, listing every scope; the last one includes the others.
fn scope_help() -> String {
    let all = TokenScope::ALL.map(TokenScope::as_str).join(", ");
    let (some, last) = all.rsplit_once(' ').unwrap_or_default();
    format!("Scope: {some} or {last} for everything. Can be repeated")
}

#[derive(Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token and print it; it is not shown again.
    Add {
        #[command(flatten)]
        file: ConfigArg,
        /// Name of the token in lists and in the audit log.
        name: String,
        #[arg(long = "scope", value_name = "SCOPE", help = scope_help(), required = true, value_delimiter = ',')]
        scopes: Vec<String>,
        /// Days until it expires; 0 for never.
        #[arg(long, value_name = "N", default_value_t = 365)]
        days: u64,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// List the tokens with their scopes.
    List {
        #[command(flatten)]
        file: ConfigArg,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Remove a token; it is refused from then on.
    Remove {
        #[command(flatten)]
        file: ConfigArg,
        /// Name of the token.
        name: String,
    },
}

#[derive(clap::Args)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    pub(crate) file: ConfigArg,
    /// Connections to end in a second.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) rate: u32,
    /// Redirect the clients to this host, with an optional port; without it they look for a node as usual.
    #[arg(long, value_name = "HOST")]
    pub(crate) see_other_host: Option<String>,
}

#[derive(clap::Args)]
pub(crate) struct AdHocArgs {
    #[command(flatten)]
    pub(crate) file: ConfigArg,
    /// List all commands with their fields.
    #[arg(long)]
    pub(crate) list: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// The domain; the default domain if absent.
    #[arg(long, value_name = "D")]
    pub(crate) domain: Option<String>,
    /// The command, such as add-user.
    pub(crate) name: Option<String>,
    /// Its fields, such as user=alice@example.org. Required secrets that are omitted are prompted for.
    #[arg(value_name = "FIELD=VALUE")]
    pub(crate) values: Vec<String>,
}

/// Kinds of sources.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum ImportKind {
    /// The data folder of Prosody 0.12 or 13, such as /var/lib/prosody.
    Prosody,
    /// A file that `ejabberdctl dump` has written.
    Ejabberd,
    /// ejabberd's SQL database. PATH is its URL, postgres://…, mysql://… or sqlite:…, or - to read the URL from standard input.
    EjabberdSql,
    /// A file in the format of XEP-0227.
    #[value(name = "xep-0227")]
    Xep0227,
}

impl ImportKind {
    /// Its name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            ImportKind::Prosody => "prosody",
            ImportKind::Ejabberd => "ejabberd",
            ImportKind::EjabberdSql => "ejabberd-sql",
            ImportKind::Xep0227 => "xep-0227",
        }
    }
}

#[derive(clap::Args)]
pub(crate) struct ImportArgs {
    #[command(flatten)]
    pub(crate) file: ConfigArg,
    /// Create the database if it does not exist.
    #[arg(long)]
    pub(crate) create: bool,
    /// Count, and list what will be skipped, but write nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Abandon an import that was not finished. Accounts that it has created remain and are not changed any more.
    #[arg(long)]
    pub(crate) restart: bool,
    /// What to import.
    #[arg(value_enum, value_name = "KIND")]
    pub(crate) kind: ImportKind,
    /// Domain of an ejabberd SQL database with the old schema, which has no column for it.
    #[arg(long, value_name = "D")]
    pub(crate) domain: Option<String>,
    /// File, folder or URL of the source.
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
}

#[derive(clap::Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) file: ConfigArg,
    /// Export only this domain. Can be repeated.
    #[arg(long, value_name = "D")]
    pub(crate) domain: Vec<String>,
    /// The file to create; - for standard output.
    #[arg(value_name = "FILE")]
    pub(crate) path: PathBuf,
}

#[derive(clap::Args)]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    pub(crate) file: ConfigArg,
    /// The file to create. With a separate auth database, accounts are in a second one, FILE.auth.
    #[arg(value_name = "FILE")]
    pub(crate) path: PathBuf,
}

#[derive(clap::Args)]
pub(crate) struct ConfigArg {
    /// The configuration file (TOML).
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_help_of_a_token_names_every_scope() {
        let mut cli = Cli::command();
        let add = cli.find_subcommand_mut("token").unwrap().find_subcommand_mut("add").unwrap();
        let help = add.render_long_help().to_string();
        assert!(
            help.contains(
                "Scope: read, metrics, accounts, sessions, messages, node, or admin for everything"
            ),
            "{help}"
        );
    }
}
