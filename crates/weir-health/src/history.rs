//! The last 32 results of a check.

use std::fmt;

/// Results, the newest last; shown as `+` passed and `-` failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Bit 0 is the newest; 1 = passed.
    bits: u32,
    len: u8,
}

impl History {
    /// Number of results that are kept.
    pub const MOST: u8 = 32;

    /// Adds a result and drops the oldest beyond [`Self::MOST`].
    pub const fn push(&mut self, passed: bool) {
        self.bits = self.bits << 1 | passed as u32;
        if self.len < Self::MOST {
            self.len += 1;
        }
    }

    /// Number of results held, at most [`Self::MOST`].
    pub const fn len(&self) -> u8 {
        self.len
    }

    /// Whether there is no result yet.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for at in (0..self.len).rev() {
            f.write_str(if self.bits >> at & 1 == 1 { "+" } else { "-" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_is_last_and_oldest_is_dropped() {
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
