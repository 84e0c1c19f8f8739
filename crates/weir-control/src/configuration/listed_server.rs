//! Adds the servers of lists to a configuration that no daemon applies.

use std::path::Path;

use weir_discovery::Membership;
use weir_model::Desired;

/// Returns a configuration plus the servers that a daemon with this runtime directory would add to it, if they are
/// known: those in the current `servers_file`, and those that a daemon has stored for the pool, which come from the API
/// and from DNS. Does not resolve names.
pub fn with_listed_servers(desired: &Desired, runtime_dir: &Path) -> Desired {
    let lists = Membership::new(runtime_dir).read_for_reload(desired);
    lists.added_to(desired)
}
