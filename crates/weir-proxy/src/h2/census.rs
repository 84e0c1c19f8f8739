//! Counts the frames of a client that ask for nothing: a few are manners, thousands are an attack.
//!
//! SETTINGS and PING must be answered, CONTINUATION and empty DATA be looked at, and none of them brings a request nearer
//! (CVE-2019-9512, CVE-2019-9515, CVE-2019-9518, CVE-2024-27316). Only frame headers are read here; what the frames mean is the
//! framer's.

/// Frames in hand at the beginning, and how many more a second brings.
const SAVED_MAX: u64 = 1_000;
const EARNED: u64 = 100;

const HEADER: usize = 9;
const PREFACE: usize = 24;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;

/// See the module.
#[derive(Debug)]
pub(super) struct Census {
    /// Octets until the next frame's header.
    skip: usize,
    header: [u8; HEADER],
    have: usize,
    saved: u64,
    earned_at: u64,
}

impl Census {
    /// Before a client's preface.
    pub(super) const fn new() -> Self {
        Self {
            skip: PREFACE,
            header: [0; HEADER],
            have: 0,
            saved: SAVED_MAX,
            earned_at: 0,
        }
    }

    /// Reads on.
    pub(super) fn read(&mut self, mut octets: &[u8]) {
        while !octets.is_empty() {
            let skipped = self.skip.min(octets.len());
            octets = &octets[skipped..];
            self.skip -= skipped;
            let more = (HEADER - self.have).min(octets.len());
            self.header[self.have..self.have + more].copy_from_slice(&octets[..more]);
            octets = &octets[more..];
            self.have += more;
            if self.have == HEADER {
                self.have = 0;
                self.count();
            }
        }
    }

    fn count(&mut self) {
        let [a, b, c, kind, flags, ..] = self.header;
        self.skip = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        let asks = match kind {
            DATA => self.skip > 0 || flags & END_STREAM != 0,
            // Streams that are taken back are counted where that is known; windows follow from what was sent.
            HEADERS | RST_STREAM | WINDOW_UPDATE => true,
            _ => false,
        };
        if !asks {
            self.saved = self.saved.saturating_sub(1);
        }
    }

    /// Whether there were too many by now.
    pub(super) fn is_flood(&mut self, now_ms: u64) -> bool {
        let earned = now_ms.saturating_sub(self.earned_at) * EARNED / 1_000;
        if earned > 0 {
            self.earned_at = now_ms;
            // One that came to nothing stays so.
            if self.saved > 0 {
                self.saved = (self.saved + earned).min(SAVED_MAX);
            }
        }
        self.saved == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, length: usize) -> Vec<u8> {
        let mut frame = (length as u32).to_be_bytes()[1..].to_vec();
        frame.extend_from_slice(&[kind, flags, 0, 0, 0, 1]);
        frame.resize(HEADER + length, 7);
        frame
    }

    #[test]
    fn work_is_no_flood_and_idle_frames_are() {
        let mut census = Census::new();
        census.read(&[b'x'; PREFACE]);
        for _ in 0..5_000 {
            census.read(&frame(HEADERS, 5, 40));
            census.read(&frame(DATA, 0, 1_000));
            census.read(&frame(WINDOW_UPDATE, 0, 4));
        }
        assert!(!census.is_flood(1));
        (0..999).for_each(|_| census.read(&frame(6, 0, 8)));
        assert!(!census.is_flood(2));
        (0..50).for_each(|_| census.read(&frame(4, 0, 0)));
        assert!(census.is_flood(1_000));
    }

    proptest! {
        #[test]
        fn pieces_change_nothing(kinds in prop::collection::vec((0u8..12, 0usize..30), 0..60), step in 1usize..20) {
            let mut text = vec![b'x'; PREFACE];
            for (kind, length) in &kinds {
                text.extend(frame(*kind, 0, *length));
            }
            let (mut whole, mut parts) = (Census::new(), Census::new());
            whole.read(&text);
            text.chunks(step).for_each(|part| parts.read(part));
            prop_assert_eq!(whole.saved, parts.saved);
            let idle = |kind: u8, length: usize| !matches!(kind, 1 | 3 | 8) && (kind != 0 || length == 0);
            let counted = kinds.iter().filter(|(kind, length)| idle(*kind, *length)).count();
            prop_assert_eq!(SAVED_MAX - whole.saved, counted as u64);
        }
    }
}
