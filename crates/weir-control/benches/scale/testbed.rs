//! Creates a testbed for a director: a network namespace with one device, and one for the router to the servers.

use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::Command;

use weir_engine::Paths;
use weir_sys::NetNs;

use crate::Result;

/// Two network namespaces connected by a veth pair, and a directory. Dropping the value removes them.
pub(crate) struct Testbed {
    director: NetNs,
    _router: NetNs,
    directory: PathBuf,
}

fn run_ip(netns: &NetNs, lines: &str) -> Result<()> {
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let output = netns.run(|| Command::new("ip").args(line.split(' ')).output())??;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("ip {line}: {message}").into());
        }
    }
    Ok(())
}

impl Testbed {
    pub(crate) fn new() -> Result<Self> {
        let (director, router) = (NetNs::create()?, NetNs::create()?);
        let router_namespace = format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            router.as_fd().as_raw_fd()
        );
        run_ip(
            &director,
            &format!(
                "link set lo up
                 link add d0 type veth peer name r0 netns {router_namespace}
                 link set d0 up
                 addr add 203.0.113.2/24 dev d0
                 route add 10.0.0.0/8 via 203.0.113.1"
            ),
        )?;
        run_ip(&router, "link set r0 up\naddr add 203.0.113.1/24 dev r0")?;
        // Store the directors' state in memory, so that disk I/O does not affect the measurement.
        let directory = Path::new("/dev/shm").join(format!("weir-scale-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        Ok(Self {
            director,
            _router: router,
            directory,
        })
    }

    /// Returns the directories for the persistent state of a director with this name.
    pub(crate) fn paths(&self, name: &str) -> Paths {
        Paths {
            runtime_dir: self.directory.join(format!("run-{name}")),
            pin_dir: self.directory.join("bpf").join(name),
        }
    }

    /// Returns the path of a file in the testbed's directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Runs `operation` in the director's namespace.
    pub(crate) fn run<T>(&self, operation: impl AsyncFnOnce() -> Result<T>) -> Result<T> {
        let _inside = self.director.enter()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(operation())
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        let bpffs: &Path = &self.directory.join("bpf");
        let _unmounted = Command::new("umount").arg("-l").arg(bpffs).output();
        let _removed = std::fs::remove_dir_all(&self.directory);
    }
}
