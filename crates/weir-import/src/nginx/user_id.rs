//! Converts `userid`, which sends a cookie with an identifier to clients without one.
//!
//! A route adds the same fields for all requests, so each route gets a second route for requests without the cookie.

use std::collections::BTreeMap;

use super::Context;
use super::header::expiry_ms;
use super::location::BlockRoute;
use super::tree::Node;
use crate::layer7::{Action, Condition, has_variable};
use crate::note::{Notes, Position};

/// The fields to add to responses to requests without the cookie.
struct UserId {
    position: Position,
    /// The name of the cookie.
    name: String,
    fields: Vec<(&'static str, String)>,
}

/// Adds a route for requests without the cookie before each route of a server block.
pub(super) fn add_routes(
    context: &mut Context<'_>,
    server: &Node,
    outer: &[Node],
    routes: &mut Vec<BlockRoute>,
    notes: &mut Notes,
) {
    let Some(user_id) = user_id(context, [server.inner(), outer], notes) else {
        return;
    };
    if routes.last().is_none_or(|route| !route.is_catch_all()) {
        // nginx also sends the cookie with its own 404 response.
        let missing = Action::Respond {
            status: 404,
            body: String::new(),
        };
        routes.push(BlockRoute::catch_all(server.position, missing));
    }
    let without_cookie = Condition {
        not: BTreeMap::from([("cookie", vec![user_id.name.clone()])]),
        ..Condition::default()
    };
    let has_limits = |route: &BlockRoute| route.edits.keys.iter().any(|key| key.key == "limits");
    if routes.iter().any(has_limits) {
        let reason = "a location's limits count requests with and without the cookie separately";
        notes.add(user_id.position, reason);
    }
    let mut all_routes = Vec::with_capacity(2 * routes.len());
    for route in routes.drain(..) {
        let responds = !matches!(route.action, Action::Restart { .. } | Action::Close);
        if let Some(extra_condition) = route
            .extra_condition
            .and(&without_cookie)
            .filter(|_| responds)
        {
            let mut first = BlockRoute {
                extra_condition,
                ..route.clone()
            };
            for (name, value) in &user_id.fields {
                first.edits.response.add(name, value, user_id.position);
            }
            all_routes.push(first);
        }
        all_routes.push(route);
    }
    *routes = all_routes;
}

/// Returns the cookie that `userid` sets, or `None` if it is off or has an unsupported form. `levels` begin with the
/// innermost.
fn user_id(context: &mut Context<'_>, levels: [&[Node]; 2], notes: &mut Notes) -> Option<UserId> {
    let find = |keyword: &str| {
        let mut levels = levels.iter();
        levels.find_map(|nodes| nodes.iter().rev().find(|line| line.keyword() == keyword))
    };
    let on = find("userid").filter(|line| line.word(1) == Some("on"))?;
    let mut text = |keyword: &str, none: &str| {
        let line = find(keyword)?;
        let value = line.word(1)?;
        if has_variable(value) {
            line.reject(notes, "the value contains a name in braces");
            return None;
        }
        context.used.insert(line.position);
        (value != none).then(|| value.to_owned())
    };
    let name = text("userid_name", "").unwrap_or_else(|| "uid".to_owned());
    let mut cookie = format!("{name}={{request_id}}");
    match text("userid_expires", "off").as_deref() {
        Some("max") => cookie.push_str("; Expires=Thu, 31-Dec-37 23:55:55 GMT"),
        Some(time) => {
            let seconds = expiry_ms(time)? / 1000;
            cookie.push_str(&format!("; Max-Age={seconds}"));
        }
        None => {}
    }
    if let Some(domain) = text("userid_domain", "none") {
        cookie.push_str(&format!("; Domain={domain}"));
    }
    let path = text("userid_path", "").unwrap_or_else(|| "/".to_owned());
    cookie.push_str(&format!("; Path={path}"));
    let mut fields = vec![("Set-Cookie", cookie)];
    fields.extend(text("userid_p3p", "none").map(|policy| ("P3P", policy)));
    context.used.insert(on.position);
    notes.remark(
        on.position,
        "the value is Weir's identifier of the request, in a different format than nginx's",
    );
    Some(UserId {
        position: on.position,
        name,
        fields,
    })
}
