//! Lowers the actions of routes: a pool, a split, files, a redirect, a response, a close or a restart.

use std::ops::Range;
use std::sync::Arc;

use weir_model::{Conditions, RestartAt, RouteAction, Split, Template, ValueMap, Variable};

use super::{edit, files};
use crate::catalog;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::lower::variable::{Scope, template};
use crate::suggest::nearest;
use crate::tree::Value;
use crate::view::{Sink, View};

type Text<'a> = (&'a str, &'a Range<usize>);

/// The values of the keys that determine the action.
struct ActionKeys<'a, 'v, 't> {
    view: &'a View<'v, 't>,
    pool: Option<Text<'v>>,
    redirect: Option<Text<'v>>,
    status: Option<u32>,
    body: Option<Text<'v>>,
    close: bool,
    scope: Scope<'a>,
    /// Position of the route.
    location: &'a Range<usize>,
}

pub(super) fn action(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    when: &Conditions,
    location: &Range<usize>,
) -> Option<RouteAction> {
    let is_mapped = view
        .get("pool")
        .is_some_and(|(entry, _)| matches!(entry.item.value, Value::Table(_)));
    let keys = ActionKeys {
        view,
        pool: if is_mapped {
            None
        } else {
            view.text(sink, "pool")
        },
        redirect: view.text(sink, "redirect"),
        status: view.integer(sink, "status"),
        body: view.text(sink, "body"),
        close: view.flag(sink, "close") == Some(true),
        scope: Scope {
            server: false,
            route: Some(when),
            regex: None,
        },
        location,
    };
    if keys.close {
        return keys.close(sink);
    }
    let restart = view.choice(sink, "restart", &RestartAt::ALL, RestartAt::as_str);
    if let Some(restart) = restart {
        return keys.restart(sink, restart);
    }
    keys.report_without_effect(sink, "split_by", "split");
    keys.report_without_effect(sink, "server", "pool");
    if is_mapped {
        return keys.mapped_pool(sink, when);
    }
    if view.get("files").is_some() {
        return keys.files(sink);
    }
    if view.get("split").is_some() {
        return keys.split(sink);
    }
    match (keys.pool, keys.redirect, keys.status) {
        (Some((pool, _)), _, _) => keys.pool(sink, pool),
        (None, Some(target), _) => keys.redirect(sink, target),
        (None, None, Some(status)) => {
            let body = match keys.body {
                None => Template::default(),
                Some((text, span)) => template(sink, text, span, keys.scope)?,
            };
            Some(RouteAction::Respond {
                status: u16::try_from(status).unwrap_or(500),
                body,
            })
        }
        (None, None, None) => {
            sink.push(
                Diagnostic::new(Code::MissingKey, location, "this route has no action")
                    .fix("add `pool`, `split`, `redirect`, `status`, `files` or `close`"),
            );
            None
        }
    }
}

