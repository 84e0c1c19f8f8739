//! Parses rules that become routes: rules that select pools, redirect or reject requests, or send fixed responses.

use super::line::Line;
use crate::Environment;
use crate::layer7::has_variable;
use crate::layer7::{Action, Condition};

/// A rule's action and condition, or the reason why routes do not support it.
pub(super) type ParsedRule<'l> = Result<(Action, &'l [String]), String>;

/// A rule to be converted for each service of the frontend.
pub(super) struct FrontendRule<'l> {
    pub(super) line: &'l Line,
    pub(super) action: Action,
    pub(super) condition: &'l [String],
    /// Earlier rules that let requests pass: this rule does not apply to those requests.
    pub(super) except: Vec<&'l Line>,
}

/// Splits the words of a rule before `if …` or `unless …`.
pub(super) fn condition(words: &[String]) -> (&[String], &[String]) {
    let index = words
        .iter()
        .position(|word| word == "if" || word == "unless");
    words.split_at(index.unwrap_or(words.len()))
}

/// Parses `http-request …`, `tcp-request …` or `block …`. Returns `None` if the line is not a rule for routes.
pub(super) fn parse_rule<'l>(
    line: &'l Line,
    environment: &dyn Environment,
) -> Option<ParsedRule<'l>> {
    let (action, condition) = condition(line.arguments());
    let action = match line.keyword() {
        // In `tcp-request`, the stage precedes the action.
        "tcp-request" => match action {
            [_, verb, ..] if verb == "reject" || verb == "silent-drop" => &action[1..],
            _ => return None,
        },
        "block" => return Some(Ok((fixed_response(403, String::new()), condition))),
        _ => action,
    };
    let options = action.get(1..).unwrap_or_default();
    Some(match action.first().map(String::as_str)? {
        verb @ ("deny" | "block" | "tarpit") => {
            let default = if verb == "tarpit" { 500 } else { 403 };
            // haproxy implies `default-errorfiles`.
            let options = options.iter().filter(|word| *word != "default-errorfiles");
            let options: Vec<String> = options
                .map(|word| word.replace("deny_status", "status"))
                .collect();
            parse_return(&options, default, condition, environment)
        }
        // The users are not imported, so the route rejects all clients.
        "auth" => Ok((fixed_response(401, String::new()), condition)),
        "silent-drop" | "reject" => Ok((Action::Close, condition)),
        "redirect" => parse_redirect(options, condition),
        "return" => parse_return(options, 200, condition, environment),
        _ => return None,
    })
}

/// Returns a response with only the status of a rule that rejects requests, for use if its other options are not
/// supported.
pub(super) fn rejection_of(line: &Line) -> Option<(Action, &[String])> {
    let (action, condition) = condition(line.arguments());
    let (verb, options) = action.split_first()?;
    let default = match (line.keyword(), verb.as_str()) {
        ("http-request", "deny" | "block") => 403,
        ("http-request", "tarpit") => 500,
        _ => return None,
    };
    let status = parse_status(options, "deny_status", default).unwrap_or(default);
    Some((fixed_response(status, String::new()), condition))
}

/// Parses `redirect scheme https …`, `redirect code 301 location …` and similar rules, with the options in any order.
pub(super) fn parse_redirect<'l>(words: &[String], condition: &'l [String]) -> ParsedRule<'l> {
    let mut target = None;
    let mut code = 302;
    let (mut drop_query, mut append_slash) = (false, false);
    let mut remaining = words.iter();
    while let Some(word) = remaining.next() {
        match word.as_str() {
            kind @ ("scheme" | "prefix" | "location") => {
                let value = remaining.next().ok_or("haproxy requires a target")?;
                target = Some((kind, value));
            }
            "code" => {
                code = remaining
                    .next()
                    .and_then(|code| code.parse().ok())
                    .unwrap_or(0)
            }
            "drop-query" => drop_query = true,
            "append-slash" => append_slash = true,
            other => return Err(format!("a route's `redirect` has no option {other}")),
        }
    }
    let Some((kind, value)) = target else {
        return Err("haproxy requires a kind of redirect and a target".to_owned());
    };
    if value.contains('{') && !value.contains("%{") {
        return Err("a name in braces is a variable in a route's `redirect`".to_owned());
    }
    // In a redirect, `{path}` includes the query, but haproxy's `path` does not. `//` at the start would name a host.
    let value = match kind {
        "location" if !value.contains("query") => match value.strip_prefix("/%[path]") {
            Some(remaining) => format!("{PATH_ONLY}{remaining}"),
            None => value.replace("%[path]", PATH_ONLY),
        },
        _ => value.clone(),
    };
    let value = replace_variables(&value).ok_or("the target contains an unsupported variable")?;
    let path = match (drop_query, append_slash) {
        (true, true) => PATH_WITH_SLASH,
        (true, false) => PATH_ONLY,
        (false, true) if kind != "location" => {
            return Err("a route's `redirect` adds a slash only with drop-query".to_owned());
        }
        (false, _) => "{path}",
    };
    let target_url = match kind {
        "scheme" => format!("{value}://{{host}}{path}"),
        "prefix" => format!("{}{path}", value.trim_end_matches('/')),
        _ => value,
    };
    if !matches!(code, 301 | 302 | 303 | 307 | 308) {
        return Err(format!("{code} is not a redirect status"));
    }
    let to = target_url;
    Ok((Action::Redirect { to, status: code }, condition))
}

