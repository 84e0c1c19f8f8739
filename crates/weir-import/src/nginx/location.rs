//! `location`, and the `if` blocks in it: routes of one server block.

use super::action::action;
use super::header::{edits, new_path};
use super::tree::Node;
use super::when::{When, admitted, when};
use super::{Context, reason};
use crate::edit::Edits;
use crate::guard;
use crate::layer7::{Action, Condition};
use crate::note::{Notes, Place};

/// A route of a server block: a path, or all that is left; and what becomes of it.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) place: Place,
    /// `None` = every path.
    pub(super) path: Option<String>,
    /// An expression, in place of a path.
    pub(super) regex: Option<String>,
    /// What a request must be besides.
    pub(super) when: Condition,
    pub(super) action: Action,
    /// What becomes of heads where it leads to a pool.
    pub(super) edits: Edits,
    /// Where it stands among its like: exact paths, `^~`, expressions, prefixes; longer ones first.
    rank: (u8, usize),
}

/// What a server block's locations come to.
#[derive(Clone, Debug, Default)]
pub(super) struct Ways {
    pub(super) all: Vec<Way>,
    /// `keepalive` of an upstream that they lead to.
    pub(super) idle: Option<(u64, Place)>,
    /// Whether servers are told of clients.
    pub(super) told: bool,
    pub(super) passed: Passed,
}

/// What a service does with paths: its `proxy_pass` by the path that nginx asks servers for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Passed {
    /// Some location is for certain paths.
    pub(super) compared: bool,
    /// Some ask for the path as it was received: they name no path.
    pub(super) received: bool,
    /// One asks for the normalized path: it names the location's own.
    pub(super) normalized: Option<Place>,
}

impl Way {
    /// Whether it is for every path.
    pub(super) fn is_rest(&self) -> bool {
        self.path.is_none() && self.regex.is_none() && self.when == Condition::default()
    }

    /// What becomes of every path that is left.
    pub(super) fn rest(place: Place, action: Action) -> Self {
        Self {
            place,
            path: None,
            regex: None,
            when: Condition::default(),
            action,
            edits: Edits::default(),
            rank: (9, 0),
        }
    }
}

/// Reads a server block; `scheme` is that of its clients, and the locations of `pages` are pages of errors. `idle` is what
/// server blocks before it have found.
pub(super) fn ways(
    context: &mut Context<'_>,
    server: &Node,
    scheme: &str,
    outer: &[Node],
    (pages, idle, passed): (&[String], Option<(u64, Place)>, Passed),
    notes: &mut Notes,
) -> Ways {
    let is_page = |node: &Node| {
        let path = match (node.word(1), node.word(2)) {
            (Some("="), path) | (path, None) => path,
            _ => None,
        };
        path.is_some_and(|path| pages.iter().any(|page| page == path))
    };
    let locations: Vec<&Node> = server
        .inner()
        .iter()
        .filter(|node| node.keyword() == "location" && !is_page(node))
        .collect();
    let inner = locations.iter().any(|node| told(node.inner()));
    let mut ways = Ways {
        told: told(server.inner()) || told(outer) || inner,
        idle,
        passed,
        ..Ways::default()
    };
    let levels: [&[Node]; 2] = [server.inner(), outer];
    let every = Way {
        rank: (0, 0),
        ..Way::rest(server.place, Action::Pool(String::new()))
    };
    if asked(context, server, scheme, &every, &levels, &mut ways, notes) {
        leave_all(context, &locations);
        return ways;
    }
    let own = action(context, server, scheme, "/", &levels, &mut ways, notes);
    for line in server
        .inner()
        .iter()
        .filter(|line| line.keyword() == "rewrite" && new_path(line).is_some())
    {
        line.refuse(
            notes,
            "locations are chosen by the new path, and routes look at the one that came",
        );
    }
    if let Some((action, place)) = own {
        ways.all.push(Way::rest(place, action));
        leave_all(context, &locations);
        return ways;
    }
    for node in locations {
        location(context, node, server, scheme, outer, &mut ways, notes);
    }
    ways.all.sort_by_key(|way| (way.is_rest(), way.rank));
    ways
}

fn leave_all(context: &mut Context<'_>, locations: &[&Node]) {
    const WHY: &str = "the server answers by itself before it looks at paths";
    let locations = locations.iter().map(|node| ((*node).clone(), WHY));
    context.unneeded.extend(locations);
}

