//! Tests that the doctor reports server lists that failed to load, and pools that are empty or unused.

use super::*;

/// Returns a configuration with two proxy services: one whose pool has only the servers from the list `members`, and
/// one that only redirects.
fn list_config(world: &World) -> String {
    let (vip, list) = (Family::V4.vip(), world.path("members"));
    format!(
        "[node]\ninterfaces = [\"eth0\"]\n[pool.web]\nservers_file = \"{}\"\n\
         [service.www]\nlisten = [\"{vip}:80\"]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \"web\"\n\
         [pool.unused]\nservers = [\"127.0.0.1:9\"]\n\
         check = {{ kind = \"tcp\", interval = \"200ms\", timeout = \"100ms\", rise = 1, fall = 1 }}\n\
         [service.plain]\nlisten = [\"{vip}:81\"]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \"unused\"\n\
         [[route]]\nservice = \"plain\"\nredirect = \"https://{{host}}{{path}}\"\n",
        list.display()
    )
}

#[test]
fn failed_server_list_is_reported_with_its_reason() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(64);
    let text = list_config(&world);
    let list = world.path("members");
    world.start_daemon(&text);
    let prefix = format!("failed to load servers from {}: ", list.display());
    let missing = format!("{prefix}No such file");
    let empty = "the pool has no servers: every client of www is rejected";
    assert_finds(&world, "director", &["doctor"], &[&missing, empty]);
    let status = world.run_weir(&["status"]);
    let line = format!("pool web: 0 servers from {}: No such file", list.display());
    assert!(status.contains(&line), "{status}");
    let log = world.log();
    assert!(log.contains("it adds no servers"), "{log}");

    // The unused pool of the service that redirects is down, which is not a problem.
    wait_for("the check of the unused pool to fail", TIMEOUT, || {
        world
            .run_weir(&["status", "--down"])
            .contains("127.0.0.1:9")
    });
    let write = |text: &str| std::fs::write(&list, text).expect("write the file");
    let wait_for_no_findings = || {
        wait_for("a report without findings", TIMEOUT, || {
            run_on(&world, "director", &["doctor"]).0 == 0
        });
    };
    write(&format!("{}:80\n", Family::V4.server(0)));
    wait_for_no_findings();

    let note = "the previous list, with 1 server, remains in use";
    let wait_for_finding = |expected: &str| {
        wait_for(expected, TIMEOUT, || {
            let (code, text) = run_on(&world, "director", &["doctor"]);
            code == 1 && text.contains(expected) && text.contains(note)
        });
    };
    write("nonsense\n");
    wait_for_finding(&format!("{prefix}line 1, column 1"));
    std::fs::remove_file(&list).expect("remove the file");
    wait_for_finding(&missing);
    write(&format!("{}:80\n", Family::V4.server(0)));
    wait_for_no_findings();

    let without_list = text.replace("servers_file", "# servers_file");
    world.reload(&without_list);
    assert_finds(
        &world,
        "director",
        &["doctor"],
        &[
            "the pool web has no servers",
            "every client of www is rejected",
            "fix:  add servers to [pool.web]",
        ],
    );
}
