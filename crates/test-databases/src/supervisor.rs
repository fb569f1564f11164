//! The shell that runs a server and ends it with the test.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

/// A supervisor of one server. Dropped, it kills the server and removes its directory.
#[derive(Debug)]
pub(crate) struct Supervisor(Mutex<Pipes>);

#[derive(Debug)]
struct Pipes {
    child: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Supervisor {
    /// Starts `shell` with the script; `signal` asks the server to stop, and `run` is its command line.
    pub(crate) fn start(
        mut shell: Command,
        directory: &Path,
        signal: &str,
        run: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Supervisor {
        shell.arg("-c").arg(include_str!("supervisor.sh")).arg("supervisor").arg(directory).arg(signal);
        shell.args(run.into_iter().map(Into::into));
        // Ctrl-C at the terminal is for the program, which may still need the server.
        shell.process_group(0);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = shell.spawn().expect("cannot start a shell");
        let answers = BufReader::new(child.stdout.take().unwrap());
        Supervisor(Mutex::new(Pipes { commands: child.stdin.take(), child, answers }))
    }

    /// Id of its process.
    pub(crate) fn process(&self) -> u32 {
        self.0.lock().unwrap().child.id()
    }

    /// Sends a command; returns the id of the server's process.
    pub(crate) fn command(&self, command: &str) -> String {
        let mut pipes = self.0.lock().unwrap();
        let Pipes { commands, answers, .. } = &mut *pipes;
        writeln!(commands.as_mut().unwrap(), "{command}").expect("the supervisor is gone");
        let mut answer = String::new();
        answers.read_line(&mut answer).expect("the supervisor is gone");
        let process = answer.trim_end().strip_prefix(command.split(' ').next().unwrap_or_default());
        process.unwrap_or_else(|| panic!("the supervisor answered {answer:?}")).trim_start().to_owned()
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if let Ok(pipes) = self.0.get_mut() {
            pipes.commands = None;
            let _ = pipes.child.wait();
        }
    }
}
