//! Migrates flows from a table with a different size or layout to the current table while packets are processed.
//!
//! During the migration, programs use both tables, and search the current table first. While older programs may still
//! run, new flows are inserted into the old table, where old and new programs find them; afterwards they are inserted
//! into the current table. Then `weir_move` (bpf/lib/move.h) moves the flows in batches of buckets. It claims each
//! entry before copying it, so that counts stay exact, and then marks the old entry as moved, for packets that searched
//! the current table before the move. Packets never use a moved entry: if its copy is gone, the flow has ended. At the
//! end, programs that use only the current table are loaded, and the old table is unpinned.

use std::path::Path;

use weir_abi::{Bucket, Move};

use crate::error::{Error, Result};
use crate::mmap::Mapped;
use crate::pod;
use crate::sys::Access;
use crate::testrun::{TestInput, TestRun};

/// The program that moves flows; see bpf/lib/move.h.
pub(crate) const MOVE_PROGRAM: &str = "weir_move";

/// Number of buckets per run. A run takes at most a few milliseconds, because it cannot be interrupted.
const BATCH_BUCKETS: u32 = 4_096;
/// Size of the dummy packet, in bytes: XDP test runs reject packets shorter than an Ethernet header.
const PACKET_LEN: usize = 64;

/// Result of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MigrationResult {
    /// Number of flows moved to the current table; the two directions of a `nat` flow count as one flow.
    pub moved: u64,
    /// Number of flows lost because their buckets were full.
    pub lost: u64,
}

/// The old table of a migration.
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

    /// Moves all flows. `run` runs the [`MOVE_PROGRAM`] that uses both tables.
    pub(crate) fn move_all(
        &self,
        run: impl Fn(&TestInput<'_>) -> Result<TestRun>,
    ) -> Result<MigrationResult> {
        let mut moved = MigrationResult::default();
        let buckets = self.old.entries();
        for position in (0..buckets).step_by(BATCH_BUCKETS as usize) {
            let request = Move {
                position,
                count: BATCH_BUCKETS.min(buckets - position),
                ..Move::default()
            };
            let mut packet = [0; PACKET_LEN];
            packet[..size_of::<Move>()].copy_from_slice(pod::bytes(&request));
            let output = run(&TestInput::xdp(&packet))?.accepted_by(MOVE_PROGRAM)?;
            let result: Move = pod::from_bytes(&output.packet).ok_or(Error::Rejected {
                program: MOVE_PROGRAM,
            })?;
            moved.moved += u64::from(result.moved);
            moved.lost += u64::from(result.lost);
        }
        Ok(moved)
    }
}
