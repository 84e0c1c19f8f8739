//! Converts OpenSSL's lists of cipher suites and groups to `ciphers` and `groups` of a service's `tls`.
//!
//! Only lists of individual suites are imported, not lists with classes of suites (`HIGH`, `!aNULL`).

use weir_model::{CipherSuite, TlsGroup, TlsVersion};

use crate::document::Entry;
use crate::note::{Notes, Position};

/// The text of a list, and its source line.
pub(crate) type ListText = (String, Position);

/// Returns the keys for a list of TLS 1.2 suites, a list of TLS 1.3 suites, and a list of groups. `tls13_only` is true
/// if the service does not use TLS 1.2.
pub(crate) fn keys(
    lists: [Option<&ListText>; 2],
    groups: Option<&ListText>,
    tls13_only: bool,
    notes: &mut Notes,
) -> Vec<Entry> {
    let mut keys = Vec::new();
    let mut suite_list: Vec<CipherSuite> = Vec::new();
    let mut from = None;
    for ((text, position), version) in [(lists[0], TlsVersion::V12), (lists[1], TlsVersion::V13)]
        .into_iter()
        .filter_map(|(list, version)| Some((list?, version)))
    {
        if tls13_only && version == TlsVersion::V12 {
            notes.remark(*position, "not imported: the service does not use TLS 1.2");
            continue;
        }
        match suites(text, version) {
            Ok((supported, unsupported)) => {
                suite_list.extend(supported);
                from = from.or(Some(*position));
                note_unsupported(&unsupported, *position, notes);
            }
            Err(reason) => notes.remark(*position, format!("not imported: {reason}")),
        }
    }
    if let Some(position) = from {
        let names: Vec<String> = suite_list.iter().map(|it| it.as_str().to_owned()).collect();
        keys.push(Entry::new("ciphers", names, position));
    }
    if let Some((text, position)) = groups {
        let (supported, unsupported) = parse_names(text, TlsGroup::from_text);
        note_unsupported(&unsupported, *position, notes);
        let usable = tls13_only || supported.iter().any(|group| group.is_for_tls12());
        if usable && !supported.is_empty() {
            let names: Vec<String> = supported.iter().map(|it| it.as_str().to_owned()).collect();
            keys.push(Entry::new("groups", names, *position));
        } else {
            notes.remark(
                *position,
                "not imported: no supported group works with all TLS versions; Weir uses its defaults",
            );
        }
    }
    keys
}

/// Returns the supported suites of a list, and the names of the unsupported ones.
///
/// # Errors
/// Returns why the list is not imported.
fn suites(text: &str, version: TlsVersion) -> Result<(Vec<CipherSuite>, Vec<String>), String> {
    let is_suite = |name: &str| {
        let has_valid_characters = name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        has_valid_characters && name.contains(['-', '_']) && !name.starts_with('-')
    };
    if let Some(class) = names(text).find(|name| !is_suite(name)) {
        return Err(format!(
            "{class} is a class of suites, but `ciphers` accepts only names; by default, Weir offers all suites it \
             supports"
        ));
    }
    let parse_suite =
        |name: &str| CipherSuite::from_text(name).filter(|it| it.version() == version);
    let (supported, unsupported) = parse_names(text, parse_suite);
    match supported.is_empty() {
        true => Err("Weir supports none of these suites".to_owned()),
        false => Ok((supported, unsupported)),
    }
}

fn names(text: &str) -> impl Iterator<Item = &str> {
    let names = text.split([':', ',', ' ']).map(str::trim);
    names.filter(|name| !name.is_empty())
}

fn parse_names<T: PartialEq>(
    text: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> (Vec<T>, Vec<String>) {
    let (mut found, mut others) = (Vec::new(), Vec::new());
    for name in names(text) {
        match parse(name) {
            Some(value) if found.contains(&value) => {}
            Some(value) => found.push(value),
            None => others.push(name.to_owned()),
        }
    }
    (found, others)
}

fn note_unsupported(unsupported: &[String], position: Position, notes: &mut Notes) {
    if !unsupported.is_empty() {
        let unsupported = unsupported.join(" ");
        notes.remark(
            position,
            format!("not imported: {unsupported}, which Weir does not support"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_suites_are_separated_and_classes_rejected() {
        let read = |text: &str| {
            let (found, others) = suites(text, TlsVersion::V12).ok()?;
            let found: Vec<&str> = found.into_iter().map(CipherSuite::openssl_name).collect();
            Some((found.join(":"), others.join(":")))
        };
        let list = "ECDHE-RSA-AES128-GCM-SHA256:DHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-CHACHA20-POLY1305:\
                    ECDHE-RSA-AES128-GCM-SHA256";
        assert_eq!(
            read(list),
            Some((
                "ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-CHACHA20-POLY1305".to_owned(),
                "DHE-RSA-AES128-GCM-SHA256".to_owned()
            ))
        );
        for text in [
            "HIGH:!aNULL",
            "EECDH+AESGCM",
            "AES128-SHA",
            "DEFAULT",
            "@STRENGTH",
            "-ALL",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
