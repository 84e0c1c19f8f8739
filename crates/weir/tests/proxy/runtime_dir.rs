//! Tests the runtime directory as other users see it: modes, owners, links, and access to the socket.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::keeper::{daemon, wait_until};
use super::{Origin, PROGRAM, Proxy, configuration};

const OTHER_USER: u32 = 65534;
const SECRET: &str = "TOPSECRET-sticky-7f3a";

/// Returns the files in a directory whose mode differs from the expected one. The expected mode of the control socket
/// is `socket_mode`.
fn files_with_wrong_mode(directory: &Path, socket_mode: u32) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("read directory").flatten() {
        let Ok(metadata) = fs::symlink_metadata(entry.path()) else {
            continue;
        };
        let name = entry.path().display().to_string();
        let mode = metadata.mode() & 0o7777;
        let is_expected = match metadata.mode() & 0o170_000 {
            0o120_000 => continue,
            0o040_000 => {
                found.extend(files_with_wrong_mode(&entry.path(), socket_mode));
                mode & 0o077 == 0 || mode == 0o750
            }
            0o140_000 if name.ends_with("/weir.sock") => mode == socket_mode,
            _ => mode == 0o600,
        };
        if !is_expected {
            found.push(format!("{name} has mode {mode:04o}"));
        }
    }
    found
}

/// Returns a command that runs as another user and group.
pub(super) fn command_as_user(user: u32, group: u32, program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", &user.to_string(), "--regid", &group.to_string()])
        .args(["--clear-groups", program]);
    command
}

/// Returns these configuration lines and a second pool whose sticky cookie has a secret.
fn with_sticky_pool(extra: &str) -> String {
    let (first, rest) = extra.split_once('\n').unwrap_or((extra, ""));
    format!(
        "{first}\n\n[pool.q]\nservers = [\"127.0.0.1:1\"]\nsticky = {{ cookie = \"SRV\", secret = \"{SECRET}\" }}\n\n\
         [[route]]\nservice = \"s\"\npath = \"/q\"\npool = \"q\"\n{rest}"
    )
}

/// Runs `weir run` with a runtime directory that it must reject. Returns the error.
fn run_rejected(directory: &Path) -> String {
    let mut command = Command::new("timeout");
    Proxy::set_directories(&mut command, directory);
    let listen = super::free_address();
    let text = configuration(listen, "http", &[listen], "");
    fs::write(directory.join("weir.toml"), text).expect("write file");
    let output = command
        .args(["10", PROGRAM, "run", "-c"])
        .arg(directory.join("weir.toml"))
        .output()
        .expect("run weir");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        output.status.code(),
        Some(1),
        "the directory was not rejected: {error}"
    );
    error
}

/// A directory without a daemon. Dropping it removes the directory.
pub(super) struct TestDirectory(pub(super) PathBuf);

impl TestDirectory {
    pub(super) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-files-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("run")).expect("create directory");
        Self(path)
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn runtime_files_are_private_under_any_umask() {
    let origin = Origin::start("o");
    // The daemon runs with umask 0, so without explicit modes its files would have mode 0666.
    let mut proxy = Proxy::start("http", &[origin.address()], &with_sticky_pool(""));
    proxy.terminate();
    let wrapper = format!("umask 0; exec {PROGRAM} run -c \"$0\"");
    let log = fs::File::create(proxy.directory.join("log")).expect("create log file");
    let mut command = Command::new("sh");
    Proxy::set_directories(&mut command, &proxy.directory);
    fs::remove_dir_all(proxy.directory.join("run")).expect("remove runtime directory");
    proxy.child = command
        .args(["-c", &wrapper])
        .arg(proxy.directory.join("weir.toml"))
        .stderr(log)
        .spawn()
        .expect("start weir");
    proxy.wait_until_ready();
    let run = proxy.directory.join("run");
    let server = format!("p/{}", origin.address());
    assert!(proxy.weir(&["server", &server, "weight", "3"]).0);
    for name in ["proxy-left.json", "proxy.json", "in-force.toml"] {
        wait_until(&format!("{name} exists"), || run.join(name).exists());
    }
    assert_eq!(files_with_wrong_mode(&run, 0o600), Vec::<String>::new());
    assert_eq!(
        fs::metadata(&run).expect("read metadata").mode() & 0o7777,
        0o700
    );
    let file = proxy.directory.join("weir.toml");
    let other = fs::read_to_string(&file)
        .expect("read file")
        .replace(SECRET, "another-7f3a");
    fs::write(&file, other).expect("write file");
    let (_, plan) = proxy.weir(&["plan", "-c", file.to_str().expect("not UTF-8")]);
    assert!(plan.contains("sticky"), "{plan}");
    let status = proxy.status().to_string();
    for text in [&plan, &status, &proxy.log()] {
        assert!(!text.contains("7f3a"), "a secret is shown: {text}");
    }
    if weir_testing::require_root() {
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("set permissions");
        let mut grep = command_as_user(OTHER_USER, OTHER_USER, "grep");
        let found = grep.args(["-r", "7f3a"]).arg(&proxy.directory).output();
        let found = String::from_utf8_lossy(&found.expect("run grep").stdout).into_owned();
        assert_eq!(found, "", "another user can read a secret");
    }
}

