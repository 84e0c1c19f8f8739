//! Runs the README's quick start as printed, with the file and the commands from its text, on unprepared hosts.
//!
//! Each host is a network namespace with a separate mount namespace, so that `/etc/weir`, `/run` and bpffs are at the
//! README's paths. The test executes the package's unit for servers as a service manager would.

mod world;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use world::{World, privileged, wait_for};

/// Shell script that mounts a host's own file systems: /etc, /run, /usr/sbin, /usr/local/sbin and bpffs. `$2` is the
/// built program.
const MOUNT_SCRIPT: &str = "\
    mount --make-rprivate / && mount -t tmpfs tmpfs \"$1\" && cd \"$1\" && \
    mkdir etc etc-work sbin sbin-work local local-work home && \
    mount -t overlay overlay -o lowerdir=/etc,upperdir=$1/etc,workdir=$1/etc-work /etc && \
    mount -t overlay overlay -o lowerdir=/usr/sbin,upperdir=$1/sbin,workdir=$1/sbin-work /usr/sbin && \
    mount -t overlay overlay -o lowerdir=/usr/local/sbin,upperdir=$1/local,workdir=$1/local-work /usr/local/sbin && \
    mount -t tmpfs tmpfs /run && mount -t bpf bpf /sys/fs/bpf && \
    ln -s \"$2\" home/weir && touch \"$1/ready\" && exec sleep infinity";

/// The README's installation command, with the program's directory in this test.
const INSTALL: &str = "install -m 755 weir /usr/local/sbin/";

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// A host and the process that keeps the host's mounts.
struct Machine {
    holder: Child,
    home: PathBuf,
}

impl Machine {
    fn new(world: &World, host: &str) -> Self {
        let directory = world.path(&format!("machine-{host}"));
        fs::create_dir(&directory).expect("create a directory");
        let holder = world
            .command(host, "unshare")
            .args(["--mount", "sh", "-ec", MOUNT_SCRIPT, "sh"])
            .args([directory.as_path(), Path::new(env!("CARGO_BIN_EXE_weir"))])
            .spawn()
            .expect("start unshare");
        let ready = PathBuf::from(format!("/proc/{}/root", holder.id()))
            .join(directory.strip_prefix("/").expect("path is not absolute"))
            .join("ready");
        wait_for("the host's mounts", Duration::from_secs(10), || {
            ready.exists()
        });
        Self {
            holder,
            home: directory.join("home"),
        }
    }

    /// Returns a command that runs a line in the host's root shell.
    fn shell(&self, line: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--target={}", self.holder.id()))
            .args(["--mount", "--net", "setpriv", "--pdeathsig", "KILL"])
            .args(["sh", "-c"])
            .arg(format!("cd {} && {line}", self.home.display()))
            .env("NO_COLOR", "1")
            // Use Debian's PATH for root.
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .stdin(Stdio::null());
        command
    }

    fn run(&self, line: &str) -> Output {
        self.shell(line).output().expect("run nsenter")
    }

    /// Runs a command and asserts that it succeeds. Returns its output.
    fn run_successfully(&self, line: &str) -> String {
        let output = self.run(line);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {text}{errors}");
        text
    }

    fn write(&self, path: &str, text: &str) {
        let file = self.home.join("file");
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        let host_path = root.join(file.strip_prefix("/").expect("path is not absolute"));
        fs::write(host_path, text).expect("write the file");
        self.run_successfully(&format!("cp {} {path}", file.display()));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Returns the fenced blocks below a heading of the README.
fn blocks(readme: &str, heading: &str) -> Vec<String> {
    let section = readme
        .split("\n## ")
        .find(|section| section.starts_with(heading))
        .unwrap_or_else(|| panic!("the README has no section {heading}"));
    let fenced = section.split("\n```").skip(1).step_by(2);
    fenced
        .map(|block| block.split_once('\n').expect("no fence line").1.to_owned() + "\n")
        .collect()
}

/// Returns the host and the command of each line in a block that has the form `HOST# COMMAND`.
fn commands(block: &str) -> Vec<(String, String)> {
    let lines = block.lines().filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let (host, command) = line
                .split_once('#')
                .expect("line without the form HOST# COMMAND");
            // Text after two spaces and a number sign is a comment, which the shell ignores.
            (host.to_owned(), command.trim().to_owned())
        })
        .collect()
}

