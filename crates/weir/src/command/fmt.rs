//! Implements `weir fmt`.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;
use std::process::ExitCode;

use super::Outcome;
use crate::arguments::GlobalOptions;
use crate::failure::Failure;
use crate::terminal;

pub(super) fn fmt(global: &GlobalOptions, file: Option<&Path>, check: bool) -> Outcome {
    let file = file.unwrap_or_else(|| global.config());
    let is_stdin = file == Path::new("-");
    let name = file.display();
    if file
        .extension()
        .is_some_and(|extension| extension == "json")
    {
        return Err(failed(format!("{name}: only TOML has a canonical form")));
    }
    let mut bytes = Vec::new();
    let result = match is_stdin {
        true => io::stdin().read_to_end(&mut bytes).map(drop),
        false => fs::read(file).map(|content| bytes = content),
    };
    result.map_err(|error| failed(format!("{name}: {error}")))?;
    let text = weir_config::load(&bytes).map_err(|error| failed(format!("{name}: {error}")))?;
    let canonical = weir_config::canonical(text).map_err(|finding| Failure::Findings {
        findings: weir_config::render(&[*finding], text, &name.to_string(), terminal::color()),
    })?;
    if check {
        if canonical == text {
            return Ok(ExitCode::SUCCESS);
        }
        return Err(failed(format!("{name} is not in canonical form")));
    }
    if is_stdin {
        terminal::print(&canonical)?;
    } else if canonical != text {
        replace(file, &canonical).map_err(|error| failed(format!("{name}: {error}")))?;
        terminal::print(&format!("changed {name}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn failed(message: String) -> Failure {
    Failure::Failed { message }
}

/// Replaces a file atomically, so that a reload never reads an incomplete file. Preserves symbolic links, the owner and
/// the mode.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let file = file.canonicalize()?;
    let metadata = file.metadata()?;
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = file.with_file_name(name);
    let write = || {
        let mut out = File::create_new(&temporary)?;
        out.set_permissions(PermissionsExt::from_mode(metadata.mode() & 0o7777))?;
        fchown(&out, Some(metadata.uid()), Some(metadata.gid()))?;
        out.write_all(text.as_bytes())?;
        out.sync_all()?;
        fs::rename(&temporary, &file)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}
