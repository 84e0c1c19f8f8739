//! Computes the differences in `[vrrp.NAME]` and `[sync]`.

use super::edit::{Edits, comma_list, or_none};
use super::{Edit, duration};
use crate::{FlowSync, Network, VirtualRouter};

pub(super) fn virtual_router(old: &VirtualRouter, new: &VirtualRouter) -> Vec<Edit> {
    let networks =
        |networks: &&Vec<Network>| comma_list(networks.iter().map(ToString::to_string).collect());
    let edits = Edits::default()
        .compare("interface", &old.interface, &new.interface, |name| {
            or_none(name.as_ref())
        })
        .compare(
            "virtual_router_id",
            old.router_id,
            new.router_id,
            u8::to_string,
        )
        .compare("priority", old.priority, new.priority, u8::to_string)
        .compare("version", old.version, new.version, u8::to_string)
        .compare(
            "advert_interval",
            old.advert_interval,
            new.advert_interval,
            duration,
        )
        .compare("addresses", &old.addresses, &new.addresses, networks)
        .compare(
            "excluded_addresses",
            &old.excluded_addresses,
            &new.excluded_addresses,
            networks,
        )
        .compare_hidden(
            "other_interfaces",
            &old.other_interfaces,
            &new.other_interfaces,
        )
        .compare("preempt", old.preempt, new.preempt, bool::to_string)
        .compare(
            "preempt_delay",
            old.preempt_delay,
            new.preempt_delay,
            duration,
        )
        .compare("start_delay", old.start_delay, new.start_delay, duration)
        .compare(
            "down_adverts",
            old.down_adverts,
            new.down_adverts,
            u32::to_string,
        );
    packet_and_program_keys(edits, old, new).finish()
}

/// Compares the keys for packets, tracked objects and programs.
fn packet_and_program_keys(edits: Edits, old: &VirtualRouter, new: &VirtualRouter) -> Edits {
    edits
        .compare("source", old.source, new.source, |address| {
            or_none(address.as_ref())
        })
        .compare("unicast_peers", &old.peers, &new.peers, |peers| {
            comma_list(peers.iter().map(ToString::to_string).collect())
        })
        .compare("unicast_ttl", old.unicast_ttl, new.unicast_ttl, |ttl| {
            or_none(ttl.as_ref())
        })
        .compare(
            "unicast_min_ttl",
            old.unicast_min_ttl,
            new.unicast_min_ttl,
            |ttl| or_none(ttl.as_ref()),
        )
        .compare("group", &old.group, &new.group, |name| {
            or_none(name.as_ref())
        })
        .compare_hidden("checksum", old.pseudo_header, new.pseudo_header)
        .compare(
            "virtual_mac",
            old.virtual_mac,
            new.virtual_mac,
            bool::to_string,
        )
        .compare(
            "track_interface",
            old.track_interface,
            new.track_interface,
            bool::to_string,
        )
        .compare_hidden("track", &old.track, &new.track)
        .compare_hidden("notify", &old.notify, &new.notify)
        .compare_hidden("garp", &old.announcements, &new.announcements)
        .compare_hidden("password", &old.password, &new.password)
        .compare_hidden("hmac", &old.hmac, &new.hmac)
        .compare_hidden("routes", &old.routes, &new.routes)
        .compare_hidden("rules", &old.rules, &new.rules)
        .compare_hidden("accept", &old.accept, &new.accept)
}

pub(super) fn flow_sync(old: Option<&FlowSync>, new: Option<&FlowSync>) -> Vec<Edit> {
    let keys = |edits: Edits, old: &FlowSync, new: &FlowSync| {
        edits
            .compare("listen", old.listen, new.listen, ToString::to_string)
            .compare("peers", &old.peers, &new.peers, |peers| {
                comma_list(peers.iter().map(ToString::to_string).collect())
            })
            .compare_secrets("key", &[&old.key], &[&new.key])
    };
    Edits::default().both(old, new, keys).finish()
}
