//! Generates the manual's configuration reference from the catalog, and its page of diagnostic codes.
//!
//! The reference gives the syntax, purpose, default and example of each key.

use crate::catalog;
use crate::code::{Code, Explanation, Severity};
use crate::key::{Choices, Key, Kind, Presence, Section};
use crate::when::when;

/// Returns the pages of `docs/manual/configuration/`: file name and Markdown.
pub fn cards() -> Vec<(String, String)> {
    let mut pages = vec![("README.md".to_owned(), index_page())];
    pages.extend(
        catalog::PAGES
            .iter()
            .map(|section| (format!("{}.md", section.page), section_page(section))),
    );
    pages
}

/// Returns the page of `docs/manual/` that lists every diagnostic code.
pub fn codes() -> String {
    let mut out = String::from(
        "# Diagnostic codes\n\n`weir check`, `plan`, `run` and `reload` report problems in a configuration with these \
         codes. If there are\nerrors (E), the file is rejected. Warnings (W) make `weir check --strict` fail. \
         Notes (N) are informational.\n`weir explain E016` prints an entry of this page (as JSON with `--json`). Codes \
         are never reused.\n",
    );
    let sections = [
        ("Errors", Severity::Error),
        ("Warnings", Severity::Warning),
        ("Notes", Severity::Note),
    ];
    for (heading, severity) in sections {
        out.push_str(&format!("\n## {heading}\n"));
        let mut listed_codes: Vec<Code> = Code::ALL.to_vec();
        listed_codes.retain(|code| code.severity() == severity);
        listed_codes.sort_by_key(|code| code.as_str());
        for code in listed_codes {
            let Explanation { title, cause, fix } = code.explanation();
            out.push_str(&format!(
                "\n### {code}\n\n{title} {cause}\n\n- Fix: {fix}\n"
            ));
        }
    }
    out
}

fn index_page() -> String {
    let mut out = String::from(
        "# Configuration\n\nThe configuration is one TOML file, `/etc/weir/weir.toml`. `weir check` reports all \
         mistakes in it at once, and\n`weir schema` prints the JSON Schema for editors. JSON with the same schema is \
         accepted too. Durations are written\n`\"500ms\"`, `\"2s\"`, `\"5m\"`, `\"1h\"`, `\"1d\"`. An empty file is \
         valid, and so is a file with only `[node]`.\n\n| section | purpose |\n|---|---|\n",
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
            first.trim_end_matches(['.', ':'])
        ));
    }
    out.push_str(&planned_keys(&catalog::ROOT));
    out
}

/// Returns a line with the keys of a section that are not implemented, or an empty string.
fn planned_keys(section: &Section) -> String {
    let planned: Vec<String> = section
        .keys
        .iter()
        .filter(|key| !key.is_implemented())
        .map(|key| format!("`{}`", key.name))
        .collect();
    match planned.as_slice() {
        [] => String::new(),
        _ => format!("\nNot built yet, and rejected: {}.\n", planned.join(", ")),
    }
}

fn section_page(section: &Section) -> String {
    let mut out = format!(
        "# `[{}]`\n\n{}\n\n```toml\n{}```\n",
        section.path, section.purpose, section.example
    );
    for key in section.implemented_keys() {
        out.push_str(&key_card(key, when(section.page, key.name)));
    }
    out.push_str(&planned_keys(section));
    out
}

fn key_card(key: &Key, when: Option<&str>) -> String {
    let default = match key.presence {
        Presence::Required => "none (required)".to_owned(),
        Presence::Default(text) => format!("`{}`", quoted(&key.kind, text)),
        Presence::Absent(meaning) => meaning.to_owned(),
    };
    let mut out = format!("\n## `{}`\n\n{}\n\n", key.name, key.purpose);
    if let Some(when) = when {
        out.push_str(&format!("- Use: {when}\n"));
    }
    out.push_str(&format!("- Syntax: {}\n", key.kind.syntax()));
    if let Some(choices) = choices(&key.kind) {
        for (label, words) in [
            ("Also accepted", choices.aliases),
            ("Not built yet", choices.planned),
        ] {
            if !words.is_empty() {
                let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
                out.push_str(&format!("- {label}: {}\n", words.join(", ")));
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

/// Formats a default value as TOML.
fn quoted(kind: &Kind, text: &str) -> String {
    match kind {
        Kind::Integer { .. }
        | Kind::Factor { .. }
        | Kind::Size { .. }
        | Kind::Flag
        | Kind::List(_) => text.to_owned(),
        Kind::Either(first, _) => quoted(first, text),
        _ => format!("\"{text}\""),
    }
}

#[cfg(test)]
mod change;
#[cfg(test)]
pub(crate) mod tests;
