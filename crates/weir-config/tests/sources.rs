//! Tests the secrets and lists that a configuration reads from files, environment variables and credentials.

use weir_config::{Code, Diagnostic, Host, Machine, SecretValue, parse};
use weir_model::{Desired, Family, Secret, SecretSource};

/// A machine with list files and secrets, by path or name.
#[derive(Default)]
struct TestMachine {
    lists: Vec<(&'static str, &'static str)>,
    secrets: Vec<(SecretSource, Result<&'static str, &'static str>)>,
    /// The mode of all sources, if every user can read them.
    exposed: Option<u32>,
}

impl Machine for TestMachine {
    fn local_ports(&self) -> Option<(u16, u16)> {
        None
    }

    fn forwards(&self, _: Family) -> Option<bool> {
        None
    }

    fn secret(&self, source: &SecretSource) -> Option<Result<SecretValue, String>> {
        let (_, found) = self.secrets.iter().find(|(secret, _)| secret == source)?;
        let value = |text: &str| SecretValue {
            bytes: text.into(),
            exposed: self.exposed,
        };
        Some(found.map(value).map_err(str::to_owned))
    }

    fn list_file(&self, path: &str) -> Option<Result<String, String>> {
        let found = self.lists.iter().find(|(list, _)| *list == path);
        let content = found.map(|(_, content)| (*content).to_owned());
        Some(content.ok_or_else(|| "no such file".to_owned()))
    }
}

/// Returns the only diagnostic, of a valid or an invalid configuration.
#[track_caller]
fn only_finding(text: &str, machine: &dyn Machine) -> Diagnostic {
    let found = match parse(text, machine) {
        Ok(parsed) => parsed.findings,
        Err(found) => found,
    };
    match <[Diagnostic; 1]>::try_from(found) {
        Ok([diagnostic]) => diagnostic,
        Err(found) => panic!("{found:#?}"),
    }
}

#[track_caller]
fn desired(text: &str, machine: &dyn Machine) -> Desired {
    parse(text, machine).expect("parse configuration").desired
}

fn sync(key: &str) -> String {
    format!("[sync]\nlisten = \"10.0.0.1:8482\"\npeers = [\"10.0.0.9:8482\"]\nkey = {key}\n")
}

fn sync_key(text: &str, machine: &dyn Machine) -> Secret {
    desired(text, machine).sync.expect("no `sync`").key
}

const VALUE: &str = "0123456789abcdef";

fn sources() -> [(&'static str, SecretSource, &'static str); 3] {
    [
        (
            "{ file = \"/k\" }",
            SecretSource::File("/k".to_owned()),
            "file /k",
        ),
        (
            "{ env = \"KEY\" }",
            SecretSource::Env("KEY".to_owned()),
            "environment variable KEY",
        ),
        (
            "{ credential = \"k\" }",
            SecretSource::Credential("k".to_owned()),
            "credential k",
        ),
    ]
}

#[test]
fn secret_is_read_from_its_source() {
    for (value, source, _) in sources() {
        let machine = TestMachine {
            secrets: vec![(source.clone(), Ok(VALUE))],
            ..TestMachine::default()
        };
        let key = sync_key(&sync(value), &machine);
        assert_eq!(key, Secret::new(source.clone(), VALUE.into()));
        // Secrets are not read on another machine.
        let key = sync_key(&sync(value), &Host::default());
        assert_eq!(key, Secret::new(source, Vec::new()));
    }
    let text = sync(&format!("\"{VALUE}\""));
    let expected = Secret::new(SecretSource::Text, VALUE.into());
    assert_eq!(sync_key(&text, &Host::default()), expected);
    let machine = TestMachine {
        secrets: vec![(SecretSource::Text, Ok(""))],
        ..TestMachine::default()
    };
    assert_eq!(sync_key(&text, &machine), expected);
}

#[test]
fn unreadable_secret_is_reported_with_advice() {
    let cases = [
        (0, "no such file", "create the file with mode 0600"),
        (
            0,
            "Permission denied (os error 13)",
            "run this command as root, or as the account that may read the file",
        ),
        (
            1,
            "not set",
            "set it in the environment of `weir run`, or with `EnvironmentFile=` in the systemd unit",
        ),
        (
            2,
            "Permission denied (os error 13)",
            "add `LoadCredential=NAME:PATH` to the systemd unit",
        ),
    ];
    for (index, reason, fix) in cases {
        let (value, source, name) = sources()[index].clone();
        let machine = TestMachine {
            secrets: vec![(source, Err(reason))],
            ..TestMachine::default()
        };
        let found = only_finding(&sync(value), &machine);
        assert_eq!(found.code, Code::SecretUnavailable);
        let message = format!("cannot read the secret: {name}: {reason}");
        assert_eq!(found.message, message);
        assert_eq!(found.fix.as_deref(), Some(fix));
    }
}

