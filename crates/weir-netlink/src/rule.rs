//! Rules of policy routing that come before everything else, the local table included.
//!
//! The kernel adds a rule behind those of the same priority, and no priority is smaller than that of the local table's
//! rule, 0. So that rule is added once more behind the new one, and then its first copy is removed: there is always
//! one, and in the end exactly one (net/core/fib_rules.c, `fib_newrule`, `fib_delrule`).

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
const LOCAL: u32 = 255;
/// The creator of a rule: an unused number (linux/rtnetlink.h, `RTPROT_*`).
const WEIR: u8 = 0x57;

/// A rule of Weir's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Packets that carry a mark go by a table, also those to local addresses.
    Mark {
        /// Of IPv6 packets.
        ipv6: bool,
        /// The mark, compared whole.
        mark: u32,
        /// Number of the table.
        table: u32,
    },
    /// What comes in by a device passes the rules of priority 0.
    Skip {
        /// Of IPv6 packets.
        ipv6: bool,
        /// The device's name.
        device: String,
    },
    /// What comes in by a device finds local addresses where [`Rule::Skip`] leads it.
    Resume {
        /// Of IPv6 packets.
        ipv6: bool,
        /// The device's name.
        device: String,
    },
}

/// As `ip rule` takes it.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = if self.ipv6() { "-6" } else { "-4" };
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
    const fn ipv6(&self) -> bool {
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
                    RuleAttribute::Table(LOCAL),
                ],
            ),
        };
        attributes.push(RuleAttribute::Priority(self.priority()));
        attributes.push(RuleAttribute::Protocol(RouteProtocol::from(WEIR)));
        message(self.ipv6(), action, attributes)
    }
}

impl Rule {
    /// `None` for those of others.
    fn from_message(message: &RuleMessage) -> Option<Self> {
        let ipv6 = message.header.family == AddressFamily::Inet6;
        let (mut ours, mut mark, mut name, mut table) = (false, None, None, 0);
        for attribute in &message.attributes {
            match attribute {
                RuleAttribute::Protocol(protocol) => ours = u8::from(*protocol) == WEIR,
                RuleAttribute::FwMark(number) => mark = Some(*number),
                RuleAttribute::Iifname(device) => name = Some(device.clone()),
                RuleAttribute::Table(number) => table = *number,
                _ => {}
            }
        }
        match (ours, mark, name) {
            (true, Some(mark), _) => Some(Self::Mark { ipv6, mark, table }),
            (true, None, Some(device)) if message.header.action == RuleAction::Goto => {
                Some(Self::Skip { ipv6, device })
            }
            (true, None, Some(device)) => Some(Self::Resume { ipv6, device }),
            _ => None,
        }
    }
}

fn message(ipv6: bool, action: RuleAction, attributes: Vec<RuleAttribute>) -> RuleMessage {
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

/// The rule that the kernel makes for the local table.
fn local_message(ipv6: bool) -> RuleMessage {
    message(
        ipv6,
        RuleAction::ToTable,
        vec![
            RuleAttribute::Priority(0),
            RuleAttribute::Table(LOCAL),
            RuleAttribute::Protocol(RouteProtocol::Kernel),
        ],
    )
}

/// A rule of priority 0 that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    /// The local table's.
    Local,
    Weir,
    Other,
}

/// `None` for rules of other priorities.
fn first(message: &RuleMessage) -> Option<First> {
    let mut found = First::Local;
    let mut table = u32::from(message.header.table);
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(0) => {}
            RuleAttribute::Priority(_) => return None,
            RuleAttribute::Protocol(protocol) if u8::from(*protocol) == WEIR => {
                return Some(First::Weir);
            }
            RuleAttribute::Table(number) => table = *number,
            RuleAttribute::Protocol(_) | RuleAttribute::SuppressPrefixLen(u32::MAX) => {}
            _ => found = First::Other,
        }
    }
    let plain = message.header.action == RuleAction::ToTable
        && (message.header.src_len, message.header.dst_len) == (0, 0);
    Some(if plain && table == LOCAL {
        found
    } else {
        First::Other
    })
}

/// What brings Weir's rules in front of the local table's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Turn {
    /// The local table's rule is to be added behind them.
    add: bool,
    /// How many of its copies in front of them are to be removed.
    remove: usize,
}

/// `None` when another program's rule is between them.
fn turn(rules: &[First]) -> Option<Turn> {
    let Some(last) = rules.iter().rposition(|rule| *rule == First::Weir) else {
        return Some(Turn {
            add: false,
            remove: 0,
        });
    };
    let (before, behind) = rules.split_at(last);
    let count = |rules: &[First]| rules.iter().filter(|rule| **rule == First::Local).count();
    let remove = count(before);
    if remove > 0 && before.contains(&First::Other) {
        return None;
    }
    Some(Turn {
        add: remove > 0 && count(behind) == 0,
        remove,
    })
}

