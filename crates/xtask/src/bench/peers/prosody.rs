//! Prosody (0.12.3 in Debian 12), in the foreground with its own port and folder.
//!
//! As its documentation recommends for load: the `epoll` backend, a long backlog, no `limits`, the generational
//! collector of Lua 5.4, warnings only in the log, `internal_hashed` passwords in `internal` storage. Its data files
//! are small Lua programs (util.datamanager); they are written here as Prosody writes them, two per user, which takes
//! seconds instead of minutes.
//!
//! The stock modules are those that the configuration of Debian's package names, `limits` without limits among them.
//!
//! Not enabled: server-to-server and TLS (`modules_disabled`); with the stock modules they are loaded and idle.
//!
//! # Pitfalls
//!
//! Prosody has one thread. Above one core its delays grow without bound and its listen queue overflows, which clients
//! see as connections that never open.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use ring::{digest, hmac, pbkdf2};

use super::ring_roster::neighbours;
use super::{DOMAIN, ModuleSet, PasswordStorage, PeerOptions, RoomPresence, check_installed, empty_folder};

/// The same number of rounds as the other servers have; Prosody's own is 10 000.
const ROUNDS: NonZeroU32 = NonZeroU32::new(4096).unwrap();
/// Modules that the package's prosody.cfg.lua enables (0.12.3-1+deb12u1), in its order.
const STOCK: &[&str] = &[
    "disco",
    "roster",
    "saslauth",
    "tls",
    "blocklist",
    "bookmarks",
    "carbons",
    "dialback",
    "limits",
    "pep",
    "private",
    "smacks",
    "vcard4",
    "vcard_legacy",
    "csi_simple",
    "invites",
    "invites_adhoc",
    "invites_register",
    "ping",
    "register",
    "time",
    "uptime",
    "version",
    "admin_adhoc",
    "admin_shell",
    "posix",
];
/// Prosody's salts are UUIDs; all accounts share one, so that the key is derived once.
const SALT: &str = "6a2ad3f2-6f0e-4bd0-8f5b-3a8f5c1f7a10";

/// Writes configuration and accounts, and returns the command that runs the server.
pub(super) fn prepare(wanted: &PeerOptions, folder: &Path, address: SocketAddr) -> Result<Command> {
    check_installed("prosody")?;
    let data = folder.join(format!("{}x{}", wanted.accounts, wanted.roster));
    write(wanted, &data)?;
    let config = folder.join("prosody.cfg.lua");
    fs::write(&config, configuration(wanted, folder, &data, address)?)?;
    let mut serve = Command::new("prosody");
    serve.arg("-F").arg("--config").arg(&config);
    Ok(serve)
}

/// Writes the files of all accounts, or of those that an earlier run changed.
///
/// Tens of thousands of small files take seconds on an idle disk and minutes on a busy one, so only files that are
/// missing or newer than `stamp` are written.
fn write(wanted: &PeerOptions, data: &Path) -> Result<()> {
    let stamp = data.join("stamp");
    let holds = format!("{} {} {:?} 1", wanted.prefix, wanted.password, wanted.passwords);
    let written = fs::read_to_string(&stamp).is_ok_and(|text| text == holds);
    let since = if written { Some(fs::metadata(&stamp)?.modified()?) } else { None };
    let domain = data.join(DOMAIN);
    if written {
        // Offline messages and the like.
        for entry in fs::read_dir(&domain)? {
            let entry = entry?;
            if !["accounts", "roster"].map(OsString::from).contains(&entry.file_name()) {
                fs::remove_dir_all(entry.path())?;
            }
        }
    } else {
        empty_folder(data)?;
    }
    let (accounts, rosters) = (domain.join("accounts"), domain.join("roster"));
    fs::create_dir_all(&accounts)?;
    fs::create_dir_all(&rosters)?;
    let keys = keys(wanted);
    let stale = |path: &Path| {
        let changed = fs::metadata(path).and_then(|data| data.modified());
        since.is_none_or(|since| changed.is_ok_and(|changed| changed > since) || !path.exists())
    };
    for number in 0..wanted.accounts {
        let name = format!("{}.dat", wanted.user(number));
        let (account, contacts) = (accounts.join(&name), rosters.join(&name));
        if stale(&account) {
            let text = match wanted.passwords {
                PasswordStorage::Scram => keys.clone(),
                PasswordStorage::Plain | PasswordStorage::Numbered => {
                    format!("return {{\n\t[\"password\"] = \"{}\";\n}};\n", wanted.secret(number))
                }
            };
            fs::write(account, text).context("an account could not be written")?;
        }
        if wanted.roster > 0 && stale(&contacts) {
            fs::write(contacts, roster(wanted, number)).context("a roster could not be written")?;
        }
    }
    if !written {
        fs::write(&stamp, holds)?;
    }
    Ok(())
}

