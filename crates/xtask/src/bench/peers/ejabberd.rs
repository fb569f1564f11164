//! ejabberd (23.01 in Debian 12), started as `ejabberdctl foreground` starts it, with its own port and folder.
//!
//! As its documentation recommends for load: kernel poll, 250 000 processes (`+P`), as many ports as files are allowed
//! (`+Q`), shaper `none`, a queue of 10 000 packets a session, a long backlog, caches of 20 items an account, warnings
//! only in the log, SCRAM passwords. Accounts and rosters are in Mnesia. By default ejabberd stores both tables on disk
//! only, and a login then reads the disk once for each contact (3 ms of CPU at 50); `ejabberd.schema` moves them into
//! memory with a copy on disk, at 0.9 kB a contact. The node is not distributed, so epmd is not started;
//! `ejabberd_cluster.rs` starts distributed nodes.
//!
//! Filling a million contacts takes most of a minute, so the filled tables are stored in `prepared/` and copied for
//! each start. Their `stamp` names their content; with other accounts, another recipe or another ejabberd they are
//! created again. All module sets share them. `ejabberd_sql.rs` has the tables of a node on PostgreSQL.
//!
//! The stock modules are those of the file that Debian's package installs (`peers/ejabberd-stock.yml`), without its
//! listeners and limits.
//!
//! # Pitfalls
//!
//! Idle schedulers of Erlang spin before they sleep (`+sbwt`), which counts as CPU. The default is not changed.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use rustix::process::{Resource, getrlimit};

use super::super::report::print_progress;
use super::{
    DOMAIN, ModuleSet, PasswordStorage, PeerOptions, PeerServer, RoomPresence, check_installed, ejabberd_sql,
    empty_folder, peers_file, run_to_end,
};

/// Storage of ejabberd's tables, in the format of its own file (`ejabberd_mnesia:dump_schema/0`).
const SCHEMA: &str = "\
passwd:
  storage_type: disc_copies
  local_content: false
roster:
  storage_type: disc_copies
  local_content: false
";

/// Debian's folder of Erlang's applications, by architecture.
pub(super) fn applications() -> Result<PathBuf> {
    let folders = fs::read_dir("/usr/lib").context("there is no /usr/lib")?;
    folders
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| version(path).is_some())
        .context("ejabberd is not installed: run crates/xtask/peers/setup.sh")
}

/// The folder of ejabberd's application, which has its version.
fn version(libraries: &Path) -> Option<String> {
    let names = fs::read_dir(libraries).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.starts_with("ejabberd-")).max()
}

/// Writes configuration and accounts, and returns the command that runs the server.
pub(super) fn prepare(wanted: &PeerOptions, folder: &Path, address: SocketAddr) -> Result<Command> {
    check_installed("erl")?;
    let libraries = applications()?;
    let config = folder.join("ejabberd.yml");
    fs::write(&config, configuration(wanted, address)?)?;
    let data = folder.join("run");
    if let Some(database) = &wanted.database {
        ejabberd_sql::fill(wanted, database, folder)?;
        empty_folder(&data)?;
    } else {
        let prepared = prepare_mnesia(wanted, folder, &libraries, &config)?;
        empty_folder(&data)?;
        copy(&prepared, &data)?;
    }
    let mut serve = erlang(&libraries, folder, &config, &data);
    serve.args(["-s", "ejabberd"]);
    Ok(serve)
}

/// Fills the tables, unless they are there, and returns their folder.
fn prepare_mnesia(wanted: &PeerOptions, folder: &Path, libraries: &Path, config: &Path) -> Result<PathBuf> {
    let shared = super::peer_folder(PeerServer::Ejabberd.name())?;
    let prepared = shared.join("prepared").join(format!("{}x{}", wanted.accounts, wanted.roster));
    let fill = fs::read_to_string(peers_file("fill.erl"))?;
    let stamp = format!(
        "{:?} {} {} {} {}\n{SCHEMA}{fill}",
        version(libraries),
        wanted.prefix,
        wanted.password,
        format(wanted.passwords),
        wanted.accounts
    );
    let (stamped, data) = (prepared.join("stamp"), prepared.join("mnesia"));
    if fs::read_to_string(&stamped).ok().as_deref() != Some(&stamp) {
        print_progress("ejabberd: writing the accounts");
        empty_folder(&prepared)?;
        let mut compile = Command::new("erlc");
        compile.arg("-o").arg(folder).arg(peers_file("fill.erl"));
        run_to_end(&compile, &folder.join("erlc.log"), "erlc")?;
        empty_folder(&data)?;
        fs::write(data.join("ejabberd.schema"), SCHEMA)?;
        let mut command = erlang(libraries, folder, config, &data);
        command
            .arg("-pa")
            .arg(folder)
            .args(["-s", "ejabberd", "-s", "fill"])
            .env("FILL_ACCOUNTS", wanted.accounts.to_string())
            .env("FILL_ROSTER", wanted.roster.to_string())
            .env("FILL_DOMAIN", DOMAIN)
            .env("FILL_PREFIX", &wanted.prefix)
            .env("FILL_PASSWORD", &wanted.password)
            .env("FILL_FORMAT", format(wanted.passwords));
        run_to_end(&command, &folder.join("fill.log"), "writing the accounts of ejabberd")?;
        fs::write(&stamped, stamp)?;
    }
    Ok(data)
}

