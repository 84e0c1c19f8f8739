//! Adds policy routing rules that are evaluated before all other rules, including the local table's rule.
//!
//! The kernel adds a rule after existing rules with the same priority, and the local table's rule has priority 0, which
//! is evaluated first. A second copy of that rule is therefore added after the new rule, and then the first copy is
//! removed, so that there is always at least one copy (net/core/fib_rules.c, `fib_newrule`, `fib_delrule`).

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use netlink_packet_route::route::RouteProtocol;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::packet_core::NLM_F_CREATE;
use rustix::io::Errno;

use crate::{Change, Error, Netlink, Result};

/// The table of local addresses (linux/rtnetlink.h, `RT_TABLE_LOCAL`).
const LOCAL_TABLE: u32 = 255;
/// The `RTPROT_*` value that identifies Weir's rules (linux/rtnetlink.h); no other program uses it.
const RTPROT_WEIR: u8 = 0x57;

/// A rule that Weir adds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Packets with a mark use a specific table, including packets to local addresses.
    Mark {
        /// Whether the rule is for IPv6.
        ipv6: bool,
        /// The mark; all bits are compared.
        mark: u32,
        /// Table number.
        table: u32,
    },
    /// Packets received on a device skip the rules with priority 0.
    Skip {
        /// Whether the rule is for IPv6.
        ipv6: bool,
        /// The device's name.
        device: String,
    },
    /// The target of [`Rule::Skip`]: packets received on a device use the local table.
    Resume {
        /// Whether the rule is for IPv6.
        ipv6: bool,
        /// The device's name.
        device: String,
    },
}

/// Formats the rule in the notation of `ip rule`.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = if self.is_ipv6() { "-6" } else { "-4" };
        match self {
            Self::Mark { mark, table, .. } => {
                write!(f, "{family} fwmark {mark:#x} lookup {table}")
            }
            Self::Skip { device, .. } => write!(f, "{family} iif {device} goto"),
            Self::Resume { device, .. } => write!(f, "{family} iif {device} lookup local"),
        }
    }
}

impl Rule {
    const fn is_ipv6(&self) -> bool {
        match self {
            Self::Mark { ipv6, .. } | Self::Skip { ipv6, .. } | Self::Resume { ipv6, .. } => *ipv6,
        }
    }

    const fn priority(&self) -> u32 {
        match self {
            Self::Mark { .. } | Self::Skip { .. } => 0,
            Self::Resume { .. } => 1,
        }
    }

    fn message(&self) -> RuleMessage {
        let (action, mut attributes) = match self {
            Self::Mark { mark, table, .. } => (
                RuleAction::ToTable,
                vec![
                    RuleAttribute::FwMark(*mark),
                    RuleAttribute::FwMask(u32::MAX),
                    RuleAttribute::Table(*table),
                ],
            ),
            Self::Skip { device, .. } => (
                RuleAction::Goto,
                vec![
                    RuleAttribute::Iifname(device.clone()),
                    RuleAttribute::Goto(1),
                ],
            ),
            Self::Resume { device, .. } => (
                RuleAction::ToTable,
                vec![
                    RuleAttribute::Iifname(device.clone()),
                    RuleAttribute::Table(LOCAL_TABLE),
                ],
            ),
        };
        attributes.push(RuleAttribute::Priority(self.priority()));
        attributes.push(RuleAttribute::Protocol(RouteProtocol::from(RTPROT_WEIR)));
        rule_message(self.is_ipv6(), action, attributes)
    }
}

impl Rule {
    /// Parses a message; `None` = the rule was not created by Weir.
    fn from_message(message: &RuleMessage) -> Option<Self> {
        let ipv6 = message.header.family == AddressFamily::Inet6;
        let (mut is_weir, mut mark, mut name, mut table) = (false, None, None, 0);
        for attribute in &message.attributes {
            match attribute {
                RuleAttribute::Protocol(protocol) => is_weir = u8::from(*protocol) == RTPROT_WEIR,
                RuleAttribute::FwMark(number) => mark = Some(*number),
                RuleAttribute::Iifname(device) => name = Some(device.clone()),
                RuleAttribute::Table(number) => table = *number,
                _ => {}
            }
        }
        match (is_weir, mark, name) {
            (true, Some(mark), _) => Some(Self::Mark { ipv6, mark, table }),
            (true, None, Some(device)) if message.header.action == RuleAction::Goto => {
                Some(Self::Skip { ipv6, device })
            }
            (true, None, Some(device)) => Some(Self::Resume { ipv6, device }),
            _ => None,
        }
    }
}

