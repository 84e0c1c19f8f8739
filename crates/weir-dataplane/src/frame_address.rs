//! Writes the MAC addresses at which this host receives frames to the map `weir_macs`.

use std::collections::BTreeSet;
use std::mem::offset_of;

use weir_abi::{MAC_ANY, MAC_ROW_SINGLE, MAC_SINGLE_WORDS, MacRow};

use crate::error::Result;
use crate::maps::Maps;

/// The words of a row.
type Words = [u64; weir_abi::MAC_ROW_WORDS as usize];

impl Maps {
    /// Replaces the contents of the table with these addresses, each with the ingress device of its frames. XDP accepts
    /// all frames from a device that is not listed. An address that stays in the table always matches, and a device is
    /// listed only after all its addresses are written.
    ///
    /// # Errors
    /// Fails if the map was opened read-only.
    pub fn set_frame_addresses(&self, addresses: &BTreeSet<(u32, [u8; 6])>) -> Result<()> {
        let listed = addresses
            .iter()
            .map(|(ifindex, _)| MacRow::listed_word(*ifindex));
        let listed: BTreeSet<u64> = listed.collect();
        let single = single_device(addresses);
        // The words of this row match frames from any device: remove old words before a second device is listed.
        let remaining = self.macs.get(MAC_ROW_SINGLE)?.words;
        self.write_row(
            MAC_ROW_SINGLE,
            remaining.map(|word| if single.contains(&word) { word } else { 0 }),
        )?;
        let mut words: BTreeSet<u64> = addresses
            .iter()
            .map(|(ifindex, mac)| MacRow::word(*ifindex, *mac))
            .collect();
        let (mut present, mut has_new_device) = (BTreeSet::new(), false);
        for index in 0..MAC_ROW_SINGLE {
            present.extend(self.macs.get(index)?.words);
        }
        for word in listed {
            if present.contains(&word) {
                words.insert(word);
            } else {
                has_new_device = true;
            }
        }
        self.write_macs(&words)?;
        if has_new_device {
            words.extend(
                addresses
                    .iter()
                    .map(|(ifindex, _)| MacRow::listed_word(*ifindex)),
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
        for (index, new_words) in (0u32..).zip(rows) {
            let before = self.macs.get(index)?.words;
            self.write_row(index, new_row(before, new_words))?;
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

/// Returns the row for a single device: as many of its addresses as fit; empty if there are addresses of several
/// devices.
fn single_device(addresses: &BTreeSet<(u32, [u8; 6])>) -> Words {
    let mut row = [0; weir_abi::MAC_ROW_WORDS as usize];
    let devices: BTreeSet<u32> = addresses.iter().map(|(device, _)| *device).collect();
    if devices.len() == 1 {
        let free = row.iter_mut().take(MAC_SINGLE_WORDS as usize);
        for (free, (_, mac)) in free.zip(addresses) {
            *free = MacRow::single_device_word(*mac);
        }
    }
    row
}

/// Returns the new contents of a row, which are written in order of position. Words that stay in the row keep their
/// positions, so that packets find them during the update. If there are too many words, the last word accepts all
/// addresses.
fn new_row(before: Words, new_words: BTreeSet<u64>) -> Words {
    let mut missing = new_words.clone();
    let mut row = before.map(|word| if missing.remove(&word) { word } else { 0 });
    let free = row.iter_mut().filter(|word| **word == 0);
    for (free, word) in free.zip(&missing) {
        *free = *word;
    }
    if new_words.len() > row.len() {
        row[row.len() - 1] = MAC_ANY;
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_words_keep_their_position() {
        let row = new_row([0; 8], BTreeSet::from([7, 8, 9]));
        assert_eq!(row, [7, 8, 9, 0, 0, 0, 0, 0]);
        let row = new_row(row, BTreeSet::from([9, 5, 6]));
        assert_eq!(row, [5, 6, 9, 0, 0, 0, 0, 0]);
        assert_eq!(new_row(row, BTreeSet::new()), [0; 8]);
    }

    #[test]
    fn row_of_a_single_device_has_its_first_addresses() {
        let row_of = |devices: &[(u32, u8)]| {
            let addresses = devices
                .iter()
                .map(|(device, last)| (*device, [2, 0, 0, 0, 0, *last]));
            single_device(&addresses.collect())
        };
        let word = |last| MacRow::single_device_word([2, 0, 0, 0, 0, last]);
        assert_eq!(row_of(&[]), [0; 8]);
        assert_eq!(row_of(&[(5, 1)]), [word(1), 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(
            row_of(&[(5, 1), (5, 2), (5, 3)]),
            [word(1), word(2), 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(row_of(&[(5, 1), (6, 1)]), [0; 8]);
    }

    #[test]
    fn row_with_too_many_words_accepts_all_addresses() {
        let row = new_row([0; 8], (1..=9).collect());
        assert_eq!(row, [1, 2, 3, 4, 5, 6, 7, MAC_ANY]);
        let row = new_row(row, (2..=9).collect());
        assert_eq!(row, [8, 2, 3, 4, 5, 6, 7, 9]);
        assert_eq!(new_row([0; 8], (1..=8).collect())[7], 8);
    }
}