/// Creates the README's network: one segment with the director, two servers and a client.
fn create_network(world: &World) -> (Machine, Vec<Machine>, Machine) {
    let addresses = [
        ("client", "10.0.0.9"),
        ("director", "10.0.0.1"),
        ("server0", "10.0.0.5"),
        ("server1", "10.0.0.6"),
    ];
    for (host, address) in addresses {
        world.ip(host, "addr flush dev eth0");
        world.ip(host, &format!("addr add {address}/24 dev eth0"));
    }
    (
        Machine::new(world, "director"),
        ["server0", "server1"]
            .iter()
            .map(|host| Machine::new(world, host))
            .collect(),
        Machine::new(world, "client"),
    )
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn readme_quick_start_works_as_printed() {
    if !privileged() {
        return;
    }
    let readme = fs::read_to_string(repository("README.md")).expect("read the README");
    let blocks = blocks(&readme, "A director in ");
    let [install, file, quick_start, ipvsadm, ..] = &blocks[..] else {
        panic!("expected a block of commands, a file and two more blocks: {blocks:#?}");
    };
    let mut world = World::new(2);
    world.start_nginx(1 << 20);
    for n in 0..2 {
        // Create the file that the check requests.
        let page = world.path(&format!("www{n}/html/index.html"));
        fs::write(page, "hello\n").expect("write the page");
    }
    let (director, servers, client) = create_network(&world);
    for (host, command) in commands(install) {
        // `Machine::new` provides the program that the README copies to /tmp, which is shared with other tests.
        let command = command.replace("/tmp/", "");
        match host.as_str() {
            // The test uses its own build.
            "build" => assert!(
                command == "make build" || command.starts_with("scp "),
                "{command}"
            ),
            "director" => drop(director.run_successfully(&command)),
            "server" => servers.iter().for_each(|server| {
                server.run_successfully(&command);
            }),
            other => panic!("the README contains a command for an unknown host {other}"),
        }
    }
    let (first, text) = file.split_once('\n').expect("text has no first line");
    director.write(first.trim_start_matches("# "), text);
    let (mut client_requests, log) = (0, world.path("run.log"));
    for (host, command) in commands(quick_start) {
        match host.as_str() {
            "director" if command.ends_with("weir run") => {
                let mut shell = director.shell(&command);
                let child = shell.stderr(fs::File::create(&log).expect("create the log file"));
                world.kill_on_drop(child.spawn().expect("start the process"));
            }
            "director" => {
                // A reader would repeat this command until the checks have results.
                wait_for("two servers to be up", Duration::from_secs(120), || {
                    let output = director.run(&command);
                    String::from_utf8_lossy(&output.stdout)
                        .matches(" up ")
                        .count()
                        == 2
                });
                let status = director.run_successfully(&command);
                assert!(status.contains("vip added"), "{status}");
                let log_text = fs::read_to_string(&log).expect("read the log file");
                let running = log_text.lines().find(|line| line.contains(" running "));
                let running = running.unwrap_or_else(|| panic!("{log_text}"));
                assert!(running.contains("10.0.0.10 on eth0"), "{running}");
            }
            "server" => servers.iter().for_each(|server| {
                server.run_successfully(&command);
            }),
            "client" => {
                client_requests += 1;
                let url = command.split_whitespace().last().expect("no URL");
                let page = client.run_successfully(&format!("{command} --max-time 5"));
                assert_eq!(page, "hello\n");
                let mut names: Vec<String> = (0..4)
                    .map(|_| client.run_successfully(&format!("curl -sSf --max-time 5 {url}name")))
                    .collect();
                names.sort_unstable();
                names.dedup();
                assert_eq!(names.len(), 2, "both servers must respond: {names:?}");
                let big = client.run_successfully(&format!(
                    "curl -sSf --max-time 30 {url}big | cmp - {} && echo same",
                    world.path("big").display()
                ));
                assert_eq!(big, "same\n");
            }
            other => panic!("the README contains a command for an unknown host {other}"),
        }
    }
    assert!(
        client_requests > 0,
        "the quick start must end with a client's request"
    );
    for (host, command) in commands(ipvsadm) {
        match host.as_str() {
            "director" => {
                director.run_successfully(&command);
            }
            "server" => {
                for server in &servers {
                    server.run_successfully(&command);
                }
            }
            other => panic!("the README contains a command for an unknown host {other}"),
        }
    }
    client.run_successfully("curl -sSf --max-time 5 http://10.0.0.11/name");
    let listing = director.run_successfully("ipvsadm -Ln");
    assert!(listing.contains("10.0.0.11:80"), "{listing}");
    let doctor = director.run("weir doctor");
    assert!(
        doctor.status.success(),
        "{}",
        String::from_utf8_lossy(&doctor.stdout)
    );
    assert_pair_example_works(&readme, &director, &servers, &client);
}

/// Applies the README's file for the first of two directors, after the quick start, and asserts that all its services
/// respond. The guarded reload would roll back if the servers of the quick start failed the file's checks.
fn assert_pair_example_works(
    readme: &str,
    director: &Machine,
    servers: &[Machine],
    client: &Machine,
) {
    const APPLY: &str = "weir check && weir plan && weir reload --guard 30s";
    assert!(readme.contains(&format!("`{APPLY}`")));
    let blocks = blocks(readme, "One file for packets and requests");
    let [preparation, file] = &blocks[..] else {
        panic!("expected a block of commands and a file: {blocks:#?}");
    };
    for (host, command) in commands(preparation) {
        match host.as_str() {
            "director" => drop(director.run_successfully(&command)),
            "server" => servers.iter().for_each(|server| {
                server.run_successfully(&command);
            }),
            other => panic!("the README contains a command for an unknown host {other}"),
        }
    }
    let (first, text) = file.split_once('\n').expect("text has no first line");
    director.write(first.trim_start_matches("# "), text);
    // A server that fails a check is down after 6 s.
    director.run_successfully(&APPLY.replace("30s", "10s"));
    wait_for("the virtual router", Duration::from_secs(60), || {
        let routers = director.run_successfully("weir vrrp");
        // No penalty: every pool has a usable server.
        routers.contains(" active ") && routers.contains(" 150 ")
    });
    for url in ["http://10.0.0.10/", "http://10.0.0.11/"] {
        let page = client.run_successfully(&format!("curl -sSf --max-time 5 {url}"));
        assert_eq!(page, "hello\n", "{url}");
    }
    // The servers have no such page, so 404 shows that the route's pool has a usable server.
    let status = client.run_successfully(
        "curl -sS --max-time 5 -o /dev/null -w '%{http_code}' http://10.0.0.11/api/none",
    );
    assert_eq!(status, "404");
}

/// Returns a unit's commands for an instance. Expands `%i`, Environment=, EnvironmentFile= and words as systemd does.
fn unit_commands(unit: &str, instance: &str) -> Vec<(String, String)> {
    let unit = unit.replace("%i", instance);
    let settings = unit.lines().filter_map(|line| line.split_once('='));
    let settings: Vec<(&str, &str)> = settings.filter(|(key, _)| !key.contains('#')).collect();
    let values_of = |name: &str| {
        let matching = settings.iter().filter(move |(key, _)| *key == name);
        matching.map(|(_, value)| *value).collect::<Vec<_>>()
    };
    // The shell splits unquoted variables into words as systemd does, and its assignments have the same form as those
    // in the file.
    let mut assignments = String::new();
    for value in values_of("Environment") {
        assignments += &format!("for it in {value}; do export \"$it\"; done; ");
    }
    for value in values_of("EnvironmentFile") {
        let path = value
            .strip_prefix('-')
            .expect("EnvironmentFile without `-`");
        assignments += &format!("[ ! -e {path} ] || . {path}; ");
    }
    ["ExecStart", "ExecReload", "ExecStop"]
        .into_iter()
        .map(|key| {
            let [command] = values_of(key)[..] else {
                panic!("the unit must have one {key}");
            };
            let command = command.replace("/usr/bin/weir", "weir");
            (key.to_owned(), format!("{assignments}{command}"))
        })
        .collect()
}

#[test]
fn unit_prepares_a_server_and_undoes_only_its_own_changes() {
    if !privileged() {
        return;
    }
    let unit = fs::read_to_string(repository("docs/packaging/weir-real-server@.service"));
    let unit = unit.expect("read the unit");
    let world = World::new(2);
    let (_director, servers, _client) = create_network(&world);
    let server = &servers[0];
    let has_vip = |vip: &str| {
        server
            .run_successfully("ip -o addr show dev lo")
            .contains(&format!("{vip}/"))
    };
    server.run_successfully(INSTALL);
    server.run_successfully("mkdir -p /etc/weir/real-server");
    server.write(
        "/etc/weir/real-server/edge.conf",
        "UP=\"--forward tunnel --tunnel gue\"\nVIPS=\"--vip 10.0.0.12 --vip 2001:db8::12\"\n",
    );
    let plain = unit_commands(&unit, "10.0.0.10");
    let edge = unit_commands(&unit, "edge");
    let run_command = |commands: &[(String, String)], key: &str| {
        let (_, command) = commands
            .iter()
            .find(|(it, _)| it == key)
            .expect("command not found");
        server.run_successfully(command)
    };
    run_command(&plain, "ExecStart");
    run_command(&edge, "ExecStart");
    assert!(has_vip("10.0.0.10") && has_vip("10.0.0.12") && has_vip("2001:db8::12"));
    let output = server.run_successfully("weir real-server show");
    assert!(output.contains("gue"), "{output}");
    assert_eq!(run_command(&edge, "ExecReload"), "nothing to do\n");
    run_command(&edge, "ExecStop");
    assert!(has_vip("10.0.0.10") && !has_vip("10.0.0.12") && !has_vip("2001:db8::12"));
    run_command(&plain, "ExecStop");
    assert!(!has_vip("10.0.0.10"));
    // systemd must accept every line.
    let path = world.path("weir-real-server@10.0.0.10.service");
    fs::write(&path, unit.replace("/usr/bin/weir", "/bin/true")).expect("write the file");
    let verified = Command::new("systemd-analyze")
        .arg("verify")
        .arg("--man=no")
        .arg(&path)
        .output()
        .expect("run systemd-analyze");
    let errors = String::from_utf8_lossy(&verified.stderr);
    assert!(!errors.contains("weir-real-server"), "{errors}");
}
