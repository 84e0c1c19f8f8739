//! Compares reference pages with their sources.
//!
//! The fields of the status document must match the types and their comments, and the page of the HTTP API must match
//! `openapi.json`, which must contain every route of the program. `WEIR_UPDATE_DOCS=1` writes the pages instead.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compares a page of the manual with the generated text, or writes the page.
fn check_page(name: &str, current: &str) {
    let path = root().join("docs/manual").join(name);
    if std::env::var_os("WEIR_UPDATE_DOCS").is_some() {
        fs::write(&path, current).expect("write the page");
    }
    let content = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        content, current,
        "{name} is stale; run with WEIR_UPDATE_DOCS=1"
    );
}

/// Folders that contain the types of the status document.
const TYPES: &[&str] = &[
    "weir-control/src/status",
    "weir-engine/src",
    "weir-discovery/src",
    "weir-vrrp-agent/src",
    "weir-engine-host/src",
];

/// A field of the JSON document.
struct Field {
    name: String,
    /// The name of the field's type in JSON, and the struct that the type contains.
    json_type: String,
    struct_name: String,
    is_flattened: bool,
    is_optional: bool,
    text: String,
}

/// Returns the purpose and fields of each struct that derives `Serialize`, by name.
fn structs() -> BTreeMap<String, (String, Vec<Field>)> {
    let mut found = BTreeMap::new();
    for folder in TYPES {
        let entries = fs::read_dir(root().join("crates").join(folder)).expect("read the folder");
        let paths = entries.map(|entry| entry.expect("read the directory entry").path());
        for path in paths.filter(|path| path.extension().is_some_and(|it| it == "rs")) {
            let text = fs::read_to_string(&path).expect("read the file");
            for item in syn::parse_file(&text).expect("Rust").items {
                if let syn::Item::Struct(item) = item
                    && attribute_text(&item.attrs, "derive").contains("Serialize")
                {
                    let fields = item.fields.iter().filter_map(field).collect();
                    let about = (comment(&item.attrs), fields);
                    found.entry(item.ident.to_string()).or_insert(about);
                }
            }
        }
    }
    found
}

fn field(field: &syn::Field) -> Option<Field> {
    let serde = attribute_text(&field.attrs, "serde");
    let renamed = serde.split_once("rename = \"").map(|(_, rest)| rest);
    let renamed = renamed.and_then(|rest| rest.split('"').next());
    let name = field.ident.as_ref()?.to_string();
    let (json_type, struct_name) = json_type(&field.ty);
    Some(Field {
        name: renamed.map_or(name, str::to_owned),
        json_type,
        struct_name,
        is_flattened: serde.contains("flatten"),
        is_optional: serde.contains("skip_serializing_if"),
        text: comment(&field.attrs),
    })
}

/// Returns the text of the attributes with this name.
fn attribute_text(attributes: &[syn::Attribute], name: &str) -> String {
    let named = attributes.iter().filter(|it| it.path().is_ident(name));
    let texts = named.filter_map(|it| it.meta.require_list().ok());
    texts.map(|list| list.tokens.to_string()).collect()
}

/// Returns the documentation comment on one line.
fn comment(attributes: &[syn::Attribute]) -> String {
    let docs = attributes.iter().filter(|it| it.path().is_ident("doc"));
    let lines = docs.filter_map(|it| match &it.meta.require_name_value().ok()?.value {
        syn::Expr::Lit(syn::ExprLit {
            lit: syn::Lit::Str(text),
            ..
        }) => Some(text.value()),
        _ => None,
    });
    let lines: Vec<String> = lines.map(|line| line.trim().to_owned()).collect();
    lines.join(" ").replace('|', "\\|")
}

