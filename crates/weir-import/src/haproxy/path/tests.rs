use crate::EmptyEnvironment;

/// Imports a frontend with these lines, starting at line 4. Returns `normalize_path`, and the notes with the numbers of
/// their lines.
fn normalize_path(lines: &[&str]) -> (String, Vec<String>) {
    let text = format!(
        "defaults\n mode http\nfrontend f\n {}\n bind :80\n default_backend b\nbackend b\n server a 10.0.0.5:80\n",
        lines.join("\n ")
    );
    let imported = crate::haproxy("haproxy.cfg", &text, &EmptyEnvironment);
    let mut toml = imported.toml.lines();
    let value = toml.find_map(|line| line.strip_prefix("normalize_path = "));
    (value.unwrap_or_default().to_owned(), imported.notes)
}

const ALL: [&str; 5] = [
    "http-request normalize-uri path-strip-dot",
    "http-request normalize-uri path-strip-dotdot full",
    "http-request normalize-uri percent-decode-unreserved",
    "http-request normalize-uri percent-to-uppercase strict",
    "http-request normalize-uri path-merge-slashes",
];

#[test]
fn rules_determine_the_form_of_paths() {
    assert_eq!(normalize_path(&[]), ("false".to_owned(), Vec::new()));
    let normalized = "{ forward = \"normalized\" }".to_owned();
    assert_eq!(normalize_path(&ALL), (normalized, Vec::new()));
    let unmerged = "{ forward = \"normalized\", merge_slashes = false }".to_owned();
    assert_eq!(normalize_path(&ALL[..4]), (unmerged.clone(), Vec::new()));
    let note = |line: &str, names: &str| {
        vec![format!(
            "{line}: a service's `normalize_path` also applies {names}"
        )]
    };
    let others = "path-strip-dot, path-strip-dotdot, percent-to-uppercase";
    assert_eq!(
        normalize_path(&ALL[2..3]),
        (
            unmerged,
            note(
                "line 4: http-request normalize-uri percent-decode-unreserved",
                others
            )
        )
    );
    let others =
        "path-strip-dot, path-strip-dotdot, percent-decode-unreserved, percent-to-uppercase";
    let (value, notes) = normalize_path(&["http-request set-header a b", ALL[4]]);
    assert_eq!(value, "{ forward = \"normalized\" }");
    assert_eq!(
        notes,
        note(
            "line 5: http-request normalize-uri path-merge-slashes",
            others
        )
    );
}

#[test]
fn other_normalizers_are_losses() {
    for (rule, reason) in [
        (
            "http-request normalize-uri fragment-strip",
            "Weir responds with status 400 to a target with a fragment",
        ),
        (
            "http-request normalize-uri fragment-encode",
            "Weir responds with status 400 to a target with a fragment",
        ),
        (
            "http-request normalize-uri query-sort-by-name",
            "Weir does not change queries",
        ),
        (
            "http-request normalize-uri other",
            "a service's `normalize_path` has no such option",
        ),
        (
            "http-request normalize-uri",
            "a service's `normalize_path` has no such option",
        ),
        (
            "http-request normalize-uri path-strip-dot if { method GET }",
            "a service's `normalize_path` applies to all of its requests",
        ),
    ] {
        let (value, notes) = normalize_path(&[rule]);
        assert_eq!(value, "false", "{rule}");
        assert_eq!(notes, [format!("line 4: {rule}: not imported: {reason}")]);
    }
}
