//! Implements `weir import`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use weir_control::import::{
    MAX_BYTES, RESOLVE_TIMEOUT, ipvsadm_comment, run_importer, vip_comment,
};
use weir_import::Imported;

use super::{Outcome, block_on};
use crate::arguments::{Import, ImportFrom};
use crate::failure::{Failure, with_advice};

pub(super) fn import(import: &Import) -> Outcome {
    let text = read(&import.file)?;
    let root = import.root.as_deref().map(std::path::absolute);
    let root = root.transpose()?;
    // Paths of included files are relative to the including file.
    let name = import.file.to_string_lossy();
    let (imported, unresolved_names) = run_importer(root.as_deref(), |machine| match import.from {
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
    // HAProxy and nginx listen on existing addresses; the others use VIPs, which Weir adds only with `vip_interface`.
    if !matches!(import.from, ImportFrom::Haproxy | ImportFrom::Nginx) {
        print(&block_on(vip_comment(&imported.toml))?)?;
    }
    if import.from == ImportFrom::Ipvsadm {
        print(ipvsadm_comment())?;
    }
    print(&imported.toml)?;
    report(&name, &imported, &unresolved_names);
    if imported.losses.is_empty() || import.accept_losses {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("use --accept-losses to exit with 0 anyway");
    Ok(ExitCode::FAILURE)
}

/// Writes a part of weir.toml to standard output. Ignores a broken pipe (`weir import … | head`), so that the notes are
/// still reported.
fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

/// Reports each line that was not imported: harmless ones first, and those that may admit clients last, where an
/// operator will notice them.
fn report(name: &str, imported: &Imported, unresolved_names: &[String]) {
    let Imported {
        notes,
        losses,
        unguarded,
        ..
    } = imported;
    for note in notes.iter().filter(|note| !losses.contains(note)) {
        eprintln!("{note}");
    }
    if !unresolved_names.is_empty() {
        let seconds = RESOLVE_TIMEOUT.as_secs();
        let names = unresolved_names.join(", ");
        eprintln!(
            "the name servers did not respond within {seconds} s for {names}; lines with these names are incomplete: \
             run the import again, or use addresses"
        );
    }
    if losses.len() > unguarded.len() {
        eprintln!(
            "\nBEHAVIOR CHANGES: these lines of {name} are not imported, or imported with changes:"
        );
    }
    for note in losses.iter().filter(|note| !unguarded.contains(note)) {
        eprintln!("  {note}");
    }
    if unguarded.is_empty() {
        return;
    }
    eprintln!(
        "\nBEHAVIOR CHANGES: these lines of {name} reject, limit or authenticate clients, and are not imported, or \
         imported with changes; weir.toml may admit clients that {name} rejects:"
    );
    for note in unguarded {
        eprintln!("  {note}");
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let limit = MAX_BYTES + 1;
    let result = if path == Path::new("-") {
        io::stdin().take(limit).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes))
    };
    let result = result.and_then(|read| match read as u64 > MAX_BYTES {
        true => Err(io::Error::other("the file is larger than 64 MiB")),
        false => Ok(()),
    });
    result.map_err(|error| Failure::Failed {
        message: format!("{}: {}", path.display(), with_advice(&error)),
    })?;
    // The other programs do not require UTF-8, and comments in older encodings are common.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
