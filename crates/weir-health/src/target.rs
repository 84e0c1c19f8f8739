//! What a probe is: everything that two probes have in common when one of them is enough.

use std::net::{IpAddr, SocketAddr};

use weir_model::{Check, CheckTls, Probe, ProxyHeader, Server, Start, Timing, Way};

/// A probe and where it goes. Servers of several pools whose checks lead to equal targets share one probe.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// What is asked.
    pub probe: Probe,
    /// Where.
    pub address: IpAddr,
    /// At which port; `None` = the probe needs none.
    pub port: Option<u16>,
    /// Source address.
    pub source: Option<IpAddr>,
    /// Interface to leave by.
    pub interface: Option<String>,
    /// Through a service's forward; `None` = straight to the server.
    pub way: Option<Way>,
    /// By TLS.
    pub tls: Option<CheckTls>,
    /// PROXY protocol header in front.
    pub proxy_protocol: Option<ProxyHeader>,
    /// When, and how many results decide.
    pub timing: Timing,
    /// What holds before the first result.
    pub start: Start,
}

impl Target {
    /// The target of a check of that server, at `port`.
    pub fn new(check: &Check, server: &Server, port: Option<u16>) -> Self {
        Self {
            probe: check.probe.clone(),
            address: check.aim.address.unwrap_or(server.address),
            port,
            source: check.aim.source,
            interface: check.aim.interface.clone(),
            way: None,
            tls: check.aim.tls.clone(),
            proxy_protocol: check.aim.proxy_protocol,
            timing: check.timing,
            start: check.start,
        }
    }

    /// The same through a service's forward.
    #[must_use]
    pub fn through(self, way: Way) -> Self {
        Self {
            port: Some(way.port),
            way: Some(way),
            ..self
        }
    }

    /// The name of its kind in configuration.
    pub const fn kind(&self) -> &'static str {
        match (&self.probe, &self.tls) {
            (Probe::Http(_), Some(_)) => "https",
            (Probe::Tcp, Some(_)) => "tls",
            (probe, _) => probe.as_str(),
        }
    }

    /// In a few words, `http 10.0.0.5:80`, or `http 192.0.2.10:80 through direct to 10.0.0.5`.
    pub fn describe(&self) -> String {
        if let Some(Way {
            vip, port, forward, ..
        }) = self.way
        {
            let at = SocketAddr::new(vip, port);
            let (kind, server) = (self.kind(), self.address);
            return format!("{kind} {at} through {forward} to {server}");
        }
        let kind = self.kind();
        match (self.address, self.port) {
            (address, None) => format!("{kind} {address}"),
            (IpAddr::V4(v4), Some(port)) => format!("{kind} {v4}:{port}"),
            (IpAddr::V6(v6), Some(port)) => format!("{kind} [{v6}]:{port}"),
        }
    }
}
