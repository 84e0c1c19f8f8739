//! A network manager that removes VIPs; here systemd-networkd with a separate message bus.

use std::process::{Child, Stdio};

use super::*;

/// Separate files and a separate bus in the director's network namespace, with networkd.
struct Managed<'w> {
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

impl<'w> Managed<'w> {
    fn new(world: &'w World) -> Self {
        let process = world
            .command("director", "unshare")
            .args(["--mount", "bash", "-ec", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("unshare starts");
        Self { world, process }
    }

    /// A shell command with these files.
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
            .expect("nsenter runs")
    }

    fn does(&self, line: &str) {
        let output = self.shell(line);
        assert!(output.status.success(), "{line}: {output:?}");
    }

    fn fix(&self, doctor: &[&str], seen: &str) -> Option<String> {
        let line = format!("{} {} --json", env!("CARGO_BIN_EXE_weir"), doctor.join(" "));
        let output = self.shell(&line);
        let found: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {output:?}"));
        let mut found = found.as_array().expect("a list").iter();
        let one = found.find(|one| one["seen"].as_str().is_some_and(|it| it.contains(seen)))?;
        Some(one["mend"].as_str().unwrap_or_default().to_owned())
    }

    fn configured(&self) {
        wait_for("networkd has configured eth0", TIMEOUT, || {
            let output = self.shell("networkctl list --no-legend eth0");
            String::from_utf8_lossy(&output.stdout).contains("configured")
        });
    }
}

impl Drop for Managed<'_> {
    fn drop(&mut self) {
        // End of input ends it and its children.
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
    let doctor = ["doctor", "-c", path.to_str().expect("a plain path")];
    world.start_director(&text);
    wait_for("all is well", TIMEOUT, || {
        run_on(&world, "director", &doctor).0 == 0
    });
    let managed = Managed::new(&world);
    managed.configured();
    let seen = format!("systemd-networkd manages eth0, which has the VIP {vip}");
    let there = || {
        let output = world.output("director", "ip -br addr show dev eth0");
        String::from_utf8_lossy(&output.stdout).contains(&format!("{vip}/32"))
    };
    assert!(there() && managed.fix(&doctor, &seen).is_some());
    managed.does("networkctl reconfigure eth0");
    wait_for("the VIP is taken off", TIMEOUT, || !there());

    world.ip("director", &format!("addr add {vip}/32 dev eth0"));
    managed.does(&managed.fix(&doctor, &seen).expect("it is still so"));
    assert_eq!(managed.fix(&doctor, &seen), None);
    managed.configured();
    managed.does("networkctl reconfigure eth0");
    managed.configured();
    assert!(there(), "it stays");
}
