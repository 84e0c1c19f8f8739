//! What is read of certificates and OCSP responses that `openssl` made, compared with recorded results.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use super::{ocsp, x509};

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/x509")
}

/// Every file of the directory with that prefix or without it, by name.
fn files(is_wanted: impl Fn(&str) -> bool) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(testdata()).expect("the directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| name.into_string().expect("UTF-8"));
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".der")).collect();
    names.retain(|name| is_wanted(name));
    names.sort();
    let read = |name: String| {
        let content = fs::read(testdata().join(&name)).expect("a file");
        (name, content)
    };
    names.into_iter().map(read).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What the program reads today, in the form of the record.
fn today() -> String {
    let mut text = String::new();
    for (name, content) in files(|name| !name.starts_with("ocsp_")) {
        let info = x509::read(&content).expect("a certificate");
        let (end_entity, servers) = (
            x509::is_end_entity(&content),
            x509::is_for_servers(&content),
        );
        let serial = hex(&info.serial);
        let _ = writeln!(
            text,
            "{name}: {}..{} serial {serial}",
            info.not_before, info.not_after
        );
        let _ = writeln!(text, "  names {:?}", info.names);
        let _ = writeln!(text, "  end entity {end_entity}, for servers {servers}");
    }
    for (name, content) in files(|name| name.starts_with("ocsp_")) {
        for serial in [&[0x10, 0x01][..], &[0x00, 0x80], &[0x80], &[7]] {
            let until = [0, 1_804_188_127, 1_804_188_128, i64::MAX];
            let checked = until.map(|now| match ocsp::check(&content, serial, now) {
                Ok(()) => "ok".to_owned(),
                Err(fault) => format!("{fault:?}"),
            });
            let _ = writeln!(text, "{name}: {}: {}", hex(serial), checked.join(" "));
        }
    }
    text
}

#[test]
fn files_are_read_as_recorded() {
    let recorded = fs::read_to_string(testdata().join("recorded.txt")).expect("the record");
    let today = today();
    assert!(recorded == today, "recorded:\n{recorded}\ntoday:\n{today}");
}

#[test]
fn truncated_files_are_rejected() {
    for (name, content) in files(|name| !name.starts_with("ocsp_")) {
        for length in 0..content.len() {
            assert_eq!(x509::read(&content[..length]), None, "{name}: {length}");
        }
    }
    for (name, content) in files(|name| name.starts_with("ocsp_")) {
        for length in 0..content.len() {
            let checked = ocsp::check(&content[..length], &[0x10, 0x01], 0);
            assert_eq!(checked, Err(ocsp::OcspFault::Malformed), "{name}: {length}");
        }
    }
}