#[test]
fn processes_are_not_dumpable() {
    if !weir_testing::require_root() {
        return;
    }
    let origin = Origin::start("o");
    let test_directory = TestDirectory::new("trace");
    chown(
        test_directory.0.join("run"),
        Some(OTHER_USER),
        Some(OTHER_USER),
    )
    .expect("change owner");
    let text = configuration(super::free_address(), "http", &[origin.address()], "");
    fs::write(test_directory.0.join("weir.toml"), text).expect("write file");
    // The keeper executes the program as the other user, who might not have access to the repository.
    let program = test_directory.0.join("program");
    fs::copy(PROGRAM, &program).expect("copy the program");
    let command_as_other_user = || {
        let program = program.to_str().expect("not UTF-8");
        let mut command = command_as_user(OTHER_USER, OTHER_USER, program);
        Proxy::set_directories(&mut command, &test_directory.0);
        command
    };
    let log = fs::File::create(test_directory.0.join("log")).expect("create log file");
    let mut child = command_as_other_user()
        .args(["run", "-c"])
        .arg(test_directory.0.join("weir.toml"))
        .stderr(log)
        .spawn()
        .expect("start weir");
    wait_until("the daemon of the other user is ready", || {
        command_as_other_user()
            .arg("status")
            .output()
            .expect("run weir")
            .status
            .success()
    });
    // A process that is not dumpable writes no core dump, and only root may trace it (proc(5)).
    let read = |pid: u32| {
        let memory = format!("/proc/{pid}/mem");
        let mut head = command_as_user(OTHER_USER, OTHER_USER, "head");
        let output = head.args(["-c", "1", &memory]).output().expect("run head");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let keeper = child.id();
    let errors = [keeper, daemon(keeper).unsigned_abs()].map(read);
    let modes = files_with_wrong_mode(&test_directory.0.join("run"), 0o600);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("send signal");
    child.wait().expect("wait for the process");
    for error in errors {
        assert!(
            error.contains("Permission denied"),
            "the user of the process can read its memory: {error}"
        );
    }
    assert_eq!(modes, Vec::<String>::new());
}

#[test]
fn runtime_directory_of_a_different_user_is_rejected() {
    if !weir_testing::require_root() {
        return;
    }
    let test_directory = TestDirectory::new("owner");
    let run = test_directory.0.join("run");
    chown(&run, Some(OTHER_USER), None).expect("change owner");
    let output = run_rejected(&test_directory.0);
    assert!(output.contains("/run is owned by user nobody"), "{output}");
    assert!(!run.join("lock").exists());
    // The directory is now owned by root, but contains a file of another user.
    chown(&run, Some(0), None).expect("change owner");
    let token = run.join("token");
    fs::write(&token, "a token of at least thirty-two characters").expect("write file");
    chown(&token, Some(OTHER_USER), None).expect("change owner");
    let output = run_rejected(&test_directory.0);
    assert!(
        output.contains("/token is owned by user nobody"),
        "{output}"
    );
}

#[test]
fn planted_symlink_is_not_followed() {
    let test_directory = TestDirectory::new("link");
    let victim = test_directory.0.join("victim");
    for name in ["lock", "state.json", "in-force.toml", "proxy.json", "token"] {
        let link = test_directory.0.join("run").join(name);
        symlink(&victim, &link).expect("create link");
        let output = run_rejected(&test_directory.0);
        let expected = format!("/{name} is a symbolic link, but must be a regular file");
        assert!(output.contains(&expected), "{output}");
        assert!(!victim.exists(), "the daemon wrote through {name}");
        fs::remove_file(&link).expect("remove link");
    }
}

#[test]
fn previous_builds_directory_is_adopted_with_corrected_modes() {
    let origin = Origin::start("o");
    let mut proxy = Proxy::start("http", &[origin.address()], &with_sticky_pool(""));
    let run = proxy.directory.join("run");
    let server = format!("p/{}", origin.address());
    assert!(proxy.weir(&["server", &server, "weight", "3"]).0);
    wait_until("the counters are saved", || {
        run.join("proxy-left.json").exists()
    });
    let loosen_modes = || {
        for entry in fs::read_dir(&run).expect("read directory").flatten() {
            let is_regular = entry.file_type().is_ok_and(|kind| kind.is_file());
            if is_regular && entry.file_name() != "token" {
                let _ = fs::set_permissions(entry.path(), Permissions::from_mode(0o644));
            }
        }
        fs::set_permissions(&run, Permissions::from_mode(0o755)).expect("set permissions");
        assert!(!files_with_wrong_mode(&run, 0o600).is_empty());
    };
    let weight = |proxy: &Proxy| proxy.status()["services"][0]["servers"][0]["weight"].clone();
    // The keeper of the older build is still running.
    loosen_modes();
    let (succeeded, output) = proxy.upgrade();
    assert!(succeeded, "{output}");
    assert_eq!(files_with_wrong_mode(&run, 0o600), Vec::<String>::new());
    assert_eq!(
        fs::metadata(&run).expect("read metadata").mode() & 0o7777,
        0o700
    );
    // Repeat the test after the keeper has stopped.
    proxy.terminate();
    loosen_modes();
    let before = fs::read(run.join("token")).expect("read token");
    proxy.start_again();
    assert_eq!(files_with_wrong_mode(&run, 0o600), Vec::<String>::new());
    assert_eq!(
        fs::metadata(&run).expect("read metadata").mode() & 0o7777,
        0o700
    );
    assert_eq!(fs::read(run.join("token")).expect("read token"), before);
    let status = proxy.status();
    let server = &status["services"][0]["servers"][0];
    assert!(weight(&proxy).is_number(), "{status:#}");
    assert_eq!(
        server["effective_weight"], 3,
        "the persisted weight must be kept"
    );
}

/// Returns the ID of a group.
fn group_id(name: &str) -> u32 {
    let text = fs::read_to_string("/etc/group").expect("read /etc/group");
    let line = text
        .lines()
        .find(|line| line.starts_with(&format!("{name}:")));
    let number = line.and_then(|line| line.split(':').nth(2)?.parse().ok());
    number.expect("group not found")
}

#[test]
fn socket_group_can_use_only_the_socket() {
    if !weir_testing::require_root() {
        return;
    }
    let (daemons, games) = (group_id("daemon"), group_id("games"));
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let run = proxy.directory.join("run");
    let plain = configuration(proxy.listen, "http", &[origin.address()], "");
    let configuration_with = |keys: &str| plain.replace("[node]\n", &format!("[node]\n{keys}\n"));
    let can_connect = |group: u32| {
        let mut command = command_as_user(OTHER_USER, group, PROGRAM);
        Proxy::set_directories(&mut command, &proxy.directory);
        let output = command.args(["status"]).output().expect("run weir");
        output.status.success()
    };
    assert!(
        !can_connect(daemons),
        "without a group only root may connect"
    );
    proxy.reload(&configuration_with("socket_group = \"daemon\""));
    assert!(can_connect(daemons) && !can_connect(games));
    assert_eq!(files_with_wrong_mode(&run, 0o660), Vec::<String>::new());
    let metadata = fs::metadata(&run).expect("read metadata");
    assert_eq!((metadata.mode() & 0o7777, metadata.gid()), (0o750, daemons));
    let mut cat = command_as_user(OTHER_USER, daemons, "cat");
    let read = cat.arg(run.join("in-force.toml")).output();
    assert!(!read.expect("run cat").status.success());
    proxy.reload(&configuration_with("socket_group = \"games\""));
    assert!(
        can_connect(games) && !can_connect(daemons),
        "a reload must change the group"
    );
    proxy.reload(&configuration_with(
        "socket_group = \"games\"\nsocket_mode = \"0600\"",
    ));
    assert!(!can_connect(games));
    proxy.reload(&configuration_with("socket_group = \"games\""));
    // The group keeps its access after a crash.
    super::keeper::kill_daemon(&proxy);
    assert!(can_connect(games));
    assert_eq!(files_with_wrong_mode(&run, 0o660), Vec::<String>::new());
    let file = proxy.directory.join("weir.toml");
    fs::write(
        &file,
        configuration_with("socket_group = \"no-such-group\""),
    )
    .expect("write file");
    for command in ["check", "plan", "reload"] {
        let (succeeded, output) = proxy.weir(&[command, "-c", file.to_str().expect("not UTF-8")]);
        let expected = "group `no-such-group` does not exist on this machine";
        assert!(
            !succeeded && output.contains(expected) && output.contains(":2:16"),
            "{command}: {output}"
        );
    }
    proxy.reload(&plain);
    assert!(!can_connect(games));
    assert_eq!(
        fs::metadata(&run).expect("read metadata").mode() & 0o7777,
        0o700
    );
}
