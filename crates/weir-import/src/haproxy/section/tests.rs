use super::*;
use crate::EmptyEnvironment;
use crate::haproxy::line::read_lines;

/// Reads the sections of a file; also returns the notes.
fn read_text(text: &str) -> (File, Vec<String>) {
    let mut notes = Notes::default();
    let lines = read_lines(&EmptyEnvironment, &mut notes, "haproxy.cfg", text);
    let file = read(lines, &mut notes);
    (file, notes.finish())
}

fn texts(lines: &[Line]) -> Vec<String> {
    lines.iter().map(|line| line.words.join(" ")).collect()
}

/// Returns each proxy as `NAME KIND: LINES | DEFAULTS`.
fn proxies(file: &File) -> Vec<String> {
    let proxies = file.proxies.iter().map(|proxy| {
        let kind = match (proxy.is_frontend, proxy.is_backend) {
            (true, true) => "listen",
            (true, false) => "frontend",
            (false, true) => "backend",
            (false, false) => "none",
        };
        let [lines, defaults] = [&proxy.lines, &proxy.defaults].map(|it| texts(it).join("; "));
        format!("{} {kind}: {lines} | {defaults}", proxy.name)
    });
    proxies.collect()
}

#[track_caller]
fn assert_proxies(text: &str, expected: &[&str], notes: &[&str]) {
    let (file, found) = read_text(text);
    assert_eq!(proxies(&file), expected);
    assert_eq!(found, notes);
}

#[test]
fn lines_belong_to_the_section_above() {
    let text = "global\n maxconn 9\ndefaults\n mode http\nfrontend f\n bind :80\n bind :81\nbackend b\n server s \
                10.0.0.1\nlisten l\nglobal\n log x\n";
    let (file, notes) = read_text(text);
    assert_eq!(
        proxies(&file),
        [
            "f frontend: bind :80; bind :81 | mode http",
            "b backend: server s 10.0.0.1 | mode http",
            "l listen:  | mode http",
        ]
    );
    assert_eq!(texts(&file.global), ["maxconn 9", "log x"]);
    let (position, defaults) = file.defaults.expect("a defaults section");
    assert_eq!(
        (position.line(), texts(&defaults)),
        (3, vec!["mode http".to_owned()])
    );
    assert_eq!(notes, [""; 0]);
}

#[test]
fn section_uses_the_last_or_the_named_defaults() {
    assert_proxies(
        "defaults one\n mode http\ndefaults two from one\n retries 3\ndefaults\n mode tcp\nfrontend a\nfrontend b from \
         two\nfrontend c from one\nfrontend d from none\ndefaults one\n mode tcp\nfrontend e from one\n",
        &[
            "a frontend:  | mode tcp",
            "b frontend:  | mode http; retries 3",
            "c frontend:  | mode http",
            "d frontend:  | mode tcp",
            "e frontend:  | mode tcp",
        ],
        &[
            "line 10: frontend d from none: this defaults section does not exist; the last defaults section is used",
        ],
    );
}

#[test]
fn rules_of_named_defaults_precede_those_of_the_section() {
    let rule = "http-request deny";
    for (text, expected) in [
        (
            format!("defaults d\n mode http\n {rule}\nfrontend f\n bind :80\n"),
            "f frontend: http-request deny; bind :80 | mode http",
        ),
        (
            format!("defaults d\n {rule}\ndefaults\n mode http\nfrontend f from d\n"),
            "f frontend: http-request deny | ",
        ),
        (
            // haproxy rejects rules in a `defaults` section without a name.
            format!("defaults\n mode http\n {rule}\nfrontend f\n"),
            "f frontend:  | mode http; http-request deny",
        ),
    ] {
        assert_proxies(&text, &[expected], &[]);
    }
}

#[test]
fn address_after_the_name_is_a_bind() {
    assert_proxies(
        "listen a :80 ssl\n mode tcp\nfrontend b 192.0.2.1:80\nbackend c 192.0.2.1:80\n",
        &[
            "a listen: bind :80 ssl; mode tcp | ",
            "b frontend: bind 192.0.2.1:80 | ",
            "c backend:  | ",
        ],
        &[
            "line 4: backend c 192.0.2.1:80: \"192.0.2.1:80\" and any following arguments are not imported: haproxy \
             rejects them",
        ],
    );
}

