//! Resolves references between lines of haproxy.cfg before the lines are imported.
//!
//! References are captured fields, variables that are set once, sockets between sections, stored certificates, and
//! directories of certificates.

use std::collections::HashMap;

use super::bind::absolute_path;
use super::line::Line;
use super::rule::condition;
use super::section::{File, Proxy};
use crate::note::{Notes, Position};

/// A variable that exactly one rule sets, without a condition, and the lines that use the variable.
#[derive(Debug)]
pub(super) struct Variable {
    set_by: Position,
    expression: String,
    used_by: Vec<Position>,
}

/// Variables with their names, as in `txn.host`, in reverse order of assignment, because expressions can contain
/// variables that were set earlier.
pub(super) type Variables = Vec<(String, Variable)>;

/// Replaces the references in all sections, and returns the variables.
pub(super) fn resolve(file: &mut File, notes: &mut Notes) -> Variables {
    let store = std::mem::take(&mut file.certificates);
    let bases = [
        ("crt", base_directory(file, "crt-base")),
        ("ca-file", base_directory(file, "ca-base")),
        ("crt-list", None),
    ];
    replace_sockets(&mut file.proxies, notes);
    let mut variables = constant_variables(&file.proxies);
    for proxy in &mut file.proxies {
        let captures = captured_expressions(proxy);
        for line in proxy.lines.iter_mut().chain(&mut proxy.defaults) {
            match line.keyword() {
                "bind" | "server" | "default-server" | "server-template" => {
                    replace_store_references(line, &store);
                    complete_paths(line, &bases, notes);
                }
                _ => {
                    replace_captures(line, &captures);
                    replace_variables(line, &mut variables);
                }
            }
        }
    }
    variables
}

/// Replaces Unix sockets between sections of the file with ports on the loopback interface.
fn replace_sockets(proxies: &mut [Proxy], notes: &mut Notes) {
    const FIRST_PORT: u16 = 21_000;
    let is_socket = |word: &str| {
        ["abns@", "unix@", "/"]
            .iter()
            .any(|kind| word.starts_with(kind))
    };
    let socket_path = |word: &str| word.trim_start_matches("unix@").to_owned();
    let sockets_of = |keyword: &str, index: usize| -> Vec<String> {
        let lines = proxies.iter().flat_map(|proxy| &proxy.lines);
        let lines = lines.filter(|line| line.keyword() == keyword);
        lines
            .filter_map(|line| {
                line.word(index)
                    .filter(|word| is_socket(word))
                    .map(socket_path)
            })
            .collect()
    };
    let (binds, servers) = (sockets_of("bind", 1), sockets_of("server", 2));
    let words: Vec<String> = proxies
        .iter()
        .flat_map(|proxy| proxy.lines.iter().flat_map(|line| line.words.clone()))
        .collect();
    let is_free = |port: &u16| {
        let suffix = format!(":{port}");
        !words.iter().any(|word| word.ends_with(&suffix))
    };
    let mut ports = (FIRST_PORT..).filter(is_free);
    let mut addresses: HashMap<String, String> = HashMap::new();
    for socket in binds.into_iter().filter(|socket| servers.contains(socket)) {
        if let Some(port) = ports.next() {
            addresses
                .entry(socket)
                .or_insert_with(|| format!("127.0.0.1:{port}"));
        }
    }
    for line in proxies.iter_mut().flat_map(|proxy| &mut proxy.lines) {
        let index = match line.keyword() {
            "bind" => 1,
            "server" => 2,
            _ => continue,
        };
        let Some(word) = line.words.get(index).cloned() else {
            continue;
        };
        let Some(address) = addresses.get(&socket_path(&word)) else {
            continue;
        };
        line.words[index].clone_from(address);
        let reason = format!(
            "{word} was replaced with {address}, which all processes on this host can reach"
        );
        // Any process can connect to an abstract socket, so a loopback port is no less protected.
        match word.starts_with("abns@") || index == 2 {
            true => notes.remark(line.position, reason),
            false => notes.add(line.position, reason),
        }
    }
}

/// Base directory for relative paths if the file sets none.
const DIRECTORY: &str = "/etc/haproxy";

/// Returns the value of `crt-base` or `ca-base`, or `None` if it is not set.
fn base_directory(file: &File, keyword: &str) -> Option<String> {
    let mut lines = file.global.iter().rev();
    let line = lines.find(|line| line.keyword() == keyword);
    line.and_then(|line| line.word(1)).map(str::to_owned)
}

/// Returns the base directory for relative certificate paths.
pub(super) fn certificate_directory(file: &File) -> String {
    base_directory(file, "crt-base").unwrap_or_else(|| DIRECTORY.to_owned())
}

