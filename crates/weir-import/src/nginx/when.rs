//! `if`, `allow` and `deny`: for which of a location's requests something is, as far as a route can say that.

use super::Context;
use super::tree::Node;
use crate::layer7::Condition;
use crate::note::Notes;

/// What an `if` asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum When {
    Always,
    Never,
    Fits(Condition),
}

/// `if ($host = old.example)` and the like, of clients of `scheme`; `None` = a route cannot ask it.
pub(super) fn when(node: &Node, scheme: &str) -> Option<When> {
    let text = node.words.get(1..)?.join(" ");
    let inner = text.strip_prefix('(')?.strip_suffix(')')?.trim();
    let [variable, sign, value] = inner.split(' ').collect::<Vec<&str>>()[..] else {
        return None;
    };
    let value = value.trim_matches(['"', '\'']);
    let known = |own: &str| {
        let same = own == value;
        match (sign, same) {
            ("=", true) | ("!=", false) => Some(When::Always),
            ("=", false) | ("!=", true) => Some(When::Never),
            _ => None,
        }
    };
    match variable {
        "$scheme" => return known(scheme),
        "$https" => return known(if scheme == "https" { "on" } else { "" }),
        // A star would stand for anything.
        _ if sign != "=" || value.is_empty() || value.contains('*') => return None,
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
    Some(When::Fits(condition))
}

/// Networks, in the order in which nginx tries them, and whether they may come in; none = everybody who is left.
pub(super) fn admitted(
    context: &mut Context<'_>,
    levels: &[&[Node]],
    notes: &mut Notes,
) -> Vec<(Vec<String>, bool)> {
    let of_kind = |node: &&Node| matches!(node.keyword(), "allow" | "deny");
    let mut rules: Vec<(Vec<String>, bool)> = Vec::new();
    // A level has the rules of the one around it, unless it has its own.
    let level = levels
        .iter()
        .find(|level| level.iter().any(|node| of_kind(&node)));
    for node in level
        .into_iter()
        .flat_map(|level| level.iter())
        .filter(of_kind)
    {
        let word = node.word(1).unwrap_or("");
        let may = node.keyword() == "allow";
        if word == "all" {
            context.used.insert(node.place);
            rules.push((Vec::new(), may));
            return rules;
        }
        let address = word.split('/').next().unwrap_or("");
        if address.parse::<std::net::IpAddr>().is_err() {
            node.refuse(notes, "a route's `source` is a network");
            continue;
        }
        context.used.insert(node.place);
        match rules.last_mut() {
            Some((networks, same)) if *same == may => networks.push(word.to_owned()),
            _ => rules.push((vec![word.to_owned()], may)),
        }
    }
    rules.push((Vec::new(), true));
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Alone;

    fn asked(text: &str) -> Option<When> {
        let mut notes = Notes::default();
        let text = format!("{text} {{ return 403; }}");
        let nodes = super::super::tree::read(&Alone, &mut notes, "f", &text);
        when(&nodes[0], "http")
    }

    #[test]
    fn what_an_if_asks() {
        assert_eq!(asked("if ($scheme = http)"), Some(When::Always));
        assert_eq!(asked("if ($scheme != \"https\")"), Some(When::Always));
        assert_eq!(asked("if ($https = on)"), Some(When::Never));
        let Some(When::Fits(condition)) = asked("if ($host = Old.example)") else {
            panic!("a host");
        };
        assert_eq!(condition.host.as_deref(), Some("old.example"));
        let Some(When::Fits(condition)) = asked("if ($http_x_forwarded_proto = http)") else {
            panic!("a field");
        };
        assert_eq!(condition.headers, ["x-forwarded-proto: http"]);
        assert_eq!(asked("if ($host != a)"), None);
        assert_eq!(asked("if (-f $request_filename)"), None);
        assert_eq!(asked("if ($http_user_agent ~* bot)"), None);
        assert_eq!(asked("if ($http_user_agent = *curl*)"), None);
    }
}
