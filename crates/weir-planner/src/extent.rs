//! Builds the tables that a service's scheduler reads: header, list of servers, hash table, spread table, the previous
//! spread table and a tree.
//!
//! All tables of a service are in one run of elements, so one store publishes them and one call frees them. The caller
//! selects the position of the run in the map.

use std::collections::BTreeSet;
use std::net::IpAddr;

use weir_abi::{
    EXTENT_FALLBACK, EXTENT_NETWORK, EXTENT_PORT, EXTENT_REPAIR, Element, Extent, Member as Row,
    Scheduler as Number,
};
use weir_model::{Scheduler, SchedulerKind};
use weir_sched::{
    Counts, HashTable, Member, Mode, Start, availability, hash, maglev, mh, tournament,
};

use crate::allocation::{DestSlot, ServiceSlot};
use crate::scheduler;
use crate::{Error, Result};

/// Number of elements in the header.
const HEADER_ELEMENTS: u32 = (size_of::<Extent>() / size_of::<Element>()) as u32;

/// A service's tables, without their position in the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables {
    scheduler: Number,
    flags: u32,
    start: Start,
    /// Usable servers, newest first; with the `first` scheduler, oldest first.
    pub list: Vec<Row>,
    hash: Vec<u32>,
    spread: Vec<u32>,
    /// The spread table before the last change or of a staged version. For the second hop, and to find flows for which
    /// other directors select a different server.
    former: Vec<u32>,
    /// Whether the data plane needs `former`.
    has_second_hop: bool,
    gcd: u32,
    max_load: u32,
    /// Whether server rows contain their position in the list, which the scheduler needs.
    has_positions: bool,
    /// Number of leaves in the tree; 0 = the scheduler searches the whole list.
    tree_width: u32,
}

/// The inputs for the tables, except the servers.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The scheduler with its flags.
    pub scheduler: Scheduler,
    /// Whether `strict_ipvs` is set.
    pub strict: bool,
    /// The port of the service's only listener, otherwise 0. Servers without a port use it.
    pub port: u16,
    /// Number of server rows; rows of shared counters follow them.
    pub dest_rows: u32,
    /// Whether no tree is used, because too many services share the pool's counters to update a tree for each of them.
    pub is_tree_disabled: bool,
    /// Whether the director is in a group: the `maglev` table then depends only on values that are the same on all
    /// directors.
    pub in_group: bool,
    /// Whether the servers forward packets for unknown connections to a second hop.
    pub has_second_hop: bool,
}

/// Returns the behavior of a service if the hash selects a server that accepts no new flows.
pub fn mode(rule: &Rule) -> Mode {
    // `maglev` is Weir's own scheduler: it never rejects clients while a server is usable.
    if rule.scheduler.flags.fallback || rule.scheduler.kind == SchedulerKind::Maglev {
        availability::Mode::Fallback
    } else if rule.strict {
        availability::Mode::Strict
    } else {
        availability::Mode::Repair
    }
}

