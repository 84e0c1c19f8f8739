//! Generates the configuration that the benchmark loads. Each service has its own address and pool.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};

use weir_model::Server;

/// Size of the configuration.
pub(crate) struct Size {
    /// Number of services, which is also the number of pools.
    pub(crate) services: usize,
    /// Number of servers per pool.
    pub(crate) servers: usize,
}

/// Returns the name of a pool.
pub(crate) fn pool(index: usize) -> String {
    format!("p{index}")
}

/// Returns the name of a server in a pool, as in the file.
pub(crate) fn server(pool: usize, index: usize) -> String {
    address(10, pool * 64 + index).to_string()
}

/// Returns a server that is in no pool. `index` must be below 256.
pub(crate) fn unused_server(index: usize) -> Server {
    let address = IpAddr::V4(Ipv4Addr::new(10, 255, 0, index as u8));
    Server::new(address.to_string(), address, None)
}

fn address(first: u8, number: usize) -> Ipv4Addr {
    Ipv4Addr::from(u32::from_be_bytes([first, 0, 0, 0]) + number as u32)
}

impl Size {
    /// Returns the text of the configuration file.
    pub(crate) fn to_toml(&self) -> String {
        let mut text = "[node]\nmax_servers = 131072\n".to_owned();
        for index in 0..self.services {
            let servers: Vec<String> = (0..self.servers)
                .map(|number| format!("\"{}\"", server(index, number)))
                .collect();
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "\n[pool.{pool}]\nscheduler = \"wlc\"\nservers = [{servers}]\n\n[service.s{index}]\n\
                 listen = [\"{vip}:80\"]\nforward = \"tunnel\"\npool = \"{pool}\"\n",
                pool = pool(index),
                servers = servers.join(", "),
                vip = address(100, index),
            );
        }
        text
    }
}
