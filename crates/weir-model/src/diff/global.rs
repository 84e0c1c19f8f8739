//! Computes the differences in `[node]`, `[timeouts]`, `[ipvs]` and `[announce]`.

use std::time::Duration;

use super::edit::{Edits, comma_list, or_none};
use super::{Edit, duration, tls};
use crate::{Admin, Announce, Community, Ipvs, Node, Timeouts};

pub(super) fn node(old: &Node, new: &Node) -> Vec<Edit> {
    Edits::default()
        .compare(
            "interfaces",
            &old.interfaces,
            &new.interfaces,
            |names| match names {
                Some(names) => comma_list(names.to_vec()),
                None => "from the routes".to_owned(),
            },
        )
        .compare("attach", old.attach, new.attach, |attach| {
            attach.as_str().to_owned()
        })
        .compare(
            "vip_interface",
            &old.vip_interface,
            &new.vip_interface,
            |name| or_none(name.as_ref()),
        )
        .table(
            "admin",
            old.admin.as_ref(),
            new.admin.as_ref(),
            ToString::to_string,
            admin,
        )
        .compare(
            "socket_group",
            &old.socket_group,
            &new.socket_group,
            |group| or_none(group.as_ref()),
        )
        .compare("socket_mode", old.socket_mode, new.socket_mode, |mode| {
            mode.as_str().to_owned()
        })
        .compare(
            "balance_own",
            old.balance_own,
            new.balance_own,
            bool::to_string,
        )
        .compare("latency", old.latency, new.latency, bool::to_string)
        .compare("max_flows", old.max_flows, new.max_flows, u32::to_string)
        .compare(
            "max_servers",
            old.max_servers,
            new.max_servers,
            u32::to_string,
        )
        .compare(
            "max_services",
            old.max_services,
            new.max_services,
            u32::to_string,
        )
        .compare("syn_budget", old.syn_budget, new.syn_budget, u32::to_string)
        .compare(
            "drain_timeout",
            old.drain_timeout,
            new.drain_timeout,
            duration,
        )
        .compare("metrics", old.metrics, new.metrics, |it| {
            it.as_str().to_owned()
        })
        .finish()
}

fn admin(edits: Edits, old: &Admin, new: &Admin) -> Edits {
    let edits = edits.compare("listen", old.listen, new.listen, |it| it.to_string());
    tls::of_service(edits, old.tls.as_ref(), new.tls.as_ref())
        .compare("tokens", &old.tokens, &new.tokens, |it| {
            or_none(it.as_ref())
        })
        .compare(
            "read_requires_token",
            old.read_requires_token,
            new.read_requires_token,
            bool::to_string,
        )
        .compare("hosts", &old.hosts, &new.hosts, |hosts| {
            comma_list(hosts.to_vec())
        })
}

pub(super) fn timeouts(old: &Timeouts, new: &Timeouts) -> Vec<Edit> {
    Edits::default()
        .compare("tcp", old.tcp, new.tcp, duration)
        .compare("tcp_fin", old.tcp_fin, new.tcp_fin, duration)
        .compare("udp", old.udp, new.udp, duration)
        .finish()
}

pub(super) fn ipvs(old: &Ipvs, new: &Ipvs) -> Vec<Edit> {
    let number = |on: &bool| u8::from(*on).to_string();
    let seconds = |value: &Duration| value.as_secs().to_string();
    Edits::default()
        .compare(
            "expire_nodest_conn",
            old.expire_nodest_conn,
            new.expire_nodest_conn,
            number,
        )
        .compare(
            "expire_quiescent_template",
            old.expire_quiescent_template,
            new.expire_quiescent_template,
            number,
        )
        .compare(
            "conn_reuse_mode",
            old.conn_reuse_mode,
            new.conn_reuse_mode,
            u8::to_string,
        )
        .compare("sloppy_tcp", old.sloppy_tcp, new.sloppy_tcp, number)
        .compare("drop_entry", old.drop_entry, new.drop_entry, u8::to_string)
        .compare("amemthresh", old.amemthresh, new.amemthresh, u32::to_string)
        .compare(
            "schedule_icmp",
            old.schedule_icmp,
            new.schedule_icmp,
            number,
        )
        .compare("cache_bypass", old.cache_bypass, new.cache_bypass, number)
        .compare(
            "lblc_expiration",
            old.lblc_expiration,
            new.lblc_expiration,
            seconds,
        )
        .compare(
            "lblcr_expiration",
            old.lblcr_expiration,
            new.lblcr_expiration,
            seconds,
        )
        .finish()
}

pub(super) fn announce(old: Option<&Announce>, new: Option<&Announce>) -> Vec<Edit> {
    let state = |it: Option<&Announce>| match it {
        Some(announce) => announce.speaker.as_str().to_owned(),
        None => "none".to_owned(),
    };
    let (Some(old), Some(new)) = (old, new) else {
        return Edits::default()
            .compare("speaker", old, new, |it| state(*it))
            .finish();
    };
    let list = |communities: &&Vec<Community>| {
        comma_list(communities.iter().map(ToString::to_string).collect())
    };
    let path = |path: Option<&std::path::PathBuf>| or_none(path.map(|it| it.display()).as_ref());
    Edits::default()
        .compare(
            "speaker",
            old.speaker.as_str(),
            new.speaker.as_str(),
            |it| (*it).to_owned(),
        )
        .compare(
            "withdraw_after",
            old.withdraw_after,
            new.withdraw_after,
            duration,
        )
        .compare("drain_delay", old.drain_delay, new.drain_delay, duration)
        .compare("services", &old.services, &new.services, |it| match it {
            Some(names) => comma_list(names.clone()),
            None => "all".to_owned(),
        })
        .compare("require", old.require, new.require, |it| {
            it.as_str().to_owned()
        })
        .compare("communities", &old.communities, &new.communities, list)
        .compare(
            "drain_communities",
            &old.drain_communities,
            &new.drain_communities,
            list,
        )
        .compare("socket", old.speaker.socket(), new.speaker.socket(), |it| {
            path(*it)
        })
        .compare(
            "include",
            old.speaker.include(),
            new.speaker.include(),
            |it| path(*it),
        )
        .compare("pipe", old.speaker.pipe(), new.speaker.pipe(), |it| {
            path(*it)
        })
        .compare(
            "command",
            old.speaker.command(),
            new.speaker.command(),
            |it| comma_list(it.map(<[String]>::to_vec).unwrap_or_default()),
        )
        .compare("asn", old.speaker.asn(), new.speaker.asn(), |it| {
            or_none(it.as_ref())
        })
        .compare(
            "prefix_list",
            old.speaker.prefix_list(),
            new.speaker.prefix_list(),
            |it| or_none(it.as_ref()),
        )
        .finish()
}
