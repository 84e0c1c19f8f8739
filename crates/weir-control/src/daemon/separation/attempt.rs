//! Acts as code that a client has brought into the daemon. For tests of a debug build; absent from release programs.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::mpsc;

use weir_sys::privileged::{self, PrivilegedHelper, Program};

/// The environment variable that asks for it.
const VARIABLE: &str = "WEIR_TEST_ATTEMPTS";

/// Tries what must be refused, and logs the results.
pub(super) fn run() {
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    let Some(helper) = privileged::helper() else {
        return;
    };
    let shadow = Path::new("/etc/shadow");
    let results = [
        ("ask to open /etc/shadow", helper.open(shadow).map(drop)),
        (
            "ask to append to /etc/shadow",
            helper.append(shadow).map(drop),
        ),
        (
            "ask for a port",
            helper
                .bind_stream(SocketAddr::from((Ipv4Addr::LOCALHOST, 81)))
                .map(drop),
        ),
        (
            "ask for an address",
            helper
                .bind_stream(SocketAddr::from(([127, 0, 0, 9], 443)))
                .map(drop),
        ),
        ("ask for a script as root", ask_for_script(helper)),
    ];
    let own = weir_sys::attempts(helper_process().unwrap_or(1));
    for (attempt, result) in results.into_iter().chain(own) {
        match result {
            Ok(()) => tracing::error!(attempt, "succeeded"),
            Err(error) => tracing::info!(attempt, %error, "failed"),
        }
    }
}

fn ask_for_script(helper: &dyn PrivilegedHelper) -> io::Result<()> {
    let program = Program::Check {
        command: vec!["/bin/true".to_owned()],
        user: "root".to_owned(),
        address: Ipv4Addr::LOCALHOST.into(),
        port: None,
    };
    let (sender, ended) = mpsc::channel();
    helper.run(&program, Box::new(move |result| drop(sender.send(result))))?;
    ended.recv().map_err(io::Error::other)?.map(drop)
}

/// The helper of this process: another child of the keeper.
fn helper_process() -> Option<u32> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.find(|number: &u32| {
        let words = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        words
            .split(|byte| *byte == 0)
            .any(|word| word == b"--daemon")
    })
}
