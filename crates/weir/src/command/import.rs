//! `weir import`.

use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;

use weir_control::import::{RESOLVING, with_names};
use weir_import::Imported;

use super::Outcome;
use crate::arguments::{Import, ImportFrom};
use crate::failure::{Failure, advised};

pub(super) fn import(import: &Import) -> Outcome {
    let text = read(&import.file)?;
    // Files that it includes are found relative to it.
    let name = import.file.to_string_lossy();
    let (imported, late) = with_names(|machine| match import.from {
        ImportFrom::Ipvsadm => {
            let imported = weir_ipvsadm::import(&text, machine);
            Imported {
                toml: imported.toml,
                notes: imported.notes,
                unguarded: Vec::new(),
            }
        }
        ImportFrom::Keepalived => weir_import::keepalived(&name, &text, machine),
        ImportFrom::Ldirectord => weir_import::ldirectord(&name, &text, machine),
        ImportFrom::Haproxy => weir_import::haproxy(&name, &text, machine),
        ImportFrom::Nginx => weir_import::nginx(&name, &text, machine),
    });
    let Imported {
        toml,
        notes,
        unguarded,
    } = imported;
    for note in notes.iter().filter(|note| !unguarded.contains(note)) {
        eprintln!("{note}");
    }
    if !late.is_empty() {
        let seconds = RESOLVING.as_secs();
        let names = late.join(", ");
        eprintln!(
            "the name servers did not answer within {seconds} s for {names}; each line above that names one of them is incomplete: \
             run the import again, or write addresses"
        );
    }
    print!("{toml}");
    if unguarded.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    // Last, where it is read.
    eprintln!(
        "\nBEHAVIOUR CHANGES: these lines of {name} refuse, limit or authenticate clients, and are not carried over as they were:"
    );
    for note in &unguarded {
        eprintln!("  {note}");
    }
    if import.accept_losses {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "weir.toml may let in clients that {name} keeps out; --accept-losses ends with 0 all the same"
    );
    Ok(ExitCode::FAILURE)
}

fn read(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let done = if path == Path::new("-") {
        io::stdin().read_to_string(&mut text).map(drop)
    } else {
        std::fs::read_to_string(path).map(|read| text = read)
    };
    done.map_err(|error| Failure::Failed {
        message: format!("{}: {}", path.display(), advised(&error)),
    })?;
    Ok(text)
}
