//! Writes the MAC addresses to which frames are this host's (`weir_macs`).

use std::collections::BTreeSet;
use std::mem::offset_of;

use weir_abi::{MAC_ANY, MAC_ROW_SINGLE, MAC_SINGLE_WORDS, MacRow};

use crate::error::Result;
use crate::maps::Maps;

/// The words of a row.
type Words = [u64; weir_abi::MAC_ROW_WORDS as usize];

impl Maps {
    /// Replaces the table by these addresses, each with the ingress device of its frames. XDP accepts all frames from a
    /// device without addresses here. An address that remains is found at any time, and no device counts as listed
    /// before all its addresses are.
    ///
    /// # Errors
    /// Opened for reading.
    pub fn set_frame_addresses(&self, addresses: &BTreeSet<(u32, [u8; 6])>) -> Result<()> {
        let listed = addresses
            .iter()
            .map(|(ifindex, _)| MacRow::listed(*ifindex));
        let listed: BTreeSet<u64> = listed.collect();
        let single = single_device(addresses);
        // Before another device is listed, addresses without a device must not be accepted any longer.
        let remaining = self.macs.get(MAC_ROW_SINGLE)?.words;
        self.write_row(
            MAC_ROW_SINGLE,
            remaining.map(|word| if single.contains(&word) { word } else { 0 }),
        )?;
        let mut words: BTreeSet<u64> = addresses
            .iter()
            .map(|(ifindex, mac)| MacRow::word(*ifindex, *mac))
            .collect();
        let (mut there, mut new) = (BTreeSet::new(), false);
        for index in 0..MAC_ROW_SINGLE {
            there.extend(self.macs.get(index)?.words);
        }
        for word in listed {
            if there.contains(&word) {
                words.insert(word);
            } else {
                new = true;
            }
        }
        self.write_macs(&words)?;
        if new {
            words.extend(
                addresses
                    .iter()
                    .map(|(ifindex, _)| MacRow::listed(*ifindex)),
            );
            self.write_macs(&words)?;
        }
        self.write_row(MAC_ROW_SINGLE, single)
    }

    fn write_macs(&self, words: &BTreeSet<u64>) -> Result<()> {
        let mut rows = vec![BTreeSet::new(); MAC_ROW_SINGLE as usize];
        for word in words {
            if let Some(row) = rows.get_mut(MacRow::index(*word) as usize) {
                row.insert(*word);
            }
        }
        for (index, wanted) in (0u32..).zip(rows) {
            let before = self.macs.get(index)?.words;
            self.write_row(index, replaced(before, wanted))?;
        }
        Ok(())
    }

    fn write_row(&self, index: u32, words: Words) -> Result<()> {
        let before = self.macs.get(index)?.words;
        for (position, word) in words.into_iter().enumerate() {
            if before[position] != word {
                let offset = offset_of!(MacRow, words) + position * size_of::<u64>();
                self.macs.store_u64(index, offset, word)?;
            }
        }
        Ok(())
    }
}

/// The row of a single device: some of its addresses; empty if addresses of several devices are listed.
fn single_device(addresses: &BTreeSet<(u32, [u8; 6])>) -> Words {
    let mut row = [0; weir_abi::MAC_ROW_WORDS as usize];
    let devices: BTreeSet<u32> = addresses.iter().map(|(device, _)| *device).collect();
    if devices.len() == 1 {
        let free = row.iter_mut().take(MAC_SINGLE_WORDS as usize);
        for (free, (_, mac)) in free.zip(addresses) {
            *free = MacRow::single(*mac);
        }
    }
    row
}

/// The new contents of a row, written in the order of the positions. Words that remain keep their position, so that a
/// packet finds them in between; only if there are too many words does the last one accept all.
fn replaced(before: Words, wanted: BTreeSet<u64>) -> Words {
    let mut missing = wanted.clone();
    let mut row = before.map(|word| if missing.remove(&word) { word } else { 0 });
    let free = row.iter_mut().filter(|word| **word == 0);
    for (free, word) in free.zip(&missing) {
        *free = *word;
    }
    if wanted.len() > row.len() {
        row[row.len() - 1] = MAC_ANY;
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_words_keep_their_position() {
        let row = replaced([0; 8], BTreeSet::from([7, 8, 9]));
        assert_eq!(row, [7, 8, 9, 0, 0, 0, 0, 0]);
        let row = replaced(row, BTreeSet::from([9, 5, 6]));
        assert_eq!(row, [5, 6, 9, 0, 0, 0, 0, 0]);
        assert_eq!(replaced(row, BTreeSet::new()), [0; 8]);
    }

    #[test]
    fn row_of_a_single_device_has_its_first_addresses() {
        let of = |devices: &[(u32, u8)]| {
            let addresses = devices
                .iter()
                .map(|(device, last)| (*device, [2, 0, 0, 0, 0, *last]));
            single_device(&addresses.collect())
        };
        let word = |last| MacRow::single([2, 0, 0, 0, 0, last]);
        assert_eq!(of(&[]), [0; 8]);
        assert_eq!(of(&[(5, 1)]), [word(1), 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(
            of(&[(5, 1), (5, 2), (5, 3)]),
            [word(1), word(2), 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(of(&[(5, 1), (6, 1)]), [0; 8]);
    }

    #[test]
    fn row_that_is_too_short_accepts_all() {
        let row = replaced([0; 8], (1..=9).collect());
        assert_eq!(row, [1, 2, 3, 4, 5, 6, 7, MAC_ANY]);
        let row = replaced(row, (2..=9).collect());
        assert_eq!(row, [8, 2, 3, 4, 5, 6, 7, 9]);
        assert_eq!(replaced([0; 8], (1..=8).collect())[7], 8);
    }
}
