//! Converts a TOML configuration to its canonical form, which `weir fmt` writes.
//!
//! Only the layout changes; comments and order are kept. The form has one space around `=`, one empty line before every
//! table, at most one empty line elsewhere, and no indentation except of list items. A list is on one line if it fits
//! in [`WIDTH`] columns and contains no comments; otherwise it has one item per line. Inline tables that contain
//! comments are not changed.

use std::ops::Range;

use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, Value};

use crate::code::Code;
use crate::diagnostic::{Diagnostic, Lines};

/// Maximum width of a list on one line, in columns.
const WIDTH: usize = 100;

/// Returns the canonical form of a TOML text.
///
/// # Errors
/// Returns the first syntax error.
pub fn canonical(text: &str) -> Result<String, Box<Diagnostic>> {
    let text = text
        .strip_prefix('\u{feff}')
        .unwrap_or(text)
        .replace("\r\n", "\n");
    let mut document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| {
        let span: Range<usize> = error.span().unwrap_or(0..0);
        let message = format!("invalid TOML: {}", error.message());
        let mut diagnostic = Diagnostic::new(Code::Syntax, &span, message);
        diagnostic.at = Lines::new(&text).source(span.start);
        Box::new(diagnostic)
    })?;
    let trailing = document.trailing().as_str().unwrap_or_default().to_owned();
    format_table(document.as_table_mut());
    let end = leading_comments(&trailing);
    document.set_trailing(end.trim_end().to_owned());
    let out = document.to_string();
    let out = out.trim_matches('\n');
    Ok(match out.is_empty() {
        true => String::new(),
        false => format!("{out}\n"),
    })
}

fn format_table(table: &mut Table) {
    let keys: Vec<String> = table.iter().map(|(key, _)| key.to_owned()).collect();
    for name in keys {
        let Some((mut key, item)) = table.get_key_value_mut(&name) else {
            continue;
        };
        match item {
            Item::None => {}
            Item::Value(it) => {
                let prefix = key.leaf_decor().prefix().and_then(|it| it.as_str());
                let comments = leading_comments(prefix.unwrap_or_default());
                let decor = key.leaf_decor_mut();
                decor.set_prefix(comments);
                decor.set_suffix(" ");
                remove_space_around_dots(&mut key);
                format_value(it, width(&name) + 3);
            }
            Item::Table(inner) => {
                if inner.is_dotted() {
                    remove_space_around_dots(&mut key);
                }
                format_header(inner);
                format_table(inner);
            }
            Item::ArrayOfTables(tables) => {
                for inner in tables.iter_mut() {
                    format_header(inner);
                    format_table(inner);
                }
            }
        }
    }
}

/// Removes the spaces around the dots of `a.b`.
fn remove_space_around_dots(key: &mut toml_edit::KeyMut<'_>) {
    let decor = key.dotted_decor_mut();
    decor.set_prefix("");
    decor.set_suffix("");
}

fn format_header(table: &mut Table) {
    if table.is_dotted() {
        return;
    }
    let prefix = table.decor().prefix().and_then(|it| it.as_str());
    let comments = leading_comments(prefix.unwrap_or_default());
    let comment = trailing_comment(table.decor().suffix().and_then(|it| it.as_str()));
    let decor = table.decor_mut();
    decor.set_prefix(format!("\n{}", comments.trim_start_matches('\n')));
    decor.set_suffix(comment);
}

/// Returns the comments before a key, one per line, with at most one empty line between them.
fn leading_comments(text: &str) -> String {
    let mut out = String::new();
    // The text ends where the key begins.
    let lines: Vec<&str> = text.split('\n').collect();
    for line in &lines[..lines.len() - 1] {
        let line = line.trim();
        if line.is_empty() && (out.ends_with("\n\n") || out == "\n") {
            continue;
        }
        out += line;
        out.push('\n');
    }
    let last = lines.last().map_or("", |line| line.trim());
    if !last.is_empty() {
        out += last;
        out.push('\n');
    }
    out
}

