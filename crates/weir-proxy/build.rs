//! Sets `cfg(without_metrics)` if `WEIR_WITHOUT_METRICS` is set. Such a build does not count exchanges.
//!
//! `tools/bench.py --without-metrics` uses such a build to measure the cost of counting.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=WEIR_WITHOUT_METRICS");
    println!("cargo::rustc-check-cfg=cfg(without_metrics)");
    if std::env::var_os("WEIR_WITHOUT_METRICS").is_some() {
        println!("cargo::rustc-cfg=without_metrics");
    }
}
