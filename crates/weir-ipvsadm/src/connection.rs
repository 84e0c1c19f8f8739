//! Formats the connection list of `-L -c`, with one line per connection.

use std::fmt::Write as _;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::format::endpoint;
use crate::{Columns, Names, Protocol};

/// A connection, or a persistence template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Transport protocol, or `None` for a template of a firewall mark service.
    pub protocol: Option<Protocol>,
    /// Seconds until the entry expires.
    pub expires_s: u64,
    /// IPVS's name for the state: `ESTABLISHED`, `UDP`, `NONE`, …
    pub state: String,
    /// The client's address and port.
    pub client: (IpAddr, u16),
    /// The VIP and port.
    pub vip: (IpAddr, u16),
    /// The server's address and port.
    pub server: (IpAddr, u16),
}

/// Formats the list with its header. The persistence engine columns are empty, because Weir does not support any.
pub fn format_connections(rows: &[Connection], columns: Columns, names: &dyn Names) -> String {
    let names = (!columns.numeric).then_some(names);
    let mut text = "IPVS connection entries\npro expire ".to_owned();
    let _ = write!(text, "{:<11} {:<18} {:<18} ", "state", "source", "virtual");
    let _ = if columns.persistent_conn {
        writeln!(text, "{:<18} {:<16} pe_data", "destination", "pe name")
    } else {
        writeln!(text, "destination")
    };
    for row in rows {
        let name = |(address, port)| endpoint(address, port, row.protocol, names);
        let expire = format!("{:02}:{:02}", row.expires_s / 60, row.expires_s % 60);
        let _ = writeln!(
            text,
            "{:<3} {expire:<6} {:<11} {:<18} {:<18} {}",
            row.protocol.map_or("IP", Protocol::title),
            row.state,
            name(row.client),
            name(row.vip),
            name(row.server),
        );
    }
    text
}