#[test]
fn exposed_secret_is_reported_with_its_mode() {
    let text = format!("\"{VALUE}\"");
    let in_text = (
        text.as_str(),
        SecretSource::Text,
        "this file contains a secret, and every user on this machine can read it (mode 0644)",
        "set its mode to 0600, or store the secret elsewhere: { file = … }, { env = … }, { credential = … }",
    );
    let [
        (file, file_source, _),
        _,
        (credential, credential_source, _),
    ] = sources();
    for (value, source, message, fix) in [
        in_text,
        (
            file,
            file_source,
            "every user on this machine can read the secret in /k (mode 0644)",
            "chmod 600 /k",
        ),
        (
            credential,
            credential_source,
            "every user on this machine can read the secret in credential k (mode 0644)",
            "set the mode of its file to 0600",
        ),
    ] {
        let machine = TestMachine {
            secrets: vec![(source, Ok(VALUE))],
            exposed: Some(0o644),
            ..TestMachine::default()
        };
        let found = only_finding(&sync(value), &machine);
        assert_eq!(found.code, Code::ExposedSecret);
        assert_eq!(found.message, message);
        assert_eq!(found.fix.as_deref(), Some(fix));
    }
}

#[test]
fn secret_has_exactly_one_valid_source() {
    for (value, code, message) in [
        ("\"\"", Code::SecretUnavailable, "the secret is empty"),
        (
            "{}",
            Code::Contradiction,
            "a secret must have exactly one source",
        ),
        (
            "{ file = \"/k\", env = \"K\" }",
            Code::Contradiction,
            "a secret must have exactly one source",
        ),
        (
            "{ env = \"K\", credential = \"k\" }",
            Code::Contradiction,
            "a secret must have exactly one source",
        ),
        (
            "{ file = \"k\" }",
            Code::BadText,
            "`file` must be an absolute path",
        ),
        (
            "{ env = \"\" }",
            Code::BadText,
            "invalid environment variable name",
        ),
        (
            "{ env = \"A=B\" }",
            Code::BadText,
            "invalid environment variable name",
        ),
        (
            "{ env = \"A\\u0000\" }",
            Code::BadText,
            "invalid environment variable name",
        ),
        (
            "{ credential = \"\" }",
            Code::BadText,
            "invalid credential name",
        ),
        (
            "{ credential = \"..\" }",
            Code::BadText,
            "invalid credential name",
        ),
        (
            "{ credential = \"a/b\" }",
            Code::BadText,
            "invalid credential name",
        ),
    ] {
        let found = only_finding(&sync(value), &Host::default());
        assert_eq!(
            (found.code, found.message.as_str()),
            (code, message),
            "{value}"
        );
    }
    let found = only_finding(&sync("7"), &Host::default());
    assert_eq!(found.code, Code::WrongType);
}

const POOL: &str = "[pool.p]\nservers = [\"10.0.0.5\"]\ncheck = { kind = \"tcp\", port = 80 }\n[service.s]\nlisten = \
                    [\"10.0.0.9:80\"]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \"p\"\n";

fn route(condition: &str) -> String {
    format!("{POOL}[[route]]\nservice = \"s\"\nstatus = 403\n{condition}\n")
}

fn with_list(content: &'static str) -> TestMachine {
    TestMachine {
        lists: vec![("/list", content)],
        ..TestMachine::default()
    }
}

#[test]
fn comments_and_empty_lines_in_lists_are_skipped() {
    let source = route("source = [{ file = \"/list\" }]");
    let machine = with_list("# office\n10.1.0.0/16 # first floor\n\n 192.0.2.7\t\n");
    let found = desired(&source, &machine);
    let sources = found.proxies[0].routes[0]
        .when
        .sources
        .clone()
        .expect("not set");
    for (address, expected) in [
        ("10.1.2.3", true),
        ("192.0.2.7", true),
        ("10.2.0.1", false),
        ("192.0.2.8", false),
    ] {
        let address = address.parse().expect("parse address");
        assert_eq!(sources.contains(address), expected, "{address}");
    }
    let host = route("host = { file = \"/list\" }");
    let machine = with_list("# shops\n a.example \n\n*.b.example\n");
    let found = desired(&host, &machine);
    let set = found.proxies[0].routes[0]
        .when
        .host_set
        .clone()
        .expect("not set");
    for (host, expected) in [
        ("a.example", true),
        ("x.b.example", true),
        ("c.example", false),
        ("# shops", false),
    ] {
        assert_eq!(set.contains(host), expected, "{host}");
    }
}

