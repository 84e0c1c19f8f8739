//! Counts a client's frames that request nothing. A few are normal, thousands are an attack.
//!
//! SETTINGS and PING must be acknowledged, CONTINUATION and empty DATA must be parsed, and none of them carries a
//! request (CVE-2019-9512, CVE-2019-9515, CVE-2019-9518, CVE-2024-27316). WINDOW_UPDATE frames that follow from sent
//! data are normal; those beyond that count too. Only frame headers are parsed here.
//!
//! Up to [`FREE`] idle frames have no effect. Above it the connection is read slowly, and a client that continues is
//! disconnected. A flood then costs little CPU: the sender has to wait, whereas a connection that is closed at once
//! would only be opened again.
//!
//! Outbound frames are parsed too: DATA, which the client may acknowledge, and RST_STREAM caused by client errors.

/// Initial budget of idle frames, and its growth per second.
const SAVED_MAX: u64 = 1_000;
const EARNED: u64 = 100;

/// Idle frames that are read at full speed, and how many of them a request or content offsets. Elapsed time offsets
/// them too, at the rate [`EARNED`].
const FREE: u64 = 100;
const PER_PROGRESS: u64 = 10;

/// WINDOW_UPDATE frames that may follow a DATA frame, and bytes of content that allow one more: some clients
/// acknowledge every frame twice, for its stream and for the connection, or every kilobyte that they read.
const WINDOWS_PER_DATA: u64 = 2;
const BYTES_PER_WINDOW: usize = 1 << 10;
/// WINDOW_UPDATE frames that may follow a request: some clients enlarge its window at once.
const WINDOWS_PER_REQUEST: u64 = 4;
/// Most WINDOW_UPDATE frames in flight: a client with windows of 32 MiB that acknowledges every kilobyte.
const WINDOWS_MAX: u64 = 1 << 16;

const HEADER: usize = 9;
const PREFACE: usize = 24;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;

/// Parses frame headers from a byte stream that arrives in pieces.
#[derive(Debug)]
struct Frames {
    /// Bytes until the next frame's header.
    skip: usize,
    /// A header and, for RST_STREAM, its error code; the first `have` bytes are present.
    header: [u8; HEADER + 4],
    have: usize,
}

/// A frame's header.
struct Frame {
    length: usize,
    kind: u8,
    flags: u8,
    /// Error code of RST_STREAM.
    code: u32,
}

impl Frames {
    const fn new(skip: usize) -> Self {
        Self {
            skip,
            header: [0; HEADER + 4],
            have: 0,
        }
    }

    /// The next frame whose header, and error code, is complete within `bytes`. Advances `bytes` past it.
    fn next(&mut self, bytes: &mut &[u8]) -> Option<Frame> {
        let skipped = self.skip.min(bytes.len());
        *bytes = &bytes[skipped..];
        self.skip -= skipped;
        loop {
            let wanted = match self.have {
                HEADER.. if self.is_reset() => HEADER + 4,
                _ => HEADER,
            };
            if self.have == wanted {
                break;
            }
            let more = (wanted - self.have).min(bytes.len());
            if more == 0 {
                return None;
            }
            self.header[self.have..self.have + more].copy_from_slice(&bytes[..more]);
            *bytes = &bytes[more..];
            self.have += more;
        }
        let [a, b, c, kind, flags, _, _, _, _, code @ ..] = self.header;
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        self.skip = length - (self.have - HEADER);
        self.have = 0;
        Some(Frame {
            length,
            kind,
            flags,
            code: u32::from_be_bytes(code),
        })
    }

    /// Whether the header is that of a RST_STREAM frame with an error code.
    fn is_reset(&self) -> bool {
        self.header[..4] == [0, 0, 4, RST_STREAM]
    }
}

/// Counts the idle frames of one connection.
#[derive(Debug)]
pub(super) struct FrameCounter {
    inward: Frames,
    outward: Frames,
    saved: u64,
    earned_at: u64,
    /// Idle frames that are not offset, and whether there were any since the last [`FrameCounter::take_pause`].
    debt: u64,
    received: bool,
    /// WINDOW_UPDATE frames that sent data allows.
    windows: u64,
    /// Streams that were reset because of client errors.
    provoked: u64,
    seen: SeenFrames,
}

