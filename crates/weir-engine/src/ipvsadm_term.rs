//! Converts listeners, marks, forwarding methods and counters to ipvsadm's terms.

use std::net::SocketAddr;

use weir_ipvsadm::{Counters, Forward, Protocol, ServiceKey};
use weir_model::{Family, Listener, Mark, Ports};

use crate::snapshot::Totals;

/// Returns the key of a listener in ipvsadm; `None` for a port range.
pub(crate) fn key_of(listener: &Listener) -> Option<ServiceKey> {
    let port = match listener.ports {
        Ports::One(port) => port,
        Ports::Any => 0,
        Ports::Range(..) => return None,
    };
    Some(ServiceKey::Address {
        protocol: protocol(listener.protocol),
        address: listener.address,
        port,
    })
}

/// Returns an address of a proxy service as a listener. A wildcard address stays a wildcard, which does not equal any
/// other address.
pub(crate) const fn proxy_listener(address: &SocketAddr) -> Listener {
    Listener {
        protocol: weir_model::Protocol::Tcp,
        address: address.ip(),
        ports: Ports::One(address.port()),
    }
}

pub(crate) const fn protocol(protocol: weir_model::Protocol) -> Protocol {
    match protocol {
        weir_model::Protocol::Tcp => Protocol::Tcp,
        weir_model::Protocol::Udp => Protocol::Udp,
    }
}

/// Returns the key of a mark in ipvsadm.
pub(crate) fn key_of_mark(mark: &Mark) -> ServiceKey {
    ServiceKey::Mark {
        mark: mark.mark.get(),
        v6: mark.family == Family::V6,
    }
}

/// Converts a forwarding method to ipvsadm's.
pub(crate) const fn forward(forward: weir_model::Forward) -> Forward {
    match forward {
        // A socket service is not listed; its address is rewritten, as with masquerading.
        weir_model::Forward::Nat | weir_model::Forward::Socket => Forward::Masq,
        weir_model::Forward::Direct => Forward::Route,
        weir_model::Forward::Tunnel => Forward::Tunnel,
        weir_model::Forward::L3dsr => Forward::L3dsr,
    }
}

/// Returns whether the service with this name was created by ipvsadm: names in the file contain no colon.
pub fn is_from_ipvsadm(name: &str) -> bool {
    name.starts_with("ipvsadm:")
}

/// Returns the counts since the counters were last zeroed.
pub(crate) fn counters_since(totals: Totals, zero: Option<&Totals>) -> Counters {
    let zero = zero.copied().unwrap_or_default();
    Counters {
        connections: totals.connections.saturating_sub(zero.connections),
        packets_in: totals.packets_in.saturating_sub(zero.packets_in),
        packets_out: totals.packets_out.saturating_sub(zero.packets_out),
        bytes_in: totals.bytes_in.saturating_sub(zero.bytes_in),
        bytes_out: totals.bytes_out.saturating_sub(zero.bytes_out),
    }
}
