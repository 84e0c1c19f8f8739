//! Sends the same packets to a data plane and to a reference model with the same configuration.
//!
//! Both process every packet of every test, and a difference in verdict, frame, metadata or counted reasons fails the
//! test immediately; each case also asserts its expected result. weir-planner allocates the rows of services and
//! servers and builds the scheduler tables. A test can write server rows that no configuration produces.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use weir_abi::{
    ABI_FLOW_LAYOUT, Addr, Be16, DEST_LIVE, DEST_USABLE, DEVICE_SEND, Dest, Device, Forward,
    HOP_READY, HOP_SEND, HOP_VLAN_KEEP, Hop, HopParts, Listener, POLICY_PERSISTENT, Reason,
    SETTINGS_LEARN_CLIENTS, SETTINGS_REUSE, Service, Settings, TICK_SHIFT, Vip,
};
use weir_dataplane::{Dataplane, OpenOptions, Sizes, TestInput};
use weir_flow::model::{Persistence, ServiceRow, VipRow};
use weir_flow::{Config, Model};
use weir_model::Pool;
use weir_planner::allocation::{DestSlot, ServiceSlot};
use weir_sched::{Cursor, Kind, Mode};
use weir_sys::{Clock, now_ns};

pub(crate) use crate::outcome::Xdp;
use crate::outcome::{Outcome, difference, read_meta};
use crate::reference::{Reference, Schedule, Server};
use crate::support::planned::PlannedRows;
use crate::support::{SECRET, Sandbox, privileged};

pub(crate) const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const DIRECTOR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// The ingress device of test runs: the loopback device of the test's namespace.
pub(crate) const INGRESS: u32 = 1;
/// A device on which XDP may send packets. It need not exist, because no packet is sent.
pub(crate) const OTHER_DEVICE: u32 = 77;

/// Returns the MAC addresses of packets to a server.
pub(crate) fn next_hop_macs(dest: u32) -> ([u8; 6], [u8; 6]) {
    ([2, 0, 0, 1, 0, 0], [2, 0, 0, 2, 0, dest as u8])
}

/// A server to be added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewServer {
    pub(crate) address: IpAddr,
    pub(crate) weight: u32,
    pub(crate) row: Dest,
    pub(crate) hop: HopParts,
}

impl NewServer {
    /// Returns the server 10.0.0.`last` with `direct`.
    pub(crate) fn direct(last: u8) -> Self {
        Self::new(Forward::Direct, &format!("10.0.0.{last}"))
    }

    pub(crate) fn new(forward: Forward, address: &str) -> Self {
        let address: IpAddr = address.parse().unwrap();
        Self {
            address,
            weight: 1,
            row: Dest {
                addr: address.into(),
                forward: forward as u8,
                family: if address.is_ipv4() { 4 } else { 6 },
                ..Dest::default()
            },
            hop: HopParts {
                ifindex: INGRESS,
                flags: HOP_READY | HOP_SEND,
                mtu: 1500,
                vlan: HOP_VLAN_KEEP,
                ..HopParts::default()
            },
        }
    }

    pub(crate) fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    pub(crate) fn port(mut self, port: u16) -> Self {
        self.row.port = Be16::new(port);
        self
    }

    pub(crate) fn row(mut self, change: impl FnOnce(&mut Dest)) -> Self {
        change(&mut self.row);
        self
    }

    pub(crate) fn hop(mut self, change: impl FnOnce(&mut HopParts)) -> Self {
        change(&mut self.hop);
        self
    }
}

fn configured_server((address, port, weight): (IpAddr, u16, u32)) -> weir_model::Server {
    let port = (port != 0).then_some(port);
    weir_model::Server {
        weight,
        ..weir_model::Server::new(format!("{address} {port:?}"), address, port)
    }
}

/// A data plane and its reference model.
pub(crate) struct Bench {
    pub(crate) plane: Dataplane,
    pub(crate) model: Model<Reference>,
    planned: PlannedRows,
    /// Whether flows were moved to a different table. The model does not track their positions there.
    pub(crate) resized: bool,
    next_port: u16,
    sandbox: Sandbox,
}

pub(crate) fn sizes(flows: u32) -> Sizes {
    Sizes {
        services: 64,
        dests: 256,
        pool_rows: 64,
        elements: 1 << 17,
        flows,
        vips: 64,
        listeners: 256,
        devices: 16,
        fragments: 64,
    }
}

