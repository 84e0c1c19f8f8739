use super::*;

fn notes_for_lines(lines: usize) -> Notes {
    let mut notes = Notes::default();
    notes.add_file("a", &"word\n".repeat(lines));
    notes
}

fn pool(position: Position, address: &str) -> Table {
    let mut pool = Table::new(&["pool", "a"], position);
    let servers = vec![Item::new(address, Some(position))];
    pool.push(Entry::new("servers", servers, position));
    pool
}

fn at(line: usize) -> Position {
    Position::new(0, line)
}

/// Returns the text without comments and blank lines, and the notes.
fn validated(tables: Vec<Table>) -> (String, Vec<String>) {
    let imported = validate(Document { tables }, notes_for_lines(20));
    let lines = imported.toml.lines();
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let text = lines.collect::<Vec<_>>().join("\n");
    (
        text.replace("[\n  ", "[")
            .replace(",\n]", "]")
            .replace(",\n  ", ", "),
        imported.notes,
    )
}

fn service(name: &str, pool: &str, line: usize) -> Table {
    let mut service = Table::new(&["service", name], at(line));
    let listen = format!("192.0.2.{line}:80");
    service.push(Entry::implied("listen", vec![Item::new(listen, None)]).essential());
    service.push(Entry::implied("forward", "proxy").essential());
    service.push(Entry::implied("protocol", "http").essential());
    service.push(Entry::implied("pool", pool).essential());
    service
}

fn service_text(name: &str, pool: &str, line: usize) -> String {
    format!(
        "[service.{name}]\nlisten = [\"192.0.2.{line}:80\"]\nforward = \"proxy\"\nprotocol = \"http\"\n\
         pool = \"{pool}\""
    )
}

/// Returns a route with this path and status 204, imported from this line.
fn route(path: &str, line: usize) -> Table {
    let mut route = Table::new(&["route"], at(line)).repeated();
    route.push(Entry::implied("service", "a").essential());
    route.push(Entry::implied("path", path).essential());
    route.push(Entry::implied("status", 204_u64).essential());
    route
}

fn route_text(path: &str) -> String {
    format!("[[route]]\nservice = \"a\"\npath = \"{path}\"\nstatus = 204")
}

/// Returns a pool from line 1 with its servers, from line 2 on, and these further keys.
fn pool_with(servers: &[&str], keys: Vec<Entry>) -> Table {
    let mut pool = Table::new(&["pool", "a"], at(1));
    let servers = servers.iter().enumerate();
    let servers = servers.map(|(index, address)| {
        let entries = vec![
            Entry::new("address", *address, at(index + 2)).essential(),
            Entry::implied("weight", 5_u64),
        ];
        Item::new(entries, Some(at(index + 2)))
    });
    pool.push(Entry::implied("servers", servers.collect::<Vec<Item>>()));
    pool.entries.extend(keys);
    pool
}

const ONE_SERVER: &str = "servers = [{ address = \"10.0.0.5:80\", weight = 5 }]";

#[test]
fn smallest_rejected_part_is_removed() {
    let unknown = "not imported: unknown key color in [pool.NAME]";
    let line = |number: usize, reason: &str| format!("line {number}: word: {reason}");
    let list = || vec![Item::new("x", Some(at(5))), Item::new("y", None)];
    let table = || vec![Entry::new("x", 1_u64, at(5)), Entry::implied("y", 2_u64)];
    for (key, lines) in [
        (Entry::new("color", "red", at(4)), &[4][..]),
        (Entry::implied("color", true), &[1]),
        (Entry::new("color", list(), at(4)), &[4, 5]),
        (Entry::new("color", table(), at(4)), &[4, 5]),
        (Entry::new("color", Vec::<Item>::new(), at(4)), &[4]),
    ] {
        let (text, notes) = validated(vec![
            pool_with(&["10.0.0.5:80"], vec![key]),
            service("a", "a", 9),
        ]);
        let service = service_text("a", "a", 9);
        assert_eq!(text, format!("[pool.a]\n{ONE_SERVER}\n{service}"));
        let expected: Vec<String> = lines.iter().map(|number| line(*number, unknown)).collect();
        assert_eq!(notes, expected);
    }
}

