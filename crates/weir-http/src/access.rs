//! Formats access log lines.

use std::io::Write as _;
use std::net::SocketAddr;

use time::UtcDateTime;
use weir_model::LogFormat;

use crate::decimal::{write_address, write_digits, write_number};
use crate::route::glob;

/// Data about a finished exchange. Values from the client are not escaped here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<'a> {
    /// End of the exchange, in milliseconds since 1970.
    pub time_ms: u64,
    /// The client's address.
    pub client: SocketAddr,
    /// The service.
    pub service: &'a str,
    /// The pool; empty if Weir generated the response.
    pub pool: &'a str,
    /// The server; empty if none was selected.
    pub server: &'a str,
    /// The method; empty for a TCP service or an invalid request.
    pub method: &'a [u8],
    /// The target as sent.
    pub target: &'a [u8],
    /// The version, such as `HTTP/1.1`; empty if `method` is empty.
    pub version: &'a str,
    /// `Host`.
    pub host: &'a [u8],
    /// `Referer`.
    pub referer: &'a [u8],
    /// `User-Agent`.
    pub agent: &'a [u8],
    /// Status code of the response, or 0 if no response was sent.
    pub status: u16,
    /// Bytes from the client.
    pub bytes_in: u64,
    /// Bytes to the client.
    pub bytes_out: u64,
    /// Durations in microseconds: receiving the request's head, waiting in the queue, connecting, waiting for the
    /// response, and the total.
    pub durations_us: [u64; 5],
    /// Number of retries on other servers.
    pub retries: u32,
    /// Termination state: the side that ended the exchange, and its phase, as two letters (HAProxy's codes).
    pub termination: [u8; 2],
    /// Other variables that the format contains: name and value.
    pub variables: Vec<(&'a str, &'a [u8])>,
}

