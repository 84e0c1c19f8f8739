//! Creates a sandbox for each test: new mount and network namespaces for the calling thread, and a pin directory.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(unsafe_code, reason = "unshare(2) and mount(2)")]

pub(crate) mod planned;

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use weir_abi::{HopParts, Settings};
use weir_dataplane::{Dataplane, OpenOptions, Sizes};
use weir_model::{
    Forward, Listener, Pool, Ports, Protocol, Scheduler, SchedulerKind, Server, Service,
};

use planned::PlannedRows;

/// Returns whether the test runs as root; see [`weir_testing::require_root`].
pub(crate) fn privileged() -> bool {
    weir_testing::require_root()
}

/// Returns whether the test can run on CPUs 0 and 1. Moves the calling thread to CPU 1.
pub(crate) fn two_cpus() -> bool {
    weir_testing::require("two CPUs", weir_sys::pin_thread(1).is_ok())
}

/// A mount and network namespace of the calling thread; it ends with the thread.
pub(crate) struct Sandbox {
    directory: PathBuf,
}

static NUMBER: AtomicU32 = AtomicU32::new(0);

impl Sandbox {
    pub(crate) fn new() -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("weir-dataplane-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        // SAFETY: changes the calling thread only.
        let unshared = unsafe { libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWNET) };
        assert_eq!(unshared, 0, "unshare");
        // SAFETY: NUL-terminated strings; mounts of the test do not propagate to the parent namespace.
        let private = unsafe {
            libc::mount(
                c"none".as_ptr(),
                c"/".as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            )
        };
        assert_eq!(private, 0, "make the mounts private");
        // With forwarding off, the kernel returns no routes, so the programs do not change the test's next hops.
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "0").unwrap();
        Self { directory }
    }

    pub(crate) fn pin_dir(&self) -> PathBuf {
        self.directory.join("bpf/weir")
    }

    pub(crate) fn options(&self) -> OpenOptions {
        OpenOptions {
            sizes: small_sizes(),
            secret: Some(SECRET),
            ..OpenOptions::new(self.pin_dir())
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let mount = self.directory.join("bpf");
        if let Ok(path) = std::ffi::CString::new(mount.to_string_lossy().as_bytes()) {
            // SAFETY: a NUL-terminated string.
            unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

pub(crate) const SECRET: [u64; 2] = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210];

/// Returns small sizes, which make opening fast.
pub(crate) fn small_sizes() -> Sizes {
    Sizes {
        services: 16,
        dests: 64,
        pool_rows: 64,
        elements: 4096,
        flows: 7 * 64,
        vips: 16,
        listeners: 64,
        devices: 16,
        fragments: 64,
    }
}

/// Runs a command that must succeed, in the calling thread's namespaces.
pub(crate) fn run(command: &str) {
    let mut words = command.split_whitespace();
    let status = Command::new(words.next().unwrap())
        .args(words)
        .status()
        .unwrap();
    assert!(status.success(), "{command}: {status}");
}

/// Creates a veth pair and brings both ends up. Returns the ifindex of `a`.
pub(crate) fn veth(a: &str, b: &str) -> u32 {
    run(&format!("ip link add name {a} type veth peer name {b}"));
    run(&format!("ip link set {a} up"));
    run(&format!("ip link set {b} up"));
    let name = std::ffi::CString::new(a).unwrap();
    // SAFETY: a NUL-terminated string.
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}

/// Waits at most ten seconds for the number of flows to fall to this value.
pub(crate) fn wait_for_flows(dataplane: &Dataplane, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while dataplane.maps().flows.walk().count() != count {
        let sweep = dataplane.maps().sweep();
        assert!(
            Instant::now() < deadline,
            "the sweep does not remove the flows: {sweep:?}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) const VIP: [u8; 4] = [192, 0, 2, 10];
pub(crate) const SERVER: [u8; 4] = [10, 0, 0, 5];

/// Writes service 1 on 192.0.2.10:80 with `direct` and one server, which is dest 1. A second service on port 81 has the
/// same pool, so the server's counts are in the first row of shared counts.
pub(crate) fn fill(dataplane: &Dataplane) {
    let maps = dataplane.maps();
    let service = |name: &str, port| {
        let mut service = Service::new(name, Forward::Direct, "pool");
        service.listen = listeners(VIP.into(), port);
        service
    };
    let mut pool = Pool::new("pool");
    pool.scheduler = Some(Scheduler::new(SchedulerKind::Rr));
    pool.servers
        .push(Server::new("server", SERVER.into(), None));
    let mut planned = PlannedRows::new(*dataplane.sizes());
    planned.desired.services = vec![service("service", 80), service("other", 81)];
    planned.desired.pools.push(pool);
    let mut rows = planned.rows();
    let mut settings = Settings {
        timeouts: [600; 16],
        syn_budget: 1_000_000,
        reject_budget: 1_000,
        // Longer than the verifier takes for the programs on a busy machine.
        untracked_ticks: 600,
        ..Settings::default()
    };
    settings.timeouts[weir_abi::State::Close as usize] = 0;
    rows.settings = settings;
    planned.write(dataplane, &rows);
    let hop = HopParts {
        ifindex: 1,
        flags: weir_abi::HOP_READY | weir_abi::HOP_SEND | weir_abi::HOP_STATIC,
        mtu: 1500,
        dmac: [2, 0, 0, 0, 0, 5],
        smac: [2, 0, 0, 0, 0, 1],
        ..HopParts::default()
    };
    (0..weir_abi::HOPS_PER_DEST).for_each(|slot| maps.set_hop(1, slot, &hop.into()).unwrap());
}

/// Returns listeners for TCP and UDP.
pub(crate) fn listeners(address: IpAddr, port: u16) -> Vec<Listener> {
    [Protocol::Tcp, Protocol::Udp]
        .map(|protocol| Listener {
            protocol,
            address,
            ports: Ports::One(port),
        })
        .to_vec()
}

/// Returns a TCP packet from 198.51.100.`client` to the VIP, without checksums.
pub(crate) fn tcp(client: u8, port: u16, flags: u8) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let mut ip = vec![
        0x45, 0, 0, 40, 0, 1, 0x40, 0, 64, 6, 0, 0, 198, 51, 100, client,
    ];
    ip.extend(VIP);
    let sum: u32 = ip
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let check = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&check.to_be_bytes());
    packet.extend(ip);
    packet.extend(port.to_be_bytes());
    packet.extend([0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 1, 0, 0, 0, 0, 0]);
    packet
}

pub(crate) const SYN: u8 = 2;
pub(crate) const ACK: u8 = 16;
pub(crate) const RST: u8 = 4;
pub(crate) const FIN: u8 = 1;
