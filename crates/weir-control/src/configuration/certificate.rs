//! Files that a configuration names: certificates that are unreadable, mismatched, expired, or soon to be; tokens.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::SystemTime;

use weir_config::Desired;
use weir_proxy::Problem;

use super::{Finding, Loaded, Rejected};
use crate::api::{TokenFileError, named_tokens};

/// Checks the files of `desired`.
pub fn doubtful_certificates(desired: &Desired) -> Vec<Problem> {
    let mut doubts = weir_proxy::inspect(desired, SystemTime::now());
    doubts.extend(doubtful_tokens(desired));
    doubts
}

fn doubtful_tokens(desired: &Desired) -> Option<Problem> {
    let admin = desired.node.admin.as_ref()?;
    let error = named_tokens(Path::new(admin.tokens.as_ref()?)).err()?;
    // The daemon may run as another user.
    let fatal = !matches!(
        error,
        TokenFileError::Owner { .. } | TokenFileError::File { .. }
    );
    Some(Problem {
        fatal,
        message: format!("[node] admin: {error}"),
        cause: "neither start nor reload accepts it".to_owned(),
        fix: "make the file with `weir token add NAME --role ROLE --file FILE`".to_owned(),
        source: admin.source,
    })
}

/// Rejects a configuration whose files would make a start or reload fail. `path` is its own file.
///
/// # Errors
/// Every such file, with the place where it is named.
pub fn with_usable_files(loaded: Loaded, path: &Path) -> Result<Loaded, Rejected> {
    let doubts = doubtful_certificates(&loaded.desired);
    refusing(loaded, doubts, path)
}

/// Rejects a configuration whose addresses are used by other programs; `held` are the daemon's own.
///
/// # Errors
/// Every such address, with its service's place.
pub fn with_free_listeners(
    loaded: Loaded,
    held: &BTreeSet<SocketAddr>,
    path: &Path,
) -> Result<Loaded, Rejected> {
    let doubts = weir_proxy::inspect_listeners(&loaded.desired, held, true);
    refusing(loaded, doubts, path)
}

/// Addresses that other programs listen on now.
pub fn occupied_listeners(desired: &Desired) -> Vec<Problem> {
    weir_proxy::inspect_listeners(desired, &BTreeSet::new(), false)
}

fn refusing(loaded: Loaded, doubts: Vec<Problem>, path: &Path) -> Result<Loaded, Rejected> {
    let fatal: Vec<Problem> = doubts.into_iter().filter(|doubt| doubt.fatal).collect();
    let Some(first) = fatal.first() else {
        return Ok(loaded);
    };
    let name = path.display().to_string();
    let at = first.source;
    let desired = &loaded.desired;
    let of = |doubt: &Problem| desired.file_name(doubt.source, &name).to_owned();
    let file = of(first);
    let summary = format!("{file}:{}:{}: {}", at.line, at.column, first.message);
    let found = Finding::grouped(
        fatal
            .iter()
            .map(|doubt| Finding::of_doubt(doubt, &of(doubt))),
    );
    let rendered: String = found.iter().map(Finding::render).collect();
    Err(Rejected {
        summary: match fatal.len() {
            1 => summary,
            more => format!("{summary}, and {} more", more - 1),
        },
        diagnostics: loaded.findings + &rendered,
        found: loaded.found.into_iter().chain(found).collect(),
    })
}
