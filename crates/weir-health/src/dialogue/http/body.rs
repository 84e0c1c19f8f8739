//! Incremental reading of a body, with or without the chunked coding.

use super::{BODY_MAX_BYTES, find};

/// The part of a body that was received so far.
#[derive(Debug, Default)]
pub(super) struct Body {
    pub(super) raw: Vec<u8>,
    pub(super) plain: Vec<u8>,
    pub(super) length: Option<usize>,
    pub(super) chunked: bool,
    /// Offset in `raw` of the next chunk's size.
    next_chunk: usize,
    pub(super) complete: bool,
}

impl Body {
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        self.raw.extend_from_slice(bytes);
        if self.chunked {
            return self.dechunk();
        }
        self.plain.extend_from_slice(bytes);
        if let Some(length) = self.length
            && self.plain.len() >= length
        {
            self.plain.truncate(length);
            self.complete = true;
        }
        Ok(())
    }

    /// Decodes the complete chunks (RFC 9112 section 7.1).
    fn dechunk(&mut self) -> Result<(), &'static str> {
        const INVALID: &str = "invalid chunk in the body";
        const SIZE_LINE_MAX_BYTES: usize = 4096;
        while !self.complete {
            let rest = self.raw.get(self.next_chunk..).unwrap_or_default();
            let Some(line) = find(rest, b"\r\n") else {
                return if rest.len() > SIZE_LINE_MAX_BYTES {
                    Err(INVALID)
                } else {
                    Ok(())
                };
            };
            let digits = String::from_utf8_lossy(&rest[..line]);
            let digits = digits.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(digits, 16).map_err(|_| INVALID)?;
            if size > BODY_MAX_BYTES {
                return Err("body too long");
            }
            let data = line + 2;
            if size == 0 {
                self.complete = true;
            } else if rest.len() < data + size + 2 {
                return Ok(());
            } else if rest[data + size..].starts_with(b"\r\n") {
                self.plain.extend_from_slice(&rest[data..data + size]);
                self.next_chunk += data + size + 2;
            } else {
                return Err(INVALID);
            }
        }
        Ok(())
    }
}
