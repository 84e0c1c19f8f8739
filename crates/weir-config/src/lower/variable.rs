//! Parses variables, `{name}`, in texts that are expanded for each request.

use std::ops::Range;
use std::sync::Arc;

use weir_model::{Conditions, Template, TextRegex, ValueMap, Variable};

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::suggest::nearest;
use crate::view::Sink;

/// Properties of a text that determine which variables it may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope<'a> {
    /// Whether the server is selected before the text is expanded.
    pub(crate) server: bool,
    /// The route's conditions, which define `{1}` to `{9}` and `{rest}`; `None` = the text belongs to a service.
    pub(crate) route: Option<&'a Conditions>,
    /// The regular expression of `rewrite`. Its groups replace those of the conditions.
    pub(crate) regex: Option<&'a TextRegex>,
}

/// Parses a text; reports variables that do not exist or have no value in it.
pub(crate) fn template(
    sink: &mut Sink<'_>,
    text: &str,
    span: &Range<usize>,
    scope: Scope<'_>,
) -> Option<Template> {
    let parsed = Template::parse(text).and_then(|template| {
        // A map with an error has already been reported; an empty map replaces it.
        let empty = || Arc::new(ValueMap::empty());
        template.with_maps(|name| {
            let entry = sink.maps.iter().find(|(map, _)| map == name);
            entry.map(|(_, map)| map.clone().unwrap_or_else(empty))
        })
    });
    let template = match parsed {
        Ok(template) => template,
        Err(unknown) => {
            let name = unknown.name;
            let message = format!("unknown variable `{{{name}}}`");
            let candidates = Variable::TABLE.iter().map(|(name, _)| *name).chain([
                "header.NAME",
                "cookie.NAME",
                "map.NAME",
            ]);
            let fix = nearest(&name, candidates).map_or_else(
                || {
                    let names = Variable::TABLE
                        .iter()
                        .map(|(name, _)| format!("{{{name}}}"));
                    let names: Vec<String> = names.collect();
                    format!(
                        "use one of {}, {{header.NAME}}, {{cookie.NAME}}, {{map.NAME}}, {{1}} to {{9}}",
                        names.join(", ")
                    )
                },
                |near| format!("did you mean `{{{near}}}`?"),
            );
            sink.push(Diagnostic::new(Code::UnknownValue, span, message).fix(fix));
            return None;
        }
    };
    let problem = template
        .variables()
        .find_map(|variable| variable_problem(variable, scope));
    if let Some((message, fix)) = problem {
        sink.push(Diagnostic::new(Code::UnknownValue, span, message).fix(fix));
        return None;
    }
    Some(template)
}

/// Returns the reason why a variable has no value in a text, and a fix; `None` if it has a value.
fn variable_problem(variable: &Variable, scope: Scope<'_>) -> Option<(String, &'static str)> {
    match variable {
        Variable::Server if !scope.server => Some((
            "`{server}` is not known before a server is selected".to_owned(),
            "use it in response header fields",
        )),
        Variable::Group(number) => {
            let (key, fix) = match scope.regex {
                Some(_) => (
                    "regex",
                    "put the part of the path in parentheses in `regex`",
                ),
                None => (
                    "path_regex",
                    "put the part of the path in parentheses in each `path_regex` of the route",
                ),
            };
            let regexes = match scope.regex {
                Some(regex) => std::slice::from_ref(regex),
                None => scope.route.map_or(&[][..], |when| &when.path_regexes),
            };
            let groups = regexes
                .iter()
                .map(|regex| regex.group_count())
                .min()
                .unwrap_or(0);
            (usize::from(*number) > groups).then(|| {
                let noun = if groups == 1 { "group" } else { "groups" };
                (
                    format!("`{{{number}}}` has no value: `{key}` has {groups} capture {noun}"),
                    fix,
                )
            })
        }
        Variable::Rest if scope.route.is_none() => Some((
            "`{rest}` has no value: it is part of the path that a route matches".to_owned(),
            "use `{path}`, or a route",
        )),
        _ => None,
    }
}
