//! Formats the lines of listings, column by column.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

use crate::{
    Columns, Counters, Forward, ListedServer, ListedService, Mask, Names, Protocol, Service,
    ServiceKey, Tunnel, TunnelKind,
};

/// Maximum length of an address and port, in bytes.
const MAX_ENDPOINT_BYTES: usize = 59;
/// Maximum length of an IPv4 service's title, in bytes.
const MAX_SERVICE_BYTES: usize = 33;
/// Maximum length of an IPv4 server's address and port, in bytes.
const MAX_SERVER_BYTES: usize = 28;

/// Formats the cells of a listing.
pub(crate) struct CellFormatter<'a> {
    columns: Columns,
    protocol: Option<Protocol>,
    names: &'a dyn Names,
}

impl<'a> CellFormatter<'a> {
    pub(crate) fn new(columns: Columns, protocol: Option<Protocol>, names: &'a dyn Names) -> Self {
        Self {
            columns,
            protocol,
            names,
        }
    }

    /// Formats an address and port, with names unless numbers were requested.
    pub(crate) fn endpoint(&self, address: IpAddr, port: u16) -> String {
        let names = (!self.columns.numeric).then_some(self.names);
        endpoint(address, port, self.protocol, names)
    }

    fn append_number(&self, text: &mut String, value: u64) {
        let _ = if self.columns.exact {
            write!(text, " {value:>8}")
        } else {
            match value {
                0..100_000_000 => write!(text, "{value:>9}"),
                100_000_000..1_000_000_000 => write!(text, "{:>8}K", value / 1_000),
                1_000_000_000..100_000_000_000 => write!(text, "{:>8}M", value / 1_000_000),
                100_000_000_000..100_000_000_000_000 => {
                    write!(text, "{:>8}G", value / 1_000_000_000)
                }
                _ => write!(text, "{:>8}T", value / 1_000_000_000_000),
            }
        };
    }

    fn append_numbers(&self, text: &mut String, values: Counters) {
        for value in counter_columns(values) {
            self.append_number(text, value);
        }
    }
}

const fn counter_columns(values: Counters) -> [u64; 5] {
    [
        values.connections,
        values.packets_in,
        values.packets_out,
        values.bytes_in,
        values.bytes_out,
    ]
}

/// Formats an address and port for a listing; numeric if `names` is `None`.
pub(crate) fn endpoint(
    address: IpAddr,
    port: u16,
    protocol: Option<Protocol>,
    names: Option<&dyn Names>,
) -> String {
    let mut text = full_endpoint(address, port, protocol, names);
    truncate(&mut text, MAX_ENDPOINT_BYTES);
    text
}

/// Formats an address and port without truncation, so that they can be parsed again.
pub(crate) fn full_endpoint(
    address: IpAddr,
    port: u16,
    protocol: Option<Protocol>,
    names: Option<&dyn Names>,
) -> String {
    let host = names.and_then(|names| names.host(address));
    let host = host.unwrap_or_else(|| address.to_string());
    let service = names
        .zip(protocol)
        .and_then(|(names, protocol)| names.service(port, protocol));
    let service = service.unwrap_or_else(|| port.to_string());
    match address {
        IpAddr::V4(_) => format!("{host}:{service}"),
        IpAddr::V6(_) => format!("[{host}]:{service}"),
    }
}

fn truncate(text: &mut String, bytes: usize) {
    text.truncate(text.floor_char_boundary(bytes));
}

/// Returns the header lines of a listing.
pub(crate) fn header(columns: Columns) -> String {
    const FIRST: &str = "Prot LocalAddress:Port";
    const SECOND: &str = "  -> RemoteAddress:Port";
    let with_counters = |[a, b, c, d, e]: [&str; 5]| {
        format!("{FIRST:<33} {a:>8} {b:>8} {c:>8} {d:>8} {e:>8}\n{SECOND}\n")
    };
    if columns.stats {
        with_counters(["Conns", "InPkts", "OutPkts", "InBytes", "OutBytes"])
    } else if columns.rate {
        with_counters(["CPS", "InPPS", "OutPPS", "InBPS", "OutBPS"])
    } else if columns.thresholds {
        format!(
            "{FIRST:<33} {:<10} {:<10} {:<10} {:<10}\n{SECOND}\n",
            "Uthreshold", "Lthreshold", "ActiveConn", "InActConn"
        )
    } else if columns.persistent_conn {
        format!(
            "{FIRST:<33} {:<9} {:<11} {:<10} {:<10}\n{SECOND}\n",
            "Weight", "PersistConn", "ActiveConn", "InActConn"
        )
    } else {
        let tunnel = if columns.tunnel { "TunnelInfo    " } else { "" };
        format!(
            "{FIRST} Scheduler Flags\n{SECOND}           Forward {tunnel}Weight ActiveConn InActConn\n"
        )
    }
}

