//! Paths of locations and of files, as routes have them.

/// A path relative to nginx's own directory, which depends on how it was built: that of the packages.
pub(super) fn absolute(path: &str) -> String {
    const PREFIX: &str = "/usr/share/nginx";
    match path.starts_with('/') || path.is_empty() {
        true => path.to_owned(),
        false => format!("{PREFIX}/{path}"),
    }
}

/// `try` of `files` for the words of `try_files`, whose last one may be a location with a pool; `None` = it does
/// something else.
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
    // Without a file: a page, or the status 404.
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

/// `/` matches every path.
pub(super) fn prefix(text: &str) -> Option<String> {
    (text != "/").then(|| format!("{}*", escaped(text)))
}

/// Escapes a decoded nginx path as routes compare it.
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
