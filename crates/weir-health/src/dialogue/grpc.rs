//! The gRPC health checking protocol (grpc/doc/health-checking.md) over HTTP/2 (RFC 9113): one request, and the status in its
//! answer.
//!
//! Of HTTP/2 there is as much as that takes. Header blocks of the answer are not read: a status comes in a DATA frame, and an
//! answer without one is a refusal.

use super::{Dialogue, Reply, quoted};
use crate::outcome::Outcome;
use crate::target::Target;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEAD: usize = 9;

/// The largest frame that nobody may send without being allowed (SETTINGS_MAX_FRAME_SIZE).
const LARGEST: usize = 1 << 14;

/// More frames than any answer has.
const MOST_FRAMES: u32 = 64;

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

/// See the module.
#[derive(Debug)]
pub(super) struct Check {
    request: Vec<u8>,
    read: Vec<u8>,
    body: Vec<u8>,
    frames: u32,
}

/// One frame of the answer.
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Check {
    pub(super) fn new(service: &str, target: &Target) -> Self {
        let port = target.port.unwrap_or(0);
        let authority = std::net::SocketAddr::new(target.address, port).to_string();
        let scheme = if target.tls.is_some() {
            "https"
        } else {
            "http"
        };
        let mut request = PREFACE.to_vec();
        request.extend(frame(SETTINGS, 0, 0, &[]));
        let fields = fields(scheme, &authority);
        request.extend(frame(HEADERS, END_HEADERS, 1, &fields));
        request.extend(frame(DATA, END_STREAM, 1, &message(service)));
        Self {
            request,
            read: Vec::new(),
            body: Vec::new(),
            frames: 0,
        }
    }

    /// The next whole frame.
    fn next(&mut self) -> Result<Option<Frame>, Outcome> {
        let [a, b, c, kind, flags, s0, s1, s2, s3, ..] = *self.read.as_slice() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        if length > LARGEST {
            return Err(Outcome::failed(format!(
                "no HTTP/2: {}",
                quoted(&self.read[..FRAME_HEAD])
            )));
        }
        if self.read.len() < FRAME_HEAD + length {
            return Ok(None);
        }
        let rest = self.read.split_off(FRAME_HEAD + length);
        let payload = std::mem::replace(&mut self.read, rest).split_off(FRAME_HEAD);
        self.frames += 1;
        if self.frames > MOST_FRAMES {
            return Err(Outcome::failed("answer without an end"));
        }
        Ok(Some(Frame {
            kind,
            flags,
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & 0x7fff_ffff,
            payload,
        }))
    }

    /// What a frame makes of the conversation: something to say, an outcome, or nothing.
    fn take(&mut self, frame: &Frame) -> Result<Vec<u8>, Outcome> {
        match (frame.kind, frame.stream) {
            (SETTINGS, 0) if frame.flags & ACK == 0 => Ok(self::frame(SETTINGS, ACK, 0, &[])),
            (PING, 0) if frame.flags & ACK == 0 => Ok(self::frame(PING, ACK, 0, &frame.payload)),
            (GOAWAY, _) => Err(Outcome::failed("the server goes away")),
            (RST_STREAM, 1) => Err(Outcome::failed("the server refused the call")),
            (DATA, 1) => {
                self.body.extend(content(frame));
                match status(&self.body) {
                    Some(outcome) => Err(outcome),
                    None if frame.flags & END_STREAM != 0 => Err(Outcome::failed("no status")),
                    None => Ok(Vec::new()),
                }
            }
            // Trailers alone: the server knows the call or the service not.
            (HEADERS, 1) if frame.flags & END_STREAM != 0 => {
                Err(Outcome::failed("an error in place of a status"))
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
        self.read.extend_from_slice(bytes);
        let mut say = Vec::new();
        loop {
            let taken = match self.next() {
                Ok(Some(frame)) => self.take(&frame),
                Ok(None) if say.is_empty() => return Reply::More,
                Ok(None) => return Reply::Send(say),
                Err(outcome) => Err(outcome),
            };
            match taken {
                Ok(more) => say.extend(more),
                Err(outcome) => return Reply::Finished(outcome),
            }
        }
    }

    fn end(&mut self) -> Outcome {
        Outcome::failed("closed without a status")
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
    let mut frame = vec![a, b, c, kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Without the padding that a DATA frame may have.
fn content(frame: &Frame) -> &[u8] {
    if frame.flags & PADDED == 0 {
        return &frame.payload;
    }
    let Some((padding, rest)) = frame.payload.split_first() else {
        return &[];
    };
    let end = rest.len().saturating_sub(usize::from(*padding));
    &rest[..end]
}

/// The request's fields, each as a literal that no table remembers (RFC 7541 section 6.2.2).
fn fields(scheme: &str, authority: &str) -> Vec<u8> {
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
            // Below 127 octets each, so that the length is one octet, and no Huffman code.
            block.push(text.len().min(126) as u8);
            block.extend(&text.as_bytes()[..text.len().min(126)]);
        }
    }
    block
}

/// `HealthCheckRequest { string service = 1; }` behind gRPC's prefix: not compressed, four octets of length.
fn message(service: &str) -> Vec<u8> {
    let mut request = Vec::new();
    if !service.is_empty() {
        request.push(0x0a);
        request.extend(varint(service.len()));
        request.extend(service.as_bytes());
    }
    let mut message = vec![0];
    message.extend((request.len() as u32).to_be_bytes());
    message.extend(request);
    message
}

fn varint(mut number: usize) -> Vec<u8> {
    let mut octets = Vec::new();
    while number >= 0x80 {
        octets.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    octets.push(number as u8);
    octets
}

/// `HealthCheckResponse { ServingStatus status = 1; }`, when it is there as a whole. Zero is not written.
fn status(body: &[u8]) -> Option<Outcome> {
    let [compressed, a, b, c, d, rest @ ..] = body else {
        return None;
    };
    let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
    if *compressed != 0 || length > 64 {
        return Some(Outcome::failed("no health message"));
    }
    let response = rest.get(..length)?;
    Some(match response {
        [0x08, 1, ..] => Outcome::passed("grpc SERVING"),
        [0x08, 2, ..] => Outcome::failed("grpc NOT_SERVING"),
        [0x08, 3, ..] => Outcome::failed("grpc SERVICE_UNKNOWN"),
        [] | [0x08, 0, ..] => Outcome::failed("grpc UNKNOWN"),
        _ => Outcome::failed("no health message"),
    })
}

#[cfg(test)]
mod tests {
    use weir_model::{Probe, Server};

    use super::*;
    use crate::dialogue::tests::told;

    fn check() -> Check {
        let probe = Probe::Grpc {
            service: "shop".to_owned(),
        };
        let server = Server::new("10.0.0.5", "10.0.0.5".parse().unwrap(), None);
        let target = Target::new(&weir_model::Check::new(probe), &server, Some(50051));
        Check::new("shop", &target)
    }

    /// A server that answers the call with these frames, and says nothing more.
    fn answering(frames: &[(u8, u8, u32, &[u8])]) -> String {
        let bytes: Vec<u8> = frames
            .iter()
            .flat_map(|(kind, flags, stream, payload)| frame(*kind, *flags, *stream, payload))
            .collect();
        let bytes: &'static [u8] = bytes.leak();
        told(check, |said| {
            if said.starts_with(PREFACE) {
                bytes
            } else {
                b""
            }
        })
    }

    #[test]
    fn the_call_as_a_server_reads_it() {
        let said = check().open();
        let rest = said.strip_prefix(PREFACE).unwrap();
        assert_eq!(&rest[..9], frame(SETTINGS, 0, 0, &[]));
        assert!(said.ends_with(b"\0\0\0\0\x06\x0a\x04shop"));
        let path = b"\x00\x05:path\x1c/grpc.health.v1.Health/Check";
        assert!(said.windows(path.len()).any(|window| window == path));
    }

    #[test]
    fn statuses() {
        let with = |message: &'static [u8]| {
            answering(&[
                (SETTINGS, 0, 0, &[]),
                (HEADERS, END_HEADERS, 1, &[0x88]),
                (DATA, 0, 1, message),
                (HEADERS, END_HEADERS | END_STREAM, 1, &[]),
            ])
        };
        assert_eq!(with(b"\0\0\0\0\x02\x08\x01"), "Passed: grpc SERVING");
        assert_eq!(with(b"\0\0\0\0\x02\x08\x02"), "Failed: grpc NOT_SERVING");
        assert_eq!(with(b"\0\0\0\0\0"), "Failed: grpc UNKNOWN");
        assert_eq!(with(b"\x01\0\0\0\0"), "Failed: no health message");
        assert_eq!(with(b"\0\0\0"), "Failed: an error in place of a status");
    }

    #[test]
    fn refusals_and_garbage() {
        let refused = [(HEADERS, END_HEADERS | END_STREAM, 1, &[0x88][..])];
        assert_eq!(answering(&refused), "Failed: an error in place of a status");
        assert_eq!(
            answering(&[(GOAWAY, 0, 0, &[0; 8])]),
            "Failed: the server goes away"
        );
        assert_eq!(answering(&[]), "Failed: closed without a status");
        assert!(told(check, |_| b"HTTP/1.1 400 Bad Request\r\n").starts_with("Failed: no HTTP/2"));
        let endless = [(PING, ACK, 0, &[0; 8][..]); 70];
        assert_eq!(answering(&endless), "Failed: answer without an end");
    }
}
