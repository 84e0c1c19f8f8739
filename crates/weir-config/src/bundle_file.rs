//! Splits a bundle, a text that contains its included files, into these files (see [`crate::include`]).

use std::path::Path;

/// The beginning of the line that precedes an included file.
pub(crate) const FILE_MARKER: &str = "#\u{1}";

/// Returns whether a file is JSON: its name ends in `.json`, or the name has no extension and the text begins with `{`.
pub(crate) fn is_json(name: Option<&str>, text: &str) -> bool {
    match name.and_then(|name| Path::new(name).extension()) {
        Some(extension) => extension == "json",
        None => text.trim_start().starts_with('{'),
    }
}

/// A file of a bundle.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BundleFile<'t> {
    /// Name of the file; empty for the main file.
    pub(crate) name: &'t str,
    /// Offset of the file's text in the bundle, in bytes.
    pub(crate) start: usize,
    pub(crate) text: &'t str,
}

impl BundleFile<'_> {
    pub(crate) fn is_json(&self) -> bool {
        is_json((!self.name.is_empty()).then_some(self.name), self.text)
    }
}

/// Splits a bundle into its files; the first one is the main file.
pub(crate) fn split_bundle(text: &str) -> Vec<BundleFile<'_>> {
    let mut files = Vec::new();
    let (mut name, mut start) = ("", 0);
    let separator = format!("\n{FILE_MARKER}");
    loop {
        let rest = &text[start..];
        let Some(end) = rest.find(&separator) else {
            files.push(BundleFile {
                name,
                start,
                text: rest,
            });
            return files;
        };
        files.push(BundleFile {
            name,
            start,
            text: &rest[..end],
        });
        let line = &rest[end + separator.len()..];
        let length = line.find('\n').unwrap_or(line.len());
        name = &line[..length];
        start += end + separator.len() + (length + 1).min(line.len());
    }
}

/// Returns whether the text contains its included files.
pub(crate) fn is_bundle(text: &str) -> bool {
    text.contains(FILE_MARKER)
}
