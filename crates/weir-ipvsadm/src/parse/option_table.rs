//! Lists all options with their names, arguments and meanings.

use crate::option_rule::{Opt, Verb};
use crate::popt::{Argument, OptionSpec};
use crate::{Forward, Protocol};

/// The meaning of an option.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tag {
    Verb(Verb),
    StartDaemon,
    StopDaemon,
    Help,
    Version,
    Service(Protocol),
    Mark,
    V6,
    Forward(Forward),
    Sort,
    Option(Opt),
}

const fn flag(long: &'static str, short: Option<char>, tag: Tag) -> OptionSpec<Tag> {
    OptionSpec {
        long,
        short,
        argument: Argument::None,
        tag,
    }
}

const fn value(long: &'static str, short: Option<char>, tag: Tag) -> OptionSpec<Tag> {
    OptionSpec {
        long,
        short,
        argument: Argument::Required,
        tag,
    }
}

/// All options of ipvsadm.c.
pub(super) const OPTION_TABLE: &[OptionSpec<Tag>] = &[
    flag("add-service", Some('A'), Tag::Verb(Verb::Add)),
    flag("edit-service", Some('E'), Tag::Verb(Verb::Edit)),
    flag("delete-service", Some('D'), Tag::Verb(Verb::Delete)),
    flag("clear", Some('C'), Tag::Verb(Verb::Clear)),
    flag("list", Some('L'), Tag::Verb(Verb::List)),
    flag("list", Some('l'), Tag::Verb(Verb::List)),
    flag("zero", Some('Z'), Tag::Verb(Verb::Zero)),
    flag("add-server", Some('a'), Tag::Verb(Verb::AddServer)),
    flag("edit-server", Some('e'), Tag::Verb(Verb::EditServer)),
    flag("delete-server", Some('d'), Tag::Verb(Verb::DeleteServer)),
    flag("set", None, Tag::Verb(Verb::Set)),
    flag("help", Some('h'), Tag::Help),
    flag("version", Some('v'), Tag::Version),
    flag("restore", Some('R'), Tag::Verb(Verb::Restore)),
    flag("save", Some('S'), Tag::Verb(Verb::Save)),
    value("start-daemon", None, Tag::StartDaemon),
    value("stop-daemon", None, Tag::StopDaemon),
    value("tcp-service", Some('t'), Tag::Service(Protocol::Tcp)),
    value("udp-service", Some('u'), Tag::Service(Protocol::Udp)),
    value("sctp-service", None, Tag::Service(Protocol::Sctp)),
    value("fwmark-service", Some('f'), Tag::Mark),
    value("scheduler", Some('s'), Tag::Option(Opt::Scheduler)),
    OptionSpec {
        long: "persistent",
        short: Some('p'),
        argument: Argument::Optional,
        tag: Tag::Option(Opt::Persistent),
    },
    value("netmask", Some('M'), Tag::Option(Opt::Netmask)),
    value("real-server", Some('r'), Tag::Option(Opt::Server)),
    flag("masquerading", Some('m'), Tag::Forward(Forward::Masq)),
    flag("ipip", Some('i'), Tag::Forward(Forward::Tunnel)),
    flag("gatewaying", Some('g'), Tag::Forward(Forward::Route)),
    value("weight", Some('w'), Tag::Option(Opt::Weight)),
    value("u-threshold", Some('x'), Tag::Option(Opt::Upper)),
    value("l-threshold", Some('y'), Tag::Option(Opt::Lower)),
    flag("numeric", Some('n'), Tag::Option(Opt::Numeric)),
    flag("connection", Some('c'), Tag::Option(Opt::Connection)),
    value("mcast-interface", None, Tag::Option(Opt::Multicast)),
    value("syncid", None, Tag::Option(Opt::SyncId)),
    flag("timeout", None, Tag::Option(Opt::Timeout)),
    flag("daemon", None, Tag::Option(Opt::Daemon)),
    flag("stats", None, Tag::Option(Opt::Stats)),
    flag("rate", None, Tag::Option(Opt::Rate)),
    flag("thresholds", None, Tag::Option(Opt::Thresholds)),
    flag("persistent-conn", None, Tag::Option(Opt::PersistentConn)),
    flag("nosort", None, Tag::Option(Opt::NoSort)),
    flag("sort", None, Tag::Sort),
    flag("exact", Some('X'), Tag::Option(Opt::Exact)),
    flag("ipv6", Some('6'), Tag::V6),
    flag("ops", Some('o'), Tag::Option(Opt::OnePacket)),
    value("pe", None, Tag::Option(Opt::Engine)),
    value("sched-flags", Some('b'), Tag::Option(Opt::SchedulerFlags)),
    value("mcast-group", None, Tag::Option(Opt::Group)),
    value("mcast-port", None, Tag::Option(Opt::Port)),
    value("mcast-ttl", None, Tag::Option(Opt::Ttl)),
    value("sync-maxlen", None, Tag::Option(Opt::MaxLen)),
    flag("tun-info", None, Tag::Option(Opt::TunnelInfo)),
    value("tun-type", None, Tag::Option(Opt::TunnelType)),
    value("tun-port", None, Tag::Option(Opt::TunnelPort)),
    flag("tun-nocsum", None, Tag::Option(Opt::TunnelNoChecksum)),
    flag("tun-csum", None, Tag::Option(Opt::TunnelChecksum)),
    flag("tun-remcsum", None, Tag::Option(Opt::TunnelRemote)),
];
