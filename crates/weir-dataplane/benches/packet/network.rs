//! Creates the network for all measurements: one veth pair in a separate namespace.
//!
//! It has routes and neighbors for the servers and clients of all cases. One end is the director's device; the other
//! end represents the rest of the network.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};

use crate::Result;
use crate::frame::{CLIENTS_V6, DIRECTOR_MAC, GATEWAY_MAC};
use crate::support::{self, Sandbox};

/// Number of servers with a neighbor entry.
pub(crate) const SERVERS: u32 = 100;
pub(crate) const PORT: u16 = 80;
/// The first client, 198.18.0.0 (RFC 2544). Sequential flows come from 64 addresses, and random flows from 2^24
/// addresses, starting at this one.
pub(crate) const CLIENTS: u32 = 0xc612_0000;
pub(crate) const DIRECTOR_DEVICE: &str = "d0";
pub(crate) const GENERATOR_DEVICE: &str = "g0";

/// Returns the virtual address.
pub(crate) fn vip(family: u8) -> IpAddr {
    match family {
        4 => Ipv4Addr::new(192, 0, 2, 10).into(),
        _ => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x10).into(),
    }
}

/// Returns the address of server number `index`, from 0.
pub(crate) fn server(family: u8, index: u32) -> IpAddr {
    let last = index as u16 + 1;
    match family {
        4 => Ipv4Addr::new(10, 0, (last >> 8) as u8, last as u8).into(),
        _ => Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, last).into(),
    }
}

/// Returns a server's MAC address.
pub(crate) fn server_mac(index: u32) -> [u8; 6] {
    let [high, low] = (index as u16 + 1).to_be_bytes();
    [2, 0, 10, 0, high, low]
}

/// The network namespace, which exists until the process ends.
pub(crate) struct TestNetwork {
    sandbox: Sandbox,
    /// The interface index of the director's end.
    pub(crate) director: u32,
    /// The interface index of the end through which packets are sent to the director.
    pub(crate) generator: u32,
    cases: u32,
}

impl TestNetwork {
    /// Moves the calling thread to new namespaces and creates devices, addresses, routes and neighbors there.
    pub(crate) fn new() -> Result<Self> {
        let sandbox = Sandbox::new();
        support::run("ip link set lo up");
        support::run(&format!(
            "ip link add name {DIRECTOR_DEVICE} address {} type veth peer name {GENERATOR_DEVICE} address {}",
            mac(DIRECTOR_MAC),
            mac(GATEWAY_MAC)
        ));
        for (key, value) in [
            ("net/ipv4/ip_forward", "1"),
            ("net/ipv6/conf/all/forwarding", "1"),
            ("net/ipv4/conf/all/rp_filter", "0"),
            ("net/ipv4/conf/default/rp_filter", "0"),
            ("net/ipv4/conf/d0/rp_filter", "0"),
            ("net/ipv4/conf/all/send_redirects", "0"),
            ("net/ipv4/conf/d0/send_redirects", "0"),
            ("net/ipv6/conf/d0/accept_dad", "0"),
            ("net/ipv6/conf/g0/disable_ipv6", "1"),
        ] {
            std::fs::write(format!("/proc/sys/{key}"), value)
                .map_err(|error| format!("/proc/sys/{key}: {error}"))?;
        }
        ip_batch(&setup_commands())?;
        // Without GRO, a veth end accepts redirected frames only if an XDP program is attached.
        weir_sys::ethtool::Features::read(DIRECTOR_DEVICE)?
            .set(&[(weir_sys::ethtool::GRO, true)])?;
        let (director, generator) = (
            interface_index(DIRECTOR_DEVICE)?,
            interface_index(GENERATOR_DEVICE)?,
        );
        Ok(Self {
            sandbox,
            director,
            generator,
            cases: 0,
        })
    }

    /// Returns a pin directory that no other case uses.
    pub(crate) fn pin_dir(&mut self) -> std::path::PathBuf {
        self.cases += 1;
        self.sandbox
            .pin_dir()
            .with_file_name(format!("case-{}", self.cases))
    }
}

fn setup_commands() -> String {
    let mut batch = format!(
        "link set {DIRECTOR_DEVICE} up\nlink set {GENERATOR_DEVICE} up\n\
         addr add 10.0.255.1/16 dev {DIRECTOR_DEVICE}\naddr add 2001:db8:1::ffff/64 dev {DIRECTOR_DEVICE} nodad\n"
    );
    let gateway = mac(GATEWAY_MAC);
    let clients = IpAddr::from(CLIENTS_V6);
    batch += &format!(
        "neigh add 10.0.255.2 lladdr {gateway} dev {DIRECTOR_DEVICE} nud permanent\n\
         neigh add 2001:db8:1::fffe lladdr {gateway} dev {DIRECTOR_DEVICE} nud permanent\n\
         route add default via 10.0.255.2 dev {DIRECTOR_DEVICE}\n\
         route add {clients}/64 via 2001:db8:1::fffe dev {DIRECTOR_DEVICE}\n"
    );
    for index in 0..SERVERS {
        for family in [4, 6] {
            batch += &format!(
                "neigh add {} lladdr {} dev {DIRECTOR_DEVICE} nud permanent\n",
                server(family, index),
                mac(server_mac(index))
            );
        }
    }
    batch
}

pub(crate) fn mac(bytes: [u8; 6]) -> String {
    let parts: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    parts.join(":")
}

#[allow(unsafe_code, reason = "if_nametoindex(3) has no safe wrapper here")]
pub(crate) fn interface_index(name: &str) -> Result<u32> {
    let name = std::ffi::CString::new(name)?;
    // SAFETY: `name` is a NUL-terminated string.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(std::io::Error::last_os_error().into()),
        index => Ok(index),
    }
}

fn ip_batch(text: &str) -> Result<()> {
    run_with_input(&["ip", "-batch", "-"], text)
}

/// Runs a command in the calling thread's namespaces with `text` as its standard input.
pub(crate) fn run_with_input(command: &[&str], text: &str) -> Result<()> {
    let mut child = Command::new(command[0])
        .args(&command[1..])
        .stdin(Stdio::piped())
        .spawn()
        .map_err(|error| format!("failed to run {}: {error}", command[0]))?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(text.as_bytes())?;
    }
    let status = child.wait()?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{}: {status}\n{text}", command.join(" ")).into())
    }
}
