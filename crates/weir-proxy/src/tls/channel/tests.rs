//! Tests two channels over Unix sockets.
//!
//! The tests cover segmented records, records larger than the socket's buffer, ends of connections, and alerts.

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use weir_model::{ClientAuth, ServerTls, ServiceTls, SniHost, Source, TlsVersion};

use super::*;
use crate::tls::{Tickets, TlsConnector, server_config};

const CERTIFICATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/certificate.pem");

/// One end: a channel, its socket, and the state of the socket.
struct Peer {
    channel: Channel,
    socket: OwnedFd,
    ready: Readiness,
    state: Handshake,
}

impl Peer {
    fn new(channel: Channel, socket: UnixStream) -> Self {
        socket.set_nonblocking(true).expect("set nonblocking");
        Self {
            channel,
            socket: socket.into(),
            ready: Readiness::default(),
            state: Handshake::Pending,
        }
    }

    fn server(minimum: TlsVersion, socket: UnixStream) -> Self {
        let tls = ServiceTls {
            certificates: vec![CERTIFICATE.to_owned()],
            strict_sni: false,
            minimum,
            ciphers: Vec::new(),
            groups: Vec::new(),
            sni_host: SniHost::default(),
            client_ca: None,
            client_crl: None,
            client_auth: ClientAuth::default(),
            ticket_keys: Vec::new(),
            source: Source::default(),
        };
        let tickets = Arc::new(Tickets::new(Vec::new()).expect("generate key"));
        let service_config =
            server_config(&tls, &[b"h2", b"http/1.1"], tickets).expect("build configuration");
        Self::new(
            Channel::accept(&service_config.config).expect("create channel"),
            socket,
        )
    }

    fn client(verify: bool, protocol: &[u8], socket: UnixStream) -> Self {
        let tls = ServerTls {
            verify,
            ..ServerTls::default()
        };
        let connector = TlsConnector::new(&tls, &[protocol]).expect("build configuration");
        let name = ServerName::try_from("a.example").expect("parse name");
        Self::new(
            Channel::connect(&connector.config, name).expect("create channel"),
            socket,
        )
    }

    /// Handles an event that reports the socket as readable and writable.
    fn wake(&mut self) {
        (self.ready.readable, self.ready.writable) = (true, true);
    }

    fn handshake(&mut self) {
        self.wake();
        if self.state == Handshake::Pending {
            self.state = self.channel.handshake(&self.socket, &mut self.ready);
        }
    }

    /// Returns everything that can be read now, and the result of the last read.
    fn read(&mut self) -> (Vec<u8>, Read) {
        let (mut content, mut buffer) = (Vec::new(), vec![0; BODY_BUFFER_BYTES]);
        self.wake();
        loop {
            match self
                .channel
                .read(&self.socket, &mut self.ready, &mut buffer)
            {
                Read::Some(bytes) => content.extend_from_slice(&buffer[..bytes]),
                last => return (content, last),
            }
        }
    }

    fn write(&mut self, content: &[u8]) -> Written {
        self.channel.write(&self.socket, &[content])
    }
}

fn pair() -> (Peer, Peer) {
    let (client_socket, server_socket) = UnixStream::pair().expect("create socket pair");
    let client = Peer::client(false, b"h2", client_socket);
    (client, Peer::server(TlsVersion::V12, server_socket))
}

/// Returns a pair of peers whose handshake is complete.
fn connected_pair() -> (Peer, Peer) {
    let (mut client, mut server) = pair();
    for _ in 0..4 {
        client.handshake();
        server.handshake();
    }
    assert_eq!(
        (client.state, server.state),
        (Handshake::Done, Handshake::Done)
    );
    (client, server)
}

/// Returns content with a period that does not divide any record length.
fn content(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 251) as u8).collect()
}

#[test]
fn handshake_provides_sni_and_negotiates_protocol() {
    let (client, server) = connected_pair();
    assert_eq!(client.channel.protocol(), Some(&b"h2"[..]));
    assert_eq!(server.channel.protocol(), Some(&b"h2"[..]));
    assert_eq!(server.channel.sni.as_deref(), Some("a.example"));
    assert_eq!(client.channel.sni, None);
}

