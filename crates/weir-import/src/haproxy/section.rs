//! Divides haproxy.cfg into sections, and determines the lines that a proxy inherits from its defaults.

use std::collections::HashMap;

use super::inherit::{self, Inherited};
use super::line::Line;
use crate::note::{Notes, Position};

/// A `frontend`, `backend` or `listen` section.
#[derive(Clone, Debug)]
pub(super) struct Proxy {
    pub(super) position: Position,
    pub(super) name: String,
    /// Whether the section is a `frontend` or `listen`.
    pub(super) is_frontend: bool,
    /// Whether the section is a `backend` or `listen`.
    pub(super) is_backend: bool,
    /// The rules that the section inherits from a named `defaults` section, and the section's own lines.
    pub(super) lines: Vec<Line>,
    /// The other lines of the `defaults` section that applies.
    pub(super) defaults: Vec<Line>,
}

/// Keywords that begin a section.
const SECTIONS: &[&str] = &[
    "global",
    "defaults",
    "frontend",
    "backend",
    "listen",
    "userlist",
    "peers",
    "resolvers",
    "mailers",
    "cache",
    "program",
    "http-errors",
    "ring",
    "log-forward",
    "log-profile",
    "fcgi-app",
    "crt-store",
    "traces",
    "acme",
    "healthcheck",
];

/// The sections of a file.
#[derive(Debug, Default)]
pub(super) struct File {
    /// Position and lines of the last `defaults` section, including the lines that it inherits.
    pub(super) defaults: Option<(Position, Vec<Line>)>,
    pub(super) proxies: Vec<Proxy>,
    pub(super) global: Vec<Line>,
    /// The first mailer of each `mailers` section.
    pub(super) mailers: Vec<(String, (String, Position))>,
    /// Name servers of the `resolvers` sections.
    pub(super) resolvers: HashMap<String, Vec<(String, Position)>>,
    /// Users of the `userlist` sections.
    pub(super) users: HashMap<String, Vec<User>>,
    /// Pages of the `http-errors` sections.
    pub(super) pages: HashMap<String, Vec<Line>>,
    /// Files of the `crt-store` sections, by `@STORE/ALIAS` and `@STORE/FILE`.
    pub(super) certificates: HashMap<String, String>,
}

/// A user of a `userlist`.
#[derive(Clone, Debug)]
pub(super) struct User {
    pub(super) name: String,
    /// The password hash in a format of `basic_auth`, or `None` if `basic_auth` does not support the hash.
    pub(super) hash: Option<String>,
    pub(super) position: Position,
}

/// Divides lines into sections, and adds notes about sections that are not imported.
#[expect(clippy::too_many_lines, reason = "the keywords of one file in order")]
pub(super) fn read(lines: Vec<Line>, notes: &mut Notes) -> File {
    let mut file = File::default();
    let mut named_defaults: Vec<(String, Vec<Line>)> = Vec::new();
    let mut last_defaults: Vec<Line> = Vec::new();
    let mut last_is_named = false;
    let mut index = 0;
    while let Some(head) = lines.get(index) {
        let mut body = lines[index + 1..]
            .iter()
            .take_while(|line| !SECTIONS.contains(&line.keyword()))
            .cloned()
            .collect::<Vec<Line>>();
        let length = body.len();
        index += 1 + length;
        match head.keyword() {
            "global" => file.global.extend(body),
            "defaults" => {
                let mut defaults = match head.word(2).filter(|word| *word == "from") {
                    Some(_) => find_defaults(&named_defaults, head.word(3)).unwrap_or_default(),
                    None => Vec::new(),
                };
                defaults.extend(body);
                if let Some(name) = head.word(1) {
                    named_defaults.push((name.to_owned(), defaults.clone()));
                }
                file.defaults = Some((head.position, defaults.clone()));
                last_is_named = head.word(1).is_some();
                last_defaults = defaults;
            }
            kind @ ("frontend" | "backend" | "listen") => {
                let Some(name) = head.word(1) else {
                    head.reject(notes, "haproxy rejects a section without a name");
                    reject_all(&body, head, notes);
                    continue;
                };
                let defaults = match head.word(2) {
                    Some("from") => {
                        find_defaults(&named_defaults, head.word(3)).unwrap_or_else(|| {
                            notes.add(
                                head.position,
                                "this defaults section does not exist; the last defaults section is used",
                            );
                            last_defaults.clone()
                        })
                    }
                    Some(_) if kind != "backend" => {
                        // In haproxy's old syntax, the address follows the name of the section.
                        let mut bind = head.clone();
                        bind.words.splice(0..2, ["bind".to_owned()]);
                        body.insert(0, bind);
                        last_defaults.clone()
                    }
                    Some(word) => {
                        let reason = format!(
                            "\"{word}\" and any following arguments are not imported: haproxy rejects them"
                        );
                        notes.add(head.position, reason);
                        last_defaults.clone()
                    }
                    None => last_defaults.clone(),
                };
                if body.iter().any(|line| line.keyword() == "disabled") {
                    let reason =
                        "not imported: the section is disabled, and haproxy does not start it";
                    for line in std::iter::once(head).chain(&body) {
                        notes.remark(line.position, reason);
                    }
                    continue;
                }
                // haproxy rejects rules in a `defaults` section without a name.
                let is_named = last_is_named || head.word(2) == Some("from");
                let Inherited {
                    rules,
                    settings: defaults,
                } = match is_named {
                    true => inherit::separate_rules(defaults),
                    false => Inherited {
                        rules: Vec::new(),
                        settings: defaults,
                    },
                };
                body.splice(0..0, rules);
                file.proxies.push(Proxy {
                    position: head.position,
                    name: name.to_owned(),
                    is_frontend: kind != "backend",
                    is_backend: kind != "frontend",
                    lines: body,
                    defaults,
                });
            }
            "mailers" => read_mailers(&mut file, head, &body, notes),
            "resolvers" => read_resolvers(&mut file, head, &body, notes),
            "userlist" => read_users(&mut file, head, body),
            "crt-store" => read_crt_store(&mut file, head, &body, notes),
            "http-errors" => {
                let name = head.word(1).unwrap_or_default().to_owned();
                notes.remark(
                    head.position,
                    "its pages are imported where the file uses them",
                );
                file.pages.insert(name, body);
            }
            other if INERT.contains(&other) => {
                for line in std::iter::once(head).chain(&body) {
                    let reason = "not imported: it has no effect on clients and servers";
                    notes.remark(line.position, reason);
                }
            }
            other if SECTIONS.contains(&other) => {
                head.reject(
                    notes,
                    &format!("Weir has no equivalent for a {other} section"),
                );
                reject_all(&body, head, notes);
            }
            other => {
                head.reject(
                    notes,
                    &format!("{other} is outside of all sections, and haproxy rejects the file"),
                );
                index -= length;
            }
        }
    }
    file
}

