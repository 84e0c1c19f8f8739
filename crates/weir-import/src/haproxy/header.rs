//! Converts `http-request` and `http-response` rules that change header fields and paths to keys of routes.

use weir_model::RouteEdits;

use super::Context;
use super::acl::{Acls, Conversion};
use super::criterion::FrontendContext;
use super::generated;
use super::line::Line;
use super::parse_time;
use super::rule::{self, condition};
use super::section::Proxy;
use super::user::{self, is_auth};
use crate::document::Entry;
use crate::edit::{Edits, Replacement, with_leading_slash};
use crate::layer7::{Action, Condition};
use crate::note::{Notes, Position};
use crate::time::format_millis;

/// A route of a frontend, with its source line.
pub(super) type FrontendRoute = (Position, Condition, Action);

/// The changes that the rules of a proxy make to requests for a pool and to the pool's responses.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    /// Changes from options.
    options: Edits,
    rules: Vec<Change>,
    /// The rules' conditions, each a list of alternatives.
    conditions: Vec<Vec<Condition>>,
}

/// A rule, with a reference to its condition.
#[derive(Clone, Debug)]
struct Change {
    line: Line,
    action: Vec<String>,
    /// The index of the rule's condition, or `None` if the rule always applies.
    condition: Option<usize>,
    /// Keys of the route that the rule becomes; if empty, `action` describes a change.
    keys: Vec<Entry>,
}

impl Changes {
    /// Returns whether there are no changes.
    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.options.is_empty()
    }

    /// Adds keys for the routes.
    pub(super) fn add_keys(&mut self, keys: Vec<Entry>) {
        self.options.keys.extend(keys);
    }

    /// Returns the changes for requests that these conditions apply to, except for [`Self::last_edits`].
    fn edits(&self, applied: &[bool]) -> Edits {
        self.edits_of(self.options.clone(), applied, false)
    }

    /// Returns the changes of `http-after-response` rules, which are made after those of all other rules.
    fn last_edits(&self, applied: &[bool]) -> Edits {
        self.edits_of(Edits::default(), applied, true)
    }

    fn edits_of(&self, mut edits: Edits, applied: &[bool], is_last: bool) -> Edits {
        let is_selected = |change: &&Change| generated::is_after_response(&change.line) == is_last;
        for change in self.rules.iter().filter(is_selected) {
            let is_applied = change
                .condition
                .is_none_or(|index| applied.get(index) == Some(&true));
            if !is_applied {
                continue;
            }
            if change.keys.is_empty() {
                // If the rule is not supported, it already has a note.
                let _ = apply_rule(&change.line, &change.action, &mut edits);
            }
            edits.replace_keys(&change.keys);
        }
        edits
    }

    /// Returns the changes that also apply if Weir itself responds: those of `http-after-response` rules, and of
    /// authentication rules that precede the response.
    pub(super) fn for_response(&self, precedes: impl Fn(Position) -> bool) -> Self {
        let is_authentication =
            |change: &Change| change.keys.iter().any(|key| key.key == "basic_auth");
        let applies = |change: &&Change| {
            generated::is_after_response(&change.line)
                || is_authentication(change) && precedes(change.line.position)
        };
        Self {
            options: Edits::default(),
            rules: self.rules.iter().filter(applies).cloned().collect(),
            conditions: self.conditions.clone(),
        }
    }

    /// Returns the index of a condition; adds the condition if it is new.
    fn condition(&mut self, alternatives: Vec<Condition>) -> usize {
        let existing = self.conditions.iter().position(|it| *it == alternatives);
        existing.unwrap_or_else(|| {
            self.conditions.push(alternatives);
            self.conditions.len() - 1
        })
    }

    /// Adds a rule.
    ///
    /// # Errors
    /// Returns why the rule cannot be combined with the other rules, or is not supported.
    fn add(&mut self, change: Change) -> Result<(), &'static str> {
        let mut applied = vec![false; self.conditions.len()];
        if let Some(index) = change.condition {
            applied[index] = true;
        }
        if change.keys.is_empty() {
            apply_rule(&change.line, &change.action, &mut self.edits(&applied))?;
        }
        self.rules.push(change);
        Ok(())
    }
}