#[test]
fn records_are_processed_for_any_segmentation() {
    for step in [1, 2, 5, 7, 64, 1_000] {
        let (client_end, mut relay_in) = UnixStream::pair().expect("create socket pair");
        let (mut relay_out, server_end) = UnixStream::pair().expect("create socket pair");
        let mut client = Peer::client(false, b"h2", client_end);
        let mut server = Peer::server(TlsVersion::V12, server_end);
        relay_in.set_nonblocking(true).expect("set nonblocking");
        relay_out.set_nonblocking(true).expect("set nonblocking");
        let data = content(3_000);
        let (mut received, mut is_sent) = (Vec::new(), false);
        for _ in 0..8 {
            client.handshake();
            if client.state == Handshake::Done && !is_sent {
                assert_eq!(client.write(&data), Written::Some(data.len()));
                is_sent = true;
            }
            let mut records = Vec::new();
            // Ends with `WouldBlock`.
            let _ = relay_in.read_to_end(&mut records);
            for portion in records.chunks(step) {
                relay_out.write_all(portion).expect("write");
                server.handshake();
                if server.state == Handshake::Done {
                    let (part, last) = server.read();
                    assert_eq!(last, Read::Blocked, "step {step}");
                    received.extend(part);
                }
            }
            let mut records = Vec::new();
            let _ = relay_out.read_to_end(&mut records);
            relay_in.write_all(&records).expect("write");
        }
        assert_eq!(server.state, Handshake::Done, "step {step}");
        assert!(received == data, "step {step}: {} bytes", received.len());
    }
}

#[test]
fn content_larger_than_socket_buffer_is_buffered_and_sent_in_order() {
    let (mut client, mut server) = connected_pair();
    let data = content(3 << 20);
    assert_eq!(client.write(&data), Written::Some(data.len()));
    assert!(
        client.channel.has_unsent(),
        "the content must exceed the socket buffer"
    );
    // The channel accepts nothing more while some of the content is unsent.
    assert_eq!(client.write(b"later"), Written::Some(0));
    let mut received = Vec::new();
    while client.channel.has_unsent() {
        let (part, last) = server.read();
        assert_eq!(last, Read::Blocked);
        assert!(!part.is_empty(), "the socket must have content");
        received.extend(part);
        assert_eq!(client.write(b""), Written::Some(0));
    }
    received.extend(server.read().0);
    assert!(received == data, "{} bytes", received.len());
    assert_eq!(client.write(b"later"), Written::Some(5));
    assert_eq!(server.read(), (b"later".to_vec(), Read::Blocked));
}

#[test]
fn slices_of_a_write_arrive_in_order() {
    let (mut client, mut server) = connected_pair();
    let parts: [&[u8]; 3] = [b"head", b"", b"body"];
    assert_eq!(
        client.channel.write(&client.socket, &parts),
        Written::Some(8)
    );
    assert_eq!(server.read(), (b"headbody".to_vec(), Read::Blocked));
}

#[test]
fn nothing_is_written_before_the_handshake_is_complete() {
    let (mut client, _server) = pair();
    assert_eq!(client.write(b"early"), Written::Some(0));
}

#[test]
fn close_notify_ends_one_direction_after_its_content() {
    let (mut client, mut server) = connected_pair();
    assert_eq!(client.write(b"last"), Written::Some(4));
    client.channel.send_close_notify(&client.socket);
    // A second close_notify would be a protocol error.
    client.channel.send_close_notify(&client.socket);
    assert_eq!(server.read(), (b"last".to_vec(), Read::End));
    assert!(server.channel.error.is_none());
    assert_eq!(server.write(b"answer"), Written::Some(6));
    assert_eq!(client.read(), (b"answer".to_vec(), Read::Blocked));
}

#[test]
fn close_is_detected_before_preceding_content_is_read() {
    let (mut client, mut server) = connected_pair();
    assert!(
        !server
            .channel
            .is_closed(&server.socket, &mut Readiness::default())
    );
    assert_eq!(client.write(b"last"), Written::Some(4));
    client.channel.send_close_notify(&client.socket);
    server.wake();
    assert!(server.channel.is_closed(&server.socket, &mut server.ready));
    assert!(server.ready.readable, "the content must still be readable");
    assert_eq!(server.read(), (b"last".to_vec(), Read::End));
}

#[test]
fn shutdown_follows_unsent_records() {
    let (mut client, mut server) = connected_pair();
    let data = content(3 << 20);
    assert_eq!(client.write(&data), Written::Some(data.len()));
    client.channel.finish(&client.socket);
    let mut received = Vec::new();
    let last = loop {
        let (part, last) = server.read();
        received.extend(part);
        if last != Read::Blocked {
            break last;
        }
        assert_eq!(client.write(b""), Written::Some(0));
    };
    assert_eq!(last, Read::End);
    assert!(received == data, "{} bytes", received.len());
}

