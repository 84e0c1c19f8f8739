//! Converts the parsed options into a command.

use std::net::Ipv4Addr;

use super::draft::{DEFAULT_SCHEDULER, Draft};
use super::{Command, List};
use crate::exit::Exit;
use crate::option_rule::{Opt, Rule, Verb};
use crate::{
    Columns, Edit, Forward, Persistence, Protocol, Server, ServerEdit, Service, ServiceKey,
};

const TUNNEL_OPTIONS: &[Opt] = &[
    Opt::TunnelType,
    Opt::TunnelPort,
    Opt::TunnelNoChecksum,
    Opt::TunnelChecksum,
    Opt::TunnelRemote,
];

impl Draft {
    /// Converts the options into a command.
    ///
    /// # Errors
    /// Returns the tool's error if the options conflict with each other.
    pub(super) fn finish(self) -> Result<Command, Exit> {
        if matches!(self.verb, Verb::Add | Verb::Edit) {
            self.check_service()?;
        }
        let edit = match self.verb {
            Verb::Add => Edit::AddService(self.service()),
            Verb::Edit => Edit::EditService(self.service()),
            Verb::Delete => Edit::DeleteService(self.key()),
            Verb::Clear => Edit::Clear,
            Verb::List => return self.list_command(),
            Verb::AddServer => Edit::AddServer(self.key(), self.complete_server()?),
            Verb::DeleteServer => Edit::DeleteServer(self.key(), self.server),
            Verb::EditServer => Edit::EditServer(
                self.key(),
                ServerEdit {
                    server: self.complete_server()?,
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
        let allows_one_packet = self.mark != 0 || self.protocol == Some(Protocol::Udp);
        if self.given.has(Opt::OnePacket) && !allows_one_packet {
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

    fn complete_server(&self) -> Result<Server, Exit> {
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
        Rule::for_tunnel(self.tunnel.kind).check(self.given)?;
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
        let has = |option| self.given.has(option);
        Columns {
            numeric: has(Opt::Numeric),
            exact: has(Opt::Exact),
            nosort: has(Opt::NoSort),
            stats: has(Opt::Stats),
            rate: has(Opt::Rate),
            thresholds: has(Opt::Thresholds),
            persistent_conn: has(Opt::PersistentConn),
            tunnel: has(Opt::TunnelInfo),
        }
    }

    fn list_command(&self) -> Result<Command, Exit> {
        let has_any = |options: &[Opt]| self.given.any(options);
        let with_counters = [Opt::Stats, Opt::Rate, Opt::Thresholds];
        if has_any(&[Opt::Connection, Opt::Timeout, Opt::Daemon]) && has_any(&with_counters)
            || has_any(&[Opt::Timeout, Opt::Daemon]) && has_any(&[Opt::PersistentConn])
        {
            return Err(Exit::fail("options conflicts in the list command"));
        }
        let list = if has_any(&[Opt::Connection]) {
            List::Connections
        } else if has_any(&[Opt::Service]) {
            List::Service(self.key())
        } else if has_any(&[Opt::Timeout]) {
            List::Timeouts
        } else if has_any(&[Opt::Daemon]) {
            List::Daemons
        } else {
            List::All
        };
        Ok(Command::List(list, self.columns()))
    }
}