pub(crate) fn tick() -> u32 {
    ticks_of(now_ns(Clock::MonotonicCoarse))
}

fn ticks_of(ns: u64) -> u32 {
    (ns >> TICK_SHIFT) as u32
}

/// Time after a new tick during which the programs can still use the previous tick, because the clock that they read
/// advances once per jiffy.
const TICK_LAG_NS: u64 = 20_000_000;

/// Waits until the clock is not close to a tick boundary. Budgets and lifetimes are counted in ticks, so if the two
/// sides read different ticks for a packet, a difference can appear much later.
pub(crate) fn wait_until_tick_is_stable() {
    let is_near_change = || {
        let now = now_ns(Clock::MonotonicCoarse);
        ticks_of(now.saturating_sub(TICK_LAG_NS)) != ticks_of(now + TICK_LAG_NS)
    };
    while is_near_change() {
        std::thread::yield_now();
    }
}

/// Pins the thread to a CPU. Budgets and scratch rows are per CPU, so all packets of a test must be processed on the
/// same CPU.
fn pin_to_one_cpu() {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let cpu = NEXT.fetch_add(1, Ordering::Relaxed) % cpus;
    // In a cpuset without this CPU, the thread is not pinned; the kernel rarely moves it.
    let _ = weir_sys::pin_thread(cpu);
}

impl Bench {
    /// Opens both sides with a large table; `None` if the test cannot run on this machine.
    pub(crate) fn open() -> Option<Self> {
        Self::with_flows(7 * 16384)
    }

    pub(crate) fn with_flows(flows: u32) -> Option<Self> {
        Self::with_secret(flows, SECRET)
    }

