//! Evaluates the chains of the hooks that a packet traverses. A drop is reported only if it is certain.
//!
//! A rule that matches on an unknown field may match or not. If such a rule would drop the packet, the rule is ignored.
//! If the rule would have any other effect, the verdict of the chain is unknown, and the packet counts as accepted by
//! the chain.

use serde_json::Value;

use super::compare::{look_up, matches};
use super::packet::{Packet, Tracking};
use super::ruleset::{Chain, Ruleset};
use super::tool::Tool;

/// Maximum nesting of jumps; the kernel rejects loops.
const MAX_DEPTH: u8 = 16;

/// Priority of conntrack (NF_IP_PRI_CONNTRACK): conntrack handles packets after chains with a lower priority value.
const CONNTRACK_PRIORITY: i64 = -200;

/// A drop of every packet with the known fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drop {
    /// The tool that manages the rule.
    pub tool: Tool,
    /// The table in the tool's notation, such as `inet filter` or `filter`.
    pub table: String,
    /// The base chain.
    pub chain: String,
    /// The text of the rule that drops the packet, or `None` if the chain's policy drops it.
    pub rule: Option<String>,
}

/// The verdict of a chain.
enum Verdict {
    /// No rule in the chain decides.
    None,
    Accepted,
    Dropped(Option<String>),
    /// The verdict depends on an unknown field.
    Unknown,
    /// The packet is rewritten.
    Rewritten,
}

impl Ruleset {
    /// Returns the rule or policy that drops a packet at one of these hooks, evaluated in order, or `None` if no drop
    /// is certain.
    pub fn find_drop(&self, packet: Packet, hooks: &[&str]) -> Option<Drop> {
        let mut packet = packet;
        for hook in hooks {
            for chain in self.base_chains(hook, packet.is_ipv4) {
                let Some(base) = &chain.base else { continue };
                let before_conntrack = base.priority < CONNTRACK_PRIORITY;
                let verdict = self.evaluate(chain, &mut packet, before_conntrack, 0);
                let rule = match verdict {
                    Verdict::Dropped(rule) => rule,
                    Verdict::None if base.policy_drops => None,
                    Verdict::Rewritten => return None,
                    Verdict::None | Verdict::Accepted | Verdict::Unknown => continue,
                };
                return Some(Drop {
                    tool: chain.tool,
                    table: chain.table_name(),
                    chain: chain.name.clone(),
                    rule,
                });
            }
        }
        None
    }

    /// Evaluates a chain and the chains that it jumps to.
    fn evaluate(
        &self,
        chain: &Chain,
        packet: &mut Packet,
        before_conntrack: bool,
        depth: u8,
    ) -> Verdict {
        if depth > MAX_DEPTH {
            return Verdict::Unknown;
        }
        for rule in &chain.rules {
            let mut certain = true;
            for expression in rule {
                let step =
                    self.evaluate_expression(chain, packet, expression, (before_conntrack, depth));
                match step {
                    Step::Match => continue,
                    Step::NoMatch => {}
                    Step::MaybeMatch => {
                        certain = false;
                        continue;
                    }
                    Step::Verdict(Verdict::None) => {}
                    Step::Return if certain => return Verdict::None,
                    Step::Verdict(verdict) if certain => return with_rule_text(verdict, rule),
                    // If the rule does not match, later rules decide.
                    Step::Verdict(Verdict::Dropped(_)) => {}
                    Step::Return | Step::Verdict(_) => return Verdict::Unknown,
                }
                break;
            }
        }
        Verdict::None
    }

