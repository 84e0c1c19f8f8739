//! Combines a configuration and the files in its `include` into one text, the bundle.
//!
//! The bundle is the main file, followed by every included file. A line that begins with [`FILE_MARKER`] and names the
//! file precedes each included file.
//!
//! TOML and JSON do not allow the control character in [`FILE_MARKER`], so no valid file contains such a line.
//! Everything that handles the text of a configuration (diagnostics, the record of the active configuration, the
//! comparison of privileged keys) handles the bundle in the same way.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use crate::bundle_file::{FILE_MARKER, is_bundle, is_json, split_bundle};
use crate::code::Code;
use crate::diagnostic::{Diagnostic, Lines};
use crate::file::MAX_FILE_BYTES;
use crate::json;
use crate::tree::{Entry, Item, Table, Value};

/// Maximum number of files in one configuration.
const MAX_FILES: usize = 1000;

/// Access to the files that a configuration includes.
pub trait Files {
    /// Returns the text of the file, and a name that is the same for all paths to the file.
    ///
    /// # Errors
    /// Returns the reason why the file cannot be read.
    fn read(&self, path: &Path) -> Result<(PathBuf, String), String>;

    /// Returns the names of the regular files in a directory, in any order.
    ///
    /// # Errors
    /// Returns the reason why the directory cannot be read.
    fn list(&self, directory: &Path) -> Result<Vec<String>, String>;
}

/// A configuration and the files that it includes, as one text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// The text; equal to the main file if its `include` is empty or absent.
    pub text: String,
    /// Errors of `include`, in text order.
    pub errors: Vec<Diagnostic>,
}

/// Adds the included files to the text of the file at `path`. Paths are relative to the file that includes them. A text
/// that already contains them, such as the record of the active configuration, is not changed.
pub fn bundle(text: &str, path: &Path, files: &dyn Files) -> Bundle {
    if is_bundle(text) {
        return Bundle {
            text: text.to_owned(),
            errors: Vec::new(),
        };
    }
    let mut reader = Reader {
        files,
        text: text.to_owned(),
        errors: Vec::new(),
        parts: vec![(path.to_owned(), 0..text.len())],
        seen: HashMap::new(),
    };
    let main = files
        .read(path)
        .map_or_else(|_| path.to_owned(), |(name, _)| name);
    reader.seen.insert(main, 0..0);
    let mut next = 0;
    while next < reader.parts.len() {
        reader.add_includes_of(next);
        next += 1;
    }
    if reader.parts.len() == 1 && has_include(text, is_json(path.to_str(), text)) {
        reader.text += &format!("\n{FILE_MARKER}\n");
    }
    let lines = Lines::new(&reader.text);
    for error in &mut reader.errors {
        error.at = lines.source(error.span.start);
        for related in &mut error.related {
            related.at = lines.source(related.span.start);
        }
    }
    reader.errors.sort_by_key(|error| error.span.start);
    Bundle {
        errors: reader.errors,
        text: reader.text,
    }
}

struct Reader<'a> {
    files: &'a dyn Files,
    text: String,
    errors: Vec<Diagnostic>,
    /// Path of each file, and its range in `text`.
    parts: Vec<(PathBuf, Range<usize>)>,
    /// Position of the item that includes a file, by the file's name.
    seen: HashMap<PathBuf, Range<usize>>,
}

