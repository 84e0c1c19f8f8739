//! Parses real servers and fallbacks: addresses, ports and flags.

use std::net::{IpAddr, Ipv4Addr};

use weir_model::Forward;

use crate::Environment;
use crate::note::Position;

/// A fallback server: `fallback=`.
#[derive(Clone, Debug)]
pub(super) struct Fallback {
    pub(super) position: Position,
    pub(super) address: IpAddr,
    /// Port; 0 means the port of the virtual service.
    pub(super) port: u16,
    pub(super) forward: Forward,
}

/// A line `real=`, with all addresses of its range.
#[derive(Clone, Debug)]
pub(super) struct RealLine {
    pub(super) addresses: Vec<IpAddr>,
    /// Port; 0 means the port of the virtual service.
    pub(super) port: u16,
    pub(super) forward: Forward,
    pub(super) weight: u64,
    pub(super) request: Option<String>,
    pub(super) receive: Option<String>,
    pub(super) min_connections: u64,
    pub(super) max_connections: u64,
}

/// Maximum number of addresses in a range `HOST->HOST`.
const MAX_RANGE: u32 = 4096;

fn parse_method(word: &str) -> Result<Forward, String> {
    match word {
        "gate" => Ok(Forward::Direct),
        "masq" => Ok(Forward::Nat),
        "ipip" => Ok(Forward::Tunnel),
        _ => Err("the method must be gate, masq or ipip".to_owned()),
    }
}

/// Parses an address, in brackets for IPv6, or resolves a host name.
pub(super) fn parse_address(
    host: &str,
    ipv6: bool,
    environment: &dyn Environment,
) -> Result<IpAddr, String> {
    let plain = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let parsed = plain.unwrap_or(host).parse::<IpAddr>().ok();
    match parsed {
        Some(address) if address.is_ipv6() == ipv6 => Ok(address),
        Some(_) => Err(format!(
            "the address family of {host} differs from the service's"
        )),
        None => environment
            .address(host, ipv6)
            .ok_or_else(|| format!("the name {host} cannot be resolved")),
    }
}

/// Parses a port number, or looks up the name of a port.
pub(super) fn parse_port(
    text: &str,
    protocol: &str,
    environment: &dyn Environment,
) -> Result<u16, String> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().map_err(|_| format!("invalid port {text}"));
    }
    environment
        .port(text, protocol)
        .ok_or_else(|| format!("{text} is not a known service name"))
}

/// Parses the port of a real server or fallback: a number, or the name of a TCP or UDP service.
fn parse_server_port(text: &str, environment: &dyn Environment) -> Result<u16, String> {
    parse_port(text, "tcp", environment).or_else(|_| parse_port(text, "udp", environment))
}

/// Parses `HOST[:PORT] [METHOD]`. The default port is `service_port`; the default method is `gate`.
pub(super) fn parse_fallback(
    value: &str,
    ipv6: bool,
    service_port: u16,
    position: Position,
    environment: &dyn Environment,
) -> Result<Fallback, String> {
    let words: Vec<&str> = value.split_whitespace().collect();
    let (host, method) = match words.as_slice() {
        [] => return Err("the fallback server is missing".to_owned()),
        [host] => (*host, None),
        [.., host, method] => (*host, Some(*method)),
    };
    let is_port = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    let (host, port_text) = match host.rsplit_once(':') {
        Some((host, port)) if is_port(port) => (host, Some(port)),
        _ => (host, None),
    };
    Ok(Fallback {
        position,
        address: parse_address(host, ipv6, environment)?,
        port: match port_text {
            Some(port_text) => parse_server_port(port_text, environment)?,
            None => service_port,
        },
        forward: method.map_or(Ok(Forward::Direct), parse_method)?,
    })
}

