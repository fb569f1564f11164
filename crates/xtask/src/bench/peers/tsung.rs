//! Tsung 1.7 as Debian packages it: its start, and the totals of its log.
//!
//! Erlang is started with the arguments that the `tsung` script gives it, without the script: so the process can be
//! ended by its id. All users are in the controller's virtual machine (`use_controller_vm`), so neither ssh nor a
//! second machine is needed, and the port mapper is replaced by a fixed port. The dashboard (`web_gui`) is off.
//!
//! Not included: Tsung's reports (`tsung_stats.pl`), whose cost is not counted.
//!
//! # Pitfalls
//!
//! "request" counts only requests that wait for a response; all others are in "request_noack".

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::check_installed;

/// The folder below which Debian keeps Tsung, by machine.
fn library() -> Result<PathBuf> {
    fs::read_dir("/usr/lib")?
        .filter_map(|entry| Some(entry.ok()?.path().join("tsung")))
        .find(|path| path.join("bin").is_dir())
        .context("tsung is not installed: run crates/xtask/peers/setup.sh")
}

/// The command that runs a scenario; logs go below `folder`.
pub(super) fn command(scenario: &Path, folder: &Path) -> Result<Command> {
    check_installed("erl")?;
    let library = library()?;
    let mut command = Command::new("erl");
    command
        .args("-smp auto +A 8 +K true -rsh ssh -noshell -proto_dist inet_tcp".split(' '))
        .args("-name tsung_controller@127.0.0.1 -setcookie tsung +P 250000".split(' '))
        .args("-start_epmd false -erl_epmd_port 64999".split(' '))
        .args("-s tsung_controller".split(' '));
    for part in ["tsung-", "tsung_controller-"] {
        let names = fs::read_dir(&library)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let name = names.filter(|name| name.starts_with(part)).max();
        let name = name.with_context(|| format!("there is no {part}* in {}", library.display()))?;
        command.arg("-pa").arg(library.join(name).join("ebin"));
    }
    command
        .args("-ssl session_cb ts_ssl_session_cache -ssl session_lifetime 600".split(' '))
        .args("-sasl sasl_error_logger false".split(' '))
        .args("-tsung_controller web_gui false -tsung_controller keep_web_gui false".split(' '))
        .args("-tsung_controller smp_disable true -tsung_controller debug_level 5".split(' '))
        .args("-tsung_controller warm_time 1 -tsung_controller exclude_tag \"\"".split(' '))
        .args(["-tsung_controller", "config_file", &format!("\"{}\"", scenario.display())])
        .args(["-tsung_controller", "log_dir", &format!("\"{}/\"", folder.display())])
        .args(["-tsung_controller", "mon_file", "\"tsung.log\""])
        .env("HOME", folder);
    Ok(command)
}

/// The totals at the end of `tsung.log`, by name: counters as they are, samples by how many there were.
pub(super) fn totals(folder: &Path) -> Result<BTreeMap<String, f64>> {
    let mut logs: Vec<PathBuf> = fs::read_dir(folder)?
        .filter_map(|entry| Some(entry.ok()?.path().join("tsung.log")))
        .filter(|path| path.is_file())
        .collect();
    logs.sort();
    let log = logs.pop().context("Tsung left no tsung.log")?;
    Ok(parse(&fs::read_to_string(log)?))
}

/// Samples have eight fields: count, mean, deviation, max, min, then the mean of all dumps before and their count.
/// Counters have two.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let mut totals = BTreeMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
        let Some((&"stats:", name)) = fields.first().zip(fields.get(1)) else { continue };
        let total = match fields.len() {
            4 => number(3),
            9 => number(2).zip(number(8)).map(|(now, before)| now + before),
            _ => None,
        };
        if let Some(total) = total {
            totals.insert((*name).to_owned(), total);
        }
    }
    totals
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn totals_are_those_of_the_last_dump() {
        let totals = parse(
            "# stats: dump at 1795307602\n\
             stats: users 190 190\n\
             stats: tr_roster 191 6.2 5.7 13.3 0.03 0 0\n\
             stats: size_sent 211767 211767\n\
             # stats: dump at 1795307610\n\
             stats: tr_roster 9 6.2 5.7 13.3 0.03 6.2 191\n\
             stats: size_sent 49078 260845\n",
        );
        assert_eq!(totals["tr_roster"], 200.0);
        assert_eq!(totals["size_sent"], 260_845.0);
        assert!(!totals.contains_key("dump"));
    }
}
