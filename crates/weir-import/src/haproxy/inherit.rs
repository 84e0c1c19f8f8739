//! Separates the rules of a named `defaults` section from its settings.
//!
//! haproxy evaluates these rules before the rules of each section that uses the `defaults` section.

use std::collections::HashSet;

use super::line::Line;
use super::rule::condition;

/// The lines of a `defaults` section, as another section uses them.
pub(super) struct Inherited {
    /// Rules and their ACLs, which are evaluated before the section's own.
    pub(super) rules: Vec<Line>,
    /// Settings that the section's own lines override.
    pub(super) settings: Vec<Line>,
}

/// Divides the lines of a named `defaults`. ACLs get names that the section's own lines do not use, because neither the
/// `defaults` nor the section can use the other's ACLs.
pub(super) fn separate_rules(defaults: Vec<Line>) -> Inherited {
    let acls = defaults.iter().filter(|line| line.keyword() == "acl");
    let acls: HashSet<String> = acls
        .filter_map(|line| line.word(1).map(str::to_owned))
        .collect();
    let (mut rules, settings): (Vec<Line>, Vec<Line>) = defaults.into_iter().partition(is_rule);
    for line in &mut rules {
        let start = match line.keyword() {
            "acl" => 1,
            _ => line.words.len() - condition(line.arguments()).1.len(),
        };
        let end = match line.keyword() {
            "acl" => line.words.len().min(2),
            _ => line.words.len(),
        };
        for word in &mut line.words[start..end] {
            if acls.contains(word.trim_start_matches('!')) {
                word.push_str(" of defaults");
            }
        }
    }
    Inherited { rules, settings }
}

fn is_rule(line: &Line) -> bool {
    matches!(
        line.keyword(),
        "acl"
            | "http-request"
            | "http-response"
            | "http-after-response"
            | "tcp-request"
            | "tcp-response"
    )
}
