//! Converts `option httpchk` and similar options to health checks of a backend's servers.

use super::line::Line;
use super::section::Proxy;
use super::server::Options;
use super::{Context, parse_time};
use crate::document::{Entry, Item, Value};
use crate::note::{Notes, Position};
use crate::probe::Probe;

/// haproxy's default interval.
const DEFAULT_INTERVAL_MS: u64 = 2000;

/// The health check of a backend's servers that have the option `check`.
#[derive(Debug)]
pub(super) struct Checks {
    kind: &'static str,
    position: Position,
    /// Keys of this kind of check.
    entries: Vec<Entry>,
    timeout: Option<(u64, Position)>,
}

impl Checks {
    pub(super) fn read(context: &mut Context<'_>, proxy: &Proxy, notes: &mut Notes) -> Self {
        let checks = Self::from_options(context, proxy, notes);
        if checks.kind != "http" {
            note_ignored_rules(proxy, notes);
        }
        checks
    }

    fn from_options(context: &mut Context<'_>, proxy: &Proxy, notes: &mut Notes) -> Self {
        const KINDS: &[(&str, &str)] = &[
            ("httpchk", "http"),
            ("smtpchk", "smtp"),
            ("mysql-check", "mysql"),
            ("pgsql-check", "postgres"),
            ("redis-check", "redis"),
            ("ssl-hello-chk", "tls"),
            ("tcp-check", "tcp"),
            ("ldap-check", "tcp"),
            ("spop-check", "tcp"),
            ("external-check", "script"),
        ];
        // The last of these options replaces the others.
        let mut selected: Option<(&'static str, &Line)> = None;
        for lines in [&proxy.defaults, &proxy.lines] {
            for line in lines.iter().filter(|line| line.keyword() == "option") {
                let kind = KINDS
                    .iter()
                    .find(|(option, _)| line.word(1) == Some(*option));
                let Some((option, kind)) = kind else { continue };
                if proxy.option(option).is_none() {
                    continue;
                }
                if let Some((_, replaced)) = selected.replace((*kind, line)) {
                    notes.remark(
                        replaced.position,
                        "not imported: a later option replaces it",
                    );
                }
            }
        }
        let mut checks = Self {
            kind: selected.map_or("tcp", |(kind, _)| kind),
            position: selected.map_or(proxy.position, |(_, line)| line.position),
            entries: Vec::new(),
            timeout: read_timeout(context, proxy, notes),
        };
        let Some((kind, line)) = selected else {
            return checks;
        };
        context.mark_used(line);
        match (kind, line.word(1).unwrap_or("")) {
            ("script", _) => checks.read_external(context, proxy, line, notes),
            ("http", _) => checks.read_http(context, proxy, line, notes),
            ("smtp", _) => {
                if let Some(name) = line.word(3) {
                    checks.entries.push(Entry::new("helo", name, line.position));
                }
            }
            ("mysql" | "postgres", _) => {
                if let Some(user) = line.word(3) {
                    checks.entries.push(Entry::new("user", user, line.position));
                }
            }
            ("tcp", "tcp-check") => checks.read_exchange(context, proxy, notes),
            ("tcp", other) => notes.add(
                line.position,
                format!("Weir has no equivalent for {other}: the check only opens a connection"),
            ),
            _ => {}
        }
        checks
    }

    /// Imports `tcp-check send …` and `tcp-check expect …` as `exchange`.
    fn read_exchange(&mut self, context: &mut Context<'_>, proxy: &Proxy, notes: &mut Notes) {
        let is_rule = |line: &&Line| line.keyword() == "tcp-check";
        let has_own_rules = proxy.lines.iter().any(|line| is_rule(&line));
        let lines = if has_own_rules {
            &proxy.lines
        } else {
            &proxy.defaults
        };
        let lines: Vec<&Line> = lines.iter().filter(is_rule).collect();
        let mut steps: Vec<Item> = Vec::new();
        for (index, line) in lines.iter().enumerate() {
            let words: Vec<&str> = line.words.iter().skip(1).map(String::as_str).collect();
            let words = match words.iter().position(|word| *word == "comment") {
                Some(index) => &words[..index],
                None => &words,
            };
            let step = |key: &'static str, text: &str| {
                let keys = vec![Entry::new(key, text, line.position).essential()];
                Some(Item::new(keys, Some(line.position)))
            };
            let item = match words {
                [] | ["connect"] if index == 0 => None,
                ["connect", "port", port] if index == 0 && port.parse::<u16>().is_ok() => {
                    let port = port.parse::<u64>().unwrap_or_default();
                    self.entries.push(Entry::new("port", port, line.position));
                    None
                }
                ["send" | "send-lf", text] if !text.contains("%[") => step("send", text),
                ["expect", "string", text] => step("expect", text),
                ["expect", "rstring", text] => step("regex", text),
                _ => {
                    line.reject(notes, "a check's `exchange` has no such step");
                    continue;
                }
            };
            context.mark_used(line);
            steps.extend(item);
        }
        // Steps after the last expectation do not affect the result.
        let is_expectation = |key: &Entry| key.key != "send";
        let is_expecting = |item: &Item| match &item.value {
            Value::Table(keys) => keys.iter().any(is_expectation),
            _ => false,
        };
        let length = steps
            .iter()
            .rposition(is_expecting)
            .map_or(0, |index| index + 1);
        for step in steps.drain(length..) {
            if let Some(position) = step.position {
                notes.remark(
                    position,
                    "not imported: haproxy does not wait for a response to this step",
                );
            }
        }
        if !steps.is_empty() {
            self.entries.push(Entry::implied("exchange", steps));
        }
    }

