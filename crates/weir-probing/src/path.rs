//! Runs probes through a service's path.
//!
//! A probe's packets are registered with the tc programs, and the programs' observations are read.
//!
//! With `direct`, `tunnel` and `l3dsr`, the socket uses the server's address. The tc programs rewrite outgoing packets
//! to look like a client's, with the VIP as destination, and rewrite the source of replies from the VIP to the server's
//! address. With `nat`, the packets are already addressed to the server: the socket is bound to the VIP, so the
//! server's replies must return through the director.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use socket2::Socket;
use weir_health::{Outcome, Target, Verdict};
use weir_model::{Forward, PathFailure, ProbePath, Protocol};

use crate::context::Context;
use crate::path_table::{PathObservation, PathPackets, PathTable};
use crate::source::source;

/// A maximum segment size, in bytes, that leaves room for any tunnel's headers on a link with an MTU of 1500.
const TUNNEL_MSS: u32 = 1200;

/// A probe through a service's path. Dropping it removes its map entry.
#[derive(Debug)]
pub(crate) struct PathProbe {
    table: PathTable,
    path: ProbePath,
    server: IpAddr,
    /// Addresses that must not be the probe's source.
    vips: Arc<HashSet<IpAddr>>,
    packets: OnceLock<PathPackets>,
}

impl PathProbe {
    /// Creates the probe for a target with a path that uses a forwarding method other than `nat`. Returns `None` for
    /// other targets.
    ///
    /// # Errors
    /// Returns the probe outcome if there is no data plane.
    pub(crate) fn for_target(target: &Target, context: &Context) -> Result<Option<Self>, Outcome> {
        match (target.path, context.path_table()) {
            (None, _) => Ok(None),
            (Some(path), _) if path.forward == Forward::Nat => Ok(None),
            (Some(_), None) => Err(Outcome::unknown("no data plane to probe through")),
            (Some(path), Some(table)) => Ok(Some(Self {
                table,
                path,
                server: target.address,
                vips: context.vips(),
                packets: OnceLock::new(),
            })),
        }
    }

    /// Binds a socket to a source address. Returns the packets to pass to [`Self::register`].
    pub(crate) fn bind(
        &self,
        socket: &Socket,
        target: &Target,
        protocol: Protocol,
    ) -> io::Result<PathPackets> {
        let source = source(target, &self.vips)?;
        socket.bind(&SocketAddr::new(source, 0).into())?;
        if self.path.forward == Forward::Tunnel && protocol == Protocol::Tcp {
            socket.set_tcp_mss(TUNNEL_MSS)?;
        }
        let local = socket.local_addr()?.as_socket();
        let port = local.map_or(0, |local| local.port());
        Ok(PathPackets {
            local: SocketAddr::new(source, port),
            protocol,
        })
    }

    /// Registers the packets of a socket with the data plane. Must be called before the socket is connected.
    pub(crate) async fn register(&self, packets: PathPackets) -> io::Result<()> {
        self.table.add(packets, self.server, self.path).await?;
        let _ = self.packets.set(packets);
        Ok(())
    }

    /// Refines an outcome with the data plane's observations of the probe's packets.
    pub(crate) async fn refine(&self, outcome: Outcome) -> Outcome {
        let Some(packets) = self.packets.get().copied() else {
            return outcome;
        };
        let observation = match self.table.read(packets).await {
            Ok(Some(observation)) => observation,
            Ok(None) => return outcome,
            Err(error) => {
                return Outcome::unknown(format!(
                    "cannot read the probe's entry in the data plane: {error}"
                ));
            }
        };
        match outcome.verdict {
            Verdict::Unknown => outcome,
            // The data plane saw no probe, or no reply from the VIP.
            Verdict::Passed if observation.sent == 0 || observation.answered == 0 => {
                Outcome::unknown(
                    "the probe or its reply passed through an interface to which Weir is not attached",
                )
            }
            Verdict::Passed if self.server_claims_vip(packets).await => {
                Outcome::failed(PathFailure::ClaimsVip(self.path.vip).to_string())
            }
            Verdict::Passed => outcome,
            // No packet was sent, for example because neighbor resolution failed.
            Verdict::Failed if observation.sent == 0 => outcome,
            Verdict::Failed => Outcome::failed(self.failure_reason(&observation, &outcome.note)),
        }
    }

    /// Returns whether the server replies to ARP requests for the VIP; if so, clients could bypass the director.
    async fn server_claims_vip(&self, packets: PathPackets) -> bool {
        let can_claim = self.path.vip.is_ipv4() && self.path.forward == Forward::Direct;
        can_claim && self.table.claims_vip(packets).await
    }

    /// Returns the reason for a failed probe, based on the observed packets.
    fn failure_reason(&self, observation: &PathObservation, note: &str) -> String {
        let ProbePath { vip, port, .. } = self.path;
        if observation.answered > 0 {
            return format!("{note} at {}", SocketAddr::new(vip, port));
        }
        if observation.stray > 0 {
            return format!("{} ({note})", PathFailure::OtherMachine(vip));
        }
        if observation.untranslated > 0 {
            return PathFailure::NotRestored(vip).to_string();
        }
        let tunnel = self.path.tunnel.kind;
        match (
            self.path.forward,
            observation.error_type,
            observation.error_code,
        ) {
            // Protocol and port unreachable: RFC 792, RFC 4443.
            (Forward::Tunnel, 3, 2 | 3) | (Forward::Tunnel, 1, 4) => {
                PathFailure::NoDecapsulation(tunnel).to_string()
            }
            // The director cannot distinguish these causes: in each case, packets are dropped without an error.
            (forward, 0, _) => {
                let tunnel = match forward {
                    Forward::Tunnel => format!("no decapsulation of {tunnel}, "),
                    Forward::Direct | Forward::L3dsr | Forward::Nat | Forward::Socket => {
                        String::new()
                    }
                };
                format!(
                    "{} ({note}); possible causes: VIP not on lo, {tunnel}a firewall, no route back",
                    PathFailure::NoReply(vip)
                )
            }
            (_, kind, code) => {
                let unreachable = PathFailure::Unreachable(vip);
                format!("{unreachable}: ICMP type {kind} code {code}")
            }
        }
    }
}

impl Drop for PathProbe {
    fn drop(&mut self) {
        if let Some(packets) = self.packets.get() {
            self.table.remove(*packets);
        }
    }
}
