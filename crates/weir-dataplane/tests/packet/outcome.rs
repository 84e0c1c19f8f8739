//! Defines the data plane's outcome for a packet, and compares it with that of the model.

use std::net::IpAddr;

use weir_abi::{Addr, META_MAGIC, Meta, Reason};
use weir_flow::{Outcome as ModelOutcome, PacketMeta, Verdict};

/// The data plane's outcome for a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) verdict: Xdp,
    pub(crate) frame: Vec<u8>,
    pub(crate) counted: Vec<Reason>,
    pub(crate) meta: Option<PacketMeta>,
}

/// An XDP verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Xdp {
    Aborted,
    Drop,
    Pass,
    Tx,
    Redirect,
}

impl Xdp {
    pub(crate) fn from_number(number: u32) -> Self {
        [
            Self::Aborted,
            Self::Drop,
            Self::Pass,
            Self::Tx,
            Self::Redirect,
        ][number as usize]
    }
}

/// Reads the metadata in front of a frame that XDP passes to the tc program.
pub(crate) fn read_meta(bytes: &[u8]) -> Option<PacketMeta> {
    let word = |offset: usize| u32::from_ne_bytes(bytes[offset..offset + 4].try_into().unwrap());
    if bytes.len() != size_of::<Meta>() || word(0) != META_MAGIC {
        assert!(bytes.is_empty(), "metadata {bytes:02x?}");
        return None;
    }
    let octets: [u8; 16] = bytes[12..28].try_into().unwrap();
    let next_hop = match word(8) {
        0 => None,
        4 => Some(IpAddr::from([octets[0], octets[1], octets[2], octets[3]]).into()),
        _ => Some(Addr::from_octets(octets)),
    };
    Some(PacketMeta {
        ifindex: word(4),
        next_hop,
    })
}

/// Describes how the data plane's outcome differs from that of the model.
pub(crate) fn difference(outcome: &Outcome, expected: &ModelOutcome) -> Option<String> {
    let (verdict, meta) = match expected.verdict {
        Verdict::Unmodeled => return None,
        Verdict::Pass => (Xdp::Pass, None),
        Verdict::Drop => (Xdp::Drop, None),
        Verdict::Tx => (Xdp::Tx, None),
        Verdict::Redirect(_) => (Xdp::Redirect, None),
        Verdict::ToTc(meta) => (Xdp::Pass, Some(meta)),
    };
    let mut counted = expected.counted.clone();
    counted.sort_by_key(|reason| reason.number());
    if outcome.counted != counted {
        return Some(format!(
            "reasons: {:?}, model: {counted:?}",
            outcome.counted
        ));
    }
    if outcome.verdict != verdict {
        return Some(format!(
            "verdict: {:?}, model: {verdict:?}",
            outcome.verdict
        ));
    }
    if outcome.meta != meta {
        return Some(format!("metadata: {:?}, model: {meta:?}", outcome.meta));
    }
    weir_wire::diff(&expected.frame, &outcome.frame)
        .map(|text| format!("frame of the model, then frame of the data plane:\n{text}"))
}