/// Placeholder in the target of a redirect for the path without the query.
const PATH_ONLY: &str = "{whole}";
/// Placeholder in the target of a redirect for the path without the query, with a slash at its end.
const PATH_WITH_SLASH: &str = "{whole/}";

/// Returns the routes for a redirect that drops the query: `{path}` includes the query, so a group of a regular
/// expression replaces it. Returns `None` if the condition already has a regular expression that cannot be extended
/// with a group.
pub(super) fn routes_without_query(
    condition: &Condition,
    to: &str,
) -> Option<Vec<(Condition, String)>> {
    let with_regex = |regex: String, path: &str| {
        let condition = Condition {
            regex: Some(regex),
            ..condition.clone()
        };
        let to = to.replace(PATH_WITH_SLASH, path).replace(PATH_ONLY, path);
        (condition, to)
    };
    let adds_slash = to.contains(PATH_WITH_SLASH);
    let Some(regex) = &condition.regex else {
        let every_path = with_regex("^/(.*)$".to_owned(), "/{1}");
        return Some(match adds_slash {
            true => vec![with_regex("^/(.*[^/])$".to_owned(), "/{1}/"), every_path],
            false => vec![every_path],
        });
    };
    let inner = regex.strip_prefix("^/")?.strip_suffix('$')?;
    if inner.contains(['(', '|', '\\']) {
        return None;
    }
    let every_path = with_regex(format!("^/({inner})$"), "/{1}");
    if !adds_slash {
        return Some(vec![every_path]);
    }
    let with_slash = |inner: &str| with_regex(format!("^/({inner})$"), "/{1}/");
    match inner.strip_suffix("[^/]*") {
        Some(prefix) => Some(vec![with_slash(&format!("{prefix}[^/]+")), every_path]),
        None => inner.ends_with("[^/]").then(|| vec![with_slash(inner)]),
    }
}

/// Returns whether the target contains a placeholder that [`routes_without_query`] must replace.
pub(super) fn drops_query(to: &str) -> bool {
    to.contains(PATH_ONLY) || to.contains(PATH_WITH_SLASH)
}

/// Replaces haproxy's variables with Weir's. Returns `None` if Weir has no equivalent of a variable.
pub(super) fn replace_variables(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut remaining = text;
    while let Some(offset) = remaining.find('%') {
        out.push_str(&remaining[..offset]);
        remaining = &remaining[offset + 1..];
        if let Some(tail) = remaining.strip_prefix('%') {
            out.push('%');
            remaining = tail;
        } else if let Some(inner) = remaining.strip_prefix('[') {
            let (fetch, tail) = inner.split_once(']')?;
            out.push_str(&weir_variable(fetch)?);
            remaining = tail;
        } else {
            const ALIASES: [(&str, &str); 6] = [
                ("ci", "{client}"),
                ("cp", "{client_port}"),
                ("fp", "{listen_port}"),
                ("HM", "{method}"),
                ("b", "{pool}"),
                ("s", "{server}"),
            ];
            let (name, replacement) = ALIASES.iter().find(|(name, _)| {
                let tail = remaining.strip_prefix(*name);
                tail.is_some_and(|tail| !tail.starts_with(|c: char| c.is_ascii_alphanumeric()))
            })?;
            out.push_str(replacement);
            remaining = &remaining[name.len()..];
        }
    }
    out.push_str(remaining);
    Some(out)
}