/// Parses `HOST[->HOST][:PORT] METHOD [WEIGHT] ["REQUEST","RECEIVE"] [l:N] [u:N]`.
pub(super) fn parse_real(
    value: &str,
    ipv6: bool,
    environment: &dyn Environment,
) -> Result<RealLine, String> {
    let invalid = || "invalid address format".to_owned();
    let (target, flags) = value.split_once([' ', '\t']).ok_or_else(invalid)?;
    let (hosts, port_text) = match target.rsplit_once(':') {
        Some((hosts, port)) if !port.ends_with(']') => (hosts, Some(port)),
        _ => (target, None),
    };
    let (first, last) = match hosts.split_once("->") {
        Some((first, last)) => (first, Some(last)),
        None => (hosts, None),
    };
    let is_valid = |host: &str| {
        let is_bracketed = host.starts_with('[') && host.ends_with(']');
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
        !host.is_empty() && (is_bracketed || host.chars().all(is_plain))
    };
    if !is_valid(first) || last.is_some_and(|last| !is_valid(last)) {
        return Err(invalid());
    }
    let first = parse_address(first, ipv6, environment)?;
    let port = port_text.map_or(Ok(0), |text| parse_server_port(text, environment))?;
    let addresses = match last {
        None => vec![first],
        Some(last) => expand_range(first, parse_address(last, ipv6, environment)?)?,
    };
    let mut real = RealLine {
        addresses,
        port,
        forward: Forward::Direct,
        weight: 1,
        request: None,
        receive: None,
        min_connections: 0,
        max_connections: 0,
    };
    read_flags(&mut real, flags)?;
    Ok(real)
}

fn expand_range(first: IpAddr, last: IpAddr) -> Result<Vec<IpAddr>, String> {
    let (IpAddr::V4(first), IpAddr::V4(last)) = (first, last) else {
        return Err("IPv6 ranges are not supported".to_owned());
    };
    let (first_bits, last_bits) = (first.to_bits(), last.to_bits());
    if first_bits > last_bits {
        return Err("the range ends before it begins".to_owned());
    }
    if last_bits - first_bits >= MAX_RANGE {
        return Err(format!("the range has more than {MAX_RANGE} addresses"));
    }
    Ok((first_bits..=last_bits)
        .map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits)))
        .collect())
}

/// Parses the method and the flags. Like ldirectord, searches for each flag after the previous one, and skips the text
/// in between.
fn read_flags(real: &mut RealLine, flags: &str) -> Result<(), String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let flags = flags.trim_start_matches(|c| !is_word(c));
    let end = flags.find(|c| !is_word(c)).unwrap_or(flags.len());
    let (method, mut rest) = flags.split_at(end);
    real.forward = parse_method(method)?;
    if let Some((weight, tail)) = find_number(rest, "") {
        (real.weight, rest) = (weight, tail);
    }
    if let Some((request, receive, tail)) = parse_dialogue(rest) {
        let slash = if request.starts_with('/') { "" } else { "/" };
        real.request = Some(format!("{slash}{request}"));
        real.receive = Some(receive.to_owned());
        rest = tail;
    }
    if let Some((min, tail)) = find_number(rest, "l:") {
        (real.min_connections, rest) = (min, tail);
    }
    if let Some((max, tail)) = find_number(rest, "u:") {
        (real.max_connections, rest) = (max, tail);
    }
    match rest.trim() {
        "" => Ok(()),
        rest => Err(format!("unexpected {rest}")),
    }
}

