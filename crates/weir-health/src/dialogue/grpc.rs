//! Implements the gRPC health checking protocol (grpc/doc/health-checking.md) over HTTP/2 (RFC 9113).
//!
//! A check sends one request, and its response contains the status.
//!
//! Only the necessary subset of HTTP/2 is implemented. Header blocks of the response are not decoded: the health status
//! is in a DATA frame, and a response without a DATA frame is a failure.

use super::{Dialogue, Reply, quote_first_line};
use crate::outcome::Outcome;
use crate::target::Target;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER_BYTES: usize = 9;

/// Default SETTINGS_MAX_FRAME_SIZE, in bytes: larger frames are not allowed.
const FRAME_MAX_BYTES: usize = 1 << 14;

/// Maximum number of frames in a response; more than any valid response has.
const MAX_FRAMES: u32 = 64;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

/// The state of a gRPC health check.
#[derive(Debug)]
pub(super) struct Check {
    request: Vec<u8>,
    /// Received bytes that are not processed yet.
    received: Vec<u8>,
    body: Vec<u8>,
    /// Number of frames received.
    frame_count: u32,
}

/// One frame in the response.
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Check {
    pub(super) fn new(service: &str, target: &Target) -> Self {
        let port = target.port.unwrap_or(0);
        let authority = match target.unix {
            None => std::net::SocketAddr::new(target.address, port).to_string(),
            Some(_) => "localhost".to_owned(),
        };
        let scheme = if target.tls.is_some() {
            "https"
        } else {
            "http"
        };
        let mut request = PREFACE.to_vec();
        request.extend(encode_frame(SETTINGS, 0, 0, &[]));
        let fields = encode_fields(scheme, &authority);
        request.extend(encode_frame(HEADERS, END_HEADERS, 1, &fields));
        request.extend(encode_frame(DATA, END_STREAM, 1, &request_message(service)));
        Self {
            request,
            received: Vec::new(),
            body: Vec::new(),
            frame_count: 0,
        }
    }

    /// Removes and returns the next complete frame.
    fn next_frame(&mut self) -> Result<Option<Frame>, Outcome> {
        let [a, b, c, kind, flags, s0, s1, s2, s3, ..] = *self.received.as_slice() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        if length > FRAME_MAX_BYTES {
            return Err(Outcome::failed(format!(
                "not HTTP/2: {}",
                quote_first_line(&self.received[..FRAME_HEADER_BYTES])
            )));
        }
        if self.received.len() < FRAME_HEADER_BYTES + length {
            return Ok(None);
        }
        let remaining = self.received.split_off(FRAME_HEADER_BYTES + length);
        let payload =
            std::mem::replace(&mut self.received, remaining).split_off(FRAME_HEADER_BYTES);
        self.frame_count += 1;
        if self.frame_count > MAX_FRAMES {
            return Err(Outcome::failed("too many frames"));
        }
        Ok(Some(Frame {
            kind,
            flags,
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & 0x7fff_ffff,
            payload,
        }))
    }

    /// Processes a frame. Returns the bytes to send; `Err` = the outcome of the completed probe.
    fn process_frame(&mut self, frame: &Frame) -> Result<Vec<u8>, Outcome> {
        match (frame.kind, frame.stream) {
            (SETTINGS, 0) if frame.flags & ACK == 0 => {
                Ok(self::encode_frame(SETTINGS, ACK, 0, &[]))
            }
            (PING, 0) if frame.flags & ACK == 0 => {
                Ok(self::encode_frame(PING, ACK, 0, &frame.payload))
            }
            (GOAWAY, _) => Err(Outcome::failed("server sent GOAWAY")),
            (RST_STREAM, 1) => Err(Outcome::failed("server reset the stream")),
            (DATA, 1) => {
                self.body.extend(unpadded_payload(frame));
                match evaluate_message(&self.body) {
                    Some(outcome) => Err(outcome),
                    None if frame.flags & END_STREAM != 0 => {
                        Err(Outcome::failed("response without a health status"))
                    }
                    None => Ok(Vec::new()),
                }
            }
            // The response ends without a health status, usually because the server does not support the method or the
            // service.
            (HEADERS, 1) if frame.flags & END_STREAM != 0 => {
                Err(Outcome::failed("error response without a health status"))
            }
            _ => Ok(Vec::new()),
        }
    }
}

