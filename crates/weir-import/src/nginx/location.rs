//! Converts `location`, with its `if` blocks, to routes of one server block.

use std::rc::Rc;

use super::action::action;
use super::fallback::{action_without_pool, edits_with_named, edits_with_page, named_pool};
use super::header::{content_type, edits, file_edits, response_edits};
use super::path::{parse_extensions, percent_encode, prefix_pattern};
use super::rewrite::{location_rewrites, server_rewrites};
use super::static_files::file_action;
use super::tree::{Node, exclusive_prefixes, inheritable_lines};
use super::variable::ServerVariables;
use super::when::{IfCondition, access_rules, parse_if};
use super::{Context, group, log, mirror, page, split, tls, unsupported_reason};
use crate::edit::Edits;
use crate::guard;
use crate::layer7::{Action, Condition};
use crate::note::{Notes, Position};

/// A route of a server block: a path, a regular expression or the catch-all, and its action.
#[derive(Clone, Debug)]
pub(super) struct BlockRoute {
    pub(super) position: Position,
    /// The path; `None` means every path, unless `regex` is set.
    pub(super) path: Option<String>,
    /// A regular expression, instead of a path.
    pub(super) regex: Option<String>,
    /// Further conditions on a request.
    pub(super) extra_condition: Condition,
    pub(super) action: Action,
    /// Header and path changes.
    pub(super) edits: Edits,
    /// Sort order: exact paths, `^~` prefixes, regular expressions in their order, other prefixes. Longer paths and
    /// prefixes precede shorter ones.
    pub(super) rank: (u8, usize),
}

/// Routes of a server block's locations.
#[derive(Clone, Debug, Default)]
pub(super) struct BlockRoutes {
    pub(super) all: Vec<BlockRoute>,
    /// `keepalive` of a target upstream.
    pub(super) idle_limit: Option<(u64, Position)>,
    pub(super) path_use: PathUse,
    /// The first name of the server block.
    pub(super) name: String,
    /// Whether the server block itself rewrites paths.
    pub(super) rewrites_paths: bool,
    /// Prefixes of the server block's `^~` locations.
    exclusive_prefixes: Vec<String>,
    /// Whether the server block has locations with regular expressions.
    has_regex_locations: bool,
    /// The server block's directives other than `location`; the locations inherit them.
    lines: Rc<[Node]>,
}

/// Which path the `proxy_pass` directives of a service send to servers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PathUse {
    /// Whether at least one location matches only some paths.
    pub(super) compares_paths: bool,
    /// Whether a `proxy_pass` has no path: servers then get the path as received.
    pub(super) sends_received_path: bool,
    /// The line of a `proxy_pass` whose URI is the location's path: servers then get the normalized path.
    pub(super) sends_normalized_path: Option<Position>,
}

impl BlockRoute {
    /// Returns whether the route matches every request.
    pub(super) fn is_catch_all(&self) -> bool {
        self.path.is_none()
            && self.regex.is_none()
            && self.extra_condition == Condition::default()
            && !matches!(self.action, Action::Restart { .. })
    }

    /// Returns a route for all remaining paths.
    pub(super) fn catch_all(position: Position, action: Action) -> Self {
        Self {
            position,
            path: None,
            regex: None,
            extra_condition: Condition::default(),
            action,
            edits: Edits::default(),
            rank: (9, 0),
        }
    }
}

