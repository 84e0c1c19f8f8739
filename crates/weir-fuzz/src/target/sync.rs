//! Fuzzes datagrams of flow synchronization.

use std::time::Duration;

use weir_sync::{Key, Record, Session, Source, decode_items};

/// A table without flows.
struct EmptyTable;

impl Source for EmptyTable {
    fn prefetch(&mut self, _entry: u32) {}

    fn export(&mut self, _entry: u32, _records: &mut Vec<Record>) {}

    fn scan(&mut self, _from: u32, _entries: &mut Vec<u32>) -> Option<u32> {
        None
    }
}

/// Passes the input as a datagram, and as the decrypted body of a datagram.
pub(super) fn datagram(input: &[u8]) {
    let _ = decode_items(input);
    let mut session = Session::new(
        &Key::new(b"a key for the fuzzer"),
        [7; 32],
        0,
        Duration::ZERO,
    );
    let mut records = Vec::new();
    let _ = session.handle(&mut input.to_vec(), Duration::ZERO, &mut records);
    assert!(
        records.is_empty(),
        "records from a forged datagram were accepted"
    );
    let _ = session.poll(Duration::ZERO, &mut EmptyTable);
}

/// Returns a hello from a session with the same key, and a body with items of every type.
pub(super) fn datagrams() -> Vec<Vec<u8>> {
    let mut peer = Session::new(
        &Key::new(b"a key for the fuzzer"),
        [8; 32],
        1,
        Duration::ZERO,
    );
    let hello = peer
        .poll(Duration::ZERO, &mut EmptyTable)
        .unwrap_or_default();
    let mut body = vec![1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 5, 4, 0, 0, 2, 0, 37];
    body.extend_from_slice(&[1, 6, 4, 1, 1, 0, 0x9c, 0x40, 0, 80, 0, 0, 0, 0, 0, 0, 0, 3]);
    body.extend_from_slice(&[10, 0, 0, 2, 10, 0, 0, 10, 4, 10, 0, 0, 5, 0, 0, 2, 2, 1, 2]);
    vec![hello, body]
}
