//! Defines `[map.NAME]`: values by key, from a file or from the configuration.
//!
//! Except with regular expressions, the cost of a lookup does not depend on the number of entries.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;

use foldhash::fast::FixedState;

use crate::{Network, RegexSet, TextRegex};

named_enum! {
    /// How keys are compared.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum MapKind {
        /// The key equals the whole text.
        Exact = "exact",
        /// The key is a prefix of the text; the longest key wins.
        Prefix = "prefix",
        /// The key is a suffix of the text; the longest key wins.
        Suffix = "suffix",
        /// The key is a network that contains the text, an address; the longest prefix wins.
        Network = "network",
        /// The key is a regular expression that matches the text; the first match wins.
        Regex = "regex",
    }
}

/// Why the entries of a map cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MapError {
    /// The key of an entry is not valid: the index of the entry, from 0, and the reason.
    Key(usize, String),
    /// All expressions together need too much memory.
    TooLarge,
}

/// The entries of a map, indexed.
pub struct MapEntries {
    kind: MapKind,
    ignore_case: bool,
    /// Keys and indexes of values, in order.
    entries: Vec<(String, u32)>,
    /// Distinct values.
    values: Vec<String>,
    /// The index of the value for each key. A fixed hash is sufficient, because clients do not add keys and so cannot
    /// slow lookups down.
    by_key: HashMap<Box<[u8]>, u32, FixedState>,
    /// Distinct key lengths, longest first. For networks: the prefix lengths of IPv4, and those of IPv6 plus 64.
    lengths: Vec<u16>,
    regexes: Option<RegexSet>,
}

/// Offset of IPv6 prefix lengths in `lengths`.
const V6_OFFSET: u16 = 64;

impl MapEntries {
    /// Creates the index from entries. If a key occurs several times, the first entry applies.
    ///
    /// # Errors
    /// Returns an error if a key is not valid for the kind, or if the expressions need too much memory.
    pub fn new(
        kind: MapKind,
        ignore_case: bool,
        list: impl IntoIterator<Item = (String, String)>,
        network: impl Fn(&str) -> Option<Network>,
    ) -> Result<Self, MapError> {
        let mut value_indexes: HashMap<String, u32> = HashMap::new();
        let (mut values, mut entries) = (Vec::new(), Vec::new());
        let mut by_key: HashMap<Box<[u8]>, u32, FixedState> = HashMap::default();
        let mut lengths = Vec::new();
        let mut expressions = Vec::new();
        for (entry_index, (key, value)) in list.into_iter().enumerate() {
            let value_index = *value_indexes.entry(value).or_insert_with_key(|value| {
                values.push(value.clone());
                u32::try_from(values.len() - 1).unwrap_or(u32::MAX)
            });
            match kind {
                MapKind::Exact | MapKind::Prefix | MapKind::Suffix => {
                    let bytes = fold_case(key.as_bytes(), ignore_case);
                    lengths.push(u16::try_from(bytes.len()).map_err(|_| {
                        MapError::Key(entry_index, "it is longer than 65535 bytes".to_owned())
                    })?);
                    by_key
                        .entry(bytes.into_owned().into())
                        .or_insert(value_index);
                }
                MapKind::Network => {
                    let found = network(&key).ok_or_else(|| {
                        MapError::Key(entry_index, "it is not a network".to_owned())
                    })?;
                    let length = length_of(found.address, found.prefix);
                    lengths.push(length);
                    by_key
                        .entry(masked_key(found.address, length).as_bytes().into())
                        .or_insert(value_index);
                }
                MapKind::Regex => {
                    let compiled = match ignore_case {
                        true => TextRegex::ignoring_case(&key),
                        false => TextRegex::new(&key),
                    };
                    let compiled =
                        compiled.map_err(|error| MapError::Key(entry_index, error.to_string()))?;
                    expressions.push(compiled);
                }
            }
            entries.push((key, value_index));
        }
        lengths.sort_unstable_by(|one, other| other.cmp(one));
        lengths.dedup();
        let regexes = match kind {
            MapKind::Regex => {
                let set = match ignore_case {
                    true => RegexSet::ignoring_case(&expressions),
                    false => RegexSet::new(&expressions),
                };
                Some(set.ok_or(MapError::TooLarge)?)
            }
            MapKind::Exact | MapKind::Prefix | MapKind::Suffix | MapKind::Network => None,
        };
        Ok(Self {
            kind,
            ignore_case,
            entries,
            values,
            by_key,
            lengths,
            regexes,
        })
    }