/// Sections without an effect on clients and servers.
const INERT: &[&str] = &[
    "peers",
    "program",
    "ring",
    "log-forward",
    "log-profile",
    "traces",
];

/// Reads `resolvers NAME` with lines `nameserver ID ADDRESS:PORT`.
fn read_resolvers(file: &mut File, head: &Line, body: &[Line], notes: &mut Notes) {
    let mut servers = Vec::new();
    for line in body {
        let address = line.word(2).unwrap_or_default();
        match line.keyword() {
            "nameserver" if address.parse::<std::net::SocketAddr>().is_ok() => {
                servers.push((address.to_owned(), line.position));
            }
            "parse-resolv-conf" => {
                notes.remark(
                    line.position,
                    "Weir uses the system's name servers by default",
                );
            }
            "nameserver" => line.reject(notes, "`resolvers` accepts only addresses with a port"),
            _ => notes.remark(
                line.position,
                "not imported: Weir resolves a name again when the TTL of its record expires",
            ),
        }
    }
    let name = head.word(1).unwrap_or_default().to_owned();
    notes.remark(
        head.position,
        "its name servers are imported where the file uses them",
    );
    file.resolvers.insert(name, servers);
}

/// Reads `crt-store NAME` with lines `load crt FILE key FILE alias NAME`.
fn read_crt_store(file: &mut File, head: &Line, body: &[Line], notes: &mut Notes) {
    let name = head.word(1).unwrap_or_default();
    let base = |keyword: &str| {
        let mut lines = body.iter().rev();
        lines.find(|line| line.keyword() == keyword)?.word(1)
    };
    let complete = |path: &str, base: Option<&str>| match base {
        Some(base) => super::bind::absolute_path(path, base),
        None => path.to_owned(),
    };
    let reason = "its certificates are imported where the file uses them";
    notes.remark(head.position, reason);
    for line in body {
        let value_after = |word: &str| {
            let index = line.words.iter().position(|it| it == word)?;
            line.word(index + 1)
        };
        let certificate = match (line.keyword(), value_after("crt")) {
            ("load", Some(certificate)) => certificate,
            ("crt-base" | "key-base", _) => {
                notes.remark(line.position, reason);
                continue;
            }
            _ => {
                line.reject(
                    notes,
                    "Weir loads certificates only from files (`load crt FILE`)",
                );
                continue;
            }
        };
        let path = complete(certificate, base("crt-base"));
        let key = value_after("key").map(|key| complete(key, base("key-base")));
        let default_key = match path.strip_suffix(".crt") {
            Some(stem) => format!("{stem}.key"),
            None => path.replace("fullchain.pem", "privkey.pem"),
        };
        match key.filter(|key| *key != path && *key != default_key) {
            Some(key) if default_key == path => notes.add(
                line.position,
                format!("the key {key} is not imported: add it to {path}"),
            ),
            Some(key) => notes.add(
                line.position,
                format!("the key {key} is not imported: Weir reads the key from {default_key}"),
            ),
            None => notes.remark(line.position, reason),
        }
        let names = [value_after("alias"), Some(certificate)];
        for alias in names.into_iter().flatten() {
            file.certificates
                .insert(format!("@{name}/{alias}"), path.clone());
        }
    }
}