impl ActionKeys<'_, '_, '_> {
    fn report_contradiction(&self, sink: &mut Sink<'_>, key: &str, message: &str, fix: &str) {
        let entry = self.view.get(key);
        let span = entry.map_or(self.location, |(entry, _)| &entry.key_span);
        sink.push(Diagnostic::new(Code::Contradiction, span, message).fix(fix));
    }

    fn split(&self, sink: &mut Sink<'_>) -> Option<RouteAction> {
        let text = [self.pool, self.redirect, self.body];
        if self.status.is_some() || text.iter().any(Option::is_some) {
            let message = "`split` cannot be combined with `pool`, `redirect`, `status` or `body`";
            self.report_contradiction(sink, "split", message, "remove the other keys");
        }
        let parts = edit::split(sink, self.view)?;
        let key = match self.view.text(sink, "split_by") {
            Some((text, span)) => Some(template(sink, text, span, self.scope)?),
            None => None,
        };
        Some(RouteAction::Split(Split { parts, by: key }))
    }

    /// Reports a key that has no effect without another key.
    fn report_without_effect(&self, sink: &mut Sink<'_>, key: &str, other: &str) {
        let Some((entry, _)) = self.view.get(key) else {
            return;
        };
        if self.view.get(other).is_none() {
            let message = format!("`{key}` has no effect without `{other}`");
            sink.push(
                Diagnostic::new(Code::NoEffect, &entry.key_span, message)
                    .fix(format!("remove `{key}`, or add `{other}`")),
            );
        }
    }

    /// Lowers `restart`, which requires `rewrite` and excludes actions, authentication, limits and logging.
    fn restart(&self, sink: &mut Sink<'_>, restart: RestartAt) -> Option<RouteAction> {
        let others = [
            "pool",
            "split",
            "redirect",
            "status",
            "body",
            "files",
            "basic_auth",
            "forward_auth",
            "limits",
            "max_connections",
            "access_log",
        ];
        if !self.check_without(sink, "restart", &others) {
            return None;
        }
        let Some((entry, _)) = self.view.get("rewrite") else {
            sink.push(
                Diagnostic::new(
                    Code::MissingKey,
                    self.location,
                    "`restart` requires `rewrite`",
                )
                .fix(
                    "add the path for which a route is selected, such as rewrite = \"/v2/{rest}\"",
                ),
            );
            return None;
        };
        let text = match &entry.item.value {
            Value::Table(table) => table.entries.iter().find(|entry| entry.key == "to"),
            _ => Some(entry),
        };
        if let Some(entry) = text
            && let Value::Text(text) = &entry.item.value
            && let Ok(body_template) = Template::parse(text)
            && body_template.variables().any(is_unknown_at_restart)
        {
            let message = "a `rewrite` with `restart` contains a variable that has no value yet";
            sink.push(
                Diagnostic::new(Code::UnknownValue, &entry.item.span, message)
                    .fix("use `{path}`, `{rest}`, `{1}` to `{9}`, or parts of the request head"),
            );
            return None;
        }
        Some(RouteAction::Restart(restart))
    }

    fn pool(&self, sink: &mut Sink<'_>, pool: &str) -> Option<RouteAction> {
        let fix = "remove one of them";
        if self.redirect.is_some() {
            let message = "`redirect` and `pool` are mutually exclusive";
            self.report_contradiction(sink, "redirect", message, fix);
            return None;
        }
        if self.status.is_some() {
            let message = "`status` is only valid without a pool";
            self.report_contradiction(sink, "status", message, fix);
            return None;
        }
        if self.body.is_some() {
            let message = "`body` is only valid without a pool";
            self.report_contradiction(sink, "body", message, fix);
        }
        Some(RouteAction::Pool(pool.to_owned()))
    }

    /// Returns whether none of `others`, which `key` excludes, is set; reports the first one that is set.
    fn check_without(&self, sink: &mut Sink<'_>, key: &str, others: &[&str]) -> bool {
        let conflict = others.iter().find(|other| self.view.get(other).is_some());
        if let Some(other) = conflict {
            let message = format!("`{key}` cannot be combined with `{other}`");
            self.report_contradiction(sink, key, &message, "remove one of them");
        }
        conflict.is_none()
    }

    /// Lowers `pool = { map = … }`.
    fn mapped_pool(&self, sink: &mut Sink<'_>, when: &Conditions) -> Option<RouteAction> {
        if !self.check_without(
            sink,
            "pool",
            &["split", "redirect", "status", "body", "files"],
        ) {
            return None;
        }
        let (entry, _) = self.view.get("pool")?;
        let Value::Table(table) = &entry.item.value else {
            return None;
        };
        let view = View::open(sink, &catalog::ROUTE_POOL, table, &entry.key_span);
        let (name, span) = view.text(sink, "map")?;
        let map_entry = sink.maps.iter().find(|(map, _)| map == name);
        let Some(map) = map_entry.map(|(_, map)| map.clone()) else {
            let near = nearest(name, sink.maps.iter().map(|(map, _)| map.as_str()));
            let fix = near.map_or_else(
                || format!("add [map.{}]", name.escape_debug()),
                |near| format!("did you mean `{near}`?"),
            );
            let message = format!("map `{}` does not exist", name.escape_debug());
            sink.push(Diagnostic::new(Code::UnknownValue, span, message).fix(fix));
            return None;
        };
        // A map with an error was already reported.
        let mut map = ValueMap::clone(&*map?);
        if let Some((text, span)) = view.text(sink, "key") {
            let scope = Scope {
                server: false,
                route: Some(when),
                regex: None,
            };
            map.key = template(sink, text, span, scope)?;
        }
        if let Some((pool, _)) = view.text(sink, "default") {
            map.default = Some(pool.to_owned());
        }
        Some(RouteAction::Mapped(Arc::new(map)))
    }

    fn files(&self, sink: &mut Sink<'_>) -> Option<RouteAction> {
        if !self.check_without(sink, "files", &["pool", "split", "redirect", "body"]) {
            return None;
        }
        let files = files::files(sink, self.view, self.status)?;
        Some(RouteAction::Files(Arc::new(files)))
    }

    fn close(&self, sink: &mut Sink<'_>) -> Option<RouteAction> {
        let others = ["pool", "split", "redirect", "status", "body", "files"];
        if others.iter().any(|key| self.view.get(key).is_some()) {
            let message = "`close` cannot be combined with `pool`, `split`, `redirect`, `status`, `body` or `files`";
            self.report_contradiction(sink, "close", message, "remove the other keys");
            return None;
        }
        Some(RouteAction::Close)
    }

    fn redirect(&self, sink: &mut Sink<'_>, (to, span): Text<'_>) -> Option<RouteAction> {
        let status = self.status.unwrap_or(302);
        if !(300..=399).contains(&status) || status == 304 {
            let message = format!("{status} is not a redirect status");
            let fix = "use 301, 302, 303, 307 or 308";
            self.report_contradiction(sink, "status", &message, fix);
        }
        if self.body.is_some() {
            self.report_contradiction(
                sink,
                "body",
                "`body` is not valid with `redirect`",
                "remove it",
            );
        }
        if to.is_empty() || !to.bytes().all(|byte| byte > b' ' && byte < 0x7f) {
            sink.push(
                Diagnostic::new(Code::BadName, span, "invalid redirect target")
                    .fix("write a URL such as \"https://{host}{path}\""),
            );
            return None;
        }
        let to = template(sink, to, span, self.scope)?;
        // In a redirect, `{path}` includes the query unless `{query}` is used.
        let has_query = to.variables().any(|variable| *variable == Variable::Query);
        let to = match has_query {
            true => to,
            false => to.replacing(&Variable::Path, &Variable::PathAndQuery),
        };
        Some(RouteAction::Redirect {
            to,
            status: u16::try_from(status).unwrap_or(302),
        })
    }
}

/// Returns whether the variable is not allowed in a `rewrite` with `restart`.
const fn is_unknown_at_restart(variable: &Variable) -> bool {
    match variable {
        Variable::ClientPort
        | Variable::ListenPort
        | Variable::RequestId
        | Variable::Route
        | Variable::Scheme
        | Variable::Server
        | Variable::Pool
        | Variable::Map(_) => true,
        Variable::Client
        | Variable::ForwardedFor
        | Variable::Cookie(_)
        | Variable::Host
        | Variable::Path
        | Variable::PathAndQuery
        | Variable::Query
        | Variable::Method
        | Variable::TlsVersion
        | Variable::TlsCipher
        | Variable::TlsSni
        | Variable::ClientCertSubject
        | Variable::Header(_)
        | Variable::Group(_)
        | Variable::Rest => false,
    }
}
