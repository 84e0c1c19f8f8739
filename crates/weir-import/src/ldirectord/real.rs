//! Real servers and fallbacks: addresses, ports and flags.

use std::net::{IpAddr, Ipv4Addr};

use weir_model::Forward;

use crate::World;
use crate::note::Place;

/// `fallback=`.
#[derive(Clone, Debug)]
pub(super) struct Fallback {
    pub(super) place: Place,
    pub(super) address: IpAddr,
    /// 0 = the virtual service's.
    pub(super) port: u16,
    pub(super) forward: Forward,
}

/// `real=`, over as many addresses as its range has.
#[derive(Clone, Debug)]
pub(super) struct RealLine {
    pub(super) addresses: Vec<IpAddr>,
    pub(super) port: u16,
    pub(super) forward: Forward,
    pub(super) weight: u64,
    pub(super) request: Option<String>,
    pub(super) receive: Option<String>,
    pub(super) least: u64,
    pub(super) most: u64,
}

/// A range longer than this is a slip.
const LONGEST_RANGE: u32 = 4096;

fn forward(word: &str) -> Result<Forward, String> {
    match word {
        "gate" => Ok(Forward::Direct),
        "masq" => Ok(Forward::Nat),
        "ipip" => Ok(Forward::Tunnel),
        _ => Err("the method must be gate, masq or ipip".to_owned()),
    }
}

/// An address, in brackets if it is of IPv6, or a name.
pub(super) fn address(host: &str, ipv6: bool, world: &dyn World) -> Result<IpAddr, String> {
    let plain = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let parsed = plain.unwrap_or(host).parse::<IpAddr>().ok();
    match parsed {
        Some(address) if address.is_ipv6() == ipv6 => Ok(address),
        Some(_) => Err(format!("{host} is not of the service's family")),
        None => world
            .address(host, ipv6)
            .ok_or_else(|| format!("the name {host} cannot be resolved")),
    }
}

/// A port by number or name.
pub(super) fn port(text: &str, protocol: &str, world: &dyn World) -> Result<u16, String> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().map_err(|_| format!("{text} is no port"));
    }
    world
        .port(text, protocol)
        .ok_or_else(|| format!("{text} is the name of no port"))
}

/// `HOST[:PORT] [METHOD]`; without a port that of the service.
pub(super) fn fallback(
    value: &str,
    ipv6: bool,
    of_service: u16,
    place: Place,
    world: &dyn World,
) -> Result<Fallback, String> {
    let words: Vec<&str> = value.split_whitespace().collect();
    let (host, method) = match words.as_slice() {
        [] => return Err("it names no fallback server".to_owned()),
        [host] => (*host, None),
        [.., host, method] => (*host, Some(*method)),
    };
    let is_port = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    let (host, written) = match host.rsplit_once(':') {
        Some((host, port)) if is_port(port) => (host, Some(port)),
        _ => (host, None),
    };
    Ok(Fallback {
        place,
        address: address(host, ipv6, world)?,
        port: match written {
            Some(written) => port(written, "tcp", world)?,
            None => of_service,
        },
        forward: method.map_or(Ok(Forward::Direct), forward)?,
    })
}

/// `HOST[->HOST][:PORT] METHOD [WEIGHT] ["REQUEST","RECEIVE"] [l:N] [u:N]`.
pub(super) fn real(value: &str, ipv6: bool, world: &dyn World) -> Result<RealLine, String> {
    let wrong = || "the address is in a wrong format".to_owned();
    let (target, flags) = value.split_once([' ', '\t']).ok_or_else(wrong)?;
    let (hosts, written) = match target.rsplit_once(':') {
        Some((hosts, port)) if !port.ends_with(']') => (hosts, Some(port)),
        _ => (target, None),
    };
    let (first, last) = match hosts.split_once("->") {
        Some((first, last)) => (first, Some(last)),
        None => (hosts, None),
    };
    let valid = |host: &str| {
        let bracketed = host.starts_with('[') && host.ends_with(']');
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
        !host.is_empty() && (bracketed || host.chars().all(plain))
    };
    if !valid(first) || last.is_some_and(|last| !valid(last)) {
        return Err(wrong());
    }
    let first = address(first, ipv6, world)?;
    let port = written.map_or(Ok(0), |written| port(written, "tcp", world))?;
    let addresses = match last {
        None => vec![first],
        Some(last) => range(first, address(last, ipv6, world)?)?,
    };
    let mut real = RealLine {
        addresses,
        port,
        forward: Forward::Direct,
        weight: 1,
        request: None,
        receive: None,
        least: 0,
        most: 0,
    };
    flags_of(&mut real, flags)?;
    Ok(real)
}

