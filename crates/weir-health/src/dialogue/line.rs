//! Splits a byte stream into lines.

/// Maximum length of a line in the line-based protocols, in bytes.
const MAX_LINE_BYTES: usize = 4096;

/// Received bytes, without the lines that were already returned.
#[derive(Debug, Default)]
pub(super) struct Lines(Vec<u8>);

impl Lines {
    /// Adds received bytes. Returns false if the first line is too long.
    pub(super) fn push(&mut self, bytes: &[u8]) -> bool {
        self.0.extend_from_slice(bytes);
        self.0.len() <= MAX_LINE_BYTES || self.0[..MAX_LINE_BYTES].contains(&b'\n')
    }

    /// Removes and returns the next complete line, without its terminator.
    pub(super) fn next_line(&mut self) -> Option<Vec<u8>> {
        let end = self.0.iter().position(|byte| *byte == b'\n')?;
        let mut line: Vec<u8> = self.0.drain(..=end).collect();
        line.truncate(end);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Some(line)
    }

    /// Removes and returns the remaining bytes at the end of the stream.
    pub(super) fn take_remaining(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_limit_applies_to_the_first_line_only() {
        let mut lines = Lines::default();
        assert!(lines.push(b"a\nb\r\n\nc"));
        let received: Vec<_> = std::iter::from_fn(|| lines.next_line()).collect();
        assert_eq!(received, [&b"a"[..], b"b", b""]);
        assert_eq!(lines.take_remaining(), b"c");
        assert!(lines.push(&[b'x'; MAX_LINE_BYTES]));
        assert!(!lines.push(b"x\n"), "a line above the limit is accepted");
        let mut short_lines = Lines::default();
        assert!(short_lines.push(&b"line\n".repeat(MAX_LINE_BYTES)));
    }
}
