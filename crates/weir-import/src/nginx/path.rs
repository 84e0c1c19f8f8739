//! Converts paths of locations and files to paths of routes.

/// Returns the absolute path for a path that may be relative to nginx's prefix. The prefix is a build option; this
/// function assumes the prefix of common packages.
pub(super) fn absolute_path(path: &str) -> String {
    const NGINX_PREFIX: &str = "/usr/share/nginx";
    match path.starts_with('/') || path.is_empty() {
        true => path.to_owned(),
        false => format!("{NGINX_PREFIX}/{path}"),
    }
}

/// Returns `try` of `files` for the words of `try_files`, or `None` if `try` cannot express them. The last word can be
/// a location with a pool.
pub(super) fn try_candidates(words: &[String], has_pool: bool) -> Option<Vec<String>> {
    let (last, others) = words.split_last()?;
    let mut candidates = Vec::new();
    for word in others {
        let word = word.replace("$uri", "{path}");
        if word.contains(['$', '@', '=']) || !word.starts_with(['/', '{']) {
            return None;
        }
        candidates.push(word);
    }
    // The fallback for missing files is status 404, a named location with a pool, or a page.
    match last.as_str() {
        "=404" => {}
        name if has_pool && name.starts_with('@') => {}
        page if page.starts_with('/') && !page.contains(['$', '?']) && !page.ends_with('/') => {
            candidates.push(page.to_owned());
        }
        _ => return None,
    }
    (!candidates.is_empty()).then_some(candidates)
}

/// Returns the path of a route for a prefix location, or `None` for `/`, which matches every path.
pub(super) fn prefix_pattern(text: &str) -> Option<String> {
    (text != "/").then(|| format!("{}*", percent_encode(text)))
}

/// Percent-encodes a decoded path into the form that routes compare.
pub(super) fn percent_encode(text: &str) -> String {
    let mut path = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && !b"\"#%<>?\\^`{|}".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
    path
}

/// Converts `\.(png|jpg)$` to `*.png` and `*.jpg`. Returns `None` if the pattern is not a list of file extensions.
pub(super) fn parse_extensions(pattern: &str) -> Option<Vec<String>> {
    let inner = pattern.strip_prefix("\\.")?.strip_suffix('$')?;
    let inner = match inner.strip_prefix('(') {
        Some(rest) => rest.trim_start_matches("?:").strip_suffix(')')?,
        None => inner,
    };
    let is_alphanumeric =
        |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let words: Vec<&str> = inner.split('|').collect();
    let are_alphanumeric = words.iter().all(|word| is_alphanumeric(word));
    are_alphanumeric.then(|| words.iter().map(|word| format!("*.{word}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_of_paths_are_percent_encoded() {
        assert_eq!(
            percent_encode("/a b/\u{e9}%20;x=1"),
            "/a%20b/%C3%A9%2520;x=1"
        );
    }

    #[test]
    fn list_of_extensions_is_parsed() {
        assert_eq!(
            parse_extensions(r"\.(png|jpg)$"),
            Some(vec!["*.png".into(), "*.jpg".into()])
        );
        assert_eq!(parse_extensions(r"\.php$"), Some(vec!["*.php".into()]));
        assert_eq!(parse_extensions(r"^/a/\d+"), None);
        assert_eq!(parse_extensions(r"\.(a|)$"), None);
    }

    #[test]
    fn relative_paths_are_below_the_prefix() {
        for (path, expected) in [
            ("/srv", "/srv"),
            ("", ""),
            ("html", "/usr/share/nginx/html"),
        ] {
            assert_eq!(absolute_path(path), expected, "{path}");
        }
    }

    #[test]
    fn paths_of_prefix_locations_become_patterns() {
        assert_eq!(prefix_pattern("/"), None);
        assert_eq!(prefix_pattern("/a b/").as_deref(), Some("/a%20b/*"));
    }

    #[test]
    fn words_of_try_files_become_candidates() {
        for (words, has_pool, expected) in [
            ("$uri =404", false, Some("{path}")),
            (
                "$uri $uri/ /index.html",
                false,
                Some("{path} {path}/ /index.html"),
            ),
            ("/a$uri.html =404", false, Some("/a{path}.html")),
            ("$uri @app", true, Some("{path}")),
            ("$uri @app", false, None),
            ("$uri app", true, None),
            ("/index.html", false, Some("/index.html")),
            ("=404", false, None),
            ("@app", true, None),
            ("$uri =403", false, None),
            ("$uri /index.php?a=b", false, None),
            ("$uri /a$b", false, None),
            ("$uri /a/", false, None),
            ("$uri a", false, None),
            ("$document_root$uri =404", false, None),
            ("a$uri =404", false, None),
            ("/a@b =404", false, None),
            ("", false, None),
        ] {
            let word_list = words.split(' ').filter(|word| !word.is_empty());
            let word_list: Vec<String> = word_list.map(str::to_owned).collect();
            let candidates = try_candidates(&word_list, has_pool).map(|it| it.join(" "));
            assert_eq!(candidates.as_deref(), expected, "{words}");
        }
    }

    #[test]
    fn only_lists_of_extensions_are_parsed() {
        let parse = |pattern| parse_extensions(pattern).map(|words| words.join(" "));
        for (pattern, expected) in [
            (r"\.(?:a|b2)$", Some("*.a *.b2")),
            (r"\.(a-b)$", None),
            (r"\.(a", None),
            (r"\.a", None),
            (r"\.(a|b$", None),
            (r"\.$", None),
        ] {
            assert_eq!(parse(pattern).as_deref(), expected, "{pattern}");
        }
    }
}
