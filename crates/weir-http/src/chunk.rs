//! Validates the chunked coding (RFC 9112 section 7.1) incrementally. The bytes are forwarded unchanged.
//!
//! Forwarding bytes unchanged is safe only if every parser finds the same end of the body. A size therefore consists of
//! hexadecimal digits only, every line ends with CRLF, extensions have a limited length and contain no control
//! characters, and the trailer section contains neither framing fields nor `Host`. A request's trailer section is held
//! back until it is complete, because rules may remove a part of it ([`ChunkedParser::for_request`]).

use weir_model::Underscores;

use crate::byte_class::{is_token_byte, is_value_byte};
use crate::parse_error::ParseError;

/// Maximum length of a chunk extension, in bytes. Extensions are unused in practice; without a limit, a client could
/// send data forever without sending a body.
const MAX_EXTENSION: u16 = 256;
/// Maximum length of a trailer section, in bytes.
const MAX_TRAILER: u16 = 8192;
/// Maximum number of digits of a chunk size. The size is therefore below 2^60.
const MAX_DIGITS: u8 = 15;
/// Trailer names that would change a message's framing or host.
const FORBIDDEN: [&[u8]; 3] = [b"content-length", b"transfer-encoding", b"host"];
/// Length of the longest name in [`FORBIDDEN`].
const MAX_NAME: usize = 17;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Size,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    Done,
}

/// The received part of a request's trailer section, without removed fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct HeldTrailers {
    text: Vec<u8>,
    /// Offset of the last line in `text`.
    line_start: usize,
}

/// State of the parser of a chunked body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkedParser {
    state: State,
    digits: u8,
    name_len: u8,
    name: [u8; MAX_NAME],
    /// Length of the current extension or of the trailer section, in bytes.
    byte_count: u16,
    /// Remaining bytes of the current chunk.
    remaining: u64,
    /// Policy for trailers with `_` in their names.
    underscores: Underscores,
    /// Whether the policy removes the current trailer, because its name contains a `_`.
    has_underscore: bool,
    hold_trailers: bool,
    held_trailers: Option<Box<HeldTrailers>>,
}

impl Default for ChunkedParser {
    fn default() -> Self {
        Self {
            state: State::Size,
            digits: 0,
            name_len: 0,
            name: [0; MAX_NAME],
            byte_count: 0,
            remaining: 0,
            underscores: Underscores::Keep,
            has_underscore: false,
            hold_trailers: false,
            held_trailers: None,
        }
    }
}

impl ChunkedParser {
    /// Returns the state before the first byte of a body.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the initial state for a request's body. `underscores` applies to trailers as to other fields. Trailers
    /// are held back; see [`ChunkedParser::take_held_trailers`].
    pub fn for_request(underscores: Underscores) -> Self {
        Self {
            underscores,
            hold_trailers: true,
            ..Self::default()
        }
    }

    /// Returns the trailers that were held back and may now be sent; empty before the end of the body.
    pub fn take_held_trailers(&mut self) -> Vec<u8> {
        if !self.is_done() {
            return Vec::new();
        }
        self.held_trailers
            .take()
            .map(|held| held.text)
            .unwrap_or_default()
    }

    /// Returns whether the body is complete.
    pub const fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Processes input and passes the content to `data`. Returns the number of bytes that belong to the body.
    ///
    /// # Errors
    /// Fails if the coding is malformed. Input processed before the error remains part of the body.
    pub fn scan(&mut self, input: &[u8], data: &mut dyn FnMut(&[u8])) -> Result<usize, ParseError> {
        self.scan_request(input, data).map(|(consumed, _)| consumed)
    }

    /// Like [`ChunkedParser::scan`], but also returns the number of these bytes that may be forwarded now. The
    /// remaining bytes are held back.
    ///
    /// # Errors
    /// See [`ChunkedParser::scan`].
    pub fn scan_request(
        &mut self,
        input: &[u8],
        data: &mut dyn FnMut(&[u8]),
    ) -> Result<(usize, usize), ParseError> {
        let mut offset = 0;
        let mut forwardable = None;
        while offset < input.len() && self.state != State::Done {
            if self.state == State::Data {
                let available = input.len() - offset;
                let count = usize::try_from(self.remaining)
                    .unwrap_or(available)
                    .min(available);
                data(&input[offset..offset + count]);
                self.remaining -= count as u64;
                offset += count;
                if self.remaining == 0 {
                    self.state = State::DataCr;
                }
                continue;
            }
            self.process_byte(input[offset])?;
            if let Some(held) = &mut self.held_trailers {
                forwardable.get_or_insert(offset);
                held.text.push(input[offset]);
                if self.state == State::TrailerStart {
                    // The line is complete.
                    if std::mem::take(&mut self.has_underscore) {
                        held.text.truncate(held.line_start);
                    }
                    held.line_start = held.text.len();
                }
            }
            offset += 1;
        }
        Ok((offset, forwardable.unwrap_or(offset)))
    }