    /// Imports `option external-check` with `external-check command PROGRAM` as a script that runs the program with the
    /// arguments that haproxy passes in a backend (NOT_USED for the proxy's address and port) and some of haproxy's
    /// variables.
    fn read_external(
        &mut self,
        context: &mut Context<'_>,
        proxy: &Proxy,
        line: &Line,
        notes: &mut Notes,
    ) {
        const SCRIPT: &str = "PATH=\"$1\" HAPROXY_SERVER_ADDR=\"$WEIR_ADDRESS\" HAPROXY_SERVER_PORT=\"$WEIR_PORT\" \
                              exec \"$0\" NOT_USED NOT_USED \"$WEIR_ADDRESS\" \"$WEIR_PORT\"";
        const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let Some(program) = proxy.last(&["external-check", "command"]) else {
            self.kind = "tcp";
            return line.reject(notes, "haproxy rejects it without `external-check command`");
        };
        context.mark_used(program);
        let path = proxy.last(&["external-check", "path"]);
        if let Some(path) = path {
            context.mark_used(path);
        }
        let words = ["/bin/sh", "-c", SCRIPT].map(|word| Item::new(word, None));
        let mut command = words.to_vec();
        let position = Some(program.position);
        command.push(Item::new(program.word(2).unwrap_or_default(), position));
        let path = path.and_then(|path| Some((path.word(2)?, path.position)));
        command.push(match path {
            Some((path, position)) => Item::new(path, Some(position)),
            None => Item::new(PATH, None),
        });
        let entry = Entry::new("command", command, line.position).essential();
        self.entries.push(entry);
        let user = context.user.clone();
        let user = user.unwrap_or_else(|| ("root".to_owned(), line.position));
        self.entries.push(Entry::new("user", user.0, user.1));
        notes.remark(
            line.position,
            "the program's first two arguments are NOT_USED, as in a backend; of haproxy's variables, it gets only \
             HAPROXY_SERVER_ADDR, HAPROXY_SERVER_PORT and PATH",
        );
    }

    fn read_http(
        &mut self,
        context: &mut Context<'_>,
        proxy: &Proxy,
        line: &Line,
        notes: &mut Notes,
    ) {
        let (mut method, mut path, mut version) =
            ("OPTIONS".to_owned(), "/".to_owned(), "1.0".to_owned());
        match &line.words[2..] {
            [] => {}
            [uri] => path.clone_from(uri),
            [verb, uri] => (method, path) = (verb.clone(), uri.clone()),
            [verb, uri, first_word, other_words @ ..] => {
                (method, path) = (verb.clone(), uri.clone());
                // Header fields follow the version, separated by CRLF, which may be escaped.
                let text = [std::slice::from_ref(first_word), other_words]
                    .concat()
                    .join(" ");
                let mut lines = text.split("\r\n").flat_map(|line| line.split("\\r\\n"));
                if let Some(first) = lines.next() {
                    version = first.trim_start_matches("HTTP/").to_owned();
                }
                self.add_fields(lines.map(str::to_owned).collect(), line.position);
            }
        }
        let mut position = line.position;
        let mut expect = Vec::new();
        let lines = if proxy
            .lines
            .iter()
            .any(|line| line.keyword() == "http-check")
        {
            &proxy.lines
        } else {
            &proxy.defaults
        };
        let rules = lines.iter().filter(|line| line.keyword() == "http-check");
        for (index, line) in rules.enumerate() {
            match line.word(1) {
                Some("send") => {
                    context.mark_used(line);
                    position = line.position;
                    self.read_send(line, (&mut method, &mut path, &mut version), notes);
                }
                Some("expect") => {
                    if let Some(entry) = parse_expect(line, notes) {
                        context.mark_used(line);
                        expect = vec![entry];
                    }
                }
                Some("comment") => context.mark_used(line),
                Some("connect") if index == 0 && is_plain_connect(line) => {
                    context.mark_used(line);
                    let mut words = line.words.iter().skip_while(|word| *word != "port");
                    if let Some(port) = words.nth(1).and_then(|port| port.parse::<u64>().ok()) {
                        self.entries.push(Entry::new("port", port, line.position));
                    }
                }
                Some("disable-on-404" | "send-state") => {
                    line.reject(notes, "a Weir check only reports up or down")
                }
                Some("connect") if index > 0 => {
                    line.reject(notes, "a Weir check sends only one request");
                }
                _ => line.reject(notes, "a Weir check has no equivalent"),
            }
        }
        self.entries.push(Entry::new("method", method, position));
        self.entries.push(Entry::new("path", path, position));
        if version == "1.0" {
            self.entries.push(Entry::new("version", "1.0", position));
        }
        if !expect.is_empty() {
            self.entries.push(Entry::implied("expect", expect));
        }
    }