#[test]
fn invalid_list_line_is_reported_by_number_but_not_quoted() {
    let map = format!("{POOL}[map.m]\nkind = \"network\"\nfile = \"/list\"\n");
    let auth = route("basic_auth = { file = \"/list\" }").replace("status = 403", "pool = \"p\"");
    for (text, content, message) in [
        (
            route("source = [{ file = \"/list\" }]"),
            "10.0.0.0/8\n#\nhidden\n",
            "/list:3: not a valid network or address",
        ),
        (
            route("host = { file = \"/list\" }"),
            "a.example\n\nhid den\n",
            "/list:3: not a valid host",
        ),
        (
            auth.clone(),
            "# users\na:$5$x$y\nhidden\n",
            "/list:3: expected NAME:HASH",
        ),
        (
            auth.clone(),
            ":$5$x$hidden\n",
            "/list:1: the user name is empty",
        ),
        (auth, "a:hidden\n", "/list:1: unknown password hash format"),
    ] {
        let found = only_finding(&text, &with_list(content));
        assert_eq!(found.code, Code::BadListFile);
        assert_eq!(found.message, message);
    }
    let found = only_finding(&map, &with_list("# networks\n10.0.0.0/8 a\nx b\n"));
    assert_eq!(found.code, Code::BadListFile);
    assert!(
        found.message.starts_with("/list:3: invalid key: "),
        "{found:?}"
    );
}

#[test]
fn unreadable_list_file_and_relative_path_are_rejected() {
    for (key, noun) in [
        ("source = [{ file = \"PATH\" }]", "addresses"),
        ("host = { file = \"PATH\" }", "hosts"),
    ] {
        let text = route(&key.replace("PATH", "/none"));
        let found = only_finding(&text, &with_list(""));
        assert_eq!(found.code, Code::BadListFile);
        assert_eq!(
            found.message,
            format!("cannot read the {noun}: /none: no such file")
        );
        // Files are not read on another machine.
        assert!(parse(&text, &Host::default()).is_ok());
        for path in ["list", "/a\\u0000b"] {
            let text = route(&key.replace("PATH", path));
            let found = only_finding(&text, &Host::default());
            assert_eq!(found.code, Code::BadText);
            assert_eq!(found.message, "`file` must be an absolute path");
            let fix = format!("write an absolute path, as in \"/etc/weir/{noun}\"");
            assert_eq!(found.fix, Some(fix));
        }
    }
}

#[test]
fn map_entry_has_a_key_and_an_optional_value() {
    let text = format!(
        "{POOL}access_log = {{ path = \"/log\", format = \"{{map.m}}\" }}\n[map.m]\nfile = \"/list\"\nentries = \
         [\" a  b c \", \"d\"]\ndefault = \"x\"\nignore_case = true\n"
    );
    let found = desired(&text, &with_list("# comment\ne\tf \na late\n"));
    let map = &found.proxies[0].log_maps[0];
    assert_eq!(map.default.as_deref(), Some("x"));
    for (key, value) in [
        ("a", Some("b c")),
        ("A", Some("b c")),
        ("d", Some("")),
        ("e", Some("f")),
        ("#", None),
    ] {
        let found = map.entries.find(key.as_bytes());
        let found = found.map(|index| map.entries.values()[index].as_str());
        assert_eq!(found, value, "{key}");
    }
    let found = only_finding(&format!("{POOL}[map.m]\n"), &Host::default());
    assert_eq!(found.code, Code::MissingKey);
    assert_eq!(found.message, "this map has no entries");
}

#[test]
fn users_are_inline_or_in_a_file() {
    let auth = |value: &str| format!("{POOL}basic_auth = {value}\n");
    let machine = with_list("# staff\nanna:$5$x$y:comment\n bert:{SHA}z \n");
    let text = auth("{ file = \"/list\", users = [\"cleo: $6$x$y\"], realm = \"Staff only\" }");
    let found = desired(&text, &machine);
    let users = found.proxies[0].basic_auth.as_ref().expect("no users");
    assert_eq!(users.realm, "Staff only");
    for (name, hash) in [
        ("anna", Some("$5$x$y")),
        ("bert", Some("{SHA}z")),
        ("cleo", Some("$6$x$y")),
        ("# staff", None),
    ] {
        assert_eq!(users.hash_of(name), hash, "{name}");
    }
    for (value, code, message) in [
        (
            "{ users = [] }",
            Code::EmptyList,
            "`basic_auth` has no users",
        ),
        ("{}", Code::EmptyList, "`basic_auth` has no users"),
        ("true", Code::WrongType, "`basic_auth` requires users"),
        (
            "{ users = [\"anna\"] }",
            Code::BadText,
            "expected NAME:HASH",
        ),
        (
            "{ users = [\"a:$5$x$y\"], realm = \"a\\\"b\" }",
            Code::BadText,
            "the realm contains characters that are not allowed",
        ),
        (
            "{ users = [\"a:$5$x$y\"], realm = \"a\\\\b\" }",
            Code::BadText,
            "the realm contains characters that are not allowed",
        ),
        (
            "{ users = [\"a:$5$x$y\"], realm = \"é\" }",
            Code::BadText,
            "the realm contains characters that are not allowed",
        ),
    ] {
        let found = only_finding(&auth(value), &Host::default());
        assert_eq!(
            (found.code, found.message.as_str()),
            (code, message),
            "{value}"
        );
    }
    assert!(
        desired(&auth("false"), &Host::default()).proxies[0]
            .basic_auth
            .is_none()
    );
}
