//! Actions of routes: a pool, a split, a redirect, or a response.

use std::ops::Range;

use weir_model::RouteAction;

use super::edit;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::lower::variable;
use crate::view::{Sink, View};

/// Status codes of redirects.
const REDIRECTS: [u32; 5] = [301, 302, 303, 307, 308];

type Text<'a> = (&'a str, &'a Range<usize>);

/// The keys of an action.
struct Written<'a, 'v, 't> {
    view: &'a View<'v, 't>,
    pool: Option<Text<'v>>,
    redirect: Option<Text<'v>>,
    status: Option<u32>,
    body: Option<Text<'v>>,
    /// Position of the route.
    location: &'a Range<usize>,
}

pub(super) fn action(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    location: &Range<usize>,
) -> Option<RouteAction> {
    let written = Written {
        view,
        pool: view.text(sink, "pool"),
        redirect: view.text(sink, "redirect"),
        status: view.integer(sink, "status"),
        body: view.text(sink, "body"),
        location,
    };
    if view.get("split").is_some() {
        return written.split(sink);
    }
    match (written.pool, written.redirect, written.status) {
        (Some((pool, _)), _, _) => written.pool(sink, pool),
        (None, Some(to), _) => Some(written.redirect(sink, to)),
        (None, None, Some(status)) => {
            if let Some((text, span)) = written.body {
                variable::are_built(sink, text, span, &[]);
            }
            let body = written.body.map_or("", |(text, _)| text);
            Some(RouteAction::Answer {
                status: u16::try_from(status).unwrap_or(500),
                body: body.to_owned(),
            })
        }
        (None, None, None) => {
            sink.push(
                Diagnostic::new(Code::MissingKey, location, "this route has no action")
                    .fix("add `pool`, `split`, `redirect` or `status`"),
            );
            None
        }
    }
}

impl Written<'_, '_, '_> {
    fn contradiction(&self, sink: &mut Sink<'_>, key: &str, message: &str, fix: &str) {
        let entry = self.view.get(key);
        let span = entry.map_or(self.location, |(entry, _)| &entry.key_span);
        sink.push(Diagnostic::new(Code::Contradiction, span, message).fix(fix));
    }

    fn split(&self, sink: &mut Sink<'_>) -> Option<RouteAction> {
        let text = [self.pool, self.redirect, self.body];
        if self.status.is_some() || text.iter().any(Option::is_some) {
            let message = "`split` cannot be combined with `pool`, `redirect`, `status` or `body`";
            self.contradiction(sink, "split", message, "remove the others");
        }
        edit::split(sink, self.view).map(RouteAction::Split)
    }

    fn pool(&self, sink: &mut Sink<'_>, pool: &str) -> Option<RouteAction> {
        let fix = "remove one of them";
        if self.redirect.is_some() {
            let message = "`redirect` and `pool` are mutually exclusive";
            self.contradiction(sink, "redirect", message, fix);
            return None;
        }
        if self.status.is_some() {
            let message = "`status` is only valid without a pool";
            self.contradiction(sink, "status", message, fix);
            return None;
        }
        if self.body.is_some() {
            let message = "`body` is only valid without a pool";
            self.contradiction(sink, "body", message, fix);
        }
        Some(RouteAction::Pool(pool.to_owned()))
    }

    fn redirect(&self, sink: &mut Sink<'_>, (to, span): Text<'_>) -> RouteAction {
        let status = self.status.unwrap_or(302);
        if !REDIRECTS.contains(&status) {
            let message = format!("{status} is not a redirect status");
            let fix = "use 301, 302, 303, 307 or 308";
            self.contradiction(sink, "status", &message, fix);
        }
        if to.is_empty() || !to.bytes().all(|byte| byte > b' ' && byte < 0x7f) {
            sink.push(
                Diagnostic::new(Code::BadName, span, "invalid redirect target")
                    .fix("write a URL such as \"https://{host}{path}\""),
            );
        } else {
            variable::are_built(sink, to, span, &["host", "path"]);
        }
        if self.body.is_some() {
            self.contradiction(
                sink,
                "body",
                "`body` is not valid with `redirect`",
                "remove it",
            );
        }
        RouteAction::Redirect {
            to: to.to_owned(),
            status: u16::try_from(status).unwrap_or(302),
        }
    }
}