impl Reader<'_> {
    fn add_includes_of(&mut self, index: usize) {
        let (path, range) = self.parts[index].clone();
        let text = self.text[range.clone()].to_owned();
        for (pattern, span) in includes(&text, is_json(path.to_str(), &text)) {
            let span = span.start + range.start..span.end + range.start;
            match self.matching_paths(&path, &pattern, &span) {
                Ok(found) => found.iter().for_each(|path| self.add_file(path, &span)),
                Err(error) => self.errors.push(*error),
            }
        }
    }

    fn matching_paths(
        &self,
        including_file: &Path,
        pattern: &str,
        span: &Range<usize>,
    ) -> Result<Vec<PathBuf>, Box<Diagnostic>> {
        let invalid_include = |message: &str| {
            let fix = "write a path, or a pattern such as \"conf.d/*.toml\"";
            Box::new(Diagnostic::new(Code::BadInclude, span, message).fix(fix))
        };
        if pattern.is_empty() || pattern.contains(['\0', '\n']) {
            return Err(invalid_include("invalid path"));
        }
        let directory = including_file.parent().unwrap_or(Path::new(""));
        let full_path = directory.join(pattern);
        let Some(name) = full_path.file_name().and_then(|name| name.to_str()) else {
            return Err(invalid_include("the path does not name a file"));
        };
        let directory = full_path.parent().unwrap_or(Path::new("")).to_owned();
        if !name.contains(['*', '?']) {
            return Ok(vec![full_path]);
        }
        let parent = pattern.rsplit_once('/').map(|(parent, _)| parent);
        if parent.is_some_and(|parent| parent.contains(['*', '?'])) {
            return Err(invalid_include(
                "`*` and `?` are only allowed in the last component of the path",
            ));
        }
        let directory = match directory.as_os_str().is_empty() {
            true => PathBuf::from("."),
            false => directory,
        };
        let mut names = self.files.list(&directory).map_err(|reason| {
            Box::new(
                Diagnostic::new(
                    Code::BadInclude,
                    span,
                    format!(
                        "cannot read the directory {}: {reason}",
                        directory.display()
                    ),
                )
                .fix("create the directory, or remove it from `include`"),
            )
        })?;
        names.retain(|it| !it.starts_with('.') && matches_glob(name.as_bytes(), it.as_bytes()));
        names.sort();
        Ok(names.iter().map(|name| directory.join(name)).collect())
    }

    fn add_file(&mut self, path: &Path, span: &Range<usize>) {
        let display_path = path.display();
        let (name, text) = match self.files.read(path) {
            Ok(read) => read,
            Err(reason) => {
                let message = format!("cannot read the included file {display_path}: {reason}");
                self.errors.push(
                    Diagnostic::new(Code::BadInclude, span, message)
                        .fix("create the file, correct the path, or remove it from `include`"),
                );
                return;
            }
        };
        if let Some(first) = self.seen.get(&name) {
            let message = format!("{display_path} is included twice");
            let diagnostic = Diagnostic::new(Code::BadInclude, span, message);
            self.errors.push(match first.is_empty() {
                true => diagnostic
                    .cause("it is the main file")
                    .fix("do not include a file in itself"),
                false if first == span => diagnostic.fix("remove one of them"),
                false => diagnostic
                    .related(&first.clone(), "first here")
                    .fix("remove one of them"),
            });
            return;
        }
        self.seen.insert(name, span.clone());
        let size = self.text.len() + text.len();
        if self.parts.len() >= MAX_FILES || size as u64 > MAX_FILE_BYTES {
            let message = format!(
                "the configuration has more than {MAX_FILES} files, or more than {MAX_FILE_BYTES} bytes in total"
            );
            self.errors
                .push(Diagnostic::new(Code::BadInclude, span, message).fix("include fewer files"));
            return;
        }
        self.text += &format!("\n{FILE_MARKER}{display_path}\n");
        let start = self.text.len();
        self.text += &text;
        self.parts.push((path.to_owned(), start..self.text.len()));
    }
}

/// Returns whether a name matches a pattern: `*` matches any characters, `?` one byte.
fn matches_glob(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => {
            matches_glob(rest, name) || (!name.is_empty() && matches_glob(pattern, &name[1..]))
        }
        (Some((b'?', rest)), Some((_, name))) => matches_glob(rest, name),
        (Some((expected, rest)), Some((byte, name))) => {
            expected == byte && matches_glob(rest, name)
        }
        _ => false,
    }
}

/// Returns the items of `include`, with their spans.
fn includes(text: &str, json: bool) -> Vec<(String, Range<usize>)> {
    // Parsing a large file twice is expensive.
    if !text.contains("include") {
        return Vec::new();
    }
    let root = parse_tree(text, json);
    let entry = root.entries.iter().find(|entry| entry.key == "include");
    let Some(Value::List(items)) = entry.map(|entry| &entry.item.value) else {
        return Vec::new();
    };
    let items = items.iter().filter_map(|item| match &item.value {
        Value::Text(text) => Some((text.to_string(), item.span.clone())),
        _ => None,
    });
    items.collect()
}

fn has_include(text: &str, json: bool) -> bool {
    !includes(text, json).is_empty()
}

/// Returns the tree of all parts that can be parsed.
fn parse_tree(text: &str, json: bool) -> Table<'_> {
    if !json {
        return Table::from_toml(DeTable::parse_recoverable(text).0.into_inner());
    }
    match json::read(text) {
        Ok((
            Item {
                value: Value::Table(root),
                ..
            },
            _,
        )) => root,
        _ => Table::default(),
    }
}

/// Returns the names of a bundle's files, indexed by `Source::file`; the name of the main file is empty.
pub fn files(text: &str) -> Vec<String> {
    match is_bundle(text) {
        false => vec![String::new()],
        true => split_bundle(text)
            .iter()
            .map(|part| part.name.to_owned())
            .collect(),
    }
}

/// Returns the tree of all parts of a text or a bundle that can be parsed.
pub(crate) fn any_tree(text: &str) -> Table<'static> {
    let mut root = Table::default();
    for part in split_bundle(text) {
        let mut table = parse_tree(part.text, part.is_json()).into_owned();
        table.shift(part.start);
        merge(&mut root, table, &mut Vec::new());
    }
    root
}

