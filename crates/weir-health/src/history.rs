//! Stores the last 32 results of a check.

use std::fmt;

/// Results, displayed as `+` (passed) and `-` (failed), the newest last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Bit 0 is the newest result; 1 = passed.
    bits: u32,
    len: u8,
}

impl History {
    /// Maximum number of results that are stored.
    pub const CAPACITY: u8 = 32;

    /// Adds a result, and drops the oldest result if there are more than [`Self::CAPACITY`].
    pub const fn push(&mut self, passed: bool) {
        self.bits = self.bits << 1 | passed as u32;
        if self.len < Self::CAPACITY {
            self.len += 1;
        }
    }

    /// Returns the number of results, at most [`Self::CAPACITY`].
    pub const fn len(&self) -> u8 {
        self.len
    }

    /// Returns whether there are no results yet.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for bit in (0..self.len).rev() {
            f.write_str(if self.bits >> bit & 1 == 1 { "+" } else { "-" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_result_is_last_and_oldest_is_dropped() {
        let mut history = History::default();
        assert!(history.is_empty());
        history.push(true);
        history.push(false);
        assert_eq!(history.to_string(), "+-");
        for _ in 0..31 {
            history.push(true);
        }
        assert_eq!(history.to_string(), format!("-{}", "+".repeat(31)));
        assert_eq!(history.len(), 32);
    }
}
