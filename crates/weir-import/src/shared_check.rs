//! Replaces equal checks of several pools with one `[check.NAME]`.

use crate::document::{Document, Entry, Table, visit_positions};
use crate::note::Notes;

/// Replaces equal checks of several pools with one named check. Returns whether checks were replaced.
pub(crate) fn merge_equal_checks(document: &mut Document, notes: &Notes) -> bool {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (index, table) in document.tables.iter().enumerate() {
        if !is_named(table) && !is_only_check_of_pool(table) {
            continue;
        }
        let group = groups.iter_mut().find(|group| {
            let first = &document.tables[group[0]];
            // A check with its own comment is not merged.
            let is_plain = table.position == first.position
                || notes.comments_before(table.position).is_empty();
            is_plain && first.entries == table.entries
        });
        match group {
            Some(group) => group.push(index),
            None => groups.push(vec![index]),
        }
    }
    groups.retain(|group| group.len() > 1);
    for group in &groups {
        merge_group(document, group);
    }
    document.tables.retain(|table| !table.removed);
    !groups.is_empty()
}

/// Returns whether the table is `[check.NAME]`.
fn is_named(table: &Table) -> bool {
    table.path.len() == 2 && table.path[0] == "check"
}

/// Returns whether the table is the only check of a pool.
fn is_only_check_of_pool(table: &Table) -> bool {
    table.path.len() == 3 && table.path[0] == "pool" && !table.repeated
}

