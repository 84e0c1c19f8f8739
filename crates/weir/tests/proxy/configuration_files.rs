//! Tests configurations in several files, defaults, `weir fmt`, and replaced certificate files.

use std::time::{Duration, Instant};

use super::origin::Origin;
use super::tls::{Authority, connect, fetch};
use super::{Client, GET, Proxy, fs};

#[test]
fn included_files_and_defaults_apply_on_reload() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    fs::create_dir_all(proxy.directory.join("conf.d")).expect("create directory");
    let write = |name: &str, text: &str| {
        fs::write(proxy.directory.join("conf.d").join(name), text).expect("write file");
    };
    let (listen, server) = (proxy.listen, origin.address());
    write(
        "10-service.toml",
        &format!(
            "[service.s]\nlisten = [\"{listen}\"]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \"p\"\n"
        ),
    );
    write(
        "20-pool.toml",
        &format!("[pool.p]\nservers = [\"{server}\"]\n"),
    );
    write(
        "30-routes.toml",
        "# rules\n[[route]]\nservice = \"s\"\npath = \"/no\"\nstatus = 403\n",
    );
    let main = "include = [\"conf.d/*.toml\"]\n[defaults.service]\nset_response_header = [\"X-Default: yes\"]\n";
    proxy.reload(main);
    let mut client = Client::connect(proxy.listen);
    let (head, _) = client.fetch(GET);
    assert!(
        head.starts_with("HTTP/1.1 200") && head.contains("X-Default: yes"),
        "{head}"
    );
    let (head, _) = client.fetch("GET /no HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
    let (succeeded, output) =
        proxy.weir(&["explain", "--request", &format!("GET http://{listen}/no")]);
    assert!(succeeded && output.contains("30-routes.toml:3"), "{output}");
    // The next reload reads the changed file, and errors contain its name.
    write(
        "30-routes.toml",
        "# rules\n[[route]]\nservice = \"s\"\npath = \"/no\"\nstatus = 404\n",
    );
    proxy.reload(main);
    let (head, _) = client.fetch("GET /no HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");
    write(
        "20-pool.toml",
        &format!("\n[pool.p]\nservers = [\"{server}\"]\nserver = 1\n"),
    );
    let file = proxy.directory.join("weir.toml");
    let file = file.to_str().expect("not UTF-8");
    let (succeeded, output) = proxy.weir(&["reload", "-c", file]);
    assert!(
        !succeeded && output.contains("20-pool.toml:4:1"),
        "{output}"
    );
    write("20-pool.toml", "include = [\"../weir.toml\"]\n");
    let (succeeded, output) = proxy.weir(&["check", "-c", file]);
    assert!(
        !succeeded && output.contains("included twice") && output.contains("20-pool.toml:1:12"),
        "{output}"
    );
}

#[test]
fn check_reports_missing_interfaces_and_programs() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let file = proxy.directory.join("router.toml");
    let (script, path) = (
        proxy.directory.join("notify"),
        file.to_str().expect("not UTF-8"),
    );
    let router = |interface: &str, program: &str| {
        let text = format!(
            "[vrrp.a]\ninterface = \"{interface}\"\nvirtual_router_id = 1\naddresses = [\"192.0.2.9/24\"]\n\
             notify = [\"{program}\"]\n"
        );
        fs::write(&file, text).expect("write file");
        proxy.weir(&["check", "--strict", "-c", path])
    };
    let program = script.to_str().expect("not UTF-8");
    let (succeeded, output) = router("weirnone0", program);
    assert!(
        succeeded && output.contains("note[N006]") && output.contains("router.toml:2:13"),
        "{output}"
    );
    assert!(
        output.contains("note[N007]") && output.contains("router.toml:5:11"),
        "{output}"
    );
    // Weir reports a non-executable file in the same way as a missing file.
    fs::write(&script, "#!/bin/sh\n").expect("write file");
    assert!(router("lo", program).1.contains("note[N007]"));
    let (succeeded, output) = router("lo", "/bin/sh");
    assert!(succeeded && !output.contains("note["), "{output}");
}

#[test]
fn fmt_writes_canonical_form_and_is_idempotent() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let file = proxy.directory.join("weir.toml");
    let text = fs::read_to_string(&file).expect("read file");
    fs::write(&file, format!("# kept\n\n\n\n{text}\n\n")).expect("write file");
    let path = file.to_str().expect("not UTF-8");
    let (succeeded, output) = proxy.weir(&["fmt", "--check", path]);
    assert!(
        !succeeded && output.contains("not in canonical form"),
        "{output}"
    );
    let (succeeded, output) = proxy.weir(&["fmt", path]);
    assert!(succeeded, "{output}");
    assert!(
        fs::read_to_string(&file)
            .expect("read file")
            .starts_with("# kept\n\n[")
    );
    let (succeeded, output) = proxy.weir(&["fmt", "--check", path]);
    assert!(succeeded, "{output}");
    let (succeeded, output) = proxy.weir(&["plan", "-c", path]);
    assert!(succeeded && output.contains("no change"), "{output}");
}

#[test]
fn replaced_certificates_are_loaded_without_a_reload() {
    let authority = Authority::new("watched");
    let path = authority.sign("one", "DNS:a.example", 30);
    let origin = Origin::start("o");
    let tls = format!("tls = {{ certificates = \"{}\" }}", authority.certs());
    let proxy = Proxy::start("http", &[origin.address()], &tls);
    let served_certificate = || {
        let mut stream = connect(&authority.client(None), proxy.listen, "a.example");
        fetch(&mut stream, GET).expect("fetch");
        stream
            .conn
            .peer_certificates()
            .expect("no peer certificate")[0]
            .to_vec()
    };
    let wait_until = |description: &str, condition: &dyn Fn() -> bool| {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !condition() {
            assert!(
                Instant::now() < deadline,
                "timed out: {description}: {}",
                proxy.log()
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    let first = served_certificate();
    // Weir reports an invalid file, and the previous certificate stays active.
    std::thread::sleep(Duration::from_secs(3));
    let valid = fs::read(&path).expect("read file");
    fs::write(&path, "no certificate").expect("write file");
    wait_until("the status reports the invalid file", &|| {
        proxy.status()["certificate_error"].is_string()
    });
    assert_eq!(served_certificate(), first);
    fs::write(&path, valid).expect("write file");
    authority.sign("one", "DNS:a.example", 30);
    wait_until("the new certificate is served", &|| {
        served_certificate() != first
    });
    assert!(proxy.status()["certificate_error"].is_null());
}
