//! Tests of TLS connections against rustls's buffered server.

use std::io::BufRead as _;

use ring::digest;
use rustls::version::{TLS12, TLS13};

use super::*;

/// Performs handshakes, sends `hello`, expects `answer`; returns the server's exporter.
fn exchange(config: ServerConfig, connections: usize) -> (SocketAddr, JoinHandle<Vec<[u8; 32]>>) {
    serve(move |listener| {
        let config = Arc::new(config);
        let mut exporters = Vec::new();
        for _ in 0..connections {
            let mut stream = accept(&listener, &config);
            let mut got = [0; 5];
            stream.read_exact(&mut got).unwrap();
            assert_eq!(&got, b"hello");
            stream.write_all(b"answer").unwrap();
            let empty = Some(&b""[..]);
            exporters.push(
                stream.conn.export_keying_material([0; 32], b"EXPORTER-Channel-Binding", empty).unwrap(),
            );
            stream.conn.send_close_notify();
            stream.flush().unwrap();
        }
        exporters
    })
}

fn greet(client: &mut Client) {
    client.send(b"hello").unwrap();
    assert_eq!(client.read_bytes(6), b"answer");
    assert_eq!(client.read_end().unwrap(), ReadEnd::Closed);
}

#[test]
fn tls_1_3_reports_its_parameters_and_channel_bindings() {
    let made = self_signed(NAME);
    let (address, server) = exchange(server_config(&made), 1);
    let mut peer = Client::connect(address).with_tls(&client(|_| {}), NAME, false);
    assert_eq!(peer.socket.negotiated_tls(), None);
    assert_eq!(peer.socket.tls_exporter(), None);
    assert_eq!(peer.socket.write(b"x", &mut peer.scratch).unwrap_err().kind(), io::ErrorKind::NotConnected);
    peer.handshake().unwrap();
    assert_eq!(peer.established, 1);
    let tls = peer.socket.negotiated_tls().unwrap();
    assert_eq!((tls.version, tls.resumed), ("TLSv1.3", false));
    assert!(tls.cipher.starts_with("TLS13_"), "{}", tls.cipher);
    let handshake = peer.scratch.wire();
    assert!(handshake.sent > 200 && handshake.received > 500, "{handshake:?}");
    greet(&mut peer);
    assert_eq!(peer.established, 1, "reported once");
    assert!(peer.scratch.wire().sent - handshake.sent > 5 + 16, "records cost more than their text");
    assert_eq!(peer.socket.held(), 0, "nothing waits");
    assert_eq!(peer.socket.tls_exporter().unwrap(), server.join().unwrap()[0]);
    // rcgen signs with ECDSA and SHA-256.
    let hash = digest::digest(&digest::SHA256, &made.certificate);
    assert_eq!(peer.socket.server_end_point().unwrap(), hash.as_ref());
}

#[test]
fn tls_1_2_has_no_exporter_but_an_end_point() {
    let made = self_signed(NAME);
    let (address, server) = exchange(server_config(&made), 1);
    let mut peer = Client::secure(address, &client(|options| options.tls13 = false));
    let tls = peer.socket.negotiated_tls().unwrap();
    assert_eq!((tls.version, tls.resumed), ("TLSv1.2", false));
    assert!(tls.cipher.starts_with("TLS_ECDHE_"), "{}", tls.cipher);
    greet(&mut peer);
    assert_eq!(peer.socket.tls_exporter(), None);
    assert!(peer.socket.server_end_point().is_some());
    server.join().unwrap();
}

