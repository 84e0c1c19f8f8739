//! Creates the hosts of a trial and the links between them.
//!
//! ```text
//!  host namespace │ wire namespace
//!                 │
//!      eth0 ══════╪═ NAME ── br-NAME ── NAME-a ═══ NAME-b ── br0
//!                 │  tbf: toward the host   tbf: from the host
//! ```
//!
//! Each host has one interface on the same Ethernet segment, as in the original reports. Both shapers are outside the
//! host. XDP_TX and redirects bypass the host's queueing discipline, so a shaper inside the host would limit the peers
//! but not Weir. Clients are in a different IP network from the servers, but on the same segment, so that only a
//! server's route determines whether it responds directly (`direct`, `tunnel`, `l3dsr`) or through the director
//! (`nat`).
//!
//! All devices keep ethtool's default offloads, for Weir and its peers alike, as in a network of containers or virtual
//! machines: senders defer checksums and segmentation to hardware that does not exist. Weir attaches at tc there. The
//! shapers split packets that exceed their burst.
//!
//! The client's receive direction is not limited, because the client must receive the traffic of four servers. The
//! reports limited only the transmit direction.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use crate::error::Result;
use crate::namespace::Namespace;
use crate::process;
use crate::rate::Rate;
use crate::session::Session;

/// The address that clients connect to.
pub(crate) const VIP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
const CLIENT: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const DIRECTOR: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const CLIENT_NETWORK: &str = "198.51.100.0/24";
const SERVER_NETWORK: &str = "10.0.0.0/24";
const VIP_NETWORK: &str = "192.0.2.0/24";
/// The last byte of the first server's address, as in the examples of the manual.
const FIRST_SERVER_BYTE: u8 = 5;
/// Queue limit of a shaper, as in the reports (`latency 50ms`).
const SHAPER_LATENCY: &str = "50ms";
/// Length of the accept queue on all hosts. With the default of 4096 or less, `ab -c 1000` would measure SYN
/// retransmissions instead of the balancer.
pub(crate) const BACKLOG: u32 = 16384;

/// The hosts and links to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Number of real servers, 1 to 200.
    pub(crate) servers: u8,
    /// Rate of each host's link; `None` = unlimited.
    pub(crate) link: Option<Rate>,
    /// Whether the servers' responses pass through the director.
    pub(crate) replies_through_director: bool,
}

/// A host of the trial.
#[derive(Debug)]
pub(crate) struct Host {
    /// Name of the host in reports, and of its link devices: `client`, `director`, `server1`….
    pub(crate) name: String,
    /// The address.
    pub(crate) address: Ipv4Addr,
    /// The network namespace.
    pub(crate) namespace: Namespace,
}

/// Hosts and links. Dropping it removes them.
#[derive(Debug)]
pub(crate) struct Topology {
    /// A number that is unique in the run.
    pub(crate) number: u32,
    pub(crate) client: Host,
    pub(crate) director: Host,
    pub(crate) servers: Vec<Host>,
    /// Namespace with the bridges and shapers, where the byte counters are read.
    pub(crate) wire: Namespace,
}

impl Topology {
    /// Creates the namespaces, links, addresses, routes and settings of `plan`.
    pub(crate) fn build(session: &Session, plan: Plan) -> Result<Self> {
        let number = session.next_number();
        let prefix = format!("{}-{number}", session.tag());
        let host = |name: String, address| -> Result<Host> {
            let namespace = Namespace::create(&format!("{prefix}-{name}"))?;
            Ok(Host {
                name,
                address,
                namespace,
            })
        };
        let wire = Namespace::create(&format!("{prefix}-wire"))?;
        let client = host("client".into(), CLIENT)?;
        let director = host("director".into(), DIRECTOR)?;
        let servers = (0..plan.servers)
            .map(|i| {
                host(
                    format!("server{}", i + 1),
                    Ipv4Addr::new(10, 0, 0, FIRST_SERVER_BYTE + i),
                )
            })
            .collect::<Result<Vec<_>>>()?;
        let topology = Topology {
            number,
            client,
            director,
            servers,
            wire,
        };
        topology.connect(plan.link)?;
        topology.add_addresses(plan)?;
        topology.set_sysctls()?;
        Ok(topology)
    }

