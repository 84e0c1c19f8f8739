//! Splits received pieces into lines.

/// Maximum number of bytes of a line in these protocols.
const LONGEST: usize = 4096;

/// Received bytes without the lines already returned.
#[derive(Debug, Default)]
pub(super) struct Lines(Vec<u8>);

impl Lines {
    /// Adds a piece. Returns false if the line is too long.
    pub(super) fn push(&mut self, bytes: &[u8]) -> bool {
        self.0.extend_from_slice(bytes);
        self.0.len() <= LONGEST || self.0[..LONGEST].contains(&b'\n')
    }

    /// The next complete line, without its terminator.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        let end = self.0.iter().position(|byte| *byte == b'\n')?;
        let mut line: Vec<u8> = self.0.drain(..=end).collect();
        line.truncate(end);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Some(line)
    }

    /// The remaining bytes at the end of the stream.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_line_itself_is_limited() {
        let mut lines = Lines::default();
        assert!(lines.push(b"a\nb\r\n\nc"));
        let taken: Vec<_> = std::iter::from_fn(|| lines.next()).collect();
        assert_eq!(taken, [&b"a"[..], b"b", b""]);
        assert_eq!(lines.rest(), b"c");
        assert!(lines.push(&[b'x'; LONGEST]));
        assert!(!lines.push(b"x\n"), "too long");
        let mut many = Lines::default();
        assert!(many.push(&b"line\n".repeat(LONGEST)));
    }
}