/// Replaces a group of equal checks with one named check.
fn merge_group(document: &mut Document, group: &[usize]) {
    let named_index = group
        .iter()
        .copied()
        .find(|index| is_named(&document.tables[*index]));
    let shared_index = named_index.unwrap_or(group[0]);
    let name = match named_index {
        Some(index) => document.tables[index].path[1].clone(),
        None => {
            let kind = document.tables[shared_index].text("kind").unwrap_or("tcp");
            document.free_name("check", kind)
        }
    };
    let mut dependent_lines = Vec::new();
    for index in group
        .iter()
        .copied()
        .filter(|index| Some(*index) != named_index)
    {
        let table = &mut document.tables[index];
        let from = table.position;
        let pool = table.path[..2].to_vec();
        if index != shared_index {
            table.removed = true;
            dependent_lines.push(from);
            visit_positions(&table.entries, &mut |position| {
                dependent_lines.push(position)
            });
        }
        let mut tables = document.tables.iter_mut();
        if let Some(pool) = tables.find(|table| table.path == pool) {
            pool.push(Entry::new("check", name.as_str(), from));
        }
    }
    let table = &mut document.tables[shared_index];
    table.path = vec!["check".to_owned(), name];
    table.dependent_lines.extend(dependent_lines);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::note::Position;

    fn pool(name: &str, interval: &str, line: usize) -> [Table; 2] {
        let position = Position::new(0, line);
        let pool = Table::new(&["pool", name], position);
        let mut check = Table::new(&["pool", name, "check"], position);
        check.push(Entry::new("kind", "tcp", position));
        check.push(Entry::new("interval", interval, position));
        [pool, check]
    }

    #[test]
    fn equal_checks_of_several_pools_are_written_once() {
        let mut document = Document::default();
        for (line, (name, interval)) in [("a", "1s"), ("b", "2s"), ("c", "1s")].iter().enumerate() {
            for table in pool(name, interval, line + 1) {
                document.push(table);
            }
        }
        let mut notes = Notes::default();
        notes.add_file("f", "word\nword\nword\n");
        assert!(merge_equal_checks(&mut document, &notes));
        assert_eq!(
            document.render().text,
            "[pool.a]\ncheck = \"tcp\"\n\n[check.tcp]\nkind = \"tcp\"\ninterval = \"1s\"\n\n[pool.b]\n\n\
             [pool.b.check]\nkind = \"tcp\"\ninterval = \"2s\"\n\n[pool.c]\ncheck = \"tcp\"\n"
        );
        assert!(!merge_equal_checks(&mut document, &notes));
    }

    fn notes() -> Notes {
        let mut notes = Notes::default();
        notes.add_file("f", &"word\n".repeat(20));
        notes
    }

    /// Returns `[check.NAME]` with the same keys as the check of `pool`.
    fn named(name: &str, interval: &str, line: usize) -> Table {
        let [_, mut check] = pool("x", interval, line);
        check.path = vec!["check".to_owned(), name.to_owned()];
        check
    }

    /// Returns the document without blank lines.
    fn text(document: &Document) -> String {
        document.render().text.replace("\n\n", "\n")
    }

    #[test]
    fn check_of_a_pool_is_replaced_by_an_equal_named_check() {
        let mut document = Document::default();
        for table in pool("a", "1s", 1) {
            document.push(table);
        }
        document.push(named("n", "1s", 2));
        document.push(named("other", "2s", 3));
        for table in pool("b", "1s", 4) {
            document.push(table);
        }
        assert!(merge_equal_checks(&mut document, &notes()));
        assert_eq!(
            text(&document),
            "[pool.a]\ncheck = \"n\"\n[check.n]\nkind = \"tcp\"\ninterval = \"1s\"\n\
             [check.other]\nkind = \"tcp\"\ninterval = \"2s\"\n[pool.b]\ncheck = \"n\"\n"
        );
        let check = &document.tables[1];
        let lines: Vec<usize> = check.dependent_lines.iter().map(|it| it.line()).collect();
        assert_eq!(lines, [1, 1, 1, 4, 4, 4]);
    }

    #[test]
    fn merged_check_gets_an_unused_name() {
        let mut document = Document::default();
        document.push(named("tcp", "9s", 1));
        for (line, name) in [(2, "a"), (3, "b"), (4, "c")] {
            for table in pool(name, "1s", line) {
                document.push(table);
            }
        }
        assert!(merge_equal_checks(&mut document, &notes()));
        assert_eq!(
            text(&document),
            "[check.tcp]\nkind = \"tcp\"\ninterval = \"9s\"\n[pool.a]\ncheck = \"tcp-2\"\n\
             [check.tcp-2]\nkind = \"tcp\"\ninterval = \"1s\"\n[pool.b]\ncheck = \"tcp-2\"\n\
             [pool.c]\ncheck = \"tcp-2\"\n"
        );
        let lines: Vec<usize> = document.tables[2]
            .dependent_lines
            .iter()
            .map(|it| it.line())
            .collect();
        assert_eq!(lines, [3, 3, 3, 4, 4, 4]);
    }

    #[test]
    fn tables_other_than_named_checks_and_only_checks_of_pools_are_not_merged() {
        let table = |path: &[&str]| {
            let mut table = Table::new(path, Position::FIRST);
            table.push(Entry::implied("kind", "tcp"));
            table
        };
        for (path, repeated) in [
            (&["pool", "x", "check"][..], true),
            (&["pool", "x"], false),
            (&["service", "x", "tls"], false),
            (&["service", "x"], false),
            (&["check"], false),
            (&["check", "x", "y"], false),
            (&["pool", "x", "check", "y"], false),
        ] {
            let mut document = Document::default();
            for _ in 0..2 {
                let mut table = table(path);
                table.repeated = repeated;
                document.push(table);
            }
            assert!(!merge_equal_checks(&mut document, &notes()), "{path:?}");
            assert_eq!(document.tables.len(), 2, "{path:?}");
        }
    }

    #[test]
    fn checks_from_one_line_are_merged_even_with_a_comment() {
        let mut document = Document::default();
        for name in ["a", "b"] {
            for table in pool(name, "1s", 2) {
                document.push(table);
            }
        }
        let mut notes = Notes::default();
        notes.add_file("f", "# comment\nword\n");
        assert!(merge_equal_checks(&mut document, &notes));
        assert_eq!(document.tables.len(), 3);
        assert!(!merge_equal_checks(&mut Document::default(), &notes));
    }

    #[test]
    fn check_with_comment_is_not_merged() {
        let mut document = Document::default();
        for (line, name) in [(1, "a"), (3, "b")] {
            for table in pool(name, "1s", line) {
                document.push(table);
            }
        }
        let mut notes = Notes::default();
        notes.add_file("f", "word\n# the other one\nword\n");
        assert!(!merge_equal_checks(&mut document, &notes));
    }
}
