//! Lowers the route settings that replace or supplement those of the service.

use weir_model::{Conditions, Mirror, RouteOptions, RouteTimeouts};

use super::files::has_pool;
use super::forward_auth;
use super::limit::limits;
use crate::catalog;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::Kind;
use crate::lower::{basic_auth, response, retry};
use crate::tree::{Item, Value};
use crate::view::{Sink, View, text, wrong_type};

/// Keys that only apply to requests that are sent to a server.
const SERVER_KEYS: [&str; 8] = [
    "timeouts",
    "retries",
    "retry_on",
    "max_body",
    "compression",
    "x_forwarded",
    "mirror",
    "server",
];
/// Keys that apply to every action except `close`.
const ADMISSION_KEYS: [&str; 4] = ["basic_auth", "forward_auth", "limits", "max_connections"];

pub(super) fn options(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    when: &Conditions,
) -> Option<Box<RouteOptions>> {
    let reaches_server =
        view.get("pool").is_some() || view.get("split").is_some() || has_pool(view);
    for key in SERVER_KEYS {
        if let Some((entry, _)) = view.get(key)
            && !reaches_server
        {
            let message = format!("`{key}` has no effect: the request is not sent to a server");
            sink.push(
                Diagnostic::new(Code::NoEffect, &entry.key_span, message)
                    .fix(format!("remove `{key}`, or add a `pool`")),
            );
        }
    }
    let closes = view.flag(sink, "close") == Some(true);
    for key in ADMISSION_KEYS {
        if let Some((entry, _)) = view.get(key)
            && closes
        {
            let message = format!("`{key}` has no effect: the connection is closed");
            sink.push(
                Diagnostic::new(Code::NoEffect, &entry.key_span, message)
                    .fix(format!("remove `{key}` or `close`")),
            );
        }
    }
    let options = RouteOptions {
        timeouts: timeouts(sink, view),
        retries: view.integer(sink, "retries"),
        max_body: view.size(sink, "max_body"),
        compression: view
            .get("compression")
            .map(|_| response::compression(sink, view)),
        access_log: view.flag(sink, "access_log"),
        basic_auth: basic_auth::basic_auth(sink, view),
        retry_on: view.get("retry_on").map(|_| retry::retry_on(sink, view)),
        limits: limits(sink, view),
        max_connections: view.integer(sink, "max_connections").unwrap_or(0),
        x_forwarded: response::x_forwarded(sink, view),
        mirrors: mirrors(sink, view),
        server: view.text(sink, "server").map(|(name, _)| name.to_owned()),
        forward_auth: forward_auth::forward_auth(sink, view, when),
    };
    (options != RouteOptions::default()).then(|| Box::new(options))
}

fn timeouts(sink: &mut Sink<'_>, view: &View<'_, '_>) -> RouteTimeouts {
    let Some((entry, kind)) = view.get("timeouts") else {
        return RouteTimeouts::default();
    };
    let Value::Table(table) = &entry.item.value else {
        sink.push(wrong_type(&entry.item, kind));
        return RouteTimeouts::default();
    };
    let view = View::open(sink, &catalog::ROUTE_TIMEOUTS, table, &entry.key_span);
    RouteTimeouts {
        client: view.duration(sink, "client"),
        connect: view.duration(sink, "connect"),
        server: view.duration(sink, "server"),
        response: view.duration(sink, "response"),
        tunnel: view.duration(sink, "tunnel"),
        total: view.duration(sink, "total"),
    }
}

/// Lowers `mirror`: a pool, a table with a pool, or a list of these.
fn mirrors(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Vec<Mirror> {
    let Some((entry, kind)) = view.get("mirror") else {
        return Vec::new();
    };
    let items = match &entry.item.value {
        Value::List(items) => items.as_slice(),
        _ => std::slice::from_ref(&entry.item),
    };
    if items.len() > Mirror::MAX {
        let message = format!("a route can have at most {} mirrors", Mirror::MAX);
        let found = Diagnostic::new(Code::OutOfRange, &entry.item.span, message);
        sink.push(found.fix("remove some of the mirrors"));
    }
    let mirrors = items.iter();
    mirrors
        .filter_map(|item| mirror(sink, item, kind))
        .collect()
}

fn mirror(sink: &mut Sink<'_>, item: &Item<'_>, kind: &Kind) -> Option<Mirror> {
    let table = match &item.value {
        Value::Text(_) => {
            return text(sink, item, &Kind::PoolName).map(|(pool, _)| Mirror::new(pool));
        }
        Value::Table(table) => table,
        _ => {
            sink.push(wrong_type(item, kind));
            return None;
        }
    };
    let view = View::open(sink, &catalog::ROUTE_MIRROR, table, &item.span);
    let share = view.factor(sink, "percent");
    let body = view.size(sink, "body");
    let concurrent = view.integer(sink, "concurrent");
    let path = view.text(sink, "path");
    if let Some((text, span)) = path
        && !(text.starts_with('/')
            && text
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte)))
    {
        let message = format!("invalid path `{}`", text.escape_debug());
        let found = Diagnostic::new(Code::BadName, span, message);
        sink.push(found.fix("write a path such as \"/copies\", without a query"));
    }
    let (pool, _) = view.text(sink, "pool")?;
    let default = Mirror::new(pool);
    Some(Mirror {
        share: share.unwrap_or(default.share),
        body: body.unwrap_or(default.body),
        concurrent: concurrent.unwrap_or(default.concurrent),
        path: path.map(|(path, _)| path.to_owned()),
        pool: default.pool,
    })
}
