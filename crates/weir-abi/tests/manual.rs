//! Tests that the manual's page of reasons matches `weir_abi::REASONS`; regenerates it with `WEIR_UPDATE_DOCS=1`.

#![allow(
    clippy::disallowed_methods,
    reason = "a test reads the manual; the crate itself does no I/O"
)]

use std::fmt::Write as _;
use std::path::Path;

fn page() -> String {
    let mut page = String::from(
        "# Reasons\n\n\
         Every packet that Weir drops or passes up the stack is counted under one of these reasons, per CPU, in the \
         pinned map\n`weir_reasons`. `weir status` and `/metrics` show the nonzero counters, `/metrics` as\n\
         `weir_packets_total{reason=\"…\"}`. A packet that was forwarded is counted with its server instead. Numbers \
         are never\nreused.\n\n| number | label | what happened |\n|---|---|---|\n",
    );
    for info in weir_abi::REASONS {
        let _ = writeln!(
            page,
            "| {} | `{}` | {} |",
            info.reason.number(),
            info.label,
            info.text
        );
    }
    page
}

#[test]
fn manual_lists_every_reason() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual/reasons.md");
    if std::env::var_os("WEIR_UPDATE_DOCS").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let current = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        current,
        page(),
        "run with WEIR_UPDATE_DOCS=1 to write {}",
        path.display()
    );
}
