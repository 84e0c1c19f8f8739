//! Converts `HTTP_GET` and `SSL_GET` to one check per URL.

use super::super::field::{self, Located};
use super::super::setting::Settings;
use super::super::tree::Node;
use super::{Checker, note_unknown_keyword};
use crate::document::Entry;
use crate::note::Notes;
use crate::probe::{Probe, literal};

/// Returns one check per valid URL.
pub(super) fn checks(
    kind: &str,
    checker: &Checker<'_>,
    default_retries: u64,
    notes: &mut Notes,
) -> Vec<Probe> {
    let mut checker = Checker {
        specific_lines: Vec::new(),
        settings: checker.settings.clone(),
        endpoint: checker.endpoint.clone(),
        ..*checker
    };
    let http = HttpSettings::read(&mut checker, notes);
    if http.urls.is_empty() {
        let reason = "keepalived rejects a checker without `url`";
        checker.node.reject(notes, reason);
        return Vec::new();
    }
    let mut probes = Vec::new();
    for url in &http.urls {
        let mut probe = checker.probe(kind, default_retries, notes);
        http.set_version(&mut probe, notes);
        if let Some((name, position)) = &http.sni {
            probe.push(Entry::new("server_name", name.as_str(), *position));
        }
        if complete_check(url, &checker.settings, &mut probe, notes) {
            probes.push(probe);
        }
    }
    if kind == "https" {
        for probe in &mut probes {
            // keepalived does not verify certificates.
            probe.push(Entry::implied("verify", false));
        }
    }
    probes
}

/// Settings that only these checkers have.
#[derive(Default)]
struct HttpSettings<'a> {
    version: Located<String>,
    sni: Located<String>,
    urls: Vec<&'a Node>,
}

impl<'a> HttpSettings<'a> {
    fn read(checker: &mut Checker<'a>, notes: &mut Notes) -> Self {
        let mut http = Self::default();
        for node in checker.node.inner() {
            match node.keyword() {
                "nb_get_retry" => {
                    checker.settings.retry = field::parse_number(notes, node, 0, u32::MAX.into());
                }
                "virtualhost" => {
                    checker.settings.virtualhost = field::parse_word(notes, node, "a name")
                }
                "http_protocol" => {
                    http.version = field::parse_word(notes, node, "1.0, 1.0C or 1.1")
                }
                "enable_sni" | "tls_compliant" | "fast_recovery" => {
                    if field::parse_flag(notes, node).is_some() {
                        let reason = match node.keyword() {
                            "fast_recovery" => "Weir requests all URLs each time",
                            "enable_sni" => "Weir sends the host name of the request as SNI",
                            _ => "Weir always closes TLS connections properly",
                        };
                        notes.remark(node.position, reason);
                    }
                }
                "sni_name" => http.sni = field::parse_word(notes, node, "a name"),
                "url" => http.urls.push(node),
                keyword if is_common(keyword) => {}
                _ => note_unknown_keyword(node, checker.node.keyword(), notes),
            }
        }
        http
    }

    fn set_version(&self, probe: &mut Probe, notes: &mut Notes) {
        let Some((word, position)) = &self.version else {
            probe.push(Entry::implied("version", "1.0"));
            return;
        };
        match word.as_str() {
            "1.1" => {}
            "1.0" => probe.push(Entry::implied("version", "1.0")),
            "1.0C" => {
                probe.push(Entry::new("version", "1.0", *position));
                let fields = vec!["Connection: close".to_owned()];
                probe.push(Entry::new("headers", fields, *position));
            }
            _ => {
                let reason = format!("not imported: {word} is not 1.0, 1.0C or 1.1");
                notes.add(*position, reason);
                probe.push(Entry::implied("version", "1.0"));
            }
        }
    }
}

fn is_common(keyword: &str) -> bool {
    const COMMON: &[&str] = &[
        "connect_ip",
        "connect_port",
        "bindto",
        "bind_port",
        "bind_if",
        "connect_timeout",
        "fwmark",
        "retry",
        "delay_before_retry",
        "warmup",
        "delay_loop",
        "alpha",
        "log_all_failures",
    ];
    COMMON.contains(&keyword)
}