fn range(first: IpAddr, last: IpAddr) -> Result<Vec<IpAddr>, String> {
    let (IpAddr::V4(first), IpAddr::V4(last)) = (first, last) else {
        return Err("ranges of IPv6 are not supported".to_owned());
    };
    let (from, to) = (first.to_bits(), last.to_bits());
    if from > to {
        return Err("the range ends before it begins".to_owned());
    }
    if to - from >= LONGEST_RANGE {
        return Err(format!("the range has more than {LONGEST_RANGE} addresses"));
    }
    Ok((from..=to)
        .map(|bits| IpAddr::V4(Ipv4Addr::from(bits)))
        .collect())
}

/// Each flag is looked for behind the one before, and what stands between is lost, as in ldirectord.
fn flags_of(real: &mut RealLine, flags: &str) -> Result<(), String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let flags = flags.trim_start_matches(|c| !is_word(c));
    let end = flags.find(|c| !is_word(c)).unwrap_or(flags.len());
    let (method, mut rest) = flags.split_at(end);
    real.forward = forward(method)?;
    if let Some((weight, left)) = behind_blank(rest, "") {
        (real.weight, rest) = (weight, left);
    }
    if let Some((request, receive, left)) = dialogue(rest) {
        let slash = if request.starts_with('/') { "" } else { "/" };
        real.request = Some(format!("{slash}{request}"));
        real.receive = Some(receive.to_owned());
        rest = left;
    }
    if let Some((least, left)) = behind_blank(rest, "l:") {
        (real.least, rest) = (least, left);
    }
    if let Some((most, left)) = behind_blank(rest, "u:") {
        (real.most, rest) = (most, left);
    }
    match rest.trim() {
        "" => Ok(()),
        rest => Err(format!("it cannot read {rest}")),
    }
}

/// The first number behind a blank and `mark`, and what follows it.
fn behind_blank<'t>(text: &'t str, mark: &str) -> Option<(u64, &'t str)> {
    let blanks = text.match_indices([' ', '\t']);
    for (at, _) in blanks {
        let Some(number) = text[at + 1..].strip_prefix(mark) else {
            continue;
        };
        let end = number
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(number.len());
        if let Ok(value) = number[..end].parse() {
            return Some((value, &number[end..]));
        }
    }
    None
}

/// `"request","receive"`, and what follows.
fn dialogue(text: &str) -> Option<(&str, &str, &str)> {
    let (_, inner) = text.split_once('"')?;
    let (inner, rest) = inner.rsplit_once('"')?;
    let split = inner.match_indices('"').find_map(|(at, _)| {
        let between = &inner[at + 1..];
        let receive = between.strip_prefix([',', ' '])?.trim_start();
        Some((&inner[..at], receive.strip_prefix('"')?))
    });
    let (request, receive) = split?;
    Some((request, receive, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Alone;

    #[test]
    fn a_line_may_have_every_flag() {
        let line = "10.0.0.1->10.0.0.2:8080 masq 5 \"index\", \"Up\" l:3 u:9";
        let read = real(line, false, &Alone).unwrap();
        assert_eq!(read.addresses.len(), 2);
        assert_eq!(
            (read.port, read.weight, read.least, read.most),
            (8080, 5, 3, 9)
        );
        assert_eq!(read.request.as_deref(), Some("/index"));
        assert_eq!(read.receive.as_deref(), Some("Up"));
    }

    #[test]
    fn what_ldirectord_refuses_is_refused() {
        for wrong in [
            "10.0.0.1:80",
            "10.0.0.1:80 dr",
            "10.0.0.2->10.0.0.1:80 gate",
            "[fe80::1]:80 gate",
            "nowhere.example:80 gate",
            "10.0.0.1:80 gate much",
        ] {
            assert!(real(wrong, false, &Alone).is_err(), "{wrong}");
        }
        assert!(real("[fe80::1]:80 ipip 2", true, &Alone).is_ok());
    }
}
