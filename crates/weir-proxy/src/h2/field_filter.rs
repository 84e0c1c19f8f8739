//! Finds the field blocks in a client's byte stream and replaces malformed ones; see [`super::field_block`].
//!
//! Everything else passes unchanged, except for empty DATA frames without END_STREAM on open streams. They are dropped:
//! they have no effect, but the framer would queue each of them. A block is held back until it is complete; the framer
//! does not process partial blocks either.

use super::field_block::{BlockCheck, BlockChecker};

const HEADER_LEN: usize = 9;
const PREFACE_LEN: usize = 24;
/// Maximum size of a frame, from clients and to the framer.
const MAX_FRAME: usize = 16 << 10;
/// Maximum number of bytes of one block that are held back. For the largest heads that a service may allow (64 KiB),
/// the framer accepts five CONTINUATION frames.
const MAX_HELD: usize = 128 << 10;
/// Maximum number of open streams that are tracked, to recognize their trailers.
const MAX_OPEN: usize = 1_000;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
const PRIORITY_LEN: usize = 5;

/// The filter for the frames on one connection.
#[derive(Debug)]
pub(super) struct FieldFilter {
    blocks: BlockChecker,
    /// Number of bytes until the next frame header.
    skip: usize,
    /// An incomplete frame header or the frames of a block, and the offset of the last frame.
    held: Vec<u8>,
    last_offset: usize,
    /// The last stream that was opened, and the streams that may still send content or trailers.
    last_stream: u32,
    open: Vec<u32>,
    /// Whether all input passes because the client has violated the protocol; the framer handles the violation.
    is_disabled: bool,
}

struct FrameHeader {
    length: usize,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl FrameHeader {
    /// Parses a frame header.
    fn read(bytes: &[u8]) -> Option<Self> {
        let [a, b, c, kind, flags, id @ ..] = *bytes.first_chunk::<HEADER_LEN>()?;
        Some(Self {
            length: usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c),
            kind,
            flags,
            stream: u32::from_be_bytes(id) & (u32::MAX >> 1),
        })
    }

    const fn ends_block(&self) -> bool {
        self.flags & END_HEADERS != 0
    }
}

impl FieldFilter {
    /// Creates a filter that starts before the client's preface.
    pub(super) const fn new() -> Self {
        Self {
            blocks: BlockChecker::new(),
            skip: PREFACE_LEN,
            held: Vec::new(),
            last_offset: 0,
            last_stream: 0,
            open: Vec::new(),
            is_disabled: false,
        }
    }

    /// Returns the number of bytes that are held back.
    pub(super) const fn held_len(&self) -> usize {
        self.held.len()
    }

    /// Passes received bytes to `put`, except for those that are held back.
    pub(super) fn pass(&mut self, bytes: &[u8], mut put: impl FnMut(&[u8])) {
        // The bytes between `unsent` and `offset` pass unchanged.
        let (mut unsent, mut offset) = (0, 0);
        while offset < bytes.len() && !self.is_disabled {
            let rest = &bytes[offset..];
            if self.skip > 0 {
                let skipped = self.skip.min(rest.len());
                self.skip -= skipped;
                offset += skipped;
            } else if self.held.is_empty() {
                match FrameHeader::read(rest) {
                    Some(head) if self.is_droppable(&head) => {
                        put(&bytes[unsent..offset]);
                        offset += HEADER_LEN;
                        unsent = offset;
                    }
                    Some(head) if head.kind != HEADERS => {
                        self.track_end(&head);
                        self.skip = HEADER_LEN + head.length;
                    }
                    Some(head) if head.ends_block() && rest.len() >= HEADER_LEN + head.length => {
                        let end = HEADER_LEN + head.length;
                        if let Some(replacement) = self.check(&rest[..end]) {
                            put(&bytes[unsent..offset]);
                            put(&replacement);
                            unsent = offset + end;
                        }
                        offset += end;
                    }
                    _ => {
                        put(&bytes[unsent..offset]);
                        offset += self.hold_back(rest, &mut put);
                        unsent = offset;
                    }
                }
            } else {
                offset += self.hold_back(rest, &mut put);
                unsent = offset;
            }
        }
        put(&bytes[unsent..]);
    }

