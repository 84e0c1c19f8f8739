//! Which options a command and a tunnel type may, must and must not have.

use crate::TunnelKind;
use crate::parse::Exit;

/// An option as messages name it; the order decides which of several mistakes is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opt {
    Numeric,
    Connection,
    Service,
    Scheduler,
    Persistent,
    Netmask,
    Server,
    Forward,
    Weight,
    Upper,
    Lower,
    Multicast,
    Timeout,
    Daemon,
    Stats,
    Rate,
    Thresholds,
    PersistentConn,
    NoSort,
    SyncId,
    Exact,
    OnePacket,
    Engine,
    SchedulerFlags,
    Group,
    Port,
    Ttl,
    MaxLen,
    TunnelInfo,
    TunnelType,
    TunnelPort,
    TunnelNoChecksum,
    TunnelChecksum,
    TunnelRemote,
}

use Opt::{
    Connection, Daemon, Engine, Exact, Forward, Group, Lower, MaxLen, Multicast, Netmask, NoSort,
    Numeric, OnePacket, Persistent, PersistentConn, Port, Rate, Scheduler, SchedulerFlags, Server,
    Service, Stats, SyncId, Thresholds, Timeout, Ttl, TunnelChecksum, TunnelInfo, TunnelNoChecksum,
    TunnelPort, TunnelRemote, TunnelType, Upper, Weight,
};

impl Opt {
    /// Every option in order, with its name.
    const NAMES: [(Self, &'static str); 34] = [
        (Numeric, "numeric"),
        (Connection, "connection"),
        (Service, "service-address"),
        (Scheduler, "scheduler"),
        (Persistent, "persistent"),
        (Netmask, "netmask"),
        (Server, "real-server"),
        (Forward, "forwarding-method"),
        (Weight, "weight"),
        (Upper, "u-threshold"),
        (Lower, "l-threshold"),
        (Multicast, "mcast-interface"),
        (Timeout, "timeout"),
        (Daemon, "daemon"),
        (Stats, "stats"),
        (Rate, "rate"),
        (Thresholds, "thresholds"),
        (PersistentConn, "persistent-conn"),
        (NoSort, "nosort"),
        (SyncId, "syncid"),
        (Exact, "exact"),
        (OnePacket, "ops"),
        (Engine, "pe"),
        (SchedulerFlags, "sched-flags"),
        (Group, "mcast-group"),
        (Port, "mcast-port"),
        (Ttl, "mcast-ttl"),
        (MaxLen, "sync-maxlen"),
        (TunnelInfo, "tun-info"),
        (TunnelType, "tun-type"),
        (TunnelPort, "tun-port"),
        (TunnelNoChecksum, "tun-nocsum"),
        (TunnelChecksum, "tun-csum"),
        (TunnelRemote, "tun-remcsum"),
    ];

    /// The name in messages.
    pub(crate) const fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }
}

/// The options of a command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Given(u64);

impl Given {
    /// Enters one.
    pub(crate) fn set(&mut self, option: Opt) -> Result<(), Exit> {
        if self.has(option) {
            let name = option.name();
            return Err(Exit::fail(format!("multiple '{name}' options specified")));
        }
        self.0 |= 1 << option as u64;
        Ok(())
    }

    /// Whether it is among them.
    pub(crate) const fn has(self, option: Opt) -> bool {
        self.0 >> option as u64 & 1 == 1
    }

    /// Whether one of several is.
    pub(crate) fn any(self, options: &[Opt]) -> bool {
        options.iter().any(|option| self.has(*option))
    }
}

/// What a command, or a tunnel type, makes of options; what is in none of the lists is illegal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// Its name in messages.
    name: &'static str,
    /// `command` or `tunnel type`.
    what: &'static str,
    needed: &'static [Opt],
    /// At most one of these.
    one_of: &'static [Opt],
    optional: &'static [Opt],
    /// What it has a word about; `None` = everything.
    about: Option<&'static [Opt]>,
}

/// The commands, as the tables of legal options tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Add,
    Edit,
    Delete,
    Clear,
    List,
    AddServer,
    DeleteServer,
    EditServer,
    Set,
    StartDaemon,
    StopDaemon,
    Restore,
    Save,
    Zero,
}

