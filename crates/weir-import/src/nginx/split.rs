//! Converts `split_clients`, which selects pools by the hash of a string.

use std::collections::HashMap;

use super::Context;
use super::target::{find_or_write_pool, parse_url, server_host, server_tls};
use super::tree::Node;
use super::variable::{ServerVariables, replace_variables};
use crate::layer7::Action;
use crate::note::{Notes, Position};

/// All requests, in hundredths of a percent.
const ALL_REQUESTS: u64 = 10_000;

/// The splits by the names of their variables.
#[derive(Clone, Debug, Default)]
pub(super) struct Splits {
    splits: HashMap<String, Split>,
}

/// A `split_clients` block, or a split that was derived from one.
#[derive(Clone, Debug)]
pub(super) struct Split {
    name: String,
    /// String whose hash selects a part.
    hashed_text: String,
    /// Shares in hundredths of a percent, and values.
    parts: Vec<(u64, String)>,
    lines: Vec<Position>,
    /// Lines of `if` blocks that the split replaces.
    conditions: Vec<Position>,
}

impl Splits {
    /// Reads the blocks, except for those that nginx rejects, and the maps of their values.
    pub(super) fn read(nodes: &[Node]) -> Self {
        let blocks = nodes
            .iter()
            .filter(|node| node.keyword() == "split_clients");
        let mut splits = Self::default();
        for split in blocks.filter_map(parse_split) {
            splits.splits.insert(split.name.clone(), split);
        }
        let mut maps: Vec<&Node> = nodes.iter().filter(|it| it.keyword() == "map").collect();
        // A map can precede the map whose variable it uses.
        loop {
            let count = maps.len();
            maps.retain(|map| match splits.map_values(map) {
                Some(split) => {
                    splits.splits.insert(split.name.clone(), split);
                    false
                }
                None => true,
            });
            if maps.len() == count {
                return splits;
            }
        }
    }

    /// Returns the split of a map's variable, or `None` if the map does not depend on a split or is not supported.
    fn map_values(&self, map: &Node) -> Option<Split> {
        let [_, source, name] = map.words.as_slice() else {
            return None;
        };
        let split = self.splits.get(variable_name(source)?)?;
        let name = variable_name(name)?;
        let is_text =
            |line: &Node| line.words.len() == 2 && line.words.iter().all(|it| is_plain(it));
        if !map.inner().iter().all(is_text) {
            return None;
        }
        let value_of = |key: &str| {
            let mut lines = map.inner().iter();
            let line = lines.find(|line| line.keyword().eq_ignore_ascii_case(key))?;
            line.word(1).map(str::to_owned)
        };
        let mapped = |value: &str| {
            let found = value_of(value).filter(|_| value != "default");
            found.or_else(|| value_of("default")).unwrap_or_default()
        };
        let parts = split.parts.iter();
        let parts = parts.map(|(share, value)| (*share, mapped(value)));
        let lines = split.lines.iter().copied();
        let lines = lines.chain(map.block_positions()).chain([map.position]);
        Some(Split {
            name: name.to_owned(),
            parts: parts.collect(),
            lines: lines.collect(),
            ..split.clone()
        })
    }

    /// Replaces `if ($variable = value) { proxy_pass …; }` in the locations of server blocks with one `proxy_pass`
    /// whose target is the variable of a new split.
    pub(super) fn merge_conditions(&mut self, nodes: &mut [Node]) {
        if self.splits.is_empty() {
            return;
        }
        for node in nodes {
            if !matches!(node.keyword(), "server" | "location") {
                continue;
            }
            if let Some(lines) = node.block.as_mut() {
                self.merge_conditions(lines);
            }
            if node.keyword() == "location"
                && let Some(lines) = self.merge_lines(node.inner())
            {
                node.block = Some(lines);
            }
        }
    }

