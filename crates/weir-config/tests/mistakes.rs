//! Every mistake in `mistakes/` with what the operator reads about it: one snapshot each.

use std::fs;
use std::path::Path;

use weir_config::{FileError, Host, load, parse, parse_json, render, render_file_error};

const HOST: Host = Host {
    local_ports: Some((32_768, 60_999)),
    forwards: Some((false, true)),
};

fn told(text: &str, name: &str) -> String {
    match parse(text, &HOST) {
        Ok(parsed) => render(&parsed.findings, text, name, false),
        Err(found) => render(&found, text, name, false),
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the mistakes are files")]
fn every_mistake_is_told() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mistakes");
    let mut names: Vec<String> = fs::read_dir(folder.as_path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert!(names.len() >= 45, "{} mistakes", names.len());
    for name in names {
        let text = fs::read_to_string(folder.join(&name)).unwrap();
        let said = told(&text, "weir.toml");
        assert!(!said.is_empty(), "{name} is no mistake");
        insta::assert_snapshot!(name.trim_end_matches(".toml"), said);
    }
}

#[test]
fn files_that_are_no_configuration() {
    let big = vec![b'#'; (16 << 20) + 1];
    let errors = [
        load(b"[node]\n# caf\xe9\n").unwrap_err(),
        load(b"[node]\n\0\0\0").unwrap_err(),
        load(&big).unwrap_err(),
        FileError::Missing {
            path: "weir.toml".into(),
        },
        FileError::Unreadable {
            path: "weir.toml".into(),
            reason: "Permission denied (os error 13)".to_owned(),
        },
    ];
    let said: Vec<String> = errors
        .iter()
        .map(|error| render_file_error(error, "weir.toml", false))
        .collect();
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn mistakes_in_json_have_their_places_too() {
    let texts = [
        "{\n  \"node\": {\"max_flow\": 4096},\n  \"timeouts\": {\"tcp\": 900, \"tcp\": null}\n}\n",
        "{\n  \"node\": {\n    \"max_flows\": 4096,\n  }\n}\n",
        "[]\n",
    ];
    let said: Vec<String> = texts
        .iter()
        .map(|text| {
            render(
                &parse_json(text, &HOST).unwrap_err(),
                text,
                "weir.json",
                false,
            )
        })
        .collect();
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn colours_are_only_colours() {
    let text = "[node]\nmax_flow = 1\n";
    let found = parse(text, &HOST).unwrap_err();
    let coloured = render(&found, text, "weir.toml", true);
    let mut plain = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = after.split_once('m').unwrap().1;
    }
    plain.push_str(rest);
    assert_ne!(coloured, plain);
    assert_eq!(plain, render(&found, text, "weir.toml", false));
}

#[test]
fn a_line_too_long_to_show_is_named() {
    let text = format!("{{\"node\": {{\"max_flow\": 1}}{}}}", " ".repeat(5000));
    let said = render(
        &parse_json(&text, &HOST).unwrap_err(),
        &text,
        "weir.json",
        false,
    );
    assert!(said.contains("weir.json:1:11"), "{said}");
    assert!(said.len() < 500, "{said}");
}

#[test]
fn a_flood_of_mistakes_is_cut_and_warnings_hide_no_error() {
    let mut text = String::from("[node]\n");
    for n in 0..5000 {
        text.push_str(&format!("x{n} = 1\n"));
    }
    let found = parse(&text, &HOST).unwrap_err();
    assert_eq!(found.len(), 1001);

    let mut text = String::new();
    for n in 0..3000 {
        text.push_str(&format!("[pool.p{n}]\nservers = [\"10.0.0.5\"]\n"));
    }
    text.push_str("[timeouts]\ntcp = 5\n");
    let found = parse(&text, &HOST).unwrap_err();
    assert_eq!(
        found.iter().filter(|d| d.code.as_str() == "E004").count(),
        1
    );
}