/// Builds the tables of a service.
///
/// # Errors
/// Fails if the service has more servers than its table has entries, or only proxy services support its scheduler.
pub fn tables(name: &str, slot: &ServiceSlot, rule: &Rule) -> Result<Tables> {
    let mut usable = usable_servers(slot);
    let number = scheduler::number(rule.scheduler.kind).ok_or_else(|| Error::Scheduler {
        service: name.to_owned(),
        scheduler: rule.scheduler.kind.as_str(),
    })?;
    let table_error = |source| Error::Tables {
        service: name.to_owned(),
        source,
    };
    let hash = hash_table(slot, rule).map_err(table_error)?;
    let spread = spread_table(slot, rule).map_err(table_error)?;
    let former = match rule.scheduler.kind {
        SchedulerKind::Maglev => former_table(slot).map_err(table_error)?,
        _ => Vec::new(),
    };
    if rule.scheduler.flags.file_order {
        usable.reverse();
    }
    let live = |dest: &DestSlot| dest.shared.map_or(dest.id, |row| rule.dest_rows + row);
    let list: Vec<Row> = usable
        .iter()
        .map(|dest| Row {
            seq: dest.seq,
            dest: dest.id,
            weight: dest.effective,
            live: live(dest),
        })
        .collect();
    let start: Start = slot.start.into();
    let is_wrr = rule.scheduler.kind == SchedulerKind::Wrr;
    let gcd = if is_wrr {
        start.step
    } else {
        list.iter().map(|row| row.weight).fold(0, gcd).max(1)
    };
    let bounded = rule.scheduler.max_load_percent.is_some();
    let is_long = !rule.is_tree_disabled && list.len() > tournament::MAX_SEARCHED_LEN;
    let tree_width = match scheduler::tree(number, bounded) {
        Some(_) if is_long => tournament::width(list.len()),
        _ => 0,
    };
    Ok(Tables {
        scheduler: number,
        flags: flags(rule),
        start,
        list,
        hash,
        spread,
        former,
        has_second_hop: rule.has_second_hop,
        gcd,
        max_load: rule.scheduler.max_load_percent.unwrap_or(0),
        tree_width,
        has_positions: tree_width > 0
            || bounded
            || matches!(
                rule.scheduler.kind,
                SchedulerKind::Lblc | SchedulerKind::Lblcr
            ),
    })
}

/// Returns the scheduler's hash table; empty if the scheduler has none.
///
/// # Errors
/// Fails if there are more servers than the table has entries.
fn hash_table(slot: &ServiceSlot, rule: &Rule) -> std::result::Result<Vec<u32>, weir_sched::Error> {
    match HashTable::for_kind(rule.scheduler.kind) {
        Some(table) => table.owners(&slot.members(), || mh_entries(slot, rule)),
        None => Ok(Vec::new()),
    }
}

/// Returns the servers that accept new flows, newest first.
pub fn usable_servers(slot: &ServiceSlot) -> Vec<&DestSlot> {
    let newest_first = slot.dests.iter().rev();
    newest_first
        .filter(|dest| dest.is_listed() && dest.effective > 0)
        .collect()
}

/// Returns the spread table, which is indexed by the flow hash.
///
/// In a group, the `maglev` table contains the servers and weights from the configuration and the overrides, which are
/// the same on all directors. An unusable server is skipped entry by entry, so the directors' tables differ only in its
/// entries.
///
/// # Errors
/// Fails if there are more servers than the table has entries.
pub fn spread_table(
    slot: &ServiceSlot,
    rule: &Rule,
) -> std::result::Result<Vec<u32>, weir_sched::Error> {
    let kind = rule.scheduler.kind;
    if rule.in_group && kind == SchedulerKind::Maglev {
        let group_dests = slot.dests.iter().filter(|dest| dest.is_in_group_table());
        let group_dests = group_dests.map(|dest| entry(dest, dest.base)).collect();
        let mut table = build_table(group_dests, kind)?;
        let usable: BTreeSet<u32> = usable_servers(slot).iter().map(|dest| dest.id).collect();
        // If none of them is usable, only the sorry server may remain.
        if maglev::skip_unusable(&mut table, &|dest| usable.contains(&dest)) {
            return Ok(table);
        }
    }
    let usable = usable_servers(slot);
    let usable = usable.iter().map(|dest| entry(dest, dest.effective));
    build_table(usable.collect(), kind)
}

fn entry(dest: &DestSlot, weight: u32) -> maglev::Entry {
    maglev::Entry {
        name: dest_name_hash(dest),
        dest: dest.id,
        weight,
    }
}

fn build_table(
    entries: Vec<maglev::Entry>,
    kind: SchedulerKind,
) -> std::result::Result<Vec<u32>, weir_sched::Error> {
    if entries.is_empty() {
        return Ok(Vec::new());
    }
    let size = if kind == SchedulerKind::Maglev {
        maglev::size_for(entries.len())
    } else {
        maglev::spare_size_for(entries.len())
    };
    maglev::table(&entries, size)
}

