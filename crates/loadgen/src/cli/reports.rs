//! Subcommands that need no run: listing the workloads, comparing runs, writing a report again.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::{CommandFailure, output};
use crate::{plan, report};

/// Runs `throng load --list`.
pub(super) fn list() -> Result<(), CommandFailure> {
    let workloads = plan::workloads();
    let width = workloads.iter().map(|workload| workload.name.len()).max().unwrap_or(0);
    for workload in workloads {
        output::line(&format!("{:width$}  {}", workload.name, workload.title));
        output::line(&format!("{:width$}  {}", "", workload.about));
    }
    Ok(())
}

/// Runs `throng load compare`.
pub(super) fn compare(paths: &[PathBuf], html: Option<&Path>) -> Result<(), CommandFailure> {
    let runs = paths.iter().map(|path| report::read(path)).collect::<Result<Vec<_>, _>>()?;
    output::text(&report::compare(&runs));
    if let Some(file) = html {
        std::fs::write(file, report::compare_html(&runs))
            .with_context(|| format!("cannot write {}; --html takes another file", file.display()))?;
        output::line(&format!("Page: {}", file.display()));
    }
    Ok(())
}

/// Runs `throng load report`.
pub(super) fn report(path: &Path) -> Result<(), CommandFailure> {
    let run = report::read(path)?;
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new(".")) };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let paths = report::write(folder, &run)?;
    output::text(&report::text(&run));
    output::line(&format!("Report: {}", paths.html.display()));
    Ok(())
}

/// A time (seconds since 1970) for a file name, in UTC: `2026-11-22-093000`.
pub(super) fn timestamp(seconds: i64) -> String {
    let at = report::unit::utc(seconds);
    let (year, month, day) = (at.year(), u8::from(at.month()), at.day());
    format!("{year:04}-{month:02}-{day:02}-{:02}{:02}{:02}", at.hour(), at.minute(), at.second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_named_by_their_date() {
        assert_eq!(timestamp(0), "1970-01-01-000000");
        assert_eq!(timestamp(951_782_399), "2000-02-28-235959");
        assert_eq!(timestamp(951_782_400), "2000-02-29-000000");
        assert_eq!(timestamp(1_795_339_800), "2026-11-22-093000");
    }
}
