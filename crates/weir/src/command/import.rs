//! `weir import`.

use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;

use weir_control::ipvsadm::HostNames;

use super::Outcome;
use crate::arguments::{Import, ImportFrom};
use crate::failure::Failure;

pub(super) fn import(import: &Import) -> Outcome {
    match import.from {
        ImportFrom::Ipvsadm => {}
        ImportFrom::Keepalived => return Err(Failure::not_built("import keepalived")),
        ImportFrom::Ldirectord => return Err(Failure::not_built("import ldirectord")),
        ImportFrom::Haproxy => return Err(Failure::not_built("import haproxy")),
        ImportFrom::Nginx => return Err(Failure::not_built("import nginx")),
    }
    let text = read(&import.file)?;
    let imported = weir_ipvsadm::import(&text, &HostNames);
    for note in &imported.notes {
        eprintln!("{note}");
    }
    print!("{}", imported.toml);
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let done = if path == Path::new("-") {
        io::stdin().read_to_string(&mut text).map(drop)
    } else {
        std::fs::read_to_string(path).map(|read| text = read)
    };
    done.map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
    Ok(text)
}
