//! Applies routes that rewrite the path and restart route selection with the new path, like nginx's `rewrite … last`.

use std::net::SocketAddr;

use weir_model::{NormalizePath, RestartAt, Route, RouteAction};

use super::{RequestId, RouteInput, RouteTable, TemplateContext, rewrite_path};
use crate::parse_error::ParseError;
use crate::path::{RequestPath, normalize};

/// Maximum number of rewrites per request; nginx has the same limit (`NGX_HTTP_MAX_URI_CHANGES`). A request that needs
/// more rewrites gets a response with status 500.
pub const MAX_RESTARTS: usize = 10;

/// The path that a route is chosen for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartedPath {
    /// Whether the path was rewritten; `buffer` then contains the new path.
    is_rewritten: bool,
    /// Index of the first route that is considered.
    first_route: u32,
}

impl RestartedPath {
    /// Returns the path. `buffer` must be the buffer that was passed to [`RouteTable::apply_restarts`].
    pub fn target<'a>(self, received: RequestPath<'a>, buffer: &'a [u8]) -> RequestPath<'a> {
        match self.is_rewritten {
            true => RequestPath::from_rewrite(buffer, self.first_route),
            false => received.from_route(self.first_route),
        }
    }
}

impl RouteTable {
    /// Applies the routes with `restart` to a request, until another kind of route matches, no route matches, or the
    /// path was rewritten [`MAX_RESTARTS`] times. Calls `on_rewrite` with the index of each route that rewrites the
    /// path, and the new path. `buffer` receives the last new path.
    ///
    /// New paths are normalized by the same rules as received paths.
    ///
    /// # Errors
    /// Fails if a new path has an escape that the rules reject.
    pub fn apply_restarts(
        &self,
        route_input: &RouteInput<'_>,
        rules: Option<&NormalizePath>,
        buffer: &mut Vec<u8>,
        mut on_rewrite: impl FnMut(usize, &[u8]),
    ) -> Result<RestartedPath, ParseError> {
        let mut count = 0;
        let mut first_route = 0;
        while count < MAX_RESTARTS {
            let target = match count {
                0 => route_input.target.from_route(first_route),
                _ => RequestPath::from_rewrite(buffer, first_route),
            };
            let route_input = RouteInput {
                target: &target,
                ..*route_input
            };
            let Some(route_index) = self.choose(&route_input) else {
                break;
            };
            let Some(route) = self.routes().get(route_index) else {
                break;
            };
            let RouteAction::Restart(restart_at) = route.action else {
                break;
            };
            let next = u32::try_from(route_index + 1).unwrap_or(u32::MAX);
            let Some(mut path) = new_path(route, &route_input) else {
                first_route = next;
                continue;
            };
            if let Some(rules) = rules {
                let mut normalized = Vec::new();
                path = normalize(&path, rules, &mut normalized)?
                    .as_bytes()
                    .to_vec();
            }
            on_rewrite(route_index, &path);
            *buffer = path;
            count += 1;
            first_route = match restart_at {
                RestartAt::First => 0,
                RestartAt::Next => next,
            };
        }
        Ok(RestartedPath {
            is_rewritten: count > 0,
            first_route,
        })
    }
}

/// Returns the path to which a route rewrites a request's path, or `None` if the route does not rewrite the path. The
/// configuration rejects variables that have no value at this point.
fn new_path(route: &Route, route_input: &RouteInput<'_>) -> Option<Vec<u8>> {
    let template_context = TemplateContext {
        route_input: *route_input,
        client: SocketAddr::new(route_input.client, 0),
        port: 0,
        default_host: b"",
        request_id: RequestId::Generated(0),
        server: None,
        pool: "",
        route: Some(route),
        regex: None,
    };
    rewrite_path(route.edits.path.as_ref()?, &template_context)
}

#[cfg(test)]
mod tests;
