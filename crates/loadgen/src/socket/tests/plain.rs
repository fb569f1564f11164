//! Tests of connections without TLS.

use rustix::net::sockopt;

use super::*;

#[test]
fn a_plain_connection_is_two_words() {
    assert_eq!(size_of::<Socket>(), 16);
    assert_eq!(size_of::<Option<Socket>>(), 16);
}

#[test]
fn bytes_go_both_ways_and_are_counted() {
    let (address, server) = serve(|listener| {
        let (mut stream, _) = listener.accept().unwrap();
        let mut got = [0; 5];
        stream.read_exact(&mut got).unwrap();
        stream.write_all(b"answer").unwrap();
        got
    });
    let mut client = Client::connect(address);
    assert!(sockopt::tcp_nodelay(&client.socket).unwrap());
    client.send(b"hello").unwrap();
    assert_eq!(client.read_bytes(6), b"answer");
    assert_eq!(client.read_end().unwrap(), ReadEnd::Closed);
    assert_eq!(client.scratch.wire(), WireBytes { sent: 5, received: 6 });
    assert!(!client.socket.is_secure());
    assert_eq!(client.socket.negotiated_tls(), None);
    assert_eq!(client.socket.tls_exporter(), None);
    assert_eq!(client.socket.server_end_point(), None);
    assert_eq!(client.socket.held(), 0);
    let nothing = WriteOutcome { taken: 0, blocked: false };
    assert_eq!(client.socket.close_notify(&mut client.scratch).unwrap(), nothing);
    assert_eq!(server.join().unwrap(), *b"hello");
}

#[test]
fn an_empty_read_is_no_error() {
    let (address, server) = serve(|listener| listener.accept().unwrap());
    let mut client = Client::connect(address);
    let held = server.join().unwrap();
    let read = client.socket.read(&mut client.scratch, |_| panic!("there is nothing")).unwrap();
    assert_eq!(read, ReadOutcome { bytes: 0, end: ReadEnd::Blocked, established: false, blocked: false });
    drop(held);
}

#[test]
fn a_refused_port_is_reported() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // Loopback may refuse at once or at EPOLLOUT.
    let error = match Socket::connect(free, None, &SocketOptions::default()) {
        Err(error) => error,
        Ok(socket) => {
            wait(&socket, PollFlags::OUT);
            socket.connect_result().unwrap_err()
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}

#[test]
fn the_requested_source_address_is_used() {
    let (address, server) = serve(|listener| {
        [listener.accept().unwrap().1, listener.accept().unwrap().1, listener.accept().unwrap().1]
    });
    let connect = |source: &str| {
        let socket =
            Socket::connect(address, Some(source.parse().unwrap()), &SocketOptions::default()).unwrap();
        wait(&socket, PollFlags::OUT);
        socket.connect_result().unwrap();
        socket
    };
    let first = connect("127.0.0.7:0");
    let second = connect("127.0.0.8:0");
    // The same port from another address: ports are allocated per source.
    let port = first.local().unwrap().port();
    let third = connect(&format!("127.0.0.9:{port}"));
    let seen = server.join().unwrap();
    for (socket, seen) in [&first, &second, &third].into_iter().zip(seen) {
        assert_eq!(socket.local().unwrap(), seen);
    }
    assert_eq!(seen[0].ip().to_string(), "127.0.0.7");
    assert_eq!(seen[2], format!("127.0.0.9:{port}").parse().unwrap());
    let elsewhere = Some("192.0.2.1:0".parse().unwrap());
    let error = Socket::connect(address, elsewhere, &SocketOptions::default()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
}

#[test]
fn a_megabyte_each_way_past_a_slow_reader() {
    const SIZE: usize = 1_000_000;
    let (address, server) = serve(|listener| {
        let (mut stream, _) = listener.accept().unwrap();
        let mut go = [0; 1];
        stream.read_exact(&mut go).unwrap();
        let mut got = vec![0; SIZE];
        stream.read_exact(&mut got).unwrap();
        stream.write_all(&pattern(SIZE)).unwrap();
        got
    });
    let options = SocketOptions { receive_buffer: Some(8_192), send_buffer: Some(8_192) };
    let mut client = Client::connect_with(address, &options);
    client.send(b"!").unwrap();
    client.send(&pattern(SIZE)).unwrap();
    assert!(client.read_bytes(SIZE) == pattern(SIZE));
    assert!(server.join().unwrap() == pattern(SIZE));
    assert_eq!(client.scratch.wire(), WireBytes { sent: 1 + SIZE as u64, received: SIZE as u64 });
}

#[test]
fn an_aborted_connection_is_a_reset_for_the_peer() {
    let (address, server) = serve(|listener| {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read(&mut [0; 8]).unwrap_err().kind()
    });
    Client::connect(address).socket.abort();
    assert_eq!(server.join().unwrap(), io::ErrorKind::ConnectionReset);
}

#[test]
fn a_reset_is_an_error_and_shutdown_an_end() {
    let (address, server) = serve(|listener| {
        let (mut stream, _) = listener.accept().unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        all
    });
    let mut client = Client::connect(address);
    client.send(b"last").unwrap();
    client.socket.shutdown().unwrap();
    assert_eq!(server.join().unwrap(), b"last");
    assert_eq!(client.read_end().unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}
