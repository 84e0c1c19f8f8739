//! Sets up the director of a case: one service on TCP and UDP, with the rows and tables that weir-planner computes.
//!
//! It also returns the data plane's counts: a case is reported only if hits, misses and entries match the sent packets.

use std::path::{Path, PathBuf};

use aya::programs::ProgramFd;
use weir_abi::{DEVICE_SEND, Device, Reason, Settings, ticks_from};
use weir_dataplane::{Dataplane, OpenOptions, Sizes};
use weir_model::{
    Desired, Forward, Listener, Pool, Ports, Protocol, SchedulerKind, Server, Service,
    TunnelChecksum, TunnelKind,
};

use crate::Result;
use crate::feed::pinned_program;
use crate::frame::DIRECTOR_MAC;
use crate::network::{PORT, SERVERS, server, vip};
use crate::support::planned::PlannedRows;

/// The default of `[node] syn_budget`.
const SYN_BUDGET: u32 = 125_000;
/// Number of servers in each other service.
const SERVERS_PER_OTHER_SERVICE: u32 = 10;

/// The configuration of a director.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) family: u8,
    pub(crate) forward: Forward,
    pub(crate) tunnel: TunnelKind,
    pub(crate) checksum: TunnelChecksum,
    pub(crate) scheduler: SchedulerKind,
    pub(crate) servers: u32,
    /// Whether the servers have the weights 1, 2, 3, 1, 2, …; otherwise, all have weight 1.
    pub(crate) weighted: bool,
    /// Number of other services, each with its own address and ten servers.
    pub(crate) other_services: u32,
    /// Number of entries of the flow table.
    pub(crate) flow_entries: u32,
    /// The number of flows in 65536 that are sampled for the latency estimate.
    pub(crate) sampled: u32,
    /// Whether flows that change state are recorded for other directors.
    pub(crate) sync: bool,
}

/// A data plane that is open and active, with its rows.
pub(crate) struct Director {
    pub(crate) dataplane: Dataplane,
    setup: Setup,
}

impl Director {
    /// Opens a data plane in a new pin directory and writes its rows.
    pub(crate) fn open(pin_dir: PathBuf, ifindex: u32, setup: Setup) -> Result<Self> {
        let sizes = Sizes {
            flows: setup.flow_entries,
            services: Sizes::default().services.max(2 + setup.other_services),
            dests: Sizes::default()
                .dests
                .max(1 + setup.servers + setup.other_services * SERVERS_PER_OTHER_SERVICE),
            ..Sizes::default()
        };
        let mut planned = PlannedRows::new(sizes);
        planned.desired = desired(&setup);
        let servers = (0..setup.servers.min(SERVERS)).map(|index| server(setup.family, index));
        planned.surroundings.sources = servers
            .map(|server| (server, tunnel_source(setup.family)))
            .collect();
        let mut rows = planned.rows();
        let minutes = |minutes: u64| ticks_from(std::time::Duration::from_secs(minutes * 60));
        rows.settings = Settings {
            timeouts: [minutes(15); 16],
            syn_budget: SYN_BUDGET,
            reject_budget: 1000,
            untracked_ticks: minutes(15),
            latency_sample: setup.sampled,
            ..Settings::default()
        };
        let tables = rows.services.values().map(|row| row.tables.elements());
        let sizes = Sizes {
            elements: Sizes::default().elements.max(1 + tables.sum::<u32>()),
            ..sizes
        };
        planned.resize(sizes);
        let options = OpenOptions {
            sizes,
            ..OpenOptions::new(pin_dir)
        };
        let (mut dataplane, _) = Dataplane::open(&options)?;
        planned.write(&dataplane, &rows);
        let device = Device {
            flags: DEVICE_SEND,
            port: ifindex,
            vlan: 0,
            mtu: 1500,
        };
        dataplane.maps().devices.set(&ifindex, &device)?;
        let addresses = [(ifindex, DIRECTOR_MAC)].into();
        dataplane.maps().set_frame_addresses(&addresses)?;
        dataplane.activate()?;
        dataplane.maps().set_sync(setup.sync)?;
        Ok(Self { dataplane, setup })
    }

    /// Returns the program that is attached to devices.
    pub(crate) fn program(&self) -> Result<ProgramFd> {
        pinned_program(&program_pin(self.dataplane.pins().path())?)
    }

