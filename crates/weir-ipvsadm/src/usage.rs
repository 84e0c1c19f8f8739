//! Returns the output of `-h` and `-v`.

/// Help text for all commands and options, in Weir's wording; `{program}` is a placeholder for the program's name.
const USAGE: &str = include_str!("usage.txt");

/// Output of `-v`: the emulated version.
const VERSION: &str = "ipvsadm v1.31 2019/12/24 (compiled with popt and IPVS v1.2.1)\n";

/// Returns the output of `-h`.
pub fn usage(program: &str) -> String {
    format!("{VERSION}{}", USAGE.replace("{program}", program))
}

/// Returns the output of `-v`.
pub fn version() -> String {
    VERSION.to_owned()
}
