//! A director as the cases need it: one service on TCP and one on UDP, servers by number, rows as weir-control writes
//! them.
//!
//! And what it counted, so that no case is believed whose hits, misses and entries are not those that were sent.

use std::path::{Path, PathBuf};

use aya::programs::ProgramFd;
use weir_abi::{
    Addr, Be16, DEST_LIVE, DEST_USABLE, DEVICE_SEND, Dest, Device, Extent, Filter, Forward,
    Listener, Member, Reason, Scheduler, Service, Settings, Tunnel, VIP_ECHO, Vip, ticks_from,
};
use weir_dataplane::{Dataplane, OpenOptions, Sizes};

use crate::Outcome;
use crate::feed::pinned_program;
use crate::frame::{TCP, UDP};
use crate::ground::{PORT, server, vip};
use crate::pool;

/// The default of `[node] syn_budget`.
const SYN_BUDGET: u32 = 125_000;
const SERVICES: [(u32, u8); 2] = [(1, TCP), (2, UDP)];
/// Elements: a header for each service, then a list each, then the tables that both share.
const HEADERS: u32 = 1;
const HEADER: u32 = (size_of::<Extent>() / 16) as u32;
const LISTS: u32 = 16;
const LIST_ROOM: u32 = 256;
const HASH: u32 = 1024;
const HASH_LENGTH: u32 = 4093;
const SPREAD: u32 = 4096;
const SPREAD_LENGTH: u32 = 65_537;
/// Other services: their elements, a header and a list each, and the rows of their servers.
const OTHERS: u32 = 65_536;
const OTHERS_ROOM: u32 = 16;
const OTHERS_SERVERS: u32 = 10;
const OTHERS_FIRST_DEST: u32 = 1024;

/// How the servers are reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) family: u8,
    pub(crate) forward: Forward,
    pub(crate) tunnel: Tunnel,
    pub(crate) tunnel_flags: u8,
    pub(crate) scheduler: Scheduler,
    pub(crate) servers: u32,
    /// Rows as weir-control writes them: weights, counts of each server's own, a tree beside a long list. TCP only.
    pub(crate) faithful: bool,
    /// Other services, each with an address, a list and ten servers of its own.
    pub(crate) others: u32,
    /// Places for flows.
    pub(crate) places: u32,
}

/// An open, active data plane with its rows.
pub(crate) struct Director {
    pub(crate) dataplane: Dataplane,
    setup: Setup,
}

impl Director {
    /// Opens one in a fresh pin directory and fills it.
    pub(crate) fn open(pin_dir: PathBuf, ifindex: u32, setup: Setup) -> Outcome<Self> {
        let options = OpenOptions {
            sizes: Sizes {
                flows: setup.places,
                services: Sizes::default()
                    .services
                    .max(SERVICES.len() as u32 + 1 + setup.others),
                dests: Sizes::default()
                    .dests
                    .max(OTHERS_FIRST_DEST + setup.others * OTHERS_SERVERS)
                    .max(SERVICES.len() as u32 * setup.servers + 1),
                elements: Sizes::default()
                    .elements
                    .max(OTHERS + setup.others * OTHERS_ROOM)
                    .max(pool::elements(setup.servers)),
                ..Sizes::default()
            },
            ..OpenOptions::new(pin_dir)
        };
        let (mut dataplane, _) = Dataplane::open(&options)?;
        fill(&dataplane, ifindex, &setup)?;
        dataplane.activate()?;
        Ok(Self { dataplane, setup })
    }

    /// The program that devices run.
    pub(crate) fn program(&self) -> Outcome<ProgramFd> {
        pinned_program(&program_pin(self.dataplane.pins().path())?)
    }

    /// Lifts the budget of new half-open entries while flows are made, or puts the default back.
    pub(crate) fn limit_syns(&self, limited: bool) -> Outcome<()> {
        let maps = self.dataplane.maps();
        let settings = Settings {
            syn_budget: if limited { SYN_BUDGET } else { u32::MAX },
            ..maps.settings()?
        };
        Ok(maps.set_settings(&settings)?)
    }