#[test]
fn item_is_removed_if_it_requires_a_rejected_key() {
    let (text, notes) = validated(vec![
        pool_with(&["10.0.0.5:80", "10.0.0.600:80"], Vec::new()),
        service("a", "a", 9),
    ]);
    let expected = service_text("a", "a", 9);
    assert_eq!(text, format!("[pool.a]\n{ONE_SERVER}\n{expected}"));
    assert_eq!(notes.len(), 1);
    assert!(
        notes[0].starts_with("line 3: word: not imported: "),
        "{notes:?}"
    );
    // If no server remains, the list is removed, and so is the service that uses the pool.
    let (text, notes) = validated(vec![
        pool_with(&["10.0.0.600:80"], Vec::new()),
        service("a", "a", 9),
        service("b", "c", 10),
        Table::new(&["pool", "c"], at(11)),
    ]);
    assert!(!text.contains("10.0.0.600"), "{text}");
    assert!(
        notes[0].starts_with("line 2: word: not imported: "),
        "{notes:?}"
    );
}

#[test]
fn key_that_is_not_essential_is_removed_alone() {
    let mut server = pool_with(&["10.0.0.5:80"], Vec::new());
    let Value::List(items) = &mut server.entries[0].item.value else {
        panic!("not a list of servers");
    };
    let Value::Table(entries) = &mut items[0].value else {
        panic!("not a server");
    };
    entries.push(Entry::new("color", "red", at(6)));
    entries.push(Entry::new("max_connections", "many", at(7)).or(9_u64));
    let (text, notes) = validated(vec![server, service("a", "a", 9)]);
    let expected =
        "[pool.a]\nservers = [{ address = \"10.0.0.5:80\", weight = 5, max_connections = 9 }]\n";
    assert_eq!(text, expected.to_owned() + &service_text("a", "a", 9));
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[0].starts_with("line 6: word: not imported: unknown key color"));
    assert!(notes[1].starts_with("line 7: word: not imported: "));
    assert!(notes[1].ends_with("; 9 is used instead"));
}

#[test]
fn rejected_table_is_removed_with_the_tables_in_it() {
    let mut dependent = Table::new(&["color", "b"], at(6));
    dependent.push(Entry::new("x", 1_u64, at(7)));
    dependent.dependent_lines = vec![at(8), at(1)];
    let (text, notes) = validated(vec![
        Table::new(&["color"], at(5)),
        dependent,
        pool_with(&["10.0.0.5:80"], Vec::new()),
        service("a", "a", 9),
    ]);
    let service = service_text("a", "a", 9);
    assert_eq!(text, format!("[pool.a]\n{ONE_SERVER}\n{service}"));
    let lines: Vec<&str> = notes.iter().filter_map(|note| note.get(..6)).collect();
    assert_eq!(lines, ["line 5", "line 6", "line 7", "line 8"]);
    assert_eq!(
        notes[3],
        "line 8: word: not imported: it depends on a part of line 6 that is not imported"
    );
}

#[test]
fn removed_element_of_an_array_does_not_remove_the_others() {
    let mut rejected = route("/b", 11);
    rejected.push(Entry::new("methodology", "x", at(12)).essential());
    let (text, notes) = validated(vec![
        pool_with(&["10.0.0.5:80"], Vec::new()),
        service("a", "a", 9),
        route("/a", 10),
        rejected,
        route("/c", 13),
    ]);
    let (service, first, second) = (
        service_text("a", "a", 9),
        route_text("/a"),
        route_text("/c"),
    );
    assert_eq!(
        text,
        format!("[pool.a]\n{ONE_SERVER}\n{service}\n{first}\n{second}")
    );
    assert_eq!(
        notes[0],
        "line 11: word: not imported: a part that it requires is not imported"
    );
    assert!(
        notes[1].starts_with("line 12: word: not imported: unknown key"),
        "{notes:?}"
    );
}

