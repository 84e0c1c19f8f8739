//! Starts HAProxy as in the first field report.
//!
//! HAProxy has the defaults of its packaged configuration, port 5000, and `check` for each server.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use crate::error::{LabError, Result};
use crate::process::{Daemon, Launcher};
use crate::requirement::{self, HAPROXY};

/// The frontend's port.
pub(crate) const PORT: u16 = 5000;

/// Returns HAProxy's equivalent of one of Weir's layer 4 schedulers.
pub(crate) fn balance(scheduler: &str) -> Option<&'static str> {
    Some(match scheduler {
        "rr" | "wrr" => "roundrobin",
        "lc" | "wlc" => "leastconn",
        "sh" => "source",
        _ => return None,
    })
}

/// Starts HAProxy. The caller waits for the first response.
pub(crate) fn start(
    launcher: &Launcher<'_>,
    balance: &str,
    servers: &[Ipv4Addr],
) -> Result<Daemon> {
    let file = launcher.directory.join("haproxy.cfg");
    std::fs::write(&file, configuration(balance, servers)).map_err(LabError::file(&file))?;
    let program = requirement::locate(HAPROXY).unwrap_or_else(|| PathBuf::from(HAPROXY.name));
    // -db: run in the foreground.
    launcher.start(
        "haproxy",
        &program,
        &["-db".as_ref(), "-f".as_ref(), file.as_os_str()],
    )
}

/// Writes the configuration for [`daemon_command`] and [`start_master`].
pub(crate) fn write(directory: &Path, servers: &[Ipv4Addr]) -> Result<()> {
    let file = directory.join("haproxy.cfg");
    std::fs::write(&file, configuration("roundrobin", servers)).map_err(LabError::file(&file))
}

/// Returns the shell command that starts HAProxy in the background and asks the previous process to finish.
pub(crate) fn daemon_command(directory: &Path) -> String {
    let program = requirement::locate(HAPROXY).unwrap_or_else(|| PathBuf::from(HAPROXY.name));
    format!(
        "{} -D -f {dir}/haproxy.cfg -p {dir}/haproxy.pid -sf $(cat {dir}/haproxy.pid 2>/dev/null)",
        program.display(),
        dir = directory.display()
    )
}

/// Starts a master process in the foreground, which reloads on SIGUSR2. The caller waits for the first response.
pub(crate) fn start_master(launcher: &Launcher<'_>, servers: &[Ipv4Addr]) -> Result<Daemon> {
    write(launcher.directory, servers)?;
    let file = launcher.directory.join("haproxy.cfg");
    let program = requirement::locate(HAPROXY).unwrap_or_else(|| PathBuf::from(HAPROXY.name));
    launcher.start(
        "haproxy",
        &program,
        &["-W".as_ref(), "-f".as_ref(), file.as_os_str()],
    )
}

fn configuration(balance: &str, servers: &[Ipv4Addr]) -> String {
    let mut text = format!(
        "global\n    maxconn 4000\n    log stdout format raw daemon\n\ndefaults\n    mode http\n    log global\n    \
         option httplog\n    option dontlog-normal\n    option http-server-close\n    option forwardfor\n    \
         option redispatch\n    retries 3\n    timeout http-request 10s\n    timeout queue 1m\n    timeout connect \
         10s\n    \
         timeout client 1m\n    timeout server 1m\n    timeout http-keep-alive 10s\n    timeout check 10s\n    maxconn \
         3000\n\n\
         frontend main\n    bind *:{PORT}\n    default_backend app\n\nbackend app\n    balance {balance}\n"
    );
    for (index, address) in servers.iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "    server app{} {address}:{} check",
            index + 1,
            super::nginx::PORT
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_matches_the_report() {
        let servers = [Ipv4Addr::new(10, 0, 0, 5), Ipv4Addr::new(10, 0, 0, 6)];
        insta::assert_snapshot!(configuration("roundrobin", &servers));
    }

    #[test]
    fn scheduler_without_equivalent_is_rejected() {
        assert_eq!(balance("rr"), Some("roundrobin"));
        assert_eq!(balance("mh"), None);
    }
}