    /// Holds back the bytes that belong to the current frame. Returns their number.
    fn hold_back(&mut self, bytes: &[u8], put: &mut impl FnMut(&[u8])) -> usize {
        let received_len = self.held.len() - self.last_offset;
        let head = FrameHeader::read(&self.held[self.last_offset..]);
        let wanted_len = head.map_or(HEADER_LEN, |head| HEADER_LEN + head.length);
        let count = (wanted_len - received_len).min(bytes.len());
        self.held.extend_from_slice(&bytes[..count]);
        let Some(head) = FrameHeader::read(&self.held[self.last_offset..]) else {
            return count;
        };
        let first = self.last_offset == 0;
        if first && self.is_droppable(&head) {
            self.held.clear();
            return count;
        }
        let is_part_of_block = match first {
            true => head.kind == HEADERS,
            false => {
                let is_same_stream =
                    FrameHeader::read(&self.held).is_some_and(|first| first.stream == head.stream);
                head.kind == CONTINUATION && is_same_stream
            }
        };
        if !is_part_of_block || head.length > MAX_FRAME || self.held.len() > MAX_HELD {
            // The frame is not part of a block, or exceeds a limit. Within a block, only CONTINUATION frames are
            // allowed.
            self.is_disabled = !first || head.kind == HEADERS;
            self.track_end(&head);
            self.skip = HEADER_LEN + head.length - (self.held.len() - self.last_offset);
            self.release(put);
        } else if self.held.len() - self.last_offset == HEADER_LEN + head.length {
            if head.ends_block() {
                let held = std::mem::take(&mut self.held);
                match self.check(&held) {
                    Some(replacement) => put(&replacement),
                    None => put(&held),
                }
                self.last_offset = 0;
            } else {
                self.last_offset = self.held.len();
            }
        }
        count
    }

    /// Returns whether the frame can be dropped: it has no content and is allowed on this stream (RFC 9113 section
    /// 6.1).
    fn is_droppable(&self, head: &FrameHeader) -> bool {
        head.kind == DATA
            && head.length == 0
            && head.flags & (END_STREAM | PADDED) == 0
            && self.open.contains(&head.stream)
    }

    /// Updates the open streams if the frame ends a stream's content.
    fn track_end(&mut self, head: &FrameHeader) {
        let ends_stream = match head.kind {
            DATA => head.flags & END_STREAM != 0,
            kind => kind == RST_STREAM,
        };
        if ends_stream && !self.open.is_empty() {
            self.open.retain(|open| *open != head.stream);
        }
    }

    /// Returns whether a block contains trailers. If not, the block opens a stream, or is an error that the framer
    /// detects.
    fn is_trailers(&mut self, head: &FrameHeader) -> bool {
        let ends_stream = head.flags & END_STREAM != 0;
        if let Some(index) = self.open.iter().position(|open| *open == head.stream) {
            if ends_stream {
                self.open.swap_remove(index);
            }
            return true;
        }
        if head.stream > self.last_stream {
            self.last_stream = head.stream;
            if !ends_stream {
                // Nothing else removes the streams that Weir has reset.
                if self.open.len() == MAX_OPEN {
                    self.open.remove(0);
                }
                self.open.push(head.stream);
            }
        }
        false
    }

    fn release(&mut self, put: &mut impl FnMut(&[u8])) {
        put(&std::mem::take(&mut self.held));
        self.last_offset = 0;
    }

    /// Checks the block in these frames. Returns replacement frames, if any are needed.
    fn check(&mut self, frames: &[u8]) -> Option<Vec<u8>> {
        let head = FrameHeader::read(frames)?;
        let trailers = self.is_trailers(&head);
        let (priority, first) = content(&head, frames.get(HEADER_LEN..HEADER_LEN + head.length)?)?;
        let checked = if head.ends_block() {
            self.blocks.check(first, trailers)
        } else {
            let mut block = first.to_vec();
            let mut rest = &frames[HEADER_LEN + head.length..];
            while let Some(next) = FrameHeader::read(rest) {
                let end = HEADER_LEN + next.length;
                block.extend_from_slice(rest.get(HEADER_LEN..end)?);
                rest = &rest[end..];
            }
            self.blocks.check(&block, trailers)
        };
        match checked {
            BlockCheck::Unchanged => None,
            BlockCheck::Replaced(block) => Some(build_frames(&head, priority, &block)),
            BlockCheck::TooLarge => {
                self.is_disabled = true;
                None
            }
        }
    }
}

