//! Lowers `[announce]`.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use weir_model::{Announce, Community, RequiredServices, Speaker};

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::Kind;
use crate::view::{Sink, View, keyword, text};

/// The keys of each speaker.
const SPEAKER_KEYS: [(&str, &[&str]); 4] = [
    ("bird", &["socket", "include"]),
    ("exabgp", &["pipe"]),
    ("gobgp", &["command"]),
    ("frr", &["command", "asn", "prefix_list"]),
];

/// Maximum length of the name of a prefix list in FRR.
const MAX_PREFIX_LIST_NAME: usize = 128;

/// Lowers the table. Also returns the services that it lists, with their positions; `None` = the table contains a
/// reported error.
pub(super) fn announce(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    location: &Range<usize>,
) -> (Option<Announce>, Vec<(String, Range<usize>)>) {
    let speaker = speaker(sink, view, location);
    let services = services(sink, view);
    let withdraw_after = view.duration(sink, "withdraw_after");
    let drain_delay = view.duration(sink, "drain_delay");
    let require = view.choice(sink, "require", &RequiredServices::ALL, |it| it.as_str());
    let route_communities = communities(sink, view, "communities");
    let drain_communities = communities(sink, view, "drain_communities");
    let names =
        |all: &Vec<(String, Range<usize>)>| all.iter().map(|(name, _)| name.clone()).collect();
    let announce = speaker.map(|speaker| Announce {
        speaker,
        withdraw_after: withdraw_after.unwrap_or(Duration::from_secs(10)),
        drain_delay: drain_delay.unwrap_or(Duration::from_secs(5)),
        services: services.as_ref().map(names),
        require: require.unwrap_or_default(),
        communities: route_communities.unwrap_or_default(),
        drain_communities: drain_communities.unwrap_or_else(|| vec![Announce::GRACEFUL_SHUTDOWN]),
    });
    (announce, services.unwrap_or_default())
}

fn speaker(sink: &mut Sink<'_>, view: &View<'_, '_>, location: &Range<usize>) -> Option<Speaker> {
    let (entry, kind) = view.get("speaker")?;
    let word = keyword(sink, &entry.item, kind)?;
    let name = Speaker::NAMES.into_iter().find(|name| *name == word)?;
    reject_keys_of_other_speakers(sink, view, name);
    match name {
        "bird" => {
            let socket = path(sink, view, "socket", "/run/bird/bird.ctl");
            let include = path(sink, view, "include", "/run/bird/weir.conf");
            Some(Speaker::Bird {
                socket: socket?,
                include: include?,
            })
        }
        "exabgp" => Some(Speaker::Exabgp {
            pipe: path(sink, view, "pipe", "/run/exabgp/exabgp.in")?,
        }),
        "gobgp" => Some(Speaker::Gobgp {
            command: command(sink, view, "gobgp")?,
        }),
        _ => {
            let command = command(sink, view, "vtysh");
            let asn = asn(sink, view, location);
            let prefix_list = prefix_list(sink, view);
            Some(Speaker::Frr {
                command: command?,
                asn: asn?,
                prefix_list,
            })
        }
    }
}

fn reject_keys_of_other_speakers(sink: &mut Sink<'_>, view: &View<'_, '_>, name: &str) {
    let is_own = |key: &str| {
        let mut key_lists = SPEAKER_KEYS.iter().filter(|(speaker, _)| *speaker == name);
        key_lists.any(|(_, keys)| keys.contains(&key))
    };
    let keys = SPEAKER_KEYS.iter().flat_map(|(_, keys)| keys.iter());
    let mut seen: Vec<&str> = Vec::new();
    for key in keys.filter(|key| !is_own(key)) {
        if seen.contains(key) {
            continue;
        }
        seen.push(key);
        if let Some((entry, _)) = view.get(key) {
            let message = format!("`{key}` does not apply to speaker \"{name}\"");
            sink.push(
                Diagnostic::new(Code::Contradiction, &entry.key_span, message).fix("remove it"),
            );
        }
    }
}

