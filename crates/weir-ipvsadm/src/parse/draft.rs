//! Parses a command line, option by option.

use std::net::{IpAddr, Ipv4Addr};

use super::argument::{
    check_group, parse_host_port, parse_leading_number, parse_timeout, truncate,
};
use super::option_table::Tag;
use crate::exit::Exit;
use crate::option_rule::{GivenOptions, Opt, Verb};
use crate::text::{inet_aton, parse_number};
use crate::{
    Forward, MAX_WEIGHT, Mask, Names, Protocol, ServerKey, Service, SyncDaemon, Timeouts, Tunnel,
    TunnelKind, usage, version,
};

/// Timeout of `-p` without a value, in seconds (libipvs.h: IPVS_SVC_PERSISTENT_TIMEOUT). The manual page says 300.
const DEFAULT_PERSISTENT_TIMEOUT_S: u32 = 360;
pub(super) const DEFAULT_SCHEDULER: &str = "wlc";
/// Maximum length of a scheduler's name, in bytes.
const MAX_SCHEDULER_NAME_BYTES: usize = 15;
/// Maximum length of a persistence engine's name, in bytes.
const MAX_ENGINE_NAME_BYTES: usize = 16;
/// Maximum length of scheduler flags, in bytes.
const MAX_FLAGS_BYTES: usize = 127;

/// A partially parsed command line.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) verb: Verb,
    pub(super) daemon: SyncDaemon,
    pub(super) given: GivenOptions,
    pub(super) protocol: Option<Protocol>,
    pub(super) address: Option<IpAddr>,
    pub(super) port: u16,
    pub(super) mark: u32,
    pub(super) v6: bool,
    pub(super) mask: Mask,
    pub(super) scheduler: String,
    pub(super) flags_text: String,
    pub(super) flags: u8,
    pub(super) persistent_s: u32,
    pub(super) engine: String,
    pub(super) server: ServerKey,
    pub(super) forward: Forward,
    pub(super) weight: u32,
    pub(super) upper: u32,
    pub(super) lower: u32,
    pub(super) tunnel: Tunnel,
    pub(super) timeouts: Timeouts,
}

impl Draft {
    pub(super) fn new(program: &str, tag: Tag, argument: Option<&str>) -> Result<Self, Exit> {
        let daemon = |error: &str| match argument {
            Some("master") => Ok(SyncDaemon::Master),
            Some("backup") => Ok(SyncDaemon::Backup),
            _ => Err(Exit::fail(error)),
        };
        let (verb, daemon) = match tag {
            Tag::Verb(verb) => (verb, SyncDaemon::Master),
            Tag::StartDaemon => (
                Verb::StartDaemon,
                daemon("illegal start-daemon parameter specified")?,
            ),
            Tag::StopDaemon => (Verb::StopDaemon, daemon("illegal start_daemon specified")?),
            Tag::Help => return Err(Exit::output(usage(program))),
            Tag::Version => return Err(Exit::output(version())),
            _ => return Err(Exit::try_help(program)),
        };
        Ok(Self {
            verb,
            daemon,
            given: GivenOptions::default(),
            protocol: None,
            address: None,
            port: 0,
            mark: 0,
            v6: false,
            mask: Mask::V4(u32::MAX),
            scheduler: String::new(),
            flags_text: String::new(),
            flags: 0,
            persistent_s: 0,
            engine: String::new(),
            server: ServerKey {
                address: Ipv4Addr::UNSPECIFIED.into(),
                port: 0,
            },
            forward: Forward::Route,
            weight: 1,
            upper: 0,
            lower: 0,
            tunnel: Tunnel::default(),
            timeouts: Timeouts::default(),
        })
    }

    pub(super) fn apply_option(
        &mut self,
        tag: Tag,
        argument: Option<&str>,
        word: &str,
        names: &dyn Names,
    ) -> Result<(), Exit> {
        let text = argument.unwrap_or_default();
        match tag {
            Tag::Service(protocol) => {
                self.given.set(Opt::Service)?;
                self.protocol = Some(protocol);
                let host_port = parse_host_port(text, self.protocol, names);
                let host_port = host_port
                    .ok_or_else(|| Exit::fail("illegal virtual server address[:port] specified"))?;
                self.address = Some(host_port.address);
                self.port = host_port.port.unwrap_or(0);
                self.v6 = host_port.address.is_ipv6();
                if self.v6 {
                    self.mask = Mask::V6(128);
                }
            }
            Tag::Mark => {
                self.given.set(Opt::Service)?;
                let mark = parse_number(text, 1, u32::MAX.into());
                self.mark = mark
                    .ok_or_else(|| Exit::fail(format!("invalid fwmark value `{text}' specified")))?
                    as u32;
                self.protocol = Some(Protocol::Tcp);
            }
            Tag::V6 if self.mark == 0 => return Err(Exit::fail("-6 used before -f\n")),
            Tag::V6 => {
                self.v6 = true;
                self.mask = Mask::V6(128);
            }
            Tag::Forward(forward) => {
                self.given.set(Opt::Forward)?;
                self.forward = forward;
            }
            Tag::Sort => {}
            Tag::Option(option) => {
                self.given.set(option)?;
                self.apply_tagged_option(option, argument, names)?;
            }
            Tag::Verb(_) | Tag::StartDaemon | Tag::StopDaemon | Tag::Help | Tag::Version => {
                return Err(Exit::fail(format!("invalid option `{word}'")));
            }
        }
        Ok(())
    }