/// Replaces `crt @STORE/ALIAS` with the path of the file.
fn replace_store_references(line: &mut Line, store: &HashMap<String, String>) {
    for index in 1..line.words.len() {
        if line.words[index - 1] == "crt"
            && let Some(path) = store.get(&line.words[index])
        {
            line.words[index].clone_from(path);
        }
    }
}

/// Prepends the base directory to relative paths of certificate files. Adds a note if none is configured.
fn complete_paths(line: &mut Line, bases: &[(&str, Option<String>)], notes: &mut Notes) {
    for index in 1..line.words.len() {
        let base = bases
            .iter()
            .find(|(word, _)| line.words[index - 1] == *word);
        let Some((_, base)) = base else {
            continue;
        };
        let path = &line.words[index];
        if path.starts_with(['/', '@']) {
            continue;
        }
        if base.is_none() {
            let reason = format!("{path} is a relative path, interpreted relative to {DIRECTORY}");
            notes.add(line.position, reason);
        }
        line.words[index] = absolute_path(path, base.as_deref().unwrap_or(DIRECTORY));
    }
}

/// Returns the expressions captured by `capture request header NAME len N` and `http-request capture`, in order.
fn captured_expressions(proxy: &Proxy) -> Vec<String> {
    let lines = proxy.lines.iter();
    lines
        .filter_map(|line| match line.words.as_slice() {
            [a, b, c, name, ..] if a == "capture" && b == "request" && c == "header" => {
                Some(format!("req.hdr({name})"))
            }
            [a, b, expression, len, ..]
                if a == "http-request" && b == "capture" && len == "len" =>
            {
                Some(expression.clone())
            }
            _ => None,
        })
        .collect()
}

fn replace_captures(line: &mut Line, captures: &[String]) {
    for (index, expression) in captures.iter().enumerate() {
        let reference = format!("capture.req.hdr({index})");
        for word in &mut line.words {
            if word.contains(&reference) {
                *word = word.replace(&reference, expression);
                line.uses_capture = true;
            }
        }
    }
}

/// Returns the variables that exactly one rule of the file sets, without a condition.
fn constant_variables(proxies: &[Proxy]) -> Variables {
    let mut variables: HashMap<String, Option<Variable>> = HashMap::new();
    for line in proxies.iter().flat_map(|proxy| &proxy.lines) {
        let Some((name, expression, has_condition)) = parse_assignment(line) else {
            continue;
        };
        let variable = Variable {
            set_by: line.position,
            expression,
            used_by: Vec::new(),
        };
        let is_first = !variables.contains_key(&name);
        variables.insert(name, Some(variable).filter(|_| is_first && !has_condition));
    }
    let variables = variables.into_iter();
    let mut variables: Variables = variables
        .filter_map(|(name, variable)| Some((name, variable?)))
        .collect();
    variables.sort_by_key(|(_, variable)| std::cmp::Reverse(variable.set_by));
    variables
}

/// Parses `http-request set-var(txn.host) req.hdr(host)`: name, expression, and whether the rule has a condition.
fn parse_assignment(line: &Line) -> Option<(String, String, bool)> {
    if line.keyword() != "http-request" {
        return None;
    }
    let name = line.word(1)?.strip_prefix("set-var(")?.strip_suffix(')')?;
    let (action, words) = condition(line.arguments());
    let [_, expression] = action else {
        return None;
    };
    Some((name.to_owned(), expression.clone(), !words.is_empty()))
}

fn replace_variables(line: &mut Line, variables: &mut Variables) {
    if parse_assignment(line).is_some() {
        return;
    }
    for (name, variable) in variables {
        let reference = format!("var({name})");
        for word in &mut line.words {
            if word.contains(&reference) {
                *word = word.replace(&reference, &variable.expression);
                line.uses_capture = true;
                variable.used_by.push(line.position);
            }
        }
    }
}

/// Adds notes about the rules that set variables: a rule that sets a variable is lost if a rule that uses the variable
/// is lost.
pub(super) fn note_variables(variables: &Variables, notes: &mut Notes) {
    for (_, variable) in variables {
        let position = variable.set_by;
        let mut used_by = variable.used_by.iter();
        if variable.used_by.is_empty() {
            notes.remark(position, "not imported: no rule uses the variable");
        } else if used_by.any(|line| notes.has_loss(*line)) {
            notes.add(
                position,
                "not imported: a rule that uses the variable is not imported",
            );
        }
    }
}

/// Returns whether the line sets one of the variables.
pub(super) fn sets_variable(variables: &Variables, position: Position) -> bool {
    variables.iter().any(|(_, it)| it.set_by == position)
}

#[cfg(test)]
mod tests;
