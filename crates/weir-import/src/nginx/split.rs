//! `split_clients`: pools that a hash of a text selects.

use std::collections::HashMap;

use super::Context;
use super::target::{find_or_write_pool, parse_url, server_host, server_tls};
use super::tree::Node;
use super::variable::{Clients, replace_variables};
use crate::layer7::Action;
use crate::note::{Notes, Position};

/// All requests, in hundredths of a percent.
const ALL_REQUESTS: u64 = 10_000;

/// The `split_clients` blocks by the names of their variables.
#[derive(Clone, Debug, Default)]
pub(super) struct Splits {
    splits: HashMap<String, Split>,
}

/// A `split_clients` block.
#[derive(Clone, Debug)]
pub(super) struct Split {
    name: String,
    /// Text whose hash selects a part.
    hashed_text: String,
    /// Shares in hundredths of a percent, and values.
    parts: Vec<(u64, String)>,
    lines: Vec<Position>,
}

impl Splits {
    /// Reads the blocks, except for those that nginx rejects or that have no value for some requests.
    pub(super) fn read(nodes: &[Node]) -> Self {
        let blocks = nodes
            .iter()
            .filter(|node| node.keyword() == "split_clients");
        let splits = blocks.filter_map(parse_split);
        Self {
            splits: splits.map(|split| (split.name.clone(), split)).collect(),
        }
    }

    /// Returns the block whose variable is the host in a `proxy_pass`.
    pub(super) fn for_target(&self, line: &Node) -> Option<Split> {
        let target = line.word(1)?;
        let rest = target.split_once("://$").map(|(_, rest)| rest)?;
        let name = match rest.strip_prefix('{') {
            Some(inner) => inner.strip_suffix('}')?,
            None => rest,
        };
        self.splits.get(name).cloned()
    }
}

/// Parses a block; `None` = nginx rejects it, its shares do not add up to 100 %, or its text is not supported.
fn parse_split(node: &Node) -> Option<Split> {
    let clients = Clients {
        scheme: "",
        name: "",
        redirect: false,
    };
    let hashed_text = node.word(1)?;
    // The scheme depends on the server block.
    let has_scheme = hashed_text.contains("scheme") || hashed_text.contains("https");
    let hashed_text = replace_variables(hashed_text, clients).filter(|_| !has_scheme)?;
    let mut parts = Vec::new();
    let mut remaining = ALL_REQUESTS;
    for line in node.inner() {
        let share = match line.keyword() {
            "*" => remaining,
            share => parse_hundredths(share.strip_suffix('%')?)?,
        };
        remaining = remaining.checked_sub(share)?;
        parts.push((share, line.word(1).unwrap_or_default().to_owned()));
    }
    let mut lines = node.block_positions();
    lines.push(node.position);
    (remaining == 0).then(|| Split {
        name: node
            .word(2)
            .map(|name| name.trim_start_matches('$').to_owned())
            .unwrap_or_default(),
        hashed_text,
        parts,
        lines,
    })
}

/// Parses a number with at most two decimals, to hundredths.
fn parse_hundredths(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole: u64 = whole.parse().ok()?;
    let fraction: u64 = match fraction.len() {
        0 => 0,
        1 => fraction.parse::<u64>().ok()? * 10,
        2 => fraction.parse().ok()?,
        _ => return None,
    };
    whole
        .checked_mul(100)?
        .checked_add(fraction)
        .filter(|it| *it <= ALL_REQUESTS)
}

impl Split {
    /// Returns the action of a `proxy_pass` whose host is the variable.
    pub(super) fn action(
        &self,
        context: &mut Context<'_>,
        line: &Node,
        levels: &[&[Node]],
        notes: &mut Notes,
    ) -> Result<Action, String> {
        let target = line.word(1).unwrap_or_default();
        let scheme = target
            .split_once("://")
            .map_or("http", |(scheme, _)| scheme);
        let mut pools = Vec::new();
        for (share, value) in self.parts.iter().filter(|(share, _)| *share > 0) {
            let url = parse_url(&format!("{scheme}://{value}"))?;
            if url.path.is_some() {
                return Err("a value of its variable has a path".to_owned());
            }
            let tls = match url.tls {
                true => server_tls(context, levels),
                false => Vec::new(),
            };
            let host = server_host(context, levels, &url, line.position);
            let pool_ref = find_or_write_pool(context, &url, (tls, host), line, notes)?;
            pools.push((pool_ref.pool, *share));
        }
        context.used.extend(self.lines.iter().copied());
        Ok(Action::Split {
            pools,
            by: self.hashed_text.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::parse_hundredths;

    #[test]
    fn percentages_have_at_most_two_decimals() {
        assert_eq!(parse_hundredths("0.5"), Some(50));
        assert_eq!(parse_hundredths("33.33"), Some(3333));
        assert_eq!(parse_hundredths("100"), Some(10_000));
        for invalid in ["100.01", "0.005", "x", ""] {
            assert_eq!(parse_hundredths(invalid), None, "{invalid}");
        }
    }
}
