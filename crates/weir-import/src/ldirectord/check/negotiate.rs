//! Converts negotiate checks: the dialogue for each service.

use std::fmt::Write as _;
use std::net::IpAddr;

use super::note_unused;
use super::radius;
use crate::document::{Entry, Item};
use crate::ldirectord::global::Globals;
use crate::ldirectord::real::RealLine;
use crate::ldirectord::service::{SERVICES, Section, Text};
use crate::note::{Notes, Position};
use crate::probe::{Probe, literal};

/// Password of an anonymous FTP login.
const FTP_PASSWORD: &str = "ldirectord@localhost";
/// User of SIP requests.
const SIP_USER: &str = "ldirectord@localhost";

/// A text and its source line.
type PositionedText<'a> = (&'a str, Position);

/// The texts that a real server's check sends and expects.
pub(super) struct Request<'a> {
    pub(super) section: &'a Section,
    /// The line of the service.
    pub(super) position: Position,
    /// The request, with a leading slash.
    pub(super) request: Text,
    pub(super) receive: Text,
}

/// Returns the check of a service. Adds a note and returns `None` if there is no check. The port of the virtual
/// service, 0 for a firewall mark, selects the default service.
pub(super) fn negotiate(
    section: &Section,
    line: &RealLine,
    globals: &Globals,
    (real, service_port): (IpAddr, u16),
    is_udp: bool,
    position: Position,
    notes: &mut Notes,
) -> Option<Probe> {
    let default_service = SERVICES
        .iter()
        .find(|(_, port)| *port == service_port && service_port != 0)
        .map_or("none", |(name, _)| *name);
    let (service, service_position) = match &section.service {
        Some((service, position)) => (service.as_str(), *position),
        None => (default_service, section.position),
    };
    let with_position = |text: &Option<String>| text.clone().map(|text| (text, position));
    let section_request = section.request.clone().map(|(request, position)| {
        let slash = if request.starts_with('/') { "" } else { "/" };
        (format!("{slash}{request}"), position)
    });
    let receive = with_position(&line.receive).or_else(|| section.receive.clone());
    let request = Request {
        section,
        position: service_position,
        request: with_position(&line.request).or(section_request),
        receive: receive.filter(|(text, _)| !text.is_empty()),
    };
    Some(match service {
        "http" | "https" => request.http(service),
        "http_proxy" => request.http_proxy(notes),
        "dns" => return request.dns(notes),
        "smtp" | "submission" => Probe::new("smtp", service_position),
        "nntp" => request.exchange_check("tcp", vec![step(None, "^2", service_position)]),
        "imap" => request.imap("tcp", notes),
        "imaps" => request.imap("tls", notes),
        "pop" => request.pop("tcp"),
        "pops" => request.pop("tls"),
        "ftp" => request.ftp(notes),
        "simpletcp" => request.simple_tcp(is_udp, notes),
        "sip" => request.sip(is_udp),
        "radius" => radius::radius_check(section, service_position, notes),
        "mysql" | "pgsql" | "oracle" => request.sql(service, is_udp, notes),
        "ldap" | "ldaps" => request.ldap(service, notes),
        "gprs" => {
            notes.remark(
                service_position,
                "Weir only opens a connection: ldirectord sends `PING`, but does not read the reply",
            );
            Probe::new("tcp", service_position)
        }
        "pingpong" | "pingpong_master" => request.ping_pong(),
        // For this service, ldirectord uses the result of the `pingpong_master` server with the same address.
        "pingpong_slave" => {
            let Some(port) = globals.masters.get(&real) else {
                notes.add(
                    service_position,
                    "not imported: no `pingpong_master` service has this server, so nothing checks it",
                );
                return None;
            };
            let mut probe = request.ping_pong();
            probe.push(Entry::new("port", u64::from(*port), service_position));
            probe
        }
        "none" => {
            notes.remark(
                service_position,
                "no check: ldirectord has none for this service",
            );
            note_unused(section, notes);
            return None;
        }
        other => request.connection_check(other, is_udp, notes),
    })
}

/// Returns a step of an exchange: a string to send, and a regular expression that the reply must match.
fn step(send: Option<(String, Position)>, regex: &str, default_position: Position) -> Item {
    let position = send
        .as_ref()
        .map_or(default_position, |(_, position)| *position);
    let send = send.map(|(text, position)| Entry::new("send", text, position));
    let mut entries: Vec<Entry> = send.into_iter().collect();
    entries.push(Entry::new("regex", regex, position));
    Item::new(entries, Some(position))
}

