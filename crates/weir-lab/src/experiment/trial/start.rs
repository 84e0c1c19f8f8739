//! Starts a trial's servers and its balancer.

use std::net::Ipv4Addr;
use std::path::Path;

use super::{Balancer, RunContext, Site, Trial};
use crate::cgroup::Cgroup;
use crate::error::{LabError, Result};
use crate::experiment::disturbance::{self, LiveBalancer};
use crate::peer::{START_LIMIT, haproxy, ldirectord, nftables, nginx, php, weir};
use crate::process::{Daemon, Launcher};
use crate::topology::Topology;

impl Trial {
    pub(super) fn start_server(
        &self,
        launcher: &Launcher<'_>,
        pages: &Path,
    ) -> Result<Vec<Daemon>> {
        match self.site {
            Site::Pages => Ok(vec![nginx::start(launcher, pages, &nginx::Role::Files)?]),
            Site::Php => {
                let workers = php::start(launcher)?;
                let role = nginx::Role::FastCgi {
                    method: "",
                    workers: &[Ipv4Addr::LOCALHOST],
                };
                Ok(vec![nginx::start(launcher, pages, &role)?, workers])
            }
            Site::Paced => Ok(Vec::new()),
        }
    }

    pub(super) fn start_balancer<'a>(
        &self,
        context: &RunContext<'a>,
        topology: &'a Topology,
        base: &Path,
        directory: &Path,
        cgroup: Option<&Cgroup>,
    ) -> Result<RunningBalancer<'a>> {
        let launcher = Launcher {
            namespace: &topology.director.namespace,
            cgroup: None,
            directory,
        };
        let servers: Vec<Ipv4Addr> = topology
            .servers
            .iter()
            .map(|server| server.address)
            .collect();
        Ok(match self.method.balancer {
            Balancer::OneServer => RunningBalancer::Nothing,
            Balancer::Haproxy => {
                let balance = haproxy::balance(&self.method.scheduler).unwrap_or("roundrobin");
                RunningBalancer::Program {
                    _daemon: haproxy::start(&launcher, balance, &servers)?,
                }
            }
            Balancer::NftablesDirect => {
                nftables::load_direct_rules(topology)?;
                RunningBalancer::Nothing
            }
            Balancer::NftablesDnat => {
                nftables::load_dnat_rules(topology)?;
                RunningBalancer::Nothing
            }
            Balancer::NginxFastCgi(method) => {
                let role = nginx::Role::FastCgi {
                    method,
                    workers: &servers,
                };
                RunningBalancer::Program {
                    _daemon: nginx::start(&launcher, context.pages, &role)?,
                }
            }
            Balancer::NginxProxy(method) => {
                let role = nginx::Role::Proxy {
                    method,
                    servers: &servers,
                };
                RunningBalancer::Program {
                    _daemon: nginx::start(&launcher, context.pages, &role)?,
                }
            }
            Balancer::Weir(forward) => RunningBalancer::Weir {
                _director: self.start_weir(context, topology, base, forward, cgroup)?,
            },
            Balancer::Disturbed(subject, kind) => {
                let weir = match subject.forward() {
                    Some(forward) => {
                        Some(self.start_weir(context, topology, base, forward, cgroup)?)
                    }
                    None => None,
                };
                let setup = disturbance::Setup {
                    namespace: &topology.director.namespace,
                    directory: directory.to_owned(),
                    pages: context.pages,
                    weir: context.weir,
                    servers,
                };
                RunningBalancer::Disturbed(LiveBalancer::start(subject, kind, setup, weir)?)
            }
            Balancer::Ldirectord => {
                let director =
                    self.start_weir(context, topology, base, weir::Forward::Direct, None)?;
                self.start_ldirectord(&launcher, director, &servers)?
            }
        })
    }

    fn start_ldirectord<'a>(
        &self,
        launcher: &Launcher<'_>,
        director: weir::Director<'a>,
        servers: &[Ipv4Addr],
    ) -> Result<RunningBalancer<'a>> {
        let instance = director.instance();
        let mut daemon = ldirectord::start(launcher, &instance, &self.method.scheduler, servers)?;
        daemon.wait_ready("ldirectord's table", START_LIMIT, || {
            Ok(director.ipvsadm_server_count()? == servers.len())
        })?;
        Ok(RunningBalancer::Ldirectord {
            _daemon: daemon,
            _director: director,
        })
    }

    fn start_weir<'a>(
        &self,
        context: &RunContext<'a>,
        topology: &'a Topology,
        base: &Path,
        forward: weir::Forward,
        cgroup: Option<&Cgroup>,
    ) -> Result<weir::Director<'a>> {
        let program = context.weir.ok_or(LabError::Usage {
            option: "--weir",
            reason: "the method requires the weir program".into(),
        })?;
        let pins = |host: &str| {
            context
                .session
                .pin_directory(&format!("{}-{host}", topology.number))
        };
        let directories = weir::Directories {
            base,
            pins: &pins,
            cgroup: cgroup.map(Cgroup::path),
        };
        let scheduler = match self.method.balancer {
            Balancer::Ldirectord => None,
            _ => Some(self.method.scheduler.as_str()),
        };
        weir::Director::start(program, topology, &directories, forward, scheduler)
    }
}

/// A running balancer. Dropping it stops the balancer.
pub(super) enum RunningBalancer<'a> {
    /// No program: there is no balancer, or it consists of rules, which are removed with their namespace.
    Nothing,
    Program {
        _daemon: Daemon,
    },
    Weir {
        _director: weir::Director<'a>,
    },
    Disturbed(LiveBalancer<'a>),
    /// `_daemon` is dropped first, because it changes the director until it exits.
    Ldirectord {
        _daemon: Daemon,
        _director: weir::Director<'a>,
    },
}