fn services(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<Vec<(String, Range<usize>)>> {
    let items = view.list(sink, "services")?;
    if items.is_empty() {
        let (entry, _) = view.get("services")?;
        let message = "`services` is empty: nothing would be announced";
        sink.push(
            Diagnostic::new(Code::EmptyList, &entry.item.span, message)
                .fix("remove it to announce the VIPs of all services, or remove [announce]"),
        );
    }
    let names = items.iter();
    let names = names.filter_map(|item| text(sink, item, &Kind::ServiceName));
    Some(
        names
            .map(|(name, span)| (name.to_owned(), span.clone()))
            .collect(),
    )
}

fn communities(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    key: &'static str,
) -> Option<Vec<Community>> {
    let mut communities = Vec::new();
    for item in view.list(sink, key)? {
        let Some((value, span)) = text(sink, item, &Kind::Text) else {
            continue;
        };
        match Community::parse(value) {
            Some(community) => communities.push(community),
            None => sink.push(
                Diagnostic::new(
                    Code::BadText,
                    span,
                    format!("\"{value}\" is not a BGP community"),
                )
                .fix("write AS:VALUE, both from 0 to 65535, for example \"65001:100\""),
            ),
        }
    }
    Some(communities)
}

fn path(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    key: &'static str,
    default: &str,
) -> Option<PathBuf> {
    let Some((value, span)) = view.text(sink, key) else {
        return Some(default.into());
    };
    let path = PathBuf::from(value);
    // The path is not written to a file, but a line break in it is certainly a mistake.
    if path.is_absolute() && !value.contains(char::is_control) {
        return Some(path);
    }
    let message = format!("`{key}` must be an absolute path without control characters");
    sink.push(Diagnostic::new(Code::BadText, span, message));
    None
}

fn command(sink: &mut Sink<'_>, view: &View<'_, '_>, default: &str) -> Option<Vec<String>> {
    let Some(items) = view.list(sink, "command") else {
        return Some(vec![default.to_owned()]);
    };
    let words: Vec<String> = items
        .iter()
        .filter_map(|item| text(sink, item, &Kind::Text))
        .map(|(word, _)| word.to_owned())
        .collect();
    if words.is_empty() {
        let span = view
            .get("command")
            .map_or(0..0, |(entry, _)| entry.item.span.clone());
        let diagnostic = Diagnostic::new(Code::EmptyList, &span, "`command` is empty");
        sink.push(diagnostic.fix(format!("write [\"{default}\"], or remove it")));
        return None;
    }
    Some(words)
}

fn asn(sink: &mut Sink<'_>, view: &View<'_, '_>, location: &Range<usize>) -> Option<u32> {
    let asn = view.integer(sink, "asn");
    if asn.is_none() && view.get("asn").is_none() {
        let message = "speaker \"frr\" requires `asn`";
        let fix = "add the AS number of `router bgp`, for example `asn = 65001`";
        sink.push(Diagnostic::new(Code::MissingKey, location, message).fix(fix));
    }
    asn
}

/// Returns the name of the prefix list. FRR also accepts other characters, but its bgpd crashes if a name contains
/// quotation marks.
fn prefix_list(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<String> {
    let (name, span) = view.text(sink, "prefix_list")?;
    let is_permitted = |it: char| it.is_ascii_alphanumeric() || "._-:".contains(it);
    if (1..=MAX_PREFIX_LIST_NAME).contains(&name.len()) && name.chars().all(is_permitted) {
        return Some(name.to_owned());
    }
    let message = format!("\"{name}\" is not a valid prefix list name");
    let fix = format!(
        "use letters, digits and `.`, `_`, `-` or `:`, at most {MAX_PREFIX_LIST_NAME} characters"
    );
    sink.push(Diagnostic::new(Code::BadText, span, message).fix(fix));
    None
}
