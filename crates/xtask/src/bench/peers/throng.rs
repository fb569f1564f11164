//! Throng as one of the compared servers: the same accounts and the same listener as the others.
//!
//! SQLite, SCRAM keys of 4096 rounds (the least that is allowed, and what ejabberd uses), one plain listener. Nothing
//! else differs from a configuration without a file; with the stock modules those that are off by default are enabled
//! as well.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{DOMAIN, ModuleSet, PasswordStorage, PeerOptions, RoomPresence, empty_folder, run_to_end};

/// Writes configuration and accounts, and returns the command that runs the server.
pub(super) fn prepare(wanted: &PeerOptions, folder: &Path, address: SocketAddr) -> Result<Command> {
    ensure!(
        wanted.passwords == PasswordStorage::Scram,
        "Throng stores no readable passwords: omit --passwords"
    );
    ensure!(wanted.form != ModuleSet::Lean, "Throng is not measured with lean modules");
    let program = program(wanted.server.as_deref())?;
    let data = folder.join("run");
    empty_folder(&data)?;
    let config = folder.join("throng.toml");
    let mut text = format!(
        "hosts = [\"{DOMAIN}\"]\ndata_dir = \"{data}\"\n\n\
         [storage]\nurl = \"sqlite:{data}/throng.db\"\n\n\
         [auth]\nscram_iterations = 4096\n\n\
         [[listen]]\nkind = \"c2s\"\naddress = \"{address}\"\ntls = \"{tls}\"\nallow_plain_without_tls = true\n",
        data = data.display(),
        tls = if wanted.offer_tls { "optional" } else { "off" },
    );
    if wanted.web {
        text.push_str(&format!(
            "\n[[listen]]\nkind = \"http\"\naddress = \"{}\"\n\n\
             [http.bosh]\nmax_inactivity_seconds = 30\n",
            super::web_address(address)
        ));
    }
    match wanted.rooms {
        None => {}
        // Rates: occupants of a closed loop send as fast as they can, which limits of the other servers allow.
        Some(presence) => text.push_str(&format!(
            "\n[limits]\nstanzas_per_second = 0\nbytes_per_second = 0\n\n\
             [modules.muc]\nstanzas_per_second_per_sender = 0\noccupants = 20000\nrooms_per_user = 100000\npresence_occupants = {}\n",
            match presence {
                RoomPresence::Standard => 20_000,
                RoomPresence::Reduced => 0,
            }
        )),
    }
    if wanted.nodes {
        text.push_str("\n[limits]\nstanzas_per_second = 0\nbytes_per_second = 0\n\n[modules.pubsub]\nstanzas_per_second_per_sender = 0\n");
    }
    if wanted.form == ModuleSet::Stock {
        text.push_str("\n[modules]\n");
        for feature in features::registry::ALL.iter().filter(|feature| !feature.default_on) {
            text.push_str(&format!("{} = true\n", feature.name));
        }
    }
    fs::write(&config, text)?;
    let mut bulk = Command::new(&program);
    bulk.args(["account", "bulk", "--create", "--domain", DOMAIN, "--prefix", &wanted.prefix, "--from", "0"])
        .args(["--count", &wanted.accounts.to_string(), "--password", &wanted.password])
        .args(["--roster", &format!("ring:{}", wanted.roster), "--config"])
        .arg(&config);
    run_to_end(&bulk, &folder.join("bulk.log"), "`throng account bulk`")?;
    let mut serve = Command::new(&program);
    serve.arg("serve").arg("--config").arg(&config);
    Ok(serve)
}

/// The given program, or one of this tree that is built now.
pub(super) fn program(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = given {
        return path.canonicalize().with_context(|| format!("there is no program {}", path.display()));
    }
    crate::bench::build_server()
}
