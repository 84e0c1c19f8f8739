//! Tests that the doctor reports a network manager that removes VIPs: systemd-networkd with a separate message bus.

use std::process::{Child, Stdio};

use super::*;

/// networkd in the director's network namespace, with its own files and its own bus.
struct Networkd<'w> {
    world: &'w World,
    process: Child,
}

const SCRIPT: &str =
    "for dir in /etc/systemd/network /run/dbus; do mkdir -p $dir; mount -t tmpfs none $dir; done
mkdir -p /run/systemd/netif; mount -t tmpfs -o mode=755 none /run/systemd/netif
mkdir /run/systemd/netif/links /run/systemd/netif/leases /run/systemd/netif/lldp
chown -R systemd-network /run/systemd/netif
mount -t sysfs none /sys; mount -o remount,ro /sys
printf '[Match]\\nName=eth0\\n[Network]\\nAddress=10.71.0.1/24\\nIPv6AcceptRA=no\\n' > \
/etc/systemd/network/10-eth0.network
dbus-daemon --system --nofork --nopidfile & bus=$!
while ! test -S /run/dbus/system_bus_socket; do sleep 0.05; done
/lib/systemd/systemd-networkd & networkd=$!
trap 'kill $networkd $bus' EXIT
read line";

impl<'w> Networkd<'w> {
    fn new(world: &'w World) -> Self {
        let process = world
            .command("director", "unshare")
            .args(["--mount", "bash", "-ec", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("start unshare");
        Self { world, process }
    }

    /// Runs a shell command in networkd's mount and network namespaces.
    fn shell(&self, line: &str) -> std::process::Output {
        let weir = self.world.weir("director");
        let mut command = Command::new("nsenter");
        for (name, value) in weir.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        command.args(["-t", &self.process.id().to_string(), "-m", "-n"]);
        command
            .args(["sh", "-ec", line])
            .output()
            .expect("run nsenter")
    }

    fn run_shell(&self, line: &str) {
        let output = self.shell(line);
        assert!(output.status.success(), "{line}: {output:?}");
    }

    fn fix_command(&self, doctor: &[&str], expected: &str) -> Option<String> {
        let line = format!("{} {} --json", env!("CARGO_BIN_EXE_weir"), doctor.join(" "));
        let output = self.shell(&line);
        let findings: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {output:?}"));
        let mut findings = findings.as_array().expect("value is an array").iter();
        let finding = findings.find(|finding| {
            finding["seen"]
                .as_str()
                .is_some_and(|it| it.contains(expected))
        })?;
        Some(finding["mend"].as_str().unwrap_or_default().to_owned())
    }

    fn wait_until_configured(&self) {
        wait_for("networkd to configure eth0", TIMEOUT, || {
            let output = self.shell("networkctl list --no-legend eth0");
            String::from_utf8_lossy(&output.stdout).contains("configured")
        });
    }
}

impl Drop for Networkd<'_> {
    fn drop(&mut self) {
        // The shell's standard input ends, which stops networkd and its children.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

#[test]
fn networkd_removing_foreign_addresses_is_reported() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(64);
    let vip = Family::V4.vip();
    world.prepare_direct_servers(&vip);
    let text = config("direct").replace(&format!(", \"{}\"", Family::V4.server(1)), "");
    let path = world.write_config(&text);
    let doctor = ["doctor", "-c", path.to_str().expect("path is valid UTF-8")];
    world.start_daemon(&text);
    wait_for("a report without findings", TIMEOUT, || {
        run_on(&world, "director", &doctor).0 == 0
    });
    let networkd = Networkd::new(&world);
    networkd.wait_until_configured();
    let expected = format!("systemd-networkd manages eth0, which has the VIP {vip}");
    let has_vip = || {
        let output = world.output("director", "ip -br addr show dev eth0");
        String::from_utf8_lossy(&output.stdout).contains(&format!("{vip}/32"))
    };
    let add_vip = || world.ip("director", &format!("addr add {vip}/32 dev eth0"));
    // When systemd 252 starts, it keeps the VIP; systemd 257 removes it.
    if !has_vip() {
        add_vip();
    }
    assert!(networkd.fix_command(&doctor, &expected).is_some());
    networkd.run_shell("networkctl reconfigure eth0");
    wait_for("networkd to remove the VIP", TIMEOUT, || !has_vip());

    add_vip();
    networkd.run_shell(
        &networkd
            .fix_command(&doctor, &expected)
            .expect("finding is reported again"),
    );
    assert_eq!(networkd.fix_command(&doctor, &expected), None);
    networkd.wait_until_configured();
    networkd.run_shell("networkctl reconfigure eth0");
    networkd.wait_until_configured();
    assert!(has_vip(), "networkd must keep the VIP");
}