/// Converts a server block. `scheme` is the scheme of its clients. `idle_limit` and `path_use` have the values from
/// earlier server blocks.
pub(super) fn block_routes(
    context: &mut Context<'_>,
    server: &Node,
    scheme: &str,
    outer: &[Node],
    (idle_limit, path_use): (Option<(u64, Position)>, PathUse),
    notes: &mut Notes,
) -> BlockRoutes {
    let is_named = |node: &&Node| node.word(1).is_some_and(|name| name.starts_with('@'));
    let (named_locations, locations): (Vec<&Node>, Vec<&Node>) = server
        .inner()
        .iter()
        .filter(|node| node.keyword() == "location")
        .partition(is_named);
    let mut routes = BlockRoutes {
        idle_limit,
        path_use,
        name: first_name(server),
        exclusive_prefixes: exclusive_prefixes(server),
        has_regex_locations: server.inner().iter().any(is_regex_location),
        lines: inheritable_lines(server),
        ..BlockRoutes::default()
    };
    let levels: [&[Node]; 2] = [server.inner(), outer];
    context.server_name.clone_from(&routes.name);
    context.mirror_locations = mirror::target_locations(server, outer, "mirror");
    context.auth_locations = mirror::target_locations(server, outer, "auth_request");
    if scheme == "http" && tls::ssl_on_line(server.inner(), outer).is_some() {
        let route = tls::plain_http_route(context, server, outer, &routes.name);
        routes.all.push(route);
        mark_unneeded(context, &locations);
        return routes;
    }
    let template = BlockRoute {
        rank: (0, 0),
        ..BlockRoute::catch_all(server.position, Action::Pool(String::new()))
    };
    let all = &mut routes;
    if add_if_blocks(context, server, scheme, &template, &levels, all, notes) {
        mark_unneeded(context, &locations);
        return routes;
    }
    let redirects_all = server_rewrites(context, server, scheme, &mut routes, notes);
    edit_redirects(context, scheme, &levels, &mut routes, notes);
    if redirects_all {
        mark_unneeded(context, &locations);
        return routes;
    }
    let server_action = action(context, server, scheme, "/", &levels, &mut routes, notes);
    if let Some((action, position)) = server_action {
        let variables = ServerVariables::new(scheme, &routes.name);
        let edits = edits_of(context, &action, &levels, variables, notes);
        routes.all.push(BlockRoute {
            edits,
            ..BlockRoute::catch_all(position, action)
        });
        mark_unneeded(context, &locations);
        return routes;
    }
    // Convert the targets of `mirror` last: their directives may be used only by the mirror.
    let (targets, others): (Vec<&Node>, Vec<&Node>) = locations
        .into_iter()
        .partition(|node| split::is_mirror_target(context, node) && !is_regex_location(node));
    for node in others.into_iter().chain(targets) {
        add_location(context, node, server, scheme, outer, &mut routes, notes);
    }
    add_server_files(context, server, scheme, &levels, &mut routes, notes);
    for node in named_locations {
        if !context.used.contains(&node.position) {
            node.reject(
                notes,
                "no `try_files` or `error_page` that Weir supports refers to this location",
            );
        }
    }
    routes
        .all
        .sort_by_key(|route| (route.is_catch_all(), route.rank));
    routes
}

/// Adds the server block's changes to response fields to its redirects.
fn edit_redirects(
    context: &mut Context<'_>,
    scheme: &str,
    levels: &[&[Node]],
    routes: &mut BlockRoutes,
    notes: &mut Notes,
) {
    for route in &mut routes.all {
        if matches!(route.action, Action::Redirect { .. }) && route.edits.is_empty() {
            let variables = ServerVariables::new(scheme, &routes.name);
            route.edits = edits_of(context, &route.action, levels, variables, notes);
        }
    }
}

/// Adds a route for paths that no location matches: files below `root`.
fn add_server_files(
    context: &mut Context<'_>,
    server: &Node,
    scheme: &str,
    levels: &[&[Node]],
    routes: &mut BlockRoutes,
    notes: &mut Notes,
) {
    if routes.all.iter().any(BlockRoute::is_catch_all) {
        return;
    }
    let has_root = |nodes: &&[Node]| nodes.iter().any(|line| line.keyword() == "root");
    if !levels.iter().any(has_root) {
        return;
    }
    let nodes = (server, server);
    let Some((action, position)) = file_action(context, nodes, "/", levels, None, notes) else {
        return;
    };
    let cases = access_rules(context, levels, notes);
    let variables = ServerVariables::new(scheme, &routes.name);
    let edits = edits_of(context, &action, levels, variables, notes);
    for (networks, allowed) in cases {
        let (action, edits) = match allowed {
            true => (action.clone(), edits.clone()),
            false => (rejection(403), edits.for_generated_response()),
        };
        routes.all.push(BlockRoute {
            extra_condition: Condition {
                sources: networks,
                ..Condition::default()
            },
            edits,
            ..BlockRoute::catch_all(position, action)
        });
    }
}

