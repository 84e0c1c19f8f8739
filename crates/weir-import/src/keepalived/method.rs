//! Converts `lvs_method`, or its old name `lb_kind`.

use weir_model::{Forward, TunnelChecksum, TunnelKind};

use super::field::{self, Located};
use super::tree::Node;
use crate::layer4::{Encapsulation, Method};
use crate::note::Notes;

/// Parses `NAT`, `DR`, or `TUN` with an encapsulation.
pub(super) fn parse_method(notes: &mut Notes, node: &Node) -> Located<Method> {
    let forward = match node.word(1) {
        Some("NAT") => Forward::Nat,
        Some("DR") => Forward::Direct,
        Some("TUN") => Forward::Tunnel,
        Some(other @ ("FNAT" | "SNAT")) => {
            let reason = format!(
                "not imported: {other} is supported only by forks of keepalived; see a service's `snat`"
            );
            notes.add(node.position, reason);
            return None;
        }
        _ => {
            field::reject(notes, node, "NAT, DR or TUN");
            return None;
        }
    };
    let tunnel = match parse_encapsulation(&node.words[2..]) {
        Ok(tunnel) => tunnel,
        Err(reason) => {
            node.reject(notes, &reason);
            return None;
        }
    };
    if forward != Forward::Tunnel {
        if let Some(word) = node.word(2) {
            notes.add(
                node.position,
                format!("\"{word}\" and any following arguments are not imported: only TUN uses a tunnel"),
            );
        }
        return Some((Method::plain(forward), node.position));
    }
    Some((Method { forward, tunnel }, node.position))
}

/// Parses `type gue port 6080 csum`.
fn parse_encapsulation(words: &[String]) -> Result<Option<Encapsulation>, String> {
    if words.is_empty() {
        return Ok(None);
    }
    let mut tunnel = Encapsulation {
        kind: TunnelKind::Ipip,
        port: 0,
        checksum: TunnelChecksum::None,
    };
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "type" => {
                tunnel.kind = match words.next() {
                    Some("ipip") => TunnelKind::Ipip,
                    Some("gue") => TunnelKind::Gue,
                    Some("gre") => TunnelKind::Gre,
                    _ => return Err("keepalived supports ipip, gue and gre tunnels".to_owned()),
                }
            }
            "port" => {
                let port = words
                    .next()
                    .and_then(|word| field::parse_unsigned(word, 1, 65_535));
                let port = port.and_then(|port| u16::try_from(port).ok());
                tunnel.port = port.ok_or("invalid tunnel port")?;
            }
            "nocsum" => tunnel.checksum = TunnelChecksum::None,
            "csum" => tunnel.checksum = TunnelChecksum::Full,
            "remcsum" => tunnel.checksum = TunnelChecksum::Remote,
            other => return Err(format!("a tunnel has no option {other}")),
        }
    }
    match (tunnel.kind, tunnel.port, tunnel.checksum) {
        (TunnelKind::Gue, 0, _) => Err("a gue tunnel requires a port".to_owned()),
        (TunnelKind::Ipip | TunnelKind::Gre, 1.., _) => {
            Err("only a gue tunnel has a port".to_owned())
        }
        (TunnelKind::Ipip, _, TunnelChecksum::Full | TunnelChecksum::Remote) => {
            Err("an ipip tunnel has no checksum".to_owned())
        }
        (TunnelKind::Gre, _, TunnelChecksum::Remote) => {
            Err("a gre tunnel has no remote checksum".to_owned())
        }
        _ => Ok(Some(tunnel)),
    }
}
