//! Command line of `throng load`: the arguments as parsed by clap, and the dispatch of subcommands.
//!
//! The first argument is a plan unless it is one of `worker`, `capacity`, `compare`, `prepare` and `report`; a file of
//! that name is written `./worker`. Errors are one sentence that says how to fix them. Exit code 2 means wrong usage, 1
//! a failed run, which includes failed logins and missed thresholds.
//!
//! # Pitfalls
//!
//! The password may come from the environment or a file, because arguments are visible to all users of the machine.

mod capacity;
mod output;
mod parse;
mod plan;
mod prepare;
mod reports;
mod run;
mod search;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use parse::{chaos, duration_ms, renamed_patience, renamed_security, renamed_stay, security, time};

use crate::control::chaos::ChaosAction;
use crate::control::local_workers::TOKEN;
use crate::plan::{Threshold, TimeSpan, TransportSecurity};

const EXIT_CODES: &str = "Exit codes:
  0  the run ended as planned or was stopped with Ctrl-C
  1  the run failed: it ended early, logins failed, or a --fail-on condition was met
  2  invalid usage; nothing was sent";

/// Run a load against an XMPP server: a named workload, a TOML plan or a Tsung scenario.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = EXIT_CODES)]
pub struct LoadCommand {
    #[command(subcommand)]
    word: Option<LoadSubcommand>,
    /// List the named workloads.
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Subcommand)]
enum LoadSubcommand {
    /// Join a run as a worker; a controller with `--listen` prints the command to run.
    Worker(WorkerArgs),
    /// Find the largest number of users (or rate) that the server handles within limits.
    Capacity(CapacityArgs),
    /// Create the accounts and rosters of a plan on a server, in-band (XEP-0077).
    Prepare(PrepareArgs),
    /// Compare runs side by side.
    Compare {
        /// Directories or run.json files; ratios are relative to the first.
        #[arg(required = true, num_args = 2..)]
        runs: Vec<PathBuf>,
        /// Also write an HTML page with common charts to this file.
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
    /// Regenerate the report of a run from its run.json.
    Report {
        /// Directory or run.json.
        run: PathBuf,
    },
}

/// Arguments of every run.
#[derive(Args, Clone)]
struct RunArgs {
    /// Name of a workload (see --list), a TOML plan (*.toml) or a Tsung scenario (*.xml).
    #[arg(value_name = "WORKLOAD|FILE")]
    plan: Option<String>,
    #[command(flatten)]
    shape: PlanArgs,
    #[command(flatten)]
    worker_pool: WorkerPoolArgs,
    #[command(flatten)]
    failures: FailureArgs,
    #[command(flatten)]
    monitor: MonitorArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Plan (overrides the values of the plan)")]
struct PlanArgs {
    /// Address of the server, or of a node of a cluster; can be repeated. Each gets the same number of users, in random
    /// order by --seed. Default port: 5222. http://HOST:PORT/PATH selects BOSH, ws://HOST:PORT/PATH WebSocket; https and
    /// wss add TLS.
    #[arg(long, value_name = "HOST:PORT|URL")]
    target: Vec<String>,
    /// XMPP domain. Default: that of the plan, else the host of --target if it is a name, else localhost.
    #[arg(long)]
    domain: Option<String>,
    /// Number of concurrent connections.
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    connections: Option<u32>,
    /// Maximum number of sockets of all BOSH users; above it, sockets without a request are closed. Default: two per
    /// user.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    sockets: Option<u32>,
    /// Speed up the plan by this factor, except timeouts and the acceptable limit.
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    time_scale: f64,
    /// End the run after this time, such as 90s, 10m or 2h.
    #[arg(long, value_name = "TIME", value_parser = duration_ms)]
    duration: Option<u64>,
    /// Time to continue after all users have arrived, such as 1m.
    #[arg(long, value_name = "TIME", value_parser = duration_ms)]
    hold: Option<u64>,
    /// Arrivals per second, in every phase that has arrivals.
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// Time between two messages of one user: 5s, 2s-4s (uniform) or ~5s (exponential).
    #[arg(long, value_name = "TIME", value_parser = time)]
    every: Option<TimeSpan>,
    /// Size of a message body in bytes.
    #[arg(long, value_name = "BYTES")]
    size: Option<u32>,
    /// Messages in flight in each direction of a closed loop, such as `flood`.
    #[arg(long, value_name = "N")]
    in_flight: Option<u32>,
    /// Encryption: auto (STARTTLS if offered), none, starttls or direct. Default: that of the plan, else auto.
    #[arg(long, value_name = "HOW", value_parser = security)]
    security: Option<TransportSecurity>,
    #[arg(long, hide = true, value_parser = renamed_security)]
    tls: Option<TransportSecurity>,
    /// PEM file of the authorities to verify the server's certificate with. Default: any certificate is accepted.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// PEM file of the client's certificate chain, for EXTERNAL.
    #[arg(long, value_name = "FILE", requires = "key", alias = "certificate")]
    cert: Option<PathBuf>,
    /// PEM file of the client's key.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Resume TLS sessions.
    #[arg(long)]
    resume: bool,
    /// Refuse TLS 1.3, to measure 1.2.
    #[arg(long)]
    tls12: bool,
    /// SASL mechanisms to choose the strongest offered one from. Default: all.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    mechanism: Vec<String>,
    /// Prefix of the user names.
    #[arg(long, value_name = "PREFIX", alias = "prefix")]
    user_prefix: Option<String>,
    /// Number of the first user.
    #[arg(long, value_name = "N")]
    first: Option<u64>,
    /// Number of accounts.
    #[arg(long, value_name = "N", alias = "accounts")]
    count: Option<u32>,
    /// Step from the number of one user to the next.
    #[arg(long, value_name = "N")]
    stride: Option<u32>,
    /// Password of all users; the letter n in braces is replaced by the number of the user. --password-file and the
    /// environment variable are safer.
    #[arg(long, env = "THRONG_LOAD_PASSWORD", hide_env_values = true, conflicts_with = "password_file")]
    password: Option<String>,
    /// File whose first line is the password.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// CSV file of accounts: a name and a password per line.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["user_prefix", "first", "count"])]
    users: Option<PathBuf>,
    /// Create each account before its first login (XEP-0077).
    #[arg(long)]
    register: bool,
    /// Local addresses to connect from, such as 127.0.0.2-127.0.0.60, separated by commas.
    #[arg(long, value_name = "A-B[,C]")]
    source: Vec<String>,
    /// Longest acceptable response time, in milliseconds. Default: that of the plan, else 1000.
    #[arg(long, value_name = "MS")]
    acceptable: Option<u64>,
    /// Continue when the first login fails; the run still counts as failed (see --fail-on).
    #[arg(long)]
    keep_going: bool,
    /// Fail (exit code 1) if this condition is met at the end, such as 'p99(message) > 50ms' or 'count(errors) > 0'.
    /// Can be repeated.
    #[arg(long, value_name = "CONDITION", value_parser = Threshold::parse)]
    fail_on: Vec<Threshold>,
    /// Seed of the random numbers.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Workers")]
struct WorkerPoolArgs {
    /// Worker processes on this machine. Default: derived from the limits of files and CPU cores; 0 with --listen.
    #[arg(long, value_name = "N")]
    workers: Option<u16>,
    /// Let workers of other machines join at this address.
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Number of workers on other machines to wait for.
    #[arg(long, value_name = "N", requires = "listen", default_value_t = 1)]
    expect: u16,
    /// Secret that workers of other machines must present. Default: a random one, which is printed.
    #[arg(long, env = TOKEN, hide_env_values = true)]
    token: Option<String>,
    /// File that stores the SCRAM salts of the server between runs, so that keys are derived before the start.
    #[arg(long, value_name = "FILE")]
    salts: Option<PathBuf>,
}

#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Failures")]
struct FailureArgs {
    /// Cause a failure this long after the start of the run: kill=PID@TIME kills a process (SIGKILL), run=COMMAND@TIME runs
    /// a command with sh, such as one that starts the server again. Can be repeated. Implies --failover.
    #[arg(long, value_name = "ACTION@TIME", value_parser = chaos)]
    chaos: Vec<ChaosAction>,
    /// Users whose connection fails return: they resume at another --target or log in there again, and repeat messages that
    /// the server had not acknowledged. Adds stream management to every login. The report accounts for each message.
    #[arg(long)]
    failover: bool,
}

impl FailureArgs {
    /// Whether users return after failures.
    fn fails_over(&self) -> bool {
        self.failover || !self.chaos.is_empty()
    }