/// Returns the action that rejects requests with a status.
pub(super) fn rejection(status: u64) -> Action {
    Action::Respond {
        status,
        body: String::new(),
    }
}

/// Returns the first name of a server block, or an empty string if it has none, or if the name does not begin with a
/// letter or digit, such as `_` or `*.example`.
pub(super) fn first_name(server: &Node) -> String {
    let mut lines = server.inner().iter();
    let names = lines.find(|line| line.keyword() == "server_name");
    let name = names.and_then(|line| line.word(1)).unwrap_or_default();
    let is_name = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if is_name {
        name.to_owned()
    } else {
        String::new()
    }
}

/// Records that the service does not need these locations.
fn mark_unneeded(context: &mut Context<'_>, locations: &[&Node]) {
    const REASON: &str = "nginx responds before it selects a location";
    let locations = locations.iter().map(|node| ((*node).clone(), REASON));
    context.unneeded.extend(locations);
}

/// Converts the `if` blocks of a server block or a location, which nginx evaluates before its other directives.
/// `template` has the other conditions of the routes. Returns whether one of the blocks responds to every request.
fn add_if_blocks(
    context: &mut Context<'_>,
    node: &Node,
    scheme: &str,
    template: &BlockRoute,
    levels: &[&[Node]],
    routes: &mut BlockRoutes,
    notes: &mut Notes,
) -> bool {
    for block in node.inner().iter().filter(|node| node.keyword() == "if") {
        if mirror::selects_copies(context, node, block) {
            continue;
        }
        let condition = match parse_if(block, scheme) {
            Some(condition) => condition,
            None if denies_access(block) => {
                // The block denies access, so without its condition no client may get access.
                block.reject(
                    notes,
                    "a route cannot test this condition; Weir rejects every request instead",
                );
                context.rejecting_ifs.push(block.position);
                IfCondition::Always
            }
            None => {
                block.reject(notes, unsupported_reason("if"));
                continue;
            }
        };
        if condition == IfCondition::Never {
            context
                .unneeded
                .push((block.clone(), "it never applies to a client"));
            continue;
        }
        let path = template.path.as_deref().unwrap_or("/");
        let path = path.trim_end_matches('*');
        let Some((action, position)) = action(context, block, scheme, path, levels, routes, notes)
        else {
            block.reject(notes, "the block contains no action that Weir supports");
            continue;
        };
        context.used.insert(block.position);
        let levels: Vec<&[Node]> = std::iter::once(block.inner())
            .chain(levels.iter().copied())
            .collect();
        let variables = ServerVariables::new(scheme, &routes.name);
        let edits = edits_of(context, &action, &levels, variables, notes);
        note_unused_lines(context, block, notes);
        // The following directives handle requests whose path the rewrite does not change.
        let is_terminal = !matches!(action, Action::Restart { .. });
        let always_responds = condition == IfCondition::Always && is_terminal;
        let extra_condition = match condition {
            IfCondition::Matches(condition) => condition,
            _ => Condition::default(),
        };
        routes.all.push(BlockRoute {
            position,
            extra_condition,
            action,
            edits,
            ..template.clone()
        });
        if always_responds {
            return true;
        }
    }
    false
}

/// Returns whether a block responds with a status that denies access.
fn denies_access(block: &Node) -> bool {
    let mut inner = block.inner().iter();
    inner.any(|line| {
        line.keyword() == "return"
            && matches!(line.word(1), Some("401" | "403" | "405" | "429" | "444"))
    })
}

/// Adds the routes of a location. Their requests are not logged if the location disables the access log.
fn add_location(
    context: &mut Context<'_>,
    node: &Node,
    server: &Node,
    scheme: &str,
    outer: &[Node],
    routes: &mut BlockRoutes,
    notes: &mut Notes,
) {
    let disabling_line = log::disabling_line(context, node, notes);
    let previous_len = routes.all.len();
    add_location_routes(context, node, server, scheme, outer, routes, notes);
    if let Some(position) = disabling_line {
        log::disable(context, routes.all.iter_mut().skip(previous_len), position);
    }
}