impl Netlink {
    /// The destinations that rules ask for: a prefix each, or all.
    ///
    /// # Errors
    /// The kernel refuses the dump.
    pub(crate) async fn rule_destinations(&self) -> Result<Vec<(IpAddr, u8)>> {
        let mut found = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = RuleMessage::default();
            message.header.family = family;
            let message = RouteNetlinkMessage::GetRule(message);
            for answer in self.dump("list rules", message).await? {
                let RouteNetlinkMessage::NewRule(rule) = answer else {
                    continue;
                };
                let to = rule
                    .attributes
                    .iter()
                    .find_map(|attribute| match attribute {
                        RuleAttribute::Destination(to) => Some(*to),
                        _ => None,
                    });
                found.extend(to.map(|to| (to, rule.header.dst_len)));
            }
        }
        Ok(found)
    }

    /// Those of some rules that are not there.
    ///
    /// # Errors
    /// The kernel refuses the dump.
    pub async fn missing_rules(&self, rules: &[Rule]) -> Result<Vec<Rule>> {
        let mut there = BTreeSet::new();
        for ipv6 in [false, true] {
            if rules.iter().all(|rule| rule.ipv6() != ipv6) {
                continue;
            }
            let asked = message(ipv6, RuleAction::Unspec, Vec::new());
            let asked = RouteNetlinkMessage::GetRule(asked);
            for answer in self.dump("list rules", asked).await? {
                if let RouteNetlinkMessage::NewRule(found) = answer {
                    there.extend(Rule::from_message(&found));
                }
            }
        }
        let missing = rules.iter().filter(|rule| !there.contains(rule));
        Ok(missing.cloned().collect())
    }

    /// Adds rules of which those of priority 0 come before the local table's.
    ///
    /// # Errors
    /// Other programs' rules of that priority prevent it, or no `CAP_NET_ADMIN`.
    pub async fn add_rules(&self, rules: &[Rule]) -> Result<Change> {
        let mut change = Change::None;
        for rule in rules {
            let request = format!("add a rule {rule}");
            let added = RouteNetlinkMessage::NewRule(rule.message());
            if self.create(&request, added).await? == Change::Made {
                change = Change::Made;
            }
        }
        for ipv6 in [false, true] {
            if rules.iter().any(|rule| rule.ipv6() == ipv6) {
                self.put_local_behind(ipv6).await?;
            }
        }
        Ok(change)
    }

    /// Removes a rule that [`Netlink::add_rules`] added.
    ///
    /// # Errors
    /// No `CAP_NET_ADMIN`.
    pub async fn remove_rule(&self, rule: &Rule) -> Result<Change> {
        let request = format!("remove the rule {rule}");
        let removed = RouteNetlinkMessage::DelRule(rule.message());
        self.remove(&request, removed).await
    }

    async fn put_local_behind(&self, ipv6: bool) -> Result<()> {
        let asked = message(ipv6, RuleAction::Unspec, Vec::new());
        let answers = self
            .dump("list rules", RouteNetlinkMessage::GetRule(asked))
            .await?;
        let rules: Vec<First> = answers
            .iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewRule(message) => first(message),
                _ => None,
            })
            .collect();
        let request = "put the local table's rule behind Weir's";
        let Some(turn) = turn(&rules) else {
            return Err(Error::refused(request.to_owned(), Errno::EXIST.into()));
        };
        if turn.add {
            let copy = RouteNetlinkMessage::NewRule(local_message(ipv6));
            self.ask(request, copy, NLM_F_CREATE).await?;
        }
        for _ in 0..turn.remove {
            let copy = RouteNetlinkMessage::DelRule(local_message(ipv6));
            self.ask(request, copy, 0).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::First::{Local, Other, Weir};
    use super::*;

    #[test]
    fn rules_are_known_again() {
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
    fn the_local_tables_rule_comes_behind() {
        let none = Turn {
            add: false,
            remove: 0,
        };
        let cases: [(&[First], Option<Turn>); 8] = [
            (&[Local], Some(none)),
            (&[Weir], Some(none)),
            (&[Weir, Weir, Local], Some(none)),
            (
                &[Local, Weir],
                Some(Turn {
                    add: true,
                    remove: 1,
                }),
            ),
            (
                &[Weir, Local, Weir],
                Some(Turn {
                    add: true,
                    remove: 1,
                }),
            ),
            // A process that died in between.
            (
                &[Local, Weir, Local],
                Some(Turn {
                    add: false,
                    remove: 1,
                }),
            ),
            (&[Other, Weir, Local], Some(none)),
            (&[Other, Local, Weir], None),
        ];
        for (rules, expected) in cases {
            assert_eq!(turn(rules), expected, "{rules:?}");
        }
    }

    #[test]
    fn conditional_rule_is_not_the_local_table_rule() {
        let mut plain = local_message(false);
        assert_eq!(first(&plain), Some(Local));
        plain.attributes.push(RuleAttribute::FwMark(1));
        assert_eq!(first(&plain), Some(Other));
        let skip = Rule::Skip {
            ipv6: true,
            device: "weir0".to_owned(),
        };
        assert_eq!(first(&skip.message()), Some(Weir));
        let resume = Rule::Resume {
            ipv6: true,
            device: "weir0".to_owned(),
        };
        assert_eq!(first(&resume.message()), None);
    }
}
