//! Failures that a run causes on purpose: processes to kill and commands to run, each at its time.
//!
//! # Pitfalls
//!
//! A started command belongs to the user: it may be a restarted server, so it is not ended with the run.

use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::report::model::ChaosEvent;

/// A failure to cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChaosAction {
    /// Milliseconds after the start of the run.
    pub(crate) at_ms: u64,
    pub(crate) kind: ChaosKind,
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChaosKind {
    /// Kill a process (SIGKILL).
    Kill(u32),
    /// Run a command with `sh`, for example to start a server again.
    Run(String),
}

impl ChaosAction {
    /// Parses `kill=PID@TIME` or `run=COMMAND@TIME`. `duration_ms` parses a time.
    pub(crate) fn parse(
        text: &str,
        duration_ms: impl Fn(&str) -> Result<u64, String>,
    ) -> Result<ChaosAction, String> {
        let form = || format!("\"{text}\" is not kill=PID@TIME or run=COMMAND@TIME, such as kill=4711@30s");
        let (action, time) = text.rsplit_once('@').ok_or_else(form)?;
        let at_ms = duration_ms(time)?;
        let kind = match action.split_once('=') {
            // 0 and 1 are not a server.
            Some(("kill", pid)) => ChaosKind::Kill(pid.parse().ok().filter(|pid| *pid > 1).ok_or_else(form)?),
            Some(("run", command)) if !command.trim().is_empty() => ChaosKind::Run(command.to_owned()),
            _ => return Err(form()),
        };
        Ok(ChaosAction { at_ms, kind })
    }

    /// Fails if there is no such process.
    pub(crate) fn check(&self) -> Result<()> {
        if let ChaosKind::Kill(pid) = self.kind {
            ensure!(
                std::path::Path::new("/proc").join(pid.to_string()).exists(),
                "--chaos kill={pid}: there is no such process on this machine"
            );
        }
        Ok(())
    }

    fn describe(&self) -> String {
        match &self.kind {
            ChaosKind::Kill(pid) => format!("kill process {pid}"),
            ChaosKind::Run(command) => format!("run {command}"),
        }
    }
}

/// The failures of a run that are still to come, and the commands that run.
pub(crate) struct ChaosSchedule {
    /// The next one last.
    actions: Vec<ChaosAction>,
    commands: Vec<(String, Child)>,
}

impl ChaosSchedule {
    pub(crate) fn new(mut actions: Vec<ChaosAction>) -> Self {
        actions.sort_by_key(|action| std::cmp::Reverse(action.at_ms));
        Self { actions, commands: Vec::new() }
    }

    /// Takes the next action that is due after this many milliseconds.
    fn pop(&mut self, elapsed_ms: u64) -> Option<ChaosAction> {
        self.actions.pop_if(|action| action.at_ms <= elapsed_ms)
    }

    /// Causes what is due, and returns what happened.
    pub(crate) fn run_due(&mut self, elapsed_us: u64) -> Vec<ChaosEvent> {
        let at = elapsed_us as f64 / 1e6;
        let mut events = Vec::new();
        while let Some(action) = self.pop(elapsed_us / 1_000) {
            let result = self.perform(&action);
            let result = result.map_or_else(|error| format!("failed: {error:#}"), |()| "done".to_owned());
            events.push(ChaosEvent { at, action: action.describe(), result });
        }
        self.commands.retain_mut(|(command, child)| {
            let Ok(Some(status)) = child.try_wait() else { return true };
            events.push(ChaosEvent { at, action: format!("run {command}"), result: status.to_string() });
            false
        });
        events
    }

    fn perform(&mut self, action: &ChaosAction) -> Result<()> {
        match &action.kind {
            ChaosKind::Kill(pid) => {
                let pid = i32::try_from(*pid).ok().and_then(Pid::from_raw).context("no process id")?;
                kill_process(pid, Signal::KILL)?;
            }
            ChaosKind::Run(command) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                self.commands.push((command.clone(), shell.spawn()?));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ChaosAction, String> {
        ChaosAction::parse(text, |time| {
            let seconds = time.strip_suffix('s').and_then(|time| time.parse::<u64>().ok());
            seconds.map(|seconds| seconds * 1_000).ok_or_else(|| format!("{time} is no time"))
        })
    }

    #[test]
    fn failures_are_written_with_their_time() {
        let kill = ChaosAction { at_ms: 30_000, kind: ChaosKind::Kill(4711) };
        assert_eq!(parse("kill=4711@30s"), Ok(kill));
        let run = ChaosKind::Run("serve --admin a@b >log".into());
        assert_eq!(parse("run=serve --admin a@b >log@5s"), Ok(ChaosAction { at_ms: 5_000, kind: run }));
        for wrong in ["kill=4711", "kill=x@1s", "kill=0@1s", "kill=1@1s", "run= @1s", "stop=5@1s", "@1s", ""]
        {
            assert!(parse(wrong).unwrap_err().contains("is not kill=PID@TIME"), "{wrong}");
        }
        assert_eq!(parse("kill=4711@soon"), Err("soon is no time".into()));
    }

    #[test]
    fn failures_happen_in_the_order_of_their_times() {
        let actions = ["run=exit 3@9s", "run=true@2s", "run=false@2s"].map(|text| parse(text).unwrap());
        let mut schedule = ChaosSchedule::new(actions.to_vec());
        assert_eq!(schedule.pop(1_999), None);
        let mut times = Vec::new();
        while let Some(action) = schedule.pop(60_000) {
            times.push(action.at_ms);
        }
        assert_eq!(times, [2_000, 2_000, 9_000]);
    }

    #[test]
    fn a_process_is_killed_and_a_missing_one_is_reported() {
        let mut victim = Command::new("sleep").arg("60").spawn().unwrap();
        let kill = ChaosAction { at_ms: 0, kind: ChaosKind::Kill(victim.id()) };
        assert!(kill.check().is_ok());
        let events = ChaosSchedule::new(vec![kill.clone()]).run_due(5);
        assert_eq!((events.len(), events[0].result.as_str()), (1, "done"));
        assert!(!victim.wait().unwrap().success());
        assert!(kill.check().unwrap_err().to_string().contains("no such process"));
        let events = ChaosSchedule::new(vec![kill]).run_due(5);
        assert!(events[0].result.starts_with("failed: "), "{}", events[0].result);
    }
}