/// Returns Weir's variable for a sample fetch method, or `None` if there is no equivalent.
fn weir_variable(fetch: &str) -> Option<String> {
    let (name, argument) = match fetch.strip_suffix(')').and_then(|it| it.split_once('(')) {
        Some((name, argument)) => (name, argument),
        None => (fetch, ""),
    };
    let is_plain = argument
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if !is_plain {
        return None;
    }
    Some(match (name, argument) {
        ("src", "") => "{client}".to_owned(),
        ("src_port", "") => "{client_port}".to_owned(),
        ("dst_port" | "fc_dst_port", "") => "{listen_port}".to_owned(),
        ("path" | "capture.req.uri" | "url", "") => "{path}".to_owned(),
        ("query", "") => "{query}".to_owned(),
        ("uuid", "" | "4") | ("unique-id", "") => "{request_id}".to_owned(),
        ("method" | "capture.req.method", "") => "{method}".to_owned(),
        ("ssl_fc_sni" | "req.ssl_sni", "") => "{tls_sni}".to_owned(),
        ("ssl_fc_protocol", "") => "{tls_version}".to_owned(),
        ("be_name", "") => "{pool}".to_owned(),
        ("srv_name", "") => "{server}".to_owned(),
        ("hdr" | "req.hdr" | "req.fhdr", host) if host.eq_ignore_ascii_case("host") => {
            "{host}".to_owned()
        }
        ("hdr" | "req.hdr" | "req.fhdr", field) if !field.is_empty() => {
            format!("{{header.{field}}}")
        }
        ("cook" | "req.cook", cookie) if !cookie.is_empty() => format!("{{cookie.{cookie}}}"),
        ("str", text) => text.to_owned(),
        _ => return None,
    })
}

/// A lookup in a file, such as `hdr(host),lower,map(/etc/haproxy/hosts.map,default)`, or in a list of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lookup {
    /// The text to look up, with Weir's variables.
    pub(super) key: String,
    pub(super) ignore_case: bool,
    /// Path of the file; empty if `entries` is used.
    pub(super) file: String,
    /// Keys and values; empty if `file` is used.
    pub(super) entries: Vec<String>,
    /// `kind` of the map.
    pub(super) kind: &'static str,
    pub(super) default: Option<String>,
}

/// Parses `%[EXPRESSION,map(FILE)]`.
pub(super) fn parse_lookup(text: &str) -> Option<Lookup> {
    let inner = text.strip_prefix("%[")?.strip_suffix(']')?;
    let (expression, call) = inner.split_at(inner.find(",map")?);
    let (name, arguments) = call[1..].strip_suffix(')')?.split_once('(')?;
    let kind = match name {
        "map" | "map_str" => "exact",
        "map_beg" => "prefix",
        "map_ip" => "network",
        "map_reg" => "regex",
        _ => return None,
    };
    let (file, default) = match arguments.split_once(',') {
        Some((file, default)) => (file, Some(default.to_owned())),
        None => (arguments, None),
    };
    let (fetch, converters) = expression.split_once(',').unwrap_or((expression, ""));
    let ignore_case = match converters {
        "" => false,
        "lower" | "field(1,:),lower" | "lower,field(1,:)" => true,
        _ => return None,
    };
    let key = match fetch {
        "base" => "{host}{path}".to_owned(),
        fetch => weir_variable(fetch)?,
    };
    file.starts_with('/').then(|| Lookup {
        key,
        ignore_case,
        file: file.to_owned(),
        entries: Vec::new(),
        kind,
        default,
    })
}

/// Parses `PREFIX%[EXPRESSION]SUFFIX`, the computed name of a backend, as a lookup with an entry for each backend whose
/// name has this prefix and suffix. `names` are the names of backends and their pools.
pub(super) fn parse_computed_name<'n>(
    text: &str,
    names: impl Iterator<Item = (&'n String, &'n String)>,
) -> Option<Lookup> {
    let (prefix, remaining) = text.split_once("%[")?;
    let (expression, suffix) = remaining.split_once(']')?;
    if suffix.contains('%') {
        return None;
    }
    let (fetch, converters) = expression.split_once(',').unwrap_or((expression, ""));
    let ignore_case = match converters {
        "" => false,
        "lower" | "field(1,:),lower" | "lower,field(1,:)" => true,
        _ => return None,
    };
    let key = weir_variable(fetch)?;
    let mut entries: Vec<String> = names
        .filter_map(|(name, pool)| {
            let key = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
            let is_text = !key.is_empty() && !key.contains(char::is_whitespace);
            is_text.then(|| format!("{key} {pool}"))
        })
        .collect();
    entries.sort();
    (!entries.is_empty()).then(|| Lookup {
        key,
        ignore_case,
        file: String::new(),
        entries,
        kind: "exact",
        default: None,
    })
}

