//! Tests `weir top` and `weir status` in a tmux terminal: output, keys and exit.

mod world;

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use world::{World, privileged, wait_for};

const CONFIG: &str = "[node]\ninterfaces = [\"eth0\"]\n\
    [pool.web]\nscheduler = \"rr\"\nservers = [\"10.71.0.20\", \"10.71.0.21\"]\n\
    [service.web]\nlisten = [\"10.71.0.10:80\"]\nforward = \"direct\"\npool = \"web\"\n";

/// A separate tmux server with one window.
struct Tmux {
    socket: PathBuf,
}

impl Tmux {
    /// Runs a shell line in a window with 130 columns. The window shows the exit code at the end.
    fn new(world: &World, line: &str) -> Self {
        Self::with_size(world, "tmux", ("130", "30"), line)
    }

    /// Like [`Self::new`], but with a window size. `name` must be unique, because an old server's socket remains.
    fn with_size(world: &World, name: &str, (columns, rows): (&str, &str), line: &str) -> Self {
        let tmux = Self {
            socket: world.path(&format!("{name}.sock")),
        };
        let line = format!("{line}; echo exit=$?; exec sleep 600");
        let mut command = tmux.command(&["-f", "/dev/null", "new-session", "-d", "-x", columns]);
        let output = command
            .args(["-y", rows, &line])
            .output()
            .expect("run tmux");
        assert!(output.status.success(), "{output:?}");
        tmux
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(&self.socket).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("run tmux")
    }

    fn send_keys(&self, keys: &[&str]) {
        for key in keys {
            assert!(self.run(&["send-keys", key]).status.success(), "{key}");
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.run(&["capture-pane", "-p"]).stdout).into_owned()
    }

    /// Waits until the window contains `text`.
    fn wait_for_text(&self, text: &str) {
        let mut last = String::new();
        wait_for(
            &format!("{text:?} in the window"),
            Duration::from_secs(60),
            || {
                last = self.text();
                eprintln!("{last}");
                last.contains(text)
            },
        );
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.run(&["kill-server"]);
    }
}

/// Returns a shell line that runs `weir top` for the network's director from outside the director's namespace.
fn top_command(world: &World) -> String {
    let (program, dir) = (
        world::program::program_under_test(),
        world.path("run-director"),
    );
    format!("{} top --runtime-dir {}", program.display(), dir.display())
}

fn state(world: &World, server: usize) -> String {
    let status = world.status();
    let state = &status["services"][0]["servers"][server]["state"];
    state.as_str().expect("state is not a string").to_owned()
}

#[test]
fn keys_filter_and_drain_servers() {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    world.start_daemon(CONFIG);
    let tmux = Tmux::new(&world, &top_command(&world));
    for text in [
        "weir top",
        "1 service, 2 servers",
        "10.71.0.20",
        "10.71.0.21",
        "q quit",
    ] {
        tmux.wait_for_text(text);
    }
    tmux.send_keys(&["s", "s"]);
    tmux.wait_for_text("sort: state");
    tmux.send_keys(&["/", ".", "2", "1", "Enter"]);
    tmux.wait_for_text("filter: .21");
    assert!(!tmux.text().contains("10.71.0.20"), "{}", tmux.text());
    tmux.send_keys(&["End", "d"]);
    tmux.wait_for_text("drain web/10.71.0.21? y/n");
    tmux.send_keys(&["n"]);
    tmux.wait_for_text("drain canceled");
    assert_ne!(
        state(&world, 1),
        "drain",
        "the action must require a confirmation"
    );
    tmux.send_keys(&["d"]);
    tmux.wait_for_text("? y/n");
    tmux.send_keys(&["y"]);
    tmux.wait_for_text("drain done, now drain, effective weight 0");
    assert_eq!(state(&world, 1), "drain");
    tmux.send_keys(&["r"]);
    tmux.wait_for_text("ready web/10.71.0.21? y/n");
    tmux.send_keys(&["y"]);
    tmux.wait_for_text("ready done");
    assert_ne!(state(&world, 1), "drain");
    tmux.send_keys(&["q"]);
    tmux.wait_for_text("exit=0");
    assert!(
        !tmux.text().contains("q quit"),
        "the screen must be restored"
    );
}

