//! Checks that the root directories of static files can be opened.

use weir_model::{Desired, Proxy, Route};

use crate::static_file::open_root;
use crate::tls::Problem;

/// Returns a problem for each directory that cannot be opened: a start or reload would fail.
pub(crate) fn problems(desired: &Desired) -> Vec<Problem> {
    let routes = desired
        .proxies
        .iter()
        .flat_map(|proxy| proxy.routes.iter().map(move |route| (proxy, route)));
    let problems = routes.filter_map(|(proxy, route)| {
        let files = route.files()?;
        let error = open_root(&files.root).err()?;
        Some(Problem {
            fatal: true,
            message: format!(
                "service {}: cannot open {}: {error}",
                proxy.name, files.root
            ),
            cause: "the daemon cannot start or reload with this configuration".to_owned(),
            fix: "create the directory and make it readable by the user that runs Weir".to_owned(),
            source: route.source,
        })
    });
    problems.collect()
}

/// Checks that the directories that a service's routes serve can be opened.
pub(crate) fn check_roots(proxy: &Proxy) -> crate::Result<()> {
    for files in proxy.routes.iter().filter_map(Route::files) {
        open_root(&files.root).map_err(|source| crate::Error::Directory {
            service: proxy.name.clone(),
            directory: files.root.clone(),
            source,
        })?;
    }
    Ok(())
}
