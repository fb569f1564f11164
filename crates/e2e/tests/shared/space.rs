//! Network namespaces for the duration of a test: links from `crates/e2e/netns/lossy.sh`.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use throng_e2e::describe_output;

/// Namespaces on one bridge. They are removed on drop, also when the test fails.
pub(crate) struct LossyNetwork {
    name: String,
    /// Method of packet loss that the script found available.
    pub(crate) method: String,
}

impl LossyNetwork {
    /// Creates `nodes` namespaces; each loses `percent` of the incoming packets.
    pub(crate) fn create(percent: &str, nodes: usize) -> LossyNetwork {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Process ids have up to seven digits, and names of namespaces eight letters here.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}{}", char::from(b'a' + number as u8), std::process::id());
        let mut wires = LossyNetwork { name, method: String::new() };
        let output = script(&["up", &wires.name, percent, &nodes.to_string()]);
        assert!(output.status.success(), "{}", describe_output(&output));
        wires.method = String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned();
        wires
    }

    /// Namespace with this number, from 1.
    pub(crate) fn namespace(&self, number: usize) -> String {
        format!("{}-{number}", self.name)
    }

    pub(crate) fn address(number: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, number as u8)
    }

    /// Packets lost so far.
    pub(crate) fn dropped(&self) -> u64 {
        let output = script(&["dropped", &self.name]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }
}

impl Drop for LossyNetwork {
    fn drop(&mut self) {
        let output = script(&["down", &self.name]);
        if !output.status.success() && !std::thread::panicking() {
            panic!("the namespaces stay: {}", describe_output(&output));
        }
    }
}

fn script(words: &[&str]) -> Output {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/netns/lossy.sh"));
    Command::new(path).args(words).output().expect("lossy.sh starts")
}
