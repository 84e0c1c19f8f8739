//! Checks which options a command or a tunnel type requires, allows and rejects.

use crate::TunnelKind;
use crate::exit::Exit;

/// An option, as named in messages. The order of the variants determines which of several errors is reported.
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
    /// All options in order, with their names.
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

    /// Returns the option's name in messages.
    pub(crate) const fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }
}

/// The options given on a command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GivenOptions(u64);

impl GivenOptions {
    /// Adds an option. Returns an error if the option was given before.
    pub(crate) fn set(&mut self, option: Opt) -> Result<(), Exit> {
        if self.has(option) {
            let name = option.name();
            return Err(Exit::fail(format!("multiple '{name}' options specified")));
        }
        self.0 |= 1 << option as u64;
        Ok(())
    }

    /// Returns whether the option was given.
    pub(crate) const fn has(self, option: Opt) -> bool {
        self.0 >> option as u64 & 1 == 1
    }

    /// Returns whether any of the options was given.
    pub(crate) fn any(self, options: &[Opt]) -> bool {
        options.iter().any(|option| self.has(*option))
    }
}

/// The option rules of a command or a tunnel type. An option in none of the lists is illegal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// Name of the command or tunnel type in messages.
    name: &'static str,
    /// The kind of `name`: `command` or `tunnel type`.
    subject: &'static str,
    required: &'static [Opt],
    /// At most one of these may be given.
    one_of: &'static [Opt],
    optional: &'static [Opt],
    /// The options that the rules apply to, or `None` for all options.
    restricted: Option<&'static [Opt]>,
}

/// Commands, as distinguished by the option rules.
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

const fn command(name: &'static str, required: &'static [Opt], optional: &'static [Opt]) -> Rule {
    Rule {
        name,
        subject: "command",
        required,
        one_of: &[],
        optional,
        restricted: None,
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
    /// Returns the option rules of the command.
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
    /// Returns the option rules of a tunnel type.
    pub(crate) const fn for_tunnel(kind: TunnelKind) -> Self {
        const RESTRICTED: &[Opt] = &[TunnelPort, TunnelNoChecksum, TunnelChecksum, TunnelRemote];
        let (required, one_of): (&'static [Opt], &'static [Opt]) = match kind {
            TunnelKind::Ipip => (&[], &[]),
            TunnelKind::Gue => (
                &[TunnelPort],
                &[TunnelNoChecksum, TunnelChecksum, TunnelRemote],
            ),
            TunnelKind::Gre => (&[], &[TunnelNoChecksum, TunnelChecksum]),
        };
        Self {
            name: kind.as_str(),
            subject: "tunnel type",
            required,
            one_of,
            optional: &[],
            restricted: Some(RESTRICTED),
        }
    }
}

impl Rule {
    /// Checks a command line against the rules.
    pub(crate) fn check(&self, given: GivenOptions) -> Result<(), Exit> {
        let Self { name, subject, .. } = self;
        let mut first: Option<Opt> = None;
        let is_restricted = |option: &Opt| {
            self.restricted
                .is_none_or(|restricted| restricted.contains(option))
        };
        for option in Opt::NAMES
            .map(|(option, _)| option)
            .iter()
            .filter(|option| is_restricted(option))
        {
            let option_name = option.name();
            if self.required.contains(option) {
                if !given.has(*option) {
                    return Err(Exit::fail(format!(
                        "You need to supply the '{option_name}' option for the '{name}' {subject}"
                    )));
                }
            } else if !given.has(*option) {
            } else if self.one_of.contains(option) {
                if let Some(first) = first {
                    let first = first.name();
                    return Err(Exit::fail(format!(
                        "The option '{option_name}' conflicts with the '{first}' option in the '{name}' {subject}"
                    )));
                }
                first = Some(*option);
            } else if !self.optional.contains(option) {
                return Err(Exit::fail(format!(
                    "Illegal '{option_name}' option with the '{name}' {subject}"
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
    fn names_are_in_option_order() {
        for (index, (option, _)) in Opt::NAMES.iter().enumerate() {
            assert_eq!(*option as usize, index);
        }
    }
}