#[test]
fn route_that_no_request_reaches_is_removed() {
    let tables = |lines: [usize; 3]| {
        vec![
            pool_with(&["10.0.0.5:80"], Vec::new()),
            service("a", "a", 9),
            route("/a*", lines[0]),
            route("/ab", lines[1]),
            route("/b", lines[2]),
        ]
    };
    let reason =
        "not imported: no request reaches it, because line 10 already matches the same requests";
    for (lines, expected) in [
        ([10, 11, 12], vec![format!("line 11: word: {reason}")]),
        // There is no note if another route from the same line remains.
        ([10, 11, 11], Vec::new()),
        ([10, 10, 11], Vec::new()),
    ] {
        let (text, notes) = validated(tables(lines));
        assert_eq!(notes, expected, "{lines:?}");
        assert_eq!(text.matches("[[route]]").count(), 2);
        assert!(
            text.contains("\"/a*\"") && text.contains("\"/b\""),
            "{text}"
        );
    }
}

#[test]
fn route_whose_action_is_rejected_gets_a_status() {
    let validated_route = |key: &'static str, value: Value, keys: Vec<Entry>| {
        let mut route = Table::new(&["route"], at(10)).repeated();
        route.push(Entry::implied("service", "a").essential());
        route.push(Entry::implied("path", "/a").essential());
        route.push(Entry::new(key, value, at(11)).essential());
        route.entries.extend(keys);
        route.rejection_status = Some(404);
        let (text, notes) = validated(vec![
            pool_with(&["10.0.0.5:80"], Vec::new()),
            service("a", "a", 9),
            route,
        ]);
        let (_, route) = text.split_once("[[route]]\n").unwrap_or_default();
        (route.to_owned(), notes)
    };
    let header = || Entry::new("set_header", vec![Item::new("A: 1", None)], at(12));
    let (text, notes) = validated_route("files", "nothing".into(), vec![header()]);
    assert_eq!(text, "service = \"a\"\npath = \"/a\"\nstatus = 404");
    let lines: Vec<&str> = notes.iter().filter_map(|note| note.get(..7)).collect();
    assert_eq!(lines, ["line 11", "line 12"]);
    // Any other rejected part is removed as usual.
    let root = || Value::Table(vec![Entry::implied("root", "/srv")]);
    let unknown = Entry::new("color", "red", at(12));
    let (text, notes) = validated_route("files", root(), vec![unknown.clone()]);
    let expected = "service = \"a\"\npath = \"/a\"\nfiles = { root = \"/srv\" }";
    assert_eq!((text.as_str(), notes.len()), (expected, 1));
    let (text, notes) = validated_route("files", root(), vec![unknown.essential()]);
    assert_eq!((text.as_str(), notes.len()), ("", 3), "{notes:?}");
}

#[test]
fn replaced_action_keeps_all_conditions() {
    let mut table = Table::new(&["route"], at(1)).repeated();
    for key in ["service", "host", "not", "files", "source", "set_header"] {
        let mut entry = Entry::implied(key, "x");
        entry.item.removed = key != "service";
        table.push(entry);
    }
    (table.rejection_status, table.removed) = (Some(404), true);
    replace_action(&mut table, 401);
    assert_eq!((table.rejection_status, table.removed), (None, false));
    let keys: Vec<&str> = table.entries.iter().map(|entry| entry.key).collect();
    assert_eq!(keys, ["service", "host", "not", "source", "status"]);
    assert!(table.entries.iter().all(|entry| !entry.item.removed));
    for (key, expected) in [("files", true), ("basic_auth", true), ("pool", false)] {
        assert_eq!(is_action(&Entry::implied(key, "x")), expected, "{key}");
    }
}