    /// Returns the lines of a location with one `proxy_pass`, or `None` if no `if` compares the variable of a split, or
    /// the blocks cannot be merged.
    fn merge_lines(&mut self, lines: &[Node]) -> Option<Vec<Node>> {
        let conditions: Vec<(&Node, Comparison<'_>)> = lines
            .iter()
            .filter_map(|line| Some((line, self.comparison(line)?)))
            .collect();
        let (first, comparison) = conditions.first()?;
        let split = self.splits.get(comparison.name)?;
        let is_same = |(_, it): &(&Node, Comparison<'_>)| it.name == comparison.name;
        let mut passes = lines.iter().filter(|line| line.keyword() == "proxy_pass");
        let default = passes.next();
        if !conditions.iter().all(is_same) || passes.next().is_some() {
            return None;
        }
        let target_of = |value: &str| {
            // If several blocks apply, nginx uses the last one.
            let mut conditions = conditions.iter().rev();
            let found = conditions.find(|(_, it)| it.holds(value));
            found.map_or_else(|| default?.word(1), |(_, it)| Some(it.target))
        };
        let parts = split.parts.iter();
        let parts = parts.map(|(share, value)| Some((*share, target_of(value)?.to_owned())));
        let parts: Vec<(u64, String)> = parts.collect::<Option<_>>()?;
        let line = default.unwrap_or(first);
        let name = format!("{}@{}", split.name, self.splits.len());
        let positions = conditions
            .iter()
            .flat_map(|(node, _)| node.block_positions().into_iter().chain([node.position]));
        let merged = Split {
            name: name.clone(),
            parts,
            conditions: positions.collect(),
            ..split.clone()
        };
        let words = vec!["proxy_pass".to_owned(), format!("${name}")];
        let pass = Node::new(line.position, words, None);
        let merged_lines: Vec<Position> = conditions.iter().map(|it| it.0.position).collect();
        let is_other =
            |line: &&Node| line.keyword() != "proxy_pass" && !merged_lines.contains(&line.position);
        let others = lines.iter().filter(is_other).cloned();
        let lines = others.chain([pass]).collect();
        self.splits.insert(name, merged);
        Some(lines)
    }

    /// Parses `if ($variable = value) { proxy_pass …; }` with the variable of a split.
    fn comparison<'n>(&self, node: &'n Node) -> Option<Comparison<'n>> {
        let words: Vec<&str> = node.words.iter().map(String::as_str).collect();
        // A value in quotes and the closing parenthesis are separate words.
        let (variable, operator, value) = match words[..] {
            ["if", variable, operator, value] => (variable, operator, value.strip_suffix(')')?),
            ["if", variable, operator, value, ")"] => (variable, operator, value),
            _ => return None,
        };
        if !matches!(operator, "=" | "!=") {
            return None;
        }
        let [pass] = node.inner() else {
            return None;
        };
        let name = variable_name(variable.strip_prefix('(')?)?;
        let target = pass.word(1).filter(|_| pass.keyword() == "proxy_pass")?;
        self.splits.contains_key(name).then(|| Comparison {
            name,
            is_equal: operator == "=",
            value,
            target,
        })
    }

    /// Returns the split that selects the target of a `proxy_pass`. The split's variable is the host or the whole URL.
    pub(super) fn for_target(&self, line: &Node) -> Option<Split> {
        let target = line.word(1)?;
        // Servers get the path as received, as if the URL had no path.
        let target = target.strip_suffix("$request_uri").unwrap_or(target);
        let (scheme, variable) = match target.split_once("://") {
            Some((scheme, variable)) => (Some(scheme), variable),
            None => (None, target),
        };
        let split = self.splits.get(variable_name(variable)?)?;
        let with_scheme = |value: &String| match scheme {
            Some(scheme) if !value.is_empty() => format!("{scheme}://{value}"),
            _ => value.clone(),
        };
        let parts = split.parts.iter();
        let parts = parts.map(|(share, value)| (*share, with_scheme(value)));
        Some(Split {
            parts: parts.collect(),
            ..split.clone()
        })
    }
}

/// A condition of an `if` on the variable of a split, and the `proxy_pass` in its block.
struct Comparison<'n> {
    name: &'n str,
    is_equal: bool,
    value: &'n str,
    target: &'n str,
}

impl Comparison<'_> {
    fn holds(&self, value: &str) -> bool {
        (value == self.value) == self.is_equal
    }
}

