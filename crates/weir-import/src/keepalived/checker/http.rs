//! `HTTP_GET` and `SSL_GET`: a check for each of their URLs.

use super::super::field::{self, Of};
use super::super::setting::Settings;
use super::super::tree::Node;
use super::{Checker, unknown};
use crate::document::Entry;
use crate::note::Notes;
use crate::probe::{Probe, literal};

/// A check for each URL.
pub(super) fn checks(
    kind: &str,
    checker: &Checker<'_>,
    retries: u64,
    notes: &mut Notes,
) -> Vec<Probe> {
    let mut checker = Checker {
        rest: Vec::new(),
        settings: checker.settings.clone(),
        aim: checker.aim.clone(),
        ..*checker
    };
    let own = Own::read(&mut checker, notes);
    if own.urls.is_empty() {
        let why = "keepalived refuses a checker without `url`";
        checker.node.refuse(notes, why);
        return Vec::new();
    }
    let mut probes = Vec::new();
    for url in &own.urls {
        let mut probe = checker.probe(kind, retries, notes);
        own.version(&mut probe, notes);
        if let Some((name, place)) = &own.sni {
            probe.push(Entry::new("server_name", name.as_str(), *place));
        }
        if this_url(url, &checker.settings, &mut probe, notes) {
            probes.push(probe);
        }
    }
    if kind == "https" {
        for probe in &mut probes {
            // keepalived looks at no certificate.
            probe.push(Entry::implied("verify", false));
        }
    }
    probes
}

/// What only these checkers have.
#[derive(Default)]
struct Own<'a> {
    version: Of<String>,
    sni: Of<String>,
    urls: Vec<&'a Node>,
}

impl<'a> Own<'a> {
    fn read(checker: &mut Checker<'a>, notes: &mut Notes) -> Self {
        let mut own = Self::default();
        for node in checker.node.inner() {
            match node.keyword() {
                "nb_get_retry" => {
                    checker.settings.retry = field::number(notes, node, 0, u32::MAX.into());
                }
                "virtualhost" => checker.settings.virtualhost = field::word(notes, node, "a name"),
                "http_protocol" => own.version = field::word(notes, node, "1.0, 1.0C or 1.1"),
                "enable_sni" | "tls_compliant" | "fast_recovery" => {
                    if field::flag(notes, node).is_some() {
                        let why = match node.keyword() {
                            "fast_recovery" => "Weir probes all URLs each time",
                            "enable_sni" => "`server_name` of the check names the host to TLS",
                            _ => "Weir ends TLS as it should be",
                        };
                        notes.say(node.place, format!("not carried over: {why}"));
                    }
                }
                "sni_name" => own.sni = field::word(notes, node, "a name"),
                "url" => own.urls.push(node),
                keyword if is_common(keyword) => {}
                _ => unknown(node, checker.node.keyword(), notes),
            }
        }
        own
    }

