//! `listen`, and which server blocks share which addresses.

use super::tree::Node;
use crate::World;
use crate::layer7::endpoint;
use crate::note::{Notes, Place};

/// One address of a server block.
#[derive(Clone, Debug)]
pub(super) struct Listen {
    pub(super) place: Place,
    pub(super) address: String,
    pub(super) tls: bool,
    pub(super) default: bool,
    pub(super) proxy_protocol: bool,
    pub(super) udp: bool,
}

/// Addresses with the server blocks that share them.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) listen: Vec<Listen>,
    /// Indices of server blocks, in file order.
    pub(super) servers: Vec<usize>,
    /// The one of them that takes what no name is for.
    pub(super) default: usize,
}

/// Every `listen` of a server block; without one nginx takes port 80.
pub(super) fn listens(
    node: &Node,
    world: &dyn World,
    plain_default: bool,
    notes: &mut Notes,
) -> Vec<Listen> {
    let mut found = Vec::new();
    let mut any = false;
    for line in node
        .inner()
        .iter()
        .filter(|line| line.keyword() == "listen")
    {
        any = true;
        match listen(line, world, notes) {
            Ok(listen) => found.push(listen),
            Err(why) => line.refuse(notes, &why),
        }
    }
    if !any && plain_default {
        notes.remark(node.place, "no listen: port 80, as nginx has it");
        found.push(Listen {
            place: node.place,
            address: "0.0.0.0:80".to_owned(),
            tls: false,
            default: false,
            proxy_protocol: false,
            udp: false,
        });
    }
    found
}

fn listen(line: &Node, world: &dyn World, notes: &mut Notes) -> Result<Listen, String> {
    let text = line.word(1).ok_or("it names no address")?;
    if text.starts_with("unix:") {
        return Err("Weir listens on no unix socket".to_owned());
    }
    let address = if text.bytes().all(|byte| byte.is_ascii_digit()) {
        format!(
            "0.0.0.0:{}",
            text.parse::<u16>()
                .map_err(|_| format!("{text} is no port"))?
        )
    } else {
        let text = match text.strip_prefix("*") {
            Some(rest) => format!("0.0.0.0{rest}"),
            None => text.to_owned(),
        };
        address(&text, world)?
    };
    let mut listen = Listen {
        place: line.place,
        address,
        tls: false,
        default: false,
        proxy_protocol: false,
        udp: false,
    };
    for word in line.words.iter().skip(2) {
        match word.as_str() {
            "ssl" => listen.tls = true,
            "default_server" | "default" => listen.default = true,
            "proxy_protocol" => listen.proxy_protocol = true,
            "udp" => listen.udp = true,
            "http2" => notes.say(line.place, "http2: Weir offers what it speaks by ALPN"),
            other => {
                let name = other.split('=').next().unwrap_or(other);
                notes.say(
                    line.place,
                    format!("{name} is not carried over: `listen` has no such word"),
                );
            }
        }
    }
    Ok(listen)
}

fn address(text: &str, world: &dyn World) -> Result<String, String> {
    if let Ok(address) = text.parse::<std::net::SocketAddr>() {
        return Ok(endpoint(address.ip(), address.port()));
    }
    super::target::resolved(world, text, 80)
}

/// Addresses that the same server blocks share, in the order of the first of each.
pub(super) fn shared(all: &[Vec<Listen>]) -> Vec<Shared> {
    let mut addresses: Vec<Shared> = Vec::new();
    for (server, listens) in all.iter().enumerate() {
        for listen in listens {
            let known = addresses
                .iter_mut()
                .find(|known| known.listen[0].address == listen.address);
            match known {
                Some(known) => {
                    if !known.servers.contains(&server) {
                        known.servers.push(server);
                    }
                    if listen.default {
                        known.default = server;
                    }
                    // One of them that says `ssl` says it for all.
                    known.listen[0].tls |= listen.tls;
                    known.listen[0].proxy_protocol |= listen.proxy_protocol;
                }
                None => addresses.push(Shared {
                    listen: vec![listen.clone()],
                    servers: vec![server],
                    default: server,
                }),
            }
        }
    }
    let mut groups: Vec<Shared> = Vec::new();
    for address in addresses {
        let same = groups.iter_mut().find(|group| {
            group.servers == address.servers
                && group.default == address.default
                && group.listen[0].tls == address.listen[0].tls
                && group.listen[0].proxy_protocol == address.listen[0].proxy_protocol
        });
        match same {
            Some(group) => group.listen.extend(address.listen),
            None => groups.push(address),
        }
    }
    groups
}