    /// Fails for a command other than a single run.
    fn refuse(&self, command: &str) -> Result<(), CommandFailure> {
        if self.fails_over() {
            return Err(CommandFailure::usage(format!(
                "{command} takes neither --chaos nor --failover; use them with a single run"
            )));
        }
        Ok(())
    }
}

#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Server monitoring")]
struct MonitorArgs {
    /// Process of the server; metrics of several processes are added up.
    #[arg(long, value_name = "PID", value_delimiter = ',', num_args = 1..)]
    pid: Vec<u32>,
    /// Include the children of these processes.
    #[arg(long, requires = "pid")]
    children: bool,
    /// Metrics page in the Prometheus text format, read once per second.
    #[arg(long, value_name = "URL")]
    metrics: Vec<String>,
}

#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Output")]
struct OutputArgs {
    /// Name of the server in reports.
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    /// Directory of the report. Default: `load-runs/<plan>-<time>`.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write the run as JSON to standard output; everything else goes to standard error.
    #[arg(long)]
    json: bool,
    /// Print nothing during the run.
    #[arg(long, short)]
    quiet: bool,
    /// Print plain lines, even on a terminal.
    #[arg(long)]
    plain: bool,
}

#[derive(Args)]
struct WorkerArgs {
    /// Address of the controller.
    #[arg(long, value_name = "HOST:PORT")]
    join: String,
    /// The controller's token.
    #[arg(long, env = TOKEN, hide_env_values = true)]
    token: String,
    /// Name of this worker in reports. Default: its address.
    #[arg(long, value_name = "TEXT", default_value = "")]
    name: String,
    /// Local addresses to connect from.
    #[arg(long, value_name = "A-B[,C]")]
    source: Vec<String>,
    /// Time to retry while the controller is not listening yet.
    #[arg(long, value_name = "TIME", value_parser = duration_ms, default_value = "10s")]
    retry_for: u64,
    #[arg(long, hide = true, value_parser = renamed_patience)]
    patience: Option<u64>,
    /// Rejoin after each run, as required by `capacity`, until the controller stops listening.
    #[arg(long)]
    rejoin: bool,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "", value_parser = renamed_stay)]
    stay: Option<bool>,
}

#[derive(Args)]
struct CapacityArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Quantity to search: concurrent users, arrivals per second, or messages per second in total.
    #[arg(long, value_enum, default_value_t = CapacityTarget::Users)]
    by: CapacityTarget,
    /// Limit of the 99th percentile of message delivery time, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1_000.0)]
    delivery_ms: f64,
    /// Limit of the 99th percentile of login time, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1_000.0)]
    login_ms: f64,
    /// Limit of failed connections, logins and requests, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.1)]
    errors: f64,
    /// Start of the search. Default: 100.
    #[arg(long, value_name = "N")]
    from: Option<u64>,
    /// Upper bound of the search. Default: derived from ports, files and memory.
    #[arg(long, value_name = "N")]
    max: Option<u64>,
    /// Precision of the result, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    precision: f64,
    /// Maximum number of runs.
    #[arg(long, value_name = "N", default_value_t = 20)]
    probes: u32,
    /// Pause between two runs, for cleanup on the server.
    #[arg(long, value_name = "TIME", value_parser = duration_ms, default_value = "3s")]
    pause: u64,
}

