//! Test that a listener survives running out of file descriptors. A separate program, because the limit is per process.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test may fail loudly")]

mod support;

use rustix::process::{Resource, getrlimit, setrlimit};
use support::any_address;
use throng_net::{ConnectionLimiter, Listener, ListenerKind};
use tokio::net::TcpStream;

#[tokio::test]
async fn accepting_pauses_without_file_descriptors_and_resumes() {
    let listener =
        Listener::bind(ListenerKind::C2s, any_address(), ConnectionLimiter::default(), |_| {}).unwrap();
    let (address, counts) = (listener.config().local_address, listener.counts());
    let client = TcpStream::connect(address).await.unwrap();
    // Use up every number below the new limit.
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(64);
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut hoard = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        hoard.push(file);
    }
    let relief = async {
        while counts.paused() < 2 {
            tokio::task::yield_now().await;
        }
        hoard.clear();
    };
    let (accepted, ()) = tokio::join!(listener.accept(), relief);
    assert_eq!(accepted.peer, client.local_addr().unwrap());
    assert_eq!(counts.accepted(), 1);
}
