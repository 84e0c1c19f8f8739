//! Reads a body incrementally, with or without the chunked transfer coding.

use super::{BODY_MAX_BYTES, find_bytes};

/// The part of a body that has been received so far.
#[derive(Debug, Default)]
pub(super) struct Body {
    /// Received bytes, including chunk sizes.
    pub(super) raw: Vec<u8>,
    /// Decoded bytes.
    pub(super) decoded: Vec<u8>,
    /// Value of Content-Length.
    pub(super) length: Option<usize>,
    pub(super) chunked: bool,
    /// Offset in `raw` of the next chunk's size.
    next_chunk_offset: usize,
    pub(super) complete: bool,
}

impl Body {
    /// Adds received bytes, and decodes the complete chunks.
    ///
    /// # Errors
    /// Returns why the body is invalid or too long.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        self.raw.extend_from_slice(bytes);
        if self.chunked {
            return self.dechunk();
        }
        self.decoded.extend_from_slice(bytes);
        if let Some(length) = self.length
            && self.decoded.len() >= length
        {
            self.decoded.truncate(length);
            self.complete = true;
        }
        Ok(())
    }

    /// Decodes the complete chunks (RFC 9112 section 7.1).
    fn dechunk(&mut self) -> Result<(), &'static str> {
        const INVALID: &str = "invalid chunk in the body";
        const SIZE_LINE_MAX_BYTES: usize = 4096;
        while !self.complete {
            let remaining = self.raw.get(self.next_chunk_offset..).unwrap_or_default();
            let Some(line_len) = find_bytes(remaining, b"\r\n") else {
                return if remaining.len() > SIZE_LINE_MAX_BYTES {
                    Err(INVALID)
                } else {
                    Ok(())
                };
            };
            let digits = String::from_utf8_lossy(&remaining[..line_len]);
            let digits = digits.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(digits, 16).map_err(|_| INVALID)?;
            if size > BODY_MAX_BYTES {
                return Err("body too long");
            }
            let data_start = line_len + 2;
            if size == 0 {
                self.complete = true;
            } else if remaining.len() < data_start + size + 2 {
                return Ok(());
            } else if remaining[data_start + size..].starts_with(b"\r\n") {
                self.decoded
                    .extend_from_slice(&remaining[data_start..data_start + size]);
                self.next_chunk_offset += data_start + size + 2;
            } else {
                return Err(INVALID);
            }
        }
        Ok(())
    }
}
