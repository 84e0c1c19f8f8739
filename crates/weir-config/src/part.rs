//! The files of a bundle: a text that contains its included files (see [`crate::include`]).

use std::path::Path;

/// Begins the line in front of an included file.
pub(crate) const MARK: &str = "#\u{1}";

/// A file is JSON if its name ends in `.json`, or, without an extension, if it begins with `{`.
pub(crate) fn is_json(name: Option<&str>, text: &str) -> bool {
    match name.and_then(|name| Path::new(name).extension()) {
        Some(extension) => extension == "json",
        None => text.trim_start().starts_with('{'),
    }
}

/// A file of a bundle.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part<'t> {
    /// Empty for the main file.
    pub(crate) name: &'t str,
    /// Offset of its text in the bundle.
    pub(crate) start: usize,
    pub(crate) text: &'t str,
}

impl Part<'_> {
    pub(crate) fn is_json(&self) -> bool {
        is_json((!self.name.is_empty()).then_some(self.name), self.text)
    }
}

/// The files of a bundle; the first one is the main file.
pub(crate) fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let (mut name, mut start) = ("", 0);
    let between = format!("\n{MARK}");
    loop {
        let rest = &text[start..];
        let Some(end) = rest.find(&between) else {
            parts.push(Part {
                name,
                start,
                text: rest,
            });
            return parts;
        };
        parts.push(Part {
            name,
            start,
            text: &rest[..end],
        });
        let line = &rest[end + between.len()..];
        let length = line.find('\n').unwrap_or(line.len());
        name = &line[..length];
        start += end + between.len() + (length + 1).min(line.len());
    }
}

/// Whether the text contains its included files.
pub(crate) fn is_bundle(text: &str) -> bool {
    text.contains(MARK)
}