/// The file of an account with hashed passwords, the same for all.
fn keys(wanted: &PeerOptions) -> String {
    let algorithm = hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY;
    let mut salted = [0; digest::SHA1_OUTPUT_LEN];
    let (kdf, password) = (pbkdf2::PBKDF2_HMAC_SHA1, wanted.password.as_bytes());
    pbkdf2::derive(kdf, ROUNDS, SALT.as_bytes(), password, &mut salted);
    let salted = hmac::Key::new(algorithm, &salted);
    let client = hmac::sign(&salted, b"Client Key");
    let stored = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, client.as_ref());
    let server = hmac::sign(&salted, b"Server Key");
    format!(
        "return {{\n\t[\"iteration_count\"] = {ROUNDS};\n\t[\"salt\"] = \"{SALT}\";\n\t[\"stored_key\"] = \"{}\";\n\t[\"server_key\"] = \"{}\";\n}};\n",
        hex(stored.as_ref()),
        hex(server.as_ref())
    )
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The roster of an account; `[false]` has everything else.
fn roster(wanted: &PeerOptions, number: usize) -> String {
    let mut text =
        String::from("return {\n\t[false] = {\n\t\t[\"version\"] = 1;\n\t\t[\"pending\"] = {};\n\t};\n");
    for contact in neighbours(number, wanted.accounts, wanted.roster) {
        let _ = writeln!(
            text,
            "\t[\"{}@{DOMAIN}\"] = {{\n\t\t[\"subscription\"] = \"both\";\n\t\t[\"groups\"] = {{}};\n\t}};",
            wanted.user(contact)
        );
    }
    text.push_str("};\n");
    text
}

fn configuration(wanted: &PeerOptions, folder: &Path, data: &Path, address: SocketAddr) -> Result<String> {
    let certificates = folder.join("certs");
    fs::create_dir_all(&certificates)?;
    let authentication = match wanted.passwords {
        PasswordStorage::Scram => "internal_hashed",
        PasswordStorage::Plain | PasswordStorage::Numbered => "internal_plain",
    };
    // Offline messages, server-to-server and clients' streams are on unless switched off.
    let (modules, off): (&[&str], &[&str]) = match wanted.form {
        ModuleSet::Usual => (&["disco", "ping", "roster", "saslauth", "time", "version"], &["s2s", "tls"]),
        ModuleSet::Lean => (&["disco", "ping", "roster", "saslauth"], &["offline", "s2s", "tls"]),
        ModuleSet::Stock => (STOCK, &[]),
    };
    let web = if wanted.web {
        format!(
            "http_ports = {{ {} }}\nhttps_ports = {{ }}\nhttp_interfaces = {{ \"{}\" }}\nhttp_default_host = \"{DOMAIN}\"\n\
             consider_bosh_secure = true\nconsider_websocket_secure = true\nbosh_max_inactivity = 30\n",
            super::web_address(address).port(),
            address.ip()
        )
    } else {
        String::new()
    };
    let over_http: &[&str] = if wanted.web { &["bosh", "websocket"] } else { &[] };
    let list = |names: &[&str]| names.iter().map(|name| format!("\"{name}\"; ")).collect::<String>();
    Ok(format!(
        "-- Written by cargo xtask peers.\n\
         run_as_root = true\n\
         data_path = \"{data}\"\n\
         certificates = \"{certificates}\"\n\
         log = {{ warn = \"{log}\" }}\n\
         network_backend = \"epoll\"\n\
         network_settings = {{ tcp_backlog = 4096 }}\n\
         gc = {{ mode = \"{collector}\" }}\n\
         interfaces = {{ \"{ip}\" }}\n\
         c2s_ports = {{ {port} }}\n\
         c2s_direct_tls_ports = {{ }}\n\
         s2s_ports = {{ }}\n\
         s2s_direct_tls_ports = {{ }}\n\
         c2s_require_encryption = false\n\
         allow_unencrypted_plain_auth = true\n\
         authentication = \"{authentication}\"\n\
         storage = \"internal\"\n\
         {web}\
         modules_enabled = {{ {modules}{over_http}}}\n\
         modules_disabled = {{ {off}}}\n\
         VirtualHost \"{DOMAIN}\"\n{rooms}{nodes}",
        rooms = wanted.rooms.map(rooms).unwrap_or_default(),
        nodes = if wanted.nodes { nodes() } else { String::new() },
        collector = if wanted.incremental { "incremental" } else { "generational" },
        modules = list(modules),
        over_http = list(over_http),
        off = list(off),
        data = data.display(),
        certificates = certificates.display(),
        log = folder.join("prosody.log").display(),
        ip = address.ip(),
        port = address.port(),
    ))
}

/// PubSub, of which users of the domain may create nodes.
fn nodes() -> String {
    format!("Component \"pubsub.{DOMAIN}\" \"pubsub\"\n  admins = {{ \"u0@{DOMAIN}\" }}\n")
}

/// Rooms. They are not locked when they are created; a client that does not wait for its configuration can enter.
fn rooms(presence: RoomPresence) -> String {
    let reduced = match presence {
        RoomPresence::Standard => "",
        RoomPresence::Reduced => {
            "  muc_room_default_presence_broadcast = { visitor = false; participant = false; moderator = false }\n"
        }
    };
    format!("Component \"conference.{DOMAIN}\" \"muc\"\n  muc_room_locking = false\n{reduced}")
}
