//! Plans as text, for hosts that are only values.

use super::*;
use crate::request::UpRequest;
use weir_model::Forward;

const OBJECT: u64 = 7;

fn host() -> Actual {
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
    Actual {
        interfaces: vec![
            interface(1, "lo", &[("127.0.0.1", 8), ("::1", 128)]),
            interface(2, "eth0", &[("10.0.0.5", 24), ("fe80::5", 64)]),
            interface(3, "eth1", &[("fe80::6", 64)]),
        ],
        sysctls,
        programs: Observed::default(),
    }
}

fn desired(forward: Forward, vips: &[&str], interfaces: &[&str]) -> Desired {
    let request = UpRequest {
        forward,
        vips: vips.iter().map(|vip| vip.parse().unwrap()).collect(),
        tunnel: None,
        dscp: None,
        except: Vec::new(),
        interfaces: interfaces.iter().map(ToString::to_string).collect(),
    };
    Desired::default().with(&request).unwrap()
}

fn text(steps: &[Step]) -> String {
    let lines: Vec<String> = steps.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// What the host is after `steps`, and what is remembered of them.
fn after(mut actual: Actual, mut memory: Memory, steps: &[Step]) -> (Actual, Memory) {
    for step in steps {
        match step {
            Step::SetSysctl { name, from, to } => {
                actual.sysctls.insert(name.clone(), to.clone());
                let changed = Changed {
                    was: from.clone(),
                    set: to.clone(),
                };
                memory.sysctls.entry(name.clone()).or_insert(changed);
            }
            Step::RestoreSysctl { name, to } => {
                actual.sysctls.insert(name.clone(), to.clone());
                memory.sysctls.remove(name);
            }
            Step::Programs { rules, hooks } => {
                actual.programs = Observed {
                    rules: Some(rules.clone()),
                    hooks: hooks.clone(),
                    ..Observed::default()
                };
                memory.object = Some(OBJECT);
            }
            Step::RemovePrograms => {
                actual.programs = Observed::default();
                memory.object = None;
            }
            Step::AddAddress { vip } => {
                actual.interfaces[0]
                    .addresses
                    .push((*vip, host_prefix(*vip)));
                memory.addresses.insert(*vip);
            }
            Step::RemoveAddress { vip } => {
                actual.interfaces[0]
                    .addresses
                    .retain(|(address, _)| address != vip);
                memory.addresses.remove(vip);
            }
            Step::ForgetSysctl { name, .. } => drop(memory.sysctls.remove(name)),
            Step::ForgetAddress { vip } => drop(memory.addresses.remove(vip)),
        }
    }
    (actual, memory)
}

#[test]
fn every_forward_has_its_steps() {
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
            &Memory::default(),
            OBJECT,
        );
        plans.push_str(&format!("{forward} {interfaces:?}\n{}\n\n", text(&steps)));
    }
    insta::assert_snapshot!(plans.trim_end());
}

#[test]
fn the_way_back_ends_where_it_began() {
    for forward in [Forward::Direct, Forward::Tunnel, Forward::L3dsr] {
        let mut before = host();
        before
            .sysctls
            .insert(sysctl_name("all", "rp_filter"), "1".to_owned());
        let there = desired(forward, &["192.0.2.10:80", "2001:db8::10"], &[]);
        let steps = plan(&there, &before, &Memory::default(), OBJECT);
        let (actual, memory) = after(before.clone(), Memory::default(), &steps);
        assert_eq!(
            plan(&there, &actual, &memory, OBJECT),
            [],
            "the second time"
        );

        let steps = plan(&Desired::default(), &actual, &memory, OBJECT);
        let (actual, memory) = after(actual, memory, &steps);
        assert_eq!((actual, memory), (before, Memory::default()), "{forward}");
    }
}

#[test]
fn values_that_will_do_are_left_alone() {
    let mut strict = host();
    strict
        .sysctls
        .insert(sysctl_name("all", "arp_ignore"), "2".to_owned());
    strict
        .sysctls
        .insert(sysctl_name("all", "arp_announce"), "2".to_owned());
    let here = strict.clone();
    let all = plan(
        &desired(Forward::Direct, &["192.0.2.10"], &[]),
        &here,
        &Memory::default(),
        OBJECT,
    );
    assert_eq!(text(&all), "add 192.0.2.10 to lo");
    let one = plan(
        &desired(Forward::Direct, &["192.0.2.10"], &["eth0"]),
        &here,
        &Memory::default(),
        OBJECT,
    );
    assert_eq!(text(&one), "add 192.0.2.10 to lo");
}

#[test]
fn strict_source_checks_are_loosened_where_packets_arrive() {
    let mut strict = host();
    strict
        .sysctls
        .insert(sysctl_name("all", "rp_filter"), "1".to_owned());
    let steps = plan(
        &desired(Forward::Tunnel, &["192.0.2.10"], &[]),
        &strict,
        &Memory::default(),
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
fn changes_by_others_are_kept() {
    let there = desired(Forward::Direct, &["192.0.2.10"], &["eth0"]);
    let steps = plan(&there, &host(), &Memory::default(), OBJECT);
    let (mut actual, memory) = after(host(), Memory::default(), &steps);
    actual
        .sysctls
        .insert(sysctl_name("eth0", "arp_ignore"), "2".to_owned());
    actual.sysctls.remove(&sysctl_name("eth0", "arp_announce"));
    actual.interfaces[0]
        .addresses
        .retain(|(address, _)| address.is_loopback());
    insta::assert_snapshot!(text(&plan(&Desired::default(), &actual, &memory, OBJECT)));
}

#[test]
fn another_build_or_a_lost_hook_puts_the_programs_in_place_again() {
    let there = desired(Forward::Tunnel, &["192.0.2.10"], &[]);
    let steps = plan(&there, &host(), &Memory::default(), OBJECT);
    let (actual, memory) = after(host(), Memory::default(), &steps);
    let again = "run programs on eth0 ingress";
    assert_eq!(text(&plan(&there, &actual, &memory, OBJECT + 1)), again);
    let mut stale = actual.clone();
    stale.programs.stale = 1;
    assert_eq!(text(&plan(&there, &stale, &memory, OBJECT)), again);
    let mut renumbered = actual;
    renumbered.interfaces[1]
        .addresses
        .push(("10.0.0.6".parse().unwrap(), 24));
    assert_eq!(text(&plan(&there, &renumbered, &memory, OBJECT)), again);
}

#[test]
fn everything_in_the_way_is_named() {
    let mut loud = host();
    loud.interfaces[1]
        .addresses
        .push(("192.0.2.10".parse().unwrap(), 32));
    loud.interfaces[0]
        .addresses
        .push(("192.0.2.11".parse().unwrap(), 24));
    // The server's own address is no VIP: to remove it would cut the server off.
    let vips = ["192.0.2.10", "192.0.2.11", "10.0.0.5"];
    let there = desired(Forward::Tunnel, &vips, &["eth7"]);
    let problems: Vec<String> = problems(&there, &loud, &Memory::default())
        .iter()
        .map(ToString::to_string)
        .collect();
    insta::assert_snapshot!(problems.join("\n"));
}
