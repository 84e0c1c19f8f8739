//! From a command line to a [`Command`], or to what the tool says instead.
//!
//! Order is meaning: the first option is the command, `-r` takes the family and port of the service named before it, `-M`
//! is a dotted mask or a prefix length by the family seen so far.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::legality::{Given, Opt, Verb};
use crate::popt::{Argument, Known, Options};
use crate::text::{inet_aton, number};
use crate::{
    Columns, Edit, Forward, Mask, Names, Persistence, Protocol, Server, ServerEdit, ServerKey,
    Service, ServiceKey, SyncDaemon, Timeouts, Tunnel, TunnelKind, usage, version,
};

/// What a command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A change of the table.
    Edit(Edit),
    /// `-L`.
    List(List, Columns),
    /// `-S`.
    Save(Columns),
    /// `-R`.
    Restore,
}

/// What is to be listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum List {
    /// Every service.
    All,
    /// One service.
    Service(ServiceKey),
    /// `-c`.
    Connections,
    /// `--timeout`.
    Timeouts,
    /// `--daemon`.
    Daemons,
}

/// The end of a command line that asks for nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Exit code.
    pub code: u8,
    /// To standard output.
    pub stdout: String,
    /// To standard error.
    pub stderr: String,
    /// `-R` goes on with the next line; other ends are the program's.
    pub goes_on: bool,
}

impl Exit {
    /// A mistake in the arguments: code 2.
    pub(crate) fn fail(message: impl Into<String>) -> Self {
        Self {
            code: 2,
            stdout: String::new(),
            stderr: message.into() + "\n",
            goes_on: false,
        }
    }

    /// Points to the help: code 255.
    pub fn try_help(program: &str) -> Self {
        Self {
            code: 255,
            stdout: String::new(),
            stderr: format!("Try `{program} -h' or '{program} --help' for more information.\n"),
            goes_on: false,
        }
    }

    fn output(stdout: String) -> Self {
        Self {
            code: 0,
            stdout,
            stderr: String::new(),
            goes_on: false,
        }
    }
}

/// The longest persistence and timeout, seconds.
const MAX_TIMEOUT_S: i64 = 31 * 86_400;
/// A bare `-p`; the manual page says 300 (libipvs.h: IPVS_SVC_PERSISTENT_TIMEOUT).
const PERSISTENT_TIMEOUT_S: u32 = 360;
const DEFAULT_SCHEDULER: &str = "wlc";
/// Bytes of a scheduler's and an engine's name that the tool passes on.
const NAME_BYTES: (usize, usize) = (15, 16);
/// Bytes of scheduler flags that the tool looks at.
const FLAGS_BYTES: usize = 127;

