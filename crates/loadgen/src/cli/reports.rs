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
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // From days to a date: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days.
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let of_era = z.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}-{hour:02}{minute:02}{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_named_by_their_date() {
        assert_eq!(timestamp(0), "1970-01-01-000000");
        assert_eq!(timestamp(951_782_399), "2000-02-28-235959");
        assert_eq!(timestamp(951_782_400), "2000-02-29-000000");
        assert_eq!(timestamp(1_795_339_800), "2026-11-22-093000");
    }
}