impl Dialogue for Check {
    fn open(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.request)
    }

    fn receive(&mut self, bytes: &[u8]) -> Reply {
        self.received.extend_from_slice(bytes);
        let mut reply = Vec::new();
        loop {
            let result = match self.next_frame() {
                Ok(Some(frame)) => self.process_frame(&frame),
                Ok(None) if reply.is_empty() => return Reply::More,
                Ok(None) => return Reply::Send(reply),
                Err(outcome) => Err(outcome),
            };
            match result {
                Ok(bytes_to_send) => reply.extend(bytes_to_send),
                Err(outcome) => return Reply::Finished(outcome),
            }
        }
    }

    fn end(&mut self) -> Outcome {
        Outcome::failed("connection closed without a health status")
    }
}

fn encode_frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
    let mut frame = vec![a, b, c, kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Returns the payload of a DATA frame without padding.
fn unpadded_payload(frame: &Frame) -> &[u8] {
    if frame.flags & PADDED == 0 {
        return &frame.payload;
    }
    let Some((padding, content)) = frame.payload.split_first() else {
        return &[];
    };
    let end = content.len().saturating_sub(usize::from(*padding));
    &content[..end]
}

/// Encodes the request's header fields as literals without indexing (RFC 7541 section 6.2.2).
fn encode_fields(scheme: &str, authority: &str) -> Vec<u8> {
    let fields = [
        (":method", "POST"),
        (":scheme", scheme),
        (":path", "/grpc.health.v1.Health/Check"),
        (":authority", authority),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("user-agent", "weir-check"),
    ];
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            // All texts are shorter than 127 bytes, so the length takes one byte. Huffman coding is not used.
            block.push(text.len().min(126) as u8);
            block.extend(&text.as_bytes()[..text.len().min(126)]);
        }
    }
    block
}

/// Encodes `HealthCheckRequest { string service = 1; }` after gRPC's prefix: a byte for "not compressed", and four
/// bytes of length.
fn request_message(service: &str) -> Vec<u8> {
    let mut request = Vec::new();
    if !service.is_empty() {
        request.push(0x0a);
        request.extend(encode_varint(service.len()));
        request.extend(service.as_bytes());
    }
    let mut message = vec![0];
    message.extend((request.len() as u32).to_be_bytes());
    message.extend(request);
    message
}

fn encode_varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// Evaluates `HealthCheckResponse { ServingStatus status = 1; }`. Returns `None` if the message is incomplete. A status
/// of zero is not encoded in the message.
fn evaluate_message(body: &[u8]) -> Option<Outcome> {
    let [compressed, a, b, c, d, message @ ..] = body else {
        return None;
    };
    let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
    if *compressed != 0 || length > 64 {
        return Some(Outcome::failed("invalid health message"));
    }
    let response = message.get(..length)?;
    Some(match response {
        [0x08, 1, ..] => Outcome::passed("grpc SERVING"),
        [0x08, 2, ..] => Outcome::failed("grpc NOT_SERVING"),
        [0x08, 3, ..] => Outcome::failed("grpc SERVICE_UNKNOWN"),
        [] | [0x08, 0, ..] => Outcome::failed("grpc UNKNOWN"),
        _ => Outcome::failed("invalid health message"),
    })
}

#[cfg(test)]
mod tests {
    use weir_model::{Probe, Server};

    use super::*;
    use crate::dialogue::tests::outcome_of;

    fn check() -> Check {
        let probe = Probe::Grpc {
            service: "shop".to_owned(),
        };
        let server = Server::new("10.0.0.5", "10.0.0.5".parse().unwrap(), None);
        let target = Target::new(&weir_model::Check::new(probe), &server, Some(50051));
        Check::new("shop", &target)
    }

