//! Runs random valid and invalid ipvsadm command lines, and compares the table with a model.
//!
//! No command crashes the director, and no rejected command changes the table.
//!
//! The model does not use the parser: the test generates each line together with its effect, and keeps the table as the
//! text that `-S` must print.

mod world;

use std::collections::BTreeMap;

use weir_control::ipvsadm::{Streams, run};
use weir_engine::Paths;
use weir_ipvsadm::NumericNames;
use weir_model::SplitMix64;
use world::{World, privileged};

const NODE: &str = "[node]\ninterfaces = [\"eth0\"]\nmax_flows = 65536\n";

/// A seeded random number generator.
struct RandomSource(SplitMix64);

impl RandomSource {
    fn below(&mut self, limit: usize) -> usize {
        self.0.below(limit as u64) as usize
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// Maps each service, as `-S` prints it, to the text after `-s` and to its servers. Maps each server's address to the
/// text after the address.
type Model = BTreeMap<&'static str, (String, BTreeMap<String, String>)>;

/// The services in listing order.
const SERVICES: [&str; 6] = [
    "-t 10.71.0.10:80",
    "-t 10.71.0.11:443",
    "-u 10.71.0.10:53",
    "--sctp-service 10.71.0.10:99",
    "-t [fd71::10]:80",
    "-u [fd71::10]:53",
];

fn port(service: &str) -> &str {
    let (_, port) = service.rsplit_once(':').unwrap_or(("", "0"));
    port
}

/// Returns a syntactically valid line, and the model after the line is applied, or `None` if the line must be rejected.
fn random_line(random: &mut RandomSource, model: &Model) -> (String, Option<Model>) {
    let service = random.pick(&SERVICES);
    let service_exists = model.contains_key(service);
    let mut next = model.clone();
    match random.below(20) {
        0..5 => {
            let command = random.pick(&["-A", "-A", "-E"]);
            let (written_options, printed_options, is_valid) = service_options(random, service);
            let servers = model.get(service).map(|(_, servers)| servers.clone());
            next.insert(service, (printed_options, servers.unwrap_or_default()));
            let is_accepted = is_valid && service_exists == (command == "-E");
            (
                format!("{command} {service}{written_options}"),
                is_accepted.then_some(next),
            )
        }
        5 => {
            next.remove(service);
            (format!("-D {service}"), service_exists.then_some(next))
        }
        6..15 => {
            let (address, written_options, printed_options, is_valid) =
                server_options(random, service);
            let server_exists = model
                .get(service)
                .is_some_and(|(_, servers)| servers.contains_key(&address));
            let command = random.pick(&["-a", "-a", "-e", "--edit-server"]);
            let is_accepted = service_exists && is_valid && server_exists != (command == "-a");
            if let Some((_, servers)) = next.get_mut(service) {
                servers.insert(address.clone(), printed_options);
            }
            (
                format!("{command} {service} -r {address}{written_options}"),
                is_accepted.then_some(next),
            )
        }
        15..17 => {
            let servers = model
                .get(service)
                .map(|(_, servers)| servers.keys().cloned().collect::<Vec<_>>());
            let address = match servers.filter(|servers| !servers.is_empty()) {
                Some(servers) => servers[random.below(servers.len())].clone(),
                None => "10.71.0.99:80".to_owned(),
            };
            let server_exists = next
                .get_mut(service)
                .and_then(|(_, servers)| servers.remove(&address))
                .is_some();
            (
                format!("-d {service} -r {address}"),
                server_exists.then_some(next),
            )
        }
        17 => (format!("-Z {service}"), service_exists.then_some(next)),
        18 => ("--set 0 0 0".to_owned(), Some(next)),
        _ if random.below(12) == 0 => ("-C".to_owned(), Some(Model::new())),
        _ => ("-Z".to_owned(), Some(next)),
    }
}

/// Returns a service's options as written on the command line and as printed, and whether they are valid.
fn service_options(random: &mut RandomSource, service: &str) -> (String, String, bool) {
    let service_is_v6 = service.contains('[');
    let is_udp = service.starts_with("-u");
    let scheduler = random.pick(&["rr", "wrr", "lc", "wlc", "sh", "mh", "none", "nope"]);
    let (mut written_options, mut printed_options) =
        (format!(" -s {scheduler}"), scheduler.to_owned());
    let mut is_valid = scheduler != "nope";
    if random.below(3) == 0 {
        let seconds = random.pick(&["1", "300", "2678400"]);
        written_options += &format!(" -p {seconds}");
        printed_options += &format!(" -p {seconds}");
        let mask = match service_is_v6 {
            true => random.pick(&["128", "64", "129"]),
            false => random.pick(&["255.255.255.255", "255.255.0.0", "255.0.255.0"]),
        };
        if random.below(2) == 0 {
            written_options += &format!(" -M {mask}");
            is_valid &= mask != "129" && mask != "255.0.255.0";
            if !["128", "255.255.255.255"].contains(&mask) {
                printed_options += &format!(" -M {mask}");
            }
        }
    }
    if random.below(6) == 0 {
        written_options += " -o";
        printed_options += " -o";
        is_valid &= is_udp;
    }
    if random.below(4) == 0 {
        let flag = random.pick(&["sh-port", "mh-fallback", "flag-1"]);
        written_options += &format!(" -b {flag}");
        is_valid &= flag == "flag-1" || flag[..2] == scheduler[..2];
        let name = match (flag, scheduler) {
            ("flag-1", "sh" | "mh") => &format!("{scheduler}-fallback"),
            _ => flag,
        };
        printed_options += &format!(" -b {name}");
    }
    (written_options, printed_options, is_valid)
}

/// Returns a server's address and port, its options as written on the command line and as printed, and whether they
/// are valid.
fn server_options(random: &mut RandomSource, service: &str) -> (String, String, String, bool) {
    let service_is_v6 = service.contains('[');
    let server_is_v6 = service_is_v6 != (random.below(8) == 0);
    let host = 20 + random.below(3);
    let method = random.pick(&["-g", "-i", "-m", ""]);
    let masquerade_port = random.pick(&["8080", port(service)]);
    // Only masquerading allows the server's port to differ from the service's.
    let port = if method == "-m" {
        masquerade_port
    } else {
        port(service)
    };
    let address = match server_is_v6 {
        true => format!("[fd71::{host}]:{port}"),
        false => format!("10.71.0.{host}:{port}"),
    };
    let weight = random.pick(&[0_u32, 1, 7, 70_000, 2_147_483_648]);
    let mut written_options = format!(" {method} -w {weight}");
    let mut printed_options = format!(
        "{} -w {weight}",
        if method.is_empty() { "-g" } else { method }
    );
    let mut is_valid = weight <= 2_147_483_647 && (server_is_v6 == service_is_v6 || method == "-i");
    let tunnel = random.pick(&[
        ("", " --tun-type ipip"),
        (" --tun-type gre --tun-csum", " --tun-type gre --tun-csum"),
        (
            " --tun-type gue --tun-port 6080",
            " --tun-type gue --tun-port 6080 --tun-nocsum",
        ),
        (" --tun-type gue", ""),
        (" --tun-csum", ""),
    ]);
    if method == "-i" || random.below(8) == 0 {
        written_options += tunnel.0;
        is_valid &= tunnel.0.is_empty() || method == "-i" && !tunnel.1.is_empty();
    }
    if method == "-i" {
        printed_options += tunnel.1;
    }
    match random.below(8) {
        0 => written_options += " -x 10 -y 5",
        1 => {
            written_options += " -x 5 -y 10";
            is_valid = false;
        }
        _ => {}
    }
    (address, written_options, printed_options, is_valid)
}

/// Returns a line that is always rejected as a whole, because no command accepts its last word.
fn invalid_line(random: &mut RandomSource) -> String {
    let tokens = [
        "-A",
        "-a",
        "-L",
        "-t",
        "-u",
        "10.71.0.10:80",
        "-r",
        "-w",
        "x",
        "-s",
        "",
        "--",
        "-",
        "-f",
        "0",
        "-p",
        "-M",
        "-b",
        ",",
        "--tun-type",
        "[",
        "]:",
        "[::]:",
        "-zzz",
        "--no-such",
        "\u{fc}",
        "-c",
        "-n",
        "--set",
        "-1",
        "999999999999",
    ];
    let count = 1 + random.below(6);
    let tail: Vec<&str> = (0..count).map(|_| random.pick(&tokens)).collect();
    format!("{} --no-such", tail.join(" "))
}

/// Returns the expected lines of `-S -n`, sorted, because other tests check the order.
fn expected_listing(model: &Model) -> Vec<String> {
    let mut lines = Vec::new();
    for (service, (options, servers)) in model {
        lines.push(format!("-A {service} -s {options}"));
        for (address, options) in servers {
            lines.push(format!("-a {service} -r {address} {options}"));
        }
    }
    lines.sort();
    lines
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn table_matches_model_soak() {
    if !privileged() {
        return;
    }
    let is_soak = std::env::var_os("WEIR_SOAK").is_some();
    let steps = if is_soak { 50_000 } else { 5_000 };
    let mut world = World::new(0);
    let pid = world.start_daemon(NODE);
    let paths = Paths {
        runtime_dir: world.path("run-director"),
        pin_dir: world.pin_dir("director"),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("build the runtime");
    let run_line = |line: &str| {
        let arguments: Vec<String> = line
            .split(' ')
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect();
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        let streams = Streams {
            input: &mut std::io::empty(),
            output: &mut output,
            errors: &mut errors,
        };
        let code = runtime
            .block_on(run(&paths, "ipvsadm", &arguments, &NumericNames, streams))
            .expect("write to the streams");
        (
            code,
            String::from_utf8(output).expect("text is not UTF-8"),
            String::from_utf8(errors).expect("text is not UTF-8"),
        )
    };
    let seed = std::env::var("WEIR_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    let mut random = RandomSource(SplitMix64::new(seed));
    let mut model = Model::new();
    let (mut accepted, mut rejected) = (0, 0);
    for step in 0..steps {
        let (line, expected) = match random.below(5) {
            0 => (invalid_line(&mut random), None),
            _ => random_line(&mut random, &model),
        };
        let (code, output, errors) = run_line(&line);
        let context = format!("step {step}, seed {seed}: {line}: {code} {errors}");
        match expected {
            Some(next) => {
                assert_eq!(
                    (code, output.as_str(), errors.as_str()),
                    (0, "", ""),
                    "{context}"
                );
                model = next;
                accepted += 1;
            }
            None => {
                // 101 is the exit code of a panic.
                assert!(code != 0 && code != 101 && !errors.is_empty(), "{context}");
                rejected += 1;
            }
        }
        if step % 10 == 0 || step + 1 == steps {
            let (_, listing, _) = run_line("-S -n");
            let mut listing: Vec<&str> = listing.lines().collect();
            listing.sort_unstable();
            assert_eq!(listing, expected_listing(&model), "{context}");
        }
    }
    assert!(
        accepted > steps / 10 && rejected > steps / 10,
        "{accepted} accepted, {rejected} rejected"
    );
    // Without a daemon, the program reads the table from the pinned data plane.
    world.kill_keeper(pid);
    let (_, listing, _) = run_line("-S -n");
    let mut listing: Vec<&str> = listing.lines().collect();
    listing.sort_unstable();
    assert_eq!(listing, expected_listing(&model), "without a daemon");
}