#[test]
fn tls_sessions_are_resumed_by_connections_that_share_the_client() {
    for tls13 in [true, false] {
        let (address, server) = exchange(server_config(&self_signed(NAME)), 4);
        let shared = client(|options| options.tls13 = tls13);
        let mut exporters = Vec::new();
        for turn in 0..3 {
            let mut peer = Client::secure(address, &shared.clone());
            greet(&mut peer);
            assert_eq!(
                peer.socket.negotiated_tls().unwrap().resumed,
                turn > 0,
                "TLS 1.3: {tls13}, turn {turn}"
            );
            assert!(peer.socket.server_end_point().is_some(), "the certificate is remembered");
            exporters.push(peer.socket.tls_exporter());
        }
        let never = client(|options| (options.tls13, options.resumption) = (tls13, false));
        let mut peer = Client::secure(address, &never);
        greet(&mut peer);
        assert!(!peer.socket.negotiated_tls().unwrap().resumed);
        exporters.push(peer.socket.tls_exporter());
        let theirs = server.join().unwrap();
        if tls13 {
            assert_eq!(exporters, theirs.into_iter().map(Some).collect::<Vec<_>>());
        }
    }
}

#[test]
fn without_resumption_nothing_is_resumed() {
    let (address, server) = exchange(server_config(&self_signed(NAME)), 2);
    let never = client(|options| options.resumption = false);
    for _ in 0..2 {
        let mut peer = Client::secure(address, &never);
        greet(&mut peer);
        assert!(!peer.socket.negotiated_tls().unwrap().resumed);
    }
    server.join().unwrap();
}

/// Each byte is its own segment.
struct Drops(TcpStream);

impl io::Read for Drops {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl io::Write for Drops {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.0.write(data.get(..1).unwrap_or_default())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn records_may_come_byte_by_byte() {
    for version in [&TLS13, &TLS12] {
        let made = self_signed(NAME);
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.certificate.clone()], made.key.clone_key())
            .unwrap();
        let (address, server) = serve(move |listener| {
            let (stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            let connection = ServerConnection::new(Arc::new(config)).unwrap();
            let mut stream = StreamOwned::new(connection, Drops(stream));
            let mut got = [0; 5];
            stream.read_exact(&mut got).unwrap();
            for part in pattern(5_000).chunks(700) {
                stream.write_all(part).unwrap();
            }
            stream.read_exact(&mut got).unwrap();
            stream.conn.send_close_notify();
            stream.flush().unwrap();
            got
        });
        let mut peer = Client::secure(address, &client(|_| {}));
        peer.send(b"hello").unwrap();
        // Writing between the fragments of a record must not disturb them.
        peer.read_bytes(1);
        peer.send(b"again").unwrap();
        assert!(peer.read_bytes(5_000) == pattern(5_000));
        assert_eq!(peer.read_end().unwrap(), ReadEnd::Closed);
        assert_eq!(peer.socket.held(), 0);
        assert_eq!(&server.join().unwrap(), b"again");
    }
}

#[test]
fn a_megabyte_each_way_past_a_slow_reader() {
    const SIZE: usize = 1_000_000;
    let (address, server) = serve(|listener| {
        let config = Arc::new(server_config(&self_signed(NAME)));
        rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 8_192).unwrap();
        let mut stream = accept(&listener, &config);
        // The client is blocked when it reports so on its other connection.
        let (mut other, _) = listener.accept().unwrap();
        other.read_exact(&mut [0; 1]).unwrap();
        let mut got = vec![0; SIZE];
        stream.read_exact(&mut got).unwrap();
        stream.write_all(&pattern(SIZE)).unwrap();
        stream.conn.send_close_notify();
        stream.flush().unwrap();
        got
    });
    let options = SocketOptions { receive_buffer: Some(8_192), send_buffer: Some(8_192) };
    let mut peer = Client::connect_with(address, &options).with_tls(&client(|_| {}), NAME, false);
    peer.handshake().unwrap();
    let data = pattern(SIZE);
    let first = peer.socket.write(&data, &mut peer.scratch).unwrap();
    assert!(first.blocked && first.taken < SIZE);
    assert!(peer.socket.held() > 0, "what is encrypted cannot be given back");
    for _ in 0..3 {
        // It accepts nothing more until its buffer is sent, however often it is called.
        let again = peer.socket.write(&data[first.taken..], &mut peer.scratch).unwrap();
        assert_eq!(again, WriteOutcome { taken: 0, blocked: true });
    }
    assert!(peer.socket.held() < 17_000, "{} bytes", peer.socket.held());
    TcpStream::connect(address).unwrap().write_all(b"!").unwrap();
    wait(&peer.socket, PollFlags::OUT);
    peer.send(&data[first.taken..]).unwrap();
    assert_eq!(peer.socket.held(), 0);
    assert!(peer.read_bytes(SIZE) == pattern(SIZE));
    assert_eq!(peer.read_end().unwrap(), ReadEnd::Closed);
    assert!(server.join().unwrap() == pattern(SIZE));
}