    /// Imports `http-check send meth GET uri /x ver HTTP/1.1 hdr Host x body y`.
    fn read_send(
        &mut self,
        line: &Line,
        request: (&mut String, &mut String, &mut String),
        notes: &mut Notes,
    ) {
        let (method, path, version) = request;
        let mut words = line.words.iter().skip(2);
        while let Some(word) = words.next() {
            let mut value = || words.next().cloned().unwrap_or_default();
            match word.as_str() {
                "meth" => *method = value(),
                "uri" => *path = value(),
                "ver" => value().trim_start_matches("HTTP/").clone_into(version),
                "hdr" => {
                    let (name, value) = (value(), value());
                    self.add_fields(vec![format!("{name}: {value}")], line.position);
                }
                "body" => {
                    let body = value();
                    self.entries.push(Entry::new("body", body, line.position));
                }
                other => notes.add(
                    line.position,
                    format!("{other} is not imported: a check has no such key"),
                ),
            }
        }
    }

    /// Adds header fields of the request; `Host` has a separate key.
    fn add_fields(&mut self, fields: Vec<String>, position: Position) {
        let mut other_fields = Vec::new();
        for field in fields {
            match field.split_once(':') {
                Some((name, value)) if name.trim().eq_ignore_ascii_case("host") => {
                    self.entries
                        .push(Entry::new("host", value.trim(), position));
                }
                Some(_) => other_fields.push(field),
                None => {}
            }
        }
        if other_fields.is_empty() {
            return;
        }
        if let Some(headers) = self.entries.iter_mut().find(|entry| entry.key == "headers")
            && let crate::document::Value::List(items) = &mut headers.item.value
        {
            items.extend(
                other_fields
                    .into_iter()
                    .map(|text| crate::document::Item::new(text, Some(position))),
            );
            return;
        }
        self.entries
            .push(Entry::new("headers", other_fields, position));
    }

    /// Returns the checks for one server.
    pub(super) fn for_server(
        &self,
        context: &Context<'_>,
        options: &Options,
        proxy: &Proxy,
        line: &Line,
        notes: &mut Notes,
    ) -> Vec<Probe> {
        let mut probes = Vec::new();
        if options.check.is_some() {
            // haproxy uses TLS for a different port or address only if `check-ssl` is set.
            let has_own_address = options.port.is_some() || options.address.is_some();
            let tls = options
                .check_tls
                .or(options.ssl.filter(|_| !has_own_address));
            let kind = match (self.kind, tls) {
                ("http", Some(_)) => "https",
                ("tcp", Some(_)) => "tls",
                (kind, _) => kind,
            };
            let mut probe = Probe::new(kind, self.position);
            self.push_common_keys(&mut probe, options, notes);
            probe.entries.extend(self.entries.iter().cloned());
            if tls.is_some() {
                let shared_keys = ["verify", "ca", "server_name"];
                let keys = options
                    .tls
                    .iter()
                    .filter(|entry| shared_keys.contains(&entry.key));
                probe.entries.extend(keys.cloned());
                if let Some((name, position)) = &options.check_name {
                    probe.entries.retain(|entry| entry.key != "server_name");
                    probe.push(Entry::new("server_name", name.as_str(), *position));
                }
            }
            if let Some((port, position)) = options.port {
                probe.entries.retain(|entry| entry.key != "port");
                probe.push(Entry::new("port", port, position));
            }
            if let Some((address, position)) = &options.address {
                match address
                    .parse::<std::net::IpAddr>()
                    .ok()
                    .or_else(|| context.environment.address(address, false))
                {
                    Some(address) => {
                        probe.push(Entry::new("address", address.to_string(), *position))
                    }
                    None => notes.add(
                        *position,
                        format!("addr {address} is not imported: it cannot be resolved"),
                    ),
                }
            }
            if let Some(position) = options.check_proxy {
                probe.push(Entry::new("proxy_protocol", "v1", position));
            } else if let Some((version, position)) =
                options.send_proxy.filter(|_| options.port.is_none())
            {
                probe.push(Entry::new("proxy_protocol", version, position));
            }
            probes.push(probe);
        }
        probes.extend(self.agent_check(options, line, notes));
        if probes.is_empty() && proxy.option("httpchk").is_some() {
            notes.remark(
                line.position,
                "without `check`, neither haproxy nor Weir checks this server",
            );
        }
        probes
    }