    /// Sets the budget for new half-open entries to the default, or removes it while flows are created.
    pub(crate) fn limit_syns(&self, limited: bool) -> Result<()> {
        let maps = self.dataplane.maps();
        let settings = Settings {
            syn_budget: if limited { SYN_BUDGET } else { u32::MAX },
            ..maps.settings()?
        };
        Ok(maps.set_settings(&settings)?)
    }

    /// Returns the current counts.
    pub(crate) fn counts(&self) -> Result<Counts> {
        let maps = self.dataplane.maps();
        let mut counts = Counts {
            reasons: maps.reasons()?,
            ..Counts::default()
        };
        for dest in 1..=self.setup.servers {
            let (live, traffic) = (maps.live(dest)?, maps.traffic(dest)?);
            counts.inserted += live.total;
            counts.tracked += live.active + live.inactive;
            counts.stateless += live.stateless;
            counts.packets_in += traffic.packets_in;
            counts.packets_out += traffic.packets_out;
        }
        counts.entries = maps.flows.walk().count() as u64;
        Ok(counts)
    }

    /// Removes all programs and maps from the kernel.
    pub(crate) fn close(self) -> Result<()> {
        weir_dataplane::clean(self.dataplane.pins())?;
        Ok(())
    }
}

/// Counts of the data plane.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// Number of packets by reason number.
    pub(crate) reasons: Vec<u64>,
    /// Number of flows inserted since the data plane was opened.
    pub(crate) inserted: u64,
    /// Number of flows currently counted as active or inactive.
    pub(crate) tracked: u64,
    /// Number of flows started without an entry.
    pub(crate) stateless: u64,
    pub(crate) packets_in: u64,
    pub(crate) packets_out: u64,
    /// Number of entries in the table: with nat, two per flow.
    pub(crate) entries: u64,
}

impl Counts {
    /// Returns the count of one reason.
    pub(crate) fn reason(&self, reason: Reason) -> u64 {
        self.reasons
            .get(reason.number() as usize)
            .copied()
            .unwrap_or(0)
    }
}

fn program_pin(directory: &Path) -> Result<PathBuf> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path().join("weir_xdp");
        if path.exists() {
            return Ok(path);
        }
    }
    Err(format!("no program is pinned in {}", directory.display()).into())
}

/// Returns the configuration of a case, including services that receive no packets, which lookups must skip.
fn desired(setup: &Setup) -> Desired {
    let mut desired = Desired::default();
    let server = |index: u32| Server {
        weight: if setup.weighted { 1 + index % 3 } else { 1 },
        ..Server::new(
            index.to_string(),
            server(setup.family, index % SERVERS),
            // If there are more servers than routes, the servers share addresses and use different ports.
            (index >= SERVERS).then_some((index / SERVERS) as u16),
        )
    };
    add_service(
        &mut desired,
        setup,
        "case",
        vip(setup.family),
        setup.servers,
        &server,
    );
    for other in 0..setup.other_services {
        let address = std::net::IpAddr::from([198, 18, (other >> 8) as u8, other as u8]);
        let name = format!("other {other}");
        add_service(
            &mut desired,
            setup,
            &name,
            address,
            SERVERS_PER_OTHER_SERVICE,
            &server,
        );
    }
    desired
}

/// Adds a service on TCP and UDP with its own pool.
fn add_service(
    desired: &mut Desired,
    setup: &Setup,
    name: &str,
    address: std::net::IpAddr,
    servers: u32,
    server: &dyn Fn(u32) -> Server,
) {
    let mut service = Service::new(name, setup.forward, name);
    service.tunnel = weir_model::Tunnel {
        kind: setup.tunnel,
        checksum: setup.checksum,
        ..weir_model::Tunnel::default()
    };
    service.listen = [Protocol::Tcp, Protocol::Udp]
        .map(|protocol| Listener {
            protocol,
            address,
            ports: Ports::One(PORT),
        })
        .to_vec();
    let mut pool = Pool::new(name);
    pool.scheduler = Some(weir_model::Scheduler::new(setup.scheduler));
    pool.servers = (0..servers).map(server).collect();
    desired.services.push(service);
    desired.pools.push(pool);
}

/// Returns the source address of outer headers.
fn tunnel_source(family: u8) -> std::net::IpAddr {
    match family {
        4 => [10, 0, 255, 1].into(),
        _ => server(6, 0xfffe),
    }
}
