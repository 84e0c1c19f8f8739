//! Tests that Weir applies operators' commands to both planes or to neither.

mod world;

use serde_json::Value;
use world::{Family, World, privileged};

fn config() -> String {
    let (first, second) = (Family::V4.server(0), Family::V4.server(1));
    format!(
        "[node]\ninterfaces = [\"eth0\"]\n\
         [pool.web]\nservers = [\"{first}:80\", \"{second}:80\"]\n\
         [service.web]\nlisten = [\"{}:80\"]\nforward = \"nat\"\npool = \"web\"\n\
         [service.www]\nlisten = [\"{}:8080\"]\nforward = \"proxy\"\n\
         protocol = \"http\"\npool = \"web\"\n",
        Family::V4.vip(),
        Family::V4.director()
    )
}

/// Returns the override and the effective weight of the first server of each service in a status document.
fn overrides_and_weights(report: &Value) -> Vec<(Option<String>, u64)> {
    let services = report["services"].as_array().expect("services is an array");
    let first = services.iter().map(|service| &service["servers"][0]);
    let pairs = first.map(|server| {
        let active = server["override"].as_str().map(str::to_owned);
        (
            active,
            server["effective_weight"]
                .as_u64()
                .expect("weight is a number"),
        )
    });
    pairs.collect()
}

/// Runs `weir server SERVER ACTION` for the first server. Returns whether it succeeded, and its output.
fn change_server(world: &World, action: &str) -> (bool, String) {
    let name = format!("web/{}:80", Family::V4.server(0));
    let output = world
        .weir("director")
        .args(["server", &name])
        .args(action.split(' '))
        .output()
        .expect("run weir");
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[test]
fn command_that_cannot_be_persisted_changes_neither_plane() {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    let daemon = world.start_daemon(&config());
    // This directory prevents the daemon from creating the temporary file that would replace proxy.json.
    let obstacle = world.path("run-director").join("proxy.json.new");
    std::fs::create_dir_all(obstacle.join("full")).expect("create a directory");
    let (succeeded, printed) = change_server(&world, "drain");
    assert!(!succeeded && printed.contains("proxy.json"), "{printed}");
    assert_eq!(
        overrides_and_weights(&world.status()),
        [(None, 1), (None, 1)]
    );
    std::fs::remove_dir_all(&obstacle).expect("remove the directory");
    let (succeeded, printed) = change_server(&world, "weight 7");
    assert!(succeeded, "{printed}");
    let (succeeded, printed) = change_server(&world, "drain");
    assert!(succeeded, "{printed}");
    let drained = (Some("drain".to_owned()), 0);
    assert_eq!(
        overrides_and_weights(&world.status()),
        [drained.clone(), drained.clone()]
    );
    world.kill_keeper(daemon);
    world.start_daemon(&config());
    assert_eq!(
        overrides_and_weights(&world.status()),
        [drained.clone(), drained]
    );
    let (succeeded, printed) = change_server(&world, "ready");
    assert!(succeeded, "{printed}");
    assert_eq!(
        overrides_and_weights(&world.status()),
        [(None, 1), (None, 1)]
    );
}