const fn command(name: &'static str, needed: &'static [Opt], optional: &'static [Opt]) -> Rule {
    Rule {
        name,
        what: "command",
        needed,
        one_of: &[],
        optional,
        about: None,
    }
}

const SERVICE_OPTIONS: &[Opt] = &[
    Scheduler,
    Persistent,
    Netmask,
    OnePacket,
    Engine,
    SchedulerFlags,
];
const SERVER_OPTIONS: &[Opt] = &[
    Forward,
    Weight,
    Upper,
    Lower,
    TunnelType,
    TunnelPort,
    TunnelNoChecksum,
    TunnelChecksum,
    TunnelRemote,
];

impl Verb {
    /// Its word about options.
    pub(crate) const fn rule(self) -> Rule {
        match self {
            Self::Add => command("add-service", &[Service], SERVICE_OPTIONS),
            Self::Edit => command("edit-service", &[Service], SERVICE_OPTIONS),
            Self::Delete => command("delete-service", &[Service], &[]),
            Self::Clear => command("flush", &[], &[]),
            Self::List => Rule {
                one_of: &[Connection, Service, Timeout, Daemon],
                ..command(
                    "list",
                    &[],
                    &[
                        Numeric,
                        Stats,
                        Rate,
                        Thresholds,
                        PersistentConn,
                        NoSort,
                        SyncId,
                        Exact,
                        TunnelInfo,
                    ],
                )
            },
            Self::AddServer => command("add-server", &[Service, Server], SERVER_OPTIONS),
            Self::DeleteServer => command("delete-server", &[Service, Server], &[]),
            Self::EditServer => command("edit-server", &[Service, Server], SERVER_OPTIONS),
            Self::Set => command("set", &[], &[]),
            Self::StartDaemon => command(
                "start-daemon",
                &[],
                &[Multicast, SyncId, Group, Port, Ttl, MaxLen],
            ),
            Self::StopDaemon => command("stop-daemon", &[], &[SyncId]),
            Self::Restore => command("restore", &[], &[]),
            Self::Save => command("save", &[], &[Numeric]),
            Self::Zero => command("zero", &[], &[Service]),
        }
    }
}

impl Rule {
    /// What a kind of tunnel says of the options of tunnels.
    pub(crate) const fn of_tunnel(kind: TunnelKind) -> Self {
        const ABOUT: &[Opt] = &[TunnelPort, TunnelNoChecksum, TunnelChecksum, TunnelRemote];
        let (needed, one_of): (&'static [Opt], &'static [Opt]) = match kind {
            TunnelKind::Ipip => (&[], &[]),
            TunnelKind::Gue => (
                &[TunnelPort],
                &[TunnelNoChecksum, TunnelChecksum, TunnelRemote],
            ),
            TunnelKind::Gre => (&[], &[TunnelNoChecksum, TunnelChecksum]),
        };
        Self {
            name: kind.as_str(),
            what: "tunnel type",
            needed,
            one_of,
            optional: &[],
            about: Some(ABOUT),
        }
    }
}

impl Rule {
    /// Holds a command line against it.
    pub(crate) fn check(&self, given: Given) -> Result<(), Exit> {
        let Self { name, what, .. } = self;
        let mut first: Option<Opt> = None;
        let concerned = |option: &Opt| self.about.is_none_or(|about| about.contains(option));
        for option in Opt::NAMES
            .map(|(option, _)| option)
            .iter()
            .filter(|o| concerned(o))
        {
            let said = option.name();
            if self.needed.contains(option) {
                if !given.has(*option) {
                    return Err(Exit::fail(format!(
                        "You need to supply the '{said}' option for the '{name}' {what}"
                    )));
                }
            } else if !given.has(*option) {
            } else if self.one_of.contains(option) {
                if let Some(first) = first {
                    let first = first.name();
                    return Err(Exit::fail(format!(
                        "The option '{said}' conflicts with the '{first}' option in the '{name}' {what}"
                    )));
                }
                first = Some(*option);
            } else if !self.optional.contains(option) {
                return Err(Exit::fail(format!(
                    "Illegal '{said}' option with the '{name}' {what}"
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_the_order_of_their_options() {
        for (at, (option, _)) in Opt::NAMES.iter().enumerate() {
            assert_eq!(*option as usize, at);
        }
    }
}
