//! Computes plans.

use super::{Director, to_api_error};
use crate::api::{ApiError, Caller, FileRequest};
use crate::configuration::{self, Finding, ListeningProcess, Rejected};
use crate::daemon::host_warning::{
    add_return_path_warnings, attached_interfaces, displayed_path, host_warnings,
};
use crate::plan::{Plan, plan};
use crate::plane::Plane;

impl<P: Plane> Director<P> {
    /// Returns the changes that a reload would make.
    pub(super) async fn plan(
        &self,
        request: &FileRequest,
        caller: &Caller,
    ) -> Result<Plan, ApiError> {
        let (path, loaded) = self.load(request, caller)?;
        if let Some(conflict) = self.plane.listener_conflict(&loaded.desired) {
            return Err(ApiError::new(format!("{}:{conflict}", path.display())));
        }
        let own_listeners = configuration::own_listeners(&self.desired);
        let display_path = displayed_path(request, &path);
        let process = ListeningProcess::ThisDaemon(&own_listeners);
        let loaded = configuration::with_free_listeners(loaded, process, display_path);
        let loaded = match caller.is_owner() || request.text.is_some() {
            true => loaded,
            false => loaded.map_err(Rejected::without_quotes),
        };
        let loaded = loaded.map_err(to_api_error)?;
        let live = |service: &str, server: Option<&str>| self.plane.live_flows(service, server);
        let lists = self.membership.read_for_reload(&loaded.desired);
        let desired = lists.added_to(&loaded.desired);
        let added = self.plane.added_vips();
        let mut planned = plan(&self.desired, &desired, &live, &added);
        // The plan already contains warnings about VIPs that will be removed.
        let attached = attached_interfaces(&self.plane, &self.desired, &desired);
        let mut warnings = host_warnings(&desired, &[], &attached, request, &path).await;
        let versions = (&self.desired, &desired);
        add_return_path_warnings(&mut warnings, &self.plane, versions, request, &path);
        let found = warnings.iter().chain(loaded.found_on_host());
        planned.warnings.extend(Finding::warning_lines(found));
        Ok(planned)
    }
}