/// Formats a comment after a value or a table header.
fn trailing_comment(text: Option<&str>) -> String {
    match text.unwrap_or_default().trim() {
        "" => String::new(),
        comment => format!(" {comment}"),
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// Formats a value that starts in column `column`, and its trailing comment.
fn format_value(value: &mut Value, column: usize) {
    let comment = trailing_comment(value.decor().suffix().and_then(|it| it.as_str()));
    format_bare_value(value, column);
    let decor = value.decor_mut();
    decor.set_prefix(" ");
    decor.set_suffix(comment);
}

/// Formats a value without the space around it.
fn format_bare_value(value: &mut Value, column: usize) {
    match value {
        Value::Array(list) => format_array(list, column),
        Value::InlineTable(table) => format_inline_table(table, column),
        _ => {}
    }
}

fn format_inline_table(table: &mut InlineTable, column: usize) {
    if has_comments(&table.to_string()) {
        return;
    }
    table.set_trailing("");
    table.set_trailing_comma(false);
    format_entries(table, column, " ");
}

/// Formats the entries of an inline table; `end` is the space after the last value.
fn format_entries(table: &mut InlineTable, column: usize, end: &str) {
    let count = table.len();
    for (index, (mut key, it)) in table.iter_mut().enumerate() {
        let end = if index + 1 == count { end } else { "" };
        remove_space_around_dots(&mut key);
        let decor = key.leaf_decor_mut();
        decor.set_prefix(" ");
        decor.set_suffix(" ");
        match it {
            Value::InlineTable(inner) if inner.is_dotted() => format_entries(inner, column, end),
            _ => {
                format_bare_value(it, column);
                *it.decor_mut() = toml_edit::Decor::new(" ", end);
            }
        }
    }
}

fn format_array(array: &mut Array, column: usize) {
    let has_comments_inside = has_comments(&array.to_string());
    if !has_comments_inside {
        for (index, it) in array.iter_mut().enumerate() {
            format_bare_value(it, column);
            *it.decor_mut() = toml_edit::Decor::new(if index == 0 { "" } else { " " }, "");
        }
        array.set_trailing("");
        array.set_trailing_comma(false);
        *array.decor_mut() = toml_edit::Decor::default();
        let line = array.to_string();
        if !line.contains('\n') && column + width(&line) <= WIDTH {
            return;
        }
    }
    let mut moved_comment = String::new();
    for it in array.iter_mut() {
        let before = it
            .decor()
            .prefix()
            .and_then(|it| it.as_str())
            .unwrap_or_default();
        let before = text_between_items(&format!("{moved_comment}{before}"));
        moved_comment = it
            .decor()
            .suffix()
            .and_then(|it| it.as_str())
            .unwrap_or_default()
            .to_owned();
        if !moved_comment.trim().is_empty() {
            // A comment between a value and its comma is moved after the comma.
            moved_comment = format!("{}\n", moved_comment.trim_end());
        } else {
            moved_comment.clear();
        }
        format_bare_value(it, 4);
        *it.decor_mut() = toml_edit::Decor::new(before, "");
    }
    let end = array.trailing().as_str().unwrap_or_default();
    let end = text_between_items(&format!("{moved_comment}{end}"));
    let end = end.trim_end().to_owned();
    array.set_trailing_comma(!array.is_empty());
    array.set_trailing(format!("{end}\n"));
}

/// Returns the text between two items of a list with one item per line: comments, and the indentation of the next item.
fn text_between_items(text: &str) -> String {
    let mut out = String::new();
    let mut lines = text.split('\n');
    // The rest of the previous item's line.
    if let Some(first) = lines.next() {
        out += &trailing_comment(Some(first));
    }
    for line in lines.map(str::trim).filter(|line| !line.is_empty()) {
        out += "\n    ";
        out += line;
    }
    out + "\n    "
}

/// Returns whether a TOML text contains a comment outside strings.
fn has_comments(text: &str) -> bool {
    let mut rest = text;
    while let Some(start) = rest.find(['#', '"', '\'']) {
        let quote = &rest[start..=start];
        if quote == "#" {
            return true;
        }
        let triple = quote.repeat(3);
        let end = if rest[start..].starts_with(&triple) {
            triple
        } else {
            quote.to_owned()
        };
        let mut search_start = start + end.len();
        loop {
            let Some(found) = rest[search_start..].find(&end) else {
                return false;
            };
            let position = search_start + found;
            let backslashes = rest[..position]
                .bytes()
                .rev()
                .take_while(|byte| *byte == b'\\')
                .count();
            search_start = position + end.len();
            if quote == "'" || backslashes % 2 == 0 {
                break;
            }
        }
        rest = &rest[search_start..];
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UNFORMATTED: &str = r##"

# The director.
[node]   # here
admin   =   "127.0.0.1:9900"   # api



  # flows
  max_flows=65536
[pool.web]
servers = [ "10.0.0.5",# one
   # two
 "10.0.0.6" , {address="10.0.0.7",weight=2} ]
check={kind="http",path='/a\b'}
[[route]]
service="web"
not . path="/x"
# end
"##;

    #[test]
    fn layout_is_canonical_and_comments_are_kept() {
        insta::assert_snapshot!(canonical(UNFORMATTED).unwrap(), @r##"
        # The director.
        [node] # here
        admin = "127.0.0.1:9900" # api

        # flows
        max_flows = 65536

        [pool.web]
        servers = [
            "10.0.0.5", # one
            # two
            "10.0.0.6",
            { address = "10.0.0.7", weight = 2 },
        ]
        check = { kind = "http", path = '/a\b' }

        [[route]]
        service = "web"
        not.path = "/x"
        # end
        "##);
    }

    #[test]
    fn syntax_errors_have_a_position() {
        let error = canonical("a = 1\nb = = 2\n").unwrap_err();
        assert_eq!((error.code, error.at.line), (Code::Syntax, 2));
    }

    proptest! {
        #[test]
        fn canonical_form_is_stable_and_has_same_meaning(
            text in "(\\[[a-c](\\.[a-c])?\\]\n|\\[\\[[d-f]\\]\\]\n|[g-z]( \\. [a-z])? *= *\
                (1|\"#\"|'x'|\\[ *1 *,# c\n2 *,?\\]|\
                \\[(\"abcdefghijklmnopqrstuvwxyz\", *){4}\\]|\\{ *a *=1 *, *b=\\[\\], *c . d=2 *\\}|\\{\\})\
                ( *# c)?\n|  # d\n|\n)*"
        ) {
            let Ok(before) = toml::from_str::<toml::Table>(&text) else {
                return Ok(());
            };
            let once = canonical(&text).unwrap();
            prop_assert_eq!(&before, &toml::from_str::<toml::Table>(&once).unwrap(), "{}", once);
            prop_assert_eq!(text.matches("# ").count(), once.matches("# ").count(), "{}", once);
            prop_assert_eq!(&canonical(&once).unwrap(), &once);
        }
    }

    #[test]
    fn dotted_keys_in_inline_tables_have_no_spaces_around_dots() {
        for (text, expected) in [
            ("x={a=1,c . d=2}\n", "x = { a = 1, c.d = 2 }\n"),
            ("x={c . d=2 , a=1}\n", "x = { c.d = 2, a = 1 }\n"),
            (
                "x={c.d=[1,2],c.e={f=1}}\n",
                "x = { c.d = [1, 2], c.e = { f = 1 } }\n",
            ),
            ("x . y=1\n", "x.y = 1\n"),
            ("\n\n", ""),
            ("\u{feff}a=1\r\n", "a = 1\n"),
        ] {
            assert_eq!(canonical(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn list_is_on_one_line_if_it_fits_in_100_columns() {
        // The rest of the line has 8 columns.
        for (length, is_one_line) in [(91, true), (92, true), (93, false)] {
            let value = "é".repeat(length);
            let line = format!("a = [\"{value}\"]");
            let expected = match is_one_line {
                true => format!("{line}\n"),
                false => format!("a = [\n    \"{value}\",\n]\n"),
            };
            assert_eq!(canonical(&line).unwrap(), expected, "{length}");
        }
    }

    #[test]
    fn comments_are_found_outside_strings() {
        for (text, expected) in [
            ("[1] # c", true),
            ("['#', \"#\"]", false),
            ("['#', \"#\"] # c", true),
            ("[\"\\\"#\"]", false),
            ("[\"\\\\\"] # c", true),
            ("['\\'] # c", true),
            ("['\\', '#']", false),
            ("['''a'#''']", false),
            ("[\"\"\"a\"#\"\"\"] # c", true),
            ("[\"\"] # c", true),
            ("[1]", false),
        ] {
            assert_eq!(has_comments(text), expected, "{text}");
        }
    }
}
