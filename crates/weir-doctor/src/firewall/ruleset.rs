//! Parses the chains, rules and sets in the output of `nft -j list ruleset`, which includes the rules of iptables-nft.
//! [`legacy`](super::legacy) adds the tables of iptables-legacy.

use std::collections::HashMap;

use serde_json::Value;

use super::tool::Tool;

/// The tool, family, table and name that identify a chain or set.
type Key = (Tool, String, String, String);

/// The properties of a base chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BaseChain {
    pub(super) hook: String,
    pub(super) priority: i64,
    /// Whether the policy drops packets.
    pub(super) policy_drops: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Chain {
    pub(super) tool: Tool,
    pub(super) family: String,
    pub(super) table: String,
    pub(super) name: String,
    pub(super) base: Option<BaseChain>,
    /// The rules; each is a list of expressions.
    pub(super) rules: Vec<Vec<Value>>,
}

/// All tables of a network namespace.
#[derive(Clone, Debug, Default)]
pub struct Ruleset {
    chains: Vec<Chain>,
    by_name: HashMap<Key, usize>,
    sets: HashMap<Key, Vec<Value>>,
}

fn string_field(object: &Value, key: &str) -> String {
    object[key].as_str().unwrap_or_default().to_owned()
}

impl Ruleset {
    /// Parses the output of nft. Returns `None` if the output is malformed.
    pub fn parse(json: &str) -> Option<Self> {
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
        let base = chain.get("hook").map(|_| BaseChain {
            hook: string_field(chain, "hook"),
            priority: chain["prio"].as_i64().unwrap_or_default(),
            policy_drops: chain["policy"] == "drop",
        });
        self.push_chain(Chain {
            tool: Tool::Nft,
            family: string_field(chain, "family"),
            table: string_field(chain, "table"),
            name: string_field(chain, "name"),
            base,
            rules: Vec::new(),
        });
    }

    fn add_rule(&mut self, rule: &Value) {
        let expressions = rule["expr"].as_array().cloned().unwrap_or_default();
        self.push_rule_to(&key(rule, "chain"), expressions);
    }

    pub(super) fn push_chain(&mut self, chain: Chain) {
        self.by_name
            .insert(chain.key(&chain.name), self.chains.len());
        self.chains.push(chain);
    }

    pub(super) fn has_chain(&self, tool: Tool, table: &str, chain: &str) -> bool {
        self.by_name.contains_key(&iptables_key(tool, table, chain))
    }

    pub(super) fn push_rule(&mut self, tool: Tool, table: &str, chain: &str, rule: Vec<Value>) {
        self.push_rule_to(&iptables_key(tool, table, chain), rule);
    }

    fn push_rule_to(&mut self, chain: &Key, rule: Vec<Value>) {
        let chain = self.by_name.get(chain);
        if let Some(chain) = chain.and_then(|index| self.chains.get_mut(*index)) {
            chain.rules.push(rule);
        }
    }

    /// Returns the base chains that a packet of an address family traverses at a hook, in order.
    pub(super) fn base_chains(&self, hook: &str, is_ipv4: bool) -> Vec<&Chain> {
        let family = if is_ipv4 { "ip" } else { "ip6" };
        let applies = |chain: &&Chain| {
            let same_family =
                chain.family == family || chain.family == "inet" || chain.family == "netdev";
            same_family && chain.base.as_ref().is_some_and(|base| base.hook == hook)
        };
        let mut chains: Vec<&Chain> = self.chains.iter().filter(applies).collect();
        chains.sort_by_key(|chain| chain.base.as_ref().map(|base| base.priority));
        chains
    }

    /// Returns the chain that a rule of `referrer` jumps to.
    pub(super) fn chain(&self, referrer: &Chain, name: &str) -> Option<&Chain> {
        self.chains.get(*self.by_name.get(&referrer.key(name))?)
    }

    /// Returns the elements of a set or map that a rule of `referrer` uses.
    pub(super) fn set(&self, referrer: &Chain, name: &str) -> Option<&[Value]> {
        self.sets.get(&referrer.key(name)).map(Vec::as_slice)
    }
}

impl Chain {
    /// Returns the key of the chain or set `name` in this chain's table.
    fn key(&self, name: &str) -> Key {
        let (family, table) = (self.family.clone(), self.table.clone());
        (self.tool, family, table, name.to_owned())
    }

    /// Returns the table's name in the notation of its tool.
    pub(super) fn table_name(&self) -> String {
        match self.tool {
            Tool::Nft => format!("{} {}", self.family, self.table),
            Tool::Iptables | Tool::Ip6tables => self.table.clone(),
        }
    }
}

/// Returns the key of a chain in the output of `iptables-save` or `ip6tables-save`.
fn iptables_key(tool: Tool, table: &str, name: &str) -> Key {
    let family = if tool == Tool::Ip6tables { "ip6" } else { "ip" };
    (tool, family.to_owned(), table.to_owned(), name.to_owned())
}

/// Returns the key of an nft object, whose name is in the field `name_field`.
fn key(object: &Value, name_field: &str) -> Key {
    (
        Tool::Nft,
        string_field(object, "family"),
        string_field(object, "table"),
        string_field(object, name_field),
    )
}