    /// Returns the check for `agent-check`.
    fn agent_check(&self, options: &Options, line: &Line, notes: &mut Notes) -> Option<Probe> {
        let position = options.agent?;
        let Some((port, port_position)) = options.agent_port else {
            line.reject(notes, "haproxy rejects agent-check without agent-port");
            return None;
        };
        let mut probe = Probe::new("agent", position);
        let mut agent_options = options.clone();
        agent_options.interval = options.agent_interval.or(options.interval);
        self.push_common_keys(&mut probe, &agent_options, notes);
        probe.push(Entry::new("port", port, port_position));
        if let Some((send, position)) = &options.agent_send {
            probe.push(Entry::new("send", send.as_str(), *position));
        }
        Some(probe)
    }

    /// Adds the keys that checks of all kinds support.
    fn push_common_keys(&self, probe: &mut Probe, options: &Options, notes: &mut Notes) {
        let (interval, position) = options
            .interval
            .unwrap_or((DEFAULT_INTERVAL_MS, self.position));
        probe.set_time("interval", interval, position, notes);
        if let Some((down, position)) = options.down_interval {
            probe.set_time("interval_down", down, position, notes);
        }
        if let Some((fast, position)) = options.fast_interval {
            probe.set_time("interval_falling", fast, position, notes);
            probe.set_time("interval_rising", fast, position, notes);
        }
        let (timeout, position) = self.timeout.unwrap_or((interval, position));
        probe.set_time("timeout", timeout, position, notes);
        let (rise, position) = options.rise.unwrap_or((2, self.position));
        probe.set_count("rise", rise, position, notes);
        let (fall, position) = options.fall.unwrap_or((3, self.position));
        probe.set_count("fall", fall, position, notes);
        probe.push(match options.initial_state {
            Some((state, position)) => Entry::new("start", state, position),
            None => Entry::implied("start", "up"),
        });
        if let Some(position) = options.shutdown {
            probe.push(Entry::new("on_failure", "remove", position));
        }
    }
}

/// Returns whether `http-check connect` sets nothing but a port.
fn is_plain_connect(line: &Line) -> bool {
    let words: Vec<&str> = line.words.iter().skip(2).map(String::as_str).collect();
    let words = match words.iter().position(|word| *word == "comment") {
        Some(index) => &words[..index],
        None => &words,
    };
    match words {
        [] | ["default"] => true,
        ["port", port] => port.parse::<u16>().is_ok(),
        _ => false,
    }
}

/// Returns the words of `expect` without options that have no equivalent in Weir.
fn pattern_words(words: &[String]) -> Vec<&str> {
    const OPTIONS_WITH_VALUE: [&str; 7] = [
        "comment",
        "ok-status",
        "error-status",
        "tout-status",
        "on-success",
        "on-error",
        "min-recv",
    ];
    let mut remaining = Vec::new();
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match OPTIONS_WITH_VALUE.contains(&word) {
            // Skip the value of the option.
            true => drop(words.next()),
            false => {
                remaining.push(word);
                // The other words are the pattern.
                if !matches!(word, "!") {
                    remaining.extend(words.by_ref());
                }
            }
        }
    }
    remaining
}

/// Returns the statuses that a regular expression matches (or does not match, if `negated`) as ranges. Returns `None`
/// if the regular expression is invalid or no status remains.
fn matching_statuses(pattern: &str, negated: bool) -> Option<String> {
    let regex = regex::Regex::new(pattern).ok()?;
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for code in 100..600 {
        if regex.is_match(&code.to_string()) == negated {
            continue;
        }
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == code => *last = code,
            _ => ranges.push((code, code)),
        }
    }
    let texts = ranges.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    let texts: Vec<String> = texts.collect();
    (!texts.is_empty()).then(|| texts.join(","))
}