    fn apply_tagged_option(
        &mut self,
        option: Opt,
        argument: Option<&str>,
        names: &dyn Names,
    ) -> Result<(), Exit> {
        let text = argument.unwrap_or_default();
        let in_range = |min, max, name: &str| {
            parse_number(text, min, max)
                .ok_or_else(|| Exit::fail(format!("illegal {name} specified")))
        };
        let threshold_max = i64::from(i32::MAX);
        match option {
            Opt::Scheduler => self.scheduler = truncate(text, MAX_SCHEDULER_NAME_BYTES).to_owned(),
            Opt::Persistent => {
                self.persistent_s = match argument {
                    Some(text) => parse_timeout(text, 1)?,
                    None => DEFAULT_PERSISTENT_TIMEOUT_S,
                }
            }
            Opt::Netmask => self.mask = self.parse_netmask(text, names)?,
            Opt::Server => self.server = self.parse_real_server(text, names)?,
            Opt::Weight => self.weight = in_range(0, MAX_WEIGHT.into(), "weight")? as u32,
            Opt::Upper => self.upper = in_range(0, threshold_max, "u_threshold")? as u32,
            Opt::Lower => self.lower = in_range(0, threshold_max, "l_threshold")? as u32,
            Opt::SyncId => drop(in_range(0, 255, "syncid")?),
            Opt::Engine => self.engine = truncate(text, MAX_ENGINE_NAME_BYTES).to_owned(),
            Opt::SchedulerFlags => self.flags_text = truncate(text, MAX_FLAGS_BYTES).to_owned(),
            Opt::Group => check_group(text)?,
            Opt::Port => drop(in_range(1, 65_535, "mcast-port")?),
            Opt::Ttl => drop(in_range(1, 255, "mcast-ttl")?),
            Opt::MaxLen => drop(in_range(1, 65_535 - 20 - 8, "sync-maxlen")?),
            Opt::TunnelType => {
                let kind = TunnelKind::ALL
                    .into_iter()
                    .find(|kind| kind.as_str() == text);
                self.tunnel.kind =
                    kind.ok_or_else(|| Exit::fail("illegal tunnel type specified"))?;
            }
            Opt::TunnelPort => self.tunnel.port = in_range(1, 65_535, "tunnel port")? as u16,
            Opt::TunnelChecksum => self.tunnel.checksum |= 1,
            Opt::TunnelRemote => self.tunnel.checksum |= 2,
            _ => {}
        }
        Ok(())
    }

    fn parse_netmask(&self, text: &str, names: &dyn Names) -> Result<Mask, Exit> {
        if self.v6 {
            let length = parse_leading_number(text);
            return match u8::try_from(length) {
                Ok(length @ 1..=128) => Ok(Mask::V6(length)),
                _ => Err(Exit::fail("illegal ipv6 netmask specified")),
            };
        }
        let mask = inet_aton(text).or_else(|| names.address(text));
        mask.map(|mask| Mask::V4(mask.into()))
            .ok_or_else(|| Exit::fail("illegal virtual server persistent mask specified"))
    }

    fn parse_real_server(&self, text: &str, names: &dyn Names) -> Result<ServerKey, Exit> {
        let host_port = parse_host_port(text, self.protocol, names)
            .ok_or_else(|| Exit::fail("illegal real server address[:port] specified"))?;
        Ok(ServerKey {
            address: host_port.address,
            port: host_port.port.unwrap_or(self.port),
        })
    }

    /// Applies the values of `--set`.
    pub(super) fn apply_timeouts<'a>(
        &mut self,
        others: &mut impl Iterator<Item = &'a str>,
    ) -> Result<(), Exit> {
        if self.verb != Verb::Set {
            return Ok(());
        }
        let (Some(tcp), Some(tcp_fin), Some(udp)) = (others.next(), others.next(), others.next())
        else {
            return Err(Exit::fail("--set option requires 3 timeout values"));
        };
        self.timeouts = Timeouts {
            tcp_s: parse_timeout(tcp, 0)?,
            tcp_fin_s: parse_timeout(tcp_fin, 0)?,
            udp_s: parse_timeout(udp, 0)?,
        };
        Ok(())
    }

    /// Parses the scheduler flags, which depend on the scheduler.
    pub(super) fn apply_scheduler_flags(&mut self) -> Result<(), Exit> {
        if self.flags_text.is_empty() {
            return Ok(());
        }
        let scheduler = match self.scheduler.as_str() {
            "" => DEFAULT_SCHEDULER,
            name => name,
        };
        let mut words = self
            .flags_text
            .split(',')
            .filter(|word| !word.is_empty())
            .peekable();
        if words.peek().is_none() {
            return Err(Exit::fail(format!(
                "invalid scheduler flag `{}'",
                self.flags_text
            )));
        }
        for word in words {
            let (bit, required) = match word {
                "flag-1" => (Service::FLAG_1, None),
                "flag-2" => (Service::FLAG_2, None),
                "flag-3" => (Service::FLAG_3, None),
                "sh-fallback" => (Service::FLAG_1, Some("sh")),
                "sh-port" => (Service::FLAG_2, Some("sh")),
                "mh-fallback" => (Service::FLAG_1, Some("mh")),
                "mh-port" => (Service::FLAG_2, Some("mh")),
                _ => return Err(Exit::fail(format!("invalid scheduler flag `{word}'"))),
            };
            if required.is_some_and(|required| required != scheduler) {
                return Err(Exit::fail(format!("incompatible scheduler flag `{word}'")));
            }
            self.flags |= bit;
        }
        Ok(())
    }
}