impl Record<'_> {
    /// Appends the line, including its newline.
    pub fn write(&self, format: &LogFormat, out: &mut Vec<u8>) {
        match format {
            LogFormat::Combined => self.write_combined(out),
            LogFormat::Json => self.write_json(out),
            LogFormat::Template(text) => self.write_template(text, out),
        }
        out.push(b'\n');
    }

    /// Appends the line for a TCP connection, in a fixed format, because the combined format does not apply to it.
    pub fn write_tcp(&self, out: &mut Vec<u8>) {
        self.write_template("{client} {port} [{date}] {service} ", out);
        write_or_dash(self.pool.as_bytes(), out);
        out.push(b'/');
        write_or_dash(self.server.as_bytes(), out);
        self.write_template(
            " {queue_ms}/{connect_ms}/{total_ms} {bytes_in}/{bytes_out} {end} \"{end_reason}\"\n",
            out,
        );
    }

    fn write_combined(&self, out: &mut Vec<u8>) {
        write_address(self.client.ip(), out);
        out.extend_from_slice(b" - - [");
        write_date(self.time_ms, out);
        out.extend_from_slice(b"] \"");
        if self.method.is_empty() {
            out.push(b'-');
        } else {
            write_escaped(self.method, out, Escape::Plain);
            out.push(b' ');
            write_escaped(self.target, out, Escape::Plain);
            out.push(b' ');
            write_escaped(self.version.as_bytes(), out, Escape::Plain);
        }
        out.extend_from_slice(b"\" ");
        write_number(u64::from(self.status), out);
        out.push(b' ');
        write_number(self.bytes_out, out);
        out.extend_from_slice(b" \"");
        write_or_dash(self.referer, out);
        out.extend_from_slice(b"\" \"");
        write_or_dash(self.agent, out);
        out.push(b'"');
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        for (index, name) in LogFormat::NAMES
            .iter()
            .filter(|name| **name != "date")
            .enumerate()
        {
            out.extend_from_slice(if index == 0 { b"{" } else { b"," });
            write_json_name(name, out);
            let text = self.text(name);
            match text {
                Some(text) => {
                    out.push(b'"');
                    write_escaped(text, out, Escape::Json);
                    out.push(b'"');
                }
                None if matches!(*name, "time" | "client") => {
                    out.push(b'"');
                    self.write_numeric(name, out);
                    out.push(b'"');
                }
                None => self.write_numeric(name, out),
            }
        }
        for (name, value) in &self.variables {
            out.push(b',');
            write_json_name(name, out);
            out.push(b'"');
            write_escaped(value, out, Escape::Json);
            out.push(b'"');
        }
        out.push(b'}');
    }

    /// Returns whether the value of a variable, or the target's `path` or `query`, matches a pattern in which `*`
    /// matches any text.
    pub fn matches(&self, name: &str, pattern: &[u8]) -> bool {
        let query = self.target.iter().position(|&byte| byte == b'?');
        let part = match name {
            "path" => Some(&self.target[..query.unwrap_or(self.target.len())]),
            "query" => Some(query.map_or(&b""[..], |offset| &self.target[offset + 1..])),
            _ => self.text(name),
        };
        match part {
            Some(text) => glob(pattern, text),
            None => {
                let mut text = Vec::new();
                self.write_numeric(name, &mut text);
                glob(pattern, &text)
            }
        }
    }

    fn write_template(&self, text: &str, out: &mut Vec<u8>) {
        let mut rest = text;
        while let Some((before, tail)) = rest.split_once('{') {
            out.extend_from_slice(before.as_bytes());
            let Some((name, after)) = tail.split_once('}') else {
                return;
            };
            match self.text(name) {
                Some(value) => write_escaped(value, out, Escape::Plain),
                None => self.write_numeric(name, out),
            }
            rest = after;
        }
        out.extend_from_slice(rest.as_bytes());
    }

    /// Returns the value of a text field, or `None` for a numeric field and an unknown name.
    fn text(&self, name: &str) -> Option<&[u8]> {
        Some(match name {
            "service" => self.service.as_bytes(),
            "pool" => self.pool.as_bytes(),
            "server" => self.server.as_bytes(),
            "method" => self.method,
            "target" => self.target,
            "version" => self.version.as_bytes(),
            "host" => self.host,
            "referer" => self.referer,
            "agent" => self.agent,
            "end" => &self.termination,
            "end_reason" => end_reason(self.termination).as_bytes(),
            _ => {
                let mut variables = self.variables.iter();
                return variables
                    .find(|(known, _)| *known == name)
                    .map(|(_, value)| *value);
            }
        })
    }

    fn write_numeric(&self, name: &str, out: &mut Vec<u8>) {
        let [request, queue, connect, response, total] = self.durations_us;
        match name {
            "request_ms" => write_ms(request, out),
            "queue_ms" => write_ms(queue, out),
            "connect_ms" => write_ms(connect, out),
            "response_ms" => write_ms(response, out),
            "total_ms" => write_ms(total, out),
            "client" => write_address(self.client.ip(), out),
            "port" => write_number(u64::from(self.client.port()), out),
            "status" => write_number(u64::from(self.status), out),
            "bytes_in" => write_number(self.bytes_in, out),
            "bytes_out" => write_number(self.bytes_out, out),
            "retries" => write_number(u64::from(self.retries), out),
            "time" => write_rfc3339(self.time_ms, out),
            "date" => write_date(self.time_ms, out),
            _ => {}
        }
    }
}

/// Appends a duration, converted from microseconds to milliseconds, with three decimals.
fn write_ms(us: u64, out: &mut Vec<u8>) {
    write_number(us / 1_000, out);
    out.push(b'.');
    write_digits::<3>(us, out);
}

