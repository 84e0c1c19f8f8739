//! Runs the Perl script generated from ldirectord's check of a file over FTP, against a server in this test.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the FTP server of the test uses sockets"
)]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use weir_import::{EmptyEnvironment, ldirectord};

/// Maximum time for reads, and for the script.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Serves one FTP session: the part of RFC 959 that Perl's client uses.
fn serve(control: &TcpStream) -> std::io::Result<()> {
    control.set_read_timeout(Some(TIMEOUT))?;
    let mut writer = control.try_clone()?;
    let mut data: Option<TcpListener> = None;
    writer.write_all(b"220 ready\r\n")?;
    for line in BufReader::new(control).lines() {
        let line = line?;
        let (verb, argument) = line.split_once(' ').unwrap_or((&line, ""));
        let reply = match verb {
            "USER" => "331 password".to_owned(),
            "PASS" if argument == "secret" => "230 in".to_owned(),
            "PASS" => "530 no".to_owned(),
            "PASV" => {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                let port = listener.local_addr()?.port();
                data = Some(listener);
                format!("227 here (127,0,0,1,{},{})", port >> 8, port & 255)
            }
            "RETR" if argument == "/alive.txt" => {
                writer.write_all(b"150 data\r\n")?;
                if let Some(listener) = data.take() {
                    listener.accept()?.0.write_all(b"all is well\n")?;
                }
                "226 sent".to_owned()
            }
            "RETR" => "550 no such file".to_owned(),
            "QUIT" => {
                return writer.write_all(b"221 bye\r\n");
            }
            _ => "200 fine".to_owned(),
        };
        writer.write_all(format!("{reply}\r\n").as_bytes())?;
    }
    Ok(())
}

/// Returns `command` of the imported check.
fn imported_command(password: &str, file: &str, receive: &str) -> Vec<String> {
    let text = format!(
        "virtual=192.0.2.1:21\n    real=127.0.0.1:21 masq\n    service=ftp\n    login=\"u\"\n    \
         passwd=\"{password}\"\n    request=\"{file}\"\n    receive=\"{receive}\"\n"
    );
    let imported = ldirectord("ldirectord.cf", &text, &EmptyEnvironment);
    let parsed = weir_config::parse(&imported.toml, &weir_config::Host::default());
    let desired = parsed.expect("parse the output").desired;
    let mut checks = desired.pools[0].checks.iter();
    let script = checks.find_map(|check| match &check.probe {
        weir_model::Probe::Script(script) => Some(script.command.clone()),
        _ => None,
    });
    script.unwrap_or_else(|| panic!("no script:\n{}", imported.toml))
}

/// Returns whether the script succeeds against a new server.
fn script_succeeds(command: &[String]) -> bool {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind a port");
    let port = listener.local_addr().expect("local address").port();
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .env("WEIR_ADDRESS", "127.0.0.1")
        .env("WEIR_PORT", port.to_string())
        .stderr(Stdio::null())
        .spawn()
        .expect("run perl");
    // If perl does not connect, the thread ends with the test process.
    std::thread::spawn(move || listener.accept().and_then(|it| serve(&it.0)));
    let deadline = Instant::now() + TIMEOUT;
    let status = loop {
        if let Some(status) = child.try_wait().expect("wait for perl") {
            break status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("perl did not exit in time");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    status.success()
}

/// A module that exits with 0 only if the command line of its process does not contain the password.
const MODULE: &str = "open(my $in, '<', '/proc/self/cmdline') or exit 3; local $/; my $line = <$in>;\n\
    exit(index($line, 'hunter2') < 0 ? 0 : 4);\n";

#[test]
fn command_line_has_no_password_while_modules_are_loaded() {
    let directory = std::env::temp_dir().join(format!("weir-perl-{}", std::process::id()));
    std::fs::create_dir_all(directory.join("Net")).expect("create a directory for the module");
    std::fs::write(directory.join("Net/FTP.pm"), MODULE).expect("write the module");
    let command = imported_command("hunter2", "alive.txt", "well");
    let status = Command::new(&command[0])
        .args(&command[1..])
        .env("PERL5LIB", &directory)
        .status();
    std::fs::remove_dir_all(&directory).expect("remove the directory");
    assert_eq!(status.expect("run perl").code(), Some(0));
}

#[test]
fn script_succeeds_only_if_file_matches() {
    let has_module = Command::new("/usr/bin/perl")
        .args(["-MNet::FTP", "-e", "1"])
        .stderr(Stdio::null())
        .status();
    if !has_module.is_ok_and(|status| status.success()) {
        let _ = weir_testing::require("perl with Net::FTP", false);
        return;
    }
    assert!(script_succeeds(&imported_command(
        "secret",
        "alive.txt",
        "is w.ll"
    )));
    assert!(!script_succeeds(&imported_command(
        "secret",
        "alive.txt",
        "broken"
    )));
    assert!(!script_succeeds(&imported_command(
        "secret", "none.txt", "is w.ll"
    )));
}
