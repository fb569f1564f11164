//! Files of a run: `run.json`, `report.html` and `summary.txt` in its directory, and reading `run.json` back.
//!
//! The JSON has one line per second and per timing, so that `grep` and `diff` work on it, and numbers with at most four
//! decimals: a ten-thousandth of a microsecond is noise.
//!
//! # Pitfalls
//!
//! A run that is read back equals the written one only to those decimals.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::ser::Formatter;

use super::model::{FORMAT, RunRecord};

/// Paths of the files of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportPaths {
    /// All metrics, for `throng load compare` and for programs.
    pub json: PathBuf,
    /// HTML report.
    pub html: PathBuf,
    /// Summary table.
    pub text: PathBuf,
}

/// Writes the files of a run into a directory, which is created if it is missing.
///
/// # Errors
/// One sentence that names the file.
pub fn write(dir: &Path, run: &RunRecord) -> Result<ReportPaths> {
    let paths = ReportPaths {
        json: dir.join("run.json"),
        html: dir.join("report.html"),
        text: dir.join("summary.txt"),
    };
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create the directory {}", dir.display()))?;
    for (path, content) in
        [(&paths.json, json(run)?), (&paths.html, super::html(run)), (&paths.text, super::text(run))]
    {
        std::fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(paths)
}

/// Serializes a run as JSON.
///
/// # Errors
/// None that a run can cause; running out of memory is not caught.
pub fn json(run: &RunRecord) -> Result<String> {
    let mut bytes = Vec::new();
    run.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, LineFormatter::default()))
        .context("cannot encode the run as JSON")?;
    bytes.push(b'\n');
    String::from_utf8(bytes).context("JSON is UTF-8")
}

/// Reads a run from its `run.json` or the directory that contains one.
///
/// # Errors
/// One sentence: no such file, no JSON, not a run, or written by a newer version.
pub fn read(path: &Path) -> Result<RunRecord> {
    /// Parsed first, because a newer file may differ in everything else.
    #[derive(serde::Deserialize)]
    struct Version {
        format: Option<u32>,
    }
    let path = if path.is_dir() { path.join("run.json") } else { path.to_owned() };
    let shown = path.display();
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {shown}"))?;
    let version: Version =
        serde_json::from_str(&text).with_context(|| format!("{shown} does not contain a run as JSON"))?;
    match version.format {
        Some(1..=FORMAT) => {}
        Some(newer) if newer > FORMAT => bail!(
            "{shown} has format {newer}, but this version supports only up to {FORMAT}: read it with the \
             version that wrote it"
        ),
        _ => bail!("{shown} is not a run of throng load: it has no format number"),
    }
    serde_json::from_str(&text).with_context(|| format!("{shown} is not a run of throng load"))
}

/// JSON formatter with one line per entry of the outer three levels and rounded numbers.
#[derive(Default)]
struct LineFormatter {
    depth: usize,
}

impl LineFormatter {
    fn line<W: ?Sized + io::Write>(&self, writer: &mut W, first: bool) -> io::Result<()> {
        if !first {
            writer.write_all(b",")?;
        }
        if self.depth <= 2 { writer.write_all(b"\n") } else { Ok(()) }
    }
}

impl Formatter for LineFormatter {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        // Sums of squares exceed 2^53, where no decimals are left to round.
        let rounded = if value.abs() < 1e11 { (value * 1e4).round() / 1e4 } else { value };
        write!(writer, "{rounded}")
    }

    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth += 1;
        writer.write_all(b"[")
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth -= 1;
        writer.write_all(b"]")
    }

    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.line(writer, first)
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth += 1;
        writer.write_all(b"{")
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth -= 1;
        writer.write_all(b"}")
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.line(writer, first)
    }
}