/// Reads `userlist NAME` with lines `user NAME password HASH` and `user NAME insecure-password TEXT`.
fn read_users(file: &mut File, head: &Line, body: Vec<Line>) {
    let users = body.into_iter().filter(|line| line.keyword() == "user");
    let users = users.filter_map(|line| {
        let name = line.word(1)?.to_owned();
        let hash = match (line.word(2)?, line.word(3)?) {
            ("insecure-password", text) => super::user::hash_password(&name, text),
            (_, hash) => {
                let formats = ["$2a$", "$2b$", "$2y$", "$5$", "$6$", "$apr1$"];
                let is_supported = formats.iter().any(|format| hash.starts_with(format));
                is_supported.then(|| hash.to_owned())
            }
        };
        Some(User {
            name,
            hash,
            position: line.position,
        })
    });
    let name = head.word(1).unwrap_or_default().to_owned();
    file.users.insert(name, users.collect());
}

/// Reads `mailers NAME` with lines `mailer NAME ADDRESS:PORT`.
fn read_mailers(file: &mut File, head: &Line, body: &[Line], notes: &mut Notes) {
    let Some(name) = head.word(1) else {
        head.reject(notes, "haproxy rejects a section without a name");
        return reject_all(body, head, notes);
    };
    let mut first = None;
    for line in body {
        match (line.keyword(), line.word(2)) {
            ("mailer", Some(address)) if first.is_none() => {
                first = Some((address.to_owned(), line.position));
            }
            ("mailer", Some(_)) => {
                line.reject(notes, "`mail_server` in `[notify]` accepts only one server")
            }
            ("timeout", _) => {
                line.reject(notes, "Weir has a fixed timeout of 30 seconds for an email")
            }
            _ => line.reject(notes, "haproxy has no such keyword in mailers"),
        }
    }
    match first {
        Some(first) => file.mailers.push((name.to_owned(), first)),
        None => head.reject(notes, "the section has no mailer"),
    }
}

/// Returns the lines of the last `defaults` section with this name.
fn find_defaults(named: &[(String, Vec<Line>)], name: Option<&str>) -> Option<Vec<Line>> {
    let section = named
        .iter()
        .rev()
        .find(|(existing, _)| Some(existing.as_str()) == name);
    section.map(|(_, lines)| lines.clone())
}

/// Adds a note for each line of a section that is not imported.
fn reject_all(lines: &[Line], head: &Line, notes: &mut Notes) {
    for line in lines {
        line.reject(
            notes,
            &format!(
                "it is in the section that begins on line {}, which is not imported",
                head.position.line()
            ),
        );
    }
}

impl Proxy {
    /// Returns the last line that begins with these words. The proxy's lines override its defaults.
    pub(super) fn last(&self, keywords: &[&str]) -> Option<&Line> {
        let is_match = |line: &&Line| {
            line.words.len() >= keywords.len()
                && keywords
                    .iter()
                    .zip(&line.words)
                    .all(|(keyword, word)| keyword == word)
        };
        let own_line = self.lines.iter().rev().find(is_match);
        own_line.or_else(|| self.defaults.iter().rev().find(is_match))
    }

    /// Returns the line that enables an option. `no option` in the proxy overrides its defaults.
    pub(super) fn option(&self, name: &str) -> Option<&Line> {
        self.option_line(name)
            .filter(|line| line.keyword() == "option")
    }

    /// Returns the line that enables or disables an option. The proxy's lines override its defaults.
    pub(super) fn option_line(&self, name: &str) -> Option<&Line> {
        let enables = |line: &Line| line.keyword() == "option" && line.word(1) == Some(name);
        let disables = |line: &Line| line.keyword() == "no" && line.word(2) == Some(name);
        [&self.lines, &self.defaults].iter().find_map(|lines| {
            lines
                .iter()
                .rev()
                .find(|line| enables(line) || disables(line))
        })
    }

    /// Returns whether the mode is `http`; the default is `tcp`.
    pub(super) fn is_http(&self) -> bool {
        let mode = self.last(&["mode"]);
        mode.and_then(|line| line.word(1)) == Some("http")
    }
}

#[cfg(test)]
mod tests;
