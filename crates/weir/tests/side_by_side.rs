//! Compares HAProxy and nginx with Weir, which runs the imported file.
//!
//! Clients and servers must observe the same behavior.
//!
//! The files in `side_by_side/` were written for this test; `make corpus ARGS=--run` compares real files.

use std::path::Path;
use std::process::Command;

use weir_testing::require_root as privileged;

/// Runs both programs with the same file and compares their behavior.
fn compare(kind: &str, file: &str) {
    if !privileged() {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tool = root.join("../../tools/side-by-side.py");
    let file = root.join("tests/side_by_side").join(file);
    let output = Command::new("python3")
        .arg(tool)
        .args(["--weir", env!("CARGO_BIN_EXE_weir"), "--show"])
        .arg(format!("{kind}:{}", file.display()))
        .output()
        .expect("run python3");
    let report = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && report.starts_with("identical "),
        "{report}{errors}"
    );
}

#[test]
fn imported_haproxy_file_behaves_like_haproxy() {
    compare("haproxy", "rules.haproxy.cfg");
}

#[test]
fn imported_nginx_file_behaves_like_nginx() {
    compare("nginx", "locations.nginx.conf");
}

#[test]
fn imported_server_rules_behave_like_haproxy() {
    compare("haproxy", "servers.haproxy.cfg");
}

#[test]
fn imported_rewrites_and_shares_behave_like_nginx() {
    compare("nginx", "rewrites.nginx.conf");
}

#[test]
fn imported_guide_examples_behave_like_nginx() {
    compare("nginx", "guides.nginx.conf");
}

#[test]
fn imported_pages_and_visitor_cookies_behave_like_nginx() {
    compare("nginx", "pages.nginx.conf");
}

#[test]
fn imported_splits_and_file_tests_behave_like_nginx() {
    compare("nginx", "splits.nginx.conf");
}

#[test]
fn imported_cookies_of_applications_behave_like_haproxy() {
    compare("haproxy", "cookies.haproxy.cfg");
}
