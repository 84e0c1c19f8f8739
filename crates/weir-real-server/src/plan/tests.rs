//! Tests plans for host states that are constructed in memory.

use super::*;
use crate::request::UpRequest;
use weir_model::Forward;

const OBJECT: u64 = 7;

fn host() -> ActualState {
    let interface = |index, name: &str, addresses: &[(&str, u8)]| Interface {
        index,
        name: name.to_owned(),
        loopback: name == "lo",
        ethernet: name != "lo",
        addresses: addresses
            .iter()
            .map(|(address, len)| (address.parse().unwrap(), *len))
            .collect(),
    };
    let mut sysctls = BTreeMap::new();
    for device in ["all", "eth0", "eth1"] {
        for key in SYSCTL_KEYS {
            sysctls.insert(sysctl_name(device, key), "0".to_owned());
        }
    }
    ActualState {
        interfaces: vec![
            interface(1, "lo", &[("127.0.0.1", 8), ("::1", 128)]),
            interface(2, "eth0", &[("10.0.0.5", 24), ("fe80::5", 64)]),
            interface(3, "eth1", &[("fe80::6", 64)]),
        ],
        sysctls,
        programs: InstalledState::default(),
    }
}

fn desired(forward: Forward, vips: &[&str], interfaces: &[&str]) -> DesiredState {
    let request = UpRequest {
        forward,
        vips: vips.iter().map(|vip| vip.parse().unwrap()).collect(),
        tunnel: None,
        dscp: None,
        except: Vec::new(),
        interfaces: interfaces.iter().map(ToString::to_string).collect(),
    };
    DesiredState::default().with(&request).unwrap()
}

