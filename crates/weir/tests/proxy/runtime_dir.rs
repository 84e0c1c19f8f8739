//! The runtime directory as other users see it: modes, owners, links, and access to the socket.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::keeper::{daemon, until};
use super::{Origin, PROGRAM, Proxy, configuration};

const OTHER_USER: u32 = 65534;
const SECRET: &str = "TOPSECRET-sticky-7f3a";

/// Returns the files of a directory whose mode differs from the expected one.
fn wide(directory: &Path, socket: u32) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("read directory").flatten() {
        let Ok(known) = fs::symlink_metadata(entry.path()) else {
            continue;
        };
        let name = entry.path().display().to_string();
        let mode = known.mode() & 0o7777;
        let right = match known.mode() & 0o170_000 {
            0o120_000 => continue,
            0o040_000 => {
                found.extend(wide(&entry.path(), socket));
                mode & 0o077 == 0 || mode == 0o750
            }
            0o140_000 if name.ends_with("/weir.sock") => mode == socket,
            _ => mode == 0o600,
        };
        if !right {
            found.push(format!("{name} has mode {mode:04o}"));
        }
    }
    found
}

/// Returns a command that runs as another user and group.
pub(super) fn as_user(user: u32, group: u32, program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", &user.to_string(), "--regid", &group.to_string()])
        .args(["--clear-groups", program]);
    command
}

/// Returns configuration lines with a second pool, whose cookie has a secret.
fn sticky(more: &str) -> String {
    let (first, rest) = more.split_once('\n').unwrap_or((more, ""));
    format!(
        "{first}\n\n[pool.q]\nservers = [\"127.0.0.1:1\"]\nsticky = {{ cookie = \"SRV\", secret = \"{SECRET}\" }}\n\n\
         [[route]]\nservice = \"s\"\npath = \"/q\"\npool = \"q\"\n{rest}"
    )
}

/// Runs `weir run` with a runtime directory that it must reject. Returns the error.
fn refused(directory: &Path) -> String {
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
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        output.status.code(),
        Some(1),
        "the directory was not rejected: {printed}"
    );
    printed
}

/// A directory without a daemon. Removed on drop.
pub(super) struct Sandbox(pub(super) PathBuf);

