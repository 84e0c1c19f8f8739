//! Identifies probes: checks with equal targets share one probe.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use weir_model::unix_socket;
use weir_model::{Check, CheckTls, Forward, Probe, ProbePath, ProxyHeader, Server, Start, Timing};

use crate::outcome::{Outcome, Verdict};

/// A probe and its destination. Checks with equal targets share one probe, even if their servers are in different
/// pools.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The probe's kind and its parameters.
    pub probe: Probe,
    /// Destination address.
    pub address: IpAddr,
    /// Destination port; `None` = the probe uses no port.
    pub port: Option<u16>,
    /// Path of the Unix socket to connect to instead of `address`.
    pub unix: Option<Arc<str>>,
    /// Source address.
    pub source: Option<IpAddr>,
    /// Outgoing interface.
    pub interface: Option<String>,
    /// Path through a service's forwarding method; `None` = directly to the server.
    pub path: Option<ProbePath>,
    /// TLS settings; `None` = plain text.
    pub tls: Option<CheckTls>,
    /// PROXY protocol header to send first.
    pub proxy_protocol: Option<ProxyHeader>,
    /// Intervals, timeout, rise and fall.
    pub timing: Timing,
    /// State before the first result.
    pub start: Start,
}

impl Target {
    /// Returns the target for a check of this server, at `port`.
    pub fn new(check: &Check, server: &Server, port: Option<u16>) -> Self {
        let unix = match check.target.address {
            None => server.unix.clone(),
            Some(_) => None,
        };
        Self {
            probe: check.probe.clone(),
            address: check.target.address.unwrap_or(server.address),
            port: port.filter(|_| unix.is_none()),
            unix,
            source: check.target.source,
            interface: check.target.interface.clone(),
            path: None,
            tls: check.target.tls.clone(),
            proxy_protocol: check.target.proxy_protocol,
            timing: check.timing,
            start: check.start,
        }
    }

    /// Returns the same target, through a service's path.
    #[must_use]
    pub fn through(self, path: ProbePath) -> Self {
        Self {
            port: Some(path.port),
            path: Some(path),
            ..self
        }
    }

    /// Returns the name of the check kind in the configuration.
    pub const fn kind(&self) -> &'static str {
        match (&self.probe, &self.tls) {
            (Probe::Http(_), Some(_)) => "https",
            (Probe::Tcp | Probe::Exchange(_), Some(_)) => "tls",
            (probe, _) => probe.as_str(),
        }
    }

    /// Adds the probe's address and port to a failure's note. The notes of scripts and files already contain their
    /// names. For a probe along a path with `nat`, the VIP is added too; for other paths, the note is not changed.
    #[must_use]
    pub fn with_address(&self, outcome: Outcome) -> Outcome {
        let has_own_name = !self.probe.needs_port() && self.probe != Probe::Ping;
        if outcome.verdict != Verdict::Failed || has_own_name {
            return outcome;
        }
        let note = match self.path {
            None => format!("{}: {}", self.endpoint(), outcome.note),
            Some(path) if path.forward == Forward::Nat => {
                format!(
                    "{} ({} for VIP {})",
                    outcome.note,
                    self.endpoint(),
                    path.vip
                )
            }
            Some(_) => return outcome,
        };
        Outcome { note, ..outcome }
    }

    /// Returns the address with the port, if there is one, or the Unix socket.
    fn endpoint(&self) -> String {
        if let Some(path) = &self.unix {
            return format!("{}{path}", unix_socket::PREFIX);
        }
        match self.port {
            Some(port) => SocketAddr::new(self.address, port).to_string(),
            None => self.address.to_string(),
        }
    }

    /// Returns a short description: `http 10.0.0.5:80`, or `http 192.0.2.10:80 through direct to 10.0.0.5`.
    pub fn describe(&self) -> String {
        if let Some(ProbePath {
            vip, port, forward, ..
        }) = self.path
        {
            let endpoint = SocketAddr::new(vip, port);
            let (kind, server) = (self.kind(), self.address);
            return format!("{kind} {endpoint} through {forward} to {server}");
        }
        format!("{} {}", self.kind(), self.endpoint())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(probe: Probe, address: &str, port: Option<u16>) -> Target {
        let server = Server::new(address, address.parse().unwrap(), port);
        Target::new(&Check::new(probe), &server, port)
    }

    #[test]
    fn probe_through_a_path_uses_the_service_port() {
        let direct = target(Probe::Tcp, "10.0.0.5", Some(8000));
        assert_eq!(direct.describe(), "tcp 10.0.0.5:8000");
        for (forward, description, note) in [
            (
                Forward::Direct,
                "tcp 192.0.2.10:80 through direct to 10.0.0.5",
                "refused",
            ),
            (
                Forward::Nat,
                "tcp 192.0.2.10:80 through nat to 10.0.0.5",
                "refused (10.0.0.5:80 for VIP 192.0.2.10)",
            ),
        ] {
            let path = ProbePath {
                vip: [192, 0, 2, 10].into(),
                port: 80,
                forward,
                tunnel: weir_model::Tunnel::default(),
                dscp: 0,
                source_is_vip: false,
            };
            let through_path = direct.clone().through(path);
            assert_eq!(
                (through_path.port, through_path.path),
                (Some(80), Some(path))
            );
            assert_eq!(through_path.describe(), description);
            assert_eq!(
                through_path.with_address(Outcome::failed("refused")).note,
                note
            );
        }
    }

    #[test]
    fn kind_is_the_name_in_the_configuration() {
        let http = || Probe::Http(Box::default());
        for (probe, tls, kind) in [
            (Probe::Tcp, false, "tcp"),
            (Probe::Tcp, true, "tls"),
            (http(), false, "http"),
            (http(), true, "https"),
            (Probe::Redis, true, "redis"),
        ] {
            let mut target = target(probe, "10.0.0.5", Some(80));
            target.tls = tls.then(CheckTls::default);
            assert_eq!(target.kind(), kind);
        }
    }

    #[test]
    fn note_of_failure_includes_address_and_port() {
        let note = |target: &Target, outcome| target.with_address(outcome).note;
        let refused = || Outcome::failed("connection refused");
        let tcp = target(Probe::Tcp, "10.0.0.5", Some(8000));
        assert_eq!(note(&tcp, refused()), "10.0.0.5:8000: connection refused");
        let v6 = target(Probe::Tcp, "fd00::5", Some(80));
        assert_eq!(note(&v6, refused()), "[fd00::5]:80: connection refused");
        let ping = target(Probe::Ping, "10.0.0.5", None);
        assert_eq!(note(&ping, Outcome::failed("silent")), "10.0.0.5: silent");
        assert_eq!(note(&tcp, Outcome::passed("http 200")), "http 200");
        let path = "/run/weight".to_owned();
        let file = target(Probe::File { path }, "10.0.0.5", Some(80));
        assert_eq!(note(&file, Outcome::failed("gone")), "gone");
        let server = Server::on_unix_socket("/run/app.sock");
        let unix = Target::new(&Check::new(Probe::Tcp), &server, server.port);
        assert_eq!(
            note(&unix, refused()),
            "unix:/run/app.sock: connection refused"
        );
        assert_eq!(
            (unix.describe().as_str(), unix.port),
            ("tcp unix:/run/app.sock", None)
        );
    }
}
