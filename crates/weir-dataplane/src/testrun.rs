//! Runs a loaded program on a single packet, without a device, for packet tests and benchmarks.
//!
//! The kernel runs the program on a copy of the packet. Counters and flows change as with real traffic.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::error::{Context, Error, Result};
use crate::sys::{self, TestRunAttr};

/// Input of a test run.
#[derive(Clone, Debug)]
pub struct TestInput<'a> {
    /// The frame, starting with the destination MAC; at least 14 bytes.
    pub packet: &'a [u8],
    /// Number of runs, at least 1. From the second run on, a run's input is the output of the previous one, unless
    /// `live_frames` is set.
    pub repeat: u32,
    /// The packet's ingress device, 0 = the loopback device. The device must exist in the calling thread's network
    /// namespace and, for XDP, have a receive queue.
    pub ingress_ifindex: u32,
    /// The program's type.
    pub kind: TestKind,
    /// BPF_F_TEST_XDP_LIVE_FRAMES, only for XDP: the kernel executes the verdicts and sends the frames.
    pub live_frames: bool,
}

/// The program types that test runs support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestKind {
    /// XDP.
    Xdp,
    /// tc or tcx.
    Classifier,
}

impl<'a> TestInput<'a> {
    /// Returns the input for one run of an XDP program.
    pub fn xdp(packet: &'a [u8]) -> Self {
        Self {
            packet,
            repeat: 1,
            ingress_ifindex: 0,
            kind: TestKind::Xdp,
            live_frames: false,
        }
    }

    /// Returns the input for one run of a tc program.
    pub fn classifier(packet: &'a [u8]) -> Self {
        Self {
            kind: TestKind::Classifier,
            ..Self::xdp(packet)
        }
    }
}

/// Result of a test run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestRun {
    /// The verdict: XDP_PASS, TC_ACT_OK and so on; 0 with `live_frames`.
    pub verdict: u32,
    /// The frame after the last run; empty with `live_frames`.
    pub packet: Vec<u8>,
    /// Metadata before the frame, which is not part of `packet`; only for XDP.
    pub metadata: Vec<u8>,
    /// Mean duration of one run, as measured by the kernel.
    pub duration: Duration,
}

const XDP_PASS: u32 = 2;

impl TestRun {
    /// Returns this run if `program`, an XDP program that gets a request instead of a packet, has accepted the
    /// request.
    ///
    /// # Errors
    /// Fails if the verdict is not XDP_PASS.
    pub(crate) fn accepted_by(self, program: &'static str) -> Result<Self> {
        match self.verdict {
            XDP_PASS => Ok(self),
            _ => Err(Error::Rejected { program }),
        }
    }
}

const LIVE_FRAMES: u32 = 1 << 1;
/// Space in bytes for headers that a program adds: XDP_PACKET_HEADROOM, and space after the frame.
const MAX_GROWTH_BYTES: usize = 512;
/// struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
const XDP_CONTEXT_BYTES: usize = 24;
/// struct __sk_buff up to and including ifindex; the kernel assumes zero for the rest.
const SKB_CONTEXT_BYTES: usize = 44;
/// __sk_buff.ifindex.
const SKB_IFINDEX_OFFSET: usize = 40;

/// Runs a program; see [`TestInput`].
///
/// # Errors
/// Fails if the packet is shorter than an Ethernet header or too long for the kernel, the device does not exist, or the
/// call was interrupted by a signal.
pub(crate) fn run(program: BorrowedFd<'_>, input: &TestInput<'_>) -> Result<TestRun> {
    let live = input.live_frames && input.kind == TestKind::Xdp;
    let mut out = if live {
        Vec::new()
    } else {
        vec![0; input.packet.len() + MAX_GROWTH_BYTES]
    };
    let mut context = context(input);
    let mut attr = TestRunAttr::new(input.repeat.max(1), if live { LIVE_FRAMES } else { 0 });
    sys::test_run(program, &mut attr, input.packet, &mut out, &mut context)
        .during("run", || "a program on a test packet".to_owned())?;
    out.truncate(attr.out_length as usize);
    let metadata = match input.kind {
        TestKind::Xdp if !live => metadata_length(&context).min(out.len()),
        _ => 0,
    };
    let packet = out.split_off(metadata);
    Ok(TestRun {
        verdict: attr.verdict,
        packet,
        metadata: out,
        duration: Duration::from_nanos(u64::from(attr.duration_ns)),
    })
}

fn context(input: &TestInput<'_>) -> Vec<u8> {
    match input.kind {
        TestKind::Xdp => {
            let mut context = vec![0; XDP_CONTEXT_BYTES];
            let length = u32::try_from(input.packet.len()).unwrap_or(u32::MAX);
            context[4..8].copy_from_slice(&length.to_ne_bytes());
            context[12..16].copy_from_slice(&input.ingress_ifindex.to_ne_bytes());
            context
        }
        TestKind::Classifier if input.ingress_ifindex == 0 => Vec::new(),
        TestKind::Classifier => {
            let mut context = vec![0; SKB_CONTEXT_BYTES];
            context[SKB_IFINDEX_OFFSET..].copy_from_slice(&input.ingress_ifindex.to_ne_bytes());
            context
        }
    }
}

/// Returns the length of the metadata before the frame: xdp_md.data after the run.
fn metadata_length(context: &[u8]) -> usize {
    context
        .first_chunk::<4>()
        .map_or(0, |data| u32::from_ne_bytes(*data) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejected_request_is_an_error_that_names_the_program() {
        let run = |verdict| TestRun {
            verdict,
            packet: Vec::new(),
            metadata: Vec::new(),
            duration: Duration::ZERO,
        };
        assert!(run(XDP_PASS).accepted_by("weir_move").is_ok());
        let error = run(0).accepted_by("weir_move").unwrap_err();
        assert!(matches!(error, Error::Rejected { .. }), "{error:?}");
        let text = error.to_string();
        assert!(
            text.starts_with("program \"weir_move\" in the data plane rejected a request"),
            "{text}"
        );
    }
}
