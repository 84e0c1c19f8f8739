//! Executes ipvsadm's requests about flow synchronization if this process synchronizes flows.

use weir_engine_host::FlowSynchronizer;

use crate::ipvsadm_message::{Request, Response};

/// Returns the response to a request about synchronization daemons; `None` = this is a different request, or this
/// process does not synchronize flows.
pub(super) fn respond_to_ipvsadm(
    sync: &mut FlowSynchronizer,
    request: &Request,
) -> Option<Response> {
    match request {
        Request::Daemons => sync.daemons().map(Response::Daemons),
        Request::Edits(edits) => {
            let result = sync.switch_daemon(edits)?;
            Some(Response::Edits(vec![result]))
        }
        Request::Listing | Request::Connections | Request::Timeouts => None,
    }
}