    /// Creates a map without entries.
    pub fn empty() -> Self {
        Self {
            kind: MapKind::Exact,
            ignore_case: false,
            entries: Vec::new(),
            values: Vec::new(),
            by_key: HashMap::default(),
            lengths: Vec::new(),
            regexes: None,
        }
    }

    /// Returns how keys are compared.
    pub const fn kind(&self) -> MapKind {
        self.kind
    }

    /// Returns whether ASCII case is ignored.
    pub const fn ignores_case(&self) -> bool {
        self.ignore_case
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the distinct values.
    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// Returns the index in [`values`](Self::values) of the value for a text; `None` if no key matches.
    pub fn find(&self, text: &[u8]) -> Option<usize> {
        let get = |key: &[u8]| self.by_key.get(key).map(|index| *index as usize);
        match self.kind {
            MapKind::Exact => get(&fold_case(text, self.ignore_case)),
            MapKind::Prefix | MapKind::Suffix => {
                let text = fold_case(text, self.ignore_case);
                let mut lengths = self.lengths.iter().map(|length| usize::from(*length));
                let is_prefix = self.kind == MapKind::Prefix;
                lengths.find_map(|length| match is_prefix {
                    true => get(text.get(..length)?),
                    false => get(text.get(text.len().checked_sub(length)?..)?),
                })
            }
            MapKind::Network => {
                let address: IpAddr = std::str::from_utf8(text).ok()?.parse().ok()?;
                let is_v6 = address.is_ipv6();
                let lengths = self.lengths.iter();
                let mut family_lengths = lengths.filter(|length| (**length >= V6_OFFSET) == is_v6);
                family_lengths.find_map(|length| get(masked_key(address, *length).as_bytes()))
            }
            MapKind::Regex => {
                let set = self.regexes.as_ref()?;
                let first = set.matches(text).iter().next()?;
                self.entries.get(first).map(|(_, value)| *value as usize)
            }
        }
    }
}

fn length_of(address: IpAddr, prefix: u8) -> u16 {
    match address {
        IpAddr::V4(_) => u16::from(prefix),
        IpAddr::V6(_) => u16::from(prefix) + V6_OFFSET,
    }
}

/// The lookup key of a network: its prefix length, and its address without the host bits.
struct NetworkKey {
    bytes: [u8; 18],
    len: usize,
}

impl NetworkKey {
    fn new(length: u16, address: &[u8]) -> Self {
        let mut bytes = [0; 18];
        bytes[..2].copy_from_slice(&length.to_be_bytes());
        bytes[2..2 + address.len()].copy_from_slice(address);
        let len = 2 + address.len();
        Self { bytes, len }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Returns the lookup key of the network with this prefix length that contains the address.
fn masked_key(address: IpAddr, length: u16) -> NetworkKey {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            NetworkKey::new(length, &(address.to_bits() & mask).to_be_bytes())
        }
        IpAddr::V6(address) => {
            let prefix = u32::from(length.saturating_sub(V6_OFFSET));
            let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
            NetworkKey::new(length, &(address.to_bits() & mask).to_be_bytes())
        }
    }
}

/// Returns the form of the text that is compared with keys.
fn fold_case(text: &[u8], ignore_case: bool) -> Cow<'_, [u8]> {
    match ignore_case && text.iter().any(u8::is_ascii_uppercase) {
        true => Cow::Owned(text.to_ascii_lowercase()),
        false => Cow::Borrowed(text),
    }
}

