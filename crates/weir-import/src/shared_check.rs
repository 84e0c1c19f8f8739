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