fn flags(rule: &Rule) -> u32 {
    let flag_if = |condition: bool, flag: u32| if condition { flag } else { 0 };
    let mode = mode(rule);
    flag_if(rule.scheduler.flags.port, EXTENT_PORT)
        | flag_if(rule.scheduler.flags.networks, EXTENT_NETWORK)
        | flag_if(mode != Mode::Strict, EXTENT_REPAIR)
        | flag_if(mode == Mode::Fallback, EXTENT_FALLBACK)
}

/// Returns the entries for the `mh` table, with the newest server first. A quiesced server keeps its entries.
pub fn mh_entries(slot: &ServiceSlot, rule: &Rule) -> Vec<mh::Entry> {
    let newest_first = slot.dests.iter().rev();
    newest_first
        .filter(|dest| dest.is_listed())
        .map(|dest| mh::Entry {
            dest: dest.id,
            last_weight: dest.last_weight,
            fold: hash::fold(dest.address),
            port: dest.port.unwrap_or(rule.port),
        })
        .collect()
}

/// Returns the table before the last change or of a staged version. Unusable servers are not skipped. Entries of
/// servers without a row are 0.
///
/// # Errors
/// Fails if there are more servers than the table has entries.
fn former_table(slot: &ServiceSlot) -> std::result::Result<Vec<u32>, weir_sched::Error> {
    let servers = &slot.agreed.former;
    let entries = servers
        .iter()
        .zip(1..)
        .map(|(server, number)| maglev::Entry {
            name: name_hash(server.address, server.port),
            dest: number,
            weight: server.weight,
        });
    let mut table = build_table(entries.collect(), SchedulerKind::Maglev)?;
    let rows: Vec<u32> = servers
        .iter()
        .map(|server| {
            let mut dests = slot.dests.iter();
            let found = dests.find(|dest| {
                !dest.sorry && (dest.address, dest.port) == (server.address, server.port)
            });
            found.map_or(0, |dest| dest.id)
        })
        .collect();
    for number in &mut table {
        *number = rows[*number as usize - 1];
    }
    Ok(table)
}

fn dest_name_hash(dest: &DestSlot) -> u64 {
    name_hash(dest.address, dest.port)
}

