//! Implements HAProxy's runtime commands `show stat`, `show info` and `help` on the control socket.
//!
//! Scripts and exporters that were written for HAProxy use them.
//!
//! The commands only show data from the status document. The response to an unsupported command contains the equivalent
//! Weir commands.

mod statistics;

use std::fmt::Write as _;

use crate::status::Report;

/// Maximum length of a command line in bytes.
pub(crate) const MAX_LINE_BYTES: usize = 1024;

/// Maximum number of commands in a line; further commands are ignored.
const MAX_COMMANDS: usize = 16;

/// Returns whether a connection that begins with this byte sends commands. HTTP methods begin with an upper-case
/// letter; commands do not.
pub(crate) const fn is_command(first: u8) -> bool {
    !first.is_ascii_uppercase()
}

/// Returns the response to a line of commands separated by `;`. An empty line ends the output of each command, as in
/// HAProxy.
///
/// `now_s` is the current time in seconds since 1970; `uptime_s` is the daemon's uptime in seconds.
pub(crate) fn reply(line: &str, report: &Report, (now_s, uptime_s): (u64, u64)) -> String {
    let mut out = String::new();
    for command in line.split(';').take(MAX_COMMANDS) {
        let words: Vec<&str> = command.split_whitespace().collect();
        match *words.as_slice() {
            ["show", "stat"] => statistics::write_csv(&mut out, report, now_s),
            ["show", "info"] => write_info(&mut out, report, uptime_s),
            ["help"] => out.push_str(HELP),
            _ => {
                let quoted: String = command.trim().chars().take(80).collect();
                let _ = write!(out, "Unknown command: \"{}\". ", quoted.escape_debug());
                out.push_str(HELP);
            }
        }
        out.push('\n');
    }
    out
}

const HELP: &str = "Weir supports these HAProxy commands, which make no changes:\n\
    \x20 show stat : statistics of services, pools and servers as CSV\n\
    \x20 show info : the daemon's process\n\
    \x20 help      : this text\n\
    Use `weir server POOL/ADDRESS drain|ready|maint|weight N` to change a server, or HTTP on this socket.\n";

fn write_info(out: &mut String, report: &Report, uptime_s: u64) {
    let proxies = || {
        report
            .services
            .iter()
            .filter_map(|service| service.proxy.as_ref())
    };
    let sum = |count: fn(&crate::status::Service) -> u64| -> u64 {
        report.services.iter().map(count).sum()
    };
    let (days, hours) = (uptime_s / 86_400, uptime_s / 3600 % 24);
    let (minutes, seconds) = (uptime_s / 60 % 60, uptime_s % 60);
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(out, "{name}: {value}");
    };
    line("Name", &"Weir");
    line("Version", &env!("CARGO_PKG_VERSION"));
    line("Process_num", &1);
    line("Pid", &report.pid.unwrap_or(0));
    let uptime = format!("{days}d {hours}h{minutes:02}m{seconds:02}s");
    line("Uptime", &uptime);
    line("Uptime_sec", &uptime_s);
    if let Some(files) = &report.open_files {
        line("Ulimit-n", &files.limit);
        line("Maxconn", &files.clients_max);
        line("CurrConns", &files.clients);
    }
    line("CumConns", &sum(|service| service.totals.connections));
    let requests: u64 = proxies().map(|proxy| proxy.requests).sum();
    line("CumReq", &requests);
    let handshakes: u64 = proxies().map(|proxy| proxy.tls_handshakes).sum();
    line("CumSslConns", &handshakes);
    line("Stopping", &u8::from(report.drained));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::director;

    #[test]
    fn supported_commands_are_executed_and_others_return_help() {
        let report = Report::from(&director());
        let times = (1_795_201_260, 90_061);
        insta::assert_snapshot!(reply("show stat;show info", &report, times));
        let rejection = reply("disable server a/b\r", &report, times);
        assert!(
            rejection.starts_with("Unknown command: \"disable server a/b\". Weir supports")
                && rejection.contains("`weir server POOL/ADDRESS drain"),
            "{rejection}"
        );
        assert_eq!(reply("help", &report, times), format!("{HELP}\n"));
        let many = "help;".repeat(500);
        assert_eq!(reply(&many, &report, times).matches(HELP).count(), 16);
    }

    #[test]
    fn http_requests_are_not_commands() {
        for method in ["GET", "POST", "PUT", "DELETE", "PRI"] {
            assert!(!is_command(method.as_bytes()[0]), "{method}");
        }
        assert!(is_command(b's') && is_command(b'@') && is_command(b'\n'));
    }
}