impl PartialEq for MapEntries {
    fn eq(&self, other: &Self) -> bool {
        (self.kind, self.ignore_case) == (other.kind, other.ignore_case)
            && self.entries == other.entries
            && self.values == other.values
    }
}

impl Eq for MapEntries {}

impl Hash for MapEntries {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.kind, self.ignore_case, &self.entries, &self.values).hash(state);
    }
}

/// Prints only the number of entries.
impl fmt::Debug for MapEntries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MapEntries({})", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Option<Network> {
        let (address, prefix) = text.split_once('/')?;
        Some(Network {
            address: address.parse().ok()?,
            prefix: prefix.parse().ok()?,
        })
    }

    fn map(kind: MapKind, ignore_case: bool, list: &[(&str, &str)]) -> MapEntries {
        let list = list
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        MapEntries::new(kind, ignore_case, list, network).unwrap()
    }

    fn values<'a>(map: &'a MapEntries, texts: &[&str]) -> Vec<&'a str> {
        let value = |text: &&str| {
            let found = map.find(text.as_bytes());
            found.map_or("none", |index| map.values()[index].as_str())
        };
        texts.iter().map(value).collect()
    }

    #[test]
    fn exact_key_matches_and_first_duplicate_applies() {
        let exact = map(MapKind::Exact, false, &[("a", "1"), ("a", "2"), ("B", "3")]);
        assert_eq!(
            values(&exact, &["a", "A", "B", ""]),
            ["1", "none", "3", "none"]
        );
        let ignoring_case = map(MapKind::Exact, true, &[("a", "1"), ("B", "3")]);
        assert_eq!(values(&ignoring_case, &["A", "b"]), ["1", "3"]);
    }

    #[test]
    fn longest_prefix_and_suffix_win() {
        let prefix = map(
            MapKind::Prefix,
            false,
            &[("/", "r"), ("/a/b", "ab"), ("/a", "a")],
        );
        assert_eq!(
            values(&prefix, &["/x", "/ab", "/a/bc", "x"]),
            ["r", "a", "ab", "none"]
        );
        let suffix = map(
            MapKind::Suffix,
            false,
            &[(".example", "e"), (".b.example", "b")],
        );
        assert_eq!(
            values(&suffix, &["a.b.example", "c.example", "e"]),
            ["b", "e", "none"]
        );
    }

    #[test]
    fn longest_network_wins_in_both_families() {
        let list = [
            ("0.0.0.0/0", "any"),
            ("10.0.0.0/8", "ten"),
            ("10.1.2.3/32", "one"),
            ("2001:db8::/32", "doc"),
            ("2001:db8::1/128", "host"),
        ];
        let map = map(MapKind::Network, false, &list);
        let texts = [
            "192.0.2.1",
            "10.9.9.9",
            "10.1.2.3",
            "2001:db8::2",
            "2001:db8::1",
            "::1",
            "x",
        ];
        let expected = ["any", "ten", "one", "doc", "host", "none", "none"];
        assert_eq!(values(&map, &texts), expected);
    }

    #[test]
    fn first_expression_wins_and_invalid_keys_are_reported() {
        let regex = map(MapKind::Regex, false, &[("^/a", "1"), ("b$", "2")]);
        assert_eq!(values(&regex, &["/ab", "/b", "/c"]), ["1", "2", "none"]);
        let regex = map(MapKind::Regex, true, &[("^/A", "1"), ("b$", "2")]);
        assert_eq!(values(&regex, &["/ab", "/B", "/c"]), ["1", "2", "none"]);
        let error = |kind, key: &str| {
            let list = [(key.to_owned(), String::new())];
            MapEntries::new(kind, false, list, network).unwrap_err()
        };
        assert!(matches!(error(MapKind::Regex, "("), MapError::Key(0, _)));
        assert!(matches!(error(MapKind::Network, "x"), MapError::Key(0, _)));
    }
}
