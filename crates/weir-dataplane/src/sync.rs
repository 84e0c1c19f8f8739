//! Implements flow synchronization: reads which flows have changed, and inserts flows from a peer.

use std::mem::offset_of;
use std::sync::atomic::Ordering;

use weir_abi::{Move, SETTINGS_SYNC, SYNC_BATCH, SYNC_RING_SLOTS, SYNC_RINGS, SyncFlow, SyncRing};

use crate::dataplane::Dataplane;
use crate::error::Result;
use crate::maps::Maps;
use crate::pod;
use crate::testrun::TestInput;

const PROGRAM: &str = "weir_sync_insert";
/// Size of the packet that carries the request, in bytes. It must be at least as long as an Ethernet header.
const PACKET_LEN: usize = 64;

/// The read position in each ring.
#[derive(Clone, Debug)]
pub struct SyncPositions([u64; SYNC_RINGS as usize]);

impl Maps {
    /// Returns the current head of each ring.
    ///
    /// # Errors
    /// Fails if the map was opened read-only.
    pub fn sync_positions(&self) -> Result<SyncPositions> {
        let mut positions = SyncPositions([0; SYNC_RINGS as usize]);
        for (ring, position) in (0..).zip(&mut positions.0) {
            *position = self.sync_word(ring, offset_of!(SyncRing, head))?;
        }
        Ok(positions)
    }

    fn sync_word(&self, ring: u32, offset: usize) -> Result<u64> {
        Ok(self
            .sync_rings
            .atomic_u64(ring, offset)?
            .load(Ordering::Acquire))
    }

    /// Appends the entry indexes recorded since `positions`, and advances `positions`. Returns the number of indexes
    /// that were overwritten before they were read.
    ///
    /// # Errors
    /// Fails if the map was opened read-only.
    pub fn sync_changes(
        &self,
        positions: &mut SyncPositions,
        entries: &mut Vec<u32>,
    ) -> Result<u64> {
        let mut overwritten = 0;
        for (ring, position) in (0..).zip(&mut positions.0) {
            let head = self.sync_word(ring, offset_of!(SyncRing, head))?;
            if *position > head {
                // The map was replaced by a new one.
                *position = 0;
            }
            let oldest = head.saturating_sub(SYNC_RING_SLOTS.into());
            overwritten += oldest.saturating_sub(*position);
            *position = (*position).max(oldest);
            while *position < head {
                let slot = (*position % u64::from(SYNC_RING_SLOTS)) as usize;
                let word = self.sync_word(ring, offset_of!(SyncRing, slots) + slot * 8)?;
                let (sequence, expected) = ((word >> 32) as u32, (*position + 1) as u32);
                if sequence == expected {
                    entries.push(word as u32);
                } else if sequence.wrapping_sub(expected) as i32 > 0 {
                    overwritten += 1;
                } else {
                    // Another CPU has reserved the slot and is about to write it.
                    break;
                }
                *position += 1;
            }
        }
        Ok(overwritten)
    }

    /// Sets whether flows that change state are recorded.
    ///
    /// # Errors
    /// Fails if the map was opened read-only.
    pub fn set_sync(&self, enabled: bool) -> Result<()> {
        let mut settings = self.settings()?;
        settings.flags &= !SETTINGS_SYNC;
        settings.flags |= if enabled { SETTINGS_SYNC } else { 0 };
        self.set_settings(&settings)
    }
}

impl Dataplane {
    /// Inserts flows from a peer, and sets `result`, `entry_index` and `seen` of each.
    ///
    /// # Errors
    /// Fails if the kernel returns an error or the program rejects the request. The results of some flows are then not
    /// set.
    pub fn insert_flows(&self, flows: &mut [SyncFlow]) -> Result<()> {
        for batch in flows.chunks_mut(SYNC_BATCH as usize) {
            self.maps().sync_batch.set_all(0, batch)?;
            let request = Move {
                count: batch.len() as u32,
                ..Move::ZERO
            };
            let mut packet = [0; PACKET_LEN];
            packet[..size_of::<Move>()].copy_from_slice(pod::bytes(&request));
            self.test_run(PROGRAM, &TestInput::xdp(&packet))?
                .accepted_by(PROGRAM)?;
            for (index, flow) in (0..).zip(batch) {
                *flow = self.maps().sync_batch.get(index)?;
            }
        }
        Ok(())
    }
}
