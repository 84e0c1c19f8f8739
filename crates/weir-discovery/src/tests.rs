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
async fn the_last_good_list_stays() {
    let directory = std::env::temp_dir().join(format!("weir-members-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let file = directory.join("list");
    let configured = desired(&file);
    let mut membership = Membership::new(&directory);
    let none = membership.lists_of(&configured);
    assert_eq!(names(&none.added_to(&configured)), ["10.0.0.1"]);
    membership.commit(&configured, none);
    assert!(membership.sources(&configured)[0].problem.is_some());

    fs::write(&file, "10.0.0.2\n10.0.0.3\n10.0.0.4\n10.0.0.1 weight=7\n").unwrap();
    membership.changed().await;
    let four = membership.news(&configured).unwrap();
    let all = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"];
    assert_eq!(names(&four.added_to(&configured)), all);
    assert_eq!(four.added_to(&configured).pools[0].servers[0].weight, 1);
    membership.commit(&configured, four);

    for bad in [
        "10.0.0.2",
        "",
        "no list at all",
        "2001:db8::1\n10.0.0.2\n10.0.0.3",
    ] {
        fs::write(&file, bad).unwrap();
        assert!(membership.news(&configured).is_none(), "{bad}");
        let sources = membership.sources(&configured);
        assert!(
            sources[0].problem.is_some() && sources[0].servers == 4,
            "{bad}: {sources:?}"
        );
    }
    fs::remove_file(&file).unwrap();
    let mut again = Membership::new(&directory);
    let remembered = again.lists_of(&configured);
    assert_eq!(names(&remembered.added_to(&configured)), all);
    again.commit(&configured, remembered);

    fs::write(&file, "10.0.0.9").unwrap();
    assert!(again.news(&configured).is_none());
    let vouched = again.lists_of(&configured);
    assert_eq!(
        names(&vouched.added_to(&configured)),
        ["10.0.0.1", "10.0.0.9"]
    );
    fs::remove_dir_all(&directory).unwrap();
}

/// What became of the list in a directory of its own, until `done`: by the watch, or by the look once a second.
async fn follow(
    membership: &mut Membership,
    configured: &Desired,
    done: impl Fn(&Membership) -> bool,
) {
    let begun = std::time::Instant::now();
    while !done(membership) {
        assert!(begun.elapsed().as_secs() < 10, "{membership:?}");
        let second = std::time::Duration::from_millis(100);
        if tokio::time::timeout(second, membership.changed())
            .await
            .is_err()
            && !membership.check_directories()
        {
            continue;
        }
        if let Some(lists) = membership.news(configured) {
            membership.commit(configured, lists);
        }
    }
}

fn servers(count: usize) -> impl Fn(&Membership) -> bool {
    move |membership| {
        let lists = membership.lists.by_source.values();
        lists.map(|list| list.members.len()).sum::<usize>() == count
    }
}

fn in_doubt(word: &'static str) -> impl Fn(&Membership) -> bool {
    move |membership| {
        let mut lists = membership.lists.by_source.values();
        lists.any(|list| list.problem.as_ref().is_some_and(|it| it.contains(word)))
    }
}

#[tokio::test]
async fn files_are_followed_wherever_they_are() {
    let root = std::env::temp_dir().join(format!("weir-followed-{}", std::process::id()));
    let _ = fs::remove_dir_all(&root);
    let (seen, other) = (root.join("seen"), root.join("other"));
    fs::create_dir_all(&seen).unwrap();
    fs::create_dir_all(&other).unwrap();
    let file = seen.join("list");
    // As volumes of Kubernetes do: the file is a link, by way of a link to a directory that is replaced.
    fs::create_dir(seen.join("..one")).unwrap();
    fs::write(seen.join("..one/list"), "10.0.0.2").unwrap();
    std::os::unix::fs::symlink("..one", seen.join("..data")).unwrap();
    std::os::unix::fs::symlink("..data/list", &file).unwrap();
    let configured = desired(&file);
    let mut membership = Membership::new(&root);
    let lists = membership.first_lists(&configured);
    membership.commit(&configured, lists);
    assert!(servers(1)(&membership));

    // A link's target changes, in a directory of its own; then the directory is another one.
    fs::write(seen.join("..one/list"), "10.0.0.2\n10.0.0.3").unwrap();
    follow(&mut membership, &configured, servers(2)).await;
    fs::create_dir(seen.join("..two")).unwrap();
    fs::write(seen.join("..two/list"), "10.0.0.2\n10.0.0.3\n10.0.0.4").unwrap();
    std::os::unix::fs::symlink("..two", seen.join("..data_tmp")).unwrap();
    fs::rename(seen.join("..data_tmp"), seen.join("..data")).unwrap();
    follow(&mut membership, &configured, servers(3)).await;
    fs::write(seen.join("..two/list"), "10.0.0.2\n10.0.0.3").unwrap();
    follow(&mut membership, &configured, servers(2)).await;
    // A link out of the directory is another matter.
    fs::write(other.join("list"), "10.0.0.7\n10.0.0.8").unwrap();
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(other.join("list"), &file).unwrap();
    follow(
        &mut membership,
        &configured,
        in_doubt("out of its directory"),
    )
    .await;
    assert!(servers(2)(&membership));
    // The file is gone, and there again.
    fs::remove_file(&file).unwrap();
    follow(&mut membership, &configured, in_doubt("No such file")).await;
    assert!(servers(2)(&membership));
    fs::write(&file, "10.0.0.2\n10.0.0.3\n10.0.0.4").unwrap();
    follow(&mut membership, &configured, servers(3)).await;
    assert!(!in_doubt("")(&membership));
    // The directory is another one, and is still watched then.
    fs::remove_dir_all(&seen).unwrap();
    follow(&mut membership, &configured, in_doubt("No such file")).await;
    fs::create_dir(&seen).unwrap();
    fs::write(&file, "10.0.0.2\n10.0.0.3").unwrap();
    follow(&mut membership, &configured, servers(2)).await;
    fs::write(&file, "10.0.0.2\n10.0.0.3\n10.0.0.4").unwrap();
    follow(&mut membership, &configured, servers(3)).await;
    // As deployments do: one link for all.
    fs::rename(&seen, root.join("away")).unwrap();
    std::os::unix::fs::symlink(&other, &seen).unwrap();
    follow(&mut membership, &configured, servers(2)).await;
    assert!(membership.watch.count() <= 2, "{membership:?}");
    fs::remove_dir_all(&root).unwrap();
}

#[tokio::test]
async fn restart_trusts_no_stored_state() {
    let root = std::env::temp_dir().join(format!("weir-unvouched-{}", std::process::id()));
    fs::create_dir_all(&root).unwrap();
    let file = root.join("list");
    let configured = desired(&file);
    fs::write(&file, "10.0.0.2\n10.0.0.3\n10.0.0.4").unwrap();
    let mut membership = Membership::new(&root);
    let lists = membership.first_lists(&configured);
    membership.commit(&configured, lists);
    fs::write(&file, "10.0.0.2").unwrap();
    let mut again = Membership::new(&root);
    let lists = again.first_lists(&configured);
    again.commit(&configured, lists);
    assert!(servers(3)(&again) && in_doubt("it shrank")(&again));
    fs::remove_dir_all(&root).unwrap();
}

/// What a build wrote whose lists could hold everything.
#[tokio::test]
async fn stored_check_of_an_earlier_build_never_runs() {
    let root = std::env::temp_dir().join(format!("weir-remembered-{}", std::process::id()));
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
    let lists = membership.first_lists(&configured);
    let desired = lists.added_to(&configured);
    assert_eq!(names(&desired), ["10.0.0.1", "10.0.0.2", "10.0.0.3:80"]);
    assert!(
        desired.pools[0]
            .servers
            .iter()
            .all(|it| it.checks.is_none())
    );
    assert_eq!(desired.pools[0].servers[2].weight, 3);
    membership.commit(&configured, lists);
    assert!(in_doubt("`check` can only name a [check.NAME]")(
        &membership
    ));
    let kept = fs::read_to_string(root.join(FILE)).unwrap();
    assert!(!kept.contains("script"), "{kept}");
    fs::remove_dir_all(&root).unwrap();
}

#[tokio::test]
async fn list_entry_names_a_configured_check() {
    let root = std::env::temp_dir().join(format!("weir-names-check-{}", std::process::id()));
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(&root).unwrap();
    let file = root.join("list");
    fs::write(&file, "10.0.0.2 check=site\n10.0.0.3\n").unwrap();
    let mut configured = desired(&file);
    let site = weir_model::Check::new(weir_model::Probe::Ping);
    configured.checks = vec![("site".to_owned(), site.clone())];
    let mut membership = Membership::new(&root);
    let lists = membership.first_lists(&configured);
    let servers = &lists.added_to(&configured).pools[0].servers;
    assert_eq!(servers[1].checks.as_deref(), Some(&[site][..]));
    assert_eq!(servers[2].checks, None);
    membership.commit(&configured, lists);
    // The configuration loses the check: the last good list stays, with the pool's.
    configured.checks.clear();
    let lists = membership.lists_of(&configured);
    assert!(
        lists.added_to(&configured).pools[0].servers[1]
            .checks
            .is_none()
    );
    membership.commit(&configured, lists);
    assert!(in_doubt("line 1, column 1: `check` names no [check.NAME]")(
        &membership
    ));
    fs::remove_dir_all(&root).unwrap();
}
