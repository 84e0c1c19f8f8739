//! Tests HTTP/2 clients that flood the daemon with frames other than requests.
//!
//! The daemon reads from these clients slowly and still serves their requests.

use super::h2_reset::{
    DATA, END_HEADERS, END_STREAM, HEADERS, HoldingServer, OK, SETTINGS, connect_http2,
    fetch_quick, frame,
};
use super::http2::last_goaway;
use super::keeper::wait_until;
use super::*;

const PING: u8 = 6;
const ACK: u8 = 1;

/// Sends a frame `count` times, and waits for the acknowledgement of each before it sends the next.
fn exchange(client: &mut TcpStream, kind: u8, count: usize) {
    let payload: &[u8] = if kind == PING { b"12345678" } else { &[] };
    for _ in 0..count {
        let frame = frame(kind, 0, 0, payload);
        client.write_all(&frame).expect("write");
        loop {
            let mut header = [0; 9];
            client.read_exact(&mut header).expect("read frame header");
            let mut payload = vec![0; usize::from(header[1]) << 8 | usize::from(header[2])];
            client.read_exact(&mut payload).expect("read frame payload");
            if (header[3], header[4]) == (kind, ACK) {
                break;
            }
        }
    }
}

#[test]
fn connection_with_too_many_idle_frames_is_read_slowly() {
    let origin = HoldingServer::start();
    let proxy = Proxy::start("http", &[origin.address], "");
    for kind in [PING, SETTINGS] {
        let mut client = connect_http2(proxy.listen);
        // The first acknowledgement may be that of the initial SETTINGS frame.
        exchange(&mut client, kind, 1);
        let start = Instant::now();
        exchange(&mut client, kind, 200);
        let elapsed = start.elapsed();
        // The limit is a hundred frames per second, with a burst of a hundred.
        let elapsed_min = Duration::from_millis(600);
        assert!(
            elapsed >= elapsed_min,
            "frames of type {kind} took {elapsed:?}"
        );
        assert_eq!(fetch_quick(&mut client, 1), Ok(OK), "type {kind}");
    }
}

#[test]
fn requests_offset_idle_frames() {
    let origin = HoldingServer::start();
    let proxy = Proxy::start("http", &[origin.address], "");
    let mut client = connect_http2(proxy.listen);
    let start = Instant::now();
    for number in 0..60 {
        exchange(&mut client, PING, 10);
        assert_eq!(fetch_quick(&mut client, 2 * number + 1), Ok(OK));
    }
    // A throttled connection would need five seconds.
    let elapsed = start.elapsed();
    assert!(elapsed < Duration::from_secs(3), "{elapsed:?}");
}

#[test]
fn request_is_aborted_when_its_throttled_client_disconnects() {
    let origin = HoldingServer::start();
    let proxy = Proxy::start("http", &[origin.address], "");
    let block = [0x82, 0x86, 0x84, 0x41, 1, b'a'];
    for number in 1..=20 {
        let mut client = connect_http2(proxy.listen);
        let request = frame(HEADERS, END_STREAM | END_HEADERS, 1, &block);
        client.write_all(&request).expect("write");
        wait_until("the server has received the request", || {
            origin.in_progress() == 1
        });
        let pings = frame(PING, 0, 0, b"12345678").repeat(300);
        client.write_all(&pings).expect("write");
        drop(client);
        wait_until(
            &format!("the request of client {number} is aborted"),
            || origin.in_progress() == 0,
        );
    }
}

#[test]
fn client_may_send_after_goaway_until_it_is_disconnected() {
    const PROTOCOL_ERROR: u32 = 1;
    let origin = HoldingServer::start();
    let proxy = Proxy::start("http", &[origin.address], "");
    let ping = frame(PING, 0, 0, b"12345678");
    for pause_ms in [0, 5, 100] {
        let mut client = connect_http2(proxy.listen);
        let invalid = frame(SETTINGS, 0, 0, b"x");
        client.write_all(&invalid).expect("write invalid frame");
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(pause_ms));
            client.write_all(&ping).expect("write without a reset");
        }
        let mut received = Vec::new();
        let result = client.read_to_end(&mut received);
        result.expect("read until the end without a reset");
        assert_eq!(last_goaway(&received), Some(PROTOCOL_ERROR));
        wait_until("a client that stays is disconnected", || {
            client.write_all(&ping).is_err()
        });
    }
}

#[test]
fn content_between_empty_data_frames_is_forwarded() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let mut client = connect_http2(proxy.listen);
    let head = [&[0x83, 0x86, 0x41, 1, b'a', 4, 4], &b"/sum"[..]].concat();
    let empty = frame(DATA, 0, 1, &[]).repeat(40);
    let frames = [
        frame(HEADERS, END_HEADERS, 1, &head),
        empty.clone(),
        frame(DATA, 0, 1, b"some "),
        empty,
        frame(DATA, END_STREAM, 1, b"content"),
    ];
    client.write_all(&frames.concat()).expect("write");
    loop {
        let mut header = [0; 9];
        client.read_exact(&mut header).expect("read frame header");
        let mut payload = vec![0; usize::from(header[1]) << 8 | usize::from(header[2])];
        client.read_exact(&mut payload).expect("read frame payload");
        assert!(!matches!(header[3], 3 | 7), "{header:?} {payload:?}");
        if header[3] == DATA && !payload.is_empty() {
            assert_eq!(String::from_utf8_lossy(&payload), "12");
            break;
        }
    }
}