/// If the conditions of changes have split a route into more routes than this, further conditions are not imported.
const MAX_VARIANTS: usize = 64;

/// Returns the routes for a condition, one for each combination of the changes' conditions, the most specific first.
/// `frontend` are the changes of the frontend, `backend` those of the backend.
pub(super) fn variants(
    condition: &Condition,
    frontend: &Changes,
    backend: &Changes,
    notes: &mut Notes,
) -> Vec<(Condition, Edits)> {
    let mut variants = vec![(condition.clone(), Vec::new())];
    let both = [frontend, backend];
    for (changes, alternatives) in both.iter().flat_map(|it| {
        it.conditions
            .iter()
            .map(move |alternatives| (it, alternatives))
    }) {
        let index = changes.conditions.iter().position(|it| it == alternatives);
        if changes.rules.iter().all(|change| change.condition != index) {
            variants
                .iter_mut()
                .for_each(|(_, applied)| applied.push(false));
            continue;
        }
        let mut next_variants = Vec::new();
        let mut is_lost = variants.len() > MAX_VARIANTS;
        for (condition, applied) in variants {
            let with_applied = |applies: bool| [applied.as_slice(), &[applies]].concat();
            let mut covers_all = false;
            for alternative in alternatives.iter().filter(|it| !condition.excludes(it)) {
                match condition.and(alternative).filter(|_| !is_lost) {
                    Some(combined) => {
                        covers_all |= combined == condition;
                        next_variants.push((combined, with_applied(true)));
                    }
                    None => is_lost = true,
                }
            }
            if !covers_all {
                let not_applied = with_applied(false);
                next_variants.push((condition, not_applied));
            }
        }
        if is_lost {
            for change in changes
                .rules
                .iter()
                .filter(|change| change.condition == index)
            {
                let reason = "not imported for some requests: a route cannot combine its condition with others";
                notes.add(change.line.position, reason);
            }
        }
        variants = next_variants;
    }
    let frontend_count = frontend.conditions.len();
    let edits = |(condition, applied): (Condition, Vec<bool>)| {
        let (frontend_applied, backend_applied) = applied.split_at(frontend_count);
        let edits = frontend
            .edits(frontend_applied)
            .then(&backend.edits(backend_applied));
        let last = frontend
            .last_edits(frontend_applied)
            .then(&backend.last_edits(backend_applied));
        (condition, last.then(&edits))
    };
    variants.into_iter().map(edits).collect()
}

