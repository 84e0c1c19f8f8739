//! Parses addresses, ports and listeners.
//!
//! The functions return a value, or an error with a message and a fix; the caller adds the position.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use weir_model::{Family, Listener, Mark, Network, Ports, Protocol};

use crate::code::Code;

/// Why a text is not a valid address, port or listener, and how to fix the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AddressError {
    pub(crate) code: Code,
    pub(crate) message: String,
    pub(crate) fix: Option<String>,
}

impl AddressError {
    fn new(code: Code, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            fix: Some(fix.into()),
        }
    }
}

const ZONE_FIX: &str = "remove the zone; addresses that need one are not supported";

/// Parses `ADDRESS` or `ADDRESS:PORT`; IPv6 addresses with a port need brackets.
pub(crate) fn parse_server(text: &str) -> Result<(IpAddr, Option<u16>), AddressError> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return check_usable(text, address).map(|address| (address, None));
    }
    let (host, port) = split_host(text)?;
    let address = check_usable(text, parse_ip(host)?)?;
    match port {
        None => Ok((address, None)),
        Some(port) => Ok((address, Some(parse_port(port)?))),
    }
}

/// Returns the host name and the port if the text begins with a host name instead of an address.
pub(crate) fn server_name(text: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = text
        .split_once(':')
        .map_or((text, None), |(host, port)| (host, Some(port)));
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_name = text.matches(':').count() <= 1
        && host.contains(|c: char| c.is_ascii_alphabetic())
        && host.chars().all(is_plain);
    is_name.then_some((host, port.and_then(|port| port.parse().ok())))
}

/// Parses a listener of a proxy service. Its address can be unspecified. The caller checks the other restrictions.
pub(crate) fn parse_proxy_listener(text: &str) -> Result<Listener, AddressError> {
    parse_listener(text, true)
}

/// Parses `ADDRESS` or `ADDRESS/LENGTH`.
pub(crate) fn parse_network(text: &str) -> Result<Network, AddressError> {
    let (host, length) = text
        .split_once('/')
        .map_or((text, None), |(host, length)| (host, Some(length)));
    let address = parse_ip(host)?;
    let max_length = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match length {
        None => Some(max_length),
        Some(length) => length.parse().ok().filter(|prefix| *prefix <= max_length),
    };
    let prefix = prefix.ok_or_else(|| {
        AddressError::new(
            Code::BadAddress,
            format!("invalid prefix length in `{text}`"),
            format!("write \"{host}/N\" with N from 0 to {max_length}"),
        )
    })?;
    Ok(Network { address, prefix })
}

/// A listener of a layer 4 service: an address or a firewall mark.
pub(crate) enum Layer4Listener {
    Address(Listener),
    Mark(Mark),
}

/// Parses `fwmark/N`, `fwmark6/N`, or `[tcp/|udp/]ADDRESS:PORT`, where PORT may be `A-B` or `*`.
pub(crate) fn parse_layer_4_listener(text: &str) -> Result<Layer4Listener, AddressError> {
    let family = match text.split_once('/') {
        Some(("fwmark", _)) => Family::V4,
        Some(("fwmark6", _)) => Family::V6,
        _ => return parse_listener(text, false).map(Layer4Listener::Address),
    };
    let number = text.split_once('/').map_or("", |(_, number)| number);
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    match number.parse() {
        Ok(mark) if is_number => Ok(Layer4Listener::Mark(Mark { mark, family })),
        _ => Err(AddressError::new(
            Code::BadListener,
            format!("invalid firewall mark in `{text}`"),
            "write a number from 1 to 4294967295 after the slash",
        )),
    }
}

fn parse_listener(text: &str, allows_unspecified: bool) -> Result<Listener, AddressError> {
    let (protocol, rest) = split_protocol(text)?;
    if let Ok(bare) = rest.parse::<IpAddr>() {
        let example = SocketAddr::new(bare, 80);
        let fix = match address_and_port(rest) {
            Some(intended) => format!(
                "write \"{intended}\" if the last number is the port, otherwise \"{example}\""
            ),
            None => format!("write \"{example}\", or `:*` for all ports"),
        };
        return Err(missing_port(text, fix));
    }
    let (host, ports) = split_host(rest)?;
    if let ("" | "*", Some(port)) = (host, ports) {
        return Err(missing_address(text, port, allows_unspecified));
    }
    let address = parse_ip(host)?;
    let Some(ports) = ports else {
        let fix = "add `:80`, `:8000-8999`, or `:*` for all ports";
        return Err(missing_port(text, fix));
    };
    let ports = parse_ports(ports)?;
    let address = match (address.is_unspecified(), allows_unspecified) {
        (true, true) => address,
        (true, false) => {
            let message = format!(
                "`{text}` is the unspecified address, and layer 4 forwarding needs a specific one"
            );
            return Err(AddressError::new(
                Code::BadAddress,
                message,
                "list each VIP; only forward = \"proxy\" can listen on all addresses",
            ));
        }
        (false, _) => check_usable(text, address)?,
    };
    Ok(Listener {
        protocol,
        address,
        ports,
    })
}