/// The quantity to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum CapacityTarget {
    /// Connections.
    Users,
    /// Arrivals.
    Rate,
    /// Messages.
    Messages,
}

impl CapacityTarget {
    fn name(self) -> &'static str {
        match self {
            Self::Users => "users",
            Self::Rate => "rate",
            Self::Messages => "messages",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Users => "users",
            Self::Rate => "arrivals per second",
            Self::Messages => "messages per second",
        }
    }
}

#[derive(Args)]
struct PrepareArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Only print the equivalent command for Throng: `throng account bulk …`.
    #[arg(long)]
    print: bool,
    /// Mutual contacts of each account, its nearest neighbours in a ring. Default: that of the plan.
    #[arg(long, value_name = "N")]
    ring: Option<u32>,
}

/// Failure of a command.
enum CommandFailure {
    /// The request was invalid.
    Usage(anyhow::Error),
    /// The execution failed.
    Run(anyhow::Error),
}

impl CommandFailure {
    fn usage(text: impl std::fmt::Display) -> Self {
        Self::Usage(anyhow!("{text}"))
    }
}

impl From<anyhow::Error> for CommandFailure {
    fn from(error: anyhow::Error) -> Self {
        Self::Run(error)
    }
}

/// Executes a command.
pub fn command(load: LoadCommand) -> ExitCode {
    let result = match load.word {
        Some(LoadSubcommand::Worker(worker)) => run::worker(&worker),
        Some(LoadSubcommand::Compare { runs, html }) => reports::compare(&runs, html.as_deref()),
        Some(LoadSubcommand::Report { run }) => reports::report(&run),
        Some(LoadSubcommand::Capacity(asked)) => capacity::capacity(&asked),
        Some(LoadSubcommand::Prepare(asked)) => prepare::prepare(&asked),
        None if load.list => reports::list(),
        None => run::run(&load.run),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(CommandFailure::Usage(error)) => {
            output::error(&format!("throng load: {error:#}"));
            ExitCode::from(2)
        }
        Err(CommandFailure::Run(error)) => {
            output::error(&format!("throng load: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