    /// Opens both sides with this hash secret. A test that uses a different secret must not call [`Self::reopen`].
    pub(crate) fn with_secret(flows: u32, secret: [u64; 2]) -> Option<Self> {
        if !privileged() {
            return None;
        }
        let sandbox = Sandbox::new();
        // Without routes from the kernel, the programs do not change the next hops that a test writes.
        for sysctl in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            std::fs::write(format!("/proc/sys/net/{sysctl}"), "0").unwrap();
        }
        pin_to_one_cpu();
        let sizes = sizes(flows);
        let options = OpenOptions {
            sizes,
            secret: Some(secret),
            xdp_only: true,
            ..OpenOptions::new(sandbox.pin_dir())
        };
        let (plane, _) = Dataplane::open(&options).unwrap();
        let model = Model::new(Config::new(secret, sizes.buckets()), Reference::default());
        let mut bench = Self {
            plane,
            model,
            planned: PlannedRows::new(sizes),
            resized: false,
            next_port: 80,
            sandbox,
        };
        bench.change_settings(|settings| {
            settings.timeouts = [1_000_000; 16];
            settings.syn_budget = u32::MAX;
            settings.reject_budget = u32::MAX;
            settings.untracked_ticks = 1_000;
            settings.lblc_expiration = u32::MAX;
            settings.lblcr_expiration = u32::MAX;
            settings.flags = SETTINGS_REUSE;
        });
        for ifindex in [INGRESS, OTHER_DEVICE] {
            bench.set_device(ifindex, DEVICE_SEND);
        }
        Some(bench)
    }

    /// Opens the pinned data plane again with different sizes, without activating it.
    pub(crate) fn reopen(&mut self, sizes: Sizes) {
        self.reopen_as(sizes, ABI_FLOW_LAYOUT);
    }

    /// Opens the pinned data plane again with a different layout of the flow table.
    pub(crate) fn reopen_as(&mut self, sizes: Sizes, flow_layout: u32) {
        let options = OpenOptions {
            sizes,
            flow_layout,
            secret: Some(SECRET),
            xdp_only: true,
            ..OpenOptions::new(self.sandbox.pin_dir())
        };
        self.plane = Dataplane::open(&options).unwrap().0;
        self.model.resize(sizes.buckets());
        self.resized = true;
    }

    pub(crate) fn change_settings(&mut self, change: impl FnOnce(&mut Settings)) {
        let mut settings = self.model.config().settings;
        change(&mut settings);
        self.plane.maps().set_settings(&settings).unwrap();
        self.model.config_mut().settings = settings;
    }

    /// Makes the data plane derive its random numbers from this seed.
    pub(crate) fn seed_random_numbers(&mut self, seed: u32) {
        self.change_settings(|settings| settings.draw_seed = seed);
        self.model.scheduler_mut().seed = seed;
    }

    /// Sets the thresholds of a server.
    pub(crate) fn set_thresholds(&mut self, dest: u32, upper: u32, lower: u32) {
        let row = self.model.config().dests[&dest].live;
        self.plane.maps().set_thresholds(row, upper, lower).unwrap();
        let live = self.model.live_mut(row);
        (live.upper, live.lower) = (upper, lower);
    }

    /// Sets whether a server is at its upper threshold.
    pub(crate) fn set_overloaded(&mut self, dest: u32, overloaded: bool) {
        let mut live = self.plane.maps().live(dest).unwrap();
        live.overloaded = overloaded.into();
        self.plane.maps().live.set(dest, &live).unwrap();
        self.model.live_mut(dest).overloaded = overloaded.into();
        let service = self.plane.maps().dests.get(dest).unwrap().service;
        self.planned.refresh_tree(&self.plane, service);
    }

    /// Makes nat replies take the reverse path of the client's packets.
    pub(crate) fn learn_clients(&mut self) {
        self.change_settings(|settings| settings.flags |= SETTINGS_LEARN_CLIENTS);
    }

    pub(crate) fn set_device(&mut self, ifindex: u32, flags: u32) {
        let row = Device {
            flags,
            port: ifindex,
            ..Device::default()
        };
        self.plane.maps().devices.set(&ifindex, &row).unwrap();
        self.model.config_mut().devices.insert(ifindex, row);
    }

    /// Adds a service without servers or listeners.
    pub(crate) fn add_service(&mut self, kind: Kind) -> u32 {
        self.add_service_with(kind, Mode::Repair, false)
    }

    pub(crate) fn add_service_with(&mut self, kind: Kind, mode: Mode, port: bool) -> u32 {
        let desired = &mut self.planned.desired;
        let name = (desired.services.len() + 1).to_string();
        desired.pools.push(Pool::new(&name));
        let configured = weir_model::Service::new(&name, weir_model::Forward::Direct, &name);
        desired.services.push(configured);
        let schedule = Schedule::new(kind, mode, port);
        self.configure(&name, &schedule, None);
        let service = self.planned.reconcile(&name, Cursor::default()).row;
        self.plane
            .maps()
            .services
            .set(
                service,
                &Service {
                    generation: 1,
                    ..Service::default()
                },
            )
            .unwrap();
        self.model
            .scheduler_mut()
            .schedules
            .insert(service, schedule);
        self.model
            .config_mut()
            .services
            .insert(service, ServiceRow::default());
        service
    }

    /// Changes a service's row in the data plane and in the model, whose `has_extent` and `spread` remain unchanged.
    pub(crate) fn change_service_row(&mut self, service: u32, change: impl FnOnce(&mut Service)) {
        let maps = self.plane.maps();
        let mut row = maps.services.get(service).unwrap();
        change(&mut row);
        maps.services.set(service, &row).unwrap();
        let addresses = maps
            .elements
            .get_all(row.snat_at, row.snat_len.into())
            .unwrap();
        let model_row = self.model.config_mut().services.get_mut(&service).unwrap();
        model_row.flags = row.flags;
        model_row.persistence = (row.template_ticks != 0).then_some(Persistence {
            ticks: row.template_ticks,
            prefix4: row.template_prefix4,
            prefix6: row.template_prefix6,
            scope: row.template_scope,
        });
        model_row.snat_ports = (row.snat_port_first, row.snat_port_last);
        model_row.snat_addresses = addresses
            .iter()
            .map(|element| {
                let bytes: Vec<u8> = element
                    .word
                    .iter()
                    .flat_map(|word| word.to_ne_bytes())
                    .collect();
                Addr::from_octets(bytes.try_into().unwrap())
            })
            .collect();
    }

    /// Sets a service's source addresses and port range for snat.
    pub(crate) fn add_snat(&mut self, service: u32, addresses: &[&str], ports: (u16, u16)) {
        let addresses: Vec<Addr> = addresses
            .iter()
            .map(|text| text.parse::<IpAddr>().unwrap().into())
            .collect();
        let first = self.planned.write_values(&self.plane, &addresses);
        self.change_service_row(service, |row| {
            (row.snat_at, row.snat_len) = (first, addresses.len() as u16);
            (row.snat_port_first, row.snat_port_last) = ports;
        });
        for address in addresses {
            self.change_filter(|filter| filter.add_destination(address));
        }
    }

    fn change_filter(&mut self, change: impl FnOnce(&mut weir_abi::Filter)) {
        change(&mut self.model.config_mut().filter);
        self.plane
            .maps()
            .set_filter(&self.model.config().filter)
            .unwrap();
    }

    /// Adds a VIP.
    pub(crate) fn add_vip(&mut self, address: &str, row: VipRow) {
        let address: Addr = address.parse::<IpAddr>().unwrap().into();
        self.change_filter(|filter| filter.add_destination(address));
        let mut ranges = row.ranges.clone();
        ranges.sort_by_key(|range| (range.protocol, range.first));
        let ranges: Vec<weir_abi::Range> = ranges
            .iter()
            .map(|range| weir_abi::Range {
                first: range.first,
                last: range.last,
                proto: range.protocol,
                service: range.service,
                ..weir_abi::Range::default()
            })
            .collect();
        let first = self.planned.write_values(&self.plane, &ranges);
        let vip = Vip {
            flags: row.flags,
            any_tcp: row.any_tcp,
            any_udp: row.any_udp,
            ranges_at: first,
            ranges_len: ranges.len() as u32,
            ..Vip::default()
        };
        self.plane.maps().vips.set(&address, &vip).unwrap();
        self.model.config_mut().vips.insert(address, row);
    }

    /// Adds a listener on a VIP's port to a service, for TCP and UDP.
    pub(crate) fn listen(&mut self, service: u32, address: &str, port: u16) {
        if !self
            .model
            .config()
            .vips
            .contains_key(&address.parse::<IpAddr>().unwrap().into())
        {
            self.add_vip(address, VipRow::default());
        }
        let addr: Addr = address.parse::<IpAddr>().unwrap().into();
        for proto in [6, 17] {
            let listener = Listener {
                addr,
                port: Be16::new(port),
                proto,
                ..Listener::default()
            };
            self.plane
                .maps()
                .listeners
                .set(&listener, &service)
                .unwrap();
            self.model
                .config_mut()
                .listeners
                .insert((addr, port, proto), service);
        }
    }

    /// Assigns packets with this mark and family (4 or 6) to a service.
    pub(crate) fn listen_to_mark(&mut self, service: u32, mark: u32, family: u16) {
        let addr = Addr::from(IpAddr::V6(u128::from(mark).into()));
        let listener = Listener {
            addr,
            port: Be16::new(family),
            ..Listener::default()
        };
        let maps = self.plane.maps();
        maps.listeners.set(&listener, &service).unwrap();
        let config = self.model.config_mut();
        config.listeners.insert((addr, family, 0), service);
    }

    /// Adds a service with a listener and these servers. Returns the service and the rows of its servers.
    pub(crate) fn serve(
        &mut self,
        kind: Kind,
        listen: (&str, u16),
        servers: &[NewServer],
    ) -> (u32, Vec<u32>) {
        let service = self.add_service(kind);
        let dests = servers
            .iter()
            .map(|server| self.add(service, *server))
            .collect();
        self.listen(service, listen.0, listen.1);
        (service, dests)
    }

    /// Adds a service on an unused port, like [`Self::serve`].
    pub(crate) fn serve_next(
        &mut self,
        kind: Kind,
        vip: &str,
        servers: &[NewServer],
    ) -> (u16, Vec<u32>) {
        let port = self.next_port();
        (port, self.serve(kind, (vip, port), servers).1)
    }

    /// Returns an unused port.
    pub(crate) fn next_port(&mut self) -> u16 {
        self.next_port += 1;
        self.next_port - 1
    }

    /// Adds a server and publishes the new list.
    pub(crate) fn add(&mut self, service: u32, server: NewServer) -> u32 {
        let slot = self.reconcile(service, Some(&server));
        let port = server.row.port.get();
        let is_new =
            |slot: &&DestSlot| (slot.address, slot.port.unwrap_or(0)) == (server.address, port);
        let slot = slot.dests.iter().find(is_new).unwrap();
        let (dest, seq) = (slot.id, slot.seq);
        let live = if server.row.live == 0 {
            dest
        } else {
            server.row.live
        };
        let usable = if server.weight > 0 { DEST_USABLE } else { 0 };
        let row = Dest {
            service,
            live,
            generation: 1,
            flags: server.row.flags | DEST_LIVE | usable,
            policy: server.row.policy | POLICY_PERSISTENT,
            ..server.row
        };
        let (smac, dmac) = next_hop_macs(dest);
        let hop = HopParts {
            dmac,
            smac,
            ..server.hop
        };
        for slot in 0..weir_abi::HOPS_PER_DEST {
            if hop.ifindex != 0 {
                self.plane
                    .maps()
                    .set_hop(dest, slot, &Hop::from(hop))
                    .unwrap();
                self.model.config_mut().hops.insert((dest, slot), hop);
            }
        }
        self.write_dest(dest, row);
        if row.forward == Forward::Nat as u8 {
            self.change_filter(|filter| filter.add_source(row.addr));
        }
        let added = Server {
            dest,
            seq,
            live,
            weight: server.weight,
            last_weight: server.weight,
            address: server.address,
            port,
        };
        self.change(service, |schedule| schedule.add(added));
        dest
    }

    fn write_dest(&mut self, dest: u32, row: Dest) {
        self.plane.maps().dests.set(dest, &row).unwrap();
        self.model.config_mut().dests.insert(dest, row);
    }

    /// Changes a server's row and nothing else.
    pub(crate) fn change_dest_row(&mut self, dest: u32, change: impl FnOnce(&mut Dest)) {
        let mut row = self.model.config().dests[&dest];
        change(&mut row);
        self.write_dest(dest, row);
    }

    /// Links these rows in a ring, like rows that share their counts. The caller must publish the service afterwards.
    pub(crate) fn link_shared_counts(&mut self, dests: &[u32]) {
        for (dest, next) in dests.iter().zip(dests.iter().cycle().skip(1)) {
            self.change_dest_row(*dest, |row| row.sibling = *next);
        }
    }

    /// Changes a server's weight and publishes the new list.
    pub(crate) fn set_weight(&mut self, service: u32, dest: u32, weight: u32) {
        self.change_dest_row(dest, |row| {
            row.flags = row.flags & !DEST_USABLE | if weight > 0 { DEST_USABLE } else { 0 };
        });
        self.change(service, |schedule| schedule.edit(dest, weight));
    }

    /// Removes a server. Its row remains, with these flags.
    pub(crate) fn remove(&mut self, service: u32, dest: u32, flags: u8) {
        self.change_dest_row(dest, |row| (row.flags, row.policy) = (flags, 0));
        self.change(service, |schedule| schedule.remove(dest));
    }

    fn change(&mut self, service: u32, change: impl FnOnce(&mut Schedule)) {
        let schedules = &mut self.model.scheduler_mut().schedules;
        change(schedules.get_mut(&service).unwrap());
        self.publish(service);
    }

    /// Configures a service according to its schedule, and adds a server if `new` is given.
    fn configure(&mut self, name: &str, schedule: &Schedule, new: Option<&NewServer>) {
        let desired = &mut self.planned.desired;
        let service = desired
            .services
            .iter_mut()
            .find(|configured| configured.name == name);
        service.unwrap().strict_ipvs = schedule.mode == Mode::Strict;
        let pool = desired
            .pools
            .iter_mut()
            .find(|configured| configured.name == name);
        let pool = pool.unwrap();
        pool.scheduler = Some(schedule.scheduler());
        let oldest_first = schedule.servers.iter().rev();
        let current_servers =
            oldest_first.map(|server| (server.address, server.port, server.weight));
        let new = new.map(|server| (server.address, server.row.port.get(), server.weight));
        pool.servers = current_servers.chain(new).map(configured_server).collect();
    }

    /// Allocates the rows of a service's servers.
    fn reconcile(&mut self, service: u32, new: Option<&NewServer>) -> ServiceSlot {
        let name = service.to_string();
        let schedule = self.model.scheduler_mut().schedules[&service].clone();
        self.configure(&name, &schedule, new);
        let cursor = self.plane.maps().cursors.get(service).unwrap();
        let cursor = Cursor {
            generation: cursor.generation,
            last_seq: cursor.seq,
            pass_weight: cursor.current_weight as u32,
        };
        self.planned.reconcile(&name, cursor).clone()
    }

    /// Computes and writes a service's tables.
    fn publish(&mut self, service: u32) {
        let mut slot = self.reconcile(service, None);
        let dests = self.plane.sizes().dests;
        for dest in &mut slot.dests {
            // The test decides which servers share their counts.
            let live = self.model.config().dests[&dest.id].live;
            dest.shared = live.checked_sub(dests);
        }
        let schedule = &self.model.scheduler_mut().schedules[&service];
        let (hashed, treeless) = (schedule.kind == Kind::Maglev, schedule.treeless);
        let tables = self.planned.tables(&service.to_string(), &slot, treeless);
        for (dest, place) in tables.positions() {
            self.change_dest_row(dest, |row| row.place = place);
        }
        let spread = tables.spread().to_vec();
        self.planned.publish(&self.plane, service, tables);
        let schedule = self.model.scheduler_mut().schedules.get_mut(&service);
        schedule.unwrap().spread.clone_from(&spread);
        let row = self.model.config_mut().services.get_mut(&service).unwrap();
        row.has_extent = true;
        row.hashed = hashed;
        row.spread = spread;
    }

    /// Asserts that a service's tree, as updated by packets, matches the counts. Returns whether the service has a
    /// tree.
    #[track_caller]
    pub(crate) fn has_matching_tree(&self, service: u32) -> bool {
        let (nodes, expected) = self.planned.trees(&self.plane, service);
        assert_eq!(nodes, expected, "service {service}");
        !expected.is_empty()
    }

    /// Runs the data plane without the model.
    pub(crate) fn run(&self, frame: &[u8]) -> Outcome {
        let before = self.plane.maps().reasons().unwrap();
        let run = self
            .plane
            .test_run("weir_xdp", &TestInput::xdp(frame))
            .unwrap();
        let after = self.plane.maps().reasons().unwrap();
        let counted = (0u32..)
            .zip(before.iter().zip(&after))
            .flat_map(|(number, (before, after))| {
                let times = (after - before) as usize;
                std::iter::repeat_n(number, times)
            })
            .map(|number| Reason::try_from(number).unwrap())
            .collect();
        Outcome {
            verdict: Xdp::from_number(run.verdict),
            frame: run.packet,
            counted,
            meta: read_meta(&run.metadata),
        }
    }

    /// Sends a packet through the data plane and the model.
    ///
    /// # Errors
    /// Returns the difference and the packet.
    pub(crate) fn try_send(&mut self, frame: &[u8]) -> Result<Outcome, String> {
        wait_until_tick_is_stable();
        let earliest = tick();
        let outcome = self.run(frame);
        let latest = tick();
        // If the tick changed during the run, either tick may be the one that the programs read.
        if earliest != latest {
            let mut model = self.model.clone();
            if difference(&outcome, &model.process(frame, earliest)).is_none() {
                self.model = model;
                return Ok(outcome);
            }
        }
        let expected = self.model.process(frame, latest);
        match difference(&outcome, &expected) {
            None => Ok(outcome),
            Some(difference) => Err(format!(
                "{difference}\npacket: {}\n  {frame:02x?}\ndata plane: {:?} {:?} {:?}\n  {}\nmodel: {:?} {:?}\n  {}",
                weir_wire::describe(frame),
                outcome.verdict,
                outcome.counted,
                outcome.meta,
                weir_wire::describe(&outcome.frame),
                expected.verdict,
                expected.counted,
                weir_wire::describe(&expected.frame),
            )),
        }
    }

    /// Sends a packet through the data plane and the model, and asserts that they agree.
    #[track_caller]
    pub(crate) fn send(&mut self, frame: &[u8]) -> Outcome {
        match self.try_send(frame) {
            Ok(outcome) => outcome,
            Err(difference) => panic!("{difference}"),
        }
    }

    /// Sends a packet that must be forwarded, and returns the number of the server that received it.
    #[track_caller]
    pub(crate) fn send_to_server(&mut self, frame: &[u8]) -> u32 {
        let outcome = self.send(frame);
        assert_eq!(outcome.verdict, Xdp::Tx, "{outcome:?}");
        outcome.frame[5].into()
    }

    /// Asserts that flows, counts and traffic are equal on both sides, and that the counts match a walk over the table.
    #[track_caller]
    pub(crate) fn assert_same_state(&self) {
        crate::consistency::compare_with_model(self);
    }
}
