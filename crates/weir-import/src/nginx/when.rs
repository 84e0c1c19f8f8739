//! Converts `if`, `allow` and `deny` to conditions of routes.

use super::Context;
use super::tree::Node;
use crate::layer7::Condition;
use crate::note::Notes;

/// The condition of an `if`.
#[expect(clippy::large_enum_variant, reason = "one value at a time")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum IfCondition {
    Always,
    Never,
    Matches(Condition),
}

/// Separates conditions that must all hold.
pub(super) const AND: &str = "\u{1}";
/// A condition that always holds.
pub(super) const ALWAYS: &str = "\u{2}";
/// Precedes the key and each value in the text of a condition that [`listed_condition`] returns.
const LIST_MARK: char = '\u{3}';

/// Returns the text of a condition that matches if a key of a route has one of these values.
pub(super) fn listed_condition(key: &str, values: &[String]) -> String {
    let values: Vec<String> = values
        .iter()
        .map(|value| format!("{LIST_MARK}{value}"))
        .collect();
    format!("{LIST_MARK}{key}{}", values.concat())
}

/// Returns the negation of a condition, or `None` if the condition does not begin with a variable or has no supported
/// operator.
pub(super) fn negated(text: &str) -> Option<String> {
    if let Some(rest) = text.strip_prefix(LIST_MARK) {
        return Some(match rest.strip_prefix('!') {
            Some(rest) => format!("{LIST_MARK}{rest}"),
            None => format!("{LIST_MARK}!{rest}"),
        });
    }
    let (variable, operator, value) = split_condition(text)?;
    let operator = match operator? {
        "=" => "!=",
        "!=" => "=",
        "~" => "!~",
        "!~" => "~",
        "~*" => "!~*",
        "!~*" => "~*",
        _ => return None,
    };
    Some(format!("{variable} {operator} {value}"))
}

/// Splits a condition into variable, operator and value. Without an operator, the value is empty. Returns `None` if
/// the condition does not begin with a variable.
pub(super) fn split_condition(text: &str) -> Option<(&str, Option<&str>, &str)> {
    let mut parts = text.trim().splitn(3, ' ');
    let variable = parts.next().filter(|it| it.starts_with('$'))?;
    let operator = parts.next();
    let value = parts.next().unwrap_or_default().trim();
    Some((variable, operator, value.trim_matches(['"', '\''])))
}

/// Parses a condition that [`listed_condition`] returned, without its first [`LIST_MARK`]. Returns `None` if routes do
/// not support the condition.
fn parse_listed(rest: &str) -> Option<Condition> {
    let mut parts = rest.split(LIST_MARK).map(str::to_owned);
    let key = parts.next()?;
    let values: Vec<String> = parts.collect();
    let (key, is_negated) = match key.strip_prefix('!') {
        Some(key) => (key.to_owned(), true),
        None => (key, false),
    };
    let mut condition = Condition::default();
    if is_negated {
        const KEYS: [&str; 6] = ["source", "header", "cookie", "query", "method", "host"];
        let key = KEYS.into_iter().find(|known| *known == key)?;
        condition.not.insert(key, values);
        return Some(condition);
    }
    match key.as_str() {
        "source" => condition.sources = values,
        "header" => condition.headers = values,
        "cookie" => condition.cookies = values,
        "query" => condition.queries = values,
        "method" => condition.methods = values,
        "host" if values.len() == 1 => condition.host = values.into_iter().next(),
        _ => return None,
    }
    Some(condition)
}

/// Parses `if ($host = old.example)` and similar conditions, for clients that use `scheme`. Returns `None` if routes do
/// not support the condition.
pub(super) fn parse_if(node: &Node, scheme: &str) -> Option<IfCondition> {
    let text = node.words.get(1..)?.join(" ");
    let inner = text.strip_prefix('(')?.strip_suffix(')')?.trim();
    let mut combined = Condition::default();
    for part in inner.split(AND) {
        match parse_generated(part).or_else(|| parse_single(part, scheme))? {
            IfCondition::Always => {}
            IfCondition::Never => return Some(IfCondition::Never),
            IfCondition::Matches(condition) => combined = combined.and(&condition)?,
        }
    }
    Some(match combined == Condition::default() {
        true => IfCondition::Always,
        false => IfCondition::Matches(combined),
    })
}

