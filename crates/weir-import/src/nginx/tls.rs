//! `ssl_*` of a server block: `tls` of a service.

use super::tree::Node;
use crate::document::Entry;
use crate::note::{Notes, Place};

/// `ssl_protocols TLSv1.2 TLSv1.3`.
pub(super) fn minimum(levels: [&[Node]; 2], notes: &mut Notes) -> Option<Entry> {
    let of = |nodes: &'_ [Node]| -> Option<(Place, Vec<String>)> {
        let node = nodes
            .iter()
            .rev()
            .find(|node| node.keyword() == "ssl_protocols")?;
        Some((node.place, node.words[1..].to_vec()))
    };
    let (place, words) = levels.into_iter().find_map(of)?;
    let older = |word: &String| matches!(word.as_str(), "SSLv2" | "SSLv3" | "TLSv1" | "TLSv1.1");
    if words.iter().any(older) {
        notes.say(place, "versions of TLS below 1.2 are not spoken");
    }
    let least = match words.iter().any(|word| older(word) || word == "TLSv1.2") {
        true => "1.2",
        false => "1.3",
    };
    Some(Entry::new("minimum", least, place))
}

/// Keys of `tls` of a service.
pub(super) fn keys(
    find: &mut dyn FnMut(&str) -> Option<(String, Place)>,
    default: Place,
    notes: &mut Notes,
) -> Vec<Entry> {
    let mut keys = Vec::new();
    let key = find("ssl_certificate_key");
    match find("ssl_certificate") {
        Some((file, place)) => {
            keys.push(Entry::new("certificates", certificates(&file), place).essential());
            let place = key.map_or(place, |(_, place)| place);
            notes.say(place, "chain and key are looked for as `certificates` has it: NAME.pem with both, NAME.crt and NAME.key, \
                             or NAME/fullchain.pem and NAME/privkey.pem");
        }
        None => notes.say(
            default,
            "there is no ssl_certificate, and nginx refuses the file",
        ),
    }
    if let Some((file, place)) = find("ssl_client_certificate") {
        keys.push(Entry::new("client_ca", file, place));
        match find("ssl_verify_client") {
            Some((word, place)) if word == "on" => {
                keys.push(Entry::new("client_auth", "required", place))
            }
            Some((_, place)) => keys.push(Entry::new("client_auth", "optional", place)),
            None => {}
        }
    }
    keys
}

/// The directory that holds the certificate with its key: for certbot's the one above its own.
fn certificates(file: &str) -> String {
    let (directory, name) = file.rsplit_once('/').unwrap_or((".", file));
    let directory = match name {
        "fullchain.pem" => directory
            .rsplit_once('/')
            .map_or(directory, |(above, _)| above),
        _ => directory,
    };
    directory.to_owned()
}
