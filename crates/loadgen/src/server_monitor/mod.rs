//! Monitor of the server under load: processes by id, sockets of the machine, metrics pages. One thread samples once a
//! second.
//!
//! Not implemented: processes of other machines, for which `/metrics` is the only source.
//!
//! # Pitfalls
//!
//! Proportional memory (PSS) makes the kernel walk all pages of the process, so it is read only every ten seconds.

mod fetch;
mod metrics;
mod proc;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use metrics::MetricsScrape;

use crate::clock;
use crate::report::model::{RunRecord, ServerSample};

/// Maximum number of series kept of a metrics page, in the order of the page.
pub const MAX_SERIES: usize = 200;
/// Seconds between two reads of PSS and of the list of children.
const SELDOM: u32 = 10;
/// Samples queued for the controller.
const SAMPLES: usize = 64;

/// Targets of the monitor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerMonitorConfig {
    /// Processes of the server.
    pub pids: Vec<u32>,
    /// Whether to include their descendants.
    pub children: bool,
    /// URLs of metrics in the Prometheus text format.
    pub metrics: Vec<String>,
}

impl ServerMonitorConfig {
    /// Samples everything once. An error is one sentence that names what cannot be monitored.
    pub fn check(&self) -> Result<()> {
        for pid in &self.pids {
            if proc::stat(*pid).is_none() {
                bail!("--pid {pid}: no such process; give the number that `pidof` or `ps` shows");
            }
        }
        for url in &self.metrics {
            fetch(url).with_context(|| {
                format!("cannot read --metrics {url}; give a page in the Prometheus text format")
            })?;
        }
        Ok(())
    }

    fn empty(&self) -> bool {
        self.pids.is_empty() && self.metrics.is_empty()
    }
}

/// One sample.
#[derive(Default)]
struct MonitorSample {
    at: u32,
    server: Option<ServerSample>,
    series: Vec<(String, f64)>,
    log_lines: Vec<String>,
}

