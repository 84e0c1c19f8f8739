//! The script that ldirectord's check of a file by FTP becomes, run by perl against a server of this test.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the server of the test has sockets; the crate has none"
)]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use weir_import::{EmptyEnvironment, ldirectord};

const LIMIT: Duration = Duration::from_secs(10);

/// Answers one session: RFC 959 as far as perl's client uses it.
fn session(control: &TcpStream) -> std::io::Result<()> {
    control.set_read_timeout(Some(LIMIT))?;
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

/// The words of `command` of the imported check.
fn command(password: &str, file: &str, receive: &str) -> Vec<String> {
    let text = format!(
        "virtual=192.0.2.1:21\n    real=127.0.0.1:21 masq\n    service=ftp\n    login=\"u\"\n    \
         passwd=\"{password}\"\n    request=\"{file}\"\n    receive=\"{receive}\"\n"
    );
    let imported = ldirectord("ldirectord.cf", &text, &EmptyEnvironment);
    let parsed = weir_config::parse(&imported.toml, &weir_config::Host::default());
    let desired = parsed.expect("a valid file").desired;
    let mut checks = desired.pools[0].checks.iter();
    let script = checks.find_map(|check| match &check.probe {
        weir_model::Probe::Script(script) => Some(script.command.clone()),
        _ => None,
    });
    script.unwrap_or_else(|| panic!("no script:\n{}", imported.toml))
}

fn passes(command: &[String]) -> bool {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .env("WEIR_ADDRESS", "127.0.0.1")
        .env("WEIR_PORT", port.to_string())
        .stderr(Stdio::null())
        .spawn()
        .expect("perl");
    // It ends with the test, even if perl does not connect.
    std::thread::spawn(move || listener.accept().and_then(|it| session(&it.0)));
    let until = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        if Instant::now() > until {
            let _ = child.kill();
            panic!("perl does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    status.success()
}

/// A module that fails unless the command line of its process lacks the password.
const MODULE: &str = "open(my $in, '<', '/proc/self/cmdline') or exit 3; local $/; my $line = <$in>;\n\
    exit(index($line, 'hunter2') < 0 ? 0 : 4);\n";

#[test]
fn command_line_has_no_password_while_modules_are_loaded() {
    let directory = std::env::temp_dir().join(format!("weir-perl-{}", std::process::id()));
    std::fs::create_dir_all(directory.join("Net")).expect("a directory");
    std::fs::write(directory.join("Net/FTP.pm"), MODULE).expect("written");
    let command = command("hunter2", "alive.txt", "well");
    let status = Command::new(&command[0])
        .args(&command[1..])
        .env("PERL5LIB", &directory)
        .status();
    std::fs::remove_dir_all(&directory).expect("removed");
    assert_eq!(status.expect("perl").code(), Some(0));
}

#[test]
fn file_must_match() {
    let has_module = Command::new("/usr/bin/perl")
        .args(["-MNet::FTP", "-e", "1"])
        .stderr(Stdio::null())
        .status();
    if !has_module.is_ok_and(|status| status.success()) {
        let _ = weir_testing::require("perl with Net::FTP", false);
        return;
    }
    assert!(passes(&command("secret", "alive.txt", "is w.ll")));
    assert!(!passes(&command("secret", "alive.txt", "broken")));
    assert!(!passes(&command("secret", "none.txt", "is w.ll")));
}
