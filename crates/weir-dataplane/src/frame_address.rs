//! Writes the MAC addresses to which frames are this host's (`weir_macs`).

use std::collections::BTreeSet;
use std::mem::offset_of;

use weir_abi::{MAC_ANY, MacRow};

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
        let mut words: BTreeSet<u64> = addresses
            .iter()
            .map(|(ifindex, mac)| MacRow::word(*ifindex, *mac))
            .collect();
        let (mut there, mut new) = (BTreeSet::new(), false);
        for index in 0..self.macs.entries() {
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
        Ok(())
    }

    fn write_macs(&self, words: &BTreeSet<u64>) -> Result<()> {
        let mut rows = vec![BTreeSet::new(); self.macs.entries() as usize];
        for word in words {
            if let Some(row) = rows.get_mut(MacRow::index(*word) as usize) {
                row.insert(*word);
            }
        }
        for (index, wanted) in (0u32..).zip(rows) {
            let before = self.macs.get(index)?.words;
            for (position, word) in replaced(before, wanted).into_iter().enumerate() {
                if before[position] != word {
                    let offset = offset_of!(MacRow, words) + position * size_of::<u64>();
                    self.macs.store_u64(index, offset, word)?;
                }
            }
        }
        Ok(())
    }
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
    fn row_that_is_too_short_accepts_all() {
        let row = replaced([0; 8], (1..=9).collect());
        assert_eq!(row, [1, 2, 3, 4, 5, 6, 7, MAC_ANY]);
        let row = replaced(row, (2..=9).collect());
        assert_eq!(row, [8, 2, 3, 4, 5, 6, 7, 9]);
        assert_eq!(replaced([0; 8], (1..=8).collect())[7], 8);
    }
}