/// Returns the address and the port that an IPv6 address without brackets may mean: `fd00::10:80` is an address, but
/// its last group can also be read as a decimal port.
pub(crate) fn address_and_port(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.rsplit_once(':')?;
    let address: Ipv6Addr = host.parse().ok()?;
    let port = parse_port(port).ok()?;
    Some(SocketAddr::new(address.into(), port))
}

fn missing_port(text: &str, fix: impl Into<String>) -> AddressError {
    AddressError::new(Code::BadListener, format!("`{text}` has no port"), fix)
}

/// Returns the error for `:80` and `*:80`, which other programs accept.
fn missing_address(text: &str, port: &str, allows_unspecified: bool) -> AddressError {
    let fix = match allows_unspecified {
        true => {
            format!("write \"0.0.0.0:{port}\" for all IPv4 addresses, \"[::]:{port}\" for IPv6")
        }
        false => {
            format!(
                "write VIP:{port} for each VIP; only forward = \"proxy\" can listen on all addresses"
            )
        }
    };
    AddressError::new(Code::BadAddress, format!("`{text}` has no address"), fix)
}

/// Splits a listener into its protocol (TCP by default) and the remaining text.
fn split_protocol(text: &str) -> Result<(Protocol, &str), AddressError> {
    let (code, message, fix) = match text.split_once('/') {
        None => return Ok((Protocol::Tcp, text)),
        Some(("tcp", rest)) => return Ok((Protocol::Tcp, rest)),
        Some(("udp", rest)) => return Ok((Protocol::Udp, rest)),
        Some(("fwmark" | "fwmark6", _)) => (
            Code::BadListener,
            format!("`{text}`: proxy services cannot listen on firewall marks"),
            "list addresses and ports, or use a layer 4 forwarding method".to_owned(),
        ),
        Some(("sctp", _)) => (
            Code::NotImplemented,
            format!("`{text}`: SCTP is not built yet"),
            "use tcp/ or udp/".to_owned(),
        ),
        Some((other, rest))
            if other.parse::<IpAddr>().is_err() && (rest.contains(':') || rest.contains('.')) =>
        {
            (
                Code::BadListener,
                format!("unknown listener protocol `{other}`"),
                format!("write \"tcp/{rest}\" or \"udp/{rest}\""),
            )
        }
        Some(_) => (
            Code::BadListener,
            format!("`{text}` is a network; a listener is a single address"),
            "write ADDRESS:PORT, without a prefix length".to_owned(),
        ),
    };
    Err(AddressError::new(code, message, fix))
}

/// Parses `A-B` or `A` and returns the first and the last port.
pub(crate) fn parse_port_range(text: &str) -> Result<(u16, u16), AddressError> {
    match parse_ports(text)? {
        Ports::Any => Err(AddressError::new(
            Code::BadPort,
            "`*` is not allowed here",
            "write \"20000-32767\"",
        )),
        ports => Ok(ports.bounds()),
    }
}

fn parse_ports(text: &str) -> Result<Ports, AddressError> {
    if text == "*" {
        return Ok(Ports::Any);
    }
    let Some((first, last)) = text.split_once('-') else {
        return parse_port(text).map(Ports::One);
    };
    let (first, last) = (parse_port(first)?, parse_port(last)?);
    match first.cmp(&last) {
        std::cmp::Ordering::Less => Ok(Ports::Range(first, last)),
        std::cmp::Ordering::Equal => Ok(Ports::One(first)),
        std::cmp::Ordering::Greater => {
            let message = format!("the range `{text}` ends before it begins");
            Err(AddressError::new(
                Code::BadPort,
                message,
                format!("write {last}-{first}"),
            ))
        }
    }
}

fn parse_port(text: &str) -> Result<u16, AddressError> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<u16>() {
        Ok(0) => Err(AddressError::new(
            Code::BadPort,
            "port 0 is not allowed",
            "ports are 1 to 65535",
        )),
        Ok(port) if is_number => Ok(port),
        _ if text.is_empty() => Err(AddressError::new(
            Code::BadPort,
            "missing port after the colon",
            "ports are 1 to 65535",
        )),
        _ if is_number => Err(AddressError::new(
            Code::BadPort,
            format!("port {text} is out of range"),
            "ports are 1 to 65535",
        )),
        _ => Err(AddressError::new(
            Code::BadPort,
            format!("`{text}` is not a port number"),
            "write a number from 1 to 65535",
        )),
    }
}