/// Returns the priority and the block fragment of a HEADERS frame, or `None` if it is malformed.
fn content<'a>(head: &FrameHeader, payload: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let mut rest = payload;
    if head.flags & PADDED != 0 {
        let (padding, others) = rest.split_first()?;
        rest = others.get(..others.len().checked_sub(usize::from(*padding))?)?;
    }
    match head.flags & PRIORITY {
        0 => Some((&[], rest)),
        _ => rest.split_at_checked(PRIORITY_LEN),
    }
}

fn build_frames(head: &FrameHeader, priority: &[u8], block: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(block.len() + 2 * HEADER_LEN + PRIORITY_LEN);
    let (first, mut rest) = block.split_at(block.len().min(MAX_FRAME - PRIORITY_LEN));
    let flags = head.flags & (END_STREAM | PRIORITY);
    let mut frame = |kind: u8, flags: u8, parts: [&[u8]; 2]| {
        let length = (parts[0].len() + parts[1].len()) as u32;
        out.extend_from_slice(&length.to_be_bytes()[1..]);
        out.extend_from_slice(&[kind, flags]);
        out.extend_from_slice(&head.stream.to_be_bytes());
        out.extend_from_slice(parts[0]);
        out.extend_from_slice(parts[1]);
    };
    let end_flag = |rest: &[u8]| if rest.is_empty() { END_HEADERS } else { 0 };
    frame(HEADERS, flags | end_flag(rest), [priority, first]);
    while !rest.is_empty() {
        let part;
        (part, rest) = rest.split_at(rest.len().min(MAX_FRAME));
        frame(CONTINUATION, end_flag(rest), [&[], part]);
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend_from_slice(&[kind, flags, 0, 0, 0, stream]);
        frame.extend_from_slice(payload);
        frame
    }

    fn pass(text: &[u8], step: usize) -> Vec<u8> {
        let (mut filter, mut out) = (FieldFilter::new(), Vec::new());
        for part in text.chunks(step) {
            filter.pass(part, |bytes| out.extend_from_slice(bytes));
        }
        out
    }

    /// An invalid field `X: y` (names must be in lower case), and a valid field `x: y`.
    const MALFORMED: &[u8] = &[0, 1, b'X', 1, b'y'];
    const VALID: &[u8] = &[0, 1, b'x', 1, b'y'];
    const REPLACED: &[u8] = b"\x00\x01x\x01x\x00\x0aconnection\x01x";

    #[test]
    fn malformed_blocks_are_replaced_for_any_segmentation() {
        let preface = [b'p'; PREFACE_LEN];
        let settings = frame(4, 0, 0, &[]);
        let data = frame(0, 0, 1, &[1; 300]);
        let padded = [&[2][..], &[0, 0, 0, 0, 7], MALFORMED, &[0, 0]].concat();
        let text = [
            &preface[..],
            &settings,
            &frame(HEADERS, END_HEADERS | END_STREAM, 1, VALID),
            &data,
            &frame(HEADERS, END_HEADERS | PADDED | PRIORITY, 3, &padded),
            &frame(HEADERS, END_STREAM, 5, &MALFORMED[..2]),
            &frame(CONTINUATION, 0, 5, &[]),
            &frame(CONTINUATION, END_HEADERS, 5, &MALFORMED[2..]),
            &settings,
        ]
        .concat();
        let expected = [
            &preface[..],
            &settings,
            &frame(HEADERS, END_HEADERS | END_STREAM, 1, VALID),
            &data,
            &frame(
                HEADERS,
                END_HEADERS | PRIORITY,
                3,
                &[&[0, 0, 0, 0, 7], REPLACED].concat(),
            ),
            &frame(HEADERS, END_HEADERS | END_STREAM, 5, REPLACED),
            &settings,
        ]
        .concat();
        for step in [1, 2, 7, 9, 30, 1000] {
            assert_eq!(pass(&text, step), expected, "{step}");
        }
    }

    #[test]
    fn empty_data_frames_are_dropped_unless_they_are_errors() {
        let empty = |flags, stream| frame(DATA, flags, stream, &[]);
        let started = frame(HEADERS, END_HEADERS, 1, VALID);
        let ended = frame(HEADERS, END_HEADERS | END_STREAM, 3, VALID);
        let content = frame(DATA, 0, 1, b"content");
        // Stream 0, an idle stream, a stream that has ended, missing padding, END_STREAM, and the stream that it ended.
        let kept_frames = [
            empty(0, 0),
            empty(0, 5),
            empty(0, 3),
            empty(PADDED, 1),
            empty(END_STREAM, 1),
            empty(0, 1),
        ]
        .concat();
        let preface = [b'p'; PREFACE_LEN];
        let dropped_frames = empty(0, 1).repeat(3);
        let text = [
            &preface[..],
            &started,
            &ended,
            &dropped_frames,
            &content,
            &dropped_frames,
            &kept_frames,
        ]
        .concat();
        let expected = [&preface[..], &started, &ended, &content, &kept_frames].concat();
        for step in [1, 2, 7, 9, 30, 1000] {
            assert_eq!(pass(&text, step), expected, "{step}");
        }
    }

    #[test]
    fn replacement_longer_than_a_frame_is_split() {
        let malformed = [
            &[0, 1, b'X', 0x7f, 0x81, 0xfd, 0x01][..],
            &[b'y'; 32_512 - 256],
        ]
        .concat();
        let malformed = [&malformed[..], &[b'y'; 256]].concat();
        let text = [
            &[b'p'; PREFACE_LEN][..],
            &frame(HEADERS, 0, 1, &malformed[..16_000]),
            &frame(CONTINUATION, 0, 1, &malformed[16_000..32_000]),
            &frame(CONTINUATION, END_HEADERS, 1, &malformed[32_000..]),
        ]
        .concat();
        let out = pass(&text, 5_000);
        let mut rest = &out[PREFACE_LEN..];
        let (mut kinds, mut block) = (Vec::new(), Vec::new());
        while let Some(head) = FrameHeader::read(rest) {
            kinds.push((head.kind, head.ends_block()));
            block.extend_from_slice(&rest[HEADER_LEN..HEADER_LEN + head.length]);
            rest = &rest[HEADER_LEN + head.length..];
        }
        assert_eq!(kinds, [(HEADERS, false), (CONTINUATION, true)]);
        assert!(block.starts_with(&[0, 1, b'x']) && block.ends_with(b"connection\x01x"));
    }

    #[test]
    fn block_above_the_limit_is_not_held_back() {
        let frames = |count: usize| {
            let mut text = vec![b'p'; PREFACE_LEN];
            text.extend(frame(HEADERS, 0, 1, &[]));
            for _ in 0..count {
                text.extend(frame(CONTINUATION, 0, 1, &[0; MAX_FRAME]));
            }
            text
        };
        let (mut filter, mut out) = (FieldFilter::new(), Vec::new());
        for part in frames(64).chunks(1_000) {
            filter.pass(part, |bytes| out.extend_from_slice(bytes));
            assert!(filter.held_len() <= MAX_HELD + HEADER_LEN + MAX_FRAME);
        }
        assert_eq!(out, frames(64), "the framer rejects the block");
        assert_eq!(pass(&frames(7), 1_000).len(), PREFACE_LEN, "held back");
    }

    proptest! {
        /// Input without malformed blocks passes unchanged, even if it violates the protocol. No byte is held back at
        /// the end.
        #[test]
        fn input_without_malformed_blocks_passes_unchanged(
            frames in prop::collection::vec((0u8..12, any::<u8>(), 0u8..4, 0usize..40), 0..20),
            step in 1usize..50,
        ) {
            let mut text = vec![b'p'; PREFACE_LEN];
            for (kind, flags, stream, length) in &frames {
                // Only empty DATA frames may be dropped, so DATA frames have at least one byte here.
                let length = (*length).max(usize::from(*kind == DATA));
                text.extend(frame(*kind, *flags, *stream, &vec![0x20; length]));
            }
            text.extend(frame(4, 0, 0, &[]));
            text.extend(frame(4, 0, 0, &[]));
            prop_assert_eq!(pass(&text, step), text);
        }
    }
}