#[derive(Clone, Copy, Debug)]
enum Tag {
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

const fn flag(long: &'static str, short: Option<char>, tag: Tag) -> Known<Tag> {
    Known {
        long,
        short,
        argument: Argument::None,
        tag,
    }
}

const fn value(long: &'static str, short: Option<char>, tag: Tag) -> Known<Tag> {
    Known {
        long,
        short,
        argument: Argument::Needed,
        tag,
    }
}

const KNOWN: &[Known<Tag>] = &[
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
    Known {
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

/// Reads a command line: `program` as it was called, `arguments` after it. No arguments ask for the list.
///
/// # Errors
/// What the tool prints and exits with when there is nothing to do, mistakes above all.
pub fn parse(program: &str, arguments: &[String], names: &dyn Names) -> Result<Command, Exit> {
    if arguments.is_empty() {
        return Ok(Command::List(List::All, Columns::default()));
    }
    let mut options = Options::new(KNOWN, arguments);
    let mut draft = match options.next_option() {
        Some(Ok((tag, argument))) => Draft::new(program, tag, argument)?,
        _ => return Err(Exit::try_help(program)),
    };
    while let Some(option) = options.next_option() {
        let word = options.last_word();
        match option {
            Ok((tag, argument)) => draft.enter(tag, argument, word, names)?,
            Err(problem) => {
                return Err(Exit {
                    code: 255,
                    stdout: String::new(),
                    stderr: format!("{word}: {}\n", problem.as_str()),
                    goes_on: true,
                });
            }
        }
    }
    let mut others = options.others().into_iter();
    draft.positional(&mut others)?;
    if let Some(other) = others.next() {
        return Err(Exit::fail(format!("unexpected argument {other}")));
    }
    draft.scheduler_flags()?;
    draft.verb.rule().check(draft.given)?;
    draft.finish()
}

/// A command line as far as it was read.
#[derive(Debug)]
struct Draft {
    verb: Verb,
    daemon: SyncDaemon,
    given: Given,
    protocol: Option<Protocol>,
    address: Option<IpAddr>,
    port: u16,
    mark: u32,
    v6: bool,
    mask: Mask,
    scheduler: String,
    flags_text: String,
    flags: u8,
    persistent_s: u32,
    engine: String,
    server: ServerKey,
    forward: Forward,
    weight: u32,
    upper: u32,
    lower: u32,
    tunnel: Tunnel,
    timeouts: Timeouts,
}

/// An address as `-t`, `-u` and `-r` take it.
struct Target {
    address: IpAddr,
    port: Option<u16>,
}

impl Draft {
    fn new(program: &str, tag: Tag, argument: Option<&str>) -> Result<Self, Exit> {
        let daemon = |mistake: &str| match argument {
            Some("master") => Ok(SyncDaemon::Master),
            Some("backup") => Ok(SyncDaemon::Backup),
            _ => Err(Exit::fail(mistake)),
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
            given: Given::default(),
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

    fn enter(
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
                let target = target(text, self.protocol, names);
                let target = target
                    .ok_or_else(|| Exit::fail("illegal virtual server address[:port] specified"))?;
                self.address = Some(target.address);
                self.port = target.port.unwrap_or(0);
                self.v6 = target.address.is_ipv6();
                if self.v6 {
                    self.mask = Mask::V6(128);
                }
            }
            Tag::Mark => {
                self.given.set(Opt::Service)?;
                let mark = number(text, 1, u32::MAX.into());
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
                self.option(option, argument, names)?;
            }
            Tag::Verb(_) | Tag::StartDaemon | Tag::StopDaemon | Tag::Help | Tag::Version => {
                return Err(Exit::fail(format!("invalid option `{word}'")));
            }
        }
        Ok(())
    }

    fn option(
        &mut self,
        option: Opt,
        argument: Option<&str>,
        names: &dyn Names,
    ) -> Result<(), Exit> {
        let text = argument.unwrap_or_default();
        let within = |least, most, what: &str| {
            number(text, least, most).ok_or_else(|| Exit::fail(format!("illegal {what} specified")))
        };
        let count = i64::from(i32::MAX);
        match option {
            Opt::Scheduler => self.scheduler = cut(text, NAME_BYTES.0).to_owned(),
            Opt::Persistent => {
                self.persistent_s = match argument {
                    Some(text) => timeout(text, 1)?,
                    None => PERSISTENT_TIMEOUT_S,
                }
            }
            Opt::Netmask => self.mask = self.netmask(text, names)?,
            Opt::Server => self.server = self.real_server(text, names)?,
            Opt::Weight => {
                self.weight = within(0, weir_model::MAX_WEIGHT.into(), "weight")? as u32;
            }
            Opt::Upper => self.upper = within(0, count, "u_threshold")? as u32,
            Opt::Lower => self.lower = within(0, count, "l_threshold")? as u32,
            Opt::SyncId => drop(within(0, 255, "syncid")?),
            Opt::Engine => self.engine = cut(text, NAME_BYTES.1).to_owned(),
            Opt::SchedulerFlags => self.flags_text = cut(text, FLAGS_BYTES).to_owned(),
            Opt::Group => group(text)?,
            Opt::Port => drop(within(1, 65_535, "mcast-port")?),
            Opt::Ttl => drop(within(1, 255, "mcast-ttl")?),
            Opt::MaxLen => drop(within(1, 65_535 - 20 - 8, "sync-maxlen")?),
            Opt::TunnelType => {
                let kind = TunnelKind::ALL
                    .into_iter()
                    .find(|kind| kind.as_str() == text);
                self.tunnel.kind =
                    kind.ok_or_else(|| Exit::fail("illegal tunnel type specified"))?;
            }
            Opt::TunnelPort => self.tunnel.port = within(1, 65_535, "tunnel port")? as u16,
            Opt::TunnelChecksum => self.tunnel.checksum |= 1,
            Opt::TunnelRemote => self.tunnel.checksum |= 2,
            _ => {}
        }
        Ok(())
    }

    fn netmask(&self, text: &str, names: &dyn Names) -> Result<Mask, Exit> {
        if self.v6 {
            let length = leading_number(text);
            return match u8::try_from(length) {
                Ok(length @ 1..=128) => Ok(Mask::V6(length)),
                _ => Err(Exit::fail("illegal ipv6 netmask specified")),
            };
        }
        let mask = inet_aton(text).or_else(|| names.address(text));
        mask.map(|mask| Mask::V4(mask.into()))
            .ok_or_else(|| Exit::fail("illegal virtual server persistent mask specified"))
    }

    fn real_server(&self, text: &str, names: &dyn Names) -> Result<ServerKey, Exit> {
        let target = target(text, self.protocol, names)
            .ok_or_else(|| Exit::fail("illegal real server address[:port] specified"))?;
        Ok(ServerKey {
            address: target.address,
            port: target.port.unwrap_or(self.port),
        })
    }

    /// The values of `--set`.
    fn positional<'a>(&mut self, others: &mut impl Iterator<Item = &'a str>) -> Result<(), Exit> {
        if self.verb != Verb::Set {
            return Ok(());
        }
        let (Some(tcp), Some(tcp_fin), Some(udp)) = (others.next(), others.next(), others.next())
        else {
            return Err(Exit::fail("--set option requires 3 timeout values"));
        };
        self.timeouts = Timeouts {
            tcp_s: timeout(tcp, 0)?,
            tcp_fin_s: timeout(tcp_fin, 0)?,
            udp_s: timeout(udp, 0)?,
        };
        Ok(())
    }

    fn scheduler_flags(&mut self) -> Result<(), Exit> {
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
            let (bit, only) = match word {
                "flag-1" => (Service::FLAG_1, None),
                "flag-2" => (Service::FLAG_2, None),
                "flag-3" => (Service::FLAG_3, None),
                "sh-fallback" => (Service::FLAG_1, Some("sh")),
                "sh-port" => (Service::FLAG_2, Some("sh")),
                "mh-fallback" => (Service::FLAG_1, Some("mh")),
                "mh-port" => (Service::FLAG_2, Some("mh")),
                _ => return Err(Exit::fail(format!("invalid scheduler flag `{word}'"))),
            };
            if only.is_some_and(|only| only != scheduler) {
                return Err(Exit::fail(format!("incompatible scheduler flag `{word}'")));
            }
            self.flags |= bit;
        }
        Ok(())
    }

    fn finish(self) -> Result<Command, Exit> {
        if matches!(self.verb, Verb::Add | Verb::Edit) {
            self.check_service()?;
        }
        let edit = match self.verb {
            Verb::Add => Edit::AddService(self.service()),
            Verb::Edit => Edit::EditService(self.service()),
            Verb::Delete => Edit::DeleteService(self.key()),
            Verb::Clear => Edit::Clear,
            Verb::List => return self.list(),
            Verb::AddServer => Edit::AddServer(self.key(), self.whole_server()?),
            Verb::DeleteServer => Edit::DeleteServer(self.key(), self.server),
            Verb::EditServer => Edit::EditServer(
                self.key(),
                ServerEdit {
                    server: self.whole_server()?,
                    forward: self.given.has(Opt::Forward),
                    thresholds: self.given.any(&[Opt::Upper, Opt::Lower]),
                    tunnel: self.given.any(TUNNEL_OPTIONS),
                },
            ),
            Verb::Set => Edit::Timeouts(self.timeouts),
            Verb::StartDaemon => Edit::StartDaemon(self.daemon),
            Verb::StopDaemon => Edit::StopDaemon(self.daemon),
            Verb::Restore => return Ok(Command::Restore),
            Verb::Save => return Ok(Command::Save(self.columns())),
            Verb::Zero => Edit::Zero(self.given.has(Opt::Service).then(|| self.key())),
        };
        Ok(Command::Edit(edit))
    }

    fn check_service(&self) -> Result<(), Exit> {
        let persistent = self.given.has(Opt::Persistent);
        if self.mark == 0 && self.port == 0 && !persistent {
            return Err(Exit::fail("Zero port specified for non-persistent service"));
        }
        let takes_packets = self.mark != 0 || self.protocol == Some(Protocol::Udp);
        if self.given.has(Opt::OnePacket) && !takes_packets {
            return Err(Exit::fail(
                "One-Packet Scheduling is only for UDP virtual services",
            ));
        }
        Ok(())
    }

    fn key(&self) -> ServiceKey {
        if self.mark != 0 {
            return ServiceKey::Mark {
                mark: self.mark,
                v6: self.v6,
            };
        }
        ServiceKey::Address {
            protocol: self.protocol.unwrap_or(Protocol::Tcp),
            address: self.address.unwrap_or(Ipv4Addr::UNSPECIFIED.into()),
            port: self.port,
        }
    }

    fn service(&self) -> Service {
        Service {
            key: self.key(),
            scheduler: match self.scheduler.as_str() {
                "" => DEFAULT_SCHEDULER.to_owned(),
                name => name.to_owned(),
            },
            flags: self.flags,
            persistence: self.given.has(Opt::Persistent).then_some(Persistence {
                timeout_s: self.persistent_s,
                mask: self.mask,
            }),
            engine: self.engine.clone(),
            one_packet: self.given.has(Opt::OnePacket),
        }
    }

    fn whole_server(&self) -> Result<Server, Exit> {
        let mut key = self.server;
        if self.mark == 0 && self.forward != Forward::Masq {
            key.port = self.port;
        }
        if key.address.is_ipv6() != self.v6 && self.forward != Forward::Tunnel {
            return Err(Exit::fail(
                "Different address family is allowed only for tunneling servers",
            ));
        }
        if self.given.any(TUNNEL_OPTIONS) && self.forward != Forward::Tunnel {
            return Err(Exit::fail("Tunnel options conflict with forward method"));
        }
        self.tunnel.kind.rule().check(self.given)?;
        Ok(Server {
            key,
            forward: self.forward,
            weight: self.weight,
            upper: self.upper,
            lower: self.lower,
            tunnel: self.tunnel,
        })
    }

    fn columns(&self) -> Columns {
        let given = |option| self.given.has(option);
        Columns {
            numeric: given(Opt::Numeric),
            exact: given(Opt::Exact),
            nosort: given(Opt::NoSort),
            stats: given(Opt::Stats),
            rate: given(Opt::Rate),
            thresholds: given(Opt::Thresholds),
            persistent_conn: given(Opt::PersistentConn),
            tunnel: given(Opt::TunnelInfo),
        }
    }

    fn list(&self) -> Result<Command, Exit> {
        let given = |options: &[Opt]| self.given.any(options);
        let counted = [Opt::Stats, Opt::Rate, Opt::Thresholds];
        if given(&[Opt::Connection, Opt::Timeout, Opt::Daemon]) && given(&counted)
            || given(&[Opt::Timeout, Opt::Daemon]) && given(&[Opt::PersistentConn])
        {
            return Err(Exit::fail("options conflicts in the list command"));
        }
        let what = if given(&[Opt::Connection]) {
            List::Connections
        } else if given(&[Opt::Service]) {
            List::Service(self.key())
        } else if given(&[Opt::Timeout]) {
            List::Timeouts
        } else if given(&[Opt::Daemon]) {
            List::Daemons
        } else {
            List::All
        };
        Ok(Command::List(what, self.columns()))
    }
}

const TUNNEL_OPTIONS: &[Opt] = &[
    Opt::TunnelType,
    Opt::TunnelPort,
    Opt::TunnelNoChecksum,
    Opt::TunnelChecksum,
    Opt::TunnelRemote,
];

fn timeout(text: &str, least: i64) -> Result<u32, Exit> {
    number(text, least, MAX_TIMEOUT_S)
        .map(|seconds| seconds as u32)
        .ok_or_else(|| Exit::fail(format!("invalid timeout value `{text}' specified")))
}

/// `host[:port]` or `[v6]:port`; brackets around IPv4 are taken, and the port behind them is not.
fn target(text: &str, protocol: Option<Protocol>, names: &dyn Names) -> Option<Target> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (inside, behind) = match text.strip_prefix('[') {
        Some(rest) => {
            let (inside, behind) = rest.split_once(']')?;
            (inside, Some(behind.strip_prefix(':')?))
        }
        None => (text, None),
    };
    let (address, port) = match inside.parse::<Ipv6Addr>() {
        Ok(v6) => (IpAddr::V6(v6), behind),
        Err(_) => {
            let (host, port) = match inside.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (inside, None),
            };
            let v4 = inet_aton(host).or_else(|| names.address(host))?;
            (IpAddr::V4(v4), port)
        }
    };
    let port = match port {
        Some(text) => Some(port_number(text, protocol, names)?),
        None => None,
    };
    Some(Target { address, port })
}

fn port_number(text: &str, protocol: Option<Protocol>, names: &dyn Names) -> Option<u16> {
    match number(text, 0, 65_535) {
        Some(port) => u16::try_from(port).ok(),
        None => names.port(text, protocol?),
    }
}

fn group(text: &str) -> Result<(), Exit> {
    let (family, known) = if text.contains(':') {
        let group = text.parse::<Ipv6Addr>();
        ("IPv6", group.is_ok_and(|group| group.is_multicast()))
    } else {
        let group = text.parse::<Ipv4Addr>();
        ("IPv4", group.is_ok_and(|group| group.is_multicast()))
    };
    if known {
        return Ok(());
    }
    Err(Exit::fail(format!("invalid {family} mcast-group `{text}'")))
}

/// What atoi(3) makes of it: digits up to the first other character.
fn leading_number(text: &str) -> i64 {
    let text = text.trim_start();
    let end = text
        .char_indices()
        .find(|(at, c)| !(c.is_ascii_digit() || *at == 0 && matches!(c, '+' | '-')))
        .map_or(text.len(), |(at, _)| at);
    text[..end].parse().unwrap_or(0)
}

/// At most so many bytes, on a character's boundary.
fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}
