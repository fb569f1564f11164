//! CPU that a process and its descendants have used over time, to be read off between any two moments.
//!
//! # Pitfalls
//!
//! Samples are interpolated, and taking them costs CPU: a read of a file for each thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::process::CpuMeter;

/// CPU that a process has used by a moment.
#[derive(Clone, Copy)]
struct CpuSample {
    /// Microseconds of the monotonic clock.
    at: u64,
    /// Nanoseconds.
    used: u64,
}

/// Samples in the order of time.
pub(super) struct CpuSamples(Vec<CpuSample>);

impl CpuSamples {
    /// Nanoseconds used by a moment, in microseconds of the monotonic clock.
    pub(super) fn used_at(&self, at: u64) -> Result<f64> {
        let after = self.0.partition_point(|sample| sample.at < at);
        match (self.0.get(after.wrapping_sub(1)), self.0.get(after)) {
            (Some(before), Some(after)) => {
                let share = (at - before.at) as f64 / (after.at - before.at).max(1) as f64;
                Ok(before.used as f64 + share * (after.used - before.used) as f64)
            }
            // A moment before the first sample or after the last is in the silence around the run.
            (Some(only), None) | (None, Some(only)) => Ok(only.used as f64),
            (None, None) => bail!("no CPU was sampled"),
        }
    }

    /// Nanoseconds used by the last sample.
    pub(super) fn used_at_end(&self) -> Result<f64> {
        Ok(self.0.last().context("no CPU was sampled")?.used as f64)
    }
}

/// Takes samples in a thread until the end.
pub(super) struct CpuTimeline {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Vec<CpuSample>>>>,
}

/// Distance of the samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

impl CpuTimeline {
    /// Starts to watch a process.
    pub(super) fn start(pid: u32) -> Result<Self> {
        Self::start_with(pid, SAMPLE_INTERVAL)
    }

    /// As [`CpuTimeline::start`], with this distance of the samples.
    pub(super) fn start_with(pid: u32, interval: Duration) -> Result<Self> {
        let mut meter = CpuMeter::watch(pid)?;
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("cpu".into()).spawn(move || {
            let mut samples = vec![CpuSample { at: monotonic_us(), used: 0 }];
            let mut used = 0;
            while !stopped.load(Ordering::Relaxed) {
                std::thread::park_timeout(interval);
                used += meter.elapsed()?;
                samples.push(CpuSample { at: monotonic_us(), used });
            }
            used += meter.elapsed()?;
            samples.push(CpuSample { at: monotonic_us(), used });
            Ok(samples)
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends the thread.
    pub(super) fn finish(mut self) -> Result<CpuSamples> {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { bail!("the CPU is no longer sampled") };
        thread.thread().unpark();
        let samples = thread.join().map_err(|_| anyhow::anyhow!("the thread that samples the CPU failed"))?;
        samples.map(CpuSamples)
    }
}

impl Drop for CpuTimeline {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Microseconds of the clock that `throng load` reports its beginning by.
pub(super) fn monotonic_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000
}

#[cfg(test)]
mod tests {
    use super::{CpuSample, CpuSamples};

    #[test]
    fn cpu_is_interpolated_between_samples_and_flat_outside() {
        let samples = [(100, 0), (200, 1_000), (300, 1_000)].map(|(at, used)| CpuSample { at, used });
        let samples = CpuSamples(samples.to_vec());
        for (at, expected) in
            [(0, 0.0), (100, 0.0), (150, 500.0), (200, 1_000.0), (250, 1_000.0), (900, 1_000.0)]
        {
            assert!((samples.used_at(at).unwrap() - expected).abs() < 1e-9, "{at}");
        }
        assert!(CpuSamples(Vec::new()).used_at(5).is_err());
    }
}