/// Returns the name of a type in JSON, and the name of the struct that it contains.
fn json_type(ty: &syn::Type) -> (String, String) {
    let syn::Type::Path(path) = ty else {
        return match ty {
            syn::Type::Array(_) => ("list of numbers".to_owned(), String::new()),
            _ => ("list".to_owned(), String::new()),
        };
    };
    let last = path.path.segments.last().expect("has a name");
    let mut inner = Vec::new();
    if let syn::PathArguments::AngleBracketed(arguments) = &last.arguments {
        for argument in &arguments.args {
            if let syn::GenericArgument::Type(ty) = argument {
                inner.push(json_type(ty));
            }
        }
    }
    let name = last.ident.to_string();
    let argument = inner.pop();
    match (name.as_str(), argument) {
        ("Option", Some(argument)) => argument,
        ("Vec", Some((element, struct_name))) => (format!("list of {element}"), struct_name),
        ("BTreeMap", Some((value, struct_name))) => {
            (format!("object; each value: {value}"), struct_name)
        }
        ("String" | "IpAddr" | "ListSource", _) => ("text".to_owned(), String::new()),
        ("bool", _) => ("true or false".to_owned(), String::new()),
        ("Milliseconds" | "f64" | "u8" | "u16" | "u32" | "u64" | "i64" | "usize", _) => {
            ("number".to_owned(), String::new())
        }
        (other, _) => (
            format!("[{other}](#{})", other.to_lowercase()),
            other.to_owned(),
        ),
    }
}

#[test]
fn status_page_matches_the_types() {
    let all_structs = structs();
    let mut out = String::from(
        "# Fields of the status\n\n`weir status --json` and `GET /v1/status` return a [Report](#report). New fields \
         may be added;\nexisting fields are not renamed. Fields marked with * are absent if they do not apply.\n",
    );
    let (mut pending, mut index) = (vec!["Report".to_owned()], 0);
    while let Some(name) = pending.get(index).cloned() {
        index += 1;
        let Some((about, fields)) = all_structs.get(&name) else {
            let _ = write!(out, "\n## {name}\n\nText.\n");
            continue;
        };
        let _ = write!(
            out,
            "\n## {name}\n\n{about}\n\n| field | type | meaning |\n|---|---|---|\n"
        );
        for field in fields {
            let mark = if field.is_optional { " *" } else { "" };
            let named = format!("`{}`{mark}", field.name);
            let named = if field.is_flattened {
                "the fields of".to_owned()
            } else {
                named
            };
            let _ = writeln!(out, "| {named} | {} | {} |", field.json_type, field.text);
            if !field.struct_name.is_empty() && !pending.contains(&field.struct_name) {
                pending.push(field.struct_name.clone());
            }
        }
    }
    for name in ["Service", "Server", "Latency", "VirtualRouterStatus"] {
        assert!(out.contains(&format!("\n## {name}\n")), "{name}");
    }
    check_page("status-json.md", &out);
}

/// Returns the routes of the program: the path, and the methods in lower case.
fn routes() -> BTreeMap<String, Vec<String>> {
    let path = root().join("crates/weir-control/src/api/mod.rs");
    let text = fs::read_to_string(path).expect("the routes");
    let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let calls = text.split(".route(").skip(1);
    let routes = calls.map(|call| {
        let (_, rest) = call.split_once('"').expect("contains a path");
        let (path, rest) = rest.split_once('"').expect("has an end");
        let rest = rest.split(".fallback").next().expect("the handlers");
        let methods = ["get", "post", "put", "delete", "patch"];
        let used_methods = methods.iter().filter(|it| rest.contains(&format!("{it}(")));
        (
            path.to_owned(),
            used_methods.map(ToString::to_string).collect(),
        )
    });
    routes.collect()
}

fn openapi() -> Value {
    let path = root().join("docs/manual/openapi.json");
    serde_json::from_str(&fs::read_to_string(path).expect("read the file")).expect("JSON")
}

#[test]
fn openapi_contains_every_route() {
    let described = openapi();
    let paths = described["paths"].as_object().expect("paths");
    let described = paths.iter().map(|(path, methods)| {
        let mut methods: Vec<String> = methods
            .as_object()
            .expect("methods")
            .keys()
            .cloned()
            .collect();
        methods.sort_unstable();
        (path.clone(), methods)
    });
    let mut routes = routes();
    routes
        .values_mut()
        .for_each(|methods| methods.sort_unstable());
    assert!(routes.len() >= 10, "{routes:?}");
    assert_eq!(described.collect::<BTreeMap<_, _>>(), routes);
}

