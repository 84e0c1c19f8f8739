//! Flows out of a table of another size or layout, into the one in force, while packets go on.
//!
//! The programs that are loaded then know both tables: a packet looks into the one in force first. Until no older program can
//! be under way, flows begin in the old table, where both find them; from then on in the new one. Then `weir_move`
//! (bpf/lib/move.h) takes the flows over, a stretch of buckets at a time. It claims an entry before it moves it, so that
//! counts stay exact without any settling, and what it has moved stays marked in the old table for packets that looked into
//! the new one a moment too early. When it is through, programs that know only the new table follow, and the old one is
//! unpinned.

use std::path::Path;

use weir_abi::{Bucket, Move};

use crate::error::{Error, Result};
use crate::mmap::Mapped;
use crate::pod;
use crate::sys::Access;
use crate::testrun::{TestInput, TestRun};

/// The program that moves; see bpf/lib/move.h.
pub(crate) const MOVE_PROGRAM: &str = "weir_move";

/// Buckets a run: some milliseconds at most, because a run is not interrupted.
const STRETCH: u32 = 4_096;
/// XDP takes no packet shorter than an Ethernet header.
const PACKET_LEN: usize = 64;

/// What a migration did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Moved {
    /// Flows that are in the table in force now, both directions of `nat` as one.
    pub moved: u64,
    /// Flows for which it had no place: their buckets were full.
    pub lost: u64,
}

/// An old table that is to be emptied.
#[derive(Debug)]
pub(crate) struct Migration {
    old: Mapped<Bucket>,
}

impl Migration {
    pub(crate) fn open(directory: &Path) -> Result<Self> {
        Ok(Self {
            old: Mapped::open("weir_flows", directory, Access::Read)?,
        })
    }

    /// Moves everything. `run` runs [`MOVE_PROGRAM`] of the programs that know both tables.
    pub(crate) fn move_all(
        &self,
        run: impl Fn(&TestInput<'_>) -> Result<TestRun>,
    ) -> Result<Moved> {
        let mut moved = Moved::default();
        let buckets = self.old.entries();
        for position in (0..buckets).step_by(STRETCH as usize) {
            let order = Move {
                position,
                count: STRETCH.min(buckets - position),
                ..Move::default()
            };
            let mut packet = [0; PACKET_LEN];
            packet[..size_of::<Move>()].copy_from_slice(pod::bytes(&order));
            let ran = run(&TestInput::xdp(&packet))?;
            let answer: Move = pod::from_bytes(&ran.packet)
                .filter(|_| ran.verdict == XDP_PASS)
                .ok_or(Error::NoProgram {
                    name: MOVE_PROGRAM.to_owned(),
                })?;
            moved.moved += u64::from(answer.moved);
            moved.lost += u64::from(answer.lost);
        }
        Ok(moved)
    }
}

const XDP_PASS: u32 = 2;
