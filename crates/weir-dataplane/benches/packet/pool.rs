//! A pool of any size as weir-control lays it out: counts of its own, places in the list, and a tree where the list is
//! long.

use weir_abi::{
    DEST_LIVE, DEST_USABLE, Dest, Extent, Forward, Member, RULE_FO, RULE_LC, RULE_SED,
    RULE_SUM_WEIGHT, RULE_WLC, Scheduler, Service,
};
use weir_dataplane::Dataplane;
use weir_sched::load::Rule;
use weir_sched::tournament::{self, Tree};
use weir_sched::{Counts, bucket, maglev};

use crate::Outcome;
use crate::ground::{SERVERS, server};

/// Row of the service, and of its first server; the others follow.
const SERVICE: u32 = 1;
const FIRST: u32 = 1;
/// Where its elements begin.
const AT: u32 = 1;
/// Places of `mh`'s table; it holds no more servers than that, and here some have none.
const MH_PLACES: u32 = 4093;

/// Elements that a pool of that many servers takes at most.
pub(crate) const fn elements(servers: u32) -> u32 {
    // A list, a tree, two tables of up to eight places a server and at least 65 537.
    1024 + servers * 6 + 65_537
}

/// Which tree the scheduler has, and the word by which packets know it.
fn tree_of(scheduler: Scheduler) -> Option<(Tree, u32)> {
    Some(match scheduler {
        Scheduler::Wlc => (Tree::Winners(Rule::Wlc), RULE_WLC),
        Scheduler::Lc => (Tree::Winners(Rule::Lc), RULE_LC),
        Scheduler::Sed => (Tree::Winners(Rule::Sed), RULE_SED),
        Scheduler::Wrr | Scheduler::Rr => (Tree::Winners(Rule::Fo), RULE_FO),
        Scheduler::Twos | Scheduler::P2c => (Tree::Weights, RULE_SUM_WEIGHT),
        _ => return None,
    })
}

/// Weights 1, 2 and 3 in turn.
const fn weight(index: u32) -> u32 {
    1 + index % 3
}

/// Rows of the service and its servers. Servers beyond those that there are routes for share their addresses.
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
pub(crate) fn fill(dataplane: &Dataplane, scheduler: Scheduler, servers: u32) -> Outcome<()> {
    let maps = dataplane.maps();
    let members: Vec<weir_sched::Member> = (0..servers)
        .rev()
        .map(|index| weir_sched::Member {
            seq: index + 1,
            dest: FIRST + index,
            weight: weight(index),
            slot: FIRST + index,
            usable: true,
        })
        .collect();
    for (place, member) in (1..).zip(&members) {
        let dest = Dest {
            addr: server(4, (member.dest - FIRST) % SERVERS).into(),
            service: SERVICE,
            live: member.dest,
            forward: Forward::Direct as u8,
            flags: DEST_LIVE | DEST_USABLE,
            family: 4,
            generation: 1,
            place,
            ..Dest::default()
        };
        maps.dests.set(member.dest, &dest)?;
    }
    let list: Vec<Member> = members
        .iter()
        .map(|member| Member {
            seq: member.seq,
            dest: member.dest,
            weight: member.weight,
            live: member.slot,
        })
        .collect();
    let mut next = AT + (size_of::<Extent>() / 16) as u32;
    let mut write = |words: &[u32]| -> Outcome<u32> {
        let at = next;
        next += maps.set_elements(at, words)?;
        Ok(at)
    };
    let nodes = match tree_of(scheduler).filter(|_| members.len() > tournament::WALKED) {
        Some((tree, word)) => {
            let mut nodes = tournament::build(tree, &members, &|_| Counts::default());
            nodes[0] = word;
            nodes
        }
        None => Vec::new(),
    };
    let tree_at = write(&nodes)?;
    let spread = spread(&members, scheduler)?;
    let spread_at = write(&spread)?;
    let (hash_at, hash_len) = match scheduler {
        Scheduler::Maglev => (spread_at, spread.len() as u32),
        Scheduler::Sh => (write(&bucket::sh_owners(&members))?, 256),
        _ => {
            let place = |at: u32| FIRST + at.wrapping_mul(2_654_435_761) % servers;
            let owners: Vec<u32> = (0..MH_PLACES).map(place).collect();
            (write(&owners)?, MH_PLACES)
        }
    };
    let list_at = next;
    maps.set_elements(list_at, &list)?;
    let extent = Extent {
        scheduler: scheduler as u32,
        generation: 1,
        list_at,
        list_len: servers,
        hash_at,
        hash_len,
        spread_at,
        spread_len: spread.len() as u32,
        max_weight: members.iter().map(|it| it.weight).max().unwrap_or(0),
        gcd: 1,
        start_weight: 1,
        tree_at,
        tree_width: nodes.len() as u32,
        weight: members.iter().map(|it| u64::from(it.weight)).sum(),
        ..Extent::default()
    };
    maps.set_elements(AT, &[extent])?;
    let service = Service {
        generation: 1,
        ..Service::default()
    };
    maps.services.set(SERVICE, &service)?;
    Ok(maps.set_extent(SERVICE, AT)?)
}

fn spread(members: &[weir_sched::Member], scheduler: Scheduler) -> Outcome<Vec<u32>> {
    let entries: Vec<maglev::Entry> = members
        .iter()
        .map(|member| maglev::Entry {
            name: weir_sched::hash::mix_64(member.dest.into()),
            dest: member.dest,
            weight: member.weight,
        })
        .collect();
    let size = match scheduler {
        Scheduler::Maglev => maglev::size_for(entries.len()),
        _ => maglev::spare_size_for(entries.len()),
    };
    Ok(maglev::table(&entries, size)?)
}