    fn version(&self, probe: &mut Probe, notes: &mut Notes) {
        let Some((word, place)) = &self.version else {
            probe.push(Entry::implied("version", "1.0"));
            return;
        };
        match word.as_str() {
            "1.1" => {}
            "1.0" => probe.push(Entry::implied("version", "1.0")),
            "1.0C" => {
                probe.push(Entry::new("version", "1.0", *place));
                let fields = vec!["Connection: close".to_owned()];
                probe.push(Entry::new("headers", fields, *place));
            }
            _ => {
                let why = format!("not carried over: {word} is not 1.0, 1.0C or 1.1");
                notes.say(*place, why);
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

/// Whether the URL can be asked for.
fn this_url(url: &Node, settings: &Settings, probe: &mut Probe, notes: &mut Notes) -> bool {
    let mut path: Of<String> = None;
    let mut host = settings.virtualhost.clone();
    let mut codes = Entry::new("status", "200-299", url.place);
    let mut digest = None;
    let mut wanted = Wanted::default();
    for node in url.inner() {
        match node.keyword() {
            "path" => path = field::word(notes, node, "a path"),
            "virtualhost" => host = field::word(notes, node, "a name"),
            "status_code" => {
                let words: Vec<String> = status_codes(node, notes);
                if !words.is_empty() {
                    codes = Entry::new("status", words.join(","), node.place);
                }
            }
            "digest" => {
                let word = field::word(notes, node, "an MD5 of 32 digits");
                digest = word.map(|(word, place)| Entry::new("digest", word, place));
            }
            "tls_compliant" => node.refuse(notes, "Weir ends TLS as it should be"),
            _ if wanted.take(node, notes) => {}
            _ => unknown(node, "url", notes),
        }
    }
    let Some((path, place)) = path else {
        url.refuse(notes, "keepalived refuses a `url` without `path`");
        return false;
    };
    let slash = if path.starts_with('/') { "" } else { "/" };
    probe.push(Entry::new("path", format!("{slash}{path}"), place));
    if let Some((host, place)) = host {
        probe.push(Entry::new("host", host, place));
    }
    let expect: Vec<Entry> = [Some(codes), digest, wanted.entry()]
        .into_iter()
        .flatten()
        .collect();
    probe.push(Entry::new("expect", expect, url.place));
    true
}

/// What `regex` and its options want of the body.
#[derive(Default)]
struct Wanted {
    pattern: Of<String>,
    /// Letters of the options that the other library knows too.
    options: String,
    anchored: bool,
    negated: bool,
}

impl Wanted {
    fn take(&mut self, node: &Node, notes: &mut Notes) -> bool {
        match node.keyword() {
            "regex" => {
                let words = super::super::tree::shell_words(&node.rest).unwrap_or_default();
                let pattern = words.into_iter().next().filter(|it| !it.is_empty());
                if pattern.is_none() {
                    node.refuse(notes, "it holds no expression");
                }
                self.pattern = pattern.map(|pattern| (pattern, node.place));
            }
            "regex_no_match" => self.negated = true,
            "regex_options" => {
                for word in node.words.iter().skip(1) {
                    self.option(word, node, notes);
                }
            }
            "regex_min_offset" | "regex_max_offset" => {
                node.refuse(notes, "the body is searched as a whole");
            }
            "regex_stack" => node.refuse(notes, "the search needs no stack"),
            _ => return false,
        }
        true
    }

    /// An option by the name that PCRE2 has for it.
    fn option(&mut self, word: &str, node: &Node, notes: &mut Notes) {
        match word {
            "caseless" => self.options.push('i'),
            "multiline" => self.options.push('m'),
            "dotall" => self.options.push('s'),
            "extended" => self.options.push('x'),
            "ungreedy" => self.options.push('U'),
            "anchored" => self.anchored = true,
            _ => {
                let why = format!("not carried over: expressions of Weir have no option {word}");
                notes.say(node.place, why);
            }
        }
    }

    /// As `expect` says it.
    fn entry(self) -> Option<Entry> {
        let (pattern, place) = self.pattern?;
        let key = if self.negated { "without" } else { "regex" };
        if let (false, false, "", Some(text)) = (
            self.negated,
            self.anchored,
            self.options.as_str(),
            literal(&pattern),
        ) {
            return Some(Entry::new("body", text, place));
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
        Some(Entry::new(key, pattern, place))
    }
}

/// `200 204 300-399`.
fn status_codes(node: &Node, notes: &mut Notes) -> Vec<String> {
    let mut codes = Vec::new();
    for word in node.words.iter().skip(1) {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let code = |text: &str| field::within(text, 100, 599);
        match (code(first), code(last)) {
            (Some(first), Some(last)) if first <= last => codes.push(word.clone()),
            _ => notes.say(
                node.place,
                format!("not carried over: {word} is no status code"),
            ),
        }
    }
    if node.words.len() < 2 {
        field::refuse(notes, node, "a status code");
    }
    codes
}