#[test]
fn close_notify_is_a_clean_end() {
    let (address, server) = serve_tls(server_config(&self_signed(NAME)), |mut stream| {
        let mut all = Vec::new();
        // rustls's reader returns UnexpectedEof if close_notify is missing.
        stream.read_to_end(&mut all).unwrap();
        stream.write_all(b"late").unwrap();
        stream.conn.send_close_notify();
        stream.flush().unwrap();
        all
    });
    let mut peer = Client::secure(address, &client(|_| {}));
    peer.send(b"bye").unwrap();
    assert!(!peer.socket.close_notify(&mut peer.scratch).unwrap().blocked);
    let sent = peer.scratch.wire().sent;
    peer.socket.close_notify(&mut peer.scratch).unwrap();
    assert_eq!(peer.scratch.wire().sent, sent, "said once");
    assert_eq!(peer.socket.write(b"x", &mut peer.scratch).unwrap_err().kind(), io::ErrorKind::NotConnected);
    assert_eq!(peer.read_bytes(4), b"late");
    assert_eq!(peer.read_end().unwrap(), ReadEnd::Closed);
    assert_eq!(server.join().unwrap(), b"bye");

    // The peer disappears, even within a record.
    let (address, server) = serve_tls(server_config(&self_signed(NAME)), |mut stream| {
        stream.write_all(b"so far").unwrap();
        stream.sock.write_all(&[23, 3, 3, 0, 100, 1, 2, 3]).unwrap();
    });
    let mut peer = Client::secure(address, &client(|_| {}));
    assert_eq!(peer.read_end().unwrap(), ReadEnd::Cut);
    assert_eq!(peer.got, b"so far");
    server.join().unwrap();
}

#[test]
fn an_interrupted_handshake_is_a_lost_connection() {
    let (address, server) = serve(|listener| {
        let (mut stream, _) = listener.accept().unwrap();
        // Read the client's whole first record, so that closing does not reset.
        let mut head = [0; 5];
        stream.read_exact(&mut head).unwrap();
        stream.read_exact(&mut vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))]).unwrap();
    });
    let mut peer = Client::connect(address).with_tls(&client(|_| {}), NAME, false);
    assert_eq!(peer.read_end().unwrap(), ReadEnd::Cut);
    assert!(!peer.socket.is_secure());
    assert_eq!(peer.established, 0);
    server.join().unwrap();
}

#[test]
fn data_that_is_not_tls_is_a_permanent_error() {
    let (address, server) = serve(|listener| {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"<stream:stream xmlns='jabber:client'>").unwrap();
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        all
    });
    let mut peer = Client::connect(address).with_tls(&client(|_| {}), NAME, false);
    let error = peer.handshake().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(error.get_ref().unwrap().is::<rustls::Error>(), "{error}");
    let again = peer.socket.read(&mut peer.scratch, |_| panic!("no text")).unwrap_err();
    assert_eq!(again.kind(), io::ErrorKind::NotConnected);
    let again = peer.socket.write(b"x", &mut peer.scratch).unwrap_err();
    assert_eq!(again.kind(), io::ErrorKind::NotConnected);
    let sent = peer.scratch.wire().sent;
    drop(peer);
    let all = server.join().unwrap();
    assert_eq!(all.len() as u64, sent);
    assert_eq!(all[all.len() - 7], 21, "an alert was sent");
}