#[test]
fn openapi_references_exist() {
    let text = openapi().to_string();
    let document = openapi();
    for reference in text.split("\"#/components/schemas/").skip(1) {
        let name = reference.split('"').next().expect("has an end");
        assert!(
            document["components"]["schemas"][name].is_object(),
            "{name}"
        );
    }
}

#[test]
fn api_page_matches_openapi() {
    let document = openapi();
    let mut out = String::from(
        "# HTTP API\n\nThe machine-readable description is [openapi.json](openapi.json) (OpenAPI 3.1). \
         [Operating](operating.md#the-http-api)\nexplains sockets, tokens and limits. Roles apply only to connections \
         over TCP. Access to the Unix socket is\ncontrolled by its file mode.\n\n| request | role | body | response | \
         purpose |\n|---|---|---|---|---|\n",
    );
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let schema = |message: &Value| {
                let reference = message["content"]["application/json"]["schema"]["$ref"].as_str();
                let name = reference.and_then(|it| it.rsplit('/').next());
                name.map_or(String::new(), |it| {
                    format!("[{it}](#{})", it.to_lowercase())
                })
            };
            let row = format!(
                "| `{} {path}` | {} | {} | {} | {} |\n",
                method.to_uppercase(),
                operation["x-role"].as_str().expect("has a role"),
                schema(&operation["requestBody"]),
                schema(&operation["responses"]["200"]),
                operation["summary"].as_str().expect("has a summary"),
            );
            out.push_str(&row.replace("|  |", "| |").replace("|  |", "| |"));
        }
    }
    out.push_str(
        "\nThe body of an error response is an [ApiError](#apierror). 400: the path, a parameter or the body is \
         malformed. 401: no\ntoken, or an unknown one. 403: insufficient role, or a cross-origin request. 404: \
         unknown path. 405: method not allowed;\n`Allow` lists the methods. 408: the body did not arrive in time. 413: \
         the body is too large. 421: the `Host` is not\nallowed. 422: the daemon rejected the request, for example \
         because of errors in a file. 503: the daemon is stopping.\nRequests that are not HTTP, and those with a \
         header that is too large, get 400 and 431 without a body.\n",
    );
    for (name, schema) in document["components"]["schemas"]
        .as_object()
        .expect("schemas")
    {
        let about = schema["description"].as_str().unwrap_or("An object.");
        let _ = write!(out, "\n## {name}\n\n{about}\n");
        let fields = schema["properties"].as_object().filter(|it| !it.is_empty());
        if let Some(fields) = fields {
            out.push_str("\n| field | type | meaning |\n|---|---|---|\n");
            for (field, schema) in fields {
                let kind = schema["type"].as_str().unwrap_or("");
                let choices: Vec<&str> = schema["enum"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .collect();
                let kind = if choices.is_empty() {
                    kind.to_owned()
                } else {
                    choices.join(", ")
                };
                let text = schema["description"].as_str().unwrap_or("");
                out.push_str(&format!("| `{field}` | {kind} | {text} |\n").replace("|  |", "| |"));
            }
        }
    }
    check_page("http-api.md", &out);
}

/// The page of metrics is generated from a running daemon. A family could be missing because the daemon's configuration
/// does not produce it.
#[test]
fn metrics_page_contains_every_family() {
    let page = fs::read_to_string(root().join("docs/manual/metrics.md")).expect("read the page");
    let folder = root().join("crates/weir-control/src/metrics");
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("read the folder") {
        let path = entry.expect("read the directory entry").path();
        if path.extension().is_none_or(|it| it != "rs") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("read the file");
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for name in code.split("\"weir_").skip(1) {
            let name = name.split('"').next().unwrap_or_default();
            if name.is_empty() || name.contains(|it: char| !it.is_ascii_alphanumeric() && it != '_')
            {
                continue;
            }
            assert!(page.contains(&format!("| `weir_{name}` |")), "weir_{name}");
            count += 1;
        }
    }
    assert!(count > 50, "{count} families");
}