#[expect(clippy::too_many_lines, reason = "the parts of one block in order")]
fn add_location_routes(
    context: &mut Context<'_>,
    node: &Node,
    server: &Node,
    scheme: &str,
    outer: &[Node],
    routes: &mut BlockRoutes,
    notes: &mut Notes,
) {
    let (kind, path) = match (node.word(1), node.word(2)) {
        (Some(kind @ ("=" | "~" | "~*" | "^~")), Some(path)) => (kind, path),
        (Some(path), None) => ("", path),
        _ => return node.reject(notes, "the path is missing or the modifier is invalid"),
    };
    let with_groups;
    let node = match kind {
        "~" | "~*" if kind == "~*" || parse_extensions(path).is_none() => {
            with_groups = group::with_groups(node, path);
            &with_groups
        }
        _ => node,
    };
    let Some((paths, rank)) = location_paths(node, routes, kind, path, notes) else {
        return;
    };
    let order = if rank == 2 {
        routes.all.len()
    } else {
        usize::MAX - path.len()
    };
    let lines = Rc::clone(&routes.lines);
    let levels: [&[Node]; 3] = [node.inner(), &lines, outer];
    let regex_of = |prefix: &Option<String>| match kind {
        "~" if prefix.is_none() => Some(path.to_owned()),
        "~*" => Some(format!("(?i){path}")),
        _ => None,
    };
    let templates = paths.iter().map(|path| BlockRoute {
        path: path.clone(),
        regex: regex_of(path),
        rank: (rank, order),
        ..BlockRoute::catch_all(node.position, Action::Pool(String::new()))
    });
    let templates: Vec<BlockRoute> = templates.collect();
    let mut always_responds = false;
    for template in &templates {
        always_responds |= add_if_blocks(context, node, scheme, template, &levels, routes, notes);
    }
    if always_responds {
        let other_lines = node.inner().iter().filter(|line| line.keyword() != "if");
        let other_lines = other_lines.map(|line| {
            (
                line.clone(),
                "its `if` applies to every request and responds first",
            )
        });
        context.unneeded.extend(other_lines);
        context.used.insert(node.position);
        return;
    }
    location_rewrites(context, node, scheme, &templates, routes, notes);
    let target = action(context, node, scheme, path, &levels, routes, notes);
    let fallback = match target {
        Some(_) => None,
        None => named_pool(context, node, server, scheme, &levels, routes, notes),
    };
    let target = target.or_else(|| {
        file_action(
            context,
            (server, node),
            path,
            &levels,
            fallback.as_ref(),
            notes,
        )
    });
    let (action, position, cases) = with_access_rules(context, node, target, &levels, notes);
    context.used.insert(node.position);
    let routes_before = context.routes_per_location;
    context.routes_per_location = routes_before * paths.len();
    let variables = ServerVariables::new(scheme, &routes.name);
    let page = fallback.as_ref().and_then(|named| named.page);
    let mut edits = match (&fallback, page) {
        (Some(named), Some(page)) => {
            edits_with_page(context, named, page, &levels, variables, notes)
        }
        (Some(named), None) => edits_with_named(context, named.node, &levels, variables, notes),
        (None, _) => edits_of(context, &action, &levels, variables, notes),
    };
    if matches!(action, Action::Files(..)) {
        let nodes = (server, node);
        page::set_page_fields(context, nodes, &levels, variables, &mut edits, notes);
    }
    if matches!(action, Action::Files(..)) && fallback.is_none() {
        page::set_404_fields((server, node), &levels, variables, &mut edits, notes);
    }
    context.routes_per_location = routes_before;
    let rejections = rejections(context, node);
    note_unused_lines(context, node, notes);
    for (extra_condition, action) in rejections {
        for path in &paths {
            routes.all.push(BlockRoute {
                path: path.clone(),
                regex: regex_of(path),
                extra_condition: extra_condition.clone(),
                rank: (rank, order),
                ..BlockRoute::catch_all(node.position, action.clone())
            });
        }
    }
    let without_page = page.map(|_| {
        let generated_edits = Edits {
            response: edits.response.clone(),
            ..Edits::default()
        };
        (Vec::new(), action_without_pool(&action), generated_edits)
    });
    let methods = match page {
        // nginx requests the page with GET even if the client used another method.
        Some(_) => vec!["GET".to_owned(), "HEAD".to_owned()],
        None => Vec::new(),
    };
    let variants: Vec<(Vec<String>, Action, Edits)> = [(methods, action, edits)]
        .into_iter()
        .chain(without_page)
        .collect();
    for path in paths {
        let regex = regex_of(&path);
        for (networks, allowed) in &cases {
            for (methods, action, edits) in &variants {
                let (action, edits) = match allowed {
                    true => (action.clone(), edits.clone()),
                    false => (rejection(403), edits.for_generated_response()),
                };
                routes.all.push(BlockRoute {
                    path: path.clone(),
                    regex: regex.clone(),
                    extra_condition: Condition {
                        sources: networks.clone(),
                        methods: methods.clone(),
                        ..Condition::default()
                    },
                    edits,
                    rank: (rank, order),
                    ..BlockRoute::catch_all(position, action)
                });
            }
        }
    }
}

