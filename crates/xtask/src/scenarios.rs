//! `cargo xtask scenarios`: runs the scenarios of `e2e/scenarios` against a server on a port, Throng or another.
//!
//! Each scenario has its own users, `SCENARIO-USER@DOMAIN`, so that rosters are empty: use a server with fresh
//! accounts. `--accounts` prints them; `--make COMMAND` creates each before it is needed, such as `--make 'throng
//! account add --password {password} {jid}'` or `--make 'prosodyctl register {user} {domain} {password}'`.
//!
//! Not implemented: scenarios that need time to pass or administrators, which are listed and skipped; the ordinary
//! tests run them over memory.
//!
//! # Pitfalls
//!
//! A second run finds the rosters of the first, so most scenarios fail.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use testkit::scenario::{RemoteServer, Scenario, ScenarioTarget, parse, run as run_scenario};

/// The flags of `cargo xtask scenarios`.
#[derive(clap::Args)]
pub(crate) struct ScenariosArgs {
    /// The server to run against: HOST:PORT of a client listener with STARTTLS or without TLS, or the URL of a
    /// WebSocket.
    #[arg(long)]
    against: Option<String>,
    /// The domain of the accounts.
    #[arg(long, default_value = "localhost")]
    domain: String,
    /// The password of the accounts.
    #[arg(long, default_value = "r0m30myr0m30")]
    password: String,
    /// Print the accounts that the scenarios need, with their passwords, and exit.
    #[arg(long)]
    accounts: bool,
    /// Command that creates an account; {jid}, {user}, {domain} and {password} are filled in.
    #[arg(long, value_name = "COMMAND")]
    make: Option<String>,
    /// The folder of the scenarios.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../e2e/scenarios"))]
    folder: PathBuf,
    /// Only the scenarios of these names.
    names: Vec<String>,
}

/// Runs the scenarios; exit code 1 if one fails, 2 for wrong usage.
pub(crate) fn run(args: &ScenariosArgs) -> ExitCode {
    match run_scenarios(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            print_error(&format!("xtask scenarios: {error:#}"));
            ExitCode::from(2)
        }
    }
}

fn run_scenarios(args: &ScenariosArgs) -> Result<bool> {
    let scenarios = read_scenarios(&args.folder, &args.names)?;
    let address = match (&args.against, args.accounts) {
        (Some(address), _) => address.clone(),
        (None, true) => String::new(),
        (None, false) => bail!(
            "name a server with --against HOST:PORT; over memory the scenarios run with `cargo test -p throng-e2e --test scenarios`"
        ),
    };
    let host = RemoteServer {
        address,
        domain: args.domain.clone(),
        password: args.password.clone(),
        own_users: true,
    };
    let target = ScenarioTarget::Remote(host);
    if args.accounts {
        for (_, local, password) in scenarios.iter().flat_map(|scenario| scenario.accounts(&target)) {
            print_line(&format!("{local}@{} {password}", args.domain));
        }
        return Ok(true);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    let (mut good, mut bad, mut skipped) = (0, 0, 0);
    for scenario in &scenarios {
        if scenario.needs_time() {
            skipped += 1;
            print_line(&format!("skip {} (time passes only over memory)", scenario.name));
            continue;
        }
        if !scenario.administrators.is_empty() {
            skipped += 1;
            print_line(&format!("skip {} (its users must be administrators)", scenario.name));
            continue;
        }
        if let Some(command) = &args.make {
            for (_, local, password) in scenario.accounts(&target) {
                create_account(command, &local, &args.domain, &password)?;
            }
        }
        match runtime.block_on(run_scenario(scenario, &target)) {
            Ok(()) => {
                good += 1;
                print_line(&format!("ok   {}", scenario.name));
            }
            Err(error) => {
                bad += 1;
                print_line(&format!("FAIL {}: {}\n     {error}", scenario.name, scenario.title));
            }
        }
    }
    print_line(&format!("{good} passed, {bad} failed, {skipped} skipped"));
    Ok(bad == 0)
}

fn read_scenarios(folder: &Path, names: &[String]) -> Result<Vec<Scenario>> {
    let mut found = Vec::new();
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("{} cannot be read", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_suffix(".scenario"))
        else {
            continue;
        };
        if names.is_empty() || names.iter().any(|n| n == name) {
            let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            found.push(parse(name, &text)?);
        }
    }
    if let Some(missing) = names.iter().find(|name| !found.iter().any(|scenario| scenario.name == **name)) {
        bail!("there is no scenario {missing} in {}", folder.display());
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

fn create_account(command: &str, user: &str, domain: &str, password: &str) -> Result<()> {
    let words: Vec<String> = command
        .split_whitespace()
        .map(|word| {
            word.replace("{jid}", &format!("{user}@{domain}"))
                .replace("{user}", user)
                .replace("{domain}", domain)
                .replace("{password}", password)
        })
        .collect();
    let (program, rest) = words.split_first().context("--make is empty")?;
    let made = std::process::Command::new(program).args(rest).output();
    let made = made.with_context(|| format!("{program} cannot be started"))?;
    if !made.status.success() {
        bail!("{}: {}", words.join(" "), String::from_utf8_lossy(&made.stderr).trim());
    }
    Ok(())
}

fn print_line(line: &str) {
    #[allow(clippy::print_stdout, reason = "a program's answer")]
    {
        println!("{line}");
    }
}

fn print_error(line: &str) {
    #[allow(clippy::print_stderr, reason = "a program's refusal")]
    {
        eprintln!("{line}");
    }
}