    /// Returns the outcome for a server that responds with these frames.
    fn outcome_for(frames: &[(u8, u8, u32, &[u8])]) -> String {
        let bytes: Vec<u8> = frames
            .iter()
            .flat_map(|(kind, flags, stream, payload)| {
                encode_frame(*kind, *flags, *stream, payload)
            })
            .collect();
        let bytes: &'static [u8] = bytes.leak();
        outcome_of(check, |sent| {
            if sent.starts_with(PREFACE) {
                bytes
            } else {
                b""
            }
        })
    }

    #[test]
    fn request_has_preface_settings_headers_and_message() {
        let request = check().open();
        let frames = request.strip_prefix(PREFACE).unwrap();
        assert_eq!(&frames[..9], encode_frame(SETTINGS, 0, 0, &[]));
        assert!(request.ends_with(b"\0\0\0\0\x06\x0a\x04shop"));
        let path = b"\x00\x05:path\x1c/grpc.health.v1.Health/Check";
        assert!(request.windows(path.len()).any(|window| window == path));
    }

    #[test]
    fn request_names_scheme_and_authority() {
        let contains = |target: &Target, text: &str| {
            let request = Check::new("shop", target).open();
            let mut windows = request.windows(text.len());
            windows.any(|window| window == text.as_bytes())
        };
        let probe = Probe::Grpc {
            service: "shop".to_owned(),
        };
        let check = weir_model::Check::new(probe);
        let server = Server::new("10.0.0.5", "10.0.0.5".parse().unwrap(), None);
        let mut target = Target::new(&check, &server, Some(50051));
        assert!(contains(&target, "10.0.0.5:50051"));
        assert!(!contains(&target, "https"));
        target.tls = Some(weir_model::CheckTls::default());
        assert!(contains(&target, "https"));
        let unix = Server::on_unix_socket("/run/app.sock");
        let target = Target::new(&check, &unix, None);
        assert!(contains(&target, "localhost"));
    }