#[test]
fn a_forged_record_ends_the_connection_after_the_valid_ones() {
    let (address, server) = serve_tls(server_config(&self_signed(NAME)), |mut stream| {
        stream.write_all(b"good").unwrap();
        let mut forged = vec![23, 3, 3, 0, 40];
        forged.extend(pattern(40));
        stream.sock.write_all(&forged).unwrap();
        stream.read(&mut [0; 8]).unwrap_err().to_string()
    });
    let mut peer = Client::secure(address, &client(|_| {}));
    assert_eq!(peer.read_end().unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert_eq!(peer.got, b"good");
    assert!(server.join().unwrap().contains("BadRecordMac"), "the alert says why");
}

#[test]
fn starttls_takes_over_a_connection() {
    let (address, server) = serve(|listener| {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = io::BufReader::with_capacity(1, stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let mut stream = reader.into_inner();
        stream.write_all(b"<proceed/>").unwrap();
        let connection = ServerConnection::new(Arc::new(server_config(&self_signed(NAME)))).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        let mut got = [0; 6];
        stream.read_exact(&mut got).unwrap();
        (
            line,
            got,
            stream.conn.alpn_protocol().map(<[u8]>::to_vec),
            stream.conn.server_name().map(str::to_owned),
        )
    });
    let mut peer = Client::connect(address);
    peer.send(b"<starttls/>\n").unwrap();
    peer.read_bytes(10);
    let mut peer = peer.with_tls(&client(|_| {}), NAME, false);
    let twice = peer.socket.start_tls(&client(|_| {}), NAME, None, &mut peer.scratch).unwrap_err();
    assert_eq!(twice.kind(), io::ErrorKind::InvalidInput);
    peer.handshake().unwrap();
    peer.send(b"secret").unwrap();
    let (line, got, alpn, name) = server.join().unwrap();
    assert_eq!((line.as_str(), &got), ("<starttls/>\n", b"secret"));
    assert_eq!(alpn, None);
    assert_eq!(name.as_deref(), Some(NAME));
}

#[test]
fn direct_tls_offers_its_protocol() {
    let mut config = server_config(&self_signed(NAME));
    config.alpn_protocols = vec![b"xmpp-client".to_vec()];
    let (address, server) = serve_tls(config, |stream| stream.conn.alpn_protocol().map(<[u8]>::to_vec));
    let mut peer = Client::connect(address).with_tls(&client(|_| {}), NAME, true);
    peer.handshake().unwrap();
    assert_eq!(server.join().unwrap().as_deref(), Some(&b"xmpp-client"[..]));
}

#[test]
fn data_directly_after_the_handshake_is_not_lost() {
    // With TLS 1.3 a server may send before it has the client's last message (RFC 8446, section 2).
    let mut config = server_config(&self_signed(NAME));
    config.send_half_rtt_data = true;
    let (address, server) = serve(move |listener| {
        let (mut stream, _) = listener.accept().unwrap();
        let mut connection = ServerConnection::new(Arc::new(config)).unwrap();
        while !connection.wants_write() {
            connection.read_tls(&mut stream).unwrap();
            connection.process_new_packets().unwrap();
        }
        connection.writer().write_all(b"early").unwrap();
        let mut flight = Vec::new();
        while connection.wants_write() {
            connection.write_tls(&mut flight).unwrap();
        }
        stream.write_all(&flight).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        let mut got = [0; 8];
        stream.read_exact(&mut got).unwrap();
        got
    });
    let mut peer = Client::connect(address).with_tls(&client(|_| {}), NAME, false);
    assert_eq!(peer.read_bytes(5), b"early");
    assert_eq!(peer.established, 1);
    peer.send(b"received").unwrap();
    assert_eq!(&server.join().unwrap(), b"received");
}

#[test]
fn the_server_may_change_its_keys() {
    let (address, server) = serve_tls(server_config(&self_signed(NAME)), |mut stream| {
        let mut got = [0; 1];
        for turn in 0..20_u8 {
            stream.conn.refresh_traffic_keys().unwrap();
            stream.write_all(&[turn]).unwrap();
            stream.read_exact(&mut got).unwrap();
            assert_eq!(got, [turn]);
        }
    });
    let mut peer = Client::secure(address, &client(|_| {}));
    for turn in 0..20_u8 {
        let got = peer.read_bytes(usize::from(turn) + 1).last().copied().unwrap();
        peer.send(&[got]).unwrap();
    }
    server.join().unwrap();
    assert_eq!(peer.got, (0..20).collect::<Vec<u8>>());
}

#[test]
fn close_notify_during_the_handshake_is_a_failed_connection() {
    let (address, server) = serve(|listener| {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&[21, 3, 3, 0, 2, 1, 0]).unwrap();
        rustix::net::shutdown(&stream, Shutdown::Write).unwrap();
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
    });
    let mut peer = Client::connect(address).with_tls(&client(|_| {}), NAME, false);
    // rustls may treat it as an end or an error, or ignore it, but not as a handshake.
    let _ = peer.read_end();
    assert!(!peer.socket.is_secure());
    assert_eq!((peer.established, peer.socket.negotiated_tls()), (0, None));
    assert_eq!(peer.socket.write(b"x", &mut peer.scratch).unwrap_err().kind(), io::ErrorKind::NotConnected);
    drop(peer);
    server.join().unwrap();
}

#[test]
fn every_cipher_suite_carries_data_both_ways() {
    let made = self_signed(NAME);
    let provider = rustls::crypto::ring::default_provider();
    assert!(provider.cipher_suites.len() >= 9);
    for &suite in &provider.cipher_suites {
        let name = suite.suite().as_str().unwrap();
        let mut only = provider.clone();
        only.cipher_suites = vec![suite];
        // A TLS 1.2 suite with RSA needs an RSA certificate.
        if name.contains("_RSA_") {
            continue;
        }
        let config = ServerConfig::builder_with_provider(Arc::new(only))
            .with_protocol_versions(&[suite.version()])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.certificate.clone()], made.key.clone_key())
            .unwrap();
        let (address, server) = serve_tls(config, |mut stream| {
            let mut got = vec![0; 70_000];
            stream.read_exact(&mut got).unwrap();
            stream.write_all(&got).unwrap();
            stream.conn.send_close_notify();
            stream.flush().unwrap();
            got
        });
        let mut peer = Client::secure(address, &client(|_| {}));
        assert_eq!(peer.socket.negotiated_tls().unwrap().cipher, name);
        for part in pattern(70_000).chunks(23_000) {
            peer.send(part).unwrap();
        }
        assert!(peer.read_bytes(70_000) == pattern(70_000), "{name}");
        assert_eq!(peer.read_end().unwrap(), ReadEnd::Closed);
        assert!(server.join().unwrap() == pattern(70_000), "{name}");
    }
}