/// Merges the tables of an included file into those of the previous files. Named tables and list items are added; it is
/// an error if two files set the same key.
pub(crate) fn merge<'t>(target: &mut Table<'t>, source: Table<'t>, errors: &mut Vec<Diagnostic>) {
    for entry in source.entries {
        let Some(existing) = target.entries.iter_mut().find(|it| it.key == entry.key) else {
            target.entries.push(entry);
            continue;
        };
        match (&mut existing.item.value, entry.item.value) {
            (Value::Table(target), Value::Table(source)) => {
                for inner in source.entries {
                    match target.entries.iter().find(|it| it.key == inner.key) {
                        Some(first) => errors.push(duplicate_key(first, &inner)),
                        None => target.entries.push(inner),
                    }
                }
            }
            (Value::List(target), Value::List(source)) => target.extend(source),
            (_, value) => {
                let second = Entry {
                    key: entry.key,
                    key_span: entry.key_span,
                    item: Item {
                        span: entry.item.span,
                        value,
                    },
                };
                errors.push(duplicate_key(existing, &second));
            }
        }
    }
}

fn duplicate_key(first: &Entry<'_>, second: &Entry<'_>) -> Diagnostic {
    Diagnostic::new(
        Code::DuplicateKey,
        &second.key_span,
        format!("duplicate key `{}`", second.key),
    )
    .label("duplicate")
    .related(&first.key_span, "first here")
    .fix("remove or rename one of them")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct MemoryFiles(Vec<(&'static str, &'static str)>);

    impl Files for MemoryFiles {
        fn read(&self, path: &Path) -> Result<(PathBuf, String), String> {
            let has_path = |(name, _): &&(&str, &str)| Path::new(name) == path;
            let found = self.0.iter().find(has_path).ok_or("no such file")?;
            Ok((path.to_owned(), found.1.to_owned()))
        }

        fn list(&self, directory: &Path) -> Result<Vec<String>, String> {
            let inside = |(name, _): &(&str, &str)| {
                Path::new(name)
                    .parent()
                    .filter(|parent| *parent == directory)
                    .and(Path::new(name).file_name())
                    .map(|name| name.to_string_lossy().into_owned())
            };
            Ok(self.0.iter().filter_map(inside).collect())
        }
    }

    fn bundle_of(files: Vec<(&'static str, &'static str)>) -> Bundle {
        let main = files[0].1;
        bundle(main, Path::new("/etc/weir.toml"), &MemoryFiles(files))
    }

    #[test]
    fn included_files_are_added_in_name_order() {
        let bundle = bundle_of(vec![
            ("/etc/weir.toml", "include = [\"d/*.toml\"]\n"),
            ("/etc/d/b.toml", "[pool.b]\n"),
            ("/etc/d/a.toml", "include = [\"c\"]\n"),
            ("/etc/d/.hidden.toml", "x"),
            ("/etc/d/c", "[pool.c]\n"),
        ]);
        assert_eq!(bundle.errors, []);
        let names = files(&bundle.text);
        assert_eq!(names, ["", "/etc/d/a.toml", "/etc/d/b.toml", "/etc/d/c"]);
        let root = any_tree(&bundle.text);
        let keys: Vec<&str> = root.entries.iter().map(|entry| &*entry.key).collect();
        assert_eq!(keys, ["include", "pool"]);
        // The record of the active configuration is in another directory, which does not contain these files.
        let record = Path::new("/run/weir/in-force.toml");
        let again = super::bundle(&bundle.text, record, &MemoryFiles(Vec::new()));
        assert_eq!(again, bundle);
    }

    #[test]
    fn cycles_and_missing_files_are_errors_with_positions() {
        let bundle = bundle_of(vec![
            ("/etc/weir.toml", "include = [\"a\", \"a\", \"gone\"]\n"),
            ("/etc/a", "# first\ninclude = [\"weir.toml\"]\n"),
        ]);
        let found: Vec<(String, u32, u32)> = bundle
            .errors
            .iter()
            .map(|it| (it.message.clone(), it.at.file, it.at.line))
            .collect();
        assert_eq!(
            found,
            [
                ("/etc/a is included twice".to_owned(), 0, 1),
                (
                    "cannot read the included file /etc/gone: no such file".to_owned(),
                    0,
                    1
                ),
                ("/etc/weir.toml is included twice".to_owned(), 1, 2),
            ]
        );
        assert_eq!(bundle.errors[0].related[0].at.column, 12);
    }

    #[test]
    fn pattern_in_a_directory_name_is_rejected() {
        for text in ["include = [\"d*/*.toml\"]\n", "include = [\"d?/*.toml\"]\n"] {
            let bundle = bundle_of(vec![("/etc/weir.toml", text)]);
            let [error] = &bundle.errors[..] else {
                panic!("{:?}", bundle.errors)
            };
            assert!(
                error.message.contains("last component"),
                "{}",
                error.message
            );
        }
    }

    #[test]
    fn pattern_without_files_is_not_an_error() {
        let bundle = bundle_of(vec![("/etc/weir.toml", "include = [\"d/*.toml\"]\n")]);
        assert_eq!(bundle.errors, []);
        assert!(is_bundle(&bundle.text));
    }

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, expected) in [
            ("a.toml", "a.toml", true),
            ("a.toml", "a.tom", false),
            ("a.toml", "b.toml", false),
            ("*", "", true),
            ("*", "a", true),
            ("*.toml", ".toml", true),
            ("*.toml", "a.b.toml", true),
            ("*.toml", "a.tomlx", false),
            ("a*c*e", "abcde", true),
            ("a*c*e", "abde", false),
            ("?", "", false),
            ("?", "a", true),
            ("?", "ab", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("", "a", false),
        ] {
            let found = matches_glob(pattern.as_bytes(), name.as_bytes());
            assert_eq!(found, expected, "{pattern} {name}");
        }
    }

    #[test]
    fn invalid_paths_are_reported() {
        for (path, message) in [
            ("", "invalid path"),
            ("a\\u0000", "invalid path"),
            ("a\\nb", "invalid path"),
            ("..", "the path does not name a file"),
        ] {
            let text = format!("include = [\"{path}\"]\n").leak();
            let bundle = bundle_of(vec![("/etc/weir.toml", text)]);
            let found: Vec<&str> = bundle.errors.iter().map(|it| it.message.as_str()).collect();
            assert_eq!(found, [message], "{path}");
        }
    }

    /// Returns the number of errors of a main file that includes these files.
    fn error_count(included: &[(&'static str, &'static str)]) -> usize {
        let names = included.iter().map(|(name, _)| format!("\"{name}\""));
        let names: Vec<String> = names.collect();
        let main: &str = format!("include = [{}]\n", names.join(", ")).leak();
        let mut files = vec![("/etc/weir.toml", main)];
        files.extend(included);
        bundle_of(files).errors.len()
    }

    #[test]
    fn configuration_has_at_most_1000_files() {
        let files = |count: usize| -> Vec<(&'static str, &'static str)> {
            let name = |number| -> &'static str { format!("/etc/{number}").leak() };
            (0..count).map(|number| (name(number), "")).collect()
        };
        assert_eq!(error_count(&files(999)), 0);
        assert_eq!(error_count(&files(1000)), 1);
    }

    #[test]
    fn size_of_a_configuration_is_limited() {
        let max = usize::try_from(MAX_FILE_BYTES).expect("too large");
        let main = "include = [\"/etc/a\"]\n".len();
        for (size, expected) in [(max - main, 0), (max - main + 1, 1)] {
            let text: &str = " ".repeat(size).leak();
            assert_eq!(error_count(&[("/etc/a", text)]), expected);
        }
    }

    #[test]
    fn errors_in_included_files_have_their_positions() {
        let bundle = bundle_of(vec![
            ("/etc/weir.toml", "include = [\"a\", \"b.json\"]\n"),
            (
                "/etc/a",
                "[node]\nmax_flows = 1024\nmax_flows = 2048\n[pool.p]\nx = = 1\n",
            ),
            ("/etc/b.json", "{\n  \"node\": 7, }\n"),
        ]);
        assert_eq!(bundle.errors, []);
        let found = crate::parse(&bundle.text, &crate::Host::default()).unwrap_err();
        let is_syntax = |it: &&Diagnostic| matches!(it.code, Code::Syntax | Code::DuplicateKey);
        let found: Vec<&Diagnostic> = found.iter().filter(is_syntax).collect();
        let positions = found.iter().map(|it| (it.at.file, it.at.line));
        assert_eq!(positions.collect::<Vec<_>>(), [(1, 3), (1, 5), (2, 2)]);
        let related = found.iter().flat_map(|it| &it.related);
        let related = related.map(|it| (it.at.file, it.at.line));
        assert_eq!(related.collect::<Vec<_>>(), [(1, 2)]);
    }

    #[test]
    fn errors_after_a_key_without_a_value_are_found() {
        let bundle = bundle_of(vec![
            ("/etc/weir.toml", "include = [\"a\"]\n"),
            ("/etc/a", "[node]\nmax_flows\n[pool.p]\nservers = = 1\n"),
        ]);
        let found = crate::parse(&bundle.text, &crate::Host::default()).unwrap_err();
        let found = found.iter().filter(|it| it.code == Code::Syntax);
        let positions = found.map(|it| (it.at.file, it.at.line));
        assert_eq!(positions.collect::<Vec<_>>(), [(1, 2), (1, 4)]);
    }
}
