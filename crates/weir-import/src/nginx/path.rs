//! Converts paths of locations and files to those of routes.

/// Returns an absolute path for a path relative to nginx's prefix, which is a build option: that of common packages.
pub(super) fn absolute(path: &str) -> String {
    const PREFIX: &str = "/usr/share/nginx";
    match path.starts_with('/') || path.is_empty() {
        true => path.to_owned(),
        false => format!("{PREFIX}/{path}"),
    }
}

/// Returns `try` of `files` for the words of `try_files`, the last of which may be a location with a pool; `None` =
/// `try` cannot express them.
pub(super) fn candidates(words: &[String], has_pool: bool) -> Option<Vec<String>> {
    let (last, first) = words.split_last()?;
    let mut all = Vec::new();
    for word in first {
        let word = word.replace("$uri", "{path}");
        if word.contains(['$', '@', '=']) || !word.starts_with(['/', '{']) {
            return None;
        }
        all.push(word);
    }
    // For missing files: a page, or status 404.
    match last.as_str() {
        "=404" => {}
        name if has_pool && name.starts_with('@') => {}
        page if page.starts_with('/') && !page.contains(['$', '?']) && !page.ends_with('/') => {
            all.push(page.to_owned());
        }
        _ => return None,
    }
    (!all.is_empty()).then_some(all)
}

/// Returns the path of a route for a prefix location; `None` = `/`, which matches every path.
pub(super) fn prefix(text: &str) -> Option<String> {
    (text != "/").then(|| format!("{}*", escaped(text)))
}

/// Percent-encodes a decoded path, as routes compare it.
pub(super) fn escaped(text: &str) -> String {
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

/// Parses `\.(png|jpg)$`, an expression that is a list of file extensions.
pub(super) fn endings(pattern: &str) -> Option<Vec<String>> {
    let inner = pattern.strip_prefix("\\.")?.strip_suffix('$')?;
    let inner = match inner.strip_prefix('(') {
        Some(rest) => rest.trim_start_matches("?:").strip_suffix(')')?,
        None => inner,
    };
    let plain =
        |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let words: Vec<&str> = inner.split('|').collect();
    let all = words.iter().all(|word| plain(word));
    all.then(|| words.iter().map(|word| format!("*.{word}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_percent_encoded() {
        assert_eq!(escaped("/a b/\u{e9}%20;x=1"), "/a%20b/%C3%A9%2520;x=1");
    }

    #[test]
    fn list_of_extensions_is_parsed() {
        assert_eq!(
            endings(r"\.(png|jpg)$"),
            Some(vec!["*.png".into(), "*.jpg".into()])
        );
        assert_eq!(endings(r"\.php$"), Some(vec!["*.php".into()]));
        assert_eq!(endings(r"^/a/\d+"), None);
        assert_eq!(endings(r"\.(a|)$"), None);
    }
}
