//! Converts `reqadd`, `reqrep` and similar rules from before haproxy 2.1 to the rules that replaced them.

/// Returns the equivalent current rule, or the words unchanged.
pub(super) fn modern(words: Vec<String>) -> Vec<String> {
    rule(&words).unwrap_or(words)
}

fn rule(words: &[String]) -> Option<Vec<String>> {
    let (keyword, rest) = words.split_first()?;
    let (stage, rest) = match keyword.get(..3)? {
        "req" => ("http-request", rest),
        "rsp" => ("http-response", rest),
        _ => return None,
    };
    let (pattern, rest) = rest.split_first()?;
    let built = |verb: &str, arguments: &[&str], rest: &[String]| {
        let mut rule = vec![stage.to_owned(), verb.to_owned()];
        rule.extend(arguments.iter().map(|word| (*word).to_owned()));
        rule.extend(rest.iter().cloned());
        Some(rule)
    };
    match keyword.get(3..)? {
        "add" => {
            let (name, value) = field(pattern)?;
            built("add-header", &[name, value], rest)
        }
        "del" | "idel" => built("del-header", &[field_name(pattern)?], rest),
        "rep" | "irep" => {
            let (to, rest) = rest.split_first()?;
            let Some(name) = field_name(pattern) else {
                let (regex, path) = path_of(pattern, to).filter(|_| stage == "http-request")?;
                return built("replace-path", &[&regex, &path], rest);
            };
            // The replacement is the whole line of the field.
            let (new, value) = field(to)?;
            let same = new.eq_ignore_ascii_case(name) && !value.contains('\\');
            same.then(|| built("set-header", &[new, value], rest))?
        }
        _ => None,
    }
}

/// Splits `Name: value`.
fn field(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.split_once(':')?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    (!name.is_empty() && name.bytes().all(plain)).then(|| (name, value.trim()))
}

/// Returns the field of `^Name:.*`, an expression that matches the field's whole line.
fn field_name(pattern: &str) -> Option<&str> {
    let (name, rest) = pattern.strip_prefix('^')?.split_once(':')?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let whole = matches!(rest, "" | ".*" | ".*$" | " .*" | "\\ .*" | "(.*)");
    (whole && !name.is_empty() && name.bytes().all(plain)).then_some(name)
}

/// Returns expression and replacement for the path, for an expression for the request line: `^([^ :]*) /a/(.*)` and `\1
/// /\2`, or `^([^ ]* /)a/(.*)` and `\1\2`.
fn path_of(pattern: &str, to: &str) -> Option<(String, String)> {
    const WITH_SLASH: [&str; 3] = ["^([^ ]* /)", "^([^ :]* /)", "^([^\\ ]*\\ /)"];
    const BEFORE: [&str; 4] = [
        "^([^ :]*) /",
        "^([^ ]*) /",
        "^([^\\ :]*)\\ /",
        "^([^\\ ]*)\\ /",
    ];
    let after = |prefixes: &[&str]| prefixes.iter().find_map(|it| pattern.strip_prefix(it));
    let (rest, to) = match (after(&WITH_SLASH), after(&BEFORE)) {
        (Some(rest), _) => (rest, to.strip_prefix("\\1")?.trim_start_matches('/')),
        (_, Some(rest)) => (
            rest,
            to.strip_prefix("\\1")?.trim_start().strip_prefix('/')?,
        ),
        _ => return None,
    };
    // The last group takes the rest of the line, with the query and the version.
    let front = rest.strip_suffix("(.*)").or(rest.strip_suffix("(.*)$"))?;
    let is_last = to.ends_with("\\2") && to.matches('\\').count() == 1;
    (!front.contains('(') && is_last).then(|| {
        let path = to.replace("\\2", "\\1");
        (format!("^/{front}(.*)"), format!("/{path}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(words: &[&str]) -> String {
        modern(words.iter().map(|word| (*word).to_owned()).collect()).join(" ")
    }

    #[test]
    fn old_rules_become_current_rules() {
        assert_eq!(
            shown(&["reqadd", "X-Forwarded-Proto: https", "if", "a"]),
            "http-request add-header X-Forwarded-Proto https if a"
        );
        assert_eq!(
            shown(&["rspidel", "^Server:.*"]),
            "http-response del-header Server"
        );
        assert_eq!(
            shown(&["reqirep", "^Host:", "Host: app.example"]),
            "http-request set-header Host app.example"
        );
        for (pattern, to) in [
            ("^([^ :]*) /a/(.*)", "\\1 /\\2"),
            ("^([^ ]* /)a/(.*)", "\\1\\2"),
        ] {
            assert_eq!(
                shown(&["reqrep", pattern, to]),
                "http-request replace-path ^/a/(.*) /\\1"
            );
        }
    }

    #[test]
    fn other_rules_are_unchanged() {
        for words in [
            &["reqrep", "^Host: (.*)", "Host: www.\\1"] as &[&str],
            &["reqdeny", "^GET"],
            &["rspidel", "Server"],
            &["reqrep", "^([^ ]*) /(a|b)(.*)", "\\1 /\\2\\3"],
        ] {
            assert_eq!(shown(words), words.join(" "));
        }
    }
}