/// The `if` blocks of a server block or a location, which are tried before all else in it, for requests `like` these; whether
/// one of them is for every one.
fn asked(
    context: &mut Context<'_>,
    node: &Node,
    scheme: &str,
    like: &Way,
    levels: &[&[Node]],
    ways: &mut Ways,
    notes: &mut Notes,
) -> bool {
    for block in node.inner().iter().filter(|node| node.keyword() == "if") {
        let Some(asked) = when(block, scheme) else {
            block.refuse(notes, reason("if"));
            continue;
        };
        if asked == When::Never {
            context
                .unneeded
                .push((block.clone(), "no client of it comes so"));
            continue;
        }
        let path = like.path.as_deref().unwrap_or("/");
        let path = path.trim_end_matches('*');
        let Some((action, place)) = action(context, block, scheme, path, levels, ways, notes)
        else {
            block.refuse(notes, "nothing in it leads anywhere that Weir could");
            continue;
        };
        context.used.insert(block.place);
        let levels: Vec<&[Node]> = std::iter::once(block.inner())
            .chain(levels.iter().copied())
            .collect();
        let edits = edits_of(context, &action, &levels, (scheme, ways.told), notes);
        rest_of(context, block, notes);
        let always = asked == When::Always;
        let when = match asked {
            When::Fits(condition) => condition,
            _ => Condition::default(),
        };
        ways.all.push(Way {
            place,
            when,
            action,
            edits,
            ..like.clone()
        });
        if always {
            return true;
        }
    }
    false
}

fn told(nodes: &[Node]) -> bool {
    nodes.iter().any(|node| {
        node.keyword() == "proxy_set_header"
            && node
                .word(1)
                .is_some_and(|name| name.eq_ignore_ascii_case("X-Forwarded-For"))
    })
}

fn location(
    context: &mut Context<'_>,
    node: &Node,
    server: &Node,
    scheme: &str,
    outer: &[Node],
    ways: &mut Ways,
    notes: &mut Notes,
) {
    let (kind, text) = match (node.word(1), node.word(2)) {
        (Some(kind @ ("=" | "~" | "~*" | "^~")), Some(text)) => (kind, text),
        (Some(text), None) => ("", text),
        _ => return node.refuse(notes, "it names no path"),
    };
    let (paths, rank): (Vec<Option<String>>, u8) = match kind {
        "=" => (vec![Some(escaped(text))], 0),
        "^~" => (vec![prefix(text)], 1),
        "" if is_below_another(server, text) => {
            if server.inner().iter().any(is_expression) {
                notes.say(
                    node.place,
                    "nginx asks expressions first here; it stands before them, beside the `^~` that it is below",
                );
            }
            (vec![prefix(text)], 1)
        }
        "~" => match endings(text) {
            Some(paths) => (paths.into_iter().map(Some).collect(), 2),
            None => (vec![None], 2),
        },
        "~*" => (vec![None], 2),
        _ if text.starts_with('@') => return node.refuse(notes, "routes have no names"),
        _ => (vec![prefix(text)], 3),
    };
    if paths
        .iter()
        .flatten()
        .any(|path| path.trim_end_matches('*').contains('*') && kind != "~" && kind != "~*")
    {
        return node.refuse(notes, "a star in a path stands for anything");
    }
    let longest = if rank == 2 {
        ways.all.len()
    } else {
        usize::MAX - text.len()
    };
    let levels: [&[Node]; 3] = [node.inner(), server.inner(), outer];
    let regex_of = |path: &Option<String>| match kind {
        "~" if path.is_none() => Some(text.to_owned()),
        "~*" => Some(format!("(?i){text}")),
        _ => None,
    };
    for path in &paths {
        let like = Way {
            path: path.clone(),
            regex: regex_of(path),
            rank: (rank, longest),
            ..Way::rest(node.place, Action::Pool(String::new()))
        };
        if asked(context, node, scheme, &like, &levels, ways, notes) {
            let rest = node.inner().iter().filter(|line| line.keyword() != "if");
            let rest = rest.map(|line| (line.clone(), "its `if` answers everybody before"));
            context.unneeded.extend(rest);
            context.used.insert(node.place);
            return;
        }
    }
    let found = action(context, node, scheme, text, &levels, ways, notes);
    let (action, place, cases) = match found {
        Some((action, place)) => {
            // What `return` answers is answered before nginx asks who may come in.
            let cases = match action.pool() {
                Some(_) => admitted(context, &levels, notes),
                None => vec![(Vec::new(), true)],
            };
            (action, place, cases)
        }
        None if is_guarded(node) => {
            let cases = admitted(context, &levels, notes);
            if cases.iter().any(|(_, may)| *may) {
                const WHY: &str = "whom it lets in gets nginx's own files, which Weir has not; everybody is answered 403";
                notes.say(node.place, WHY);
            }
            // Without this, what nginx denies would come to the pool.
            let denied = Action::Answer {
                status: 403,
                body: String::new(),
            };
            (denied, node.place, vec![(Vec::new(), true)])
        }
        None => return node.refuse(notes, "nothing in it leads anywhere that Weir could"),
    };
    context.used.insert(node.place);
    let edits = edits_of(context, &action, &levels, (scheme, ways.told), notes);
    rest_of(context, node, notes);
    for path in paths {
        let regex = regex_of(&path);
        for (networks, may) in &cases {
            let action = match may {
                true => action.clone(),
                false => Action::Answer {
                    status: 403,
                    body: String::new(),
                },
            };
            ways.all.push(Way {
                path: path.clone(),
                regex: regex.clone(),
                when: Condition {
                    sources: networks.clone(),
                    ..Condition::default()
                },
                edits: edits.clone(),
                rank: (rank, longest),
                ..Way::rest(place, action)
            });
        }
    }
}