#[test]
fn rejected_certificate_is_reported_to_the_server_by_an_alert() {
    let (client_socket, server_socket) = UnixStream::pair().expect("create socket pair");
    let mut client = Peer::new(
        {
            let authority = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/other.pem");
            let tls = ServerTls {
                ca: Some(authority.to_owned()),
                ..ServerTls::default()
            };
            let connector = TlsConnector::new(&tls, &[b"h2"]).expect("build configuration");
            let name = ServerName::try_from("a.example").expect("parse name");
            Channel::connect(&connector.config, name).expect("create channel")
        },
        client_socket,
    );
    let mut server = Peer::server(TlsVersion::V12, server_socket);
    for _ in 0..4 {
        client.handshake();
        server.handshake();
    }
    assert_eq!(client.state, Handshake::Failed);
    let unknown = rustls::CertificateError::UnknownIssuer;
    assert_eq!(
        client.channel.error,
        Some(rustls::Error::InvalidCertificate(unknown))
    );
    assert_ne!(server.state, Handshake::Pending);
    if server.state == Handshake::Done {
        // TLS 1.3: the server completes the handshake before the client verifies the certificate.
        assert_eq!(server.read(), (Vec::new(), Read::Broken));
    }
    let alert = rustls::AlertDescription::UnknownCA;
    assert_eq!(
        server.channel.error,
        Some(rustls::Error::AlertReceived(alert))
    );
}

#[test]
fn invalid_input_is_rejected_with_an_alert() {
    for (name, bytes) in [
        (
            "an HTTP request",
            &b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"[..],
        ),
        ("an unknown content type", b"\x63\x03\x01\x00\x01\x00"),
        ("an oversized record", b"\x16\x03\x01\xff\xff\x00"),
        ("application data", b"\x17\x03\x03\x00\x01\x00"),
    ] {
        let (mut client_socket, server_socket) = UnixStream::pair().expect("create socket pair");
        client_socket.write_all(bytes).expect("write");
        let mut server = Peer::server(TlsVersion::V12, server_socket);
        server.handshake();
        assert_eq!(server.state, Handshake::Failed, "{name}");
        assert!(server.channel.error.is_some(), "{name}");
        let mut alert = [0; 7];
        client_socket.read_exact(&mut alert).expect("read alert");
        // A record of type alert with two bytes, level fatal.
        assert_eq!(
            (alert[0], &alert[3..6]),
            (21, &[0, 2, 2][..]),
            "{name}: {alert:?}"
        );
    }
}

#[test]
fn version_below_the_minimum_fails_on_both_sides() {
    let (client_socket, server_socket) = UnixStream::pair().expect("create socket pair");
    let mut server = Peer::server(TlsVersion::V13, server_socket);
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::aws_lc_rs::default_provider(),
    ))
    .with_protocol_versions(&[&rustls::version::TLS12])
    .expect("supported version")
    .with_root_certificates(rustls::RootCertStore::empty())
    .with_no_client_auth();
    let name = ServerName::try_from("a.example").expect("parse name");
    let channel = Channel::connect(&Arc::new(config), name).expect("create channel");
    let mut client = Peer::new(channel, client_socket);
    for _ in 0..3 {
        client.handshake();
        server.handshake();
    }
    assert_eq!(
        (client.state, server.state),
        (Handshake::Failed, Handshake::Failed)
    );
    let alert = rustls::AlertDescription::ProtocolVersion;
    assert_eq!(
        client.channel.error,
        Some(rustls::Error::AlertReceived(alert))
    );
}

#[test]
fn modified_record_breaks_connection() {
    let (client_end, mut relay_in) = UnixStream::pair().expect("create socket pair");
    let (mut relay_out, server_end) = UnixStream::pair().expect("create socket pair");
    let mut client = Peer::client(false, b"h2", client_end);
    let mut server = Peer::server(TlsVersion::V12, server_end);
    relay_in.set_nonblocking(true).expect("set nonblocking");
    relay_out.set_nonblocking(true).expect("set nonblocking");
    for _ in 0..4 {
        client.handshake();
        let mut records = Vec::new();
        let _ = relay_in.read_to_end(&mut records);
        relay_out.write_all(&records).expect("write");
        server.handshake();
        let mut records = Vec::new();
        let _ = relay_out.read_to_end(&mut records);
        relay_in.write_all(&records).expect("write");
    }
    assert_eq!(client.write(b"content"), Written::Some(7));
    let mut records = Vec::new();
    let _ = relay_in.read_to_end(&mut records);
    *records.last_mut().expect("a record was sent") ^= 1;
    relay_out.write_all(&records).expect("write");
    assert_eq!(server.read(), (Vec::new(), Read::Broken));
    assert_eq!(server.channel.error, Some(rustls::Error::DecryptError));
}