    /// Returns all hosts: client, director, servers in order.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &Host> {
        [&self.client, &self.director]
            .into_iter()
            .chain(&self.servers)
    }

    fn connect(&self, link: Option<Rate>) -> Result<()> {
        let mut links = String::from("link add name br0 type bridge\nlink set dev br0 up\n");
        let mut shapers = String::new();
        for host in self.hosts() {
            links.push_str(&wire_commands(&host.name, host.namespace.name()));
            if let Some(rate) = link {
                let is_receive_unlimited = host.name == self.client.name;
                shapers.push_str(&shaper_commands(&host.name, rate, is_receive_unlimited));
            }
        }
        let wire = self.wire.name();
        process::run_with_input("ip", &["-n", wire, "-batch", "-"], &links)?;
        process::run_with_input("tc", &["-n", wire, "-batch", "-"], &shapers)?;
        Ok(())
    }

    fn add_addresses(&self, plan: Plan) -> Result<()> {
        let apply = |host: &Host, commands: String| {
            let up = "link set dev eth0 addrgenmode none\nlink set dev eth0 up\n";
            let batch = format!("{up}{commands}");
            process::run_with_input("ip", &["-n", host.namespace.name(), "-batch", "-"], &batch)
                .map(drop)
        };
        let client = self.client.address;
        apply(
            &self.client,
            format!(
                "addr add {client}/24 dev eth0\nroute add {SERVER_NETWORK} dev eth0 src {client}\n\
                 route add {VIP_NETWORK} dev eth0 src {client}\n"
            ),
        )?;
        let director = self.director.address;
        apply(
            &self.director,
            format!(
                "addr add {director}/24 dev eth0\naddr add {VIP}/32 dev eth0\nroute add {CLIENT_NETWORK} dev eth0 src \
                 {director}\n"
            ),
        )?;
        for server in &self.servers {
            let route = if plan.replies_through_director {
                format!("route add default via {director}")
            } else {
                format!("route add {CLIENT_NETWORK} dev eth0")
            };
            apply(
                server,
                format!("addr add {}/24 dev eth0\n{route}\n", server.address),
            )?;
        }
        Ok(())
    }

    /// Makes the client connect from its own address plus `number`. Flows whose connections have ended keep their ports
    /// for up to two minutes, and a new address has no such flows.
    pub(crate) fn change_client_address(&self, number: u8) -> Result<()> {
        let address = Ipv4Addr::from_bits(self.client.address.to_bits() + u32::from(number));
        let batch = format!(
            "addr replace {address}/24 dev eth0\nroute replace {SERVER_NETWORK} dev eth0 src {address}\n\
             route replace {VIP_NETWORK} dev eth0 src {address}\n"
        );
        let namespace = self.client.namespace.name();
        process::run_with_input("ip", &["-n", namespace, "-batch", "-"], &batch).map(drop)
    }

    fn set_sysctls(&self) -> Result<()> {
        let backlog = BACKLOG.to_string();
        for host in self.hosts() {
            host.namespace.set_sysctls(&[
                ("net/core/somaxconn", &backlog),
                ("net/ipv4/tcp_max_syn_backlog", &backlog),
                ("net/ipv4/ip_local_port_range", "10000 60999"),
                ("net/ipv4/tcp_tw_reuse", "1"),
                // Every kernel has Reno. With the host's default, reports from different machines would not be
                // comparable.
                ("net/ipv4/tcp_congestion_control", "reno"),
            ])?;
        }
        // With two networks on one segment, the director would send ICMP redirects to servers.
        self.director.namespace.set_sysctls(&[
            ("net/ipv4/conf/all/send_redirects", "0"),
            ("net/ipv4/conf/eth0/send_redirects", "0"),
        ])
    }
}

/// Returns the commands that create the devices of a host, bring them up and bridge them, without IPv6 link-local
/// traffic.
fn wire_commands(name: &str, namespace: &str) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "link add name {name} type veth peer name eth0 netns {namespace}"
    );
    let _ = writeln!(text, "link add name {name}-a type veth peer name {name}-b");
    let _ = writeln!(text, "link add name br-{name} type bridge mcast_snooping 0");
    for (device, bridge) in [
        (name.to_owned(), format!("br-{name}")),
        (format!("{name}-a"), format!("br-{name}")),
    ] {
        let _ = writeln!(text, "link set dev {device} master {bridge}");
    }
    let _ = writeln!(text, "link set dev {name}-b master br0");
    for device in [
        name.to_owned(),
        format!("{name}-a"),
        format!("{name}-b"),
        format!("br-{name}"),
    ] {
        let _ = writeln!(text, "link set dev {device} addrgenmode none");
        let _ = writeln!(text, "link set dev {device} up");
    }
    text
}

fn shaper_commands(name: &str, rate: Rate, is_receive_unlimited: bool) -> String {
    let devices = [format!("{name}-a"), name.to_owned()];
    let shaped = if is_receive_unlimited {
        &devices[..1]
    } else {
        &devices[..]
    };
    let command = |device| {
        let burst = rate.burst_bytes();
        format!(
            "qdisc add dev {device} root tbf rate {rate} latency {SHAPER_LATENCY} burst {burst}\n"
        )
    };
    shaped.iter().map(command).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_are_shaped_except_the_clients_receive_direction() {
        let rate = Rate::ORIGINAL_REPORT;
        assert_eq!(
            shaper_commands("server1", rate, false),
            "qdisc add dev server1-a root tbf rate 10240kbit latency 50ms burst 1540\n\
             qdisc add dev server1 root tbf rate 10240kbit latency 50ms burst 1540\n"
        );
        assert_eq!(
            shaper_commands("client", rate, true),
            "qdisc add dev client-a root tbf rate 10240kbit latency 50ms burst 1540\n"
        );
    }

    #[test]
    fn device_names_have_at_most_fifteen_characters() {
        for line in wire_commands("server200", "ns").lines() {
            for word in line.split_whitespace().filter(|w| w.contains("server200")) {
                assert!(word.len() <= 15, "{word}");
            }
        }
    }

    /// Peers and Weir receive packets as in a network of containers.
    #[test]
    fn devices_keep_their_default_offloads() {
        if !weir_testing::require_root() {
            return;
        }
        let session = Session::open().expect("open a session");
        let plan = Plan {
            servers: 1,
            link: None,
            replies_through_director: false,
        };
        let topology = Topology::build(&session, plan).expect("build the topology");
        let host_devices = topology.hosts().map(|host| (&host.namespace, "eth0"));
        let switch_devices = topology.hosts().map(|host| (&topology.wire, &*host.name));
        for (namespace, device) in host_devices.chain(switch_devices) {
            let network = format!("--net={}", namespace.path().display());
            let text = process::run("nsenter", &[&network, "--", "ethtool", "-k", device]);
            let text = text.expect("run ethtool");
            for feature in ["tx-checksumming", "tcp-segmentation-offload"] {
                assert!(text.contains(&format!("{feature}: on")), "{device}: {text}");
            }
        }
    }
}
