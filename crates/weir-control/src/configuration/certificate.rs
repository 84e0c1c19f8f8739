//! Checks that the files of a configuration are usable, and that its listening addresses are free.
//!
//! The files are the token file and certificates. Certificates can be unreadable, mismatched, expired or about to
//! expire. An address is not free if another program listens on it.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::time::SystemTime;

use weir_config::Desired;
use weir_proxy::Problem;

use super::{Finding, Loaded, Rejected};
use crate::api::{TokenFileError, named_tokens};

/// Returns the problems with the files that `desired` references, including certificates that will expire soon.
pub fn certificate_problems(desired: &Desired) -> Vec<Problem> {
    let mut problems = weir_proxy::inspect(desired, SystemTime::now());
    problems.extend(token_problem(desired));
    problems
}

fn token_problem(desired: &Desired) -> Option<Problem> {
    let admin = desired.node.admin.as_ref()?;
    let error = named_tokens(Path::new(admin.tokens.as_ref()?)).err()?;
    // The daemon may run as a different user, for which some of these errors do not occur.
    let fatal = match &error {
        TokenFileError::Owner { .. } => false,
        TokenFileError::File { source, .. } => source.kind() == ErrorKind::NotFound,
        _ => true,
    };
    Some(Problem {
        fatal,
        message: format!("[node] admin: {error}"),
        cause: "the daemon rejects the file at startup and at reload".to_owned(),
        fix: match &error {
            TokenFileError::File { source, .. } if source.kind() == ErrorKind::NotFound => {
                "create the file with `weir token add NAME --role ROLE --file FILE`"
            }
            _ => "correct the file; `weir token add NAME --role ROLE --file FILE` adds a token",
        }
        .to_owned(),
        source: admin.source,
    })
}

/// Returns an error if a file that the configuration references would cause startup or a reload to fail. Otherwise,
/// adds the problems that are only warnings to the findings. `path` is the configuration file.
///
/// # Errors
/// Reports every such file, with the position of the reference.
pub fn with_usable_files(loaded: Loaded, path: &Path) -> Result<Loaded, Rejected> {
    let problems = certificate_problems(&loaded.desired);
    let mut loaded = reject_if_fatal(loaded, problems.clone(), path)?;
    let new_findings = findings(&loaded.desired, &problems, path);
    loaded
        .findings
        .extend(new_findings.iter().map(Finding::render));
    loaded.warnings += new_findings.len();
    loaded.found.extend(new_findings);
    Ok(loaded)
}

/// The process that listens on the addresses of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListeningProcess<'a> {
    /// This daemon, which has these listeners now.
    ThisDaemon(&'a BTreeSet<SocketAddr>),
    /// A daemon that is not running yet. It may have permissions that this process does not have.
    NextDaemon,
}

/// Returns an error if other programs listen on addresses in the configuration, or if this daemon lacks the permission
/// to listen.
///
/// # Errors
/// Reports every such address, with the position of its service.
pub fn with_free_listeners(
    loaded: Loaded,
    process: ListeningProcess<'_>,
    path: &Path,
) -> Result<Loaded, Rejected> {
    let problems = match process {
        ListeningProcess::ThisDaemon(own_listeners) => {
            weir_proxy::inspect_listeners(&loaded.desired, own_listeners, true)
        }
        ListeningProcess::NextDaemon => occupied_listeners(&loaded.desired, &BTreeSet::new()),
    };
    reject_if_fatal(loaded, problems, path)
}

/// Returns a problem for each address that another program listens on. `own_listeners` are the daemon's listeners.
pub fn occupied_listeners(desired: &Desired, own_listeners: &BTreeSet<SocketAddr>) -> Vec<Problem> {
    weir_proxy::inspect_listeners(desired, own_listeners, false)
}

/// Returns the addresses that a configuration's proxy services and API listen on.
pub fn own_listeners(desired: &Desired) -> BTreeSet<SocketAddr> {
    let proxies = desired.proxies.iter().flat_map(|proxy| &proxy.listen);
    let admin = desired.node.admin.iter().map(|admin| &admin.listen);
    proxies.chain(admin).copied().collect()
}

/// Returns the findings for problems, with similar ones merged.
pub fn findings(desired: &Desired, problems: &[Problem], path: &Path) -> Vec<Finding> {
    let name = path.display().to_string();
    Finding::merge_similar(
        problems.iter().map(|problem| {
            Finding::from_problem(problem, desired.file_name(problem.source, &name))
        }),
    )
}

pub(super) fn reject_if_fatal(
    loaded: Loaded,
    problems: Vec<Problem>,
    path: &Path,
) -> Result<Loaded, Rejected> {
    let fatal: Vec<Problem> = problems
        .into_iter()
        .filter(|problem| problem.fatal)
        .collect();
    let Some(first) = fatal.first() else {
        return Ok(loaded);
    };
    let name = path.display().to_string();
    let source = first.source;
    let desired = &loaded.desired;
    let file = desired.file_name(source, &name);
    let summary = format!(
        "{file}:{}:{}: {}",
        source.line, source.column, first.message
    );
    let found = findings(desired, &fatal, path);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_token_file_is_fatal() {
        let text =
            "[node]\nadmin = { listen = \"127.0.0.1:9900\", tokens = \"/nonexistent/tokens\" }\n";
        let parsed = weir_config::parse(text, &weir_config::Host::default());
        let desired = parsed.expect("parse the configuration").desired;
        let problem = token_problem(&desired).expect("find a problem");
        assert!(problem.fatal, "{problem:?}");
        assert!(
            problem
                .message
                .contains("/nonexistent/tokens: No such file")
        );
    }
}