/// Returns the changes that a proxy's rules make. If `forwarded` is true, the service adds `X-Forwarded-For`;
/// `frontend_routes` are the proxy's routes.
pub(super) fn proxy_changes(
    context: &mut Context<'_>,
    proxy: &Proxy,
    (acls, frontend_routes): (&Acls, &[FrontendRoute]),
    (frontend, forwarded, listen): (FrontendContext<'_>, bool, &[String]),
    notes: &mut Notes,
) -> Changes {
    let mut changes = Changes {
        options: option_edits(context, proxy, listen, forwarded, notes),
        ..Changes::default()
    };
    add_forward_for(context, proxy, &mut changes, forwarded, notes);
    let host = super::backend::fixed_host(proxy).map(|(line, _)| line.position);
    let host = host.filter(|_| proxy.is_backend);
    let is_rule = |line: &&Line| (is_edit(line) || is_auth(line)) && Some(line.position) != host;
    let is_use_server = |line: &&Line| line.keyword() == "use-server";
    // In haproxy, the first `use-server` that applies takes precedence, but later keys replace earlier ones here. The
    // lines are therefore read in reverse.
    let server_rules = proxy.lines.iter().rev().filter(is_use_server);
    for line in proxy.lines.iter().filter(is_rule).chain(server_rules) {
        let (action, words) = condition(line.arguments());
        for position in acls.positions_of(words) {
            context.used.insert(position);
        }
        let action = replace_port(action, listen);
        let action = replace_constants(&action, line, frontend, notes);
        let result = convert_condition(
            context,
            proxy,
            acls,
            line,
            (&action, words, frontend),
            notes,
        );
        let Some((conversion, keys)) = result else {
            continue;
        };
        let is_affected = keys.is_empty()
            && frontend_routes
                .iter()
                .any(|route| is_affected_by(route, line));
        let is_response_rule = !matches!(line.keyword(), "http-request" | "use-server");
        let condition_index = match conversion {
            // The rule may apply in another service of the frontend.
            Conversion::Never => continue,
            Conversion::Unsupported(reason) => {
                line.reject(notes, &reason);
                continue;
            }
            _ if is_affected => {
                line.reject(
                    notes,
                    "haproxy's rules match the changed request, but routes match the request as received",
                );
                continue;
            }
            Conversion::AnyOf(alternatives)
                if is_response_rule
                    && !line.uses_capture
                    && !alternatives.iter().all(Condition::depends_only_on_client) =>
            {
                note_unknown_request(line, words, acls, &alternatives, notes);
                continue;
            }
            Conversion::Always => None,
            Conversion::AnyOf(alternatives) => Some(changes.condition(alternatives)),
        };
        let change = Change {
            line: line.clone(),
            action: replace_lookups(context, line, &action),
            condition: condition_index,
            keys,
        };
        add_change(context, &mut changes, change, notes);
    }
    changes
}

/// Adds a rule with its notes.
fn add_change(context: &mut Context<'_>, changes: &mut Changes, change: Change, notes: &mut Notes) {
    let line = change.line.clone();
    match changes.add(change) {
        Ok(()) => {
            context.mark_used(&line);
            generated::note_errors(&line, notes);
        }
        Err(reason) => line.reject(notes, reason),
    }
}

/// Replaces `%[ssl_fc]` with its value for the service, and `%[ssl_fc_protocol]` with text in haproxy's format. Adds a
/// remark about `%[uuid…]`.
fn replace_constants(
    action: &[String],
    line: &Line,
    frontend: FrontendContext<'_>,
    notes: &mut Notes,
) -> Vec<String> {
    if action.iter().any(|word| word.contains("%[uuid")) {
        let reason = "Weir's identifiers have 32 hexadecimal digits without dashes; access logs contain `{request_id}`";
        notes.remark(line.position, reason);
    }
    let tls = if frontend.tls { "1" } else { "0" };
    // haproxy's name for the TLS version; empty without TLS.
    let version = if frontend.tls {
        "TLSv%[ssl_fc_protocol]"
    } else {
        ""
    };
    let words = action.iter();
    words
        .map(|word| {
            word.replace("%[ssl_fc]", tls)
                .replace("%[ssl_fc_protocol]", version)
        })
        .collect()
}

/// Adds a note to a response rule whose condition depends on the request.
fn note_unknown_request(
    line: &Line,
    words: &[String],
    acls: &Acls,
    alternatives: &[Condition],
    notes: &mut Notes,
) {
    let text = acls.all_words(words);
    let is_plain = !text.iter().any(|word| word.starts_with('!'))
        && words.first().is_some_and(|word| word == "if");
    let reason = "haproxy no longer has the request when it evaluates this rule";
    if is_plain && !alternatives.iter().any(Condition::depends_only_on_client) {
        let reason = format!("not imported: {reason}, so the rule never applies");
        return notes.remark(line.position, reason);
    }
    line.reject(notes, reason);
}

/// Adds `option forwardfor` with parameters that a service's `x_forwarded` does not support.
fn add_forward_for(
    context: &mut Context<'_>,
    proxy: &Proxy,
    changes: &mut Changes,
    is_added: bool,
    notes: &mut Notes,
) {
    let Some(line) = proxy.option("forwardfor").filter(|_| !is_added) else {
        return;
    };
    let Some(options) = super::forward::parse(line).filter(|it| !it.is_supported_by_service())
    else {
        return;
    };
    context.mark_used(line);
    let condition = options.condition().map(|it| changes.condition(vec![it]));
    let line = options.rule(line);
    let change = Change {
        action: line.words[1..].to_vec(),
        line,
        condition,
        keys: Vec::new(),
    };
    let position = change.line.position;
    if let Err(reason) = changes.add(change) {
        notes.add(position, format!("not imported: {reason}"));
    }
}

/// Returns the condition of a rule, and its route keys if it becomes keys instead of a change. Adds a note and returns
/// `None` if the rule is not supported.
fn convert_condition(
    context: &Context<'_>,
    proxy: &Proxy,
    acls: &Acls,
    line: &Line,
    (action, words, frontend): (&[String], &[String], FrontendContext<'_>),
    notes: &mut Notes,
) -> Option<(Conversion, Vec<Entry>)> {
    if is_auth(line) {
        return user::convert_auth(context, acls, line, frontend, notes);
    }
    let conversion = acls.condition(words, frontend.for_line(line));
    if line.keyword() != "use-server" {
        let mut keys = forwarded_port(line, action);
        keys.extend(timeout_key(line, action));
        return Some((conversion, keys));
    }
    match super::server::preferred_server(context, proxy, line, action) {
        Ok(key) => Some((conversion, vec![key])),
        Err(reason) => {
            line.reject(notes, &reason);
            None
        }
    }
}

/// Returns the changes for `option forwarded` and `option forwardfor`.
fn option_edits(
    context: &mut Context<'_>,
    proxy: &Proxy,
    listen: &[String],
    is_added: bool,
    notes: &mut Notes,
) -> Edits {
    let mut edits = Edits::default();
    if let Some(line) = proxy.option("forwarded") {
        add_forwarded(context, line, listen, &mut edits, notes);
    }
    let is_service_option =
        |line: &&Line| super::forward::parse(line).is_some_and(|it| it.is_supported_by_service());
    if let Some(line) = proxy
        .option("forwardfor")
        .filter(|_| !is_added)
        .filter(is_service_option)
    {
        context.mark_used(line);
        edits
            .request
            .add("X-Forwarded-For", "{client}", line.position);
    }
    edits
}

/// Replaces a lookup in a file with a reference to the map.
fn replace_lookups(context: &mut Context<'_>, line: &Line, action: &[String]) -> Vec<String> {
    let mut words = action.to_vec();
    if let [verb, _, value] = words.as_mut_slice()
        && matches!(verb.as_str(), "set-header" | "add-header")
        && let Some(lookup) = rule::parse_lookup(value)
    {
        let map = context.map_name(&lookup, line.position);
        *value = format!("%[str({MAP_PREFIX}{map})]");
    }
    words
}

/// Prefix of a map's name in a value.
const MAP_PREFIX: &str = "map-of-weir-";

/// Adds `option forwarded` without parameters. haproxy encloses only IPv6 addresses in quotes and brackets, which
/// `add_header` cannot do.
fn add_forwarded(
    context: &mut Context<'_>,
    line: &Line,
    listen: &[String],
    edits: &mut Edits,
    notes: &mut Notes,
) {
    context.mark_used(line);
    if line.words.len() > 2 {
        line.reject(
            notes,
            "a route's `add_header` does not support these parameters",
        );
    } else if listen.iter().any(|address| address.starts_with('[')) {
        line.reject(
            notes,
            "a route's `add_header` cannot express the format for IPv6 clients; see a service's `forwarded`",
        );
    } else {
        let scheme = "proto={scheme};for={client}";
        edits.request.add("Forwarded", scheme, line.position);
    }
}

/// Replaces variables for the port of the service with the port, if all listeners have the same port.
fn replace_port(words: &[String], listen: &[String]) -> Vec<String> {
    let ports = listen.iter().map(|address| address.rsplit(':').next());
    let mut ports: Vec<Option<&str>> = ports.collect();
    ports.dedup();
    let [Some(port)] = ports[..] else {
        return words.to_vec();
    };
    if port.starts_with('$') {
        return words.to_vec();
    }
    let words = words.iter();
    words
        .map(|word| word.replace("%[dst_port]", port).replace("%fp", port))
        .collect()
}

/// Returns the route's key for `set-header X-Forwarded-Port %[dst_port]` with listeners on several ports.
fn forwarded_port(line: &Line, action: &[String]) -> Vec<Entry> {
    match action {
        [verb, name, value]
            if line.keyword() == "http-request"
                && verb == "set-header"
                && name.eq_ignore_ascii_case("X-Forwarded-Port")
                && matches!(value.as_str(), "%[dst_port]" | "%fp") =>
        {
            let fields = vec![Entry::new("port", "set", line.position).essential()];
            vec![Entry::new("x_forwarded", fields, line.position)]
        }
        _ => Vec::new(),
    }
}

/// Returns the route's key for a rule such as `set-timeout server 5m`.
fn timeout_key(line: &Line, action: &[String]) -> Option<Entry> {
    let [verb, name, time] = action else {
        return None;
    };
    if line.keyword() != "http-request" || verb != "set-timeout" {
        return None;
    }
    let key = match name.as_str() {
        "server" => "server",
        "client" => "client",
        "tunnel" => "tunnel",
        _ => return None,
    };
    let millis = parse_time(time)?;
    let timeouts = vec![Entry::new(key, format_millis(millis), line.position)];
    Some(Entry::new("timeouts", timeouts, line.position))
}

/// Returns whether haproxy evaluates the route after the line, and the route has a condition on the field that the line
/// changes.
fn is_affected_by((position, condition, action): &FrontendRoute, line: &Line) -> bool {
    // haproxy selects the backend last.
    if *position < line.position && !matches!(action, Action::Pool(_)) {
        return false;
    }
    let name = line.word(2).unwrap_or("");
    let is_field = |header: &String| {
        let field = header.split(':').next().unwrap_or("");
        field.eq_ignore_ascii_case(name)
    };
    match (line.keyword(), line.word(1)) {
        ("http-request", Some("replace-path" | "set-path" | "replace-uri")) => {
            condition.path.is_some() || condition.regex.is_some()
        }
        ("http-request", _) => {
            condition.headers.iter().any(is_field)
                || condition.host.is_some() && name.eq_ignore_ascii_case("host")
        }
        _ => false,
    }
}

/// Returns whether a line changes header fields or the path.
pub(super) fn is_edit(line: &Line) -> bool {
    const REQUEST: [&str; 7] = [
        "set-header",
        "del-header",
        "add-header",
        "replace-path",
        "set-path",
        "replace-uri",
        "set-timeout",
    ];
    let word = line.word(1).unwrap_or("");
    match line.keyword() {
        "http-request" => REQUEST.contains(&word),
        "http-response" if matches!(word, "set-status" | "replace-header") => true,
        "http-response" | "http-after-response" => REQUEST[..3].contains(&word),
        _ => false,
    }
}

/// Applies a rule to `edits`.
///
/// # Errors
/// Returns why the rule is not supported.
fn apply_rule(line: &Line, action: &[String], edits: &mut Edits) -> Result<(), &'static str> {
    let position = line.position;
    if generated::is_own_field(line) {
        return Err("Weir sets this field in its own responses");
    }
    let fields = match line.keyword() {
        "http-response" | "http-after-response" => &mut edits.response,
        _ => &mut edits.request,
    };
    match action {
        [verb, name, value] if verb == "set-header" => {
            let value = convert_value(value).ok_or(UNSUPPORTED_VALUE)?;
            fields.set(name, &value, position);
            Ok(())
        }
        [verb, name, value] if verb == "add-header" => {
            let value = convert_value(value).ok_or(UNSUPPORTED_VALUE)?;
            fields.add(name, &value, position);
            Ok(())
        }
        [verb, name] if verb == "del-header" => {
            fields.remove(name, position);
            Ok(())
        }
        [verb, status] if verb == "set-status" => {
            let status = status
                .parse()
                .ok()
                .filter(|it| RouteEdits::may_replace(*it));
            let status: u16 = status.ok_or("responses with this status have no content")?;
            edits.replace_keys(&[Entry::new("response_status", u64::from(status), position)]);
            Ok(())
        }
        [verb, name, regex, value] if verb == "replace-header" => {
            let to =
                convert_groups(value).ok_or("the new value depends on more than the old one")?;
            if regex::Regex::new(regex).is_err() {
                return Err("Weir does not support the regular expression");
            }
            edits.replacements.push(Replacement {
                name: name.clone(),
                regex: regex.clone(),
                to,
                position,
            });
            Ok(())
        }
        [verb, regex, path]
            if verb == "replace-path" || verb == "replace-uri" && keeps_query(regex, path) =>
        {
            let path =
                convert_groups(path).ok_or("the new path depends on more than the old path")?;
            let (regex, path) = with_leading_slash(regex, &path)
                .ok_or("the new path does not begin with a slash")?;
            if !edits.rewrites.is_empty() {
                return Err("a route rewrites the path only once");
            }
            edits.rewrites.push((regex, path, position));
            Ok(())
        }
        [verb, path] if verb == "set-path" => {
            let (regex, path) =
                new_path(path).ok_or("the new path depends on more than the old path")?;
            if !edits.rewrites.is_empty() {
                return Err("a route rewrites the path only once");
            }
            edits.rewrites.push((regex, path, position));
            Ok(())
        }
        _ => Err("a route has no equivalent"),
    }
}

/// Returns whether a regular expression for path and query changes only the path: its last group keeps the remaining
/// text.
fn keeps_query(regex: &str, to: &str) -> bool {
    let groups = regex.matches('(').count();
    let last = format!("\\{groups}");
    let matches_tail = regex.ends_with("(.*)") || regex.ends_with("(.*)$");
    matches_tail && !regex.contains('?') && to.ends_with(&last) && to.matches(&last).count() == 1
}

/// Why a value cannot be converted.
const UNSUPPORTED_VALUE: &str = "the value contains an unsupported variable or a name in braces";

/// Returns a value with Weir's variables, or `None` if Weir has no equivalent of a variable.
fn convert_value(text: &str) -> Option<String> {
    if let Some(map) = text.strip_prefix(&format!("%[str({MAP_PREFIX}")) {
        return Some(format!("{{map.{}}}", map.trim_end_matches(")]")));
    }
    // These variables include the query, but `{path}` includes it only in a redirect.
    let has_query = ["capture.req.uri", "[url]", "pathq"];
    if crate::layer7::has_variable(text) || has_query.iter().any(|it| text.contains(it)) {
        return None;
    }
    rule::replace_variables(text)
}

/// Converts `%[path,regsub(^/api/,/)]`, a prefix before `%[path]`, or a fixed path, to a regular expression and the new
/// path.
fn new_path(text: &str) -> Option<(String, String)> {
    if let Some(fixed) = constant(text).filter(|_| text.starts_with('/')) {
        return Some(("^/.*$".to_owned(), fixed.to_owned()));
    }
    if let Some(prefix) = text.strip_suffix("%[path]") {
        let prefix = constant(prefix)?;
        return Some(("^/(.*)$".to_owned(), format!("{prefix}/{{1}}")));
    }
    let inner = text.strip_prefix("%[path,regsub(")?.strip_suffix(")]")?;
    let mut parts = inner.split(',');
    let (regex, replacement, flags) = (parts.next()?, parts.next()?, parts.next());
    let (regex, replacement) = (
        regex.trim_matches(['"', '\'']),
        replacement.trim_matches(['"', '\'']),
    );
    if flags.is_some() || !regex.starts_with('^') || regex.contains(['(', '$']) {
        return None;
    }
    let replacement = convert_groups(replacement)?;
    replacement
        .starts_with('/')
        .then(|| (format!("{regex}(.*)$"), format!("{replacement}{{1}}")))
}

/// Returns a value if it is constant, or `None` if it contains variables.
fn constant(text: &str) -> Option<String> {
    let without_escapes = text.replace("%%", "");
    let is_computed = without_escapes.contains('%') || crate::layer7::has_variable(text);
    (!is_computed).then(|| text.replace("%%", "%"))
}

/// Converts `/\1` to `/{1}`.
fn convert_groups(text: &str) -> Option<String> {
    let text = constant(text)?;
    if text.contains(['{', '}']) {
        return None;
    }
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                let digit = chars.next().filter(|digit| ('1'..='9').contains(digit))?;
                out.extend(['{', digit, '}']);
            }
            c => out.push(c),
        }
    }
    Some(out)
}

#[cfg(test)]
mod import_tests;
#[cfg(test)]
mod tests;
