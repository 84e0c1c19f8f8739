//! Writes the command lines that recreate a table, for `-S`.

use std::fmt::Write as _;

use crate::format::{flags, full_endpoint, mask};
use crate::{Forward, Names, Server, ServiceKey, TableService, TunnelKind};

impl TableService {
    /// Appends the command lines of a service and of its servers, except `l3dsr` servers, which ipvsadm cannot add.
    pub(crate) fn save(&self, text: &mut String, numeric: bool, names: &dyn Names) {
        let service = &self.service;
        let names = (!numeric).then_some(names);
        let key = match service.key {
            ServiceKey::Mark { mark, v6 } => format!("-f {mark}{}", if v6 { " -6" } else { "" }),
            ServiceKey::Address {
                protocol,
                address,
                port,
            } => format!(
                "{} {}",
                protocol.option(),
                full_endpoint(address, port, Some(protocol), names)
            ),
        };
        let _ = write!(text, "-A {key} -s {}", service.scheduler);
        if let Some(persistence) = service.persistence {
            let _ = write!(text, " -p {}", persistence.timeout_s);
            if let Some(mask) = mask(persistence.mask) {
                let _ = write!(text, " -M {mask}");
            }
        }
        if !service.engine.is_empty() {
            let _ = write!(text, " --pe {}", service.engine);
        }
        if service.one_packet {
            text.push_str(" -o");
        }
        if service.flags != 0 {
            let _ = write!(text, " -b {}", flags(service));
        }
        text.push('\n');
        for server in &self.servers {
            let Some(forward) = server.forward.option() else {
                continue;
            };
            let protocol = service.key.protocol();
            let name = full_endpoint(server.key.address, server.key.port, protocol, names);
            let _ = write!(text, "-a {key} -r {name} {forward} -w {}", server.weight);
            if server.forward == Forward::Tunnel {
                append_tunnel(text, server);
            }
            text.push('\n');
        }
    }
}

fn append_tunnel(text: &mut String, server: &Server) {
    let tunnel = server.tunnel;
    let _ = write!(text, " --tun-type {}", tunnel.kind.as_str());
    if tunnel.kind == TunnelKind::Gue {
        let _ = write!(text, " --tun-port {}", tunnel.port);
    }
    if tunnel.kind != TunnelKind::Ipip {
        let checksums = ["--tun-nocsum", "--tun-csum", "--tun-remcsum"];
        let option = checksums.get(usize::from(tunnel.checksum));
        let _ = write!(text, " {}", option.unwrap_or(&checksums[0]));
    }
}
