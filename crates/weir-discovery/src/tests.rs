//! Tests server lists in files that are replaced, damaged or shortened.

use std::fs;

use super::*;

fn desired(file: &Path) -> Desired {
    let text = format!(
        "[pool.p]\nservers = [\"10.0.0.1\"]\nservers_file = \"{}\"\n[service.s]\nlisten = [\"192.0.2.1:80\"]\nforward \
         = \"direct\"\npool = \"p\"\n",
        file.display()
    );
    weir_config::parse(&text, &weir_config::Host::default())
        .unwrap()
        .desired
}

fn names(desired: &Desired) -> Vec<&str> {
    let servers = desired.pools[0].servers.iter();
    servers.map(|server| server.name.as_str()).collect()
}

#[tokio::test]
async fn last_good_list_is_kept() {
    let directory = std::env::temp_dir().join(format!("weir-members-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let file = directory.join("list");
    let configured = desired(&file);
    let mut membership = Membership::new(&directory);
    let empty_lists = membership.read_for_reload(&configured);
    assert_eq!(names(&empty_lists.added_to(&configured)), ["10.0.0.1"]);
    membership.commit(&configured, empty_lists);
    assert!(membership.sources(&configured)[0].problem.is_some());

    fs::write(&file, "10.0.0.2\n10.0.0.3\n10.0.0.4\n10.0.0.1 weight=7\n").unwrap();
    membership.changed().await;
    let four_servers = membership.read_changes(&configured).unwrap();
    let all = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"];
    assert_eq!(names(&four_servers.added_to(&configured)), all);
    assert_eq!(
        four_servers.added_to(&configured).pools[0].servers[0].weight,
        1
    );
    membership.commit(&configured, four_servers);

    for invalid in [
        "10.0.0.2",
        "",
        "not a list",
        "2001:db8::1\n10.0.0.2\n10.0.0.3",
    ] {
        fs::write(&file, invalid).unwrap();
        assert!(membership.read_changes(&configured).is_none(), "{invalid}");
        let sources = membership.sources(&configured);
        assert!(
            sources[0].problem.is_some() && sources[0].servers == 4,
            "{invalid}: {sources:?}"
        );
    }
    fs::remove_file(&file).unwrap();
    let mut restarted = Membership::new(&directory);
    let persisted = restarted.read_for_reload(&configured);
    assert_eq!(names(&persisted.added_to(&configured)), all);
    restarted.commit(&configured, persisted);

    fs::write(&file, "10.0.0.9").unwrap();
    assert!(restarted.read_changes(&configured).is_none());
    let reloaded = restarted.read_for_reload(&configured);
    assert_eq!(
        names(&reloaded.added_to(&configured)),
        ["10.0.0.1", "10.0.0.9"]
    );
    fs::remove_dir_all(&directory).unwrap();
}

/// Applies changed lists as the daemon does, after a watch event or a directory change, until `is_done` returns true.
async fn apply_changes_until(
    membership: &mut Membership,
    configured: &Desired,
    is_done: impl Fn(&Membership) -> bool,
) {
    let started = std::time::Instant::now();
    while !is_done(membership) {
        assert!(started.elapsed().as_secs() < 10, "{membership:?}");
        let interval = std::time::Duration::from_millis(100);
        if tokio::time::timeout(interval, membership.changed())
            .await
            .is_err()
            && !membership.check_directories()
        {
            continue;
        }
        if let Some(lists) = membership.read_changes(configured) {
            membership.commit(configured, lists);
        }
    }
}

fn has_servers(count: usize) -> impl Fn(&Membership) -> bool {
    move |membership| {
        let lists = membership.lists.by_source.values();
        lists.map(|list| list.members.len()).sum::<usize>() == count
    }
}

fn has_problem(text: &'static str) -> impl Fn(&Membership) -> bool {
    move |membership| {
        let mut lists = membership.lists.by_source.values();
        lists.any(|list| {
            list.problem
                .as_ref()
                .is_some_and(|problem| problem.contains(text))
        })
    }
}

#[tokio::test]
async fn changes_to_files_links_and_directories_are_detected() {
    let root = std::env::temp_dir().join(format!("weir-watched-{}", std::process::id()));
    let _ = fs::remove_dir_all(&root);
    let (watched, other) = (root.join("watched"), root.join("other"));
    fs::create_dir_all(&watched).unwrap();
    fs::create_dir_all(&other).unwrap();
    let file = watched.join("list");
    // As in a Kubernetes volume, `list` is a link to `..data/list`, and `..data` is a link that is replaced to switch
    // directories.
    fs::create_dir(watched.join("..one")).unwrap();
    fs::write(watched.join("..one/list"), "10.0.0.2").unwrap();
    std::os::unix::fs::symlink("..one", watched.join("..data")).unwrap();
    std::os::unix::fs::symlink("..data/list", &file).unwrap();
    let configured = desired(&file);
    let mut membership = Membership::new(&root);
    let lists = membership.read_for_start(&configured);
    membership.commit(&configured, lists);
    assert!(has_servers(1)(&membership));

    // First the content of the link's target changes, then its directory is replaced.
    fs::write(watched.join("..one/list"), "10.0.0.2\n10.0.0.3").unwrap();
    apply_changes_until(&mut membership, &configured, has_servers(2)).await;
    fs::create_dir(watched.join("..two")).unwrap();
    fs::write(watched.join("..two/list"), "10.0.0.2\n10.0.0.3\n10.0.0.4").unwrap();
    std::os::unix::fs::symlink("..two", watched.join("..data_tmp")).unwrap();
    fs::rename(watched.join("..data_tmp"), watched.join("..data")).unwrap();
    apply_changes_until(&mut membership, &configured, has_servers(3)).await;
    fs::write(watched.join("..two/list"), "10.0.0.2\n10.0.0.3").unwrap();
    apply_changes_until(&mut membership, &configured, has_servers(2)).await;
    // A link to a file outside the directory is rejected.
    fs::write(other.join("list"), "10.0.0.7\n10.0.0.8").unwrap();
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(other.join("list"), &file).unwrap();
    apply_changes_until(
        &mut membership,
        &configured,
        has_problem("outside its directory"),
    )
    .await;
    assert!(has_servers(2)(&membership));
    // The file is removed and created again.
    fs::remove_file(&file).unwrap();
    apply_changes_until(&mut membership, &configured, has_problem("No such file")).await;
    assert!(has_servers(2)(&membership));
    fs::write(&file, "10.0.0.2\n10.0.0.3\n10.0.0.4").unwrap();
    apply_changes_until(&mut membership, &configured, has_servers(3)).await;
    assert!(!has_problem("")(&membership));
    // The directory is replaced, and the new directory is watched.
    fs::remove_dir_all(&watched).unwrap();
    apply_changes_until(&mut membership, &configured, has_problem("No such file")).await;
    fs::create_dir(&watched).unwrap();
    fs::write(&file, "10.0.0.2\n10.0.0.3").unwrap();
    apply_changes_until(&mut membership, &configured, has_servers(2)).await;
    fs::write(&file, "10.0.0.2\n10.0.0.3\n10.0.0.4").unwrap();
    apply_changes_until(&mut membership, &configured, has_servers(3)).await;
    // The directory becomes a link.
    fs::rename(&watched, root.join("away")).unwrap();
    std::os::unix::fs::symlink(&other, &watched).unwrap();
    apply_changes_until(&mut membership, &configured, has_servers(2)).await;
    assert!(membership.watch.count() <= 2, "{membership:?}");
    fs::remove_dir_all(&root).unwrap();
}

#[tokio::test]
async fn list_that_shrank_is_rejected_after_restart() {
    let root = std::env::temp_dir().join(format!("weir-shrunk-{}", std::process::id()));
    fs::create_dir_all(&root).unwrap();
    let file = root.join("list");
    let configured = desired(&file);
    fs::write(&file, "10.0.0.2\n10.0.0.3\n10.0.0.4").unwrap();
    let mut membership = Membership::new(&root);
    let lists = membership.read_for_start(&configured);
    membership.commit(&configured, lists);
    fs::write(&file, "10.0.0.2").unwrap();
    let mut restarted = Membership::new(&root);
    let lists = restarted.read_for_start(&configured);
    restarted.commit(&configured, lists);
    assert!(has_servers(3)(&restarted) && has_problem("the list shrank")(&restarted));
    fs::remove_dir_all(&root).unwrap();
}

#[tokio::test]
async fn servers_of_replaced_file_are_used_until_the_new_file_has_servers() {
    let root = std::env::temp_dir().join(format!("weir-replaced-{}", std::process::id()));
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(&root).unwrap();
    let (old, new) = (root.join("old"), root.join("new"));
    let (before, configured) = (desired(&old), desired(&new));
    fs::write(&old, "10.0.0.2\n10.0.0.3\n10.0.0.4\n10.0.0.5").unwrap();
    let mut membership = Membership::new(&root);
    let lists = membership.read_for_start(&before);
    membership.commit(&before, lists);
    assert!(has_servers(4)(&membership) && !has_problem("")(&membership));

    let lists = membership.read_for_reload(&configured);
    membership.commit(&configured, lists);
    let is_waiting = |membership: &Membership| {
        let source = &membership.sources(&configured)[0];
        let problem = source.problem.as_deref().unwrap_or_default();
        let origin = format!(" (the servers are from {})", old.display());
        let is_for_new_file = source.from == new.display().to_string();
        is_for_new_file && source.servers == 4 && problem.matches(&origin).count() == 1
    };
    assert!(is_waiting(&membership), "{membership:?}");
    let mut restarted = Membership::new(&root);
    for _ in 0..2 {
        let lists = restarted.read_for_start(&configured);
        restarted.commit(&configured, lists);
        assert!(is_waiting(&restarted), "{restarted:?}");
    }
    // Another program is still writing the file.
    fs::write(&new, "").unwrap();
    assert!(restarted.read_changes(&configured).is_none());
    assert!(is_waiting(&restarted), "{restarted:?}");

    fs::write(&new, "10.0.0.6").unwrap();
    let lists = restarted.read_changes(&configured);
    let lists = lists.expect("new list is not used");
    assert_eq!(
        names(&lists.added_to(&configured)),
        ["10.0.0.1", "10.0.0.6"]
    );
    restarted.commit(&configured, lists);
    assert!(has_servers(1)(&restarted) && !has_problem("")(&restarted));
    fs::remove_dir_all(&root).unwrap();
}

/// The new file has the same servers, so only the origin of the list changes.
#[tokio::test]
async fn list_that_shrank_is_rejected_after_its_file_was_replaced() {
    let root = std::env::temp_dir().join(format!("weir-same-servers-{}", std::process::id()));
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(&root).unwrap();
    let (old, new) = (root.join("old"), root.join("new"));
    let configured = desired(&new);
    fs::write(&old, "10.0.0.2\n10.0.0.3\n10.0.0.4").unwrap();
    let mut membership = Membership::new(&root);
    for configured in [&desired(&old), &configured] {
        let lists = membership.read_for_reload(configured);
        membership.commit(configured, lists);
    }
    fs::copy(&old, &new).unwrap();
    assert!(membership.read_changes(&configured).is_none());
    assert!(!has_problem("")(&membership), "{membership:?}");
    fs::write(&new, "10.0.0.2").unwrap();
    let mut restarted = Membership::new(&root);
    for membership in [&mut membership, &mut restarted] {
        assert!(membership.read_changes(&configured).is_none());
        assert!(has_servers(3)(membership) && has_problem("the list shrank")(membership));
    }
    fs::remove_dir_all(&root).unwrap();
}

/// Earlier versions allowed any server key in a list.
#[tokio::test]
async fn persisted_check_of_earlier_version_is_removed() {
    let root = std::env::temp_dir().join(format!("weir-persisted-{}", std::process::id()));
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(&root).unwrap();
    let script = r#"{"kind":"script","command":["/bin/sh","-c","id > /tmp/x"],"user":"root"}"#;
    let list =
        |address: &str| format!(r#"[{{"address":"{address}","weight":3,"check":{script}}}]"#);
    let written = serde_json::json!([
        ["p", "file", list("10.0.0.2")],
        ["p", "api", list("10.0.0.3:80")],
    ]);
    fs::write(root.join(FILE), written.to_string()).unwrap();
    let file = root.join("list");
    fs::write(&file, list("10.0.0.2")).unwrap();
    let configured = desired(&file);
    let mut membership = Membership::new(&root);
    let lists = membership.read_for_start(&configured);
    let desired = lists.added_to(&configured);
    assert_eq!(names(&desired), ["10.0.0.1", "10.0.0.2", "10.0.0.3:80"]);
    assert!(
        desired.pools[0]
            .servers
            .iter()
            .all(|server| server.checks.is_none())
    );
    assert_eq!(desired.pools[0].servers[2].weight, 3);
    membership.commit(&configured, lists);
    assert!(has_problem("`check` can only name a [check.NAME]")(
        &membership
    ));
    let persisted = fs::read_to_string(root.join(FILE)).unwrap();
    assert!(!persisted.contains("script"), "{persisted}");
    fs::remove_dir_all(&root).unwrap();
}

#[tokio::test]
async fn list_entry_uses_named_check_while_it_is_configured() {
    let root = std::env::temp_dir().join(format!("weir-names-check-{}", std::process::id()));
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(&root).unwrap();
    let file = root.join("list");
    fs::write(&file, "10.0.0.2 check=site\n10.0.0.3\n").unwrap();
    let mut configured = desired(&file);
    let site = weir_model::Check::new(weir_model::Probe::Ping);
    configured.checks = vec![("site".to_owned(), site.clone())];
    let mut membership = Membership::new(&root);
    let lists = membership.read_for_start(&configured);
    let servers = &lists.added_to(&configured).pools[0].servers;
    assert_eq!(servers[1].checks.as_deref(), Some(&[site][..]));
    assert_eq!(servers[2].checks, None);
    membership.commit(&configured, lists);
    // After the check is removed from the configuration, the last good list is kept with the pool's checks.
    configured.checks.clear();
    let lists = membership.read_for_reload(&configured);
    assert!(
        lists.added_to(&configured).pools[0].servers[1]
            .checks
            .is_none()
    );
    membership.commit(&configured, lists);
    assert!(has_problem(
        "line 1, column 1: `check` does not name a [check.NAME]"
    )(&membership));
    fs::remove_dir_all(&root).unwrap();
}

/// A sorry server is not checked like the servers, so it must not be used as one.
#[tokio::test]
async fn listed_sorry_server_is_not_added() {
    let directory = std::env::temp_dir().join(format!("weir-sorry-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let file = directory.join("list");
    let mut configured = desired(&file);
    let text = "[pool.q]\nservers = [\"10.0.0.8\"]\nsorry = \"10.0.0.9\"\n";
    let other = weir_config::parse(text, &weir_config::Host::default()).unwrap();
    configured.pools[0]
        .sorry
        .clone_from(&other.desired.pools[0].sorry);
    fs::write(&file, "10.0.0.2\n10.0.0.9\n").unwrap();
    let mut membership = Membership::new(&directory);
    let lists = membership.read_for_reload(&configured);
    let all = ["10.0.0.1", "10.0.0.2"];
    assert_eq!(names(&lists.added_to(&configured)), all);
    membership.commit(&configured, lists);
    let keys = serde_json::Map::new();
    let added = membership.with_server(&configured, &configured.pools[0], "10.0.0.9", keys);
    assert!(added.unwrap_err().contains("is the sorry server"));
    fs::remove_dir_all(&directory).unwrap();
}