/// Handle of the sampling thread.
pub struct ServerMonitor {
    samples: Receiver<MonitorSample>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ServerMonitor {
    /// Starts sampling, at the end of each second after `start_us`. `None` if there is nothing to monitor.
    pub fn start(host: ServerMonitorConfig, start_us: u64) -> Option<Self> {
        if host.empty() {
            return None;
        }
        let (sender, samples) = sync_channel(SAMPLES);
        let stop = Arc::new(AtomicBool::new(false));
        let stop_requested = Arc::clone(&stop);
        let thread = std::thread::spawn(move || watch(host, start_us, &stop_requested, &sender));
        Some(Self { samples, stop, thread: Some(thread) })
    }

    /// Moves the samples since the last call into the run.
    pub fn collect(&self, run: &mut RunRecord) {
        for sample in self.samples.try_iter() {
            run.server.extend(sample.server);
            run.log.extend(sample.log_lines);
            for (name, value) in sample.series {
                if let Some((_, values)) = run.scraped.iter_mut().find(|(known, _)| *known == name) {
                    values.push((sample.at, value));
                } else if run.scraped.len() < MAX_SERIES {
                    run.scraped.push((name, vec![(sample.at, value)]));
                }
            }
        }
    }

    /// Stops sampling; series that never changed are omitted.
    pub fn finish(mut self, run: &mut RunRecord) {
        self.end();
        self.collect(run);
        run.scraped.retain(|(_, values)| values.iter().any(|(_, value)| *value != 0.0));
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for ServerMonitor {
    fn drop(&mut self) {
        self.end();
    }
}

fn fetch(url: &str) -> Result<MetricsScrape> {
    Ok(MetricsScrape::read(&fetch::get(url)?))
}

fn watch(host: ServerMonitorConfig, start_us: u64, stop: &AtomicBool, sender: &SyncSender<MonitorSample>) {
    let mut processes = MonitoredProcesses::new(&host);
    let mut pages: BTreeMap<String, (u64, MetricsScrape)> = BTreeMap::new();
    // Rates start at the first sample.
    processes.sample(0);
    for at in 0.. {
        let due = start_us + (u64::from(at) + 1) * 1_000_000;
        loop {
            let left = due.saturating_sub(clock::now_us());
            if stop.load(Ordering::SeqCst) {
                return;
            }
            if left == 0 {
                break;
            }
            std::thread::sleep(Duration::from_micros(left.min(50_000)));
        }
        // Seconds missed because of a slow page are not made up for.
        if clock::now_us() > due + 1_000_000 {
            continue;
        }
        let mut sample = MonitorSample { at, server: processes.sample(at), ..MonitorSample::default() };
        for url in &host.metrics {
            let requested_at = clock::now_us();
            match fetch(url) {
                Ok(page) => {
                    if let Some((before, earlier)) = pages.get(url) {
                        sample.series.extend(page.since(earlier, (requested_at - before) as f64 / 1e6));
                    }
                    pages.insert(url.clone(), (requested_at, page));
                }
                Err(error) if at < SELDOM || at % 60 == 0 => {
                    sample.log_lines.push(format!("second {at}: {url} cannot be read: {error:#}"));
                }
                Err(_) => {}
            }
        }
        // If the controller is busy for a minute, samples are dropped instead of queued without bound.
        let _ = sender.try_send(sample);
    }
}

/// Monitored processes and their usage at the last sample.
struct MonitoredProcesses {
    roots: Vec<u32>,
    children: bool,
    pids: Vec<u32>,
    cpu: BTreeMap<u32, f64>,
    looked_us: u64,
    pss: u64,
}

impl MonitoredProcesses {
    fn new(host: &ServerMonitorConfig) -> Self {
        Self {
            roots: host.pids.clone(),
            children: host.children,
            pids: host.pids.clone(),
            cpu: BTreeMap::new(),
            looked_us: 0,
            pss: 0,
        }
    }

    fn sample(&mut self, at: u32) -> Option<ServerSample> {
        if self.roots.is_empty() {
            return None;
        }
        let seldom = at.is_multiple_of(SELDOM);
        if self.children && seldom {
            self.pids = proc::descendants(&self.roots);
        }
        let now = clock::now_us();
        let mut sample = ServerSample { at, sockets: proc::tcp_memory(), ..ServerSample::default() };
        let mut used = 0.0;
        let mut cpu = BTreeMap::new();
        let mut pss = 0;
        for &pid in &self.pids {
            let Some(stat) = proc::stat(pid) else { continue };
            // The usage of a process seen for the first time starts at its current value.
            used += stat.cpu - self.cpu.get(&pid).copied().unwrap_or(stat.cpu);
            cpu.insert(pid, stat.cpu);
            sample.rss += stat.rss;
            sample.threads += stat.threads;
            sample.files += proc::files(pid);
            if seldom {
                pss += proc::pss(pid);
            }
        }
        if seldom {
            self.pss = pss;
        }
        sample.pss = self.pss;
        let seconds = now.saturating_sub(self.looked_us) as f64 / 1e6;
        sample.cpu = if seconds > 0.0 { (used / seconds).max(0.0) } else { 0.0 };
        self.cpu = cpu;
        self.looked_us = now;
        Some(sample)
    }
}

/// Available memory in bytes; 0 if it cannot be read.
pub fn memory_available() -> u64 {
    proc::memory("MemAvailable:")
}

/// Memory of this machine in bytes; 0 if it cannot be read.
pub fn memory_total() -> u64 {
    proc::memory("MemTotal:")
}

/// Resident memory of this process in bytes; 0 if it cannot be read.
pub fn own_rss() -> u64 {
    proc::stat(std::process::id()).map_or(0, |stat| stat.rss)
}

/// First and last ephemeral port of the kernel.
pub fn ports() -> (u16, u16) {
    proc::ports()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_watched() {
        let host = ServerMonitorConfig { pids: vec![std::process::id()], ..ServerMonitorConfig::default() };
        host.check().unwrap();
        let mut processes = MonitoredProcesses::new(&host);
        processes.sample(0);
        let sample = processes.sample(1).unwrap();
        assert!(sample.rss > 100_000 && sample.threads >= 1 && sample.files >= 3, "{sample:?}");
        let gone = ServerMonitorConfig { pids: vec![u32::MAX], ..ServerMonitorConfig::default() };
        assert!(gone.check().unwrap_err().to_string().contains("no such process"));
        assert!(memory_total() > memory_available() && memory_available() > 0);
        assert!(ports().0 < ports().1);
    }

    #[test]
    fn a_page_is_scraped_into_rates() {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/metrics", listener.local_addr().unwrap());
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1_024];
            let read = stream.read(&mut request).unwrap();
            assert!(request[..read].starts_with(b"GET /metrics "));
            let body = "# TYPE a_total counter\na_total 7\n";
            write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            )
            .unwrap();
        });
        let page = fetch(&url).unwrap();
        served.join().unwrap();
        let earlier = MetricsScrape::read("# TYPE a_total counter\na_total 3\n");
        assert_eq!(page.since(&earlier, 2.0), [("a_total/s".to_owned(), 2.0)]);
        // The listener has been closed.
        assert!(
            ServerMonitorConfig { metrics: vec![url], ..ServerMonitorConfig::default() }.check().is_err()
        );
    }

    #[test]
    fn series_are_limited_and_silent_ones_left_out() {
        let (sender, samples) = sync_channel(8);
        let sampler = ServerMonitor { samples, stop: Arc::new(AtomicBool::new(false)), thread: None };
        for at in 0..2 {
            let series = (0..300).map(|n| (format!("s{n}"), f64::from(n % 2))).collect();
            sender.try_send(MonitorSample { at, series, ..MonitorSample::default() }).unwrap();
        }
        let mut run = RunRecord::default();
        sampler.collect(&mut run);
        assert_eq!(run.scraped.len(), MAX_SERIES);
        sampler.finish(&mut run);
        assert_eq!(run.scraped.len(), MAX_SERIES / 2);
        assert_eq!(run.scraped[0], ("s1".to_owned(), vec![(0, 1.0), (1, 1.0)]));
    }
}