/// Splits `HOST[:PORT]`; brackets around the host are removed.
fn split_host(text: &str) -> Result<(&str, Option<&str>), AddressError> {
    if let Some(rest) = text.strip_prefix('[') {
        let Some((host, tail)) = rest.split_once(']') else {
            let message = format!("missing `]` in `{text}`");
            return Err(AddressError::new(
                Code::BadAddress,
                message,
                "write \"[2001:db8::1]:80\"",
            ));
        };
        return match tail.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if tail.is_empty() => Ok((host, None)),
            None => {
                let message = format!("unexpected `{tail}` after the bracket");
                Err(AddressError::new(
                    Code::BadAddress,
                    message,
                    format!("write \"[{host}]:80\""),
                ))
            }
        };
    }
    match text.matches(':').count() {
        0 => Ok((text, None)),
        1 => Ok(text
            .split_once(':')
            .map_or((text, None), |(host, port)| (host, Some(port)))),
        _ => {
            // If the text before the last colon is an address, only the brackets are missing.
            let fix = match text.rsplit_once(':') {
                _ if text.contains('%') => ZONE_FIX.to_owned(),
                Some((host, port)) if host.parse::<Ipv6Addr>().is_ok() => {
                    format!("write \"[{host}]:{port}\"")
                }
                _ => "an IPv6 address with a port is written \"[2001:db8::1]:80\"".to_owned(),
            };
            Err(AddressError::new(
                Code::BadAddress,
                format!("`{text}` is not an IPv6 address"),
                fix,
            ))
        }
    }
}

fn parse_ip(host: &str) -> Result<IpAddr, AddressError> {
    host.parse().map_err(|_| {
        let message = format!("`{host}` is not an IP address");
        let is_name = host.contains(|c: char| c.is_ascii_alphabetic()) && !host.contains(':');
        let fix = if host.contains('%') {
            ZONE_FIX
        } else if host.contains(':') {
            "an IPv6 address has up to eight groups of hexadecimal digits, as in 2001:db8::1"
        } else if is_name {
            "write the IP address; host names are not resolved here"
        } else {
            "an IPv4 address has four numbers from 0 to 255, as in 192.0.2.10"
        };
        AddressError::new(Code::BadAddress, message, fix)
    })
}

/// Rejects addresses that cannot belong to a single machine, IPv6 link-local addresses, which need an interface, and
/// IPv4-mapped IPv6 addresses.
fn check_usable(text: &str, address: IpAddr) -> Result<IpAddr, AddressError> {
    let reject = |description: &str, fix: String| {
        Err(AddressError::new(
            Code::BadAddress,
            format!("`{text}` is {description}"),
            fix,
        ))
    };
    let unicast_fix = || "write the address of one machine".to_owned();
    match address {
        address if address.is_unspecified() => reject("the unspecified address", unicast_fix()),
        address if address.is_multicast() => reject("a multicast address", unicast_fix()),
        IpAddr::V4(v4) if v4.is_broadcast() => reject("the broadcast address", unicast_fix()),
        IpAddr::V6(v6) if v6.is_unicast_link_local() => reject(
            "a link-local address, which requires an interface",
            "use a global or unique local address".to_owned(),
        ),
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => reject("an IPv4-mapped IPv6 address", format!("write {v4}")),
            None => Ok(address),
        },
        IpAddr::V4(_) => Ok(address),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn listener(text: &str) -> Result<Listener, AddressError> {
        match parse_layer_4_listener(text)? {
            Layer4Listener::Address(listener) => Ok(listener),
            Layer4Listener::Mark(mark) => panic!("{mark}"),
        }
    }

    #[test]
    fn server_address_parses_with_and_without_port() {
        let v6: IpAddr = "2001:db8::5".parse().unwrap();
        let v4: IpAddr = "10.0.0.5".parse().unwrap();
        assert_eq!(parse_server("10.0.0.5"), Ok((v4, None)));
        assert_eq!(parse_server("10.0.0.5:8080"), Ok((v4, Some(8080))));
        assert_eq!(parse_server("2001:db8::5"), Ok((v6, None)));
        assert_eq!(parse_server("[2001:db8::5]"), Ok((v6, None)));
        assert_eq!(parse_server("[2001:db8::5]:80"), Ok((v6, Some(80))));
    }

    #[test]
    fn missing_ipv6_brackets_are_suggested() {
        let error = listener("2001:db8:0:0:0:0:0:1:80").unwrap_err();
        assert_eq!(
            error.fix.as_deref(),
            Some("write \"[2001:db8:0:0:0:0:0:1]:80\"")
        );
    }

    #[test]
    fn one_port_range_equals_single_port() {
        assert_eq!(listener("192.0.2.1:80-80").unwrap().ports, Ports::One(80));
    }

    proptest! {
        #[test]
        fn listener_display_round_trips(v6: bool, bits: u128, udp: bool, first in 1u16.., last in 1u16..) {
            let address = if v6 { IpAddr::V6(bits.into()) } else { IpAddr::V4((bits as u32).into()) };
            prop_assume!(check_usable("", address).is_ok());
            let ports = if first < last { Ports::Range(first, last) } else { Ports::One(first) };
            let protocol = if udp { Protocol::Udp } else { Protocol::Tcp };
            let written = Listener { protocol, address, ports };
            prop_assert_eq!(listener(&written.to_string()), Ok(written));
        }

        #[test]
        fn arbitrary_text_does_not_panic(text in "\\PC{0,24}") {
            let _ = (parse_server(&text), listener(&text), parse_port_range(&text));
        }
    }
}
