//! A configuration that a group of directors publishes: it becomes the last file of each director's bundle.
//!
//! It describes what all directors share. What belongs to one machine, and what decides over programs, files and
//! access, stays in the director's own file.

use crate::code::Code;
use crate::diagnostic::{Diagnostic, Lines};
use crate::include;
use crate::part::{MARK, is_bundle, parts};
use crate::privilege;
use crate::tree::Value;

/// The tables that a published configuration may have.
const SHARED: &[&str] = &[
    "defaults", "timeouts", "ipvs", "check", "pool", "service", "route",
];

/// The name of the group of a director's own configuration, and the files that its published configuration may name;
/// `None` = it has no valid `[cluster]`.
pub fn group_of(own: &str) -> Option<(String, Vec<String>)> {
    // Parsing a large file twice is expensive.
    if !own.contains("cluster") {
        return None;
    }
    let root = include::any_tree(own);
    let cluster = root.entries.iter().find(|entry| entry.key == "cluster")?;
    let Value::Table(cluster) = &cluster.item.value else {
        return None;
    };
    let value = |key: &str| {
        let entry = cluster.entries.iter().find(|entry| entry.key == key);
        entry.map(|entry| &entry.item.value)
    };
    let Some(Value::Text(name)) = value("name") else {
        return None;
    };
    let files = match value("files") {
        Some(Value::List(items)) => items.iter().filter_map(|item| match &item.value {
            Value::Text(path) => Some(path.to_string()),
            _ => None,
        }),
        _ => return Some((name.to_string(), Vec::new())),
    };
    Some((name.to_string(), files.collect()))
}

/// The bundle of a director's own configuration and the published one of its group.
pub fn with_published(own: &str, group: &str, published: &str) -> String {
    format!("{own}\n{}{published}", heading(group))
}

/// The director's own part of such a bundle.
pub fn without_published<'t>(text: &'t str, group: &str) -> &'t str {
    match text.find(&format!("\n{}", heading(group))) {
        Some(end) => &text[..end],
        None => text,
    }
}

fn heading(group: &str) -> String {
    format!("{MARK}cluster/{group}\n")
}

/// Returns what the last file of `bundle`, which the group publishes, must not contain: tables of a single machine, and
/// programs and files that the director's own configuration does not use. `files` may be named as well.
pub fn published_findings(own: &str, bundle: &str, files: &[String]) -> Vec<Diagnostic> {
    let lines = Lines::new(bundle);
    let mut found = Vec::new();
    let parts = parts(bundle);
    if let Some(part) = parts.last() {
        let mut root = include::any_tree(part.text);
        root.shift(part.start);
        for entry in &root.entries {
            if SHARED.contains(&&*entry.key) {
                continue;
            }
            let message = format!("`{}` cannot be published", entry.key.escape_debug());
            let mut diagnostic = Diagnostic::new(Code::OwnerOnly, &entry.key_span, message)
                .cause("it belongs to a single director")
                .fix("move it to the file of each director");
            diagnostic.at = lines.source(entry.key_span.start);
            found.push(diagnostic);
        }
    }
    if found.is_empty() {
        found = privilege::changes(own, bundle, files);
    }
    found
}

/// Whether a text can be published: it is a single file.
pub fn is_publishable(text: &str) -> bool {
    !is_bundle(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "[node]\ninterfaces = [\"eth0\"]\n[cluster]\nname = \"edge\"\n[check.own]\nkind = \"script\"\n\
        command = [\"/usr/bin/check\"]\nuser = \"checks\"\n";

    fn findings(published: &str) -> Vec<(String, u32, u32)> {
        let bundle = with_published(OWN, "edge", published);
        assert_eq!(without_published(&bundle, "edge"), OWN);
        let files = ["/etc/weir/certs".to_owned()];
        let found = published_findings(OWN, &bundle, &files);
        found
            .into_iter()
            .map(|it| (it.message, it.at.file, it.at.line))
            .collect()
    }

    #[test]
    fn published_text_gains_no_rights() {
        assert_eq!(group_of(OWN), Some(("edge".to_owned(), Vec::new())));
        assert_eq!(
            findings("[pool.web]\nservers = [\"10.0.0.5\"]\ncheck = \"own\"\n"),
            []
        );
        let (message, file, line) = findings("[pool.a]\n[node]\n").remove(0);
        assert_eq!(
            (message.as_str(), file, line),
            ("`node` cannot be published", 1, 2)
        );
        for refused in [
            "[pool.a.check]\nkind = \"script\"\ncommand = [\"/bin/sh\"]\n",
            "[check.b]\nkind = \"script\"\ncommand = [\"/usr/bin/check\"]\nuser = \"root\"\n",
            "[pool.a]\nservers_file = \"/etc/shadow\"\n",
            "[pool.a]\nnotify = [\"/bin/sh\"]\n",
            "[service.a]\ntls = { certificates = \"/etc/other\" }\n",
            "[service.a]\ntls = { certificates = \"/etc/weir/certs/../../shadow\" }\n",
            "[service.a]\naccess_log = \"/etc/weir/certs/log\"\n",
            "[notify.a]\ncommand = [\"/bin/sh\"]\n",
            "[vrrp.a]\n",
            "include = [\"/etc/shadow\"]\n",
        ] {
            assert_eq!(findings(refused).len(), 1, "{refused}");
        }
        for allowed in [
            "[service.a]\ntls = { certificates = \"/etc/weir/certs\" }\n",
            "[service.a]\ntls = { certificates = [\"/etc/weir/certs/a.pem\", \"/etc/weir/certs/b.pem\"] }\n",
        ] {
            assert_eq!(findings(allowed), [], "{allowed}");
        }
    }
}