fn format(passwords: PasswordStorage) -> &'static str {
    match passwords {
        PasswordStorage::Scram => "scram",
        PasswordStorage::Plain => "plain",
        PasswordStorage::Numbered => "numbered",
    }
}

/// Erlang with ejabberd's environment. It handles SIGTERM by ending in order.
pub(super) fn erlang(libraries: &Path, folder: &Path, config: &Path, data: &Path) -> Command {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(65_536).clamp(1024, 1 << 20);
    let mut command = Command::new("erl");
    command
        .args(["+K", "true", "+P", "250000", "+Q", &files.to_string(), "-noshell", "-noinput"])
        .args(["-mnesia", "dir", &format!("\"{}\"", data.display())])
        .env("ERL_LIBS", libraries)
        .env("ERL_MAX_ETS_TABLES", "1400")
        .env("ERL_MAX_PORTS", files.to_string())
        .env("ERL_CRASH_DUMP", folder.join("crash.dump"))
        .env("ERL_CRASH_DUMP_BYTES", "0")
        .env("EJABBERD_CONFIG_PATH", config)
        .env("EJABBERD_LOG_PATH", folder.join("ejabberd.log"));
    command
}

pub(super) fn configuration(wanted: &PeerOptions, address: SocketAddr) -> Result<String> {
    let modules = match wanted.form {
        ModuleSet::Usual => ["caps", "disco", "offline", "ping", "roster", "time", "version"].as_slice(),
        ModuleSet::Lean => &["disco", "ping", "roster"],
        ModuleSet::Stock => &[],
    };
    let modules = if modules.is_empty() {
        fs::read_to_string(peers_file("ejabberd-stock.yml"))?
    } else {
        let bosh = if wanted.web { "  mod_bosh: {}\n" } else { "" };
        // Acknowledgements, and as many offline messages as Throng stores.
        let acknowledged = match wanted.database {
            Some(_) => "  mod_stream_mgmt: {}\nshaper_rules:\n  max_user_offline_messages: 1000\n",
            None => "",
        };
        let rooms = wanted.rooms.map(rooms).unwrap_or_default() + if wanted.nodes { NODES } else { "" };
        let lines: String = modules.iter().map(|module| format!("  mod_{module}: {{}}\n")).collect();
        format!("modules:\n{lines}{bosh}{rooms}{acknowledged}")
    };
    Ok(format!(
        "loglevel: warning\n\
         hosts:\n  - {DOMAIN}\n\
         listen:\n  -\n    port: {port}\n    ip: \"{ip}\"\n    module: ejabberd_c2s\n    access: all\n    shaper: none\n\
         \x20   max_stanza_size: 262144\n    max_fsm_queue: 10000\n    backlog: 4096\n\
         {web}\
         auth_password_format: {format}\nauth_scram_hash: sha\n\
         disable_sasl_mechanisms: [\"digest-md5\", \"X-OAUTH2\"]\n\
         {storage}\
         {modules}",
        storage = match &wanted.database {
            Some(database) => ejabberd_sql::configuration(database),
            // As documented: the number of online users, for rosters times 20.
            None => format!(
                "auth_method: internal\ndefault_db: mnesia\ncache_size: {}\n",
                wanted.accounts.max(50) * 20
            ),
        },
        // Its default inactivity is 30 s as well; messages for a session wait in it as in that of a stream.
        web = if wanted.web {
            format!(
                "  -\n    port: {}\n    ip: \"{}\"\n    module: ejabberd_http\n    backlog: 4096\n    request_handlers:\n\
                 \x20     /http-bind: mod_bosh\n      /xmpp-websocket: ejabberd_http_ws\n",
                super::web_address(address).port(),
                address.ip()
            )
        } else {
            String::new()
        },
        port = address.port(),
        ip = address.ip(),
        format = if wanted.passwords == PasswordStorage::Scram { "scram" } else { "plain" },
    ))
}

/// PubSub with the plugins of its own example, and without a limit of items for the last one.
const NODES: &str =
    "  mod_pubsub:\n    access_createnode: all\n    last_item_cache: false\n    plugins: [flat]\n";

/// Rooms. By default ejabberd admits 200 occupants, and sends no presence in rooms of more than 1 000.
fn rooms(presence: RoomPresence) -> String {
    let broadcast = match presence {
        RoomPresence::Standard => "[moderator, participant, visitor]",
        RoomPresence::Reduced => "[]",
    };
    format!(
        "  mod_muc:\n    host: conference.{DOMAIN}\n    max_users: 20000\n    max_users_presence: 20000\n    max_user_conferences: 1000\n\
         \x20   min_message_interval: 0\n    room_shaper: none\n    user_message_shaper: none\n    user_presence_shaper: none\n\
         \x20   default_room_options:\n      max_users: 20000\n      presence_broadcast: {broadcast}\n"
    )
}

/// Copies a folder with its content.
fn copy(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("{} cannot be read", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir_all(&target)?;
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
