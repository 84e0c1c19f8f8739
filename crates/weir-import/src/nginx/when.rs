//! `if`, `allow` and `deny`: the requests that a directive applies to, as far as routes support it.

use super::Context;
use super::tree::Node;
use crate::layer7::Condition;
use crate::note::Notes;

/// The condition of an `if`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum When {
    Always,
    Never,
    Matches(Condition),
}

/// Parses `if ($host = old.example)` and similar, for clients of `scheme`; `None` = routes do not support it.
pub(super) fn when(node: &Node, scheme: &str) -> Option<When> {
    let text = node.words.get(1..)?.join(" ");
    let inner = text.strip_prefix('(')?.strip_suffix(')')?.trim();
    let [variable, sign, value] = inner.split(' ').collect::<Vec<&str>>()[..] else {
        return None;
    };
    let value = value.trim_matches(['"', '\'']);
    let constant = |own: &str| {
        let same = own == value;
        match (sign, same) {
            ("=", true) | ("!=", false) => Some(When::Always),
            ("=", false) | ("!=", true) => Some(When::Never),
            _ => None,
        }
    };
    match variable {
        "$scheme" => return constant(scheme),
        "$https" => return constant(if scheme == "https" { "on" } else { "" }),
        // `*` would become a wildcard, `~` would begin an expression.
        _ if sign != "=" || value.is_empty() || value.contains('*') || value.starts_with('~') => {
            return None;
        }
        _ => {}
    }
    let mut condition = Condition::default();
    match variable {
        "$host" | "$http_host" => condition.host = Some(value.to_ascii_lowercase()),
        "$request_method" => condition.methods = vec![value.to_owned()],
        _ => {
            if let Some(name) = variable.strip_prefix("$http_") {
                condition.headers = vec![format!("{}: {value}", name.replace('_', "-"))];
            } else if let Some(name) = variable.strip_prefix("$arg_") {
                condition.queries = vec![format!("{name}={value}")];
            } else {
                let name = variable.strip_prefix("$cookie_")?;
                condition.cookies = vec![format!("{name}={value}")];
            }
        }
    }
    Some(When::Matches(condition))
}

/// Returns networks in nginx's order of evaluation, and whether they are allowed; no networks = all remaining
/// clients.
pub(super) fn access_rules(
    context: &mut Context<'_>,
    levels: &[&[Node]],
    notes: &mut Notes,
) -> Vec<(Vec<String>, bool)> {
    let of_kind = |node: &&Node| matches!(node.keyword(), "allow" | "deny");
    let mut rules: Vec<(Vec<String>, bool)> = Vec::new();
    // A level inherits the rules of the outer one, unless it has its own.
    let level = levels
        .iter()
        .find(|level| level.iter().any(|node| of_kind(&node)));
    for node in level
        .into_iter()
        .flat_map(|level| level.iter())
        .filter(of_kind)
    {
        let word = node.word(1).unwrap_or("");
        let allowed = node.keyword() == "allow";
        if word == "all" {
            context.used.insert(node.position);
            rules.push((Vec::new(), allowed));
            return rules;
        }
        let address = word.split('/').next().unwrap_or("");
        if address.parse::<std::net::IpAddr>().is_err() {
            node.reject(notes, "a route's `source` is a network");
            continue;
        }
        context.used.insert(node.position);
        match rules.last_mut() {
            Some((networks, same)) if *same == allowed => networks.push(word.to_owned()),
            _ => rules.push((vec![word.to_owned()], allowed)),
        }
    }
    rules.push((Vec::new(), true));
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EmptyEnvironment;

    fn parse_if(text: &str) -> Option<When> {
        let mut notes = Notes::default();
        let text = format!("{text} {{ return 403; }}");
        let nodes = super::super::tree::read(&EmptyEnvironment, &mut notes, "f", &text);
        when(&nodes[0], "http")
    }

    #[test]
    fn if_conditions_are_parsed() {
        assert_eq!(parse_if("if ($scheme = http)"), Some(When::Always));
        assert_eq!(parse_if("if ($scheme != \"https\")"), Some(When::Always));
        assert_eq!(parse_if("if ($https = on)"), Some(When::Never));
        let Some(When::Matches(condition)) = parse_if("if ($host = Old.example)") else {
            panic!("a host");
        };
        assert_eq!(condition.host.as_deref(), Some("old.example"));
        let Some(When::Matches(condition)) = parse_if("if ($http_x_forwarded_proto = http)") else {
            panic!("a field");
        };
        assert_eq!(condition.headers, ["x-forwarded-proto: http"]);
        assert_eq!(parse_if("if ($host != a)"), None);
        assert_eq!(parse_if("if (-f $request_filename)"), None);
        assert_eq!(parse_if("if ($http_user_agent ~* bot)"), None);
        assert_eq!(parse_if("if ($http_user_agent = *curl*)"), None);
    }
}