    /// What was counted so far.
    pub(crate) fn counts(&self) -> Outcome<Counts> {
        let maps = self.dataplane.maps();
        let mut counts = Counts {
            reasons: maps.reasons()?,
            ..Counts::default()
        };
        for dest in 1..=self.setup.servers * SERVICES.len() as u32 {
            let (live, traffic) = (maps.live(dest)?, maps.traffic(dest)?);
            counts.bound += live.total;
            counts.tracked += live.active + live.inactive;
            counts.stateless += live.stateless;
            counts.packets_in += traffic.packets_in;
            counts.packets_out += traffic.packets_out;
        }
        counts.entries = maps.flows.walk().count() as u64;
        Ok(counts)
    }

    /// Removes all of it from the kernel.
    pub(crate) fn close(self) -> Outcome<()> {
        weir_dataplane::clean(self.dataplane.pins())?;
        Ok(())
    }
}

/// What the data plane counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// By reason number.
    pub(crate) reasons: Vec<u64>,
    /// Flows ever entered.
    pub(crate) bound: u64,
    /// Flows counted as active or inactive now.
    pub(crate) tracked: u64,
    /// Flows that began without an entry.
    pub(crate) stateless: u64,
    pub(crate) packets_in: u64,
    pub(crate) packets_out: u64,
    /// Entries found by a walk of the table, both directions under nat.
    pub(crate) entries: u64,
}

impl Counts {
    /// The count of one reason.
    pub(crate) fn reason(&self, reason: Reason) -> u64 {
        self.reasons
            .get(reason.number() as usize)
            .copied()
            .unwrap_or(0)
    }
}

fn program_pin(directory: &Path) -> Outcome<PathBuf> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path().join("weir_xdp");
        if path.exists() {
            return Ok(path);
        }
    }
    Err(format!("no program is pinned in {}", directory.display()).into())
}

fn fill(dataplane: &Dataplane, ifindex: u32, setup: &Setup) -> Outcome<()> {
    let maps = dataplane.maps();
    let address = Addr::from(vip(setup.family));
    let minutes = |minutes: u64| ticks_from(std::time::Duration::from_secs(minutes * 60));
    maps.set_settings(&Settings {
        timeouts: [minutes(15); 16],
        syn_budget: SYN_BUDGET,
        reject_budget: 1000,
        untracked_ticks: minutes(15),
        ..Settings::default()
    })?;
    maps.devices.set(
        &ifindex,
        &Device {
            flags: DEVICE_SEND,
            port: ifindex,
            vlan: 0,
            mtu: 1500,
        },
    )?;
    let mut filter = Filter::ZERO;
    filter.add_to(address);
    for (number, (service, protocol)) in SERVICES.into_iter().enumerate() {
        if setup.faithful && protocol != TCP {
            continue;
        }
        let first = 1 + number as u32 * setup.servers;
        if setup.faithful {
            pool::fill(dataplane, setup.scheduler, setup.servers)?;
        } else {
            fill_servers(dataplane, setup, service, first)?;
            fill_extent(dataplane, setup, service, first)?;
        }
        let listener = Listener {
            addr: address,
            port: Be16::new(PORT),
            proto: protocol,
            ..Listener::default()
        };
        maps.listeners.set(&listener, &service)?;
    }
    if setup.forward == Forward::Nat {
        (0..setup.servers).for_each(|index| filter.add_from(server(setup.family, index).into()));
    }
    fill_others(dataplane, setup, &mut filter)?;
    maps.set_filter(&filter)?;
    maps.vips.set(
        &address,
        &Vip {
            flags: VIP_ECHO,
            ..Vip::default()
        },
    )?;
    Ok(())
}

