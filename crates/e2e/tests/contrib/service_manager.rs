//! Test of the notifications that a unit of type `notify` waits for.

use std::os::unix::net::UnixDatagram;
use std::process::Stdio;

use throng_e2e::{KillOnDrop, NodeProcess, TIMEOUT, ports, signal};

#[test]
fn the_service_manager_is_notified_that_the_node_is_ready_works_and_stops() {
    let node = NodeProcess::new("service-manager");
    let [clients] = ports::free();
    node.configure(&format!(
        "hosts = ['chat.test']\ndata_dir = 'data'\n\
         [[listen]]\nkind = 'c2s'\naddress = '127.0.0.1:{clients}'\ntls = 'off'\n"
    ));
    let path = node.folder.join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    let received = || {
        let mut buffer = [0; 100];
        let length = socket.recv(&mut buffer).expect("a notification");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let mut serve = node.program(&["serve", "--config", "throng.toml"]);
    serve.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "1000000");
    serve.stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = KillOnDrop(serve.spawn().expect("throng starts"));
    // The first sign of the watchdog may come before the node accepts clients.
    let (mut is_ready, mut watched) = (false, 0);
    while !is_ready || watched < 2 {
        match received().as_str() {
            "READY=1" => {
                is_ready = true;
                std::net::TcpStream::connect(("127.0.0.1", clients)).expect("a node that is ready");
            }
            "WATCHDOG=1" => watched += 1,
            other => panic!("{other}"),
        }
    }
    signal(process.0.id(), "TERM");
    while received() != "STOPPING=1" {}
    assert!(process.wait_for_exit("the end of the node").success());
}