#[test]
fn invalid_and_disabled_sections_are_skipped() {
    let disabled = "not imported: the section is disabled, and haproxy does not start it";
    let outside = "not imported: retries is outside of all sections, and haproxy rejects the file";
    assert_proxies(
        "retries 3\nfrontend\n bind :80\nlisten a\n disabled\ncache c\n total-max-size 4\nbackend b\n",
        &["b backend:  | "],
        &[
            &format!("line 1: retries 3: {outside}"),
            "line 2: frontend: not imported: haproxy rejects a section without a name",
            "line 3: bind :80: not imported: it is in the section that begins on line 2, which is not imported",
            &format!("line 4: listen a: {disabled}"),
            &format!("line 5: disabled: {disabled}"),
            "line 6: cache c: not imported: Weir has no equivalent for a cache section",
            "line 7: total-max-size 4: not imported: it is in the section that begins on line 6, which is not imported",
        ],
    );
    let (file, notes) = read_text("maxconn 1\nretries 3\nlisten a\n");
    assert_eq!(proxies(&file), ["a listen:  | "]);
    assert_eq!(notes.len(), 2, "{notes:?}");
}

#[test]
fn sections_without_effect_on_traffic_are_not_losses() {
    for section in [
        "peers",
        "program",
        "ring",
        "log-forward",
        "log-profile",
        "traces",
    ] {
        let mut notes = Notes::default();
        let text = format!("{section} x\n server y 10.0.0.1:80\n");
        let lines = read_lines(&EmptyEnvironment, &mut notes, "haproxy.cfg", &text);
        assert!(read(lines, &mut notes).proxies.is_empty());
        assert_eq!(notes.losses(), [""; 0], "{section}");
        let notes = notes.finish();
        assert_eq!(notes.len(), 2, "{section}: {notes:?}");
    }
}

#[test]
fn resolvers_have_name_servers_with_a_port() {
    let (file, notes) = read_text(
        "resolvers r\n nameserver a 192.0.2.1:53\n nameserver b dns.example:53\n parse-resolv-conf\n hold valid 10s\n \
         nameserver c [fd00::1]:53\n nameserver d\n",
    );
    let servers = file.resolvers["r"].iter();
    let servers: Vec<(&str, usize)> = servers
        .map(|(address, position)| (address.as_str(), position.line()))
        .collect();
    assert_eq!(servers, [("192.0.2.1:53", 2), ("[fd00::1]:53", 6)]);
    let only_addresses = "not imported: `resolvers` accepts only addresses with a port";
    assert_eq!(
        notes,
        [
            "line 1: resolvers r: its name servers are imported where the file uses them".to_owned(),
            format!("line 3: nameserver b dns.example:53: {only_addresses}"),
            "line 4: parse-resolv-conf: Weir uses the system's name servers by default".to_owned(),
            "line 5: hold valid 10s: not imported: Weir resolves a name again when the TTL of its record expires"
                .to_owned(),
            format!("line 7: nameserver d: {only_addresses}"),
        ]
    );
}

#[test]
fn certificates_of_a_store_have_an_alias_and_their_file_name() {
    let (file, notes) = read_text(
        "crt-store s\n crt-base /first\n crt-base /etc/ssl\n key-base /etc/keys\n load crt a.pem alias x\n load crt \
         /b.crt key /b.key\n load crt /c.crt key c.key alias y\n load crt /d.pem key /d.key\n load crt \
         /e/fullchain.pem key /e/privkey.pem\n load crt /f.pem key /f.pem\n load generate\n",
    );
    let mut certificates: Vec<String> = file
        .certificates
        .iter()
        .map(|(name, path)| format!("{name} {path}"))
        .collect();
    certificates.sort();
    assert_eq!(
        certificates,
        [
            "@s//b.crt /b.crt",
            "@s//c.crt /c.crt",
            "@s//d.pem /d.pem",
            "@s//e/fullchain.pem /e/fullchain.pem",
            "@s//f.pem /f.pem",
            "@s/a.pem /etc/ssl/a.pem",
            "@s/x /etc/ssl/a.pem",
            "@s/y /c.crt",
        ]
    );
    let losses: Vec<&String> = notes
        .iter()
        .filter(|it| it.contains("not imported"))
        .collect();
    assert_eq!(
        losses,
        [
            "line 7: load crt /c.crt key c.key alias y: the key /etc/keys/c.key is not imported: Weir reads the key \
             from /c.key",
            "line 8: load crt /d.pem key /d.key: the key /d.key is not imported: add it to /d.pem",
            "line 11: load generate: not imported: Weir loads certificates only from files (`load crt FILE`)",
        ]
    );
    let remarks = notes
        .iter()
        .filter(|it| it.ends_with("where the file uses them"));
    assert_eq!(remarks.count(), 8, "{notes:?}");
}

