//! Reads the latency estimator's samples and writes the server costs.

use std::mem::offset_of;
use std::sync::atomic::{Ordering, fence};

use weir_abi::{
    COST_SHARE_MAX, Cost, LATENCY_REASONS, LATENCY_RING_SLOTS, LATENCY_RINGS, LatencyRing,
    LatencySample,
};

use crate::error::Result;
use crate::maps::Maps;

/// The position up to which each ring has been read.
#[derive(Clone, Debug)]
pub struct RingPositions([u64; LATENCY_RINGS as usize]);

impl Maps {
    /// Returns the current ends of the rings. Reading from them skips older samples.
    ///
    /// # Errors
    /// Fails if the map was opened read-only.
    pub fn latency_positions(&self) -> Result<RingPositions> {
        let mut positions = RingPositions([0; LATENCY_RINGS as usize]);
        for (ring, position) in (0..).zip(&mut positions.0) {
            *position = self.ring_word(ring, offset_of!(LatencyRing, head))?;
        }
        Ok(positions)
    }

    fn ring_word(&self, ring: u32, offset: usize) -> Result<u64> {
        let word = self.latency_rings.atomic_u64(ring, offset)?;
        Ok(word.load(Ordering::Acquire))
    }

    /// Appends the samples since the last call. Skips samples that were overwritten before they were read.
    ///
    /// # Errors
    /// Fails if the map was opened read-only.
    pub fn latency_samples(
        &self,
        positions: &mut RingPositions,
        samples: &mut Vec<LatencySample>,
    ) -> Result<()> {
        for (ring, position) in (0..).zip(&mut positions.0) {
            let head = self.ring_word(ring, offset_of!(LatencyRing, head))?;
            let oldest = head.saturating_sub(LATENCY_RING_SLOTS.into());
            // A position beyond the head belongs to a ring that has been replaced.
            *position = (*position).clamp(oldest, head);
            while *position < head {
                if let Some(sample) = self.latency_sample(ring, *position)? {
                    samples.push(sample);
                }
                *position += 1;
            }
        }
        Ok(())
    }

    fn latency_sample(&self, ring: u32, position: u64) -> Result<Option<LatencySample>> {
        let slot = (position % u64::from(LATENCY_RING_SLOTS)) as usize;
        let base = offset_of!(LatencyRing, samples) + slot * size_of::<LatencySample>();
        let sequence = base + offset_of!(LatencySample, sequence);
        if self.ring_word(ring, sequence)? != position + 1 {
            return Ok(None);
        }
        let ns = self.ring_word(ring, base + offset_of!(LatencySample, ns))?;
        let dest = self
            .latency_rings
            .atomic_u32(ring, base + offset_of!(LatencySample, dest))?
            .load(Ordering::Relaxed);
        let method = self
            .latency_rings
            .atomic_u32(ring, base + offset_of!(LatencySample, method))?
            .load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let unchanged = self.ring_word(ring, sequence)? == position + 1;
        Ok(unchanged.then_some(LatencySample {
            ns: ns as i64,
            dest,
            method,
            sequence: position + 1,
            ..LatencySample::ZERO
        }))
    }

    /// Returns the estimator's counters, summed over all CPUs and indexed by reason number.
    ///
    /// # Errors
    /// Fails if the kernel rejects the request.
    pub fn latency_reasons(&self) -> Result<[u64; LATENCY_REASONS.len()]> {
        let mut sums = [0; LATENCY_REASONS.len()];
        self.latency_counts.for_each(|reason, values| {
            if let Some(sum) = sums.get_mut(reason as usize) {
                *sum = values.iter().copied().fold(0, u64::wrapping_add);
            }
        })?;
        Ok(sums)
    }

    /// Sets the cost of a server row other than 0.
    ///
    /// # Errors
    /// Fails if the row is outside the map, or the map was opened read-only.
    pub fn set_cost(&self, dest: u32, cost: Cost) -> Result<()> {
        let share = cost.share.min(COST_SHARE_MAX);
        let word = u64::from(cost.latency_us) << 32 | u64::from(share);
        self.costs.store_u64(dest, 0, word)
    }

    /// Sets the time of the last cost update, in nanoseconds of the monotonic clock.
    ///
    /// # Errors
    /// Fails if the map was opened read-only.
    pub fn refresh_costs_timestamp(&self, now_ns: u64) -> Result<()> {
        self.costs.store_u64(0, 0, now_ns)
    }

    /// Sets how many flows out of 65536 are sampled.
    ///
    /// # Errors
    /// Fails if the map was opened read-only.
    pub fn set_latency_sampling_rate(&self, flows: u32) -> Result<()> {
        let mut settings = self.settings()?;
        settings.latency_sample = flows;
        self.set_settings(&settings)
    }
}
