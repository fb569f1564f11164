//! Writes reports of synthetic runs, to preview their pages: `report_sample DIRECTORY`.
//!
//! # Pitfalls
//!
//! All numbers are invented.

#[path = "../tests/support/sample.rs"]
mod sample;

use std::path::PathBuf;

use anyhow::Result;
use sample::SampleRun;
use throng_loadgen::report;

fn main() -> Result<()> {
    let dir = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "sample-report".to_owned()));
    let good = SampleRun::default();
    let bad = SampleRun { with_failures: true, label: "other 1.0".to_owned(), slowness: 3.0, ..good.clone() };
    let long = SampleRun { seconds: 10_000, with_failures: true, ..good.clone() };
    let short = SampleRun { seconds: 45, users: 300, ..good.clone() };
    for (name, sample) in [("good", &good), ("bad", &bad), ("long", &long), ("short", &short)] {
        report::write(&dir.join(name), &sample::run(sample))?;
    }
    report::write(&dir.join("empty"), &report::model::RunRecord { format: 1, ..Default::default() })?;
    Ok(())
}
