//! Builds the bytes that an attacker sends: HTTP/2 frames, header blocks and a TLS ClientHello.
//!
//! The formats are those of RFC 9113 §4, RFC 7541 and RFC 8446 §4.1.2. No library is used, because a library would
//! reject most of the bytes. Only the frame boundaries and the status of the proxy's responses are parsed.

/// Client connection preface (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const ACK: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITIZED: u8 = 0x20;

/// Error code CANCEL of RST_STREAM.
pub(crate) const CANCEL: u32 = 8;
/// Identifier of SETTINGS_INITIAL_WINDOW_SIZE.
const INITIAL_WINDOW_SIZE: u16 = 4;

/// Appends one frame.
pub(crate) fn append_frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    out.extend(&length.to_be_bytes()[1..]);
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
}

/// Returns the data that opens a connection. With `closed_windows`, the proxy must not send body data.
pub(crate) fn opening_bytes(closed_windows: bool) -> Vec<u8> {
    let mut out = PREFACE.to_vec();
    let mut settings = Vec::new();
    if closed_windows {
        settings.extend(INITIAL_WINDOW_SIZE.to_be_bytes());
        settings.extend(0_u32.to_be_bytes());
    }
    append_frame(&mut out, SETTINGS, 0, 0, &settings);
    out
}

/// Returns the header block of a GET request for `path`. No field is added to the dynamic table.
pub(crate) fn get_block(path: &str) -> Vec<u8> {
    block(0x82, path)
}

/// Returns the header block of a POST request, with `content_length` if there is one.
pub(crate) fn post_block(path: &str, content_length: Option<&str>) -> Vec<u8> {
    let mut out = block(0x83, path);
    if let Some(length) = content_length {
        // Index 28 of the static table is content-length.
        out.extend([0x0f, 28 - 15]);
        append_text(&mut out, length);
    }
    out
}

fn block(method: u8, path: &str) -> Vec<u8> {
    // Indexes 4 and 1 of the static table: `:path`, `:authority`; 0x86 is `:scheme http`.
    let mut out = vec![method, 0x86, 0x04];
    append_text(&mut out, path);
    out.push(0x01);
    append_text(&mut out, "attack.example");
    out
}

/// Appends a field with a value of `length` bytes that is added to the dynamic table as entry 62.
pub(crate) fn append_field_with_indexing(out: &mut Vec<u8>, length: usize) {
    out.push(0x40);
    append_text(out, "x");
    append_string(out, &vec![b'a'; length]);
}

/// Appends references to the newest entry of the dynamic table.
pub(crate) fn append_references(out: &mut Vec<u8>, count: usize) {
    out.resize(out.len() + count, 0x80 | 62);
}

/// Appends a field with a value of `length` bytes that is not added to the dynamic table.
pub(crate) fn append_plain_field(out: &mut Vec<u8>, name: &str, length: usize) {
    out.push(0x00);
    append_text(out, name);
    append_string(out, &vec![b'a'; length]);
}

fn append_text(out: &mut Vec<u8>, text: &str) {
    append_string(out, text.as_bytes());
}

/// Appends a string without Huffman coding; its length is an integer with a 7-bit prefix (RFC 7541 §5.1).
fn append_string(out: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.len() < 127 {
        out.push(u8::try_from(bytes.len()).unwrap_or(0));
    } else {
        out.push(127);
        let mut rest = bytes.len() - 127;
        while rest >= 128 {
            out.push(u8::try_from(rest % 128).unwrap_or(0) | 0x80);
            rest /= 128;
        }
        out.push(u8::try_from(rest).unwrap_or(0));
    }
    out.extend(bytes);
}

/// Returns whether a response's header block starts with `:status 200`, after dynamic table size updates (RFC 7541
/// §6.3).
pub(crate) fn is_success(flags: u8, payload: &[u8]) -> bool {
    let mut block = payload;
    if flags & PADDED != 0 {
        block = block.get(1..).unwrap_or_default();
    }
    if flags & PRIORITIZED != 0 {
        block = block.get(5..).unwrap_or_default();
    }
    while let Some((first, rest)) = block.split_first()
        && first & 0xe0 == 0x20
    {
        block = rest;
        if first & 0x1f == 0x1f {
            let last = block.iter().position(|byte| byte & 0x80 == 0);
            block = last.map_or(&[], |last| &block[last + 1..]);
        }
    }
    block.first() == Some(&0x88)
}

/// A frame from the proxy.
pub(crate) struct ReceivedFrame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// Splits a byte stream into frames.
#[derive(Default)]
pub(crate) struct FrameReader {
    bytes: Vec<u8>,
}