/// Whether it says itself that it is not for everybody.
fn is_guarded(node: &Node) -> bool {
    let mut lines = node.inner().iter();
    lines.any(|line| guard::nginx_refuses(&line.words))
}

/// What becomes of heads; an answer of Weir's own has none that could change.
fn edits_of(
    context: &mut Context<'_>,
    action: &Action,
    levels: &[&[Node]],
    clients: (&str, bool),
    notes: &mut Notes,
) -> Edits {
    match action.pool() {
        Some(_) => edits(context, levels, clients, notes),
        None => Edits::default(),
    }
}

/// Says of every line of a block that nothing came of why.
fn rest_of(context: &Context<'_>, node: &Node, notes: &mut Notes) {
    for inner in node.inner() {
        let led = ["proxy_pass", "return", "rewrite"].contains(&inner.keyword());
        let read = context.used.contains(&inner.place) || notes.speaks_of(inner.place);
        if !led && !read {
            inner.refuse(notes, reason(inner.keyword()));
        }
    }
}

/// Whether a location is for some of the paths of a `^~` one, which would take them all.
fn is_below_another(server: &Node, text: &str) -> bool {
    let stops = |node: &&Node| node.keyword() == "location" && node.word(1) == Some("^~");
    let mut paths = server.inner().iter().filter(stops);
    paths.any(|node| {
        node.word(2)
            .is_some_and(|path| text.starts_with(path) && text != path)
    })
}

fn is_expression(node: &Node) -> bool {
    node.keyword() == "location" && matches!(node.word(1), Some("~" | "~*"))
}

/// `/` is every path.
fn prefix(text: &str) -> Option<String> {
    (text != "/").then(|| format!("{}*", escaped(text)))
}

/// A path as nginx compares it, decoded, in the spelling that routes compare.
fn escaped(text: &str) -> String {
    let mut path = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && !b"\"#%<>?\\^`{|}".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
    path
}

/// `\.(png|jpg)$`, the one expression that is a list of names' ends.
fn endings(pattern: &str) -> Option<Vec<String>> {
    let inner = pattern.strip_prefix("\\.")?.strip_suffix('$')?;
    let inner = match inner.strip_prefix('(') {
        Some(rest) => rest.trim_start_matches("?:").strip_suffix(')')?,
        None => inner,
    };
    let plain =
        |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let words: Vec<&str> = inner.split('|').collect();
    let all = words.iter().all(|word| plain(word));
    all.then(|| words.iter().map(|word| format!("*.{word}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_escaped_as_requests_have_them() {
        assert_eq!(escaped("/a b/\u{e9}%20;x=1"), "/a%20b/%C3%A9%2520;x=1");
    }

    #[test]
    fn only_a_list_of_endings_is_an_expression_that_routes_know() {
        assert_eq!(
            endings(r"\.(png|jpg)$"),
            Some(vec!["*.png".into(), "*.jpg".into()])
        );
        assert_eq!(endings(r"\.php$"), Some(vec!["*.php".into()]));
        assert_eq!(endings(r"^/a/\d+"), None);
        assert_eq!(endings(r"\.(a|)$"), None);
    }
}