/// What no packet of the case is for: services, servers, listeners and addresses that lookups have to pass over.
fn fill_others(dataplane: &Dataplane, setup: &Setup, filter: &mut Filter) -> Outcome<()> {
    let maps = dataplane.maps();
    for other in 0..setup.others {
        let service = SERVICES.len() as u32 + 1 + other;
        let first = OTHERS_FIRST_DEST + other * OTHERS_SERVERS;
        let at = OTHERS + other * OTHERS_ROOM;
        let address = Addr::from(std::net::IpAddr::from([
            198,
            18,
            (other >> 8) as u8,
            other as u8,
        ]));
        let few = Setup {
            servers: OTHERS_SERVERS,
            ..*setup
        };
        fill_servers(dataplane, &few, service, first)?;
        let member = |index: u32| Member {
            seq: index + 1,
            dest: first + index,
            weight: 1,
            live: first + index,
        };
        let members: Vec<Member> = (0..OTHERS_SERVERS).rev().map(member).collect();
        maps.set_elements(at + HEADER, &members)?;
        let extent = Extent {
            scheduler: Scheduler::Rr as u32,
            generation: 1,
            list_at: at + HEADER,
            list_len: OTHERS_SERVERS,
            max_weight: 1,
            gcd: 1,
            ..Extent::default()
        };
        maps.set_elements(at, &[extent])?;
        let row = Service {
            generation: 1,
            ..Service::default()
        };
        maps.services.set(service, &row)?;
        maps.set_extent(service, at)?;
        let listener = Listener {
            addr: address,
            port: Be16::new(PORT),
            proto: TCP,
            ..Listener::default()
        };
        maps.listeners.set(&listener, &service)?;
        let vip = Vip {
            flags: VIP_ECHO,
            ..Vip::default()
        };
        maps.vips.set(&address, &vip)?;
        filter.add_to(address);
    }
    Ok(())
}

/// Rows `first…`: next hops are left to the data plane, which asks the kernel.
fn fill_servers(dataplane: &Dataplane, setup: &Setup, service: u32, first: u32) -> Outcome<()> {
    for index in 0..setup.servers {
        let dest = Dest {
            addr: server(setup.family, index).into(),
            tunnel_source: match setup.family {
                4 => std::net::IpAddr::from([10, 0, 255, 1]).into(),
                _ => server(6, 0xfffe).into(),
            },
            service,
            live: dataplane.sizes().dests + service,
            forward: setup.forward as u8,
            flags: DEST_LIVE | DEST_USABLE,
            tunnel: setup.tunnel as u8,
            tunnel_flags: setup.tunnel_flags,
            tunnel_port: Be16::new(6080),
            dscp: u8::from(setup.forward == Forward::L3dsr),
            family: setup.family,
            generation: 1,
            ..Dest::default()
        };
        dataplane.maps().dests.set(first + index, &dest)?;
    }
    Ok(())
}

fn fill_extent(dataplane: &Dataplane, setup: &Setup, service: u32, first: u32) -> Outcome<()> {
    let maps = dataplane.maps();
    let at = |base: u32, room: u32| base + (service - 1) * room;
    let members: Vec<Member> = (0..setup.servers)
        .rev()
        .map(|index| Member {
            seq: index + 1,
            dest: first + index,
            weight: 1,
            live: first + index,
        })
        .collect();
    // Which server owns which place does not matter here, only that all are met and none follows the last.
    let table = |length: u32| -> Vec<u32> {
        (0..length)
            .map(|place| first + place.wrapping_mul(2_654_435_761) % setup.servers)
            .collect()
    };
    let tables = SPREAD_LENGTH.div_ceil(4) + 1;
    let (hash_at, spread_at) = (at(HASH, HASH_LENGTH / 4 + 1), at(SPREAD, tables));
    maps.set_elements(at(LISTS, LIST_ROOM), &members)?;
    maps.set_elements(hash_at, &table(HASH_LENGTH))?;
    maps.set_elements(spread_at, &table(SPREAD_LENGTH))?;
    let extent = Extent {
        scheduler: setup.scheduler as u32,
        generation: 1,
        list_at: at(LISTS, LIST_ROOM),
        list_len: setup.servers,
        hash_at,
        hash_len: HASH_LENGTH,
        spread_at,
        spread_len: SPREAD_LENGTH,
        max_weight: 1,
        gcd: 1,
        ..Extent::default()
    };
    maps.set_elements(at(HEADERS, HEADER), &[extent])?;
    maps.services.set(
        service,
        &Service {
            generation: 1,
            ..Service::default()
        },
    )?;
    Ok(maps.set_extent(service, at(HEADERS, HEADER))?)
}
