//! `split_clients`: pools that a hash of a text selects.

use std::collections::HashMap;

use super::Context;
use super::target::{host, pool, server_tls, url};
use super::tree::Node;
use super::variable::{Clients, replace};
use crate::layer7::Action;
use crate::note::{Notes, Position};

/// All requests, in hundredths of a percent.
const ALL: u64 = 10_000;

/// The `split_clients` blocks by the names of their variables.
#[derive(Clone, Debug, Default)]
pub(super) struct Splits {
    named: HashMap<String, Split>,
}

/// A `split_clients` block.
#[derive(Clone, Debug)]
pub(super) struct Split {
    name: String,
    by: String,
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
        let named = blocks.filter_map(split);
        Self {
            named: named.map(|split| (split.name.clone(), split)).collect(),
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
        self.named.get(name).cloned()
    }
}

/// Parses a block.
fn split(node: &Node) -> Option<Split> {
    let clients = Clients {
        scheme: "",
        name: "",
        redirect: false,
    };
    let by = node.word(1)?;
    // The scheme depends on the server block.
    let by = replace(by, clients).filter(|_| !by.contains("scheme") && !by.contains("https"))?;
    let mut parts = Vec::new();
    let mut rest = ALL;
    for line in node.inner() {
        let share = match line.keyword() {
            "*" => rest,
            share => hundredths(share.strip_suffix('%')?)?,
        };
        rest = rest.checked_sub(share)?;
        parts.push((share, line.word(1).unwrap_or_default().to_owned()));
    }
    let mut lines = node.lines();
    lines.push(node.position);
    (rest == 0).then(|| Split {
        name: node
            .word(2)
            .map(|name| name.trim_start_matches('$').to_owned())
            .unwrap_or_default(),
        by,
        parts,
        lines,
    })
}

/// Parses a number with at most two decimals, to hundredths.
fn hundredths(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let whole: u64 = whole.parse().ok()?;
    let part: u64 = match part.len() {
        0 => 0,
        1 => part.parse::<u64>().ok()? * 10,
        2 => part.parse().ok()?,
        _ => return None,
    };
    whole
        .checked_mul(100)?
        .checked_add(part)
        .filter(|it| *it <= ALL)
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
            let to = url(&format!("{scheme}://{value}"))?;
            if to.path.is_some() {
                return Err("a value of its variable has a path".to_owned());
            }
            let tls = match to.tls {
                true => server_tls(context, levels),
                false => Vec::new(),
            };
            let host = host(context, levels, &to, line.position);
            let found = pool(context, &to, (tls, host), line, notes)?;
            pools.push((found.pool, *share));
        }
        context.used.extend(self.lines.iter().copied());
        Ok(Action::Split {
            pools,
            by: self.by.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::hundredths;

    #[test]
    fn percentages_have_two_decimals() {
        assert_eq!(hundredths("0.5"), Some(50));
        assert_eq!(hundredths("33.33"), Some(3333));
        assert_eq!(hundredths("100"), Some(10_000));
        for wrong in ["100.01", "0.005", "x", ""] {
            assert_eq!(hundredths(wrong), None, "{wrong}");
        }
    }
}
