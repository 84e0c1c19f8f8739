//! Generates Rust definitions from the reason headers in `bpf/abi/`, and a hash of `weir_abi.h`.
//!
//! The definitions come from `weir_reasons.h` and `weir_latency_reasons.h`. The hash ignores comments and white space.

#![allow(
    clippy::disallowed_methods,
    reason = "a build script reads and writes files"
)]

use std::error::Error;
use std::fmt::{self, Write as _};
use std::path::Path;
use std::{env, fs};

struct Reason {
    number: u8,
    name: String,
    label: String,
    text: String,
}

fn main() -> Result<(), Box<dyn Error>> {
    let abi = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../bpf/abi");
    let read = |name: &str| {
        let path = abi.join(name);
        println!("cargo::rerun-if-changed={}", path.display());
        fs::read_to_string(&path)
            .map_err(|error| format!("failed to read {}: {error}", path.display()))
    };
    let reasons = parse_reasons("weir_reasons.h", &read("weir_reasons.h")?);
    let hash = fnv1a(&strip_comments_and_whitespace(&read("weir_abi.h")?));

    let latency = parse_reasons("weir_latency_reasons.h", &read("weir_latency_reasons.h")?);

    let mut out = render_reasons(&reasons)?;
    out.push_str(&render_latency(&latency)?);
    let doc = "FNV-1a over `weir_abi.h` without comments and white space. It differs between builds with different \
    definitions.";
    writeln!(out, "/// {doc}")?;
    writeln!(out, "pub const ABI_HASH: u64 = {hash:#018x};")?;
    let path = Path::new(&env::var("OUT_DIR")?).join("generated.rs");
    fs::write(&path, out)
        .map_err(|error| format!("failed to write {}: {error}", path.display()).into())
}

/// Parses the lines `X(number, NAME, "label", "text")` in the header `file`.
fn parse_reasons(file: &str, header: &str) -> Vec<Reason> {
    let mut reasons = Vec::new();
    for line in header
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("X(") && line.contains('"'))
    {
        let body = line.trim_end_matches('\\').trim_end();
        let Some(body) = body
            .strip_prefix("X(")
            .and_then(|body| body.strip_suffix(')'))
        else {
            panic!("{file}: failed to parse the line {line:?}");
        };
        let mut parts = body.splitn(3, ',').map(str::trim);
        let (Some(number), Some(name), Some(strings)) = (parts.next(), parts.next(), parts.next())
        else {
            panic!("{file}: too few parts in {line:?}");
        };
        let Some((label, text)) = strings.split_once("\", \"") else {
            panic!("{file}: expected two strings in {line:?}");
        };
        reasons.push(Reason {
            number: number
                .parse()
                .unwrap_or_else(|_| panic!("{file}: invalid number in {line:?}")),
            name: name.to_owned(),
            label: label.trim_start_matches('"').to_owned(),
            text: text
                .strip_suffix('"')
                .unwrap_or_else(|| panic!("{file}: no closing quote in {line:?}"))
                .to_owned(),
        });
    }
    for (index, reason) in reasons.iter().enumerate() {
        assert!(
            usize::from(reason.number) == index,
            "{file}: {} has number {}, expected {index}",
            reason.name,
            reason.number
        );
    }
    assert!(!reasons.is_empty(), "{file}: no reason found");
    reasons
}

fn render_reasons(reasons: &[Reason]) -> Result<String, fmt::Error> {
    let mut out = String::from(
        "/// Why a packet was dropped, passed or counted; the number is the index into `weir_reasons`.\n\
         #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]\n#[repr(u8)]\npub enum Reason {\n",
    );
    for reason in reasons {
        writeln!(
            out,
            "    /// {}\n    {} = {},",
            reason.text,
            camel_case(&reason.name),
            reason.number
        )?;
    }
    writeln!(
        out,
        "}}\n\n/// Every reason, by number.\npub const REASONS: [ReasonInfo; {}] = [",
        reasons.len()
    )?;
    for reason in reasons {
        writeln!(
            out,
            "    ReasonInfo {{ reason: Reason::{}, label: \"{}\", text: \"{}\" }},",
            camel_case(&reason.name),
            reason.label,
            reason.text
        )?;
    }
    out.push_str("];\n");
    Ok(out)
}

fn render_latency(reasons: &[Reason]) -> Result<String, fmt::Error> {
    let mut out = String::from(
        "\n/// A counter of the latency estimator; the number is the index into `weir_latency_counts`.\n\
         #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]\n#[repr(u8)]\npub enum LatencyReason {\n",
    );
    for reason in reasons {
        let (name, number) = (camel_case(&reason.name), reason.number);
        writeln!(out, "    /// {}\n    {name} = {number},", reason.text)?;
    }
    let count = reasons.len();
    let doc =
        "/// Every counter of the latency estimator by number, with its label and description.";
    writeln!(out, "}}\n\n{doc}")?;
    writeln!(
        out,
        "pub const LATENCY_REASONS: [(LatencyReason, &str, &str); {count}] = ["
    )?;
    for reason in reasons {
        let (label, text) = (&reason.label, &reason.text);
        let name = camel_case(&reason.name);
        writeln!(out, "    (LatencyReason::{name}, \"{label}\", \"{text}\"),")?;
    }
    out.push_str("];\n\n");
    Ok(out)
}

fn camel_case(name: &str) -> String {
    name.split('_')
        .map(|word| word[..1].to_owned() + &word[1..].to_lowercase())
        .collect()
}

fn strip_comments_and_whitespace(header: &str) -> String {
    let mut out = String::new();
    let mut rest = header;
    while let Some(start) = rest.find("/*") {
        out.push_str(&rest[..start]);
        let Some(end) = rest[start..].find("*/") else {
            panic!("weir_abi.h: unterminated comment");
        };
        rest = &rest[start + end + 2..];
    }
    out.push_str(rest);
    out.retain(|character| !character.is_whitespace());
    out
}

fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}
