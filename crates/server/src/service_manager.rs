//! Notifications to the service manager: sd_notify(3) of systemd, protocol of `$NOTIFY_SOCKET` and `$WATCHDOG_USEC`.
//!
//! Not implemented: `RELOADING=1` (the unit reloads with `throng reload`, which waits and reports errors), file descriptors.
//!
//! # Pitfalls
//!
//! `STOPPING=1` begins the manager's time limit for a stop, so a drain, which may take longer, must not have sent it yet.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The manager that has started this process, if there is one that wants notifications.
#[derive(Debug, Default)]
pub(crate) struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// The one that the environment of this process names.
    pub(crate) fn from_environment() -> ServiceManager {
        let Some(socket) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return ServiceManager::default();
        };
        let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
        // Without a process the watchdog is for each process that has the variable.
        let is_for_this =
            number("WATCHDOG_PID").is_none_or(|process| process == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|micros| is_for_this && *micros > 0);
        ServiceManager::connect(&socket, watchdog.map(Duration::from_micros)).unwrap_or_else(|error| {
            tracing::warn!(socket = %socket.display(), "cannot use the socket of the service manager: {error}");
            ServiceManager::default()
        })
    }

    /// The manager with this socket: a path, or `@` and an abstract name.
    fn connect(socket: &OsStr, watchdog: Option<Duration>) -> io::Result<ServiceManager> {
        let address = match socket.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(socket)?,
        };
        let own = UnixDatagram::unbound()?;
        // The node must not wait for a manager that does not read.
        own.set_nonblocking(true)?;
        Ok(ServiceManager { socket: Some((own, address)), watchdog })
    }

    /// The node accepts clients.
    pub(crate) fn ready(&self) {
        self.notify("READY=1");
    }

    /// The node stops, within the time limit that the manager has for that.
    pub(crate) fn stopping(&self) {
        self.notify("STOPPING=1");
    }

    /// Tells the manager twice in its interval that this process works. Returns at once if it does not ask for that.
    pub(crate) async fn keep_watchdog_quiet(&self) {
        let Some(interval) = self.watchdog else { return };
        let mut tick = tokio::time::interval((interval / 2).max(Duration::from_millis(1)));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            tick.tick().await;
            self.notify("WATCHDOG=1");
        }
    }

    fn notify(&self, state: &str) {
        let Some((own, manager)) = &self.socket else { return };
        if let Err(error) = own.send_to_addr(state.as_bytes(), manager) {
            tracing::warn!(state, "cannot notify the service manager: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut buffer = [0; 100];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[test]
    fn a_manager_is_notified_of_start_and_stop_at_a_path_and_at_an_abstract_name() {
        let name = format!("throng-service-manager-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let sockets = [
            (UnixDatagram::bind(&path).unwrap(), path.clone().into_os_string()),
            (
                UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap(),
                format!("@{name}").into(),
            ),
        ];
        for (socket, address) in sockets {
            let manager = ServiceManager::connect(&address, None).unwrap();
            manager.ready();
            assert_eq!(received(&socket), "READY=1");
            manager.stopping();
            assert_eq!(received(&socket), "STOPPING=1");
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn the_watchdog_is_notified_twice_in_its_interval() {
        let name = format!("throng-watchdog-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let interval = Some(Duration::from_millis(20));
        let manager = ServiceManager::connect(format!("@{name}").as_ref(), interval).unwrap();
        let runtime = crate::runtime::start().unwrap();
        let task = runtime.spawn(async move { manager.keep_watchdog_quiet().await });
        assert_eq!(received(&socket), "WATCHDOG=1");
        assert_eq!(received(&socket), "WATCHDOG=1");
        task.abort();
    }

    #[test]
    fn without_a_manager_or_a_watchdog_nothing_is_sent_and_nothing_waits() {
        let runtime = crate::runtime::start().unwrap();
        let manager = ServiceManager::default();
        manager.ready();
        runtime.block_on(manager.keep_watchdog_quiet());
        // One that is gone.
        let gone = ServiceManager::connect("/nowhere/notify".as_ref(), None).unwrap();
        gone.ready();
    }
}
