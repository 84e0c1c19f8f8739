//! Converts structs to elements of `weir_tables`.

use crate::{Element, Extent, Member};

impl Element {
    /// Packs words into elements of four words each, and pads the last element with zeros.
    pub fn pack(words: &[u32]) -> impl Iterator<Item = Self> {
        words.chunks(4).map(|chunk| {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            Self { word }
        })
    }
}

impl Extent {
    /// Returns the extent as map elements.
    #[must_use]
    pub const fn elements(&self) -> [Element; 5] {
        let Self {
            scheduler,
            flags,
            generation,
            list_at,
            list_len,
            hash_at,
            hash_len,
            spread_at,
            spread_len,
            max_weight,
            gcd,
            start_seq,
            start_weight,
            max_load,
            tree_at,
            tree_width,
            weight,
            former_at,
            former_len,
        } = *self;
        let [a, b, c, d, e, f, g, h] = weight.to_ne_bytes();
        let weight = [
            u32::from_ne_bytes([a, b, c, d]),
            u32::from_ne_bytes([e, f, g, h]),
        ];
        [
            Element {
                word: [scheduler, flags, generation, list_at],
            },
            Element {
                word: [list_len, hash_at, hash_len, spread_at],
            },
            Element {
                word: [spread_len, max_weight, gcd, start_seq],
            },
            Element {
                word: [start_weight, max_load, tree_at, tree_width],
            },
            Element {
                word: [weight[0], weight[1], former_at, former_len],
            },
        ]
    }
}

impl Member {
    /// Returns the member as a map element.
    #[must_use]
    pub const fn element(&self) -> Element {
        let Self {
            seq,
            dest,
            weight,
            live,
        } = *self;
        Element {
            word: [seq, dest, weight, live],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_packed_in_groups_of_four() {
        let pack = |words: &[u32]| -> Vec<[u32; 4]> {
            Element::pack(words).map(|element| element.word).collect()
        };
        assert_eq!(pack(&[]), [[0; 4]; 0]);
        assert_eq!(pack(&[1, 2, 3, 4]), [[1, 2, 3, 4]]);
        assert_eq!(pack(&[1, 2, 3, 4, 5]), [[1, 2, 3, 4], [5, 0, 0, 0]]);
    }

    /// The elements are the words of the struct in memory order.
    #[test]
    fn elements_contain_the_fields_in_struct_order() {
        let extent = Extent {
            scheduler: 0,
            flags: 1,
            generation: 2,
            list_at: 3,
            list_len: 4,
            hash_at: 5,
            hash_len: 6,
            spread_at: 7,
            spread_len: 8,
            max_weight: 9,
            gcd: 10,
            start_seq: 11,
            start_weight: 12,
            max_load: 13,
            tree_at: 14,
            tree_width: 15,
            weight: if cfg!(target_endian = "little") {
                17 << 32 | 16
            } else {
                16 << 32 | 17
            },
            former_at: 18,
            former_len: 19,
        };
        let words: Vec<u32> = extent.elements().iter().flat_map(|it| it.word).collect();
        assert_eq!(words, (0..20).collect::<Vec<u32>>());
        let member = Member {
            seq: 1,
            dest: 2,
            weight: 3,
            live: 4,
        };
        assert_eq!(member.element().word, [1, 2, 3, 4]);
    }
}
