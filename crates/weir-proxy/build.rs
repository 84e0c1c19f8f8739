//! `WEIR_WITHOUT_METRICS` makes a build that counts no exchanges: `tools/bench.py --without-metrics` measures the cost
//! of counting with it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=WEIR_WITHOUT_METRICS");
    println!("cargo::rustc-check-cfg=cfg(without_metrics)");
    if std::env::var_os("WEIR_WITHOUT_METRICS").is_some() {
        println!("cargo::rustc-cfg=without_metrics");
    }
}
