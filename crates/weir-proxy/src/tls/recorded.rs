//! Tests that certificates and OCSP responses made by `openssl` are read as recorded in `testdata`.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::{ocsp, x509};

const RECORDED: &str = include_str!("../../testdata/x509/recorded.txt");

/// The serial number of `long_serial.der`.
const LONG_SERIAL: &[u8] = &[
    0x7f, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23,
];
const SERIALS: [&[u8]; 5] = [&[0x10, 0x01], &[0x00, 0x80], &[0x80], &[7], LONG_SERIAL];
/// Times in seconds since 1970, including those around the expiry of `ocsp_good.der`.
const TIMES: [i64; 4] = [0, 1_804_188_127, 1_804_188_128, i64::MAX];

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/x509")
}

fn is_response(name: &str) -> bool {
    name.starts_with("ocsp_")
}

/// Returns the certificates by name, then the OCSP responses by name.
fn files() -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(testdata()).expect("read directory");
    let names = entries.map(|entry| entry.expect("read directory entry").file_name());
    let names = names.map(|name| name.into_string().expect("file name is UTF-8"));
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".der")).collect();
    names.sort_by_key(|name| (is_response(name), name.clone()));
    let read = |name: String| {
        let content = fs::read(testdata().join(&name)).expect("read file");
        (name, content)
    };
    names.into_iter().map(read).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Describes a file in the format of `recorded.txt`.
fn describe(name: &str, content: &[u8]) -> String {
    if is_response(name) {
        describe_response(name, content)
    } else {
        describe_certificate(name, content)
    }
}

fn describe_certificate(name: &str, content: &[u8]) -> String {
    let Some(info) = x509::read(content) else {
        return format!("{name}: not a certificate\n");
    };
    let (end_entity, servers) = (info.is_end_entity, info.is_for_servers);
    format!(
        "{name}: {}..{} serial {}\n  names {:?}\n  end entity {end_entity}, for servers {servers}\n",
        info.not_before,
        info.not_after,
        hex(&info.serial),
        info.names
    )
}

fn describe_response(name: &str, content: &[u8]) -> String {
    let mut text = String::new();
    for serial in SERIALS {
        let checked = TIMES.map(|now| match ocsp::check(content, serial, now) {
            Ok(()) => "ok".to_owned(),
            Err(fault) => format!("{fault:?}"),
        });
        let _ = writeln!(text, "{name}: {}: {}", hex(serial), checked.join(" "));
    }
    text
}

fn is_rejected(name: &str, content: &[u8]) -> bool {
    if is_response(name) {
        let malformed = Err(ocsp::OcspFault::Malformed);
        SERIALS.map(|serial| ocsp::check(content, serial, 0)) == [malformed; SERIALS.len()]
    } else {
        x509::read(content).is_none()
    }
}

#[test]
fn files_are_read_as_recorded() {
    let files = files().into_iter();
    let actual: String = files
        .map(|(name, content)| describe(&name, &content))
        .collect();
    assert!(
        RECORDED == actual,
        "recorded:\n{RECORDED}\nactual:\n{actual}"
    );
}

#[test]
fn truncated_files_are_rejected() {
    for (name, content) in files() {
        for length in 0..content.len() {
            assert!(is_rejected(&name, &content[..length]), "{name}: {length}");
        }
    }
}

/// Generates bytes, many of which are tags and lengths that occur in certificates.
fn der_like() -> impl Strategy<Value = Vec<u8>> {
    let der_bytes = b"\x30\x02\x06\x17\x18\x31\xa0\xa3\x82\x00\x01\x05\x7f\x81\x84\xff";
    vec(prop_oneof![select(der_bytes.to_vec()), any::<u8>()], 0..120)
}

proptest! {
    /// Flipping a bit an even number of times restores the file, which must then be read as recorded.
    #[test]
    fn flipped_bits_do_not_panic(file: Index, flips in vec(any::<Index>(), 0..4), length: Option<Index>) {
        let files = files();
        let (name, content) = file.get(&files);
        let mut changed_content = content.clone();
        for flip in flips {
            let bit = flip.index(content.len() * 8);
            changed_content[bit / 8] ^= 1 << (bit % 8);
        }
        changed_content.truncate(length.map_or(content.len(), |length| length.index(content.len() + 1)));
        let description = describe(name, &changed_content);
        prop_assert!(changed_content != *content || RECORDED.contains(&description), "{}", description);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(input in der_like()) {
        let _ = x509::read(&input);
        let _ = ocsp::check(&input, &[7], 0);
    }
}