/// Appends the line of a service.
pub(crate) fn append_service(
    text: &mut String,
    listed: &ListedService,
    formatter: &CellFormatter<'_>,
) {
    let service = &listed.service;
    let title = service_title(listed, formatter);
    if formatter.columns.stats || formatter.columns.rate {
        let _ = write!(text, "{title:<33}");
        let values = if formatter.columns.stats {
            listed.counters
        } else {
            listed.rates
        };
        formatter.append_numbers(text, values);
    } else {
        let _ = write!(text, "{title} {}", service.scheduler);
        if service.flags != 0 {
            let _ = write!(text, " ({})", flags(service));
        }
        if let Some(persistence) = service.persistence {
            let _ = write!(text, " persistent {}", persistence.timeout_s);
            if let Some(mask) = mask(persistence.mask) {
                let _ = write!(text, " mask {mask}");
            }
            if !service.engine.is_empty() {
                let _ = write!(text, " pe {}", service.engine);
            }
        }
        if service.one_packet {
            text.push_str(" ops");
        }
    }
    text.push('\n');
}

fn service_title(listed: &ListedService, formatter: &CellFormatter<'_>) -> String {
    match listed.service.key {
        ServiceKey::Mark { mark, v6 } => {
            format!("FWM  {mark}{}", if v6 { " IPv6" } else { "" })
        }
        ServiceKey::Address {
            protocol,
            address,
            port,
        } => {
            let mut endpoint = formatter.endpoint(address, port);
            if let Some(last) = listed.last_port {
                let _ = write!(endpoint, "-{last}");
            }
            let mut title = format!("{:<4} {endpoint}", protocol.title());
            if address.is_ipv4() {
                truncate(&mut title, MAX_SERVICE_BYTES);
            }
            title
        }
    }
}

/// Returns the names of the scheduler flags, which depend on the scheduler.
pub(crate) fn flags(service: &Service) -> String {
    let names: [&str; 3] = match service.scheduler.as_str() {
        "sh" => ["sh-fallback", "sh-port", ""],
        "mh" => ["mh-fallback", "mh-port", ""],
        _ => ["flag-1", "flag-2", "flag-3"],
    };
    let bits = [Service::FLAG_1, Service::FLAG_2, Service::FLAG_3];
    let set = names
        .into_iter()
        .zip(bits)
        .filter(|(name, bit)| service.flags & bit != 0 && !name.is_empty());
    set.map(|(name, _)| name).collect::<Vec<_>>().join(",")
}

/// Returns the text of the persistence mask, or `None` if each client has its own template.
pub(crate) fn mask(mask: Mask) -> Option<String> {
    match mask {
        Mask::V4(u32::MAX) | Mask::V6(128) => None,
        Mask::V4(mask) => Some(Ipv4Addr::from(mask).to_string()),
        Mask::V6(length) => Some(length.to_string()),
    }
}

/// Appends the line of a server.
pub(crate) fn append_server(
    text: &mut String,
    listed: &ListedServer,
    formatter: &CellFormatter<'_>,
) {
    let server = &listed.server;
    let mut name = formatter.endpoint(server.key.address, server.key.port);
    if server.key.address.is_ipv4() {
        truncate(&mut name, MAX_SERVER_BYTES);
    }
    let _ = write!(text, "  -> {name:<28}");
    let columns = formatter.columns;
    let ListedServer {
        active, inactive, ..
    } = listed;
    let _ = if columns.stats {
        formatter.append_numbers(text, listed.counters);
        Ok(())
    } else if columns.rate {
        let [connections, packets_in, packets_out, bytes_in, bytes_out] =
            counter_columns(listed.rates);
        let result = write!(text, " {connections:>8} {packets_in:>8} {packets_out:>8}");
        formatter.append_number(text, bytes_in);
        formatter.append_number(text, bytes_out);
        result
    } else if columns.thresholds {
        write!(
            text,
            " {:<10} {:<10} {active:<10} {inactive:<10}",
            server.upper, server.lower
        )
    } else if columns.persistent_conn {
        write!(
            text,
            " {:<9} {:<11} {active:<10} {inactive:<10}",
            server.weight, listed.persistent
        )
    } else {
        let forward = server.forward.title();
        let _ = write!(text, " {forward:<7}");
        if columns.tunnel {
            let _ = write!(text, " {:<13}", tunnel_text(server.forward, server.tunnel));
        }
        write!(text, " {:<6} {active:<10} {inactive:<10}", server.weight)
    };
    text.push('\n');
}

fn tunnel_text(forward: Forward, tunnel: Tunnel) -> String {
    if forward != Forward::Tunnel {
        return "n/a".to_owned();
    }
    let kind = tunnel.kind.as_str();
    let checksum = ["-c", "+c", "r+c"]
        .get(usize::from(tunnel.checksum))
        .unwrap_or(&"-c");
    match tunnel.kind {
        TunnelKind::Ipip => kind.to_owned(),
        TunnelKind::Gue => format!("{kind}:{}:{checksum}", tunnel.port),
        TunnelKind::Gre => format!("{kind}:{checksum}"),
    }
}