/// Returns a hash of the address and port only, so all directors with the same servers build the same table.
fn name_hash(address: IpAddr, port: Option<u16>) -> u64 {
    let bits = match address {
        IpAddr::V4(v4) => u128::from(v4.to_ipv6_mapped()),
        IpAddr::V6(v6) => u128::from(v6),
    };
    let port = u64::from(port.unwrap_or(0));
    hash::mix_64((bits >> 64) as u64 ^ hash::mix_64(bits as u64 ^ hash::mix_64(port)))
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Tables {
    /// Returns the number of elements in the whole run.
    #[must_use]
    pub fn elements(&self) -> u32 {
        self.tree_at(0) + self.tree_width / 4
    }

    fn former_at(&self, first: u32) -> u32 {
        first
            + HEADER_ELEMENTS
            + self.list.len() as u32
            + element_count(&self.hash)
            + element_count(&self.spread)
    }

    fn tree_at(&self, first: u32) -> u32 {
        self.former_at(first) + element_count(self.second_hops())
    }

    /// Returns the header of a run that begins at element `first`, and the indices of the first elements of the list,
    /// hash table and spread table.
    #[must_use]
    pub fn header(&self, first: u32) -> (Extent, [u32; 3]) {
        let list_at = first + HEADER_ELEMENTS;
        let hash_at = list_at + self.list.len() as u32;
        let spread_at = hash_at + element_count(&self.hash);
        let max_weight = self.list.iter().map(|row| row.weight).max().unwrap_or(0);
        // The spread table is also the hash table of maglev.
        let is_maglev = self.scheduler == Number::Maglev;
        let is_wrr = self.scheduler == Number::Wrr;
        let header = Extent {
            scheduler: self.scheduler as u32,
            flags: self.flags,
            generation: self.start.generation,
            list_at,
            list_len: self.list.len() as u32,
            hash_at: if is_maglev { spread_at } else { hash_at },
            hash_len: if is_maglev {
                self.spread.len() as u32
            } else {
                self.hash.len() as u32
            },
            spread_at,
            spread_len: self.spread.len() as u32,
            max_weight: if is_wrr {
                self.start.max_weight
            } else {
                max_weight
            },
            gcd: self.gcd,
            start_seq: self.start.last_seq,
            start_weight: self.start.pass_weight,
            max_load: self.max_load,
            tree_at: if self.tree_width > 0 {
                self.tree_at(first)
            } else {
                0
            },
            tree_width: self.tree_width,
            weight: self.list.iter().map(|row| u64::from(row.weight)).sum(),
            former_at: if self.second_hops().is_empty() {
                0
            } else {
                self.former_at(first)
            },
            former_len: self.second_hops().len() as u32,
        };
        (header, [list_at, hash_at, spread_at])
    }

    /// Returns the server row and `Dest::place` of every server that has a position.
    pub fn positions(&self) -> impl Iterator<Item = (u32, u32)> {
        let rows = if self.has_positions {
            &self.list[..]
        } else {
            &[]
        };
        rows.iter().map(|row| row.dest).zip(1..)
    }

    /// Returns the elements of a run that begins at element `first`, without the tree's nodes, which change with every
    /// flow.
    #[must_use]
    pub fn image(&self, first: u32) -> Vec<Element> {
        let (header, _) = self.header(first);
        let mut image = header.elements().to_vec();
        image.extend(self.list.iter().map(Row::element));
        image.extend(Element::pack(&self.hash));
        image.extend(Element::pack(&self.spread));
        image.extend(Element::pack(self.second_hops()));
        image
    }

    /// Returns the nodes of the tree, with its rule in node 0; empty without a tree. `counts` and `overloaded` take a
    /// counter row.
    #[must_use]
    pub fn tree(
        &self,
        counts: &dyn Fn(u32) -> Counts,
        overloaded: &dyn Fn(u32) -> bool,
    ) -> Vec<u32> {
        let kind = scheduler::tree(self.scheduler, self.max_load > 0);
        let Some((tree, rule)) = kind.filter(|_| self.tree_width > 0) else {
            return Vec::new();
        };
        let members: Vec<Member> = self
            .list
            .iter()
            .map(|row| Member {
                seq: row.seq,
                dest: row.dest,
                weight: row.weight,
                slot: row.live,
                usable: !overloaded(row.live),
            })
            .collect();
        let mut nodes = tournament::build(tree, &members, counts);
        nodes[0] = rule;
        nodes
    }

    /// Returns the hash table, which contains server rows.
    #[must_use]
    pub fn hash(&self) -> &[u32] {
        &self.hash
    }

    /// Returns the part of [`Self::former`] that the data plane needs.
    fn second_hops(&self) -> &[u32] {
        match self.has_second_hop {
            true => &self.former,
            false => &[],
        }
    }

    /// Returns the spread table before the last change or of a staged version, which contains server rows; empty if the
    /// service uses no other version.
    #[must_use]
    pub fn former(&self) -> &[u32] {
        &self.former
    }

    /// Returns the spread table, which contains server rows.
    #[must_use]
    pub fn spread(&self) -> &[u32] {
        &self.spread
    }
}

fn element_count(table: &[u32]) -> u32 {
    (table.len() as u32).div_ceil(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The directors of a group can have different versions of Weir. The values were computed with a different
    /// implementation.
    #[test]
    fn name_hash_is_the_same_in_all_versions() {
        for (address, port, expected) in [
            ("10.0.0.1", None, 0x87d4_f7d2_fece_4fe7),
            ("10.0.0.1", Some(80), 0x886a_2549_f4c6_8fc1),
            ("10.0.0.2", None, 0x2163_802b_86a3_8f85),
            ("2001:db8::1", None, 0xd9fa_02d0_28ea_74ca),
            ("2001:db8:1::1", Some(443), 0x4273_98d9_e9ea_5fad),
        ] {
            let hash = name_hash(address.parse().unwrap(), port);
            assert_eq!(hash, expected, "{address} {port:?}");
        }
    }
}