/// Returns a string in double quotes, as IMAP requires (RFC 9051 section 9).
fn quoted_string(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns the address that a regular expression matches. Unescaped dots are treated as literal dots.
fn expected_address(pattern: &str) -> Option<IpAddr> {
    let text = pattern.strip_prefix('^').unwrap_or(pattern);
    let text = text.strip_suffix('$').unwrap_or(text);
    let parsed = text.parse().ok();
    parsed.or_else(|| literal(text)?.parse().ok())
}

/// Returns a UDP check: the datagram to send, and the bytes that the reply must begin with.
pub(super) fn datagram_check(
    (payload, payload_position): (&[u8], Position),
    reply: &[u8],
    position: Position,
) -> Probe {
    let mut probe = Probe::new("udp", position);
    probe.push(Entry::new("payload", hex(payload), payload_position).essential());
    if !reply.is_empty() {
        let bytes = Entry::new("bytes", hex(reply), position);
        probe.push(Entry::new("expect", vec![bytes], position));
    }
    probe
}

impl Request<'_> {
    /// Returns a check with an exchange over TCP or TLS.
    fn exchange_check(&self, kind: &str, steps: Vec<Item>) -> Probe {
        let mut probe = Probe::new(kind, self.position);
        probe.push(Entry::new("exchange", steps, self.position));
        if kind == "tls" {
            // ldirectord does not verify certificates.
            probe.push(Entry::implied("verify", false));
        }
        probe
    }

    /// Returns the check for the `pingpong` services of a fork of ldirectord.
    fn ping_pong(&self) -> Probe {
        let send = ("PING\r\n".to_owned(), self.position);
        self.exchange_check("tcp", vec![step(Some(send), "(?i)pong", self.position)])
    }

    /// Returns the user and the password, if there is a user; the password may be empty.
    fn credentials(&self) -> Option<(PositionedText<'_>, PositionedText<'_>)> {
        let (user, user_position) = self.section.login.as_ref()?;
        let password = self.section.passwd.as_ref();
        let password = password.map_or(("", *user_position), |(text, position)| {
            (text.as_str(), *position)
        });
        Some(((user.as_str(), *user_position), password))
    }

    /// Returns the condition that the reply matches `receive`, with the key `text` or `regex`.
    fn condition(&self, text: &'static str, regex: &'static str) -> Option<Entry> {
        let (pattern, position) = self.receive.as_ref()?;
        Some(match literal(pattern) {
            Some(plain) => Entry::new(text, plain, *position),
            None => Entry::new(regex, pattern.as_str(), *position),
        })
    }

    fn http(&self, kind: &str) -> Probe {
        let section = self.section;
        let mut probe = Probe::new(kind, self.position);
        if let Some((path, position)) = &self.request {
            probe.push(Entry::new("path", path.as_str(), *position));
        }
        if let Some((method, position)) = &section.method {
            probe.push(Entry::new("method", method.as_str(), *position));
        }
        if let Some((host, position)) = section.host.as_ref().filter(|(host, _)| !host.is_empty()) {
            probe.push(Entry::new("host", host.as_str(), *position));
        }
        let mut expect = vec![Entry::implied("status", "200-299")];
        expect.extend(self.condition("body", "regex"));
        probe.push(Entry::new("expect", expect, self.position));
        if kind == "https" {
            // ldirectord does not verify certificates.
            probe.push(Entry::implied("verify", false));
        }
        probe
    }

    /// Returns a check with a request for an absolute URL, like a client's request to a proxy.
    fn http_proxy(&self, notes: &mut Notes) -> Probe {
        let (url, position) = match &self.request {
            Some((url, position)) => (url.trim_start_matches('/'), *position),
            None => ("", self.position),
        };
        let host = url.strip_prefix("http://").map(|rest| {
            let end = rest.find('/').unwrap_or(rest.len());
            &rest[..end]
        });
        let Some(host) = host.filter(|host| !host.is_empty()) else {
            let reason =
                "`request` for an http_proxy service must be a URL; a tcp check is used instead";
            notes.add(position, reason);
            return Probe::new("tcp", self.position);
        };
        let method = self.section.method.as_ref();
        if let Some((_, position)) = method {
            notes.mark_covered(*position);
        }
        let method = method.map_or("GET", |(method, _)| method.as_str());
        let text = format!("{method} {url} HTTP/1.0\r\nHost: {host}\r\n\r\n");
        let mut steps = vec![Entry::new("send", text, position)];
        steps.push(Entry::new("regex", "^HTTP/1\\.[01] 2[0-9][0-9] ", position));
        let mut steps = vec![Item::new(steps, Some(position))];
        if let Some(condition) = self.condition("expect", "regex") {
            let position = condition.item.position;
            steps.push(Item::new(vec![condition], position));
        }
        self.exchange_check("tcp", steps)
    }

    fn imap(&self, kind: &str, notes: &mut Notes) -> Probe {
        let mut steps = vec![step(None, "(?m)^\\* (OK|PREAUTH)", self.position)];
        if let Some(((user, user_position), (password, password_position))) = self.credentials() {
            notes.mark_covered(password_position);
            let (user, password) = (quoted_string(user), quoted_string(password));
            let login = format!("a1 LOGIN {user} {password}\r\n");
            steps.push(step(
                Some((login, user_position)),
                "(?m)^a1 OK",
                user_position,
            ));
        }
        self.exchange_check(kind, steps)
    }

    fn pop(&self, kind: &str) -> Probe {
        let mut steps = vec![step(None, "^\\+OK", self.position)];
        if let Some(((user, user_position), (password, password_position))) = self.credentials() {
            let user = format!("USER {user}\r\n");
            steps.push(step(Some((user, user_position)), "^\\+OK", user_position));
            let password = format!("PASS {password}\r\n");
            steps.push(step(
                Some((password, password_position)),
                "^\\+OK",
                user_position,
            ));
        }
        self.exchange_check(kind, steps)
    }

    fn ftp(&self, notes: &mut Notes) -> Probe {
        let check_position = self.position;
        let (user, password) = self
            .credentials()
            .unwrap_or((("anonymous", check_position), ("", check_position)));
        let password = match password {
            ("", position) => (FTP_PASSWORD, position),
            password => password,
        };
        let arguments = ((user.0, Some(user.1)), (password.0, Some(password.1)));
        if let Some(probe) = self.ftp_file_check(arguments.0, arguments.1, notes) {
            return probe;
        }
        let user = (format!("USER {}\r\n", user.0), user.1);
        let password = (format!("PASS {}\r\n", password.0), password.1);
        let steps = vec![
            step(None, "(?m)^220 ", check_position),
            step(Some(user), "(?m)^(230|331) ", check_position),
            step(Some(password), "(?m)^(202|230) ", check_position),
        ];
        if let Some((_, position)) = &self.receive {
            let reason = "not imported: the check only logs in, and does not transfer a file";
            notes.add(*position, reason);
            if let Some((_, position)) = &self.request {
                notes.add(*position, reason);
            }
        }
        self.exchange_check("tcp", steps)
    }

    fn simple_tcp(&self, is_udp: bool, notes: &mut Notes) -> Probe {
        let (text, position) = match &self.request {
            Some((text, position)) => (text[1..].replace("\\n", "\n"), *position),
            None => (String::new(), self.position),
        };
        if is_udp {
            if let Some((_, position)) = &self.receive {
                notes.add(
                    *position,
                    "not imported: a udp check compares only the beginning of a reply",
                );
            }
            let payload = if text.is_empty() { "\n" } else { &text };
            return datagram_check((payload.as_bytes(), position), &[], self.position);
        }
        let send = (!text.is_empty()).then(|| Entry::new("send", text, position));
        let mut step: Vec<Entry> = send.into_iter().collect();
        let condition = self.condition("expect", "regex");
        step.push(condition.unwrap_or_else(|| Entry::implied("regex", "(?s).")));
        self.exchange_check("tcp", vec![Item::new(step, Some(position))])
    }

    /// Returns a check with an OPTIONS request (RFC 3261 section 11). With `rport`, the server replies to the source
    /// port of the request.
    fn sip(&self, is_udp: bool) -> Probe {
        let (user, position) = match &self.section.login {
            Some((user, position)) => (user.as_str(), *position),
            None => (SIP_USER, self.position),
        };
        let transport = if is_udp { "UDP" } else { "TCP" };
        let request = format!(
            "OPTIONS sip:{user} SIP/2.0\r\nVia: SIP/2.0/{transport} weir.invalid;rport;branch=z9hG4bKhjhs8ass877\r\n\
             Max-Forwards: 70\r\nTo: <sip:{user}>\r\nFrom: <sip:{user}>;tag=1928301774\r\n\
             Call-ID: 5a7d3f0b92c14e68\r\nCSeq: 63104 OPTIONS\r\nContact: <sip:{user}>\r\n\
             Accept: application/sdp\r\nContent-Length: 0\r\n\r\n"
        );
        if is_udp {
            let payload = (request.as_bytes(), position);
            return datagram_check(payload, b"SIP/2.0 200 OK", self.position);
        }
        let steps = vec![step(
            Some((request, position)),
            "^SIP/2\\.0 200 OK",
            position,
        )];
        self.exchange_check("tcp", steps)
    }

    /// Returns a check with a query; without a query, the check only logs in or opens a connection.
    fn sql(&self, service: &str, is_udp: bool, notes: &mut Notes) -> Probe {
        match (self.query(service, notes), service) {
            (Some(probe), _) => probe,
            (None, "oracle") => self.connection_check(service, is_udp, notes),
            (None, _) => self.database(service, notes),
        }
    }

    /// Returns a check that logs in without a password, and sends no query.
    fn database(&self, service: &str, notes: &mut Notes) -> Probe {
        let section = self.section;
        let kind = if service == "mysql" {
            "mysql"
        } else {
            "postgres"
        };
        for (_, position) in [&self.request, &section.passwd, &section.database]
            .into_iter()
            .flatten()
        {
            let reason =
                format!("not imported: a {kind} check sends neither a password nor a query");
            notes.add(*position, reason);
        }
        let mut probe = Probe::new(kind, self.position);
        if let Some((login, position)) = &section.login {
            probe.push(Entry::new("user", login.as_str(), *position));
        }
        probe
    }

    /// Returns a check that only opens a connection or pings, for a service that Weir cannot check.
    fn connection_check(&self, service: &str, is_udp: bool, notes: &mut Notes) -> Probe {
        let section = self.section;
        let kind = if is_udp { "ping" } else { "tcp" };
        let reason = format!("Weir has no {service} check; a {kind} check is used instead");
        notes.add(self.position, reason);
        let unused_texts = [
            &self.request,
            &self.receive,
            &section.login,
            &section.passwd,
            &section.database,
        ];
        for (_, position) in unused_texts.into_iter().flatten() {
            let reason = format!("not imported: a {kind} check does not use it");
            notes.add(*position, reason);
        }
        Probe::new(kind, self.position)
    }

    fn dns(&self, notes: &mut Notes) -> Option<Probe> {
        let check_position = self.position;
        let name = self.request.as_ref();
        let name = name.map(|(name, position)| (name.trim_start_matches('/'), *position));
        let Some((name, position)) = name.filter(|(name, _)| !name.is_empty()) else {
            notes.add(
                check_position,
                "not imported: a dns check requires `request`",
            );
            return None;
        };
        let mut probe = Probe::new("dns", check_position);
        probe.push(Entry::new("query", name, position).essential());
        match &self.receive {
            Some((pattern, position)) => match expected_address(pattern) {
                Some(answer) => {
                    let record = if answer.is_ipv6() { "AAAA" } else { "A" };
                    probe.push(Entry::new("record", record, *position));
                    probe.push(Entry::new(
                        "expect",
                        vec![Entry::new("answer", answer.to_string(), *position)],
                        *position,
                    ));
                }
                None => notes.add(
                    *position,
                    "not imported: a dns check's `expect` accepts only an address; any reply passes",
                ),
            },
            None => notes.add(
                check_position,
                "any reply passes; without `receive`, ldirectord considers every server down",
            ),
        }
        Some(probe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_backslashes_are_escaped_for_imap() {
        assert_eq!(quoted_string(r#"a"b\c"#), r#""a\"b\\c""#);
    }

    #[test]
    fn pattern_for_one_address_becomes_the_address() {
        for (pattern, expected) in [
            ("10.0.0.5", Some("10.0.0.5")),
            ("^10\\.0\\.0\\.5$", Some("10.0.0.5")),
            ("^10.0.0.5", Some("10.0.0.5")),
            ("10.0.0.5$", Some("10.0.0.5")),
            ("fd00::5", Some("fd00::5")),
            ("10.0.0.[5]", None),
            ("www", None),
            ("", None),
        ] {
            let expected = expected.map(|address| address.parse().expect("an address"));
            assert_eq!(expected_address(pattern), expected, "{pattern}");
        }
    }

    #[test]
    fn datagram_bytes_are_written_as_hexadecimal_digits() {
        assert_eq!(hex(&[0, 10, 255]), "000aff");
        let keys = |probe: Probe| probe.entries.iter().map(|it| it.key).collect::<Vec<_>>();
        let check = |reply: &[u8]| {
            keys(datagram_check(
                (b"a", Position::FIRST),
                reply,
                Position::FIRST,
            ))
        };
        assert_eq!(check(b""), ["kind", "payload"]);
        assert_eq!(check(b"b"), ["kind", "payload", "expect"]);
    }
}