/// One wrong bit anywhere in the server's first flight: the client may survive it or not, but it terminates.
#[test]
fn a_corrupted_handshake_fails_without_a_panic() {
    let config = Arc::new(server_config(&self_signed(NAME)));
    let shared = client(|_| {});
    // The server says after each connection whether another byte is left, so that the client never connects to a
    // listener that is about to close.
    let (more, is_more) = std::sync::mpsc::sync_channel(1);
    let (address, server) = serve(move |listener| {
        for turn in 0.. {
            let (mut stream, _) = listener.accept().unwrap();
            let mut connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            while !connection.wants_write() {
                connection.read_tls(&mut stream).unwrap();
                connection.process_new_packets().unwrap();
            }
            let mut flight = Vec::new();
            while connection.wants_write() {
                connection.write_tls(&mut flight).unwrap();
            }
            // The length varies by a few bytes, with the signature.
            let place = (turn * 5).min(flight.len() - 1);
            flight[place] ^= 1 << (turn % 8);
            stream.write_all(&flight).unwrap();
            rustix::net::shutdown(&stream, Shutdown::Write).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
            if (turn + 1) * 5 >= flight.len() {
                return;
            }
            more.send(()).unwrap();
        }
    });
    let (mut turns, mut refused) = (0, 0);
    loop {
        let mut peer = Client::connect(address).with_tls(&shared, NAME, false);
        turns += 1;
        refused += usize::from(peer.read_end().is_err());
        drop(peer);
        if is_more.recv().is_err() {
            break;
        }
    }
    server.join().unwrap();
    assert!(turns > 100 && refused > turns * 8 / 10, "{refused} of {turns}");
}
