//! The manual's cards, one for each key: syntax, purpose, default, example; made from the catalog.

use crate::catalog;
use crate::key::{Choices, Key, Kind, Presence, Section};

/// The pages of `docs/manual/configuration/`: file name and Markdown.
pub fn cards() -> Vec<(String, String)> {
    let mut pages = vec![("README.md".to_owned(), index())];
    pages.extend(
        catalog::PAGES
            .iter()
            .map(|section| (format!("{}.md", section.page), page(section))),
    );
    pages
}

fn index() -> String {
    let mut out = String::from(
        "# Configuration\n\nOne file, `/etc/weir/weir.toml`, read as TOML; `weir check` reports every mistake in it at \
         once, and `weir schema`\nprints the JSON Schema that editors use. The same schema is read as JSON. Durations \
         are written `\"500ms\"`, `\"2s\"`,\n`\"5m\"`, `\"1h\"`, `\"1d\"`. An empty file is valid, and so is one with only \
         `[node]`.\n\n| section | for |\n|---|---|\n",
    );
    for section in catalog::PAGES {
        let first = section
            .purpose
            .split_inclusive(['.', ':'])
            .next()
            .unwrap_or("");
        out.push_str(&format!(
            "| [`[{}]`]({}.md) | {} |\n",
            section.path,
            section.page,
            first.trim_end_matches(':')
        ));
    }
    let later: Vec<String> = catalog::ROOT
        .keys
        .iter()
        .filter(|key| !key.is_built())
        .map(|key| format!("`{}`", key.name))
        .collect();
    if !later.is_empty() {
        out.push_str(&format!(
            "\nNot built yet, and refused: {}.\n",
            later.join(", ")
        ));
    }
    out
}

fn page(section: &Section) -> String {
    let mut out = format!(
        "# `[{}]`\n\n{}\n\n```toml\n{}```\n",
        section.path, section.purpose, section.example
    );
    for key in section.built() {
        out.push_str(&card(key));
    }
    let later: Vec<String> = section
        .keys
        .iter()
        .filter(|key| !key.is_built())
        .map(|key| format!("`{}`", key.name))
        .collect();
    if !later.is_empty() {
        out.push_str(&format!(
            "\nNot built yet, and refused: {}.\n",
            later.join(", ")
        ));
    }
    out
}

fn card(key: &Key) -> String {
    let default = match key.presence {
        Presence::Required => "none; it must be there".to_owned(),
        Presence::Default(text) => format!("`{}`", quoted(&key.kind, text)),
        Presence::Absent(meaning) => meaning.to_owned(),
    };
    let mut out = format!(
        "\n## `{}`\n\n{}\n\n- Syntax: {}\n",
        key.name,
        key.purpose,
        key.kind.syntax()
    );
    if let Some(choices) = choices(&key.kind) {
        for (what, words) in [
            ("Also understood", choices.aliases),
            ("Not built yet", choices.later),
        ] {
            if !words.is_empty() {
                let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
                out.push_str(&format!("- {what}: {}\n", words.join(", ")));
            }
        }
    }
    out.push_str(&format!(
        "- Default: {default}\n- Example: `{}`\n",
        key.example
    ));
    out
}

fn choices(kind: &Kind) -> Option<Choices> {
    match kind {
        Kind::OneOf(choices) => Some(choices()),
        Kind::Either(first, _) => choices(first),
        _ => None,
    }
}

