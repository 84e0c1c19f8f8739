//! Cipher suites and groups of OpenSSL's lists, as `ciphers` and `groups` of a service's `tls`.
//!
//! A list that names suites is imported; of one with classes of suites (`HIGH`, `!aNULL`) Weir cannot tell which of its
//! own it means.

use weir_model::{CipherSuite, TlsGroup, TlsVersion};

use crate::document::Entry;
use crate::note::{Notes, Position};

/// A list as written, and its line.
pub(crate) type Written = (String, Position);

/// The keys for a list of suites of TLS 1.2, one of suites of TLS 1.3, and one of groups. `newest_only` = the service
/// has no TLS 1.2.
pub(crate) fn keys(
    lists: [Option<&Written>; 2],
    groups: Option<&Written>,
    newest_only: bool,
    notes: &mut Notes,
) -> Vec<Entry> {
    let mut keys = Vec::new();
    let mut listed: Vec<CipherSuite> = Vec::new();
    let mut from = None;
    for ((text, position), version) in [(lists[0], TlsVersion::V12), (lists[1], TlsVersion::V13)]
        .into_iter()
        .filter_map(|(list, version)| Some((list?, version)))
    {
        if newest_only && version == TlsVersion::V12 {
            notes.remark(*position, "not imported: the service has no TLS 1.2");
            continue;
        }
        match suites(text, version) {
            Ok((found, others)) => {
                listed.extend(found);
                from = from.or(Some(*position));
                note_others(&others, *position, notes);
            }
            Err(why) => notes.remark(*position, format!("not imported: {why}")),
        }
    }
    if let Some(position) = from {
        let names: Vec<String> = listed.iter().map(|it| it.as_str().to_owned()).collect();
        keys.push(Entry::new("ciphers", names, position));
    }
    if let Some((text, position)) = groups {
        let (found, others) = split(text, TlsGroup::from_text);
        note_others(&others, *position, notes);
        let usable = newest_only || found.iter().any(|group| group.is_for_tls12());
        if usable && !found.is_empty() {
            let names: Vec<String> = found.iter().map(|it| it.as_str().to_owned()).collect();
            keys.push(Entry::new("groups", names, *position));
        } else {
            notes.remark(*position, "not imported: Weir chooses the groups itself");
        }
    }
    keys
}

/// The suites of a list that Weir has, and the names of the others.
///
/// # Errors
/// Why the list is not imported.
fn suites(text: &str, version: TlsVersion) -> Result<(Vec<CipherSuite>, Vec<String>), String> {
    let is_suite = |name: &str| {
        let plain = name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        plain && name.contains(['-', '_']) && !name.starts_with('-')
    };
    if let Some(class) = names(text).find(|name| !is_suite(name)) {
        return Err(format!(
            "{class} is a class of suites; Weir has the forward secret ones with authenticated encryption"
        ));
    }
    let known = |name: &str| CipherSuite::from_text(name).filter(|it| it.version() == version);
    let (found, others) = split(text, known);
    match found.is_empty() {
        true => Err("Weir has none of these suites".to_owned()),
        false => Ok((found, others)),
    }
}

fn names(text: &str) -> impl Iterator<Item = &str> {
    let names = text.split([':', ',', ' ']).map(str::trim);
    names.filter(|name| !name.is_empty())
}

fn split<T: PartialEq>(text: &str, parse: impl Fn(&str) -> Option<T>) -> (Vec<T>, Vec<String>) {
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

fn note_others(others: &[String], position: Position, notes: &mut Notes) {
    if !others.is_empty() {
        let others = others.join(" ");
        notes.remark(
            position,
            format!("{others}: not imported, because Weir does not have them"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_suites_are_divided_and_classes_refused() {
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
