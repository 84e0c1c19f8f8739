//! `-h` and `-v`.

/// Every command and option, in Weir's words; `{program}` stands for the name it was called by.
const USAGE: &str = include_str!("usage.txt");

/// `-v`: the version whose language this is.
const VERSION: &str = "ipvsadm v1.31 2019/12/24 (compiled with popt and IPVS v1.2.1)\n";

/// `-h`.
pub fn usage(program: &str) -> String {
    format!("{VERSION}{}", USAGE.replace("{program}", program))
}

/// `-v`.
pub fn version() -> String {
    VERSION.to_owned()
}
