//! What `nft -j list ruleset` prints: chains, rules and sets. iptables, where it is the one that writes nftables, is in it too.

use std::collections::HashMap;

use serde_json::Value;

/// Family and table, in which names of chains and sets are unique, and the name.
type Key = (String, String, String);

/// Where a base chain is entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Base {
    pub(super) hook: String,
    pub(super) priority: i64,
    /// Whether what no rule decides is dropped.
    pub(super) drops: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Chain {
    pub(super) family: String,
    pub(super) table: String,
    pub(super) name: String,
    pub(super) base: Option<Base>,
    /// Each a list of expressions.
    pub(super) rules: Vec<Vec<Value>>,
}

/// All tables of a network namespace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ruleset {
    chains: Vec<Chain>,
    by_name: HashMap<Key, usize>,
    sets: HashMap<Key, Vec<Value>>,
}

fn text(object: &Value, key: &str) -> String {
    object[key].as_str().unwrap_or_default().to_owned()
}

impl Ruleset {
    /// Reads what nft prints; `None` = it is something else.
    pub(crate) fn parse(json: &str) -> Option<Self> {
        let document: Value = serde_json::from_str(json).ok()?;
        let mut ruleset = Self::default();
        for object in document.get("nftables")?.as_array()? {
            if let Some(chain) = object.get("chain") {
                ruleset.add_chain(chain);
            } else if let Some(rule) = object.get("rule") {
                ruleset.add_rule(rule);
            } else if let Some(set) = object.get("set").or_else(|| object.get("map")) {
                let elements = set["elem"].as_array().cloned().unwrap_or_default();
                ruleset.sets.insert(key(set, "name"), elements);
            }
        }
        Some(ruleset)
    }

    fn add_chain(&mut self, chain: &Value) {
        let base = chain.get("hook").map(|_| Base {
            hook: text(chain, "hook"),
            priority: chain["prio"].as_i64().unwrap_or_default(),
            drops: chain["policy"] == "drop",
        });
        self.by_name.insert(key(chain, "name"), self.chains.len());
        self.chains.push(Chain {
            family: text(chain, "family"),
            table: text(chain, "table"),
            name: text(chain, "name"),
            base,
            rules: Vec::new(),
        });
    }

    fn add_rule(&mut self, rule: &Value) {
        let expressions = rule["expr"].as_array().cloned().unwrap_or_default();
        let chain = self.by_name.get(&key(rule, "chain"));
        if let Some(chain) = chain.and_then(|at| self.chains.get_mut(*at)) {
            chain.rules.push(expressions);
        }
    }

    /// The base chains that a packet of that family meets at a hook, in order.
    pub(super) fn at(&self, hook: &str, is_ipv4: bool) -> Vec<&Chain> {
        let family = if is_ipv4 { "ip" } else { "ip6" };
        let fits = |chain: &&Chain| {
            let own = chain.family == family || chain.family == "inet" || chain.family == "netdev";
            own && chain.base.as_ref().is_some_and(|base| base.hook == hook)
        };
        let mut chains: Vec<&Chain> = self.chains.iter().filter(fits).collect();
        chains.sort_by_key(|chain| chain.base.as_ref().map(|base| base.priority));
        chains
    }

    /// The chain that a rule of `from` jumps to.
    pub(super) fn chain(&self, from: &Chain, name: &str) -> Option<&Chain> {
        let key = (from.family.clone(), from.table.clone(), name.to_owned());
        self.chains.get(*self.by_name.get(&key)?)
    }

    /// The elements of a set or map that a rule of `from` names.
    pub(super) fn set(&self, from: &Chain, name: &str) -> Option<&[Value]> {
        let key = (from.family.clone(), from.table.clone(), name.to_owned());
        self.sets.get(&key).map(Vec::as_slice)
    }
}

fn key(object: &Value, name: &str) -> Key {
    (
        text(object, "family"),
        text(object, "table"),
        text(object, name),
    )
}