fn text(steps: &[Step]) -> String {
    let lines: Vec<String> = steps.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// Returns the state of the host and the record after `steps`.
fn apply_steps(
    mut actual: ActualState,
    mut record: Record,
    steps: &[Step],
) -> (ActualState, Record) {
    for step in steps {
        match step {
            Step::SetSysctl { name, from, to } => {
                actual.sysctls.insert(name.clone(), to.clone());
                let changed = ChangedSysctl {
                    previous: from.clone(),
                    set: to.clone(),
                };
                record.sysctls.entry(name.clone()).or_insert(changed);
            }
            Step::RestoreSysctl { name, to } => {
                actual.sysctls.insert(name.clone(), to.clone());
                record.sysctls.remove(name);
            }
            Step::AttachPrograms { rules, hooks } => {
                actual.programs = InstalledState {
                    rules: Some(rules.clone()),
                    hooks: hooks.clone(),
                    ..InstalledState::default()
                };
                record.object = Some(OBJECT);
            }
            Step::DetachPrograms => {
                actual.programs = InstalledState::default();
                record.object = None;
            }
            Step::AddAddress { vip } => {
                actual.interfaces[0]
                    .addresses
                    .push((*vip, host_prefix(*vip)));
                record.addresses.insert(*vip);
            }
            Step::RemoveAddress { vip } => {
                actual.interfaces[0]
                    .addresses
                    .retain(|(address, _)| address != vip);
                record.addresses.remove(vip);
            }
            Step::ForgetSysctl { name, .. } => drop(record.sysctls.remove(name)),
            Step::ForgetAddress { vip } => drop(record.addresses.remove(vip)),
        }
    }
    (actual, record)
}

#[test]
fn steps_depend_on_forward() {
    let vips = ["192.0.2.10:80", "[2001:db8::10]:80"];
    let mut plans = String::new();
    for (forward, interfaces) in [
        (Forward::Direct, &[][..]),
        (Forward::Direct, &["eth1"]),
        (Forward::Tunnel, &[]),
        (Forward::L3dsr, &["eth0"]),
    ] {
        let steps = plan(
            &desired(forward, &vips, interfaces),
            &host(),
            &Record::default(),
            OBJECT,
        );
        plans.push_str(&format!("{forward} {interfaces:?}\n{}\n\n", text(&steps)));
    }
    insta::assert_snapshot!(plans.trim_end());
}

#[test]
fn down_restores_the_state_before_up() {
    for forward in [Forward::Direct, Forward::Tunnel, Forward::L3dsr] {
        let mut before = host();
        before
            .sysctls
            .insert(sysctl_name("all", "rp_filter"), "1".to_owned());
        let up = desired(forward, &["192.0.2.10:80", "2001:db8::10"], &[]);
        let steps = plan(&up, &before, &Record::default(), OBJECT);
        let (actual, record) = apply_steps(before.clone(), Record::default(), &steps);
        assert_eq!(
            plan(&up, &actual, &record, OBJECT),
            [],
            "{forward}: a second `up` has steps"
        );

        let steps = plan(&DesiredState::default(), &actual, &record, OBJECT);
        let (actual, record) = apply_steps(actual, record, &steps);
        assert_eq!((actual, record), (before, Record::default()), "{forward}");
    }
}

#[test]
fn sufficient_values_are_not_changed() {
    let mut strict = host();
    strict
        .sysctls
        .insert(sysctl_name("all", "arp_ignore"), "2".to_owned());
    strict
        .sysctls
        .insert(sysctl_name("all", "arp_announce"), "2".to_owned());
    let steps = plan(
        &desired(Forward::Direct, &["192.0.2.10"], &[]),
        &strict,
        &Record::default(),
        OBJECT,
    );
    assert_eq!(text(&steps), "add 192.0.2.10 to lo");
    let steps_for_eth0 = plan(
        &desired(Forward::Direct, &["192.0.2.10"], &["eth0"]),
        &strict,
        &Record::default(),
        OBJECT,
    );
    assert_eq!(text(&steps_for_eth0), "add 192.0.2.10 to lo");
}

#[test]
fn strict_rp_filter_is_set_to_loose_on_receiving_interfaces() {
    let mut strict = host();
    strict
        .sysctls
        .insert(sysctl_name("all", "rp_filter"), "1".to_owned());
    let steps = plan(
        &desired(Forward::Tunnel, &["192.0.2.10"], &[]),
        &strict,
        &Record::default(),
        OBJECT,
    );
    assert!(
        text(&steps).contains("set net/ipv4/conf/eth0/rp_filter to 2 (was 0)"),
        "{}",
        text(&steps)
    );
    assert!(!text(&steps).contains("all/rp_filter"));
}

#[test]
fn changes_by_other_programs_are_kept() {
    let up = desired(Forward::Direct, &["192.0.2.10"], &["eth0"]);
    let steps = plan(&up, &host(), &Record::default(), OBJECT);
    let (mut actual, record) = apply_steps(host(), Record::default(), &steps);
    actual
        .sysctls
        .insert(sysctl_name("eth0", "arp_ignore"), "2".to_owned());
    actual.sysctls.remove(&sysctl_name("eth0", "arp_announce"));
    actual.interfaces[0]
        .addresses
        .retain(|(address, _)| address.is_loopback());
    insta::assert_snapshot!(text(&plan(
        &DesiredState::default(),
        &actual,
        &record,
        OBJECT
    )));
}

#[test]
fn programs_are_attached_again_after_build_hook_or_address_change() {
    let up = desired(Forward::Tunnel, &["192.0.2.10"], &[]);
    let steps = plan(&up, &host(), &Record::default(), OBJECT);
    let (actual, record) = apply_steps(host(), Record::default(), &steps);
    let attach = "attach programs to eth0 ingress";
    assert_eq!(text(&plan(&up, &actual, &record, OBJECT + 1)), attach);
    let mut stale = actual.clone();
    stale.programs.stale = 1;
    assert_eq!(text(&plan(&up, &stale, &record, OBJECT)), attach);
    let mut renumbered = actual;
    renumbered.interfaces[1]
        .addresses
        .push(("10.0.0.6".parse().unwrap(), 24));
    assert_eq!(text(&plan(&up, &renumbered, &record, OBJECT)), attach);
}

#[test]
fn down_for_one_vip_removes_only_that_vip() {
    for forward in [Forward::Tunnel, Forward::L3dsr] {
        let up = desired(forward, &["192.0.2.10:80", "192.0.2.11:81"], &[]);
        let steps = plan(&up, &host(), &Record::default(), OBJECT);
        let (actual, record) = apply_steps(host(), Record::default(), &steps);
        let remaining = up.without(&["192.0.2.10".parse().unwrap()]);
        let steps = plan(&remaining, &actual, &record, OBJECT);
        assert_eq!(
            text(&steps),
            "attach programs to eth0 ingress\nremove 192.0.2.10 from lo"
        );
        let (actual, record) = apply_steps(actual, record, &steps);
        assert_eq!(plan(&remaining, &actual, &record, OBJECT), [], "{forward}");
    }
}

#[test]
fn all_problems_of_the_host_are_returned() {
    let mut conflicting = host();
    conflicting.interfaces[1]
        .addresses
        .push(("192.0.2.10".parse().unwrap(), 32));
    conflicting.interfaces[0]
        .addresses
        .push(("192.0.2.11".parse().unwrap(), 24));
    // 10.0.0.5 is the server's own address, so the fix must not remove it.
    let vips = ["192.0.2.10", "192.0.2.11", "10.0.0.5"];
    let up = desired(Forward::Tunnel, &vips, &["eth7"]);
    let problems: Vec<String> = problems(&up, &conflicting, &Record::default())
        .iter()
        .map(ToString::to_string)
        .collect();
    insta::assert_snapshot!(problems.join("\n"));
}