#[test]
fn only_pools_that_removed_tables_used_are_removed() {
    let mut tables: Vec<Table> = ["used", "lost", "both", "unused"]
        .map(|name| Table::new(&["pool", name], at(1)))
        .into();
    tables.push(Table::new(&["pool", "lost", "check"], at(1)));
    tables.push(Table::new(&["check", "lost"], at(1)));
    tables.push(Table::new(&["pool"], at(1)));
    for (pool, removed) in [
        ("used", false),
        ("lost", true),
        ("both", true),
        ("both", false),
    ] {
        let mut service = Table::new(&["service", pool], at(2));
        service.push(Entry::implied("pool", pool));
        service.removed = removed;
        tables.push(service);
    }
    let mut document = Document { tables };
    mark_unused_pools(&mut document);
    let removed = document.tables.iter().filter(|table| table.removed);
    let paths: Vec<String> = removed.map(|table| table.path.join(".")).collect();
    assert_eq!(
        paths,
        [
            "pool.lost",
            "pool.lost.check",
            "service.lost",
            "service.both"
        ]
    );
}

#[test]
fn values_are_removed_with_their_required_parts() {
    let removed = |mut item: Item| {
        item.removed = true;
        item
    };
    let item = |value: Value| Item::new(value, None);
    let list = |items: Vec<Item>| item(items.into());
    let entry = |is_essential: bool, is_removed: bool| {
        let mut entry = Entry::implied("k", 1_u64);
        (entry.essential, entry.item.removed) = (is_essential, is_removed);
        entry
    };
    for (mut value, expected, expected_text) in [
        (item(1_u64.into()), false, "1"),
        (removed(item(1_u64.into())), true, "1"),
        (list(Vec::new()), false, "[]"),
        (removed(list(Vec::new())), true, "[]"),
        (
            list(vec![item("a".into()), removed(item("b".into()))]),
            false,
            "[\"a\"]",
        ),
        (list(vec![removed(item("b".into()))]), true, "[]"),
        (removed(list(vec![item("a".into())])), true, "[\"a\"]"),
        (
            item(vec![entry(true, false), entry(false, true)].into()),
            false,
            "{ k = 1 }",
        ),
        (
            item(vec![entry(false, false), entry(true, true)].into()),
            true,
            "{ k = 1 }",
        ),
        (
            item(vec![entry(true, true), entry(false, true), entry(false, false)].into()),
            true,
            "{ k = 1 }",
        ),
        (
            removed(item(vec![entry(true, false)].into())),
            true,
            "{ k = 1 }",
        ),
    ] {
        assert_eq!(remove_marked_in(&mut value), expected, "{expected_text}");
        assert_eq!(value.removed, expected, "{expected_text}");
        let mut table = Table::new(&["t"], at(1));
        table.push(Entry::implied("k", value.value));
        let text = Document {
            tables: vec![table],
        }
        .render()
        .text;
        assert_eq!(text, format!("[t]\nk = {expected_text}\n"));
    }
}

#[test]
fn size_counts_tables_values_and_fallbacks() {
    let value = |value: Value| {
        let mut table = Table::new(&["t"], at(1));
        table.push(Entry::implied("k", value));
        Document {
            tables: vec![table],
        }
    };
    assert_eq!(size(&Document::default()), 0);
    let tables = vec![Table::new(&["a"], at(1)), Table::new(&["b"], at(1))];
    assert_eq!(size(&Document { tables }), 2);
    let list = vec![Item::new(1_u64, None), Item::new(2_u64, None)];
    let table = vec![
        Entry::implied("a", 1_u64),
        Entry::implied("b", 2_u64).or(3_u64),
    ];
    for (found, expected) in [
        (value(1_u64.into()), 2),
        (value(list.into()), 4),
        (value(table.into()), 5),
    ] {
        assert_eq!(size(&found), expected);
    }
}

