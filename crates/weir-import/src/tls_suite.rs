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
    let mut first_position = None;
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
                first_position = first_position.or(Some(*position));
                note_unsupported(&unsupported, *position, notes);
            }
            Err(reason) => notes.remark(*position, format!("not imported: {reason}")),
        }
    }
    if let Some(position) = first_position {
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
    use crate::document::Value;

    /// Returns the keys, each as `KEY at LINE: NAMES`, and the notes.
    fn read(lists: [&str; 3], tls13_only: bool) -> (Vec<String>, Vec<String>) {
        let mut notes = Notes::default();
        notes.add_file("f", "a\nb\nc\n");
        let list = |index: usize| -> Option<ListText> {
            let position = Position::new(0, index + 1);
            (!lists[index].is_empty()).then(|| (lists[index].to_owned(), position))
        };
        let [tls12, tls13, groups] = [0, 1, 2].map(list);
        let suites = [tls12.as_ref(), tls13.as_ref()];
        let keys = keys(suites, groups.as_ref(), tls13_only, &mut notes);
        let descriptions = keys.iter().map(|key| {
            let Value::List(items) = &key.item.value else {
                panic!("{key:?}");
            };
            let names = items.iter().map(|item| match &item.value {
                Value::Text(name) => name.as_str(),
                other => panic!("{other:?}"),
            });
            let line = key.item.position.expect("the key has no position").line();
            format!(
                "{} at {line}: {}",
                key.key,
                names.collect::<Vec<_>>().join(" ")
            )
        });
        assert!(notes.losses().is_empty());
        (descriptions.collect(), notes.finish())
    }

    const AES128: &str = "ECDHE-RSA-AES128-GCM-SHA256";
    /// The same suite in weir.toml.
    const AES128_IANA: &str = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
    const AES128_TLS13: &str = "TLS_AES_128_GCM_SHA256";

    #[test]
    fn suites_of_both_versions_are_imported_as_one_list() {
        let tls12 = format!("ciphers at 1: {AES128_IANA}");
        let tls13 = format!("ciphers at 2: {AES128_TLS13}");
        let both = format!("ciphers at 1: {AES128_IANA} {AES128_TLS13}");
        let not_used = "line 1: a: not imported: the service does not use TLS 1.2";
        for (lists, tls13_only, expected, note) in [
            (["", "", ""], false, None, None),
            ([AES128, "", ""], false, Some(&tls12), None),
            (["", AES128_TLS13, ""], false, Some(&tls13), None),
            ([AES128, AES128_TLS13, ""], false, Some(&both), None),
            (
                [AES128, AES128_TLS13, ""],
                true,
                Some(&tls13),
                Some(not_used),
            ),
            (["", AES128_TLS13, ""], true, Some(&tls13), None),
            (
                [AES128_TLS13, "", ""],
                false,
                None,
                Some("line 1: a: not imported: Weir supports none of these suites"),
            ),
            (
                [&format!("{AES128},DHE-RSA-AES128-SHA"), "", ""],
                false,
                Some(&tls12),
                Some("line 1: a: not imported: DHE-RSA-AES128-SHA, which Weir does not support"),
            ),
            (
                [&format!("{AES128}:HIGH"), "", ""],
                false,
                None,
                Some(
                    "line 1: a: not imported: HIGH is a class of suites, but `ciphers` accepts only names; by \
                     default, Weir offers all suites it supports",
                ),
            ),
        ] {
            let (keys, notes) = read(lists, tls13_only);
            assert_eq!(keys.first(), expected, "{lists:?}");
            assert_eq!(notes.first().map(String::as_str), note, "{lists:?}");
            assert_eq!(
                (keys.len(), notes.len()),
                (usize::from(expected.is_some()), usize::from(note.is_some()))
            );
        }
    }

    #[test]
    fn groups_are_imported_if_one_works_with_each_version() {
        let unusable = "line 3: c: not imported: no supported group works with all TLS versions; \
                        Weir uses its defaults";
        let unsupported = "line 3: c: not imported: sect571r1, which Weir does not support";
        for (groups, tls13_only, expected, notes) in [
            (
                "X25519:P-256",
                false,
                Some("groups at 3: X25519 secp256r1"),
                &[][..],
            ),
            ("X25519:X25519", false, Some("groups at 3: X25519"), &[]),
            ("X25519MLKEM768", false, None, &[unusable]),
            (
                "X25519MLKEM768",
                true,
                Some("groups at 3: X25519MLKEM768"),
                &[],
            ),
            (
                "P-256 : sect571r1",
                false,
                Some("groups at 3: secp256r1"),
                &[unsupported],
            ),
            ("sect571r1", false, None, &[unsupported, unusable]),
            ("sect571r1", true, None, &[unsupported, unusable]),
        ] {
            let (keys, found) = read(["", "", groups], tls13_only);
            assert_eq!(keys.first().map(String::as_str), expected, "{groups}");
            assert_eq!(found, notes, "{groups}");
        }
    }

    #[test]
    fn unsupported_suites_are_returned_separately_and_classes_are_rejected() {
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
            "-ECDHE-RSA-AES128-GCM-SHA256",
            "AES_128/GCM",
            "TLS_AES_128_GCM_SHA256",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
