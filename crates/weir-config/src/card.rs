//! The manual's cards, one for each key: syntax, purpose, default, example; made from the catalog. And its page of codes.

use crate::catalog;
use crate::code::{Code, Explanation, Severity};
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

/// The page of `docs/manual/` that lists every code.
pub fn codes() -> String {
    let mut out = String::from(
        "# Codes of diagnostics\n\nWhat `weir check`, `plan`, `run` and `reload` report about a configuration has a code. Errors (E) refuse \
         the file, warnings (W)\nare legal and suspicious, and fail `weir check --strict`; notes (N) inform. `weir explain E016` prints an \
         entry of this page, with\n`--json` as JSON. A code is never given to another mistake.\n",
    );
    let sections = [
        ("Errors", Severity::Error),
        ("Warnings", Severity::Warning),
        ("Notes", Severity::Note),
    ];
    for (heading, severity) in sections {
        out.push_str(&format!("\n## {heading}\n"));
        let mut all: Vec<Code> = Code::ALL.to_vec();
        all.retain(|code| code.severity() == severity);
        all.sort_by_key(|code| code.as_str());
        for code in all {
            let Explanation { title, cause, fix } = code.explanation();
            out.push_str(&format!(
                "\n### {code}\n\n{title} {cause}\n\n- To do: {fix}\n"
            ));
        }
    }
    out
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
    out.push_str(&later(&catalog::ROOT));
    out
}

/// The keys of a section that are refused; empty = there are none.
fn later(section: &Section) -> String {
    let later: Vec<String> = section
        .keys
        .iter()
        .filter(|key| !key.is_built())
        .map(|key| format!("`{}`", key.name))
        .collect();
    match later.as_slice() {
        [] => String::new(),
        _ => format!("\nNot built yet, and refused: {}.\n", later.join(", ")),
    }
}

fn page(section: &Section) -> String {
    let mut out = format!(
        "# `[{}]`\n\n{}\n\n```toml\n{}```\n",
        section.path, section.purpose, section.example
    );
    for key in section.built() {
        out.push_str(&card(key));
    }
    out.push_str(&later(section));
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
        Kind::Integer { .. } | Kind::Size { .. } | Kind::Flag | Kind::List(_) => text.to_owned(),
        Kind::Either(first, _) => quoted(first, text),
        _ => format!("\"{text}\""),
    }
}

#[cfg(test)]
mod change;
#[cfg(test)]
pub(crate) mod tests;
