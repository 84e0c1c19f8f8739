//! Converts paths of locations and files to those of routes.

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
    // The fallback for missing files is a page or status 404.
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
}
