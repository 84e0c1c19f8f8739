//! Writes equal checks of several pools once, as `[check.NAME]`.

use crate::document::{Document, Entry, Table, positions};
use crate::note::Notes;

/// Replaces equal checks of several pools by one check with a name. Returns whether there were any.
pub(crate) fn share(document: &mut Document, notes: &Notes) -> bool {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (at, table) in document.tables.iter().enumerate() {
        if !is_named(table) && !is_only_check_of_pool(table) {
            continue;
        }
        let same = groups.iter_mut().find(|group| {
            let first = &document.tables[group[0]];
            // A check with a comment of its own is not merged.
            let is_plain = table.from == first.from || notes.comments_before(table.from).is_empty();
            is_plain && first.entries == table.entries
        });
        match same {
            Some(group) => group.push(at),
            None => groups.push(vec![at]),
        }
    }
    groups.retain(|group| group.len() > 1);
    for group in &groups {
        write_once(document, group);
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

/// Replaces a group of equal checks by one check with a name.
fn write_once(document: &mut Document, group: &[usize]) {
    let named = group
        .iter()
        .copied()
        .find(|at| is_named(&document.tables[*at]));
    let kept = named.unwrap_or(group[0]);
    let name = match named {
        Some(at) => document.tables[at].path[1].clone(),
        None => {
            let kind = document.tables[kept].text("kind").unwrap_or("tcp");
            document.free_name("check", kind)
        }
    };
    let mut covers = Vec::new();
    for at in group.iter().copied().filter(|at| Some(*at) != named) {
        let table = &mut document.tables[at];
        let from = table.from;
        let pool = table.path[..2].to_vec();
        if at != kept {
            table.removed = true;
            covers.push(from);
            positions(&table.entries, &mut |position| covers.push(position));
        }
        let mut tables = document.tables.iter_mut();
        if let Some(pool) = tables.find(|table| table.path == pool) {
            pool.push(Entry::new("check", name.as_str(), from));
        }
    }
    let table = &mut document.tables[kept];
    table.path = vec!["check".to_owned(), name];
    table.covers.extend(covers);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::note::Position;

    fn pool(name: &str, interval: &str, line: usize) -> [Table; 2] {
        let from = Position::new(0, line);
        let pool = Table::new(&["pool", name], from);
        let mut check = Table::new(&["pool", name, "check"], from);
        check.push(Entry::new("kind", "tcp", from));
        check.push(Entry::new("interval", interval, from));
        [pool, check]
    }

    #[test]
    fn equal_checks_are_written_once() {
        let mut document = Document::default();
        for (line, (name, interval)) in [("a", "1s"), ("b", "2s"), ("c", "1s")].iter().enumerate() {
            for table in pool(name, interval, line + 1) {
                document.push(table);
            }
        }
        let mut notes = Notes::default();
        notes.add_file("f", "word\nword\nword\n");
        assert!(share(&mut document, &notes));
        assert_eq!(
            document.render().text,
            "[pool.a]\ncheck = \"tcp\"\n\n[check.tcp]\nkind = \"tcp\"\ninterval = \"1s\"\n\n[pool.b]\n\n\
             [pool.b.check]\nkind = \"tcp\"\ninterval = \"2s\"\n\n[pool.c]\ncheck = \"tcp\"\n"
        );
        assert!(!share(&mut document, &notes));
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
        assert!(!share(&mut document, &notes));
    }
}