/// Returns the paths and the rank of a location; routes with lower ranks come first. Adds a note and returns `None` if
/// the location cannot become a route.
fn location_paths(
    node: &Node,
    routes: &BlockRoutes,
    kind: &str,
    text: &str,
    notes: &mut Notes,
) -> Option<(Vec<Option<String>>, u8)> {
    let (paths, rank) = match kind {
        "=" => (vec![Some(percent_encode(text))], 0),
        "^~" => (vec![prefix_pattern(text)], 1),
        "" if is_below_prefix(routes, text) => {
            if routes.has_regex_locations {
                notes.add(
                    node.position,
                    "nginx tries regular expressions before this location; in Weir, the location's route precedes \
                     theirs, like the route of the enclosing `^~` prefix",
                );
            }
            (vec![prefix_pattern(text)], 1)
        }
        "~" => match parse_extensions(text) {
            Some(paths) => (paths.into_iter().map(Some).collect(), 2),
            None => (vec![None], 2),
        },
        "~*" => (vec![None], 2),
        _ => (vec![prefix_pattern(text)], 3),
    };
    if rank != 2 && text.contains('*') {
        node.reject(notes, "`*` in a route's `path` is a wildcard");
        return None;
    }
    Some((paths, rank))
}

/// Returns whether the location is `internal`, or requires `auth_request` or `auth_jwt`.
pub(super) fn rejects_clients(node: &Node) -> bool {
    let mut inner = node.inner().iter();
    inner.any(|line| {
        matches!(line.keyword(), "internal" | "auth_request" | "auth_jwt")
            && line.word(1) != Some("off")
    })
}

/// Returns the conditions and actions of routes that reject requests and precede the location's own routes. They are
/// for `internal`, `limit_except`, and access rules that Weir does not support.
fn rejections(context: &mut Context<'_>, node: &Node) -> Vec<(Condition, Action)> {
    let respond = |status| Action::Respond {
        status,
        body: String::new(),
    };
    let mut rejections = Vec::new();
    for line in node.inner() {
        match line.keyword() {
            "internal" => {
                context.used.insert(line.position);
                rejections.push((Condition::default(), respond(404)));
            }
            // This line was already imported as `forward_auth` of the location's route.
            "auth_request" if context.used.contains(&line.position) => {}
            "auth_request" | "auth_jwt" if line.word(1) != Some("off") => {
                rejections.push((Condition::default(), respond(403)));
            }
            "limit_except" => {
                let mut methods = line.words[1..].to_vec();
                if methods.iter().any(|method| method == "GET") {
                    methods.push("HEAD".to_owned());
                }
                let deny_all = [vec!["deny".to_owned(), "all".to_owned()]];
                let words = line.inner().iter().map(|line| line.words.clone());
                if words.eq(deny_all) {
                    context.used.extend(line.block_positions());
                    context.used.insert(line.position);
                }
                let not = std::collections::BTreeMap::from([("method", methods)]);
                let condition = Condition {
                    not,
                    ..Condition::default()
                };
                rejections.push((condition, respond(403)));
            }
            _ => {}
        }
    }
    rejections
}

/// Lists of client networks, and whether each list is allowed.
type AccessCases = Vec<(Vec<String>, bool)>;

