//! Worker process: joins a controller, runs its part of the plan, reports its measurements, exits.

use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::controller_connection::ControllerConnection;
use super::handshake::{self, WorkerHello};
use super::message::{Assignment, WorkerReport};
use crate::clock;
use crate::engine::{self, ControllerPort};

/// Joins the controller at `join` (`HOST:PORT`), retrying for `retry_for` if nothing listens there yet, and runs its
/// part.
pub(crate) fn run_worker(
    join: &str,
    token: &str,
    name: &str,
    sources: Vec<IpAddr>,
    retry_for: Duration,
) -> Result<()> {
    let stream = connect(join, retry_for)?;
    let name = if name.is_empty() { stream.local_addr()?.ip().to_string() } else { name.to_owned() };
    let hello = handshake::local_hello(name, sources);
    serve(stream, token, hello, engine::run).with_context(|| format!("worker of {join}"))
}

fn connect(join: &str, retry_for: Duration) -> Result<TcpStream> {
    let deadline = clock::now_us() + retry_for.as_micros() as u64;
    loop {
        let mut last = None;
        let addresses = join.to_socket_addrs().with_context(|| {
            format!("--join {join} does not resolve; write HOST:PORT as the controller prints it")
        })?;
        for address in addresses {
            match TcpStream::connect_timeout(&address, Duration::from_secs(5)) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        if clock::now_us() >= deadline {
            let reason = last.map_or_else(|| "no address".to_owned(), |error| error.to_string());
            bail!("no controller at {join} ({reason}); start `throng load … --listen` there first");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Performs one run with the given engine.
pub(crate) fn serve(
    stream: TcpStream,
    token: &str,
    hello: WorkerHello,
    engine: impl FnOnce(Assignment, &mut dyn ControllerPort) -> Result<()>,
) -> Result<()> {
    keep_alive(&stream)?;
    let assignment = handshake::join(&stream, token, hello)?;
    let mut link = ControllerConnection::new(stream)?;
    match engine(assignment, &mut link) {
        Ok(()) => link.finish(),
        Err(error) => {
            // The controller itself may be gone.
            let _ = link.send(WorkerReport::Refused(format!("{error:#}")));
            let _ = link.finish();
            Err(error)
        }
    }
}

/// Enables TCP keep-alive, so that a vanished machine does not leave its peer waiting permanently.
pub(crate) fn keep_alive(stream: &TcpStream) -> Result<()> {
    let often =
        socket2::TcpKeepalive::new().with_time(Duration::from_secs(10)).with_interval(Duration::from_secs(5));
    socket2::SockRef::from(stream).set_tcp_keepalive(&often)?;
    Ok(())
}
