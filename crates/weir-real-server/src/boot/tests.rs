//! Tests findings about the next boot with files in a temporary directory, and runs the fixes that they suggest.

use std::os::unix::fs::symlink;
use std::process::Command;

use super::*;
use crate::plan::ChangedSysctl;

const UNIT: &str = include_str!("../../../../docs/packaging/weir-real-server@.service");

/// Links the units below `$ROOT`, as `systemctl enable` does.
const SYSTEMCTL: &str = "systemctl() {
  shift
  wants=$ROOT/etc/systemd/system/multi-user.target.wants
  mkdir -p $wants
  for unit; do ln -s /usr/lib/systemd/system/weir-real-server@.service $wants/$unit.service; done
}
";

/// A directory with the files of a server. It is removed when this value is dropped.
struct Root(PathBuf);

impl Root {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("weir-boot-{name}-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        Self(root)
    }

    fn with_template(name: &str) -> Self {
        let root = Self::new(name);
        root.write(&format!("usr/lib/systemd/system/{TEMPLATE}"), UNIT);
        root
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn enable(&self, instance: &str) {
        let wants = self.0.join("etc/systemd/system/multi-user.target.wants");
        fs::create_dir_all(&wants).unwrap();
        let unit = Path::new("/usr/lib/systemd/system").join(TEMPLATE);
        let link = wants.join(format!("weir-real-server@{instance}.service"));
        symlink(unit, link).unwrap();
    }

    fn findings(&self, (desired, record): &(DesiredState, Record)) -> Vec<Diagnosis> {
        settings_lost_at_boot(desired, record, &self.0)
    }

    /// Returns the text and the fix of the only finding.
    fn finding(&self, state: &(DesiredState, Record)) -> (String, String) {
        let mut findings = self.findings(state);
        let finding = findings.pop().expect("no finding");
        assert_eq!(findings, []);
        (finding.observation, finding.fix.expect("no fix"))
    }

    /// Runs a fix below this directory.
    fn run(&self, fix: &str) {
        let fix = fix.replace("/etc/weir/", "$ROOT/etc/weir/");
        let mut command = Command::new("sh");
        command.args(["-ec", &format!("{SYSTEMCTL}{fix}")]);
        let output = command.env("ROOT", &self.0).output().unwrap();
        assert!(output.status.success(), "{fix}: {output:?}");
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Returns the state after the commands `up` with these arguments.
fn prepared(commands: &[&str]) -> (DesiredState, Record) {
    let mut desired = DesiredState::default();
    for command in commands {
        let request = parse_arguments(command).expect("parse arguments");
        desired = desired.with(&request).expect("apply request");
    }
    let mut record = Record {
        addresses: desired.loopback_vips(),
        ..Record::default()
    };
    if record.addresses.iter().any(IpAddr::is_ipv4) {
        for (key, set) in [("arp_ignore", "1"), ("arp_announce", "2")] {
            let changed = ChangedSysctl {
                previous: "0".to_owned(),
                set: set.to_owned(),
            };
            let name = format!("net/ipv4/conf/all/{key}");
            record.sysctls.insert(name, changed);
        }
    }
    (desired, record)
}

#[test]
fn each_direct_vip_needs_an_enabled_instance() {
    let root = Root::with_template("direct");
    let state = prepared(&["--forward direct --vip 192.0.2.10:80 --vip 2001:db8::10"]);
    let (observation, fix) = root.finding(&state);
    assert_eq!(
        observation,
        "only until the next boot: 192.0.2.10 on lo, 2001:db8::10 on lo, net/ipv4/conf/all/arp_announce, \
         net/ipv4/conf/all/arp_ignore; no unit or boot script restores them"
    );
    let expected = "systemctl enable weir-real-server@192.0.2.10 weir-real-server@2001:db8::10";
    assert_eq!(fix, expected);

    // A file for the sysctls does not restore the VIPs.
    root.write(
        "etc/sysctl.d/60-weir.conf",
        "net.ipv4.conf.all.arp_ignore = 1\nnet.ipv4.conf.all.arp_announce = 2\n",
    );
    let (observation, _) = root.finding(&state);
    assert!(!observation.contains("arp"), "{observation}");
    fs::remove_file(root.0.join("etc/sysctl.d/60-weir.conf")).unwrap();

    // The unit of one VIP does not restore the other, but restores the sysctls.
    root.enable("192.0.2.10");
    let (observation, fix) = root.finding(&state);
    assert_eq!(
        observation,
        "only until the next boot: 2001:db8::10 on lo; no unit or boot script restores them"
    );
    root.run(&fix);
    assert_eq!(root.findings(&state), []);
}

/// The sysctls that `up` requires can be set before `up`.
#[test]
fn vip_is_lost_although_no_sysctl_was_changed() {
    let root = Root::with_template("sysctl");
    let (desired, record) = prepared(&["--forward direct --vip 192.0.2.10"]);
    let record = Record {
        sysctls: BTreeMap::new(),
        ..record
    };
    let state = (desired, record);
    let (observation, fix) = root.finding(&state);
    assert!(
        observation.contains("boot: 192.0.2.10 on lo; no unit"),
        "{observation}"
    );
    root.run(&fix);
    assert_eq!(root.findings(&state), []);
}

#[test]
fn other_forwarding_methods_need_a_file_with_arguments() {
    let root = Root::with_template("methods");
    let state = prepared(&[
        "--forward tunnel --tunnel gue:7000 --vip 192.0.2.10 --vip 192.0.2.11:80-90 --interface eth0",
        "--forward l3dsr --dscp 0 --vip 192.0.2.12:80 --except 10.0.0.1 --except 2001:db8::/32",
        "--forward direct --vip 192.0.2.13",
    ]);
    // An instance for `direct` does not restore the programs.
    root.enable("192.0.2.10");
    let (observation, fix) = root.finding(&state);
    assert_eq!(
        observation,
        "only until the next boot: 192.0.2.11 on lo, 192.0.2.13 on lo, the programs for 192.0.2.10 tunnel gue:7000, \
         the programs for 192.0.2.11:80-90 tunnel gue:7000, the programs for 192.0.2.12:80 l3dsr dscp 0; no unit or \
         boot script restores them"
    );
    root.run(&fix);
    assert_eq!(root.findings(&state), []);
    assert_eq!(
        restored_state(&root.0).unwrap().except,
        state.0.except,
        "{fix}"
    );
    assert_eq!(
        restored_state(&root.0).unwrap().interfaces,
        state.0.interfaces
    );
}

/// The commands for two methods add the same VIP to `lo`.
#[test]
fn second_method_of_a_restored_vip_is_reported_without_the_vip() {
    let root = Root::with_template("twice");
    let state = prepared(&[
        "--forward direct --vip 192.0.2.10:80",
        "--forward tunnel --vip 192.0.2.10:443",
    ]);
    root.write(
        "etc/rc.local",
        "weir real-server up --forward tunnel --vip 192.0.2.10\n",
    );
    assert_eq!(root.findings(&state), []);
    root.write(
        "etc/rc.local",
        "weir real-server up --forward tunnel --vip 192.0.2.10:80\n",
    );
    let (observation, _) = root.finding(&state);
    assert!(
        observation.contains("boot: the programs for 192.0.2.10:443 tunnel ipip; no unit"),
        "{observation}"
    );
}

/// systemd and OpenRC do not run such a script.
#[test]
fn script_that_is_not_executable_restores_nothing() {
    let root = Root::new("mode");
    let state = prepared(&["--forward direct --vip 192.0.2.10"]);
    root.write(
        "etc/rc.local",
        "weir real-server up --forward direct --vip 192.0.2.10\n",
    );
    assert_eq!(root.findings(&state), []);
    let script = root.0.join("etc/rc.local");
    fs::set_permissions(script, fs::Permissions::from_mode(0o644)).unwrap();
    root.finding(&state);
}

#[test]
fn without_template_fix_works_in_any_boot_script() {
    let root = Root::new("script");
    let state = prepared(&[
        "--forward direct --vip 192.0.2.10",
        "--forward tunnel --vip 192.0.2.11",
    ]);
    let (_, fix) = root.finding(&state);
    let command = fix
        .strip_prefix(
            "run at boot, in a systemd unit or an executable script such as /etc/rc.local: ",
        )
        .expect("no instruction");
    assert_eq!(
        command,
        "weir real-server up --forward direct --vip 192.0.2.10 && weir real-server up --forward tunnel --tunnel ipip \
         --vip 192.0.2.11"
    );
    let commands = command.replace(" && ", " >/dev/null 2>&1 || echo $?\n");
    for (path, text) in [
        ("etc/rc.local", format!("{command}\n")),
        ("etc/rc.local", format!("#!/bin/sh\n{commands}; exit 0\n")),
        (
            "etc/systemd/system/vips.service",
            format!(
                "[Service]\nExecStart=/sbin/{}\n",
                command.replace(" && ", "\nExecStart=/sbin/")
            ),
        ),
        (
            "etc/network/interfaces.d/lo",
            format!("iface lo\n up {}\n", commands.replace(" --", " \\\n --")),
        ),
    ] {
        root.write(
            path,
            &format!("# {commands}\n").replace("\nweir", "\n# weir"),
        );
        assert_eq!(root.findings(&state).len(), 1, "{path}: a comment");
        root.write(path, &text);
        assert_eq!(root.findings(&state), [], "{path}: {text}");
        fs::remove_file(root.0.join(path)).unwrap();
    }
    // The arguments cannot be determined.
    root.write(
        "etc/init.d/vips",
        "weir real-server up --forward direct --vip $VIP\n",
    );
    assert_eq!(root.findings(&state), []);
}

/// The VIP was on `lo` before `up`, so another program adds it at boot, too.
#[test]
fn only_sysctls_are_lost_if_weir_did_not_add_the_vip() {
    let root = Root::with_template("existing");
    let (desired, record) = prepared(&["--forward direct --vip 192.0.2.10"]);
    let record = Record {
        addresses: BTreeSet::new(),
        ..record
    };
    let state = (desired, record);
    let (observation, fix) = root.finding(&state);
    assert!(
        observation.contains("no file in sysctl.d sets them"),
        "{observation}"
    );
    assert!(fix.contains("> /etc/sysctl.d/60-weir.conf"), "{fix}");
    root.enable("192.0.2.10");
    assert_eq!(root.findings(&state), []);
}

#[test]
fn variables_of_a_unit_are_expanded() {
    let root = Root::new("variables");
    root.write(
        "etc/weir/edge.conf",
        "# VIP=x\nVIPS='--vip 192.0.2.10 --vip 192.0.2.11'\n",
    );
    let unit = "Environment=UP=--forward=tunnel \"UPPER=--tunnel gre\" VIPS=\nEnvironmentFile=-/etc/weir/edge.conf\n\
                ;ExecStart=weir real-server up $OLD\nExecStart=weir real-server up ${UP} $UPPER $VIPS\n";
    assert_eq!(
        up_arguments(unit, &root.0),
        ["--forward=tunnel --tunnel gre --vip 192.0.2.10 --vip 192.0.2.11"]
    );
}
