//! Indexes hosts from files, so that the cost of a lookup does not depend on their number.

use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};

use crate::HostPattern;

/// Hosts from one or more files.
#[derive(Debug, Clone, Default)]
pub struct HostSet {
    /// Files, each with its hosts.
    files: Vec<(String, Vec<HostPattern>)>,
    exact: HashSet<String>,
    /// Suffixes with a leading dot.
    suffixes: HashSet<String>,
    /// Patterns that must be compared one by one: index of the file, and index of the host in it.
    unindexed: Vec<(usize, usize)>,
}

impl HostSet {
    /// Creates the index from the hosts of each file.
    pub fn new(files: Vec<(String, Vec<HostPattern>)>) -> Self {
        let mut set = Self::default();
        for (file_index, (_, hosts)) in files.iter().enumerate() {
            for (host_index, host) in hosts.iter().enumerate() {
                match host {
                    HostPattern::Exact(host) => {
                        set.exact.insert(host.clone());
                    }
                    HostPattern::Suffix(suffix) => {
                        set.suffixes.insert(suffix.clone());
                    }
                    HostPattern::Wildcard(_) | HostPattern::Regex(_) => {
                        set.unindexed.push((file_index, host_index))
                    }
                }
            }
        }
        Self { files, ..set }
    }

    /// Returns whether an exact name or a suffix matches a host, which must be in lower case.
    pub fn contains(&self, host: &str) -> bool {
        let mut dots = host.match_indices('.');
        self.exact.contains(host)
            || dots.any(|(offset, _)| offset > 0 && self.suffixes.contains(&host[offset..]))
    }

    /// Returns the patterns that [`contains`](Self::contains) does not compare.
    pub fn other_patterns(&self) -> impl Iterator<Item = &HostPattern> {
        self.unindexed
            .iter()
            .filter_map(|(file_index, host_index)| self.files.get(*file_index)?.1.get(*host_index))
    }
}

impl PartialEq for HostSet {
    fn eq(&self, other: &Self) -> bool {
        self.files == other.files
    }
}

impl Eq for HostSet {}

impl Hash for HostSet {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.files.hash(state);
    }
}

/// Formats the files with the number of their hosts.
impl fmt::Display for HostSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (file, hosts)) in self.files.iter().enumerate() {
            let separator = if index == 0 { "" } else { "|" };
            let plural = if hosts.len() == 1 { "" } else { "s" };
            write!(f, "{separator}{file} ({} host{plural})", hosts.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_suffixes_are_found_and_other_patterns_are_listed() {
        let hosts = vec![
            HostPattern::Exact("a.example".to_owned()),
            HostPattern::Suffix(".b.example".to_owned()),
            HostPattern::Wildcard("www.*".to_owned()),
        ];
        let set = HostSet::new(vec![("/f".to_owned(), hosts)]);
        for (host, expected) in [
            ("a.example", true),
            ("x.a.example", false),
            ("x.b.example", true),
            ("y.x.b.example", true),
            ("b.example", false),
            (".b.example", false),
        ] {
            assert_eq!(set.contains(host), expected, "{host}");
        }
        assert_eq!(set.other_patterns().count(), 1);
        assert_eq!(set.to_string(), "/f (3 hosts)");
    }
}
