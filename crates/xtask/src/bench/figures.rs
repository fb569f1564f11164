//! Figures of an ignored test that measures parts to which this program has no access: lines `figure NAME VALUE UNIT` of its output.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// A measured value.
#[derive(Debug, PartialEq)]
pub(super) struct Figure {
    pub(super) name: String,
    pub(super) value: f64,
    pub(super) unit: &'static str,
}

/// A test that measures.
pub(super) struct MeasuringTest<'a> {
    pub(super) package: &'a str,
    /// Arguments of cargo that select the test program.
    pub(super) target: &'a [&'a str],
    /// Path of the test.
    pub(super) name: &'a str,
    pub(super) profile: &'a str,
    /// Lines with other units are ignored.
    pub(super) units: &'a [&'static str],
}

impl MeasuringTest<'_> {
    /// Builds and runs the test.
    pub(super) fn run(&self) -> Result<Vec<Figure>> {
        self.run_with(&[])
    }

    /// The same with environment variables.
    pub(super) fn run_with(&self, environment: &[(&str, String)]) -> Result<Vec<Figure>> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut test = Command::new(cargo);
        test.args(["test", "--quiet", "--profile", self.profile, "--package", self.package])
            .args(self.target)
            .args(["--", "--ignored", "--nocapture", "--exact", self.name])
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .current_dir(crate::tidy::root())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = test.spawn().context("cargo cannot be started")?;
        let output = child.stdout.take().context("the output of cargo is not a pipe")?;
        let mut found = Vec::new();
        for line in BufReader::new(output).lines() {
            found.extend(figure(&line?, self.units));
        }
        let status = child.wait()?;
        ensure!(status.success() && !found.is_empty(), "the test {} ended with {status}", self.name);
        Ok(found)
    }
}

/// The figure of a line.
fn figure(line: &str, units: &[&'static str]) -> Option<Figure> {
    // The name of the test may be on the same line.
    let mut words = line.split_once("figure ")?.1.split_whitespace();
    let (name, value, unit) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
    let unit = units.iter().copied().find(|known| *known == unit)?;
    Some(Figure { name: name.to_owned(), value, unit })
}

#[cfg(test)]
mod tests {
    use super::{Figure, figure};

    #[test]
    fn lines_of_the_test_are_read() {
        let units = ["write/s", "ms"];
        let read = figure("test one ... figure messages.rate 45100 write/s", &units);
        let expected = Figure { name: "messages.rate".into(), value: 45_100.0, unit: "write/s" };
        assert_eq!(read, Some(expected));
        assert_eq!(figure("figure messages.rate 45100 write/h", &units), None);
        assert_eq!(figure("running 1 test", &units), None);
    }
}