/// Returns the action with its position and access rules. Without an action that Weir supports, the route responds with
/// an error, so requests do not reach a different location.
fn with_access_rules(
    context: &mut Context<'_>,
    node: &Node,
    target: Option<(Action, Position)>,
    levels: &[&[Node]],
    notes: &mut Notes,
) -> (Action, Position, AccessCases) {
    let all_clients = || vec![(Vec::new(), true)];
    if let Some((action, position)) = target {
        // nginx handles `return` before access rules.
        let cases = match action {
            Action::Pool(_)
            | Action::PoolWithPath { .. }
            | Action::PoolFromMap(..)
            | Action::Split { .. }
            | Action::Files(..) => access_rules(context, levels, notes),
            Action::Redirect { .. }
            | Action::Respond { .. }
            | Action::RespondWithFields { .. }
            | Action::Restart { .. }
            | Action::Close => {
                for line in node.inner() {
                    if matches!(line.keyword(), "allow" | "deny") {
                        context.used.insert(line.position);
                        notes.remark(line.position, "not imported: nginx handles `return` first");
                    }
                }
                all_clients()
            }
        };
        return (action, position, cases);
    }
    let mut lines = node.inner().iter();
    let has_target = lines.any(|line| line.keyword().ends_with("_pass"));
    let is_guarded = node
        .inner()
        .iter()
        .any(|line| guard::rejects_before_content(&line.words));
    let status = match (is_guarded, has_target) {
        (true, _) => 403,
        (false, true) => 503,
        (false, false) => 404,
    };
    // Clients that nginx rejects get 403 even if the location has no target.
    let cases = access_rules(context, levels, notes);
    // A location that rejects all clients needs no target.
    let is_equivalent = is_guarded && !has_target && cases.iter().all(|(_, allowed)| !allowed);
    let cases = match is_guarded {
        true => all_clients(),
        false => cases,
    };
    if !rejects_clients(node) && !is_equivalent {
        let reason =
            format!("it has no target that Weir supports; Weir responds with status {status}");
        notes.add(node.position, reason);
    }
    let response = Action::Respond {
        status,
        body: String::new(),
    };
    (response, node.position, cases)
}

/// Returns the header and path changes for an action; for responses that Weir generates, only the response changes.
fn edits_of(
    context: &mut Context<'_>,
    action: &Action,
    levels: &[&[Node]],
    variables: ServerVariables<'_>,
    notes: &mut Notes,
) -> Edits {
    match action {
        Action::Pool(_)
        | Action::PoolWithPath { .. }
        | Action::PoolFromMap(..)
        | Action::Split { .. } => edits(context, levels, variables, notes),
        Action::Files(..) => file_edits(context, levels, variables, notes),
        Action::Redirect { status, .. } | Action::RespondWithFields { status, .. } => {
            response_edits(context, levels, variables, *status, notes)
        }
        Action::Respond { status, body } => {
            let mut edits = response_edits(context, levels, variables, *status, notes);
            if !body.is_empty() {
                content_type(context, levels, &mut edits);
            }
            edits
        }
        Action::Close | Action::Restart { .. } => Edits::default(),
    }
}

/// Adds a note for every line of a block that was not imported, except for actions.
pub(super) fn note_unused_lines(context: &Context<'_>, node: &Node, notes: &mut Notes) {
    for inner in node.inner() {
        let is_action = ["proxy_pass", "return", "rewrite"].contains(&inner.keyword());
        let is_handled = context.used.contains(&inner.position) || notes.has_note(inner.position);
        let is_default = matches!(inner.keyword(), "proxy_intercept_errors" | "autoindex")
            && inner.word(1) == Some("off");
        if !is_handled && is_default {
            notes.remark(inner.position, "not imported: Weir never does this");
        } else if !is_action && !is_handled {
            inner.reject(notes, unsupported_reason(inner.keyword()));
        }
    }
}

/// Returns whether a `^~` location matches all paths of this location.
fn is_below_prefix(routes: &BlockRoutes, text: &str) -> bool {
    let mut paths = routes.exclusive_prefixes.iter();
    paths.any(|path| text.starts_with(path.as_str()) && text != path)
}

/// Returns whether a line is a location with a regular expression.
fn is_regex_location(node: &Node) -> bool {
    node.keyword() == "location" && matches!(node.word(1), Some("~" | "~*"))
}
