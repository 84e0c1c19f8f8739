//! Lines out of pieces.

/// Most bytes of a line; what is longer is no line of these protocols.
const LONGEST: usize = 4096;

/// Pieces that came, less the lines taken out.
#[derive(Debug, Default)]
pub(super) struct Lines(Vec<u8>);

impl Lines {
    /// Adds a piece; false = what is there is no line any more.
    pub(super) fn push(&mut self, bytes: &[u8]) -> bool {
        self.0.extend_from_slice(bytes);
        self.0.len() <= LONGEST || self.0[..LONGEST].contains(&b'\n')
    }

    /// The next whole line, without its end.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        let end = self.0.iter().position(|byte| *byte == b'\n')?;
        let mut line: Vec<u8> = self.0.drain(..=end).collect();
        line.truncate(end);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Some(line)
    }

    /// What is left at the end of the stream.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}
