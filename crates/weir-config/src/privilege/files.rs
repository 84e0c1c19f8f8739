//! Lists the files that a configuration names, for a process that opens them on behalf of another process.

use super::{Privilege, UseCollector};
use crate::catalog;
use crate::key::Section;
use crate::tree::{Entry, Table, Value};

/// The use of a named file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileUse {
    /// The file is read.
    Read,
    /// The file is a list, and is read again when it changes.
    List,
    /// The file contains certificates, or is a directory of such files.
    Certificates,
    /// Data is appended to the file.
    Append,
    /// The name identifies a credential of the service manager; it is not a path.
    Credential,
}

/// A file that a configuration names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedFile {
    /// The use of the file.
    pub used: FileUse,
    /// Path or name, as written.
    pub name: String,
}

/// Returns the files that a valid configuration names, except those that the daemon, the announcer or the VRRP agent
/// opens itself. The text is TOML or, if it starts with `{`, JSON.
pub fn named_files(text: &str) -> Vec<NamedFile> {
    let mut files = super::collect_uses(text).files;
    files.sort();
    files.dedup();
    files
}

/// Pages of the sections where `file` names a list.
const LISTS: [&str; 4] = ["address-file", "host-file", "basic-auth", "map"];

impl UseCollector {
    /// Collects the files that a privileged key names.
    pub(super) fn collect_files(
        &mut self,
        section: &'static Section,
        key: &'static str,
        privilege: Privilege,
        value: &Value<'_>,
    ) {
        let is_secret = section.page == catalog::SECRET.page;
        let used = match (privilege, key) {
            (Privilege::Certificates, "certificates") => FileUse::Certificates,
            (Privilege::Read, "credential") if is_secret => FileUse::Credential,
            (Privilege::Read, "env") if is_secret => return,
            // The daemon itself opens the files in these directories.
            (Privilege::Read, "files" | "root") => return,
            (Privilege::Read, "file") if LISTS.contains(&section.page) => FileUse::List,
            (Privilege::Read | Privilege::Certificates, _) => FileUse::Read,
            (Privilege::Write, "access_log" | "path") => FileUse::Append,
            // The announcer and the VRRP agent open these files themselves.
            (Privilege::Write, _) => return,
            (Privilege::Control, "files") => FileUse::Certificates,
            (Privilege::Control, "admin") => return self.collect_admin(value),
            (
                Privilege::Control
                | Privilege::Program
                | Privilege::Connect
                | Privilege::Environment,
                _,
            ) => return,
        };
        self.collect_texts(used, value);
    }

    fn collect_texts(&mut self, used: FileUse, value: &Value<'_>) {
        match value {
            Value::Text(name) => self.files.push(NamedFile {
                used,
                name: name.to_string(),
            }),
            Value::List(items) => {
                for item in items {
                    self.collect_texts(used, &item.value);
                }
            }
            _ => {}
        }
    }

    fn collect_admin(&mut self, value: &Value<'_>) {
        let Value::Table(admin) = value else { return };
        if let Some(tokens) = entry(admin, "tokens") {
            self.collect_texts(FileUse::Read, &tokens.item.value);
        }
        let Some(Value::Table(tls)) = entry(admin, "tls").map(|tls| &tls.item.value) else {
            return;
        };
        for (key, used) in [
            ("certificates", FileUse::Certificates),
            ("client_ca", FileUse::Read),
            ("client_crl", FileUse::Read),
        ] {
            if let Some(file) = entry(tls, key) {
                self.collect_texts(used, &file.item.value);
            }
        }
    }
}

fn entry<'a, 'b>(table: &'a Table<'b>, key: &str) -> Option<&'a Entry<'b>> {
    table.entries.iter().find(|entry| entry.key == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_access_logs_are_appended_to() {
        let text = r#"
[announce]
speaker = "bird"
socket = "/bird.ctl"
include = "/bird.conf"
pipe = "/exabgp.in"
[vrrp.v]
notify_fifo = "/fifo"
[service.a]
access_log = "/a"
[service.b]
access_log = { path = "/b", format = "json" }
"#;
        let appended: Vec<_> = named_files(text)
            .into_iter()
            .filter(|file| file.used == FileUse::Append)
            .map(|file| file.name)
            .collect();
        assert_eq!(appended, ["/a", "/b"]);
    }

    #[test]
    fn named_files_include_credentials_but_no_variables() {
        let text = r#"
[node]
admin = { listen = "127.0.0.1:9000", tokens = "/t", tls = { certificates = "/admin" } }
[check.c]
kind = "http"
ca = "/ca"
[pool.p]
servers_file = "/list"
sticky = { cookie = "c", secret = { file = "/secret" } }
check = "c"
[service.s]
listen = ["0.0.0.0:443"]
forward = "proxy"
pool = "p"
access_log = "/log"
tls = { certificates = ["/one", "/two"], ticket_keys = [{ credential = "k" }, { env = "E" }] }
"#;
        let file = |used, name: &str| NamedFile {
            used,
            name: name.to_owned(),
        };
        let found = named_files(text);
        for expected in [
            file(FileUse::Read, "/ca"),
            file(FileUse::Read, "/list"),
            file(FileUse::Read, "/secret"),
            file(FileUse::Read, "/t"),
            file(FileUse::Certificates, "/admin"),
            file(FileUse::Certificates, "/one"),
            file(FileUse::Certificates, "/two"),
            file(FileUse::Append, "/log"),
            file(FileUse::Credential, "k"),
        ] {
            assert!(found.contains(&expected), "no {expected:?} in {found:?}");
        }
        assert_eq!(found.len(), 9, "{found:?}");
    }

    #[test]
    fn maps_and_list_files_are_named_as_lists() {
        let text = r#"
[cluster]
files = ["/shared"]
[node]
admin = { listen = "127.0.0.1:9000", tls = { certificates = ["/c"], client_ca = "/ca", client_crl = "/crl" } }
[map.m]
file = "/map"
[[route]]
source = [{ file = "/addresses" }]
host = { file = "/hosts" }
basic_auth = { file = "/users" }
files = { root = "/srv" }
"#;
        let found = named_files(text);
        let names = |used| -> Vec<&str> {
            let found = found.iter().filter(|file| file.used == used);
            found.map(|file| file.name.as_str()).collect()
        };
        assert_eq!(
            names(FileUse::List),
            ["/addresses", "/hosts", "/map", "/users"]
        );
        assert_eq!(names(FileUse::Certificates), ["/c", "/shared"]);
        assert_eq!(names(FileUse::Read), ["/ca", "/crl"]);
        assert_eq!(found.len(), 8, "{found:?}");
    }
}