/// Frames by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SeenFrames {
    pub(super) headers: u64,
    pub(super) data: u64,
    pub(super) settings: u64,
    pub(super) goaways: u64,
    pub(super) goaways_sent: u64,
}

impl FrameCounter {
    /// Starts before the client's preface.
    pub(super) const fn new() -> Self {
        Self {
            inward: Frames::new(PREFACE),
            outward: Frames::new(0),
            saved: SAVED_MAX,
            earned_at: 0,
            debt: 0,
            received: false,
            windows: 0,
            provoked: 0,
            seen: SeenFrames {
                headers: 0,
                data: 0,
                settings: 0,
                goaways: 0,
                goaways_sent: 0,
            },
        }
    }

    /// Frames since the last call.
    pub(super) fn take_seen(&mut self) -> SeenFrames {
        std::mem::take(&mut self.seen)
    }

    /// Parses bytes from the client.
    pub(super) fn read(&mut self, mut bytes: &[u8]) {
        while let Some(frame) = self.inward.next(&mut bytes) {
            match frame.kind {
                DATA => self.seen.data += 1,
                HEADERS => self.seen.headers += 1,
                SETTINGS => self.seen.settings += 1,
                GOAWAY => self.seen.goaways += 1,
                _ => {}
            }
            let makes_progress = match frame.kind {
                DATA => frame.length > 0 || frame.flags & END_STREAM != 0,
                HEADERS => {
                    self.allow_windows(WINDOWS_PER_REQUEST);
                    true
                }
                WINDOW_UPDATE => {
                    let allowed = self.windows > 0;
                    self.windows = self.windows.saturating_sub(1);
                    allowed
                }
                // Resets are counted where the state of the stream is known.
                RST_STREAM => true,
                _ => false,
            };
            if !makes_progress {
                self.saved = self.saved.saturating_sub(1);
                self.debt += 1;
                self.received = true;
            } else if matches!(frame.kind, DATA | HEADERS) {
                self.debt = self.debt.saturating_sub(PER_PROGRESS);
            }
        }
    }

    /// Whether the connection is read slowly.
    pub(super) const fn is_slowed(&self) -> bool {
        self.debt > FREE
    }

    /// Whether reading pauses after what was parsed since the last call.
    pub(super) fn take_pause(&mut self) -> bool {
        std::mem::take(&mut self.received) && self.is_slowed()
    }

    /// Parses bytes to the client.
    pub(super) fn sent(&mut self, mut bytes: &[u8]) {
        while let Some(frame) = self.outward.next(&mut bytes) {
            match frame.kind {
                DATA => {
                    let more = (frame.length / BYTES_PER_WINDOW) as u64;
                    self.allow_windows(WINDOWS_PER_DATA + more);
                    if frame.length > 0 {
                        self.debt = self.debt.saturating_sub(PER_PROGRESS);
                    }
                }
                // PROTOCOL_ERROR, FLOW_CONTROL_ERROR, STREAM_CLOSED, FRAME_SIZE_ERROR: the other codes have reasons
                // here.
                RST_STREAM => self.provoked += u64::from(matches!(frame.code, 1 | 3 | 5 | 6)),
                GOAWAY => self.seen.goaways_sent += 1,
                _ => {}
            }
        }
    }

    fn allow_windows(&mut self, more: u64) {
        self.windows = (self.windows + more).min(WINDOWS_MAX);
    }

    /// Streams that were reset because of client errors since the last call.
    pub(super) fn take_provoked(&mut self) -> u64 {
        std::mem::take(&mut self.provoked)
    }