/// Appends milliseconds since 1970 as a date and time in UTC, in the form of the combined format.
fn write_date(ms: u64, out: &mut Vec<u8>) {
    const MONTHS: [&[u8; 3]; 12] = [
        b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov",
        b"Dec",
    ];
    let date = utc(ms);
    write_digits::<2>(date.day().into(), out);
    out.push(b'/');
    out.extend_from_slice(MONTHS[usize::from(u8::from(date.month())) - 1]);
    out.push(b'/');
    write_year(date, out);
    out.push(b':');
    write_clock(date, out);
    out.extend_from_slice(b" +0000");
}

/// Appends milliseconds since 1970 as an RFC 3339 timestamp in UTC.
fn write_rfc3339(ms: u64, out: &mut Vec<u8>) {
    let date = utc(ms);
    write_year(date, out);
    for number in [u8::from(date.month()), date.day()] {
        out.push(b'-');
        write_digits::<2>(number.into(), out);
    }
    out.push(b'T');
    write_clock(date, out);
    out.push(b'.');
    write_digits::<3>(ms, out);
    out.push(b'Z');
}

fn write_year(date: UtcDateTime, out: &mut Vec<u8>) {
    // The year is positive: times begin in 1970.
    write_digits::<4>(u64::from(date.year().unsigned_abs()), out);
}

fn write_clock(date: UtcDateTime, out: &mut Vec<u8>) {
    let (hour, minute, second) = date.as_hms();
    write_digits::<2>(hour.into(), out);
    for number in [minute, second] {
        out.push(b':');
        write_digits::<2>(number.into(), out);
    }
}

/// Returns the description of a termination state.
const fn end_reason(termination: [u8; 2]) -> &'static str {
    match &termination {
        b"--" => "completed",
        b"CR" => "the client disconnected before the request was complete",
        b"CQ" => "the client disconnected while waiting for a server",
        b"CC" => "the client disconnected while Weir was connecting to the server",
        b"CH" => "the client disconnected before the response",
        b"CD" => "the client aborted the transfer",
        b"cR" => "the client did not send the request in time",
        b"cD" => "the client was idle for too long",
        b"SC" => "no server could be reached",
        b"SH" => "the server did not send a valid response",
        b"SD" => "the server aborted the transfer",
        b"sQ" => "no server was available in time",
        b"sC" => "the server did not accept the connection in time",
        b"sH" => "the server did not respond in time",
        b"sD" => "the server was idle for too long",
        b"LR" => "a route generated the response",
        b"PR" => "the request was rejected",
        _ => "unknown",
    }
}

/// Formats milliseconds since 1970 as an RFC 3339 timestamp in UTC.
pub fn rfc3339(ms: u64) -> String {
    let mut text = Vec::with_capacity(24);
    write_rfc3339(ms, &mut text);
    String::from_utf8(text).unwrap_or_default()
}

/// Converts milliseconds since 1970 to a date and time in UTC. Returns the last possible time for years after 9999.
fn utc(ms: u64) -> UtcDateTime {
    let seconds = i64::try_from(ms / 1_000).unwrap_or(i64::MAX);
    UtcDateTime::from_unix_timestamp(seconds).unwrap_or(UtcDateTime::MAX)
}