    #[test]
    fn only_serving_status_passes() {
        let outcome_with = |message: &'static [u8]| {
            outcome_for(&[
                (SETTINGS, 0, 0, &[]),
                (HEADERS, END_HEADERS, 1, &[0x88]),
                (DATA, 0, 1, message),
                (HEADERS, END_HEADERS | END_STREAM, 1, &[]),
            ])
        };
        assert_eq!(
            outcome_with(b"\0\0\0\0\x02\x08\x01"),
            "Passed: grpc SERVING"
        );
        assert_eq!(
            outcome_with(b"\0\0\0\0\x02\x08\x02"),
            "Failed: grpc NOT_SERVING"
        );
        assert_eq!(outcome_with(b"\0\0\0\0\0"), "Failed: grpc UNKNOWN");
        assert_eq!(
            outcome_with(b"\x01\0\0\0\0"),
            "Failed: invalid health message"
        );
        assert_eq!(
            outcome_with(b"\0\0\0"),
            "Failed: error response without a health status"
        );
    }

    #[test]
    fn data_without_status_fails_check_when_stream_ends() {
        let serving = b"\0\0\0\0\x02\x08\x01";
        let no_status = "Failed: response without a health status";
        let closed_failure = "Failed: connection closed without a health status";
        let padded = [&[3][..], serving, &[0; 3]].concat().leak();
        for (flags, stream, data, expected) in [
            (END_STREAM, 1, &serving[..], "Passed: grpc SERVING"),
            (END_STREAM, 1, &serving[..4], no_status),
            (END_STREAM, 1, b"", no_status),
            (0, 1, &serving[..4], closed_failure),
            (0, 3, serving, closed_failure),
            (PADDED, 1, padded, "Passed: grpc SERVING"),
            (PADDED | END_STREAM, 1, b"", no_status),
            (PADDED | END_STREAM, 1, b"\x09\0", no_status),
            (
                0,
                1,
                b"\0\0\0\0\x02\x08\x03",
                "Failed: grpc SERVICE_UNKNOWN",
            ),
            (
                0,
                1,
                b"\0\0\0\0\x02\x08\x09",
                "Failed: invalid health message",
            ),
            (0, 1, b"\0\0\0\0\x41", "Failed: invalid health message"),
            (0, 1, b"\0\0\0\0\x40", closed_failure),
            (
                0,
                1,
                b"\0\0\0\x01\x02\x08\x01",
                "Failed: invalid health message",
            ),
        ] {
            assert_eq!(
                outcome_for(&[(DATA, flags, stream, data)]),
                expected,
                "{flags} {data:?}"
            );
        }
        // The status can arrive in several frames.
        let (first, rest) = serving.split_at(4);
        let parts = [(DATA, 0, 1, first), (DATA, 0, 1, rest)];
        assert_eq!(outcome_for(&parts), "Passed: grpc SERVING");
        let reset = |stream| outcome_for(&[(RST_STREAM, 0, stream, &[0; 4])]);
        assert_eq!(
            (reset(1).as_str(), reset(3).as_str()),
            ("Failed: server reset the stream", closed_failure)
        );
    }

    #[test]
    fn only_requests_on_stream_0_are_acknowledged() {
        let acknowledgment = |kind, flags, stream, payload: &[u8]| match check()
            .receive(&encode_frame(kind, flags, stream, payload))
        {
            Reply::Send(bytes) => Some(bytes),
            Reply::More => None,
            Reply::Finished(outcome) => panic!("{outcome:?}"),
        };
        assert_eq!(
            acknowledgment(SETTINGS, 0, 0, &[0; 6]),
            Some(encode_frame(SETTINGS, ACK, 0, &[]))
        );
        assert_eq!(
            acknowledgment(PING, 0, 0, b"12345678"),
            Some(encode_frame(PING, ACK, 0, b"12345678"))
        );
        for kind in [SETTINGS, PING] {
            assert_eq!(acknowledgment(kind, ACK, 0, &[]), None);
            assert_eq!(acknowledgment(kind, 0, 5, &[]), None);
        }
    }

    #[test]
    fn service_names_of_128_bytes_or_more_have_two_length_bytes() {
        for (length, encoded) in [(127, &[0x7f][..]), (128, &[0x80, 1]), (300, &[0xac, 2])] {
            let message = request_message(&"s".repeat(length));
            let size = u32::try_from(message.len() - 5).unwrap().to_be_bytes();
            assert_eq!(&message[..6], [&[0][..], &size, &[0x0a]].concat());
            assert_eq!(&message[6..6 + encoded.len()], encoded);
            assert_eq!(message.len(), 6 + encoded.len() + length);
        }
        assert_eq!(request_message(""), [0; 5]);
    }

    #[test]
    fn size_and_number_of_frames_are_limited() {
        let large_frame = vec![0; FRAME_MAX_BYTES + 1].leak();
        let closed_failure = "Failed: connection closed without a health status";
        assert_eq!(
            outcome_for(&[(HEADERS, 0, 3, &large_frame[..FRAME_MAX_BYTES])]),
            closed_failure
        );
        assert!(outcome_for(&[(HEADERS, 0, 3, large_frame)]).starts_with("Failed: not HTTP/2"));
        let max_frames = vec![(PING, ACK, 0, &[0; 8][..]); MAX_FRAMES as usize];
        assert_eq!(outcome_for(&max_frames), closed_failure);
    }

    #[test]
    fn errors_and_invalid_frames_fail() {
        let trailers_only = [(HEADERS, END_HEADERS | END_STREAM, 1, &[0x88][..])];
        assert_eq!(
            outcome_for(&trailers_only),
            "Failed: error response without a health status"
        );
        assert_eq!(
            outcome_for(&[(GOAWAY, 0, 0, &[0; 8])]),
            "Failed: server sent GOAWAY"
        );
        assert_eq!(
            outcome_for(&[]),
            "Failed: connection closed without a health status"
        );
        assert!(
            outcome_of(check, |_| b"HTTP/1.1 400 Bad Request\r\n")
                .starts_with("Failed: not HTTP/2")
        );
        let endless = [(PING, ACK, 0, &[0; 8][..]); 70];
        assert_eq!(outcome_for(&endless), "Failed: too many frames");
    }
}