    /// Whether the budget is used up.
    pub(super) fn is_flood(&mut self, now_ms: u64) -> bool {
        let earned = now_ms.saturating_sub(self.earned_at) * EARNED / 1_000;
        if earned > 0 {
            self.earned_at = now_ms;
            self.debt = self.debt.saturating_sub(earned);
            // A budget that was used up stays so.
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

    fn started() -> FrameCounter {
        let mut counter = FrameCounter::new();
        counter.read(&[b'x'; PREFACE]);
        counter
    }

    #[test]
    fn work_is_no_flood_and_idle_frames_are() {
        let mut counter = started();
        for _ in 0..5_000 {
            counter.read(&frame(HEADERS, 5, 40));
            counter.read(&frame(DATA, 0, 1_000));
            counter.read(&frame(WINDOW_UPDATE, 0, 4));
        }
        assert!(!counter.is_flood(1));
        (0..999).for_each(|_| counter.read(&frame(6, 0, 8)));
        assert!(!counter.is_flood(2));
        (0..50).for_each(|_| counter.read(&frame(4, 0, 0)));
        assert!(counter.is_flood(1_000));
    }

    #[test]
    fn idle_frames_slow_a_connection_until_something_makes_up_for_them() {
        let mut counter = started();
        assert!(!counter.is_flood(1));
        (0..FREE).for_each(|_| counter.read(&frame(6, 0, 8)));
        assert!(!counter.is_slowed() && !counter.take_pause());
        counter.read(&frame(6, 0, 8));
        assert!(counter.is_slowed() && counter.take_pause());
        // Without further ones there is no further pause.
        assert!(!counter.take_pause());
        for progress in [frame(HEADERS, 5, 40), frame(DATA, 0, 40)] {
            (0..PER_PROGRESS).for_each(|_| counter.read(&frame(6, 0, 8)));
            assert!(counter.take_pause());
            counter.read(&progress);
            counter.read(&progress);
            assert!(!counter.is_slowed());
            (0..PER_PROGRESS).for_each(|_| counter.read(&frame(6, 0, 8)));
        }
        counter.sent(&frame(DATA, 0, 40));
        counter.sent(&frame(DATA, 0, 0));
        assert_eq!(counter.debt, FREE + 1 - PER_PROGRESS);
        (0..PER_PROGRESS).for_each(|_| counter.read(&frame(0, 0, 0)));
        assert!(counter.take_pause());
        assert!(!counter.is_flood(1_001) && !counter.is_slowed());
    }

    #[test]
    fn window_updates_of_a_download_are_no_flood_and_others_are() {
        let mut counter = started();
        for _ in 0..20_000 {
            counter.sent(&frame(DATA, 0, 16_384));
            // For every kilobyte of the stream, and for every frame of the connection.
            (0..17).for_each(|_| counter.read(&frame(WINDOW_UPDATE, 0, 4)));
        }
        assert!(!counter.is_flood(0));
        // Small messages that are acknowledged one by one.
        for _ in 0..20_000 {
            counter.sent(&frame(DATA, 0, 10));
            (0..2).for_each(|_| counter.read(&frame(WINDOW_UPDATE, 0, 4)));
        }
        assert!(!counter.is_flood(0));
        let most = WINDOWS_MAX + SAVED_MAX;
        (0..most).for_each(|_| counter.read(&frame(WINDOW_UPDATE, 0, 4)));
        assert!(counter.is_flood(0));
        let mut idle = started();
        (0..SAVED_MAX).for_each(|_| idle.read(&frame(WINDOW_UPDATE, 0, 4)));
        assert!(idle.is_flood(0));
    }

    #[test]
    fn provoked_resets_are_counted_apart_from_others() {
        let mut counter = started();
        for code in 0..14u8 {
            let mut reset = frame(RST_STREAM, 0, 4);
            reset[HEADER..].copy_from_slice(&[0, 0, 0, code]);
            reset.chunks(5).for_each(|part| counter.sent(part));
            counter.sent(&frame(DATA, 0, 100));
        }
        assert_eq!((counter.take_provoked(), counter.take_provoked()), (4, 0));
    }

    proptest! {
        #[test]
        fn pieces_change_nothing(kinds in prop::collection::vec((0u8..12, 0usize..30), 0..60), step in 1usize..20) {
            let mut text = vec![b'x'; PREFACE];
            for (kind, length) in &kinds {
                text.extend(frame(*kind, 0, *length));
            }
            let (mut whole, mut parts) = (FrameCounter::new(), FrameCounter::new());
            whole.read(&text);
            text.chunks(step).for_each(|part| parts.read(part));
            prop_assert_eq!(whole.saved, parts.saved);
            let (mut counted, mut windows) = (0u64, 0u64);
            for (kind, length) in &kinds {
                match kind {
                    1 => windows += WINDOWS_PER_REQUEST,
                    8 if windows > 0 => windows -= 1,
                    3 => {}
                    0 if *length > 0 => {}
                    _ => counted += 1,
                }
            }
            prop_assert_eq!(SAVED_MAX - whole.saved, counted);
        }
    }
}
