//! Tests what individual settings of haproxy.cfg change in weir.toml, and the notes about them.

use std::net::IpAddr;

use weir_import::{Environment, haproxy};

mod bind_options;
mod binds;
mod check_rules;
mod checks;
mod conditions;
mod data_rules;
mod lines;
mod order;
mod pool_settings;
mod pools;
mod preferred_servers;
mod reasons;
mod rules;
mod server_options;
mod servers;
mod service_defaults;
mod services;
mod statistics;
mod tracking;

/// A setting, and what it changes: lines that are added to weir.toml (`+`) and removed from it (`-`), and the notes:
/// the line in haproxy.cfg, LOST for a loss or OPEN for a loss that may admit clients, and the reason.
type Row = (&'static str, &'static [&'static str]);

/// An environment with some variables, files and names.
struct FakeEnvironment;

const VARIABLES: [(&str, &str); 2] = [("PORT", "8080"), ("ADDRESS", "10.0.0.9")];

const FILES: [(&str, &str); 1] = [(
    "/etc/list",
    "# comment\n\n/a.pem\nb.pem [alpn h2] x.example\n/c.pem !y.example\n/d.pem z.example\n",
)];

impl Environment for FakeEnvironment {
    fn read(&self, path: &str) -> Result<String, String> {
        let file = FILES.iter().find(|(name, _)| *name == path);
        let text = file.map(|(_, text)| (*text).to_owned());
        text.ok_or_else(|| "no such file".to_owned())
    }

    fn has_file(&self, path: &str) -> Option<bool> {
        Some(self.read(path).is_ok())
    }

    fn glob(&self, _: &str) -> Vec<String> {
        Vec::new()
    }

    fn address(&self, name: &str, ipv6: bool) -> Option<IpAddr> {
        match (name, ipv6) {
            ("four" | "both", false) => Some([192, 0, 2, 4].into()),
            ("six" | "both", true) => Some([0xfd00, 0, 0, 0, 0, 0, 0, 6].into()),
            _ => None,
        }
    }

    fn port(&self, _: &str, _: &str) -> Option<u16> {
        None
    }

    fn host_name(&self) -> String {
        String::new()
    }

    fn variable(&self, name: &str) -> Option<String> {
        let variable = VARIABLES.iter().find(|(key, _)| *key == name);
        variable.map(|(_, value)| (*value).to_owned())
    }
}

/// Returns the lines of weir.toml without comments. Each route and each map becomes one line.
fn toml_lines(toml: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut joins = false;
    for line in toml.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') || ["servers = [", "]"].contains(&line) {
            continue;
        }
        match line.strip_prefix('[') {
            Some(table) => joins = table.starts_with("[route") || table.starts_with("map."),
            None if joins => {
                let last = lines.last_mut().expect("no table");
                last.push_str(&format!(" {line}"));
                continue;
            }
            None => {}
        }
        lines.push(line.to_owned());
    }
    lines
}

/// Returns the lines of weir.toml, and the notes in the format of [`Row`].
fn import(text: &str) -> (Vec<String>, Vec<String>) {
    let imported = haproxy("haproxy.cfg", text, &FakeEnvironment);
    let parsed = weir_config::parse(&imported.toml, &weir_config::Host::default());
    assert!(parsed.is_ok(), "{parsed:?}\n{}", imported.toml);
    let lines = toml_lines(&imported.toml);
    let format_note = |note: &String| {
        let kind = match (
            imported.unguarded.contains(note),
            imported.losses.contains(note),
        ) {
            (true, _) => " OPEN",
            (_, true) => " LOST",
            _ => "",
        };
        let (number, rest) = note
            .strip_prefix("line ")
            .and_then(|rest| rest.split_once(": "))
            .expect(note);
        let index: usize = number.parse().expect(note);
        let source = text.lines().nth(index - 1).unwrap_or_default().trim();
        let reason = rest.strip_prefix(source).unwrap_or(rest);
        format!("{number}{kind}: {}", reason.trim_start_matches(": "))
    };
    (lines, imported.notes.iter().map(format_note).collect())
}

/// Returns `lines` without `excluded`: each element of `excluded` removes one equal line.
fn without(lines: &[String], excluded: &[String]) -> Vec<String> {
    let mut excluded = excluded.to_vec();
    let mut remaining = lines.to_vec();
    remaining.retain(|line| match excluded.iter().position(|it| it == line) {
        Some(index) => {
            excluded.remove(index);
            false
        }
        None => true,
    });
    remaining
}

/// Asserts what each setting changes, compared with an empty setting. The setting replaces `{}` in `template`. For an
/// empty setting, asserts the complete result.
fn assert_changes(template: &str, rows: &[Row]) {
    let without_setting = import(&template.replace("{}", ""));
    for (setting, expected) in rows {
        let (lines_before, notes_before) = match *setting {
            "" => Default::default(),
            _ => without_setting.clone(),
        };
        let (lines, notes) = import(&template.replace("{}", setting));
        let removed = without(&lines_before, &lines).into_iter();
        let mut changes: Vec<String> = removed.map(|line| format!("- {line}")).collect();
        let added = without(&lines, &lines_before).into_iter();
        changes.extend(added.map(|line| format!("+ {line}")));
        changes.extend(without(&notes, &notes_before));
        assert_eq!(changes, *expected, "{setting}");
    }
}