#[test]
fn lost_daemon_is_reported_and_last_numbers_are_kept() {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    let pid = world.start_daemon(CONFIG);
    let tmux = Tmux::new(&world, &top_command(&world));
    tmux.wait_for_text("10.71.0.20");
    world.kill_keeper(pid);
    tmux.wait_for_text("no daemon is listening on");
    tmux.wait_for_text("10.71.0.20");
    tmux.send_keys(&["C-c"]);
    tmux.wait_for_text("exit=0");
}

#[test]
fn missing_daemon_or_terminal_is_reported() {
    if !privileged() {
        return;
    }
    let world = World::new(0);
    let tmux = Tmux::new(&world, &top_command(&world));
    tmux.wait_for_text("exit=3");
    let text = tmux.text().replace('\n', "");
    assert!(text.contains("no daemon is listening on"), "{text}");
    let output = world
        .weir("director")
        .arg("top")
        .output()
        .expect("run weir");
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("top requires a terminal"), "{text}");
}

/// Runs `weir status ARGUMENTS` in a window with 80 columns. Returns the lines without wrapping.
fn status_lines(world: &World, name: &str, arguments: &str) -> Vec<String> {
    let (program, dir) = (
        world::program::program_under_test(),
        world.path("run-director"),
    );
    let line = format!(
        "env -u COLUMNS {} status {arguments} --runtime-dir {}",
        program.display(),
        dir.display()
    );
    let tmux = Tmux::with_size(world, name, ("80", "100"), &line);
    tmux.wait_for_text("exit=0");
    // With `-J`, tmux joins wrapped lines.
    let text = tmux.run(&["capture-pane", "-p", "-J", "-S", "-"]).stdout;
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines().map(|it| it.trim_end().to_owned()).collect()
}

#[test]
fn status_fits_80_columns_with_2_and_2000_servers() {
    if !privileged() {
        return;
    }
    let mut world = World::new(0);
    let pool = |count: usize| {
        let servers: Vec<String> = (0..count)
            .map(|n| format!("\"10.200.{}.{}:18080\"", 100 + n / 100, 100 + n % 100))
            .collect();
        format!("servers = [{}]\n", servers.join(", "))
    };
    let config = |count: usize| {
        format!(
            "[pool.web]\n{}[service.web]\nlisten = [\"10.71.0.10:80\"]\nprotocol = \"http\"\n\
             forward = \"proxy\"\npool = \"web\"\n",
            pool(count)
        )
    };
    world.start_daemon(&config(2));
    for (count, summary, last) in [
        (2, "2 servers: 2 maint", "10.200.100.101:18080"),
        (2_000, "1997 more", "10.200.119.199:18080"),
    ] {
        if count > 2 {
            world.reload(&config(count));
        }
        for n in 100..103.min(100 + count) {
            let server = format!("web/10.200.100.{n}:18080");
            world.run_weir(&["server", &server, "maint"]);
        }
        for (arguments, expected) in [("", summary), ("web", last)] {
            let lines = status_lines(&world, &format!("tmux{count}{arguments}"), arguments);
            let wide: Vec<_> = lines.iter().filter(|it| it.chars().count() > 80).collect();
            assert!(wide.is_empty(), "{wide:#?}");
            let text = lines.join("\n");
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }
    assert_head_stays_on_small_screen(&world);
}

/// Asserts that `weir status --watch` keeps the first lines on the screen if there are more lines than rows.
fn assert_head_stays_on_small_screen(world: &World) {
    let (program, dir) = (
        world::program::program_under_test(),
        world.path("run-director"),
    );
    let line = format!(
        "env -u COLUMNS {} status --watch --runtime-dir {}",
        program.display(),
        dir.display()
    );
    let tmux = Tmux::with_size(world, "watch", ("80", "8"), &line);
    // The second and later pages show rates.
    tmux.wait_for_text("requests/s");
    let text = tmux.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 8, "{text}");
    assert!(lines[0].starts_with("revision "), "{text}");
    assert!(lines[1].starts_with("1 service, 2000 servers"), "{text}");
    assert!(lines[7].contains(" more lines; "), "{text}");
}