impl Sandbox {
    pub(super) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-files-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("run")).expect("create directory");
        Self(path)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn runtime_files_are_private_under_any_umask() {
    let origin = Origin::start("o");
    // The daemon runs with umask 0, so without explicit modes its files would have mode 0666.
    let mut proxy = Proxy::start("http", &[origin.address()], &sticky(""));
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
        until(name, || run.join(name).exists());
    }
    assert_eq!(wide(&run, 0o600), Vec::<String>::new());
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
    for shown in [&plan, &status, &proxy.log()] {
        assert!(!shown.contains("7f3a"), "a secret is shown: {shown}");
    }
    if weir_testing::require_root() {
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("set permissions");
        let mut grep = as_user(OTHER_USER, OTHER_USER, "grep");
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
    let sandbox = Sandbox::new("trace");
    chown(sandbox.0.join("run"), Some(OTHER_USER), Some(OTHER_USER)).expect("change owner");
    let text = configuration(super::free_address(), "http", &[origin.address()], "");
    fs::write(sandbox.0.join("weir.toml"), text).expect("write file");
    let as_other_user = || {
        let mut command = as_user(OTHER_USER, OTHER_USER, PROGRAM);
        Proxy::set_directories(&mut command, &sandbox.0);
        command
    };
    let log = fs::File::create(sandbox.0.join("log")).expect("create log file");
    let mut child = as_other_user()
        .args(["run", "-c"])
        .arg(sandbox.0.join("weir.toml"))
        .stderr(log)
        .spawn()
        .expect("start weir");
    until("a daemon of another user", || {
        as_other_user()
            .arg("status")
            .output()
            .expect("run weir")
            .status
            .success()
    });
    // proc(5): a process that is not dumpable writes no core dump, and only root may trace it.
    let read = |pid: u32| {
        let memory = format!("/proc/{pid}/mem");
        let mut head = as_user(OTHER_USER, OTHER_USER, "head");
        let output = head.args(["-c", "1", &memory]).output().expect("run head");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let keeper = child.id();
    let printed = [keeper, daemon(keeper).unsigned_abs()].map(read);
    let modes = wide(&sandbox.0.join("run"), 0o600);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("send signal");
    child.wait().expect("wait for the process");
    for printed in printed {
        assert!(
            printed.contains("Permission denied"),
            "another user can read its memory: {printed}"
        );
    }
    assert_eq!(modes, Vec::<String>::new());
}

#[test]
fn runtime_directory_of_another_user_is_rejected() {
    if !weir_testing::require_root() {
        return;
    }
    let sandbox = Sandbox::new("owner");
    let run = sandbox.0.join("run");
    chown(&run, Some(OTHER_USER), None).expect("change owner");
    let printed = refused(&sandbox.0);
    assert!(printed.contains("/run belongs to user nobody"), "{printed}");
    assert!(!run.join("lock").exists());
    // The directory belongs to root, but was writable by others until now.
    chown(&run, Some(0), None).expect("change owner");
    let token = run.join("token");
    fs::write(&token, "a token of at least thirty-two characters").expect("write file");
    chown(&token, Some(OTHER_USER), None).expect("change owner");
    let printed = refused(&sandbox.0);
    assert!(
        printed.contains("/token belongs to user nobody"),
        "{printed}"
    );
}

#[test]
fn planted_symlink_is_not_followed() {
    let sandbox = Sandbox::new("link");
    let victim = sandbox.0.join("victim");
    for name in ["lock", "state.json", "in-force.toml", "proxy.json", "token"] {
        let link = sandbox.0.join("run").join(name);
        symlink(&victim, &link).expect("create link");
        let printed = refused(&sandbox.0);
        let words = format!("/{name} is a symbolic link, but must be a regular file");
        assert!(printed.contains(&words), "{printed}");
        assert!(!victim.exists(), "{name} was written through");
        fs::remove_file(&link).expect("remove link");
    }
}

#[test]
fn previous_builds_directory_is_adopted_with_corrected_modes() {
    let origin = Origin::start("o");
    let mut proxy = Proxy::start("http", &[origin.address()], &sticky(""));
    let run = proxy.directory.join("run");
    let server = format!("p/{}", origin.address());
    assert!(proxy.weir(&["server", &server, "weight", "3"]).0);
    until("counts", || run.join("proxy-left.json").exists());
    let widen = || {
        for entry in fs::read_dir(&run).expect("read directory").flatten() {
            let plain = entry.file_type().is_ok_and(|kind| kind.is_file());
            if plain && entry.file_name() != "token" {
                let _ = fs::set_permissions(entry.path(), Permissions::from_mode(0o644));
            }
        }
        fs::set_permissions(&run, Permissions::from_mode(0o755)).expect("set permissions");
        assert!(!wide(&run, 0o600).is_empty());
    };
    let weight = |proxy: &Proxy| proxy.status()["services"][0]["servers"][0]["weight"].clone();
    // While a keeper of the older build runs.
    widen();
    let (done, printed) = proxy.upgrade();
    assert!(done, "{printed}");
    assert_eq!(wide(&run, 0o600), Vec::<String>::new());
    assert_eq!(
        fs::metadata(&run).expect("read metadata").mode() & 0o7777,
        0o700
    );
    // After it has stopped.
    proxy.terminate();
    widen();
    let before = fs::read(run.join("token")).expect("read token");
    proxy.start_again();
    assert_eq!(wide(&run, 0o600), Vec::<String>::new());
    assert_eq!(
        fs::metadata(&run).expect("read metadata").mode() & 0o7777,
        0o700
    );
    assert_eq!(fs::read(run.join("token")).expect("read token"), before);
    let shown = proxy.status();
    let servers = &shown["services"][0]["servers"][0];
    assert!(weight(&proxy).is_number(), "{shown:#}");
    assert_eq!(
        servers["effective_weight"], 3,
        "the persisted weight must be kept"
    );
}

/// Returns the ID of a group.
fn group(name: &str) -> u32 {
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
    let (daemons, games) = (group("daemon"), group("games"));
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let run = proxy.directory.join("run");
    let plain = configuration(proxy.listen, "http", &[origin.address()], "");
    let with = |keys: &str| plain.replace("[node]\n", &format!("[node]\n{keys}\n"));
    let status = |group: u32| {
        let mut command = as_user(OTHER_USER, group, PROGRAM);
        Proxy::set_directories(&mut command, &proxy.directory);
        let output = command.args(["status"]).output().expect("run weir");
        output.status.success()
    };
    assert!(!status(daemons), "without a group only root may connect");
    proxy.reload(&with("socket_group = \"daemon\""));
    assert!(status(daemons) && !status(games));
    assert_eq!(wide(&run, 0o660), Vec::<String>::new());
    let known = fs::metadata(&run).expect("read metadata");
    assert_eq!((known.mode() & 0o7777, known.gid()), (0o750, daemons));
    let mut listing = as_user(OTHER_USER, daemons, "cat");
    let read = listing.arg(run.join("in-force.toml")).output();
    assert!(!read.expect("run cat").status.success());
    proxy.reload(&with("socket_group = \"games\""));
    assert!(
        status(games) && !status(daemons),
        "a reload must change the group"
    );
    proxy.reload(&with("socket_group = \"games\"\nsocket_mode = \"0600\""));
    assert!(!status(games));
    proxy.reload(&with("socket_group = \"games\""));
    // The group also applies after a crash.
    super::keeper::kill_daemon(&proxy);
    assert!(status(games));
    assert_eq!(wide(&run, 0o660), Vec::<String>::new());
    let file = proxy.directory.join("weir.toml");
    fs::write(&file, with("socket_group = \"no-such-group\"")).expect("write file");
    for command in ["check", "plan", "reload"] {
        let (done, printed) = proxy.weir(&[command, "-c", file.to_str().expect("not UTF-8")]);
        let words = "group `no-such-group` does not exist on this machine";
        assert!(
            !done && printed.contains(words) && printed.contains(":2:16"),
            "{command}: {printed}"
        );
    }
    proxy.reload(&plain);
    assert!(!status(games));
    assert_eq!(
        fs::metadata(&run).expect("read metadata").mode() & 0o7777,
        0o700
    );
}
