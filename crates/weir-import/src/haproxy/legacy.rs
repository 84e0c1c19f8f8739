//! Converts `reqadd`, `reqrep` and similar rules from before haproxy 2.1 to the rules that replaced them.

/// Returns the equivalent current rule, or the words unchanged.
pub(super) fn modernize(words: Vec<String>) -> Vec<String> {
    modern_rule(&words).unwrap_or(words)
}

fn modern_rule(words: &[String]) -> Option<Vec<String>> {
    let (keyword, arguments) = words.split_first()?;
    let (stage, arguments) = match keyword.get(..3)? {
        "req" => ("http-request", arguments),
        "rsp" => ("http-response", arguments),
        _ => return None,
    };
    let (pattern, arguments) = arguments.split_first()?;
    let build = |verb: &str, arguments: &[&str], extra_words: &[String]| {
        let mut rule = vec![stage.to_owned(), verb.to_owned()];
        rule.extend(arguments.iter().map(|word| (*word).to_owned()));
        rule.extend(extra_words.iter().cloned());
        Some(rule)
    };
    match keyword.get(3..)? {
        "add" => {
            let (name, value) = split_field(pattern)?;
            build("add-header", &[name, value], arguments)
        }
        "del" | "idel" => build("del-header", &[field_name(pattern)?], arguments),
        "rep" | "irep" => {
            let (replacement, arguments) = arguments.split_first()?;
            if stage == "http-response"
                && let Some((name, regex, value)) = value_replacement(pattern, replacement)
            {
                let flags = if keyword.ends_with("irep") {
                    "(?i)"
                } else {
                    ""
                };
                let regex = format!("{flags}^{regex}");
                return build("replace-header", &[name, &regex, value], arguments);
            }
            let Some(name) = field_name(pattern) else {
                let (regex, path) =
                    path_replacement(pattern, replacement).filter(|_| stage == "http-request")?;
                return build("replace-path", &[&regex, &path], arguments);
            };
            // The replacement is the field's whole line.
            let (new_name, value) = split_field(replacement)?;
            let is_same_field = new_name.eq_ignore_ascii_case(name) && !value.contains('\\');
            is_same_field.then(|| build("set-header", &[new_name, value], arguments))?
        }
        _ => None,
    }
}

/// Splits `Name: value`.
fn split_field(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.split_once(':')?;
    let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    (!name.is_empty() && name.bytes().all(is_name_byte)).then(|| (name, value.trim()))
}

/// Returns the field name in `^Name:.*`, a regular expression that matches the field's whole line.
fn field_name(pattern: &str) -> Option<&str> {
    let (name, value_pattern) = pattern.strip_prefix('^')?.split_once(':')?;
    let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let is_whole_line = matches!(value_pattern, "" | ".*" | ".*$" | " .*" | "\\ .*" | "(.*)");
    (is_whole_line && !name.is_empty() && name.bytes().all(is_name_byte)).then_some(name)
}

/// Converts `^Name: VALUE` and `Name: TEXT` to the field's name, the regular expression for its value, and the new
/// value, which must refer to a group.
fn value_replacement<'a>(
    pattern: &'a str,
    replacement: &'a str,
) -> Option<(&'a str, &'a str, &'a str)> {
    const SPACE: [&str; 6] = ["[ ]*", "\\s*", "\\s+", " *", "\\ ", " "];
    let (name, value_pattern) = pattern.strip_prefix('^')?.split_once(':')?;
    let (new_name, value) = split_field(replacement)?;
    let is_same_field =
        split_field(&pattern[1..])?.0 == name && new_name.eq_ignore_ascii_case(name);
    let value_pattern = SPACE
        .iter()
        .find_map(|space| value_pattern.strip_prefix(space))
        .unwrap_or(value_pattern);
    (is_same_field && value.contains('\\')).then_some((name, value_pattern, value))
}

