//! Tests the check for gRPC's health checking protocol against a server built with the official library.

use super::*;

#[test]
fn grpc_check_reads_service_status() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    let path = |name: &str| world.path(name).display().to_string();
    let (certificate, key, status_directory) =
        (path("grpc.crt"), path("grpc.key"), path("statuses"));
    std::fs::create_dir_all(&status_directory).expect("create a directory");
    let set_status = |service: &str, status: u8| {
        let path = Path::new(&status_directory).join(service);
        std::fs::write(path, status.to_string()).expect("write the file");
    };
    set_status("server", 1);
    set_status("shop", 1);
    set_status("cellar", 2);
    sh(&format!(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=grpc.example \
         -addext subjectAltName=DNS:grpc.example -addext basicConstraints=critical,CA:FALSE -keyout {key} -out \
         {certificate} 2>/dev/null"
    ));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers/health_server.py");
    let arguments = [
        script,
        "5051",
        "5052",
        &certificate,
        &key,
        &status_directory,
    ];
    start(&mut world, "/usr/bin/python3", &arguments);
    wait_for_port(&world, 5051);
    wait_for_port(&world, 5052);

    let plain = "kind = \"grpc\"\nport = 5051";
    let secure = "kind = \"grpc\"\nport = 5052\ntls = true";
    let checks = [
        ("overall", plain.to_owned()),
        ("shop", format!("{plain}\nservice = \"shop\"")),
        ("cellar", format!("{plain}\nservice = \"cellar\"")),
        ("unknown", format!("{plain}\nservice = \"unknown\"")),
        (
            "trusted",
            format!("{secure}\nca = \"{certificate}\"\nserver_name = \"grpc.example\""),
        ),
        (
            "unverified",
            format!("{secure}\nverify = false\nservice = \"shop\""),
        ),
        ("untrusted", secure.to_owned()),
        // The check uses TLS, but the server does not.
        ("plaintext", format!("{plain}\ntls = true\nverify = false")),
    ];
    world.start_daemon(&config(&checks));
    for name in ["overall", "shop", "trusted", "unverified"] {
        wait_for_state(&world, name, "up", "");
    }
    for name in ["cellar", "unknown", "untrusted", "plaintext"] {
        wait_for_state(&world, name, "down", "");
    }
    set_status("shop", 2);
    set_status("cellar", 1);
    for name in ["shop", "unverified"] {
        wait_for_state(&world, name, "down", "");
    }
    wait_for_state(&world, "cellar", "up", "");
    wait_for_state(&world, "overall", "up", "");
    set_status("server", 0);
    wait_for_state(&world, "overall", "down", "");
}