    /// Evaluates one rule expression.
    fn evaluate_expression(
        &self,
        chain: &Chain,
        packet: &mut Packet,
        expression: &Value,
        (before_conntrack, depth): (bool, u8),
    ) -> Step {
        let Some((name, statement)) = expression
            .as_object()
            .and_then(|object| object.iter().next())
        else {
            return Step::MaybeMatch;
        };
        match name.as_str() {
            "match" => match matches(self, chain, packet, statement) {
                Some(true) => Step::Match,
                Some(false) => Step::NoMatch,
                None => Step::MaybeMatch,
            },
            "vmap" => match look_up(self, chain, packet, statement) {
                Some(Some(verdict)) => {
                    self.evaluate_expression(chain, packet, verdict, (before_conntrack, depth))
                }
                Some(None) => Step::NoMatch,
                // It is unknown whether an element matches and which verdict it has.
                None => Step::Verdict(Verdict::Unknown),
            },
            "accept" => Step::Verdict(Verdict::Accepted),
            "drop" | "reject" => Step::Verdict(Verdict::Dropped(Some(String::new()))),
            "return" => Step::Return,
            "jump" | "goto" => {
                let Some(target) = statement["target"]
                    .as_str()
                    .and_then(|name| self.chain(chain, name))
                else {
                    return Step::Verdict(Verdict::Unknown);
                };
                match self.evaluate(target, packet, before_conntrack, depth + 1) {
                    Verdict::None if name == "goto" => Step::Return,
                    verdict => Step::Verdict(verdict),
                }
            }
            "notrack" => {
                if before_conntrack {
                    packet.tracking = Tracking::Untracked;
                }
                Step::Match
            }
            "dnat" | "redirect" | "tproxy" | "queue" | "fwd" => Step::Verdict(Verdict::Rewritten),
            "mangle"
                if !statement["key"]["meta"].is_object() && !statement["key"]["ct"].is_object() =>
            {
                Step::Verdict(Verdict::Rewritten)
            }
            "mangle" | "counter" | "log" | "comment" | "quota" | "dup" | "snat" | "masquerade"
            | "words" => Step::Match,
            _ => Step::MaybeMatch,
        }
    }
}

/// The result of evaluating one rule expression.
enum Step {
    /// The expression matches or has no effect: continue with the rule's next expression.
    Match,
    /// The expression does not match: continue with the next rule.
    NoMatch,
    /// Whether the expression matches is unknown.
    MaybeMatch,
    /// The evaluation returns to the calling chain.
    Return,
    /// The evaluation ends with this verdict; with [`Verdict::None`], it continues with the next rule.
    Verdict(Verdict),
}

/// Adds the text of the rule to a drop that has none.
fn with_rule_text(verdict: Verdict, rule: &[Value]) -> Verdict {
    match verdict {
        Verdict::Dropped(Some(text)) if text.is_empty() => Verdict::Dropped(Some(rule_text(rule))),
        verdict => verdict,
    }
}

/// Returns the text of a rule, similar to the output of nft.
fn rule_text(rule: &[Value]) -> String {
    if let Some(text) = rule.last().and_then(|last| last["words"].as_str()) {
        return text.to_owned();
    }
    let mut words = Vec::new();
    for expression in rule {
        let Some((name, statement)) = expression
            .as_object()
            .and_then(|object| object.iter().next())
        else {
            continue;
        };
        match name.as_str() {
            "match" => words.push(format!(
                "{} {} {}",
                operand(&statement["left"]),
                statement["op"].as_str().unwrap_or_default(),
                operand(&statement["right"])
            )),
            "vmap" => words.push(format!("{} vmap", operand(&statement["key"]))),
            "drop" | "reject" => words.push(name.clone()),
            _ => {}
        }
    }
    words.join(" ").replace(" == ", " ").replace(" in ", " ")
}

/// Returns the text of a comparison operand, similar to the output of nft.
fn operand(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(operand).collect::<Vec<_>>().join(","),
        Value::Object(object) => {
            let pair = |a: &str, b: &str| {
                let (a, b) = (
                    object.values().next()?.get(a)?,
                    object.values().next()?.get(b)?,
                );
                Some(format!("{} {}", operand(a), operand(b)))
            };
            if let Some(text) = pair("protocol", "field") {
                return text;
            }
            if let Some((name, inner)) = object.iter().next() {
                return match (name.as_str(), inner) {
                    ("meta" | "ct", inner) => format!("{name} {}", operand(&inner["key"])),
                    ("prefix", inner) => format!("{}/{}", operand(&inner["addr"]), inner["len"]),
                    ("&", Value::Array(sides)) => sides.first().map(operand).unwrap_or_default(),
                    (_, inner) => operand(inner),
                };
            }
            String::new()
        }
        other => other.to_string(),
    }
}
