//! `ssl_*` of a server block: `tls` of a service.

use super::tree::Node;
use crate::document::Entry;
use crate::note::{Notes, Position};

/// `ssl_protocols TLSv1.2 TLSv1.3`.
pub(super) fn minimum(levels: [&[Node]; 2], notes: &mut Notes) -> Option<Entry> {
    let lines_of = |nodes: &'_ [Node]| -> Option<(Position, Vec<String>)> {
        let node = nodes
            .iter()
            .rev()
            .find(|node| node.keyword() == "ssl_protocols")?;
        Some((node.position, node.words[1..].to_vec()))
    };
    let (position, words) = levels.into_iter().find_map(lines_of)?;
    let older = |word: &String| matches!(word.as_str(), "SSLv2" | "SSLv3" | "TLSv1" | "TLSv1.1");
    if words.iter().any(older) {
        notes.add(position, "TLS versions below 1.2 are not supported");
    }
    let min = match words.iter().any(|word| older(word) || word == "TLSv1.2") {
        true => "1.2",
        false => "1.3",
    };
    Some(Entry::new("minimum", min, position))
}

/// Keys of `tls` of a service.
pub(super) fn keys(
    find: &mut dyn FnMut(&str) -> Option<(String, Position)>,
    default: Position,
    notes: &mut Notes,
) -> Vec<Entry> {
    let mut keys = Vec::new();
    let key = find("ssl_certificate_key");
    match find("ssl_certificate") {
        Some((file, position)) => {
            keys.push(Entry::new("certificates", certificates(&file), position).essential());
            let position = key.map_or(position, |(_, position)| position);
            notes.add(
                position,
                "`certificates` needs the chain and the key as NAME.pem with both, NAME.crt and NAME.key, \
                 or NAME/fullchain.pem and NAME/privkey.pem",
            );
        }
        None => notes.add(
            default,
            "there is no ssl_certificate, and nginx rejects the file",
        ),
    }
    if let Some((file, position)) = find("ssl_client_certificate") {
        keys.push(Entry::new("client_ca", file, position));
        match find("ssl_verify_client") {
            Some((word, position)) if word == "on" => {
                keys.push(Entry::new("client_auth", "required", position))
            }
            Some((_, position)) => keys.push(Entry::new("client_auth", "optional", position)),
            None => {}
        }
    }
    keys
}

/// Returns the directory of the certificate and its key; for certbot, the parent directory.
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
