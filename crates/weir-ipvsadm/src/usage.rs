//! `-h` and `-v`.

/// All commands and options, in Weir's wording; `{program}` is replaced by the program's name.
const USAGE: &str = include_str!("usage.txt");

/// `-v`: the emulated version.
const VERSION: &str = "ipvsadm v1.31 2019/12/24 (compiled with popt and IPVS v1.2.1)\n";

/// `-h`.
pub fn usage(program: &str) -> String {
    format!("{VERSION}{}", USAGE.replace("{program}", program))
}

/// `-v`.
pub fn version() -> String {
    VERSION.to_owned()
}
