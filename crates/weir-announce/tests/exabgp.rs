//! Tests the announcer with a real ExaBGP and thousands of routes, whose commands do not fit in ExaBGP's pipe.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::time::sleep;
use weir_announce::{Client, DaemonReport, VipState};
use weir_model::{Announce, RequiredServices, Speaker};

/// Limit for every condition that the test waits for.
const TIMEOUT: Duration = Duration::from_secs(120);
const VIPS: u32 = 10_000;

/// ExaBGP with a neighbor that does not exist, in a temporary directory.
struct ExaBgp {
    directory: PathBuf,
    child: Child,
}

impl Drop for ExaBgp {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl ExaBgp {
    fn start() -> Self {
        let name = format!("weir-exabgp-{}", std::process::id());
        let directory = std::env::temp_dir().join(&name);
        fs::create_dir_all(directory.join("run")).expect("create a directory");
        let pipe = directory.join("run").join(&name);
        let status = Command::new("mkfifo")
            .args([pipe.with_extension("in"), pipe.with_extension("out")])
            .status();
        assert!(status.expect("run mkfifo").success());
        let file = directory.join("exabgp.conf");
        let text = "neighbor 127.0.0.2 {\n  router-id 127.0.0.1;\n  local-address 127.0.0.1;\n  local-as 65001;\n  \
                    peer-as 65000;\n  family { ipv4 unicast; }\n}\n";
        fs::write(&file, text).expect("write the file");
        let log = fs::File::create(directory.join("log")).expect("create the log file");
        let child = Command::new("exabgp")
            .arg("--root")
            .arg(&directory)
            .arg(file)
            .env("exabgp_api_pipename", &name)
            .env("exabgp_daemon_user", "root")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("duplicate the file descriptor"))
            .stderr(log)
            .spawn()
            .expect("start exabgp (tools/install-deps.sh installs it)");
        Self { directory, child }
    }

    fn pipe(&self) -> PathBuf {
        let name = self.directory.file_name().expect("directory has a name");
        self.directory.join("run").join(name).with_extension("in")
    }

    /// Returns how often ExaBGP's log contains `text`.
    fn count_in_log(&self, text: &str) -> usize {
        let log = fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        log.matches(text).count()
    }
}

fn daemon_report(pipe: &Path, serves: bool) -> DaemonReport {
    let address = |n| IpAddr::from(Ipv4Addr::from_bits(0x0a00_0000 + n));
    let vips = (1..=VIPS).map(|n| VipState {
        vip: address(n),
        serves,
        reason: String::new(),
        settling: false,
    });
    DaemonReport {
        settings: Announce {
            speaker: Speaker::Exabgp {
                pipe: pipe.to_owned(),
            },
            withdraw_after: Duration::from_secs(60),
            drain_delay: Duration::from_secs(5),
            services: None,
            require: RequiredServices::Any,
            communities: Vec::new(),
            drain_communities: Vec::new(),
        },
        vips: vips.collect(),
        is_draining: false,
    }
}

/// Waits until the announcer reports `count` announced VIPs and no error. Returns the time that this took.
async fn wait_for_announced(client: &Client, count: usize) -> Duration {
    let started = Instant::now();
    loop {
        let report = client.report().filter(|it| it.error.is_none());
        let announced = report.map(|report| {
            let routes = report.routes.iter();
            routes.filter(|it| it.state == "announced").count()
        });
        if announced == Some(count) {
            return started.elapsed();
        }
        assert!(
            started.elapsed() < TIMEOUT,
            "{announced:?} of {count} VIPs are announced"
        );
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exabgp_announces_and_withdraws_ten_thousand_vips_soak() {
    if std::env::var_os("WEIR_SOAK").is_none() {
        return;
    }
    let exabgp = ExaBgp::start();
    let directory = exabgp.directory.join("weir");
    fs::create_dir(&directory).expect("create a directory");
    let runtime_dir = directory.clone();
    let announcer = tokio::spawn(async move {
        weir_announce::run(&runtime_dir, &runtime_dir.join("weir.toml"))
            .await
            .expect("run the announcer");
    });
    let client = Client::new(&directory);
    client.send(Some(daemon_report(&exabgp.pipe(), true)));
    let announce_time = wait_for_announced(&client, VIPS as usize).await;
    client.send(Some(daemon_report(&exabgp.pipe(), false)));
    let started = Instant::now();
    while exabgp.count_in_log("route removed from") < VIPS as usize {
        assert!(started.elapsed() < TIMEOUT, "not all routes were withdrawn");
        sleep(Duration::from_millis(50)).await;
    }
    println!(
        "{VIPS} routes: announced in {announce_time:?}, withdrawn in {:?}",
        started.elapsed()
    );
    wait_for_announced(&client, 0).await;
    assert!(exabgp.count_in_log("route added to") >= VIPS as usize);
    announcer.abort();
}
