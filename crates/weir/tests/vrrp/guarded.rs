//! Tests how commands describe changes to virtual routers that are pending until the reload guard ends.

use crate::pair::{Pair, VIP};
use crate::world::privileged;
use crate::{config, two_directors};

fn doctor(pair: &Pair, host: &str) -> String {
    let output = pair.try_weir(host, &["doctor"]);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn wait_for_pending(pair: &Pair, start: &str) {
    pair.wait_for("the pending change", || {
        let router = pair.router("director");
        router["pending"]
            .as_str()
            .is_some_and(|it| it.starts_with(start))
    });
}

/// The reload adds the first virtual router to a director whose VIP was on `vip_interface`.
#[test]
fn commands_show_that_a_new_router_starts_when_the_guard_ends() {
    if !privileged() {
        return;
    }
    const STARTS: &str = "starts when the reload guard ends, in ";
    let mut pair = Pair::new();
    pair.start_without_agent("director", "[node]\nvip_interface = \"eth0\"\n");
    pair.wait_for("the VIP", || pair.holds("director", VIP));
    let reload = pair.start_guarded_reload("director", &config(150, ""));
    wait_for_pending(&pair, STARTS);
    let router = pair.router("director");
    assert_eq!(
        (&router["name"], &router["state"]),
        (&"outside".into(), &"init".into())
    );
    assert_eq!(router["addresses"][0], VIP);
    let text = pair.weir("director", &["vrrp"]);
    assert!(text.contains(STARTS), "{text}");
    let text = pair.weir("director", &["status"]);
    assert!(text.contains(STARTS), "{text}");
    // The peer receives no advertisements, and becomes active.
    pair.start("second", &config(100, ""));
    pair.wait_for("both directors to have the VIP", || {
        pair.holds("director", VIP) && pair.holds("second", VIP)
    });
    let text = doctor(&pair, "director");
    let note = format!("note: the virtual router outside {STARTS}");
    assert!(text.contains(&note), "{text}");
    assert!(
        text.contains("wait until this director's guarded reload ends"),
        "{text}"
    );
    for misleading in ["is in state init", "virtual_router_id", "ip addr"] {
        assert!(!text.contains(misleading), "{misleading:?} is in {text}");
    }
    let printed = format!("weir: the virtual router outside {STARTS}");
    pair.wait_for("the message of the command", || {
        let text = std::fs::read_to_string(pair.path("guarded.err"));
        text.unwrap_or_default().contains(&printed)
    });
    // The command prints both lines at once.
    let text = std::fs::read_to_string(pair.path("guarded.err")).expect("read the file");
    assert!(text.contains("is removed after 60 s"), "{text}");
    // The next reload confirms the guarded one.
    pair.reload("director", &config(150, ""));
    pair.wait_for_state("director", "active");
    pair.wait_for_holder("director");
    let output = reload.wait_with_output().expect("wait for the reload");
    assert!(output.status.success(), "{output:?}");
    assert!(pair.router("director")["pending"].is_null());
}

#[test]
fn commands_show_pending_changes_and_removals_of_routers() {
    if !privileged() {
        return;
    }
    let pair = two_directors();
    let changed = pair.start_guarded_reload("director", &config(160, ""));
    wait_for_pending(&pair, "changes when the reload guard ends");
    assert_eq!(pair.router("director")["priority"], 150);
    let text = pair.weir("director", &["vrrp"]);
    assert!(
        text.contains("outside: changes when the reload guard ends"),
        "{text}"
    );
    let removed = pair.start_guarded_reload("director", "[node]\nvip_interface = \"eth0\"\n");
    wait_for_pending(&pair, "stops when the reload guard ends");
    // The second reload has confirmed the first one.
    pair.wait_for("the priority", || {
        pair.router("director")["priority"] == 160
    });
    assert_eq!(pair.router("director")["state"], "active");
    assert!(pair.holds("director", VIP));
    pair.reload("director", &config(160, ""));
    pair.wait_for("the priority", || {
        pair.router("director")["priority"] == 160
    });
    for reload in [changed, removed] {
        let output = reload.wait_with_output().expect("wait for the reload");
        assert!(output.status.success(), "{output:?}");
    }
}
