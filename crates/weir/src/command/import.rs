//! `weir import`.

use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;

use weir_control::import::{RESOLVING, about_vips, with_names};
use weir_import::Imported;

use super::{Outcome, block_on};
use crate::arguments::{Import, ImportFrom};
use crate::failure::{Failure, advised};

pub(super) fn import(import: &Import) -> Outcome {
    let text = read(&import.file)?;
    let root = import.root.as_deref().map(std::path::absolute);
    let root = root.transpose()?;
    // Files that it includes are found relative to it.
    let name = import.file.to_string_lossy();
    let (imported, late) = with_names(root.as_deref(), |machine| match import.from {
        ImportFrom::Ipvsadm => {
            let imported = weir_ipvsadm::import(&text, machine);
            Imported {
                toml: imported.toml,
                notes: imported.notes,
                losses: imported.losses,
                unguarded: Vec::new(),
            }
        }
        ImportFrom::Keepalived => weir_import::keepalived(&name, &text, machine),
        ImportFrom::Ldirectord => weir_import::ldirectord(&name, &text, machine),
        ImportFrom::Haproxy => weir_import::haproxy(&name, &text, machine),
        ImportFrom::Nginx => weir_import::nginx(&name, &text, machine),
    });
    // The others' proxies listen on addresses that are there, and each of these programs expects VIPs.
    if !matches!(import.from, ImportFrom::Haproxy | ImportFrom::Nginx) {
        print!("{}", block_on(about_vips(&imported.toml))?);
    }
    print!("{}", imported.toml);
    report(&name, &imported, &late);
    if imported.losses.is_empty() || import.accept_losses {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("--accept-losses ends with 0 all the same");
    Ok(ExitCode::FAILURE)
}

/// Line by line what was not carried over: what changes nothing first, and last, where it is read, what lets clients in.
fn report(name: &str, imported: &Imported, late: &[String]) {
    let Imported {
        notes,
        losses,
        unguarded,
        ..
    } = imported;
    for note in notes.iter().filter(|note| !losses.contains(note)) {
        eprintln!("{note}");
    }
    if !late.is_empty() {
        let seconds = RESOLVING.as_secs();
        let names = late.join(", ");
        eprintln!(
            "the name servers did not answer within {seconds} s for {names}; each line that names one of them is incomplete: \
             run the import again, or write addresses"
        );
    }
    if losses.len() > unguarded.len() {
        eprintln!("\nBEHAVIOUR CHANGES: these lines of {name} are not carried over as they were:");
    }
    for note in losses.iter().filter(|note| !unguarded.contains(note)) {
        eprintln!("  {note}");
    }
    if unguarded.is_empty() {
        return;
    }
    eprintln!(
        "\nBEHAVIOUR CHANGES: these lines of {name} refuse, limit or authenticate clients, and are not carried over as they were; \
         weir.toml may let in clients that {name} keeps out:"
    );
    for note in unguarded {
        eprintln!("  {note}");
    }
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