/// As it would be written in TOML.
fn quoted(kind: &Kind, text: &str) -> String {
    match kind {
        Kind::Integer { .. } | Kind::Flag | Kind::List(_) => text.to_owned(),
        Kind::Either(first, _) => quoted(first, text),
        _ => format!("\"{text}\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Host, parse};

    /// A whole file around one line of a section's key.
    fn around(section: &Section, line: &str) -> String {
        let key = line.split(' ').next().unwrap_or("");
        let others = |base: &[&'static str]| -> Vec<&'static str> {
            base.iter()
                .copied()
                .filter(|other| other.split(' ').next() != Some(key))
                .collect()
        };
        let inline = |base: &'static str| {
            let mut parts = others(&[base]);
            parts.push(line);
            parts.join(", ")
        };
        let service = |forward: &str, extra: &str| {
            format!(
                "[service.images]\nlisten = [\"192.0.2.10:80\"]\nforward = \"{forward}\"\npool = \"images\"\n{extra}\n"
            )
        };
        let pool = "[pool.images]\nservers = [\"10.0.0.5\"]\n";
        match section.page {
            "node" | "timeouts" | "ipvs" => format!("[{}]\n{line}\n", section.path),
            "pool" => format!("[pool.images]\n{line}\n"),
            "server" => format!(
                "[pool.images]\nservers = [{{ {} }}]\n",
                inline("address = \"10.0.0.5\"")
            ),
            "scheduler" => format!(
                "[pool.images]\nscheduler = {{ {} }}\n",
                inline(if key == "key" {
                    "name = \"hash\""
                } else {
                    "name = \"mh\""
                })
            ),
            "access-log" => {
                let table = inline("path = \"/x\"");
                let extra = format!("protocol = \"http\"\naccess_log = {{ {table} }}");
                pool.to_owned() + &service("proxy", &extra)
            }
            "sticky" => {
                let table = inline("cookie = \"SRV\"");
                format!("{pool}sticky = {{ {table} }}\n") + &service("proxy", "protocol = \"http\"")
            }
            "servers-dns" => {
                let table = inline("name = \"web.internal\"");
                format!("{pool}servers_dns = {{ {table} }}\n") + &service("nat", "")
            }
            "service" => {
                let base = [
                    if line == "one_packet = true" {
                        "listen = [\"udp/192.0.2.10:53\"]"
                    } else {
                        "listen = [\"192.0.2.10:80\"]"
                    },
                    "forward = \"nat\"",
                    "pool = \"images\"",
                ];
                format!(
                    "{pool}[service.images]\n{}\n{line}\n",
                    others(&base).join("\n")
                )
            }
            "tunnel" => {
                pool.to_owned()
                    + &service(
                        "tunnel",
                        &format!("tunnel = {{ {} }}", inline("type = \"gue\"")),
                    )
            }
            "persistence" => {
                pool.to_owned() + &service("nat", &format!("persistence = {{ {line} }}"))
            }
            "snat" => pool.to_owned() + &service("nat", &format!("snat = {{ {line} }}")),
            "proxy-timeouts" | "proxy-limits" => {
                let table = section.path.rsplit('.').next().unwrap_or("");
                let extra = format!("protocol = \"http\"\n{table} = {{ {line} }}");
                pool.to_owned() + &service("proxy", &extra)
            }
            "compression" => {
                let extra = format!("protocol = \"http\"\ncompression = {{ {line} }}");
                pool.to_owned() + &service("proxy", &extra)
            }
            "error-pages" => {
                let mut parts = others(&["status = 503", "file = \"/e.html\""]);
                parts.push(line);
                let extra = format!(
                    "protocol = \"http\"\nerror_pages = [{{ {} }}]",
                    parts.join(", ")
                );
                pool.to_owned() + &service("proxy", &extra)
            }
            "service-tls" => {
                let base = ["certificates = \"/c\"", "client_ca = \"/ca.pem\""];
                let mut parts = others(&base);
                parts.push(line);
                let extra = format!("protocol = \"http\"\ntls = {{ {} }}", parts.join(", "));
                pool.to_owned() + &service("proxy", &extra)
            }
            "pool-tls" => {
                format!("{pool}tls = {{ {line} }}\n") + &service("proxy", "protocol = \"http\"")
            }
            "check" => checked(key, line),
            "expect" => match key {
                "answer" => checked("query", &format!("query = \"a\"\nexpect = {{ {line} }}")),
                "bytes" => checked(
                    "payload",
                    &format!("payload = \"00\"\nexpect = {{ {line} }}"),
                ),
                _ => checked("expect", &format!("expect = {{ {line} }}")),
            },
            "route" => {
                let base = ["service = \"images\"", "pool = \"images\""];
                // What it leads to is one of three.
                let alone = matches!(key, "redirect" | "status" | "body" | "split");
                let base = if alone { &base[..1] } else { &base[..] };
                let status = if key == "body" { "status = 404\n" } else { "" };
                let redirect = if key == "status" {
                    "redirect = \"/x\"\n"
                } else {
                    ""
                };
                pool.to_owned()
                    + &service("proxy", "protocol = \"http\"")
                    + &format!(
                        "[[route]]\n{}\n{status}{redirect}{line}\n",
                        others(base).join("\n")
                    )
            }
            "vrrp" => format!(
                "[vrrp.outside]\n{}\n{line}\n",
                others(&["virtual_router_id = 51"]).join("\n")
            ),
            "vrrp-track" => {
                let alone = matches!(key, "interface" | "script" | "process" | "file");
                let base = if alone { &[][..] } else { &["file = \"/x\""] };
                let mut parts = others(base);
                parts.extend((!line.is_empty()).then_some(line));
                let inner = parts.join(", ");
                format!("[vrrp.outside]\nvirtual_router_id = 51\ntrack = [{{ {inner} }}]\n")
            }
            page => panic!("no frame for {page}"),
        }
    }

    /// A check of the first kind that has the key, the key left out where `line` is empty.
    fn checked(key: &str, line: &str) -> String {
        let of = catalog::OF_KINDS.iter().find(|(of, _)| *of == key);
        let kind = of.and_then(|(_, kinds)| kinds.first()).unwrap_or(&"tcp");
        let needed = catalog::NEEDED.iter().find(|(of, _)| of == kind);
        let needed = needed.filter(|(_, needed)| !line.contains(&format!("{needed} = ")));
        let needed = needed.and_then(|(_, needed)| catalog::CHECK.key(needed));
        let line = match needed {
            Some(needed) => format!("{}\n{line}", needed.example),
            None => line.to_owned(),
        };
        let kind = if key == "kind" {
            String::new()
        } else {
            format!("kind = \"{kind}\"\n")
        };
        format!("[pool.images]\nservers = [\"10.0.0.5\"]\n[pool.images.check]\n{kind}{line}\n")
    }

    fn errors(text: &str) -> Vec<String> {
        let Err(found) = parse(text, &Host::default()) else {
            return Vec::new();
        };
        // The service examples list an IPv6 VIP, which their one server cannot serve.
        found
            .iter()
            .filter(|diagnostic| diagnostic.severity() == crate::Severity::Error)
            .filter(|diagnostic| diagnostic.code != crate::Code::FamilyMismatch)
            .map(|diagnostic| diagnostic.message.clone())
            .collect()
    }

    #[test]
    fn every_example_is_taken() {
        for section in catalog::PAGES {
            assert_eq!(
                errors(section.example),
                Vec::<String>::new(),
                "{}",
                section.example
            );
            for key in section.built() {
                assert!(key.example.starts_with(key.name), "{}", key.name);
                let text = around(section, key.example);
                assert_eq!(errors(&text), Vec::<String>::new(), "{text}");
            }
        }
    }

    #[test]
    fn every_default_written_out_changes_nothing() {
        for section in catalog::PAGES {
            for key in section.built() {
                let Presence::Default(text) = key.presence else {
                    continue;
                };
                let bare = match section.page {
                    "scheduler" if key.name == "key" => around(section, "name = \"hash\""),
                    "scheduler" => around(section, "name = \"mh\""),
                    "access-log" => around(section, "path = \"/x\""),
                    "sticky" => around(section, "cookie = \"SRV\""),
                    "servers-dns" => around(section, "name = \"web.internal\""),
                    "server" => around(section, "address = \"10.0.0.5\""),
                    "tunnel" => around(section, "type = \"gue\""),
                    "snat" => around(section, "addresses = []"),
                    "service" => around(section, "pool = \"images\""),
                    "check" => checked(key.name, ""),
                    _ => around(section, ""),
                };
                let written = around(
                    section,
                    &format!("{} = {}", key.name, quoted(&key.kind, text)),
                );
                let mut pair =
                    [&bare, &written].map(|text| parse(text, &Host::default()).unwrap().desired);
                // Lines move when one is added; nothing else may.
                for desired in &mut pair {
                    desired.pools.iter_mut().for_each(|pool| {
                        pool.source = weir_model::Source::default();
                        pool.servers
                            .iter_mut()
                            .for_each(|server| server.source = weir_model::Source::default());
                    });
                    desired
                        .services
                        .iter_mut()
                        .for_each(|service| service.source = weir_model::Source::default());
                    desired
                        .proxies
                        .iter_mut()
                        .for_each(|proxy| proxy.source = weir_model::Source::default());
                }
                assert_eq!(pair[0], pair[1], "{written}");
            }
        }
    }
}