/// Returns the first number after a blank and `prefix`, and the text after the number.
fn find_number<'t>(text: &'t str, prefix: &str) -> Option<(u64, &'t str)> {
    let blanks = text.match_indices([' ', '\t']);
    for (offset, _) in blanks {
        let Some(number) = text[offset + 1..].strip_prefix(prefix) else {
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

/// Parses `"request","receive"`; a blank may replace the comma. Returns both strings and the text after them.
fn parse_dialogue(text: &str) -> Option<(&str, &str, &str)> {
    let (_, inner) = text.split_once('"')?;
    let (inner, rest) = inner.rsplit_once('"')?;
    let texts = inner.match_indices('"').find_map(|(offset, _)| {
        let separator_and_receive = &inner[offset + 1..];
        let receive = separator_and_receive.strip_prefix([',', ' '])?.trim_start();
        Some((&inner[..offset], receive.strip_prefix('"')?))
    });
    let (request, receive) = texts?;
    Some((request, receive, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EmptyEnvironment;

    #[test]
    fn real_line_with_every_flag_is_parsed() {
        let line = "10.0.0.1->10.0.0.2:8080 masq 5 \"index\", \"Up\" l:3 u:9";
        let line = parse_real(line, false, &EmptyEnvironment).unwrap();
        assert_eq!(line.addresses.len(), 2);
        assert_eq!(
            (
                line.port,
                line.weight,
                line.min_connections,
                line.max_connections
            ),
            (8080, 5, 3, 9)
        );
        assert_eq!(line.request.as_deref(), Some("/index"));
        assert_eq!(line.receive.as_deref(), Some("Up"));
    }

    /// An environment with the host `web-1`, and the port names `http-alt` (TCP) and `syslog` (UDP).
    struct Names;

    impl Environment for Names {
        fn read(&self, _: &str) -> Result<String, String> {
            Err(String::new())
        }

        fn glob(&self, _: &str) -> Vec<String> {
            Vec::new()
        }

        fn address(&self, host: &str, ipv6: bool) -> Option<IpAddr> {
            let address = if ipv6 { "fd00::7" } else { "10.0.0.7" };
            (host == "web-1").then(|| address.parse().expect("invalid address"))
        }

        fn port(&self, service: &str, protocol: &str) -> Option<u16> {
            match (service, protocol) {
                ("http-alt", "tcp") => Some(8008),
                ("syslog", "udp") => Some(514),
                _ => None,
            }
        }

        fn host_name(&self) -> String {
            String::new()
        }

        fn variable(&self, _: &str) -> Option<String> {
            None
        }
    }

    /// Parses a `real=` line. Returns its addresses, port, method, weight, request, expected response and limits as
    /// text, or the reason why it is invalid.
    fn describe_real(value: &str, ipv6: bool) -> String {
        match parse_real(value, ipv6, &Names) {
            Err(reason) => reason,
            Ok(line) => format!(
                "{:?} {} {} {} {:?} {:?} {} {}",
                line.addresses,
                line.port,
                line.forward.as_str(),
                line.weight,
                line.request.as_deref().unwrap_or("-"),
                line.receive.as_deref().unwrap_or("-"),
                line.min_connections,
                line.max_connections
            ),
        }
    }

    const INVALID: &str = "invalid address format";

    #[test]
    fn targets_of_real_lines_are_parsed() {
        let resolve = "cannot be resolved";
        for (target, ipv6, expected) in [
            ("10.0.0.1:80", false, "[10.0.0.1] 80"),
            ("10.0.0.1", false, "[10.0.0.1] 0"),
            ("10.0.0.1:http-alt", false, "[10.0.0.1] 8008"),
            ("10.0.0.1:syslog", false, "[10.0.0.1] 514"),
            ("10.0.0.1:nope", false, "nope is not a known service name"),
            ("10.0.0.1:65536", false, "invalid port 65536"),
            ("web-1:80", false, "[10.0.0.7] 80"),
            ("web-1:80", true, "[fd00::7] 80"),
            ("other:80", false, resolve),
            (
                "10.0.0.1->10.0.0.3:80",
                false,
                "[10.0.0.1, 10.0.0.2, 10.0.0.3] 80",
            ),
            ("10.0.0.1->10.0.0.1", false, "[10.0.0.1] 0"),
            (
                "10.0.0.2->10.0.0.1",
                false,
                "the range ends before it begins",
            ),
            (
                "10.0.0.0->10.0.16.0",
                false,
                "the range has more than 4096 addresses",
            ),
            ("10.0.0.1->", false, INVALID),
            ("->10.0.0.1", false, INVALID),
            ("10.0.0.1->10.0.0_2", false, INVALID),
            ("10.0.0_1:80", false, INVALID),
            ("", false, INVALID),
            ("[fd00::1]:80", true, "[fd00::1] 80"),
            ("[fd00::1]", true, "[fd00::1] 0"),
            ("[fd00::1", true, INVALID),
            ("[fd00::1:80", true, INVALID),
            (
                "[fd00::1]->[fd00::2]",
                true,
                "IPv6 ranges are not supported",
            ),
            (
                "[fd00::1]:80",
                false,
                "the address family of [fd00::1] differs from the service's",
            ),
            (
                "10.0.0.1",
                true,
                "the address family of 10.0.0.1 differs from the service's",
            ),
        ] {
            let shown = describe_real(&format!("{target} gate"), ipv6);
            let is_expected = shown.starts_with(expected) || shown.ends_with(expected);
            assert!(is_expected, "{target}: {shown}");
        }
        assert_eq!(describe_real("10.0.0.1:80", false), INVALID);
        let line = parse_real("10.0.0.1->10.0.16.0 gate", false, &Names)
            .expect("4096 addresses were rejected");
        assert_eq!(line.addresses.len(), 4096);
    }

    #[test]
    fn flags_of_real_lines_are_parsed() {
        let method = "the method must be gate, masq or ipip";
        for (flags, expected) in [
            ("gate", "direct 1 \"-\" \"-\" 0 0"),
            ("masq", "nat 1 \"-\" \"-\" 0 0"),
            (" \tipip", "tunnel 1 \"-\" \"-\" 0 0"),
            ("\"gate\"", "unexpected \""),
            ("dr", method),
            ("gate_x", method),
            ("", method),
            ("gate 5", "direct 5 \"-\" \"-\" 0 0"),
            ("gate\t5\t", "direct 5 \"-\" \"-\" 0 0"),
            ("gate 0", "direct 0 \"-\" \"-\" 0 0"),
            ("gate 5x", "unexpected x"),
            ("gate x 5", "direct 5 \"-\" \"-\" 0 0"),
            ("gate l:3", "direct 1 \"-\" \"-\" 3 0"),
            ("gate u:9", "direct 1 \"-\" \"-\" 0 9"),
            ("gate 2 l:3 u:9", "direct 2 \"-\" \"-\" 3 9"),
            // ldirectord skips the text before a flag.
            ("gate u:9 l:3", "direct 1 \"-\" \"-\" 3 0"),
            ("gate \"a\", \"b\"", "direct 1 \"/a\" \"b\" 0 0"),
            ("gate 2 \"/a\",\"b\" l:3", "direct 2 \"/a\" \"b\" 3 0"),
            ("gate \"a\" \"b\"", "direct 1 \"/a\" \"b\" 0 0"),
            ("gate \"a,\"x\", \"b\"", r#"direct 1 "/a,\"x" "b" 0 0"#),
            ("gate \"a\"", "unexpected \"a\""),
            ("gate \"\",\"\"", "direct 1 \"/\" \"\" 0 0"),
        ] {
            let shown = describe_real(&format!("10.0.0.1:80 {flags}"), false);
            let shown = shown.strip_prefix("[10.0.0.1] 80 ").unwrap_or(&shown);
            assert_eq!(shown, expected, "{flags}");
        }
    }

    #[test]
    fn fallbacks_are_parsed() {
        for (value, ipv6, expected) in [
            ("10.0.0.9", false, "10.0.0.9 5 direct"),
            ("10.0.0.9:80", false, "10.0.0.9 80 direct"),
            ("10.0.0.9:http-alt masq", false, "10.0.0.9 8008 nat"),
            ("10.0.0.9:80 x ipip", false, "the name x cannot be resolved"),
            ("10.0.0.9 gate", false, "10.0.0.9 5 direct"),
            (
                "10.0.0.9 dr",
                false,
                "the method must be gate, masq or ipip",
            ),
            ("10.0.0.9:nope", false, "nope is not a known service name"),
            ("10.0.0.9:syslog", false, "10.0.0.9 514 direct"),
            ("10.0.0.9:a_b", false, "a_b is not a known service name"),
            ("10.0.0.9:", false, "the name 10.0.0.9: cannot be resolved"),
            (
                "10.0.0.9:8+",
                false,
                "the name 10.0.0.9:8+ cannot be resolved",
            ),
            ("web-1:80", false, "10.0.0.7 80 direct"),
            ("[::1]:80", true, "::1 80 direct"),
            ("[::1]", true, "::1 5 direct"),
            ("", false, "the fallback server is missing"),
        ] {
            let found = parse_fallback(value, ipv6, 5, Position::FIRST, &Names);
            let shown = found.map_or_else(
                |reason| reason,
                |it| format!("{} {} {}", it.address, it.port, it.forward.as_str()),
            );
            assert_eq!(shown, expected, "{value}");
        }
    }

    #[test]
    fn invalid_real_servers_are_rejected() {
        for invalid in [
            "10.0.0.1:80",
            "10.0.0.1:80 dr",
            "10.0.0.2->10.0.0.1:80 gate",
            "[fe80::1]:80 gate",
            "nowhere.example:80 gate",
            "10.0.0.1:80 gate much",
        ] {
            assert!(
                parse_real(invalid, false, &EmptyEnvironment).is_err(),
                "{invalid}"
            );
        }
        assert!(parse_real("[fe80::1]:80 ipip 2", true, &EmptyEnvironment).is_ok());
    }
}
