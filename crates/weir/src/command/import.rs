//! `weir import`.

use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;

use weir_control::import::Machine;
use weir_control::ipvsadm::HostNames;

use super::Outcome;
use crate::arguments::{Import, ImportFrom};
use crate::failure::Failure;

pub(super) fn import(import: &Import) -> Outcome {
    let text = read(&import.file)?;
    // Files that it includes are found relative to it.
    let name = import.file.to_string_lossy();
    let (toml, notes) = match import.from {
        ImportFrom::Ipvsadm => {
            let imported = weir_ipvsadm::import(&text, &HostNames);
            (imported.toml, imported.notes)
        }
        ImportFrom::Keepalived => parts(weir_import::keepalived(&name, &text, &Machine)),
        ImportFrom::Ldirectord => parts(weir_import::ldirectord(&name, &text, &Machine)),
        ImportFrom::Haproxy => parts(weir_import::haproxy(&name, &text, &Machine)),
        ImportFrom::Nginx => parts(weir_import::nginx(&name, &text, &Machine)),
    };
    for note in &notes {
        eprintln!("{note}");
    }
    print!("{toml}");
    Ok(ExitCode::SUCCESS)
}

fn parts(imported: weir_import::Imported) -> (String, Vec<String>) {
    (imported.toml, imported.notes)
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