    fn process_byte(&mut self, byte: u8) -> Result<(), ParseError> {
        self.state = match (self.state, byte) {
            (State::Size, digit) if digit.is_ascii_hexdigit() => return self.add_digit(digit),
            (State::Size, b'\r') if self.digits > 0 => State::SizeLf,
            (State::Size, b';') if self.digits > 0 => {
                self.byte_count = 0;
                State::Extension
            }
            (State::Extension, b'\r') => State::SizeLf,
            (State::Extension, byte) if is_value_byte(byte) => {
                self.count_byte(MAX_EXTENSION, ParseError::Chunk)?;
                State::Extension
            }
            (State::SizeLf, b'\n') => {
                self.digits = 0;
                self.byte_count = 0;
                if self.remaining == 0 {
                    State::TrailerStart
                } else {
                    State::Data
                }
            }
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::Size,
            (State::TrailerStart, b'\r') => State::EndLf,
            (State::TrailerStart, byte) if is_token_byte(byte) => {
                self.name_len = 0;
                if self.hold_trailers && self.held_trailers.is_none() {
                    self.held_trailers = Some(Box::default());
                }
                self.add_name_byte(byte)?;
                State::TrailerName
            }
            (State::TrailerName, b':') => {
                self.check_name()?;
                State::TrailerValue
            }
            (State::TrailerName, byte) if is_token_byte(byte) => {
                self.add_name_byte(byte)?;
                State::TrailerName
            }
            (State::TrailerValue, b'\r') => State::TrailerLf,
            (State::TrailerValue, byte) if is_value_byte(byte) => {
                self.count_byte(MAX_TRAILER, ParseError::Trailer)?;
                State::TrailerValue
            }
            (State::TrailerLf, b'\n') => State::TrailerStart,
            (State::EndLf, b'\n') => State::Done,
            (
                State::TrailerStart
                | State::TrailerName
                | State::TrailerValue
                | State::TrailerLf
                | State::EndLf,
                _,
            ) => return Err(ParseError::Trailer),
            _ => return Err(ParseError::Chunk),
        };
        Ok(())
    }

    fn add_digit(&mut self, byte: u8) -> Result<(), ParseError> {
        if self.digits == MAX_DIGITS {
            return Err(ParseError::Chunk);
        }
        let value = char::from(byte).to_digit(16).unwrap_or(0);
        self.remaining = if self.digits == 0 {
            0
        } else {
            self.remaining << 4
        } + u64::from(value);
        self.digits += 1;
        Ok(())
    }

    fn count_byte(&mut self, limit: u16, error: ParseError) -> Result<(), ParseError> {
        self.byte_count += 1;
        if self.byte_count > limit {
            Err(error)
        } else {
            Ok(())
        }
    }

    fn add_name_byte(&mut self, byte: u8) -> Result<(), ParseError> {
        self.count_byte(MAX_TRAILER, ParseError::Trailer)?;
        if byte == b'_' && self.underscores != Underscores::Keep {
            if self.underscores == Underscores::Reject {
                return Err(ParseError::Underscore);
            }
            self.has_underscore = true;
        }
        if let Some(slot) = self.name.get_mut(usize::from(self.name_len)) {
            *slot = byte.to_ascii_lowercase();
        }
        self.name_len = self.name_len.saturating_add(1);
        Ok(())
    }

