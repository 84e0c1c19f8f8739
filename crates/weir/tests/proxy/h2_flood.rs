//! HTTP/2 clients that send frames without requests: they are read slowly, and their requests are answered.

use super::h2_reset::{
    DATA, END_HEADERS, END_STREAM, HEADERS, Holding, OK, SETTINGS, begin, fetch_quick, frame,
};
use super::keeper::until;
use super::*;

const PING: u8 = 6;
const ACK: u8 = 1;

/// Sends a frame `count` times, each after the previous one was acknowledged.
fn exchange(client: &mut TcpStream, kind: u8, count: usize) {
    let payload: &[u8] = if kind == PING { b"12345678" } else { &[] };
    for _ in 0..count {
        let text = frame(kind, 0, 0, payload);
        client.write_all(&text).expect("it is taken");
        loop {
            let mut header = [0; 9];
            client.read_exact(&mut header).expect("a frame");
            let mut payload = vec![0; usize::from(header[1]) << 8 | usize::from(header[2])];
            client.read_exact(&mut payload).expect("all of it");
            if (header[3], header[4]) == (kind, ACK) {
                break;
            }
        }
    }
}

#[test]
fn connection_with_too_many_idle_frames_is_read_slowly() {
    let origin = Holding::start();
    let proxy = Proxy::start("http", &[origin.address], "");
    for kind in [PING, SETTINGS] {
        let mut client = begin(proxy.listen);
        // The acknowledgement of the first settings.
        exchange(&mut client, kind, 1);
        let start = Instant::now();
        exchange(&mut client, kind, 200);
        let latencies = start.elapsed();
        // A hundred at once, and a hundred in a second.
        let least = Duration::from_millis(600);
        assert!(
            latencies >= least,
            "frames of type {kind} took {latencies:?}"
        );
        assert_eq!(fetch_quick(&mut client, 1), Ok(OK), "type {kind}");
    }
}

#[test]
fn requests_offset_idle_frames() {
    let origin = Holding::start();
    let proxy = Proxy::start("http", &[origin.address], "");
    let mut client = begin(proxy.listen);
    let start = Instant::now();
    for number in 0..60 {
        exchange(&mut client, PING, 10);
        assert_eq!(fetch_quick(&mut client, 2 * number + 1), Ok(OK));
    }
    // At the rate of a connection that is read slowly this would take five seconds.
    let latencies = start.elapsed();
    assert!(latencies < Duration::from_secs(3), "{latencies:?}");
}

#[test]
fn throttled_client_that_leaves_leaves_no_request() {
    let origin = Holding::start();
    let proxy = Proxy::start("http", &[origin.address], "");
    let path = [0x82, 0x86, 0x84, 0x41, 1, b'a'];
    for number in 1..=20 {
        let mut client = begin(proxy.listen);
        let request = frame(HEADERS, END_STREAM | END_HEADERS, 1, &path);
        client.write_all(&request).expect("it is taken");
        until("the request", || origin.present() == 1);
        let pings = frame(PING, 0, 0, b"12345678").repeat(300);
        client.write_all(&pings).expect("it is taken");
        drop(client);
        until(&format!("the end of client {number}"), || {
            origin.present() == 0
        });
    }
}

#[test]
fn content_passes_between_empty_data_frames() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let mut client = begin(proxy.listen);
    let head = [&[0x83, 0x86, 0x41, 1, b'a', 4, 4], &b"/sum"[..]].concat();
    let empty = frame(DATA, 0, 1, &[]).repeat(40);
    let text = [
        frame(HEADERS, END_HEADERS, 1, &head),
        empty.clone(),
        frame(DATA, 0, 1, b"some "),
        empty,
        frame(DATA, END_STREAM, 1, b"content"),
    ];
    client.write_all(&text.concat()).expect("it is taken");
    loop {
        let mut header = [0; 9];
        client.read_exact(&mut header).expect("a frame");
        let mut payload = vec![0; usize::from(header[1]) << 8 | usize::from(header[2])];
        client.read_exact(&mut payload).expect("all of it");
        assert!(!matches!(header[3], 3 | 7), "{header:?} {payload:?}");
        if header[3] == DATA && !payload.is_empty() {
            assert_eq!(String::from_utf8_lossy(&payload), "12");
            break;
        }
    }
}
