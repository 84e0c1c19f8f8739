//! Starts an unmodified ldirectord as in the fourth field report, with Weir available as `ipvsadm`.
//!
//! ldirectord runs in a mount namespace where Weir is mounted as `ipvsadm` and `/var` is empty, and in a separate PID
//! namespace. No process outlives the guard, and the host does not change.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use crate::error::{LabError, Result};
use crate::process::{Daemon, Launcher};
use crate::requirement::{self, LDIRECTORD};
use crate::topology::VIP;

/// The two paths at which ldirectord looks for ipvsadm; with a merged `/usr` they are the same file.
const IPVSADM_PATHS: [&str; 2] = ["/sbin/ipvsadm", "/usr/sbin/ipvsadm"];

/// The director that ldirectord manages: its program and its state directories.
pub(crate) struct Instance<'a> {
    /// The `weir` program.
    pub(crate) weir: &'a Path,
    pub(crate) runtime: &'a Path,
    pub(crate) pins: &'a Path,
}

/// Starts ldirectord. The caller waits for the services that it creates.
pub(crate) fn start(
    launcher: &Launcher<'_>,
    instance: &Instance<'_>,
    scheduler: &str,
    servers: &[Ipv4Addr],
) -> Result<Daemon> {
    let file = launcher.directory.join("ldirectord.cf");
    let log = launcher.directory.join("ldirectord-own.log");
    std::fs::write(&file, configuration(&log, scheduler, servers))
        .map_err(LabError::file(&file))?;
    let program = requirement::locate(LDIRECTORD).unwrap_or_else(|| PathBuf::from(LDIRECTORD.name));
    // The paths are passed as arguments, so the shell does not interpret them.
    let script = "mount -t tmpfs none /var; mkdir /var/run /var/log /var/lock; weir=$1; ldirectord=$2; file=$3; shift \
     3\n\
        for name; do [ ! -e \"$name\" ] || mount --bind \"$weir\" \"$name\"; done\n\
        exec \"$ldirectord\" -d \"$file\" start";
    let variable = |name: &str, path: &Path| format!("{name}={}", path.display());
    let mut arguments: Vec<String> = vec![
        variable("WEIR_RUNTIME_DIR", instance.runtime),
        variable("WEIR_PIN_DIR", instance.pins),
    ];
    let args = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-ec",
        script,
        "sh",
    ];
    arguments.extend(args.map(str::to_owned));
    arguments.extend([instance.weir, &program, &file].map(|path| path.display().to_string()));
    arguments.extend(IPVSADM_PATHS.map(str::to_owned));
    launcher.start("ldirectord", Path::new("env"), &arguments)
}

fn configuration(log: &Path, scheduler: &str, servers: &[Ipv4Addr]) -> String {
    let mut text = format!(
        "checktimeout = 5\nnegotiatetimeout = 30\ncheckinterval = 10\nfailurecount = 1\nautoreload = no\n\
         logfile = \"{}\"\nfork = yes\nquiescent = no\ncleanstop = no\nvirtual = {VIP}:{}\n",
        log.display(),
        super::nginx::PORT
    );
    for server in servers {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\treal = {server}:{} gate", super::nginx::PORT);
    }
    let _ = write!(
        text,
        "\tservice = http\n\trequest = \"{}\"\n\treceive = \"Up\"\n\tscheduler = {scheduler}\n\
         \tprotocol = tcp\n\tchecktype = negotiate\n",
        super::nginx::HELLO
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_matches_the_report() {
        let servers = [Ipv4Addr::new(10, 0, 0, 5), Ipv4Addr::new(10, 0, 0, 6)];
        insta::assert_snapshot!(configuration(Path::new("/x/log"), "lc", &servers));
    }
}