/// Converts a regular expression for the request line and its replacement to those for the path. Supports
/// `^([^ :]*) /a/(.*)` with `\1 /\2`, and `^([^ ]* /)a/(.*)` with `\1\2`.
fn path_replacement(pattern: &str, replacement: &str) -> Option<(String, String)> {
    const METHOD_AND_SLASH: [&str; 3] = ["^([^ ]* /)", "^([^ :]* /)", "^([^\\ ]*\\ /)"];
    const METHOD: [&str; 4] = [
        "^([^ :]*) /",
        "^([^ ]*) /",
        "^([^\\ :]*)\\ /",
        "^([^\\ ]*)\\ /",
    ];
    let strip_any = |prefixes: &[&str]| prefixes.iter().find_map(|it| pattern.strip_prefix(it));
    let (path_pattern, replacement) = match (strip_any(&METHOD_AND_SLASH), strip_any(&METHOD)) {
        (Some(path_pattern), _) => (
            path_pattern,
            replacement.strip_prefix("\\1")?.trim_start_matches('/'),
        ),
        (_, Some(path_pattern)) => (
            path_pattern,
            replacement
                .strip_prefix("\\1")?
                .trim_start()
                .strip_prefix('/')?,
        ),
        _ => return None,
    };
    // The last group matches the end of the line, with the query and the version.
    let prefix = path_pattern
        .strip_suffix("(.*)")
        .or(path_pattern.strip_suffix("(.*)$"))?;
    let is_last = replacement.ends_with("\\2") && replacement.matches('\\').count() == 1;
    (!prefix.contains('(') && is_last).then(|| {
        let path = replacement.replace("\\2", "\\1");
        (format!("^/{prefix}(.*)"), format!("/{path}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modern_line(words: &[&str]) -> String {
        modernize(words.iter().map(|word| (*word).to_owned()).collect()).join(" ")
    }

    #[test]
    fn old_rules_become_current_rules() {
        assert_eq!(
            modern_line(&["reqadd", "X-Forwarded-Proto: https", "if", "a"]),
            "http-request add-header X-Forwarded-Proto https if a"
        );
        assert_eq!(
            modern_line(&["rspidel", "^Server:.*"]),
            "http-response del-header Server"
        );
        assert_eq!(
            modern_line(&["reqirep", "^Host:", "Host: app.example"]),
            "http-request set-header Host app.example"
        );
        assert_eq!(
            modern_line(&[
                "rspirep",
                "^Location: http://(.*)",
                "Location: https://\\1",
                "if",
                "a"
            ]),
            "http-response replace-header Location (?i)^http://(.*) https://\\1 if a"
        );
        assert_eq!(
            modern_line(&["rsprep", "^Set-Cookie:\\s*(.*)", "Set-Cookie: \\1; Secure"]),
            "http-response replace-header Set-Cookie ^(.*) \\1; Secure"
        );
        for (pattern, to) in [
            ("^([^ :]*) /a/(.*)", "\\1 /\\2"),
            ("^([^ ]* /)a/(.*)", "\\1\\2"),
        ] {
            assert_eq!(
                modern_line(&["reqrep", pattern, to]),
                "http-request replace-path ^/a/(.*) /\\1"
            );
        }
    }

    /// Rules from before haproxy 2.1, and the rules that replaced them.
    const RULES: &[(&[&str], &str)] = &[
        (&["reqadd", "X_A-1:b"], "http-request add-header X_A-1 b"),
        (&["rspadd", "X-A:  b "], "http-response add-header X-A b"),
        (
            &["reqdel", "^X-A:", "unless", "a"],
            "http-request del-header X-A unless a",
        ),
        (&["reqidel", "^x_a:.*$"], "http-request del-header x_a"),
        (&["rspdel", "^X-A: .*"], "http-response del-header X-A"),
        (&["rspdel", "^X-A:\\ .*"], "http-response del-header X-A"),
        (&["rspdel", "^X-A:(.*)"], "http-response del-header X-A"),
        (
            &["rsprep", "^Location:.*", "location: /x"],
            "http-response set-header location /x",
        ),
        (
            &["reqrep", "^Host:.*", "HOST: a", "if", "b"],
            "http-request set-header HOST a if b",
        ),
        (
            &["rsprep", "^X-A:[ ]*(a)(.*)", "x-a: \\2"],
            "http-response replace-header X-A ^(a)(.*) \\2",
        ),
        (
            &["rsprep", "^X-A: *(.*)", "X-A: \\1"],
            "http-response replace-header X-A ^(.*) \\1",
        ),
        (
            &["rsprep", "^X-A:\\s+(.*)", "X-A: \\1"],
            "http-response replace-header X-A ^(.*) \\1",
        ),
        (
            &["rsprep", "^X-A:\\ (.*)", "X-A: \\1"],
            "http-response replace-header X-A ^(.*) \\1",
        ),
        (
            &["rsprep", "^X-A:(a.*)", "X-A: \\1"],
            "http-response replace-header X-A ^(a.*) \\1",
        ),
        (
            &["reqirep", "^([^\\ :]*)\\ /a(.*)", "\\1 /b\\2", "if", "c"],
            "http-request replace-path ^/a(.*) /b\\1 if c",
        ),
        (
            &["reqrep", "^([^ ]*) /a(.*)$", "\\1  /\\2"],
            "http-request replace-path ^/a(.*) /\\1",
        ),
        (
            &["reqrep", "^([^\\ ]*)\\ /(.*)", "\\1 /x/\\2"],
            "http-request replace-path ^/(.*) /x/\\1",
        ),
        (
            &["reqrep", "^([^ :]* /)a/(.*)", "\\1/\\2"],
            "http-request replace-path ^/a/(.*) /\\1",
        ),
        (
            &["reqrep", "^([^\\ ]*\\ /)a/(.*)", "\\1b/\\2"],
            "http-request replace-path ^/a/(.*) /b/\\1",
        ),
    ];

    #[test]
    fn each_form_of_an_old_rule_is_recognized() {
        for (words, expected) in RULES {
            assert_eq!(modern_line(words), *expected, "{words:?}");
        }
    }

    #[test]
    fn rules_without_an_equivalent_are_unchanged() {
        for words in [
            &["reqrep", "^Host: (.*)", "Host: www.\\1"] as &[&str],
            &["reqdeny", "^GET"],
            &["rspidel", "Server"],
            &["reqrep", "^([^ ]*) /(a|b)(.*)", "\\1 /\\2\\3"],
            // The pattern is unsupported, or the replacement changes the method or the end of the line.
            &["reqrep", "^([^ :]*) /a/(.*)", "\\1 /\\2\\2"],
            &["reqrep", "^([^ :]*) /a/(.*)", "\\1 /\\2x"],
            &["reqrep", "^([^ :]*) /a/(.*)", "\\1 /b"],
            &["reqrep", "^([^ :]*) /a/(.+)", "\\1 /\\2"],
            &["reqrep", "^([^ ]*) /(a|b)(.*)", "\\1 /\\2"],
            &["reqrep", "^([^ ]* /)(a|b)(.*)", "\\1\\2"],
            &["reqrep", "^([^ :]*) /a/(.*)", "GET /\\2"],
            &["reqrep", "^([^ :]*) /a/(.*)", "\\1 x\\2"],
            &["reqrep", "/a/(.*)", "/\\1"],
            // Rules for responses do not match the request line.
            &["rsprep", "^([^ :]*) /a/(.*)", "\\1 /\\2"],
            &["reqrep", "^Host:(.*)", "Host: www.\\1"],
            &["reqrep", "^Host:.*", "X-Host: a"],
            &["reqrep", "^Host:.*", "a"],
            &["reqrep", "^Host:.*"],
            &["rsprep", "^Location: a(.*)", "Refresh: \\1"],
            &["rsprep", "^Server: a(.*)", "Server: b"],
            &["reqadd", ":value"],
            &["reqadd", "X A: b"],
            &["reqadd", "X-A"],
            &["reqadd"],
            &["reqdel", "^:.*"],
            &["reqdel", "^X A:.*"],
            &["reqdel", "^X-A: b"],
            &["reqdel", "^X-A"],
            &["redirect", "^X-A:"],
            &["req", "^X-A:"],
            &["re"],
            &[],
        ] {
            assert_eq!(modern_line(words), words.join(" "), "{words:?}");
        }
    }
}