fn write_json_name(name: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

fn write_or_dash(text: &[u8], out: &mut Vec<u8>) {
    if text.is_empty() {
        out.push(b'-');
    } else {
        write_escaped(text, out, Escape::Plain);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Escape {
    /// Writes `\xNN`, as nginx does.
    Plain,
    Json,
}

/// Escapes text so that a client cannot end a line or a quoted string.
fn write_escaped(text: &[u8], out: &mut Vec<u8>, style: Escape) {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    let mut rest = text;
    loop {
        let plain = rest.iter().position(|byte| !is_plain(byte));
        let (before, after) = rest.split_at(plain.unwrap_or(rest.len()));
        out.extend_from_slice(before);
        let Some((byte, after)) = after.split_first() else {
            return;
        };
        rest = after;
        // A single non-ASCII byte is not valid UTF-8, so JSON contains the byte's Latin-1 character.
        let _ = match style {
            Escape::Json if matches!(byte, b'"' | b'\\') => out.write_all(&[b'\\', *byte]),
            Escape::Plain => write!(out, "\\x{byte:02X}"),
            Escape::Json => write!(out, "\\u{byte:04x}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record<'static> {
        Record {
            time_ms: 1_795_267_384_042,
            client: "192.0.2.1:4711".parse().unwrap(),
            service: "web",
            pool: "p",
            server: "10.0.0.5",
            method: b"GET",
            target: b"/a\"b",
            version: "HTTP/1.1",
            host: b"a.example",
            referer: b"",
            agent: b"x\\\xff\n",
            status: 200,
            bytes_in: 10,
            bytes_out: 2_000,
            durations_us: [0, 0, 120, 1_500, 12_345],
            retries: 0,
            termination: *b"--",
            variables: Vec::new(),
        }
    }

    fn format_record(format: &LogFormat) -> String {
        let mut out = Vec::new();
        record().write(format, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn combined_format_matches_apache() {
        assert_eq!(
            format_record(&LogFormat::Combined),
            "192.0.2.1 - - [21/Nov/2026:13:23:04 +0000] \"GET /a\\x22b HTTP/1.1\" 200 2000 \"-\" \"x\\x5C\\xFF\\x0A\"\n"
        );
    }

    #[test]
    fn tcp_line_has_server_durations_and_end() {
        let format_tcp_line = |record: Record<'_>| {
            let mut out = Vec::new();
            record.write_tcp(&mut out);
            String::from_utf8(out).unwrap()
        };
        let record = Record {
            termination: *b"SD",
            ..record()
        };
        assert_eq!(
            format_tcp_line(record.clone()),
            "192.0.2.1 4711 [21/Nov/2026:13:23:04 +0000] web p/10.0.0.5 0.000/0.120/12.345 10/2000 SD \
             \"the server aborted the transfer\"\n"
        );
        let record = Record {
            server: "",
            termination: *b"SC",
            ..record
        };
        assert!(
            format_tcp_line(record).contains(" web p/- "),
            "a field is never empty"
        );
    }

    #[test]
    fn json_lines_are_valid_json() {
        let value: serde_json::Value =
            serde_json::from_str(&format_record(&LogFormat::Json)).unwrap();
        assert!(format_record(&LogFormat::Json).contains(r#""target":"/a\"b","#));
        assert_eq!(value["time"], "2026-11-21T13:23:04.042Z");
        assert_eq!(value["target"], "/a\"b");
        assert_eq!(value["agent"], "x\\\u{ff}\n");
        assert_eq!(value["total_ms"], 12.345);
        assert_eq!(value["end"], "--");
        assert_eq!(value["end_reason"], "completed");
    }

    #[test]
    fn other_variables_are_escaped_and_appended() {
        let record = Record {
            variables: vec![("request_id", b"r-1"), ("header.x", b"a\"\nb")],
            ..record()
        };
        let mut out = Vec::new();
        record.write(&LogFormat::Json, &mut out);
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(
            (&value["request_id"], &value["header.x"]),
            (&"r-1".into(), &"a\"\nb".into())
        );
        let format = LogFormat::Template("{request_id} {header.x} {cookie.none}.".to_owned());
        let mut out = Vec::new();
        record.write(&format, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "r-1 a\\x22\\x0Ab .\n");
    }

    #[test]
    fn patterns_match_text_and_numbers() {
        let record = Record {
            target: b"/a\"b?q=1",
            ..record()
        };
        for (name, pattern, expected) in [
            ("status", "2*", true),
            ("status", "5*", false),
            ("method", "GET", true),
            ("host", "*.example", true),
            ("client", "192.0.2.*", true),
            ("target", "/b*", false),
            ("path", "/a\"b", true),
            ("path", "*?*", false),
            ("query", "q=1", true),
            ("query", "*?*", false),
        ] {
            assert_eq!(
                record.matches(name, pattern.as_bytes()),
                expected,
                "{name}={pattern}"
            );
        }
    }

    #[test]
    fn template_fields_are_replaced() {
        let format = LogFormat::Template("{client}:{port} {status} {end} {connect_ms}".to_owned());
        assert_eq!(format_record(&format), "192.0.2.1:4711 200 -- 0.120\n");
    }

    /// Computes year, month and day with Howard Hinnant's `civil_from_days`.
    fn civil_date(days_since_1970: u64) -> (i32, u8, u8) {
        let days = days_since_1970 + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let shifted = (5 * day + 2) / 153;
        let month = if shifted < 10 {
            shifted + 3
        } else {
            shifted - 9
        };
        let year = year + era * 400 + u64::from(month <= 2);
        let day = day - (153 * shifted + 2) / 5 + 1;
        let to_u8 = |number| u8::try_from(number).unwrap();
        (i32::try_from(year).unwrap(), to_u8(month), to_u8(day))
    }

    #[test]
    fn utc_dates_match_civil_from_days_for_400_years() {
        for day in 0..=146_097 {
            let ms = day * 86_400_000;
            for date in [utc(ms), utc(ms + 86_399_999)] {
                assert_eq!(
                    (date.year(), u8::from(date.month()), date.day()),
                    civil_date(day)
                );
            }
            assert_eq!(utc(ms).as_hms(), (0, 0, 0));
            assert_eq!(utc(ms + 86_399_999).as_hms(), (23, 59, 59));
        }
        assert_eq!(utc(u64::MAX).year(), 9999);
    }

    #[test]
    fn time_and_date_variables_are_in_utc() {
        let mut record = record();
        record.time_ms = 951_867_007_042;
        let mut out = Vec::new();
        record.write_template("{time} {date}", &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "2000-02-29T23:30:07.042Z 29/Feb/2000:23:30:07 +0000"
        );
    }

    #[test]
    fn termination_states_have_descriptions() {
        for (end, reason) in [
            (b"--", "completed"),
            (
                b"CR",
                "the client disconnected before the request was complete",
            ),
            (b"CQ", "the client disconnected while waiting for a server"),
            (
                b"CC",
                "the client disconnected while Weir was connecting to the server",
            ),
            (b"CH", "the client disconnected before the response"),
            (b"CD", "the client aborted the transfer"),
            (b"cR", "the client did not send the request in time"),
            (b"cD", "the client was idle for too long"),
            (b"SC", "no server could be reached"),
            (b"SH", "the server did not send a valid response"),
            (b"SD", "the server aborted the transfer"),
            (b"sQ", "no server was available in time"),
            (b"sC", "the server did not accept the connection in time"),
            (b"sH", "the server did not respond in time"),
            (b"sD", "the server was idle for too long"),
            (b"LR", "a route generated the response"),
            (b"PR", "the request was rejected"),
            (b"xx", "unknown"),
        ] {
            assert_eq!(end_reason(*end), reason);
        }
    }

    #[test]
    fn missing_request_line_is_written_as_a_dash() {
        let record = Record {
            method: b"",
            target: b"",
            version: "",
            agent: b"",
            ..record()
        };
        let mut out = Vec::new();
        record.write(&LogFormat::Combined, &mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(text.ends_with("] \"-\" 200 2000 \"-\" \"-\"\n"), "{text}");
    }

    #[test]
    fn timestamps_have_milliseconds_in_utc() {
        for (ms, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_007, "2000-02-29T00:00:00.007Z"),
            (1_735_689_599_999, "2024-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(rfc3339(ms), expected);
        }
    }

    #[test]
    fn every_field_name_has_a_value() {
        for name in LogFormat::NAMES {
            let mut out = Vec::new();
            record().write_template(&format!("[{{{name}}}]"), &mut out);
            assert!(out.len() > 2 || name == "referer", "{name}");
        }
    }
}