/// Returns the name in `$name` or `${name}`.
fn variable_name(text: &str) -> Option<&str> {
    let name = text.strip_prefix('$')?;
    let name = match name.strip_prefix('{') {
        Some(inner) => inner.strip_suffix('}')?,
        None => name,
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '@';
    (!name.is_empty() && name.chars().all(is_name)).then_some(name)
}

/// Returns whether a key or value of a map is fixed text, without regular expressions, escapes or variables.
fn is_plain(text: &str) -> bool {
    !text.starts_with(['~', '\\']) && !text.contains('$')
}

/// Parses a block. Returns `None` if nginx rejects the block or the hashed string is not supported.
fn parse_split(node: &Node) -> Option<Split> {
    let variables = ServerVariables::new("", "");
    let hashed_text = node.word(1)?;
    // The scheme depends on the server block.
    let has_scheme = hashed_text.contains("scheme") || hashed_text.contains("https");
    let hashed_text = replace_variables(hashed_text, variables).filter(|_| !has_scheme)?;
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
    // For the other requests, the variable is empty.
    if remaining > 0 {
        parts.push((remaining, String::new()));
    }
    Some(Split {
        name: variable_name(node.word(2)?)?.to_owned(),
        hashed_text,
        parts,
        lines,
        conditions: Vec::new(),
    })
}

/// Parses a number with at most two decimals, and returns hundredths.
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
    /// Returns the share, in hundredths of a percent, and the value of the only part whose value is not empty. Returns
    /// `None` unless there is exactly one.
    pub(super) fn only_part(&self) -> Option<(u64, &str)> {
        let mut parts = self.parts.iter().filter(|(_, value)| !value.is_empty());
        let (share, value) = parts.next()?;
        parts.next().is_none().then_some((*share, value))
    }

    /// Returns the lines of the split.
    pub(super) fn lines(&self) -> &[Position] {
        &self.lines
    }

    /// Returns the action of a `proxy_pass` whose target is the split's variable.
    ///
    /// # Errors
    /// Returns why the `proxy_pass` cannot be imported.
    pub(super) fn action(
        &self,
        context: &mut Context<'_>,
        line: &Node,
        levels: &[&[Node]],
        notes: &mut Notes,
    ) -> Result<Action, String> {
        let contains = |node: &&Node| node.inner().iter().any(|it| it.position == line.position);
        let mut locations = context.mirror_locations.iter();
        let location = locations.find(contains);
        let is_mirror_location = location.is_some_and(|node| is_internal_target(context, node));
        // Requests from clients do not reach the internal location of a mirror.
        let only_part = self.only_part().filter(|_| is_mirror_location);
        let pools = match only_part {
            Some((share, value)) => Self {
                parts: vec![(share, value.to_owned())],
                ..self.clone()
            }
            .pools(context, line, levels, notes),
            None => self.pools(context, line, levels, notes),
        };
        if let (Ok([(pool, _)]), Some(_)) = (pools.as_deref(), only_part) {
            return Ok(Action::Pool(pool.clone()));
        }
        match &pools {
            Ok(_) => {
                let lines = self.lines.iter().chain(&self.conditions);
                context.used.extend(lines.copied());
            }
            Err(reason) => {
                for position in &self.conditions {
                    notes.add(*position, format!("not imported: {reason}"));
                }
            }
        }
        Ok(Action::Split {
            pools: pools?,
            hashed_text: self.hashed_text.clone(),
        })
    }

    /// Returns the pools with their shares.
    fn pools(
        &self,
        context: &mut Context<'_>,
        line: &Node,
        levels: &[&[Node]],
        notes: &mut Notes,
    ) -> Result<Vec<(String, u64)>, String> {
        let mut pools = Vec::new();
        for (share, value) in self.parts.iter().filter(|(share, _)| *share > 0) {
            if value.is_empty() {
                return Err("the split's variable is empty for some requests".to_owned());
            }
            let url = parse_url(value)?;
            if url.path.is_some() {
                return Err("a value of the split's variable has a path".to_owned());
            }
            let tls = match url.tls {
                true => server_tls(context, levels),
                false => Vec::new(),
            };
            let host = server_host(context, levels, &url, line.position);
            let pool_ref = find_or_write_pool(context, &url, (tls, host), line, notes)?;
            pools.push((pool_ref.pool, *share));
        }
        Ok(pools)
    }
}

/// Returns whether a line is a location of the current server block to which a `mirror` refers.
pub(super) fn is_mirror_target(context: &Context<'_>, node: &Node) -> bool {
    let mut targets = context.mirror_locations.iter();
    targets.any(|target| target.position == node.position)
}

/// Returns whether a line is a location to which a `mirror` refers and which clients cannot request.
pub(super) fn is_internal_target(context: &Context<'_>, node: &Node) -> bool {
    let mut lines = node.inner().iter();
    is_mirror_target(context, node) && lines.any(|line| line.keyword() == "internal")
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