/// Adds the settings of one URL to its check. Returns whether the URL is valid.
fn complete_check(url: &Node, settings: &Settings, probe: &mut Probe, notes: &mut Notes) -> bool {
    let mut path: Located<String> = None;
    let mut host = settings.virtualhost.clone();
    let mut codes = Entry::new("status", "200-299", url.position);
    let mut digest = None;
    let mut body_match = BodyMatch::default();
    for node in url.inner() {
        match node.keyword() {
            "path" => path = field::parse_word(notes, node, "a path"),
            "virtualhost" => host = field::parse_word(notes, node, "a name"),
            "status_code" => {
                let words: Vec<String> = status_codes(node, notes);
                if !words.is_empty() {
                    codes = Entry::new("status", words.join(","), node.position);
                }
            }
            "digest" => {
                let word = field::parse_word(notes, node, "an MD5 digest of 32 digits");
                digest = word.map(|(word, position)| Entry::new("digest", word, position));
            }
            "tls_compliant" => {
                notes.remark(node.position, "Weir always closes TLS connections properly");
            }
            _ if body_match.read_line(node, notes) => {}
            _ => note_unknown_keyword(node, "url", notes),
        }
    }
    let Some((path, position)) = path else {
        url.reject(notes, "keepalived rejects a `url` without `path`");
        return false;
    };
    let slash = if path.starts_with('/') { "" } else { "/" };
    probe.push(Entry::new("path", format!("{slash}{path}"), position));
    if let Some((host, position)) = host {
        probe.push(Entry::new("host", host, position));
    }
    let expect: Vec<Entry> = [Some(codes), digest, body_match.entry()]
        .into_iter()
        .flatten()
        .collect();
    probe.push(Entry::new("expect", expect, url.position));
    true
}

/// Requirements for the response body: `regex` and its options.
#[derive(Default)]
struct BodyMatch {
    pattern: Located<String>,
    /// Letters of the options that both PCRE2 and Weir's regular expressions support.
    options: String,
    anchored: bool,
    negated: bool,
}

impl BodyMatch {
    fn read_line(&mut self, node: &Node, notes: &mut Notes) -> bool {
        match node.keyword() {
            "regex" => {
                let words = super::super::tree::shell_words(&node.arguments).unwrap_or_default();
                let pattern = words.into_iter().next().filter(|it| !it.is_empty());
                if pattern.is_none() {
                    node.reject(notes, "the regular expression is missing");
                }
                self.pattern = pattern.map(|pattern| (pattern, node.position));
            }
            "regex_no_match" => self.negated = true,
            "regex_options" => {
                for word in node.words.iter().skip(1) {
                    self.add_option(word, node, notes);
                }
            }
            "regex_min_offset" if node.word(1) == Some("0") => {
                notes.remark(node.position, "this is keepalived's default");
            }
            "regex_min_offset" | "regex_max_offset" => {
                node.reject(notes, "Weir searches the whole body");
            }
            "regex_stack" => notes.remark(node.position, "Weir's search does not use a stack"),
            _ => return false,
        }
        true
    }

    /// Adds an option by its name in PCRE2, or a note if Weir does not support it.
    fn add_option(&mut self, word: &str, node: &Node, notes: &mut Notes) {
        match word {
            "caseless" => self.options.push('i'),
            "multiline" => self.options.push('m'),
            "dotall" => self.options.push('s'),
            "extended" => self.options.push('x'),
            "ungreedy" => self.options.push('U'),
            "anchored" => self.anchored = true,
            _ => {
                let reason =
                    format!("not imported: Weir's regular expressions have no option {word}");
                notes.add(node.position, reason);
            }
        }
    }

    /// Returns the key of `expect`, or `None` if there is no `regex`.
    fn entry(self) -> Option<Entry> {
        let (pattern, position) = self.pattern?;
        let key = if self.negated { "without" } else { "regex" };
        if let (false, false, "", Some(text)) = (
            self.negated,
            self.anchored,
            self.options.as_str(),
            literal(&pattern),
        ) {
            return Some(Entry::new("body", text, position));
        }
        let options = match self.options.as_str() {
            "" => String::new(),
            letters => format!("(?{letters})"),
        };
        let pattern = if self.anchored {
            format!("{options}\\A(?:{pattern})")
        } else {
            options + &pattern
        };
        Some(Entry::new(key, pattern, position))
    }
}

/// Parses statuses such as `200 204 300-399`; invalid words get a note.
fn status_codes(node: &Node, notes: &mut Notes) -> Vec<String> {
    let mut codes = Vec::new();
    for word in node.words.iter().skip(1) {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let parse_code = |text: &str| field::parse_unsigned(text, 100, 599);
        match (parse_code(first), parse_code(last)) {
            (Some(first), Some(last)) if first <= last => codes.push(word.clone()),
            _ => notes.add(
                node.position,
                format!("not imported: {word} is not a status code or a range"),
            ),
        }
    }
    if node.words.len() < 2 {
        field::reject(notes, node, "a status code");
    }
    codes
}