/// Names of the benchmark rows in docs/performance.md and in `tools/bench.py`.
const GOAL_ROWS: [(&str, &str); 16] = [
    ("direct, 1 flow", "direct to katran ipip, TCP, 1 flow"),
    (
        "tunnel ipip, 1 flow",
        "tunnel ipip to katran ipip, TCP, 1 flow",
    ),
    (
        "tunnel gue, checksum, 1 flow",
        "tunnel gue, checksum to katran gue, TCP, 1 flow",
    ),
    ("direct, 1 M flows", "direct to katran ipip, TCP, 1 M flows"),
    (
        "direct, UDP from random sources",
        "direct to katran ipip, UDP, random sources",
    ),
    (
        "direct, maglev, SYN flood",
        "direct, maglev to katran ipip, SYN flood, random sources",
    ),
    ("direct, not a VIP", "direct to katran ipip, not a VIP"),
    ("nat through veth, net", "nat to nftables DNAT, net"),
    (
        "direct through veth, net",
        "direct to nftables ingress DSR, net",
    ),
    (
        "direct through veth, the whole pipeline",
        "direct to nftables ingress DSR, packets of the whole pipeline",
    ),
    (
        "HTTP/1.1 small, keep-alive, CPU",
        "small, keep-alive, 64 connections: weir to haproxy",
    ),
    (
        "16 KB",
        "16 KB, keep-alive, 64 connections: weir to haproxy",
    ),
    ("1 MB", "1 MB, keep-alive, 16 connections: weir to haproxy"),
    (
        "a connection per request",
        "small, a connection each, 64 connections: weir to haproxy",
    ),
    (
        "TLS 1.3, small",
        "TLS 1.3, small, keep-alive, 64 connections: weir to haproxy",
    ),
    (
        "TLS 1.3, one handshake per request",
        "TLS 1.3, small, a handshake each, 64 connections: weir to haproxy",
    ),
];

/// Returns the goals in `tools/bench.py`, by row.
fn goals() -> BTreeMap<String, (String, f64)> {
    let text = fs::read_to_string(root().join("tools/bench.py")).expect("read the file");
    let (_, list) = text.split_once("\nGOALS = [\n").expect("the goals");
    let (list, _) = list.split_once("\n]").expect("have an end");
    let goal = |line: &str| {
        let parts: Vec<&str> = line.split('"').collect();
        let number = parts[4].trim_matches([',', ' ', ')']).parse();
        (
            parts[1].to_owned(),
            (parts[3].to_owned(), number.expect(line)),
        )
    };
    list.lines().map(goal).collect()
}

/// The packet benchmark also contains its goals, and the table in docs/performance.md lists all goals.
#[test]
fn goals_in_benchmarks_and_page_are_equal() {
    let goals = goals();
    assert!(goals.len() >= 17, "{goals:?}");
    let path = root().join("crates/weir-dataplane/benches/packet/report.rs");
    let text = fs::read_to_string(path).expect("read the file");
    let (_, list) = text.split_once("const GOALS").expect("the goals");
    let (list, _) = list.split_once("];").expect("have an end");
    let mut count = 0;
    for line in list.lines().filter(|line| line.starts_with("    (\"")) {
        let parts: Vec<&str> = line.split('"').collect();
        let peer = if parts[1].contains("gue") {
            "gue"
        } else {
            "ipip"
        };
        let name = format!("{} to katran {peer}, {}", parts[1], parts[3]);
        let number: f64 = parts[4].trim_matches([',', ' ', ')']).parse().expect(line);
        assert_eq!(goals[&name].1, number, "{name}");
        count += 1;
    }
    assert_eq!(count, 7);
    let page = fs::read_to_string(root().join("docs/performance.md")).expect("read the page");
    let (_, table) = page.split_once("\n## Goals\n").expect("the table");
    let (table, _) = table.split_once("\n## ").expect("has an end");
    for (row, name) in GOAL_ROWS {
        let start = format!("| {row} |");
        let line = table.lines().find(|line| line.starts_with(&start));
        let line = line.unwrap_or_else(|| panic!("{row} is missing"));
        let cell = line.split('|').nth(4).expect("has a goal").trim();
        let words: Vec<&str> = cell.split_whitespace().collect();
        let (sign, goal) = &goals[name];
        let number: f64 = words[1].parse().expect(line);
        assert_eq!((words[0], number), (sign.as_str(), *goal), "{row}");
    }
}