    fn check_name(&self) -> Result<(), ParseError> {
        let name = self.name.get(..usize::from(self.name_len));
        if name.is_some_and(|name| FORBIDDEN.contains(&name)) {
            return Err(ParseError::Trailer);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(input: &[u8], step: usize) -> Result<(usize, Vec<u8>, bool), ParseError> {
        let (mut chunks, mut content, mut consumed) = (ChunkedParser::new(), Vec::new(), 0);
        for part in input.chunks(step.max(1)) {
            let count = chunks.scan(part, &mut |data| content.extend_from_slice(data))?;
            consumed += count;
            if count < part.len() {
                break;
            }
        }
        Ok((consumed, content, chunks.is_done()))
    }

    #[test]
    fn extensions_and_trailers_are_part_of_the_body() {
        let body =
            b"5;a=\"b\"\r\nhello\r\n00A\r\n0123456789\r\n0\r\nExpires: never\r\n\r\nGET / HTTP/1.1";
        for step in 1..body.len() {
            let (consumed, content, done) = read(body, step).unwrap();
            assert_eq!((consumed, done), (body.len() - 14, true), "{step}");
            assert_eq!(content, b"hello0123456789");
        }
    }

    #[test]
    fn ambiguous_codings_are_rejected() {
        let long = format!("1;{}\r\n", "a".repeat(300));
        for invalid in [
            "5 \r\nhello\r\n",
            " 5\r\nhello\r\n",
            "+5\r\nhello\r\n",
            "0x5\r\nhello\r\n",
            "5\nhello\r\n",
            "5\rhello\r\n",
            "5;a\nb\r\nhello\r\n",
            "5;a\rb\r\nhello\r\n",
            "\r\n",
            ";a\r\n",
            "5\r\nhello\n",
            "5\r\nhelloX",
            "1234567890abcdef0\r\n",
            "0\r\nX: y\n\r\n",
            "0\r\n X: y\r\n\r\n",
            "0\r\nX y\r\n\r\n",
            "0\r\nContent-Length: 5\r\n\r\n",
            "0\r\nTRANSFER-ENCODING: chunked\r\n\r\n",
            "0\r\n\rX",
            &long,
        ] {
            assert!(read(invalid.as_bytes(), 64).is_err(), "{invalid:?}");
            assert!(read(invalid.as_bytes(), 1).is_err(), "{invalid:?}");
        }
    }

    #[test]
    fn extensions_and_trailers_have_a_maximum_length() {
        let with_extension = |len: usize| format!("1;{}\r\nx\r\n0\r\n\r\n", "a".repeat(len));
        let with_trailer = |len: usize| format!("0\r\nA:{}\r\n\r\n", "b".repeat(len - 1));
        for (body, longer, error) in [
            (
                with_extension(MAX_EXTENSION.into()),
                with_extension(usize::from(MAX_EXTENSION) + 1),
                ParseError::Chunk,
            ),
            (
                with_trailer(MAX_TRAILER.into()),
                with_trailer(usize::from(MAX_TRAILER) + 1),
                ParseError::Trailer,
            ),
        ] {
            assert!(read(body.as_bytes(), usize::MAX).unwrap().2);
            assert_eq!(read(longer.as_bytes(), usize::MAX), Err(error));
        }
    }

    #[test]
    fn error_depends_on_the_malformed_part() {
        for (body, error) in [
            ("x\r\n", ParseError::Chunk),
            ("1\r\nxy", ParseError::Chunk),
            ("0\r\n\tA: b\r\n", ParseError::Trailer),
            ("0\r\nA b\r\n", ParseError::Trailer),
            ("0\r\nA: b\n", ParseError::Trailer),
            ("0\r\nA: b\rc", ParseError::Trailer),
            ("0\r\n\rA", ParseError::Trailer),
        ] {
            assert_eq!(read(body.as_bytes(), 64), Err(error), "{body:?}");
        }
    }

    #[test]
    fn trailers_with_underscores_are_removed_or_rejected() {
        let body =
            b"1\r\nx\r\n0\r\nA: b\r\nX_Forwarded_For: 6.6.6.6\r\nSum_: 1\r\nC: d\r\n\r\nnext";
        for step in 1..body.len() {
            let mut chunks = ChunkedParser::for_request(Underscores::Drop);
            let (mut passed, mut consumed) = (Vec::new(), 0);
            for part in body.chunks(step) {
                let (count, forwardable) = chunks.scan_request(part, &mut |_| {}).unwrap();
                passed.extend_from_slice(&part[..forwardable]);
                passed.extend_from_slice(&chunks.take_held_trailers());
                consumed += count;
                if count < part.len() {
                    break;
                }
            }
            assert_eq!(consumed, body.len() - 4, "{step}");
            assert_eq!(passed, b"1\r\nx\r\n0\r\nA: b\r\nC: d\r\n\r\n", "{step}");
        }
        let mut chunks = ChunkedParser::for_request(Underscores::Reject);
        assert_eq!(
            chunks.scan_request(body, &mut |_| {}),
            Err(ParseError::Underscore)
        );
        let mut chunks = ChunkedParser::for_request(Underscores::Keep);
        let (body_len, trailer_start) = (body.len() - 4, b"1\r\nx\r\n0\r\n".len());
        assert_eq!(
            chunks.scan_request(body, &mut |_| {}),
            Ok((body_len, trailer_start))
        );
        assert_eq!(chunks.take_held_trailers(), body[trailer_start..body_len]);
    }

    proptest! {
        #[test]
        fn splitting_input_does_not_change_the_result(input in prop::collection::vec(prop::sample::select(b"05aF\r\n;:x \t\0".to_vec()), 0..60), step in 1usize..9) {
            let (unsplit, split) = (read(&input, 64), read(&input, step));
            prop_assert_eq!(unsplit, split);
        }

        #[test]
        fn encoded_bodies_are_decoded(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..6), step in 1usize..50) {
            let mut body = Vec::new();
            for part in &parts {
                body.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
                body.extend_from_slice(part);
                body.extend_from_slice(b"\r\n");
            }
            body.extend_from_slice(b"0\r\n\r\n");
            let (consumed, content, done) = read(&body, step).unwrap();
            prop_assert!(done);
            prop_assert_eq!(consumed, body.len());
            prop_assert_eq!(content, parts.concat());
        }
    }
}
