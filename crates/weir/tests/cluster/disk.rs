//! Tests directors whose disk is full.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use super::layer4::{POOL, published_config};
use super::scale::add_services;
use super::*;

/// A small file system mounted on a directory.
struct SmallDisk {
    directory: PathBuf,
}

impl SmallDisk {
    fn mount(directory: &Path, kib: u32) -> Self {
        fs::create_dir_all(directory).expect("create the directory");
        let options = format!("size={kib}k,mode=0700");
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "weir-test"])
            .arg(directory)
            .output()
            .expect("run mount");
        assert!(output.status.success(), "{output:?}");
        Self {
            directory: directory.to_owned(),
        }
    }

    fn filler(&self) -> PathBuf {
        self.directory.join("filler")
    }

    /// Uses all remaining space.
    fn fill(&self) {
        let mut file = fs::File::create(self.filler()).expect("create the file");
        while file.write_all(&[0; 512]).is_ok() {}
    }

    fn remove_filler(&self) {
        fs::remove_file(self.filler()).expect("remove the file");
    }

    /// Returns the names of all files except the filler.
    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.directory).expect("read the directory");
        let names = entries.map(|it| it.expect("read the directory").file_name());
        let names = names.map(|it| it.into_string().expect("name is not UTF-8"));
        let mut names: Vec<String> = names.filter(|it| it != "filler").collect();
        names.sort_unstable();
        names
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let mut command = Command::new("umount");
        let _ = command.arg("--lazy").arg(&self.directory).output();
    }
}

impl Group {
    /// Returns the version of the group's configuration in the record on disk.
    fn recorded_version(directory: &Path) -> Value {
        let text = fs::read(directory.join("cluster.json")).expect("read the record");
        let record: Value = serde_json::from_slice(&text).expect("parse the record");
        record["configuration"]["version"].clone()
    }

    fn is_recorded(&self, n: usize) -> bool {
        let group = self.group(n);
        group.is_object() && group["record_error"].is_null()
    }

    /// Stops a director, removes the files that a reboot would remove, and restarts the director without etcd.
    fn restart_without_etcd(&mut self, n: usize) {
        self.stop(n);
        self.kill_etcd(0);
        let runtime = self.world.path(&format!("run-{}", DIRECTORS[n]));
        fs::remove_dir_all(runtime).expect("remove the runtime directory");
        self.start(n);
    }
}

/// Returns a configuration so large that its record does not fit on the small disk together with another record.
fn large_config(port: u16) -> String {
    format!("{}# {}\n", config(port, &SERVERS), "x".repeat(100_000))
}

#[test]
fn last_state_survives_full_disk_and_error_is_reported() {
    if !privileged() {
        return;
    }
    let mut group = Group::new(1, 2);
    let disk = SmallDisk::mount(&group.state_dir(1), 512);
    group.start_all();
    let output = group.publish(0, &large_config(8080), "0s");
    assert!(output.status.success(), "{output:?}");
    wait_for("the record", TIMEOUT, || {
        disk.files() == ["cluster.json"] && Group::recorded_version(&disk.directory) == 1
    });
    assert!(group.is_recorded(1));

    // The director applies the publication. The previous record remains and is complete.
    disk.fill();
    let output = group.publish(0, &large_config(8081), "0s");
    assert!(output.status.success(), "{output:?}");
    assert!(group.serves(1, 8081) && group.group(1)["version"] == 2);
    wait_for("the error", TIMEOUT, || !group.is_recorded(1));
    let error = group.group(1)["record_error"].to_string();
    assert!(error.contains("No space left on device"), "{error}");
    let status = group.run_weir(1, &["cluster", "status"]);
    assert!(
        status.contains("failed to save the group's state"),
        "{status}"
    );
    let doctor = group.weir(1, &["doctor"]);
    let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(
        doctor.contains("failed to save the group's state"),
        "{doctor}"
    );
    assert!(group.is_recorded(0), "the other director's disk has space");
    assert_eq!(disk.files(), ["cluster.json"]);
    assert_eq!(Group::recorded_version(&disk.directory), 1);

    // After a reboot without etcd, the director uses the previous record.
    group.restart_without_etcd(1);
    wait_for("version 1", TIMEOUT, || group.serves(1, 8080));
    assert_eq!(group.group(1)["version"], 1);

    // When the disk has space again, the director writes the record without needing another change.
    group.start_etcd(0);
    group.wait_for_etcd();
    wait_for("version 2", TIMEOUT, || group.serves(1, 8081));
    wait_for("the error", TIMEOUT, || !group.is_recorded(1));
    assert_eq!(Group::recorded_version(&disk.directory), 1);
    disk.remove_filler();
    wait_for("the record", TIMEOUT, || {
        group.is_recorded(1) && Group::recorded_version(&disk.directory) == 2
    });
    group.restart_without_etcd(1);
    wait_for("version 2", TIMEOUT, || group.serves(1, 8081));
}

/// The engine's state is in the runtime directory.
#[test]
fn publication_is_rejected_but_check_results_are_applied_if_runtime_directory_is_full() {
    if !privileged() {
        return;
    }
    let mut group = Group::with_options(1, 2, 3, false);
    group.has_local_services = false;
    let runtime = group.world.path(&format!("run-{}", DIRECTORS[1]));
    let disk = SmallDisk::mount(&runtime, 2048);
    group.start_all();
    let output = group.publish(0, &published_config("direct", &POOL[..2]), "0s");
    assert!(output.status.success(), "{output:?}");
    for n in 0..2 {
        wait_for("the servers", TIMEOUT, || {
            POOL[..2].iter().all(|it| group.state(n, it) == "up")
        });
    }
    disk.fill();

    // The directors still apply check results.
    group.world.kill_nginx(1);
    for n in 0..2 {
        wait_for("the failed server", TIMEOUT, || {
            let server = group
                .servers(n)
                .into_iter()
                .find(|it| it["address"] == POOL[1]);
            server.is_some_and(|it| it["state"] == "down" && it["effective_weight"] == 0)
        });
    }

    // The director that cannot record the configuration stops the rollout and keeps the previous configuration. The
    // changes are too large for the free space in the last page of a file.
    let changed = add_services(published_config("direct", &POOL), 2..100);
    let output = group.publish(0, &changed, "0s");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && errors.contains("No space left on device"),
        "{errors}"
    );
    wait_for("the previous servers", TIMEOUT, || {
        group.servers(1).len() == 2
    });
    assert_eq!(group.group(1)["version"], 1);

    // An override set while the disk was full is applied once the disk has space.
    let output = group.weir(0, &["server", "web/10.71.0.20", "weight", "7"]);
    assert!(output.status.success(), "{output:?}");
    disk.remove_filler();
    wait_for("the weight", TIMEOUT, || {
        group.servers(1)[0]["effective_weight"] == 7
    });
    let output = group.publish(0, &changed, "0s");
    assert!(output.status.success(), "{output:?}");
    for n in 0..2 {
        assert_eq!(group.servers(n).len(), 3, "director {n}");
        assert_eq!(group.servers(n)[0]["effective_weight"], 7, "director {n}");
    }
    wait_for("the record", TIMEOUT, || group.is_recorded(1));
}
