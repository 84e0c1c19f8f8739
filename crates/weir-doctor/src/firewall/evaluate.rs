//! Evaluates the chains of a packet's hooks as far as the packet is known. Only certain drops are reported.
//!
//! A rule that matches on an unknown field may match or not. If it would drop the packet, it is ignored; if it would
//! accept the packet, the packet counts as accepted; otherwise the verdict is unknown.

use serde_json::Value;

use super::compare::{looked_up, matches};
use super::packet::{Packet, Tracking};
use super::ruleset::{Chain, Ruleset};
use super::tool::Tool;

/// Deepest nesting of jumps; the kernel rejects loops.
const DEEPEST: u8 = 16;

/// Conntrack sees packets after chains of a lower priority (NF_IP_PRI_CONNTRACK).
const CONNTRACK: i64 = -200;

/// A certain drop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drop {
    /// Whose rule it is.
    pub tool: Tool,
    /// In the tool's notation: `inet filter`, `filter`.
    pub table: String,
    /// The base chain.
    pub chain: String,
    /// The text of the rule that drops it; `None` = the chain's policy.
    pub rule: Option<String>,
}

/// What a chain does to a packet.
enum End {
    /// No rule decided.
    Through,
    Accepted,
    Dropped(Option<String>),
    /// It depends on an unknown field.
    Unsure,
    /// The packet is rewritten here.
    Changed,
}

impl Ruleset {
    /// The rule or policy that certainly drops a packet that passes these hooks in order.
    pub fn drops(&self, packet: Packet, hooks: &[&str]) -> Option<Drop> {
        let mut packet = packet;
        for hook in hooks {
            for chain in self.at(hook, packet.is_ipv4) {
                let Some(base) = &chain.base else { continue };
                let untracks = base.priority < CONNTRACK;
                let end = self.walk(chain, &mut packet, untracks, 0);
                let rule = match end {
                    End::Dropped(rule) => rule,
                    End::Through if base.drops => None,
                    End::Changed => return None,
                    End::Through | End::Accepted | End::Unsure => continue,
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

    fn walk(&self, chain: &Chain, packet: &mut Packet, untracks: bool, depth: u8) -> End {
        if depth > DEEPEST {
            return End::Unsure;
        }
        for rule in &chain.rules {
            let mut certain = true;
            for expression in rule {
                let step = self.step(chain, packet, expression, (untracks, depth));
                match step {
                    Step::On => continue,
                    Step::Next => {}
                    Step::Maybe => {
                        certain = false;
                        continue;
                    }
                    Step::End(End::Through) => {}
                    Step::Return if certain => return End::Through,
                    Step::End(end) if certain => return described(end, rule),
                    // What it would drop or not, others after it may.
                    Step::End(End::Dropped(_)) => {}
                    Step::Return | Step::End(_) => return End::Unsure,
                }
                break;
            }
        }
        End::Through
    }

    fn step(
        &self,
        chain: &Chain,
        packet: &mut Packet,
        expression: &Value,
        (untracks, depth): (bool, u8),
    ) -> Step {
        let Some((name, it)) = expression.as_object().and_then(|one| one.iter().next()) else {
            return Step::Maybe;
        };
        match name.as_str() {
            "match" => match matches(self, chain, packet, it) {
                Some(true) => Step::On,
                Some(false) => Step::Next,
                None => Step::Maybe,
            },
            "vmap" => match looked_up(self, chain, packet, it) {
                Some(Some(verdict)) => self.step(chain, packet, verdict, (untracks, depth)),
                Some(None) => Step::Next,
                // Whatever it holds: a packet that nothing takes falls out at the end as well.
                None => Step::End(End::Unsure),
            },
            "accept" => Step::End(End::Accepted),
            "drop" | "reject" => Step::End(End::Dropped(Some(String::new()))),
            "return" => Step::Return,
            "jump" | "goto" => {
                let Some(target) = it["target"].as_str().and_then(|to| self.chain(chain, to))
                else {
                    return Step::End(End::Unsure);
                };
                match self.walk(target, packet, untracks, depth + 1) {
                    End::Through if name == "goto" => Step::Return,
                    end => Step::End(end),
                }
            }
            "notrack" => {
                if untracks {
                    packet.tracking = Tracking::Untracked;
                }
                Step::On
            }
            "dnat" | "redirect" | "tproxy" | "queue" | "fwd" => Step::End(End::Changed),
            "mangle" if !it["key"]["meta"].is_object() && !it["key"]["ct"].is_object() => {
                Step::End(End::Changed)
            }
            "mangle" | "counter" | "log" | "comment" | "quota" | "dup" | "snat" | "masquerade"
            | "words" => Step::On,
            _ => Step::Maybe,
        }
    }
}

enum Step {
    /// The rule's next expression.
    On,
    /// The next rule.
    Next,
    /// The same, if something that is not known is so.
    Maybe,
    /// Back to the chain that jumped here.
    Return,
    End(End),
}

/// A rule that drops, in its own words where they are few.
fn described(end: End, rule: &[Value]) -> End {
    match end {
        End::Dropped(Some(words)) if words.is_empty() => End::Dropped(Some(words_of(rule))),
        end => end,
    }
}

fn words_of(rule: &[Value]) -> String {
    if let Some(own) = rule.last().and_then(|last| last["words"].as_str()) {
        return own.to_owned();
    }
    let mut words = Vec::new();
    for expression in rule {
        let Some((name, it)) = expression.as_object().and_then(|one| one.iter().next()) else {
            continue;
        };
        match name.as_str() {
            "match" => words.push(format!(
                "{} {} {}",
                side(&it["left"]),
                it["op"].as_str().unwrap_or_default(),
                side(&it["right"])
            )),
            "vmap" => words.push(format!("{} vmap", side(&it["key"]))),
            "drop" | "reject" => words.push(name.clone()),
            _ => {}
        }
    }
    words.join(" ").replace(" == ", " ").replace(" in ", " ")
}

/// One side of a comparison, nearly as nft writes it.
fn side(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(side).collect::<Vec<_>>().join(","),
        Value::Object(object) => {
            let both = |a: &str, b: &str| {
                let (a, b) = (
                    object.values().next()?.get(a)?,
                    object.values().next()?.get(b)?,
                );
                Some(format!("{} {}", side(a), side(b)))
            };
            if let Some(text) = both("protocol", "field") {
                return text;
            }
            if let Some((name, inner)) = object.iter().next() {
                return match (name.as_str(), inner) {
                    ("meta" | "ct", inner) => format!("{name} {}", side(&inner["key"])),
                    ("prefix", inner) => format!("{}/{}", side(&inner["addr"]), inner["len"]),
                    ("&", Value::Array(sides)) => sides.first().map(side).unwrap_or_default(),
                    (_, inner) => side(inner),
                };
            }
            String::new()
        }
        other => other.to_string(),
    }
}
