//! Faults of etcd under layer 4 traffic, and figures of a large group: the long forms.

use std::fmt::Write as _;
use std::time::Instant;

use super::layer4::{Api, POOL, VIP, ask, connect, published};
use super::*;

fn is_soak() -> bool {
    std::env::var_os("WEIR_SOAK").is_some()
}

/// Connections to the VIP, one after the other, each from a port of its own.
fn load(stop: &AtomicBool, failed: &AtomicU64) -> u64 {
    let mut served = 0;
    for port in (20_000..30_000).cycle() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        match connect(port, 80).and_then(|mut stream| ask(&mut stream)) {
            Ok(_) => served += 1,
            Err(error) => {
                eprintln!("port {port}: {error}");
                failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    served
}

/// etcd has no majority for some time, then loses its data.
fn etcd_is_lost_for(time: Duration) {
    let mut group = Group::layer4(3, 2, 3);
    let arguments = ["--forward", "direct", "--vip", VIP];
    group.world.prepare_servers(&arguments);
    let answer = group.publish(0, &published("direct", &POOL), "0s");
    assert!(answer.status.success(), "{answer:?}");
    for n in 0..2 {
        wait_for("the servers", PATIENCE, || {
            POOL.iter().all(|it| group.state(n, it) == "up")
        });
    }
    group.route_to(1);
    let (stop, failed) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let running = {
        let (stop, failed) = (Arc::clone(&stop), Arc::clone(&failed));
        group.world.inside("client", move || load(&stop, &failed))
    };
    for n in 0..3 {
        group.kill_etcd(n);
        std::thread::sleep(Duration::from_millis(500));
        group.start_etcd(n);
        group.wait_for_etcd();
    }
    group.kill_etcd(0);
    group.kill_etcd(1);
    let end = Instant::now() + time;
    while Instant::now() < end {
        for n in 0..2 {
            assert_eq!(group.servers(n).len(), 3, "no server is removed");
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    wait_for("the loss of etcd", PATIENCE, || {
        group.group(1)["etcd"] == "away"
    });
    group.kill_etcd(2);
    for n in 0..3 {
        fs::remove_dir_all(group.data(n)).expect("the data");
        group.start_etcd(n);
    }
    group.wait_for_etcd();
    for n in 0..2 {
        wait_for("the members", PATIENCE, || group.present(n) == 2);
        wait_for("the configuration", PATIENCE, || {
            group.group(n)["rollout"] == "complete"
        });
        assert_eq!(group.servers(n).len(), 3);
    }
    stop.store(true, Ordering::Relaxed);
    let served = running.join().expect("the load ends");
    let failed = failed.load(Ordering::Relaxed);
    println!("{served} connections, {failed} failed, etcd away for {time:?}");
    assert_eq!(failed, 0, "of {served}");
    assert!(served > 100, "{served}");
}

#[test]
fn packets_are_forwarded_while_etcd_is_lost() {
    if privileged() {
        etcd_is_lost_for(Duration::from_secs(2));
    }
}

#[test]
fn packets_are_forwarded_while_etcd_is_lost_at_length() {
    if privileged() && is_soak() {
        etcd_is_lost_for(Duration::from_secs(600));
    }
}

/// The effective weight of a server in the data plane of each director.
fn weights(apis: &mut [Api]) -> Vec<Value> {
    for api in apis.iter_mut() {
        api.get("/v1/status");
    }
    let weight = |api: &mut Api| {
        let status = api.receive();
        let services = status["services"].as_array().cloned().unwrap_or_default();
        let web = services.iter().find(|it| it["name"] == "web").cloned();
        web.unwrap_or_default()["servers"][0]["effective_weight"].clone()
    };
    apis.iter_mut().map(weight).collect()
}

#[test]
fn changes_reach_eight_directors_at_length() {
    if !privileged() || !is_soak() {
        return;
    }
    let group = Group::layer4(3, 8, 2);
    let answer = group.publish(0, &published("direct", &POOL[..2]), "0s");
    assert!(answer.status.success(), "{answer:?}");
    let mut apis: Vec<Api> = (0..8).map(|n| group.api(n)).collect();
    let mut times = Vec::new();
    for round in 0..30 {
        let weight = Value::from(2 + round);
        let begin = Instant::now();
        let path = format!("/v1/servers/web/{}", POOL[0]);
        apis[0].post(&path, &serde_json::json!({ "weight": weight }));
        apis[0].receive();
        let limit = begin + PATIENCE;
        while weights(&mut apis).iter().any(|it| *it != weight) {
            assert!(Instant::now() < limit, "the weight {weight} did not arrive");
        }
        times.push(begin.elapsed());
    }
    times.sort_unstable();
    println!(
        "a weight reaches 8 directors: median {:?}, worst {:?}",
        times[times.len() / 2],
        times[times.len() - 1]
    );

    let mut text = published("direct", &POOL[..2]);
    for n in 0..10_000 {
        let (high, low) = (n / 250, n % 250 + 1);
        let _ = writeln!(
            text,
            "[service.s{n}]\nlisten = [\"198.18.{high}.{low}:80\"]\nforward = \"direct\"\npool = \"web\""
        );
    }
    for (what, text) in [
        ("10 000 services added", text.clone()),
        (
            "one of 10 000 changed",
            text.replace("198.18.0.7:80", "198.18.0.7:81"),
        ),
    ] {
        let begin = Instant::now();
        let answer = group.publish(3, &text, "0s");
        assert!(answer.status.success(), "{answer:?}");
        println!("{what}: published on 8 directors in {:?}", begin.elapsed());
    }
    for n in 0..8 {
        assert_eq!(group.group(n)["version"], 3, "director {n}");
    }
}