/// Parses a `redirect` line.
pub(super) fn parse_redirect_line(line: &Line) -> ParsedRule<'_> {
    let (arguments, condition) = condition(line.arguments());
    parse_redirect(arguments, condition)
}

/// Parses `use_backend NAME if …`. Returns `None` if the name is computed.
pub(super) fn parse_use_backend(line: &Line) -> Option<(&str, &[String])> {
    let (arguments, condition) = condition(line.arguments());
    match arguments {
        [name] if !name.contains('%') => Some((name.as_str(), condition)),
        _ => None,
    }
}

fn fixed_response(status: u64, body: String) -> Action {
    Action::Respond { status, body }
}

fn parse_status(words: &[String], name: &str, default: u64) -> Option<u64> {
    let index = words
        .iter()
        .position(|word| word == name || word == "status");
    match index {
        None => Some(default),
        Some(index) => words
            .get(index + 1)?
            .parse()
            .ok()
            .filter(|status| (200..600).contains(status)),
    }
}

/// Maximum size of a file whose text is copied to weir.toml, in bytes.
const FILE_MAX_BYTES: usize = 16 << 10;

/// Parses `return status 200 content-type text/plain string "x" hdr X-Name value`.
fn parse_return<'l>(
    words: &[String],
    default: u64,
    condition: &'l [String],
    environment: &dyn Environment,
) -> ParsedRule<'l> {
    let status = parse_status(words, "status", default).ok_or("invalid response status")?;
    let (mut body, mut media_type) = (String::new(), None);
    let mut fields = Vec::new();
    let mut remaining = words.iter();
    while let Some(word) = remaining.next() {
        match word.as_str() {
            "status" => {
                remaining.next();
            }
            "content-type" => media_type = remaining.next().cloned(),
            "string" => {
                body = remaining.next().cloned().unwrap_or_default();
                if has_variable(&body) {
                    return Err("a name in braces is a variable in a route's `body`".to_owned());
                }
            }
            "lf-string" => {
                let text = remaining.next().map_or("", String::as_str);
                // These variables include the query, but `{path}` includes it only in a redirect.
                let variables_with_query = ["capture.req.uri", "[url]", "pathq"];
                let is_plain = |text: &&str| {
                    !has_variable(text) && !variables_with_query.iter().any(|it| text.contains(it))
                };
                let supported = Some(text).filter(is_plain);
                body = supported
                    .and_then(replace_variables)
                    .ok_or("the text contains an unsupported variable or a name in braces")?;
            }
            "file" => {
                let file = remaining.next().map_or("", String::as_str);
                body = read_body(file, environment)?;
            }
            "hdr" => {
                let name = remaining.next().map_or("", String::as_str);
                let value = remaining.next().map_or("", String::as_str);
                let value = Some(value)
                    .filter(|value| !has_variable(value))
                    .and_then(replace_variables)
                    .ok_or("a field contains an unsupported variable or a name in braces")?;
                fields.push(format!("{name}: {value}"));
            }
            other => return Err(format!("a route's response has no option {other}")),
        }
    }
    if !body.is_empty() && media_type.is_none() {
        return Err("haproxy requires a content-type for the text".to_owned());
    }
    let media_type = media_type.filter(|kind| !body.is_empty() && !kind.starts_with("text/plain"));
    fields.extend(media_type.map(|kind| format!("Content-Type: {kind}")));
    if fields.is_empty() {
        return Ok((fixed_response(status, body), condition));
    }
    let action = Action::RespondWithFields {
        status,
        body,
        fields,
    };
    Ok((action, condition))
}

/// Returns the text of a file. haproxy reads the file only when it starts, so a copy in weir.toml is equivalent.
fn read_body(file: &str, environment: &dyn Environment) -> Result<String, String> {
    let text = environment.read(file);
    let text = text.map_err(|reason| format!("the file {file} cannot be read here: {reason}"))?;
    if text.len() > FILE_MAX_BYTES {
        return Err(format!(
            "the file {file} is larger than {FILE_MAX_BYTES} bytes; see a route's `files`"
        ));
    }
    match has_variable(&text) {
        true => Err(format!(
            "the file {file} contains a name in braces, which is a variable in a route's `body`"
        )),
        false => Ok(text),
    }
}

#[cfg(test)]
mod tests;