impl FrameReader {
    /// Adds received data.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Returns the next complete frame.
    pub(crate) fn next(&mut self) -> Option<ReceivedFrame> {
        let head: [u8; 9] = self.bytes.get(..9)?.try_into().ok()?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        if self.bytes.len() < 9 + length {
            return None;
        }
        let payload = self.bytes[9..9 + length].to_vec();
        self.bytes.drain(..9 + length);
        Some(ReceivedFrame {
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff,
            payload,
        })
    }
}

/// Returns a TLS 1.3 ClientHello that makes servers respond with a complete flight, including certificate and
/// signature: an X25519 share (any 32 bytes are valid), common suites and signature algorithms, ALPN h2 and http/1.1.
/// `number` makes each message unique.
pub(crate) fn client_hello(number: u32) -> Vec<u8> {
    let random: Vec<u8> = (0..32_u32)
        .map(|index| {
            number
                .wrapping_add(index)
                .wrapping_mul(0x9e37_79b9)
                .to_be_bytes()[0]
        })
        .collect();
    let mut extensions = Vec::new();
    let mut extension = |kind: u16, body: &[u8]| {
        extensions.extend(kind.to_be_bytes());
        extensions.extend(length16(body.len()));
        extensions.extend(body);
    };
    extension(0, &[&[0, 17, 0, 0, 14][..], b"attack.example"].concat());
    extension(10, &[0, 4, 0, 0x1d, 0, 0x17]);
    extension(13, &[0, 8, 4, 3, 8, 4, 4, 1, 8, 5]);
    extension(16, b"\x00\x0c\x02h2\x08http/1.1");
    extension(43, &[2, 3, 4]);
    extension(51, &[&[0, 36, 0, 0x1d, 0, 32][..], &random].concat());
    let mut hello = vec![3, 3];
    hello.extend(&random);
    hello.push(32);
    hello.extend(&random);
    hello.extend([0, 6, 0x13, 1, 0x13, 2, 0x13, 3, 1, 0]);
    hello.extend(length16(extensions.len()));
    hello.extend(extensions);
    let mut record = vec![22, 3, 1];
    record.extend(length16(hello.len() + 4));
    record.extend([1, 0]);
    record.extend(length16(hello.len()));
    record.extend(hello);
    record
}

fn length16(length: usize) -> [u8; 2] {
    u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_has_length_kind_flags_and_stream() {
        let mut out = Vec::new();
        append_frame(&mut out, RST_STREAM, 0, 5, &CANCEL.to_be_bytes());
        assert_eq!(out, [0, 0, 4, 3, 0, 0, 0, 0, 5, 0, 0, 0, 8]);
    }

    #[test]
    fn reader_returns_whole_frames_only() {
        let mut bytes = Vec::new();
        append_frame(&mut bytes, PING, ACK, 0, &[7; 8]);
        append_frame(&mut bytes, DATA, END_STREAM, 3, b"ok");
        let mut reader = FrameReader::default();
        let mut kinds = Vec::new();
        for byte in bytes {
            reader.feed(&[byte]);
            while let Some(frame) = reader.next() {
                kinds.push((frame.kind, frame.flags, frame.stream, frame.payload.len()));
            }
        }
        assert_eq!(kinds, [(PING, ACK, 0, 8), (DATA, END_STREAM, 3, 2)]);
    }

    #[test]
    fn long_strings_have_multibyte_lengths() {
        let mut out = Vec::new();
        append_string(&mut out, &[b'a'; 4000]);
        // 4000 - 127 = 3873 = 30 * 128 + 33.
        assert_eq!(out[..3], [127, 33 | 0x80, 30]);
        assert_eq!(out.len(), 3 + 4000);
    }

    #[test]
    fn success_is_status_200_after_table_size_updates() {
        assert!(is_success(END_HEADERS, &[0x88, 1]));
        assert!(is_success(END_HEADERS, &[0x20, 0x3f, 0xe1, 0x1f, 0x88]));
        assert!(is_success(PADDED, &[0, 0x88]));
        assert!(!is_success(END_HEADERS, &[0x8d]));
        assert!(!is_success(END_HEADERS, &[]));
    }

    #[test]
    fn client_hello_has_consistent_lengths() {
        let hello = client_hello(7);
        let record = usize::from(hello[3]) << 8 | usize::from(hello[4]);
        assert_eq!(record, hello.len() - 5);
        let message = usize::from(hello[7]) << 8 | usize::from(hello[8]);
        assert_eq!(message, record - 4);
        assert_ne!(client_hello(7), client_hello(8));
    }
}