fn rule_message(ipv6: bool, action: RuleAction, attributes: Vec<RuleAttribute>) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = if ipv6 {
        AddressFamily::Inet6
    } else {
        AddressFamily::Inet
    };
    message.header.action = action;
    message.attributes = attributes;
    message
}

/// Returns the rule that the kernel creates for the local table.
fn local_message(ipv6: bool) -> RuleMessage {
    rule_message(
        ipv6,
        RuleAction::ToTable,
        vec![
            RuleAttribute::Priority(0),
            RuleAttribute::Table(LOCAL_TABLE),
            RuleAttribute::Protocol(RouteProtocol::Kernel),
        ],
    )
}

/// An existing rule with priority 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FirstRule {
    /// The local table's rule.
    Local,
    /// A rule created by Weir.
    Weir,
    /// A rule created by another program.
    Other,
}

/// Classifies a rule; `None` = its priority is not 0.
fn classify(message: &RuleMessage) -> Option<FirstRule> {
    let mut kind = FirstRule::Local;
    let mut table = u32::from(message.header.table);
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(0) => {}
            RuleAttribute::Priority(_) => return None,
            RuleAttribute::Protocol(protocol) if u8::from(*protocol) == RTPROT_WEIR => {
                return Some(FirstRule::Weir);
            }
            RuleAttribute::Table(number) => table = *number,
            RuleAttribute::Protocol(_) | RuleAttribute::SuppressPrefixLen(u32::MAX) => {}
            _ => kind = FirstRule::Other,
        }
    }
    let is_unconditional = message.header.action == RuleAction::ToTable
        && (message.header.src_len, message.header.dst_len) == (0, 0);
    Some(if is_unconditional && table == LOCAL_TABLE {
        kind
    } else {
        FirstRule::Other
    })
}

/// The changes that move Weir's rules before the local table's rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reordering {
    /// Whether to add a copy of the local table's rule after Weir's rules.
    add_copy: bool,
    /// Number of copies of that rule before Weir's rules, which must be removed.
    remove_count: usize,
}

/// Returns the required changes; `None` = another program's rule is also before Weir's rules.
fn reordering(rules: &[FirstRule]) -> Option<Reordering> {
    let Some(last) = rules.iter().rposition(|rule| *rule == FirstRule::Weir) else {
        return Some(Reordering {
            add_copy: false,
            remove_count: 0,
        });
    };
    let (before, after) = rules.split_at(last);
    let count = |rules: &[FirstRule]| {
        rules
            .iter()
            .filter(|rule| **rule == FirstRule::Local)
            .count()
    };
    let remove_count = count(before);
    if remove_count > 0 && before.contains(&FirstRule::Other) {
        return None;
    }
    Some(Reordering {
        add_copy: remove_count > 0 && count(after) == 0,
        remove_count,
    })
}