/// Parses a condition that this importer generated. Returns `None` if the condition is from the file, or if routes do
/// not support it.
fn parse_generated(inner: &str) -> Option<IfCondition> {
    match inner.strip_prefix(LIST_MARK) {
        Some(rest) => parse_listed(rest).map(IfCondition::Matches),
        None => (inner == ALWAYS).then_some(IfCondition::Always),
    }
}

/// Parses a single condition from the file. Returns `None` if routes do not support it.
fn parse_single(inner: &str, scheme: &str) -> Option<IfCondition> {
    let mut parts = inner.splitn(3, ' ');
    let (variable, operator, value) = match (parts.next()?, parts.next(), parts.next()) {
        (variable, Some(operator), Some(value)) => (variable, operator, value.trim()),
        (variable, Some(operator @ ("=" | "!=")), None) => (variable, operator, ""),
        // nginx treats a variable as false if it is empty or exactly `0`. The regular expression also excludes `00`,
        // `000` and so on.
        (variable, None, None) if variable.starts_with("$http_") => (variable, "~", "^.*[^0]"),
        _ => return None,
    };
    let value = value.trim_matches(['"', '\'']);
    let compare_constant = |constant: &str| {
        let is_equal = constant == value;
        match (operator, is_equal) {
            ("=", true) | ("!=", false) => Some(IfCondition::Always),
            ("=", false) | ("!=", true) => Some(IfCondition::Never),
            _ => None,
        }
    };
    match variable {
        "$scheme" => return compare_constant(scheme),
        "$https" => return compare_constant(if scheme == "https" { "on" } else { "" }),
        // Without TLS, the variable is empty.
        "$ssl_protocol" | "$ssl_cipher" if value.is_empty() => {
            return compare_constant(if scheme == "https" { "TLS" } else { "" });
        }
        _ => {}
    }
    // The regular expression `.` matches every value that is neither empty nor absent.
    let (operator, value) = match (operator, value) {
        ("=", "") => ("!~", "."),
        ("!=", "") => ("~", "."),
        other => other,
    };
    match variable {
        _ if value.is_empty() => return None,
        // In a route, `*` is a wildcard, and `~` begins a regular expression.
        _ if matches!(operator, "=" | "!=") && (value.contains('*') || value.starts_with('~')) => {
            return None;
        }
        _ => {}
    }
    let value_text = match operator {
        "=" | "!=" => value.to_owned(),
        "~" | "!~" => format!("~{value}"),
        "~*" | "!~*" => format!("~(?i){value}"),
        _ => return None,
    };
    let is_regex = operator.contains('~');
    let value = value_text.as_str();
    let mut condition = Condition::default();
    match variable {
        "$host" | "$http_host" if is_regex => condition.host = Some(value.to_owned()),
        "$host" | "$http_host" => condition.host = Some(value.to_ascii_lowercase()),
        "$request_method" if is_regex => condition.methods = parse_methods(value)?,
        "$request_method" => condition.methods = vec![value.to_owned()],
        "$uri" | "$document_uri" if is_regex => {
            condition.regex = Some(value.trim_start_matches('~').to_owned());
        }
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
    if !operator.starts_with('!') {
        return Some(IfCondition::Matches(condition));
    }
    // The condition is about one key, so its negation has one alternative.
    let mut alternatives = condition.negated().into_iter();
    alternatives.next().map(IfCondition::Matches)
}

/// Parses the methods of `~^(GET|HEAD)$`.
fn parse_methods(regex: &str) -> Option<Vec<String>> {
    let inner = regex.strip_prefix("~^(")?.strip_suffix(")$")?;
    let words: Vec<String> = inner.split('|').map(str::to_owned).collect();
    let is_method = |word: &String| word.bytes().all(|byte| byte.is_ascii_uppercase());
    words.iter().all(is_method).then_some(words)
}

/// Returns groups of networks in the order in which nginx evaluates them, and whether each group is allowed. A group
/// without networks contains all remaining clients. `levels` begin with the innermost level.
pub(super) fn access_rules(
    context: &mut Context<'_>,
    levels: &[&[Node]],
    notes: &mut Notes,
) -> Vec<(Vec<String>, bool)> {
    let is_rule = |node: &&Node| matches!(node.keyword(), "allow" | "deny");
    let mut rules: Vec<(Vec<String>, bool)> = Vec::new();
    // A level inherits the rules of the outer level unless it has its own rules.
    let level = levels
        .iter()
        .find(|level| level.iter().any(|node| is_rule(&node)));
    for node in level
        .into_iter()
        .flat_map(|level| level.iter())
        .filter(is_rule)
    {
        let word = node.word(1).unwrap_or("");
        let is_allowed = node.keyword() == "allow";
        if word == "all" {
            context.used.insert(node.position);
            rules.push((Vec::new(), is_allowed));
            return rules;
        }
        let address = word.split('/').next().unwrap_or("");
        if address.parse::<std::net::IpAddr>().is_err() {
            node.reject(
                notes,
                "a route's `source` accepts only addresses and networks",
            );
            continue;
        }
        context.used.insert(node.position);
        match rules.last_mut() {
            Some((networks, group_is_allowed)) if *group_is_allowed == is_allowed => {
                networks.push(word.to_owned())
            }
            _ => rules.push((vec![word.to_owned()], is_allowed)),
        }
    }
    rules.push((Vec::new(), true));
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EmptyEnvironment;

    fn parse_text(text: &str) -> Option<IfCondition> {
        let mut notes = Notes::default();
        let text = format!("{text} {{ return 403; }}");
        let nodes = super::super::tree::read_file(&EmptyEnvironment, &mut notes, "f", &text);
        super::parse_if(&nodes[0], "http")
    }

    #[test]
    fn if_conditions_are_parsed() {
        assert_eq!(parse_text("if ($scheme = http)"), Some(IfCondition::Always));
        assert_eq!(
            parse_text("if ($scheme != \"https\")"),
            Some(IfCondition::Always)
        );
        assert_eq!(parse_text("if ($https = on)"), Some(IfCondition::Never));
        let Some(IfCondition::Matches(condition)) = parse_text("if ($host = Old.example)") else {
            panic!("not a condition on the host");
        };
        assert_eq!(condition.host.as_deref(), Some("old.example"));
        let Some(IfCondition::Matches(condition)) =
            parse_text("if ($http_x_forwarded_proto = http)")
        else {
            panic!("not a condition on a field");
        };
        assert_eq!(condition.headers, ["x-forwarded-proto: http"]);
        let Some(IfCondition::Matches(condition)) = parse_text("if ($host != a)") else {
            panic!("not a condition on the host");
        };
        assert_eq!(condition.not["host"], ["a"]);
        let Some(IfCondition::Matches(condition)) =
            parse_text("if ($request_method !~ ^(GET|HEAD)$)")
        else {
            panic!("not a condition on the method");
        };
        assert_eq!(condition.not["method"], ["GET", "HEAD"]);
        let Some(IfCondition::Matches(condition)) =
            parse_text("if ($http_user_agent ~* (bot|spider))")
        else {
            panic!("not a condition on a field");
        };
        assert_eq!(condition.headers, ["user-agent: ~(?i)(bot|spider)"]);
        assert_eq!(
            parse_text("if ($ssl_protocol = \"\")"),
            Some(IfCondition::Always)
        );
        let Some(IfCondition::Matches(condition)) = parse_text("if ($cookie_token = \"\")") else {
            panic!("not a condition on a cookie");
        };
        assert_eq!(condition.not["cookie"], ["token=~."]);
        let Some(IfCondition::Matches(condition)) = parse_text("if ($http_upgrade != '')") else {
            panic!("not a condition on a field");
        };
        assert_eq!(condition.headers, ["upgrade: ~."]);
        assert_eq!(parse_text("if (-f $request_filename)"), None);
        assert_eq!(parse_text("if ($http_user_agent = *curl*)"), None);
    }

    #[test]
    fn negation_inverts_the_operator() {
        for (text, expected) in [
            ("$a = b", Some("$a != b")),
            ("$a != b", Some("$a = b")),
            ("$a ~ b", Some("$a !~ b")),
            ("$a !~ b", Some("$a ~ b")),
            ("$a ~* b", Some("$a !~* b")),
            ("$a !~* b", Some("$a ~* b")),
            ("$a = 'b c'", Some("$a != b c")),
            ("$a =", Some("$a != ")),
            ("$a", None),
            ("-f /x", None),
            ("$a -f b", None),
        ] {
            assert_eq!(negated(text).as_deref(), expected, "{text}");
        }
        let listed = listed_condition("source", &["10.0.0.0/8".to_owned(), "::1".to_owned()]);
        let twice = negated(&listed).and_then(|text| negated(&text));
        assert_ne!(negated(&listed), Some(listed.clone()));
        assert_eq!(twice, Some(listed));
    }

    #[test]
    fn conditions_are_split() {
        for (text, expected) in [
            (" $a = b ", Some(("$a", Some("="), "b"))),
            ("$a != \"b c\"", Some(("$a", Some("!="), "b c"))),
            ("$a =  ''", Some(("$a", Some("="), ""))),
            ("$a", Some(("$a", None, ""))),
            ("-e x", None),
            ("", None),
        ] {
            assert_eq!(split_condition(text), expected, "{text}");
        }
    }

    /// Returns the condition that this key of a route has these values.
    fn condition_on(key: &str, values: &[&str]) -> Condition {
        let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        let mut condition = Condition::default();
        match key {
            "host" => condition.host = values.into_iter().next(),
            "regex" => condition.regex = values.into_iter().next(),
            "source" => condition.sources = values,
            "header" => condition.headers = values,
            "cookie" => condition.cookies = values,
            "query" => condition.queries = values,
            _ => condition.methods = values,
        }
        condition
    }

    fn condition_on_not(key: &'static str, values: &[&str]) -> Condition {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        Condition {
            not: [(key, values)].into(),
            ..Condition::default()
        }
    }

    #[test]
    fn listed_conditions_are_parsed() {
        let parse = |text: &str| match parse_generated(text) {
            Some(IfCondition::Matches(condition)) => Some(condition),
            other => {
                assert_eq!(other, None, "{text:?}");
                None
            }
        };
        for key in ["source", "header", "cookie", "query", "method", "host"] {
            let text = listed_condition(key, &["a".to_owned()]);
            assert_eq!(parse(&text), Some(condition_on(key, &["a"])), "{key}");
            let not = negated(&text).unwrap_or_default();
            assert_eq!(
                parse(&not),
                Some(condition_on_not(key, &["a"])),
                "not {key}"
            );
            let text = listed_condition(key, &["a".to_owned(), "b".to_owned()]);
            // `Condition` supports only one host.
            let expected = (key != "host").then(|| condition_on(key, &["a", "b"]));
            assert_eq!(parse(&text), expected, "{key}");
            let not = negated(&text).unwrap_or_default();
            assert_eq!(
                parse(&not),
                Some(condition_on_not(key, &["a", "b"])),
                "not {key}"
            );
        }
        let unknown = listed_condition("path", &["a".to_owned()]);
        assert_eq!(parse(&unknown), None);
        assert_eq!(parse(&negated(&unknown).unwrap_or_default()), None);
        assert_eq!(parse("$host = a"), None, "from the file");
        assert_eq!(parse_generated(ALWAYS), Some(IfCondition::Always));
    }

    /// Conditions, each with the route key and the values that it becomes; `!` precedes the key of a negation.
    const CONDITIONS: [(&str, &str, &[&str]); 30] = [
        ("$host = Old.example", "host", &["old.example"]),
        ("$http_host = Old.example", "host", &["old.example"]),
        ("$host ~ ^Old", "host", &["~^Old"]),
        ("$http_host ~* ^Old", "host", &["~(?i)^Old"]),
        ("$host != a", "!host", &["a"]),
        ("$host !~ ^a", "!host", &["~^a"]),
        ("$host !~* ^a", "!host", &["~(?i)^a"]),
        ("$request_method = POST", "method", &["POST"]),
        ("$request_method != POST", "!method", &["POST"]),
        ("$request_method ~ ^(GET|HEAD)$", "method", &["GET", "HEAD"]),
        (
            "$request_method !~ ^(GET|HEAD)$",
            "!method",
            &["GET", "HEAD"],
        ),
        ("$uri ~ ^/a", "regex", &["^/a"]),
        ("$document_uri ~ ^/a", "regex", &["^/a"]),
        ("$uri ~* ^/a", "regex", &["(?i)^/a"]),
        ("$http_x_a = b", "header", &["x-a: b"]),
        ("$http_x_a = \"b c\"", "header", &["x-a: b c"]),
        ("$http_x_a != b", "!header", &["x-a: b"]),
        ("$http_x_a ~ b", "header", &["x-a: ~b"]),
        ("$http_x_a !~* b", "!header", &["x-a: ~(?i)b"]),
        ("$http_x_a", "header", &["x-a: ~^.*[^0]"]),
        ("$http_x_a = \"\"", "!header", &["x-a: ~."]),
        ("$http_x_a != \"\"", "header", &["x-a: ~."]),
        ("$arg_a_b = c", "query", &["a_b=c"]),
        ("$arg_a ~* c", "query", &["a=~(?i)c"]),
        ("$arg_a != c", "!query", &["a=c"]),
        ("$cookie_a_b = c", "cookie", &["a_b=c"]),
        ("$cookie_a !~ c", "!cookie", &["a=~c"]),
        ("$cookie_a = \"\"", "!cookie", &["a=~."]),
        ("$http_x_a ~ *b", "header", &["x-a: ~*b"]),
        ("$http_x_a = b~", "header", &["x-a: b~"]),
    ];

    #[test]
    fn variables_become_route_keys() {
        for (text, key, values) in CONDITIONS {
            let expected = match key.strip_prefix('!') {
                Some("host") => condition_on_not("host", values),
                Some("method") => condition_on_not("method", values),
                Some("header") => condition_on_not("header", values),
                Some("query") => condition_on_not("query", values),
                Some(_) => condition_on_not("cookie", values),
                None => condition_on(key, values),
            };
            let found = parse_text(&format!("if ({text})"));
            assert_eq!(found, Some(IfCondition::Matches(expected)), "{text}");
        }
    }

    #[test]
    fn constant_conditions_are_evaluated() {
        for (text, matching_schemes) in [
            ("$scheme = http", ["http", ""]),
            ("$scheme != http", ["https", ""]),
            ("$https = on", ["https", ""]),
            ("$https != on", ["http", ""]),
            ("$https = \"\"", ["http", ""]),
            ("$ssl_protocol = \"\"", ["http", ""]),
            ("$ssl_cipher != \"\"", ["https", ""]),
            ("$scheme != ftp", ["http", "https"]),
            ("$scheme = ftp", ["", ""]),
        ] {
            let node = read_first(&format!("if ({text}) {{ return 403; }}"));
            for scheme in ["http", "https"] {
                let expected = match matching_schemes.contains(&scheme) {
                    true => IfCondition::Always,
                    false => IfCondition::Never,
                };
                assert_eq!(parse_if(&node, scheme), Some(expected), "{text}, {scheme}");
            }
        }
    }

    fn read_first(text: &str) -> Node {
        let mut notes = Notes::default();
        super::super::tree::read_file(&EmptyEnvironment, &mut notes, "f", text).remove(0)
    }

    #[test]
    fn unsupported_conditions_are_not_parsed() {
        for text in [
            "if ($host)",
            "if ($arg_a)",
            "if ($http_a ~)",
            "if ($host -f x)",
            "if ($scheme ~ http)",
            "if ($ssl_protocol = TLSv1.2)",
            "if ($http_a ~ \"\")",
            "if ($http_a = ~b)",
            "if ($http_a != ~b)",
            "if ($http_a = b*)",
            "if ($uri = /a)",
            "if ($request_method ~ GET)",
            "if ($request_method ~ ^(GET|he)$)",
            "if ($request_method ~ ^(GET|HEAD))",
            "if ($geoip_country = DE)",
            "if $host = a",
        ] {
            assert_eq!(parse_text(text), None, "{text}");
        }
    }

    #[test]
    fn combined_conditions_must_all_hold() {
        let parse = |parts: &[&str]| {
            let words = vec!["if".to_owned(), format!("({})", parts.join(AND))];
            let position = crate::note::Position::FIRST;
            parse_if(&Node::new(position, words, None), "http")
        };
        let both = Condition {
            host: Some("a".to_owned()),
            headers: vec!["b: c".to_owned()],
            ..Condition::default()
        };
        let expected = Some(IfCondition::Matches(both));
        assert_eq!(parse(&["$host = a", "$http_b = c"]), expected);
        assert_eq!(parse(&["$host = a", ALWAYS, "$http_b = c"]), expected);
        assert_eq!(
            parse(&[ALWAYS, "$scheme = http"]),
            Some(IfCondition::Always)
        );
        let never = Some(IfCondition::Never);
        assert_eq!(parse(&["$host = a", "$scheme = https"]), never);
        assert_eq!(parse(&["$host = a", "-f x"]), None);
    }
}
