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