impl Netlink {
    /// Returns the destination prefixes that rules match.
    ///
    /// # Errors
    /// Fails if the kernel rejects the dump.
    pub(crate) async fn rule_destinations(&self) -> Result<Vec<(IpAddr, u8)>> {
        let mut destinations = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = RuleMessage::default();
            message.header.family = family;
            let message = RouteNetlinkMessage::GetRule(message);
            for reply in self.dump("list rules", message).await? {
                let RouteNetlinkMessage::NewRule(rule) = reply else {
                    continue;
                };
                let destination = rule
                    .attributes
                    .iter()
                    .find_map(|attribute| match attribute {
                        RuleAttribute::Destination(address) => Some(*address),
                        _ => None,
                    });
                destinations
                    .extend(destination.map(|destination| (destination, rule.header.dst_len)));
            }
        }
        Ok(destinations)
    }

    /// Returns those of `rules` that the kernel does not have.
    ///
    /// # Errors
    /// Fails if the kernel rejects the dump.
    pub async fn missing_rules(&self, rules: &[Rule]) -> Result<Vec<Rule>> {
        let mut existing = BTreeSet::new();
        for ipv6 in [false, true] {
            if rules.iter().all(|rule| rule.is_ipv6() != ipv6) {
                continue;
            }
            let query = rule_message(ipv6, RuleAction::Unspec, Vec::new());
            let query = RouteNetlinkMessage::GetRule(query);
            for reply in self.dump("list rules", query).await? {
                if let RouteNetlinkMessage::NewRule(message) = reply {
                    existing.extend(Rule::from_message(&message));
                }
            }
        }
        let missing = rules.iter().filter(|rule| !existing.contains(rule));
        Ok(missing.cloned().collect())
    }

    /// Adds rules. Rules with priority 0 are placed before the local table's rule.
    ///
    /// # Errors
    /// Fails if other programs' rules with priority 0 prevent this, or `CAP_NET_ADMIN` is missing.
    pub async fn add_rules(&self, rules: &[Rule]) -> Result<Change> {
        let mut change = Change::None;
        for rule in rules {
            let request = format!("add the rule {rule}");
            let message = RouteNetlinkMessage::NewRule(rule.message());
            if self.create(&request, message).await? == Change::Made {
                change = Change::Made;
            }
        }
        for ipv6 in [false, true] {
            if rules.iter().any(|rule| rule.is_ipv6() == ipv6) {
                self.move_local_rule_after_weir_rules(ipv6).await?;
            }
        }
        Ok(change)
    }

    /// Removes a rule that [`Netlink::add_rules`] added.
    ///
    /// # Errors
    /// Fails if `CAP_NET_ADMIN` is missing.
    pub async fn remove_rule(&self, rule: &Rule) -> Result<Change> {
        let request = format!("remove the rule {rule}");
        let message = RouteNetlinkMessage::DelRule(rule.message());
        self.remove(&request, message).await
    }

    async fn move_local_rule_after_weir_rules(&self, ipv6: bool) -> Result<()> {
        let query = rule_message(ipv6, RuleAction::Unspec, Vec::new());
        let replies = self
            .dump("list rules", RouteNetlinkMessage::GetRule(query))
            .await?;
        let rules: Vec<FirstRule> = replies
            .iter()
            .filter_map(|reply| match reply {
                RouteNetlinkMessage::NewRule(message) => classify(message),
                _ => None,
            })
            .collect();
        let request = "move the local table's rule after Weir's rules";
        let Some(reordering) = reordering(&rules) else {
            return Err(Error::request_failed(
                request.to_owned(),
                Errno::EXIST.into(),
            ));
        };
        if reordering.add_copy {
            let copy = RouteNetlinkMessage::NewRule(local_message(ipv6));
            self.transact(request, copy, NLM_F_CREATE).await?;
        }
        for _ in 0..reordering.remove_count {
            let copy = RouteNetlinkMessage::DelRule(local_message(ipv6));
            self.transact(request, copy, 0).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::FirstRule::{Local, Other, Weir};
    use super::*;

    #[test]
    fn weir_rules_are_recognized() {
        let (ipv6, device) = (true, "weir1".to_owned());
        let mark = Rule::Mark {
            ipv6: false,
            mark: 7,
            table: 0x5765_0003,
        };
        let (skip, resume) = (
            Rule::Skip {
                ipv6,
                device: device.clone(),
            },
            Rule::Resume { ipv6, device },
        );
        for rule in [mark, skip, resume] {
            assert_eq!(Rule::from_message(&rule.message()), Some(rule));
        }
        assert_eq!(Rule::from_message(&local_message(false)), None);
    }

    #[test]
    fn local_rule_is_moved_after_weir_rules() {
        let none = Reordering {
            add_copy: false,
            remove_count: 0,
        };
        let cases: [(&[FirstRule], Option<Reordering>); 8] = [
            (&[Local], Some(none)),
            (&[Weir], Some(none)),
            (&[Weir, Weir, Local], Some(none)),
            (
                &[Local, Weir],
                Some(Reordering {
                    add_copy: true,
                    remove_count: 1,
                }),
            ),
            (
                &[Weir, Local, Weir],
                Some(Reordering {
                    add_copy: true,
                    remove_count: 1,
                }),
            ),
            // A process was killed between the two steps.
            (
                &[Local, Weir, Local],
                Some(Reordering {
                    add_copy: false,
                    remove_count: 1,
                }),
            ),
            (&[Other, Weir, Local], Some(none)),
            (&[Other, Local, Weir], None),
        ];
        for (rules, expected) in cases {
            assert_eq!(reordering(rules), expected, "{rules:?}");
        }
    }

    #[test]
    fn conditional_rule_is_not_the_local_table_rule() {
        let mut rule = local_message(false);
        assert_eq!(classify(&rule), Some(Local));
        rule.attributes.push(RuleAttribute::FwMark(1));
        assert_eq!(classify(&rule), Some(Other));
        let skip = Rule::Skip {
            ipv6: true,
            device: "weir0".to_owned(),
        };
        assert_eq!(classify(&skip.message()), Some(Weir));
        let resume = Rule::Resume {
            ipv6: true,
            device: "weir0".to_owned(),
        };
        assert_eq!(classify(&resume.message()), None);
    }
}