/// Returns the regular expression for a list of statuses such as `200,301-302`, or `None` if the list is invalid.
fn statuses_to_regex(codes: &str) -> Option<String> {
    let mut statuses = Vec::new();
    for part in codes.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
        if !(100..600).contains(&first) || !(100..600).contains(&last) {
            return None;
        }
        statuses.extend((first..=last).map(|code| code.to_string()));
    }
    Some(format!("^({})$", statuses.join("|")))
}

/// Returns `timeout check` in milliseconds.
fn read_timeout(
    context: &mut Context<'_>,
    proxy: &Proxy,
    notes: &mut Notes,
) -> Option<(u64, Position)> {
    let line = proxy.last(&["timeout", "check"])?;
    context.mark_used(line);
    let millis = line.word(2).and_then(parse_time);
    if millis.is_none() {
        line.reject(notes, "haproxy requires a time");
    }
    millis.map(|time| (time, line.position))
}

/// Adds remarks about `http-check` rules in a section whose checks do not use HTTP.
fn note_ignored_rules(proxy: &Proxy, notes: &mut Notes) {
    let rules = proxy.lines.iter();
    for rule in rules.filter(|line| line.keyword() == "http-check") {
        let reason =
            "not imported: haproxy ignores it, because the checks of the section do not use HTTP";
        notes.remark(rule.position, reason);
    }
}

/// Converts `http-check expect status 200` to a key of `expect`; adds a note and returns `None` if Weir does not
/// support it.
fn parse_expect(line: &Line, notes: &mut Notes) -> Option<Entry> {
    let words = pattern_words(line.words.get(2..).unwrap_or_default());
    match words.as_slice() {
        ["status", codes] => Some(Entry::new("status", *codes, line.position)),
        ["string", text] => Some(Entry::new("body", *text, line.position)),
        ["rstring", pattern] => match crate::probe::literal(pattern) {
            Some(text) => Some(Entry::new("body", text, line.position)),
            None => Some(Entry::new("regex", *pattern, line.position)),
        },
        ["!", "rstring", pattern] => Some(Entry::new("without", *pattern, line.position)),
        ["!", "string", text] => {
            let pattern = crate::probe::escape_regex(text);
            Some(Entry::new("without", pattern, line.position))
        }
        ["rstatus", pattern] => match matching_statuses(pattern, false) {
            Some(ranges) => Some(Entry::new("status", ranges, line.position)),
            None => {
                line.reject(
                    notes,
                    "the regular expression is invalid, or no status matches it",
                );
                None
            }
        },
        ["!", kind @ ("rstatus" | "status"), pattern] => {
            let pattern = match *kind {
                "status" => statuses_to_regex(pattern),
                _ => Some((*pattern).to_owned()),
            };
            match pattern.and_then(|pattern| matching_statuses(&pattern, true)) {
                Some(ranges) => Some(Entry::new("status", ranges, line.position)),
                None => {
                    let reason = match *kind {
                        "status" => "the list is invalid, or every status is in it",
                        _ => "the regular expression is invalid, or every status matches it",
                    };
                    line.reject(notes, reason);
                    None
                }
            }
        }
        _ => {
            line.reject(
                notes,
                "a check's `expect` matches only the status or the body of a response",
            );
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expect_rules_are_converted_or_reported() {
        for (rule, expected) in [
            ("status 200,204", Some(("status", "200,204"))),
            ("string up", Some(("body", "up"))),
            ("rstring up", Some(("body", "up"))),
            ("rstring ^up", Some(("regex", "^up"))),
            ("! string a.b", Some(("without", "a\\.b"))),
            ("! rstring ^a", Some(("without", "^a"))),
            ("rstatus ^2", Some(("status", "200-299"))),
            ("! status 100-499,501-599", Some(("status", "500"))),
            ("! rstatus ^[1-4]", Some(("status", "500-599"))),
            ("! status 100-599", None),
            ("! status 99", None),
            ("! status 200-600", None),
            ("! status x", None),
            ("rstatus ^6", None),
        ] {
            let text = format!("http-check expect {rule}");
            let mut notes = Notes::default();
            notes.add_file("haproxy.cfg", &text);
            let line = Line {
                position: Position::FIRST,
                words: text.split(' ').map(str::to_owned).collect(),
                uses_capture: false,
                follows_source_change: false,
            };
            let entry = parse_expect(&line, &mut notes);
            let expected = expected.map(|(key, value)| Entry::new(key, value, line.position));
            assert_eq!(entry, expected, "{rule}");
            assert_eq!(notes.finish().is_empty(), expected.is_some(), "{rule}");
        }
    }
}
