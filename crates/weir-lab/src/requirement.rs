//! Checks the requirements of a run before it starts: root privileges and the programs that the selected methods need.

use std::path::{Path, PathBuf};

use crate::error::{LabError, Result};
use crate::process;

/// A program and its Debian package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) package: &'static str,
}

const fn program(name: &'static str, package: &'static str) -> Program {
    Program { name, package }
}

pub(crate) const AB: Program = program("ab", "apache2-utils");
pub(crate) const NGINX: Program = program("nginx", "nginx-light");
pub(crate) const HAPROXY: Program = program("haproxy", "haproxy");
pub(crate) const NFT: Program = program("nft", "nftables");
pub(crate) const PHP_FPM: Program = program("php-fpm", "php-fpm");
pub(crate) const KEEPALIVED: Program = program("keepalived", "keepalived");
pub(crate) const WRK: Program = program("wrk", "wrk");
pub(crate) const LDIRECTORD: Program = program("ldirectord", "ldirectord");
/// Programs that `scale-out` requires.
pub(crate) const SCALE_OUT: [Program; 4] = [
    program("etcd", "etcd-server"),
    program("bird", "bird2"),
    program("birdc", "bird2"),
    NFT,
];
/// Programs that the cluster of `clustered-rest --pacemaker` requires.
pub(crate) const PACEMAKER: [Program; 6] = [
    program("corosync", "corosync"),
    program("pacemakerd", "pacemaker"),
    program("cibadmin", "pacemaker-cli-utils"),
    program("ocf-tester", "resource-agents"),
    program("node", "nodejs"),
    program("unshare", "util-linux"),
];
/// Programs that attacks require in addition to the proxies.
pub(crate) const ATTACK: [Program; 3] = [
    program("chrt", "util-linux"),
    program("openssl", "openssl"),
    program("taskset", "util-linux"),
];
/// Programs that every topology requires.
pub(crate) const BASE: [Program; 4] = [
    program("ip", "iproute2"),
    program("tc", "iproute2"),
    program("nsenter", "util-linux"),
    program("setpriv", "util-linux"),
];

/// Returns the path of the program. On Debian, the name of the php-fpm program ends with the PHP version.
pub(crate) fn locate(program: Program) -> Option<PathBuf> {
    process::find(program.name).or_else(|| {
        if program == PHP_FPM {
            newest_php_fpm()
        } else {
            None
        }
    })
}

fn newest_php_fpm() -> Option<PathBuf> {
    let entries = std::fs::read_dir("/usr/sbin").ok()?;
    let is_php_fpm = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|n| n.to_string_lossy().starts_with("php-fpm"))
    };
    entries
        .flatten()
        .map(|entry| entry.path())
        .filter(is_php_fpm)
        .max()
}

/// Returns an error unless the lab runs as root.
pub(crate) fn require_root() -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(LabError::NotRoot {
        command: std::env::args().collect::<Vec<_>>().join(" "),
    })
}

/// Returns an error with all missing programs if any of `programs` is not installed.
pub(crate) fn require_programs(programs: impl IntoIterator<Item = Program>) -> Result<()> {
    let mut missing: Vec<_> = programs
        .into_iter()
        .filter(|program| locate(*program).is_none())
        .collect();
    missing.sort_unstable();
    missing.dedup();
    if missing.is_empty() {
        return Ok(());
    }
    let programs = missing
        .iter()
        .map(|p| format!("{} (package {})", p.name, p.package))
        .collect();
    Err(LabError::MissingPrograms { programs })
}

/// Returns the path of the `weir` program: the specified path, the running program if it is `weir`, `weir` next to the
/// running program, or `weir` in `PATH`, in this order.
pub(crate) fn find_weir(specified: Option<&Path>) -> Result<PathBuf> {
    let missing_program = |program: String| LabError::MissingPrograms {
        programs: vec![program],
    };
    if let Some(path) = specified {
        // An absolute path identifies the exact file in reports.
        return std::fs::canonicalize(path).map_err(LabError::file(path));
    }
    let current = std::env::current_exe().map_err(LabError::file("/proc/self/exe"))?;
    if current.file_name().is_some_and(|name| name == "weir") {
        return Ok(current);
    }
    let sibling = current.with_file_name("weir");
    if sibling.is_file() {
        return Ok(sibling);
    }
    process::find("weir").ok_or_else(|| {
        missing_program("weir (build it with `make build`, or specify --weir PATH)".into())
    })
}

/// Raises the open-file limit of this process and its children: `ab -c 1000` needs more than the default of 1024.
pub(crate) fn raise_open_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Raising the soft limit to the hard limit requires no privilege. If it fails, ab reports the error.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_programs_are_listed_once_with_their_packages() {
        let absent = program("no-such-balancer", "balancer");
        let error = require_programs([absent, absent, program("sh", "dash")])
            .expect_err("a missing program was accepted");
        assert_eq!(
            error.to_string(),
            "missing programs: no-such-balancer (package balancer). `make deps` installs them without starting services"
        );
    }
}