#[test]
fn users_have_a_supported_hash_or_none() {
    let (file, _) = read_text(
        "userlist u\n user a password $5$x$y groups g\n user b password $1$x$y\n group g users a\n user c \
         insecure-password text\n user d password $6$x\n user e password\n",
    );
    let users = file.users["u"].iter().map(|user| {
        let kind = user.hash.as_deref().map(|hash| &hash[..3]);
        (user.name.as_str(), kind, user.position.line())
    });
    assert_eq!(
        users.collect::<Vec<_>>(),
        [
            ("a", Some("$5$"), 2),
            ("b", None, 3),
            ("c", Some("$5$"), 5),
            ("d", Some("$6$"), 6),
        ]
    );
}

#[test]
fn first_mailer_of_a_section_is_used() {
    let (file, notes) = read_text(
        "mailers m\n timeout mail 10s\n mailer a 192.0.2.1:25\n mailer b 192.0.2.2:25\n mailer c\nmailers\n mailer a \
         192.0.2.1:25\nmailers n\n",
    );
    let mailers = file.mailers.iter();
    let mailers: Vec<(&str, &str, usize)> = mailers
        .map(|(name, (address, position))| (name.as_str(), address.as_str(), position.line()))
        .collect();
    assert_eq!(mailers, [("m", "192.0.2.1:25", 3)]);
    assert_eq!(
        notes,
        [
            "line 2: timeout mail 10s: not imported: Weir has a fixed timeout of 30 seconds for an email",
            "line 4: mailer b 192.0.2.2:25: not imported: `mail_server` in `[notify]` accepts only one server",
            "line 5: mailer c: not imported: haproxy has no such keyword in mailers",
            "line 6: mailers: not imported: haproxy rejects a section without a name",
            "line 7: mailer a 192.0.2.1:25: not imported: it is in the section that begins on line 6, which is not \
             imported",
            "line 8: mailers n: not imported: the section has no mailer",
        ]
    );
}

#[test]
fn last_line_applies_and_own_lines_override_defaults() {
    let (file, _) = read_text(
        "defaults\n mode http\n timeout client 1s\n timeout server 1s\n option a\n option b\n no option c\n option \
         d\nfrontend f\n timeout server 2s\n timeout server 3s\n no option b\n option c\n option a x\n no option a\n \
         option d\n option-x e\nbackend g\n mode tcp\n",
    );
    let proxy = &file.proxies[0];
    let last = |words: &[&str]| proxy.last(words).map(|line| line.position.line());
    assert_eq!(last(&["timeout", "server"]), Some(11));
    assert_eq!(last(&["timeout", "client"]), Some(3));
    assert_eq!(last(&["timeout"]), Some(11));
    assert_eq!(last(&["timeout", "queue"]), None);
    assert_eq!(last(&["mode", "http", "x"]), None);
    let option = |name: &str| proxy.option(name).map(|line| line.position.line());
    let option_line = |name: &str| proxy.option_line(name).map(|line| line.position.line());
    for (name, enabled, line) in [
        ("a", None, Some(15)),
        ("b", None, Some(12)),
        ("c", Some(13), Some(13)),
        ("d", Some(16), Some(16)),
        ("e", None, None),
    ] {
        assert_eq!((option(name), option_line(name)), (enabled, line), "{name}");
    }
    assert!(proxy.is_http() && !file.proxies[1].is_http());
    let (file, _) = read_text("listen l\n");
    assert!(!file.proxies[0].is_http());
}