#[test]
fn last_table_is_removed_if_nothing_else_helps() {
    let mut document = Document {
        tables: vec![Table::new(&["a"], at(1)), Table::new(&["b"], at(2))],
    };
    let mut notes = notes_for_lines(2);
    for count in [1, 0, 0] {
        remove_last(&mut document, &mut notes);
        assert_eq!(document.tables.len(), count);
    }
    let note =
        |line: usize| format!("line {line}: word: not imported: weir check rejects the result");
    assert_eq!(notes.finish(), [note(1), note(2)]);
}

#[test]
fn values_are_shown_in_notes() {
    for (value, expected) in [
        (Value::from("drop"), "drop"),
        (Value::from(9_u64), "9"),
        (Value::from(true), "true"),
        (Value::Hundredths(250), "2"),
        (Value::List(Vec::new()), "a simpler value"),
        (Value::Table(Vec::new()), "a simpler value"),
    ] {
        assert_eq!(display_value(&value), expected);
    }
}

#[test]
fn cause_is_shown_if_the_error_has_no_label() {
    let parsed = weir_config::parse("[pool.a]\ncolor = 1\n", &Host::default());
    let mut error = parsed.expect_err("an unknown key").remove(0);
    error.message = "`a` is wrong".to_owned();
    for (label, cause, expected) in [
        ("", None, "a is wrong"),
        ("", Some("because of `b`"), "a is wrong (because of b)"),
        ("here", Some("because of `b`"), "a is wrong"),
        ("here", None, "a is wrong"),
    ] {
        error.label = label.to_owned();
        error.cause = cause.map(str::to_owned);
        assert_eq!(diagnostic_text(&error), expected);
    }
}

#[test]
fn only_rejected_key_is_removed() {
    let position = Position::new(0, 1);
    let mut document = Document::default();
    let mut pool = pool(position, "10.0.0.5");
    pool.push(Entry::new("color", "red", Position::new(0, 2)));
    document.push(pool);
    let imported = validate(document, notes_for_lines(2));
    let lost = "# LOST line 2: word: not imported: unknown key color in [pool.NAME]\n";
    assert!(imported.toml.starts_with(lost), "{}", imported.toml);
    assert!(
        imported
            .toml
            .contains("\n[pool.a]\nservers = [\n  \"10.0.0.5\",\n]\n")
    );
    assert!(imported.toml.ends_with("(LOST above): 2\n"));
    assert_eq!(imported.notes.len(), 1);
    assert!(imported.notes[0].starts_with("line 2: word: not imported:"));
}

#[test]
fn service_without_essential_key_is_removed_with_its_pool() {
    let mut document = Document::default();
    document.push(pool(Position::new(0, 3), "10.0.0.5"));
    let mut service = Table::new(&["service", "a"], Position::new(0, 1));
    let listen = vec![Item::new("sctp/192.0.2.1:80", None)];
    service.push(Entry::new("listen", listen, Position::new(0, 2)).essential());
    service.push(Entry::implied("forward", "nat").essential());
    service.push(Entry::implied("pool", "a").essential());
    document.push(service);
    let imported = validate(document, notes_for_lines(3));
    assert!(
        imported
            .toml
            .lines()
            .all(|line| line.is_empty() || line.starts_with('#'))
    );
    let lines: Vec<&str> = imported
        .notes
        .iter()
        .filter_map(|note| note.get(..6))
        .collect();
    assert_eq!(lines, ["line 1", "line 2", "line 3"]);
}

#[test]
fn rejected_value_is_replaced_by_fallback() {
    let position = Position::new(0, 1);
    let mut document = Document::default();
    let mut table = pool(position, "10.0.0.5");
    table.push(Entry::new("no_server", "shout", position).or("drop"));
    document.push(table);
    let imported = validate(document, notes_for_lines(1));
    assert!(imported.toml.contains("no_server = \"drop\""));
    assert!(imported.notes[0].ends_with("; drop is used instead"));
}
