//! What somebody else changes of Weir's in the kernel is put back under traffic, said once and counted.

mod world;

use std::process::Command;
use std::time::{Duration, Instant};

use world::{Family, World, privileged, sh, wait_for};

const PATIENCE: Duration = Duration::from_secs(15);

fn config() -> String {
    format!(
        "[node]\ninterfaces = [\"eth0\"]\nvip_interface = \"eth0\"\n\n\
         [pool.web]\nservers = [\"{}\"]\n\n\
         [service.web]\nlisten = [\"{VIP}:80\"]\nforward = \"nat\"\npool = \"web\"\nsnat = true\n",
        Family::V4.server(0),
    )
}

const VIP: &str = "10.71.0.99";

fn reaches(world: &World) -> bool {
    let line = format!("curl -s -o /dev/null -m 1 http://{VIP}/name");
    world.output("client", &line).status.success()
}

fn repaired(world: &World, what: &str) -> u64 {
    let label = format!("weir_drift_repaired_total{{what=\"{what}\"}} ");
    let metrics = world.metrics();
    let line = metrics.lines().find_map(|line| line.strip_prefix(&label));
    line.and_then(|count| count.parse().ok())
        .unwrap_or_else(|| panic!("{label} in {metrics}"))
}

/// Breaks something and waits for it to be whole again: clients are served, it was counted once and said once.
fn mended(world: &World, what: &str, words: &str, break_it: impl FnOnce()) {
    assert!(reaches(world), "before {words}");
    let (before, said) = (repaired(world, what), world.log().matches(words).count());
    break_it();
    let began = Instant::now();
    wait_for(words, PATIENCE, || repaired(world, what) > before);
    wait_for(
        &format!("clients are served after {words}"),
        PATIENCE,
        || reaches(world),
    );
    println!("{words}: whole again within {:?}", began.elapsed());
    assert_eq!(
        repaired(world, what),
        before + 1,
        "{words}: {}",
        world.log()
    );
    assert_eq!(
        world.log().matches(words).count(),
        said + 1,
        "{}",
        world.log()
    );
}

fn bpftool(arguments: &str) -> String {
    let words = arguments.split_whitespace();
    let output = Command::new("bpftool")
        .args(words)
        .output()
        .expect("bpftool runs");
    assert!(output.status.success(), "bpftool {arguments}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The pin below a world's directory whose name ends so.
fn pin(world: &World, name: &str) -> String {
    let output = Command::new("find")
        .arg(world.pin_dir("director"))
        .args(["-name", name])
        .output()
        .expect("find runs");
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .next()
        .unwrap_or_else(|| panic!("no pin {name}"))
        .to_owned()
}

#[test]
fn everything_is_put_back() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(64);
    world.start_director(&config());
    wait_for("the service", PATIENCE, || reaches(&world));

    mended(&world, "program", "a program was put back", || {
        let links = Command::new("find")
            .arg(world.pin_dir("director"))
            .args(["-path", "*link*", "-name", "*xdp*"])
            .output()
            .expect("find runs");
        let text = String::from_utf8_lossy(&links.stdout).into_owned();
        let link = text
            .lines()
            .next()
            .unwrap_or_else(|| panic!("no link of XDP: {text}"));
        bpftool(&format!("link detach pinned {link}"));
    });
    mended(
        &world,
        "element",
        "elements of maps were written again",
        || {
            let map = pin(&world, "weir_vips");
            let dump: serde_json::Value =
                serde_json::from_str(&bpftool(&format!("-j map dump pinned {map}"))).expect("JSON");
            let key = dump[0]["key"].as_array().expect("a key");
            let key: Vec<&str> = key
                .iter()
                .map(|byte| byte.as_str().expect("a byte"))
                .collect();
            bpftool(&format!(
                "map delete pinned {map} key hex {}",
                key.join(" ").replace("0x", "")
            ));
        },
    );
    mended(&world, "address", "a VIP was added again", || {
        world.ip("director", &format!("addr del {VIP}/32 dev eth0"));
    });
    mended(
        &world,
        "neighbour",
        "its neighbour has another link address",
        || {
            world.ip("server0", "link set eth0 address 02:00:00:00:00:77");
            // What it says then tells its neighbours.
            let line = format!("ping -c 1 -W 1 {}", Family::V4.director());
            world.output("server0", &line);
        },
    );
}

#[test]
fn another_program_in_its_place() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(64);
    world.start_director(&config());
    wait_for("the service", PATIENCE, || reaches(&world));
    let source = world.path("other.c");
    std::fs::write(
        &source,
        "__attribute__((section(\"xdp\"), used)) int other(void *ctx) { return 2; }\n\
         char _license[] __attribute__((section(\"license\"), used)) = \"GPL\";\n",
    )
    .expect("a program");
    let object = world.path("other.o");
    sh(&format!(
        "clang -target bpf -O2 -c {} -o {}",
        source.display(),
        object.display()
    ));
    mended(&world, "program", "a program was put back", || {
        let links = Command::new("find")
            .arg(world.pin_dir("director"))
            .args(["-path", "*link*", "-name", "*xdp*"])
            .output()
            .expect("find runs");
        let text = String::from_utf8_lossy(&links.stdout).into_owned();
        let link = text
            .lines()
            .next()
            .unwrap_or_else(|| panic!("no link of XDP: {text}"));
        let command = format!(
            "bpftool link detach pinned {link} && ip -n {} link set dev eth0 xdp obj {} sec xdp",
            world.namespace("director"),
            object.display()
        );
        sh(&command);
    });
}
