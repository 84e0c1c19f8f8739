//! Stores definitions (`$NAME=value`), and expands `$NAME` and `${NAME}`.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::Environment;
use crate::note::Position;

/// Separates the lines of a multi-line definition.
const LINE_END: char = '\n';

/// Maximum length of a line after expansion, in bytes. keepalived does not expand a longer line any further.
const MAX_LINE_BYTES: usize = 4096;

/// Definitions that can be expanded.
pub(super) struct Definitions<'w> {
    environment: &'w dyn Environment,
    values: HashMap<String, String>,
    /// Definitions of the file that have not been used yet.
    unused: RefCell<HashMap<String, Position>>,
    /// The directory of the current file, for `${_PWD}`.
    pub(super) directory: String,
}

impl<'w> Definitions<'w> {
    pub(super) fn new(environment: &'w dyn Environment) -> Self {
        Self {
            environment,
            values: HashMap::new(),
            unused: RefCell::default(),
            directory: String::new(),
        }
    }

    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.values.insert(name.to_owned(), value.to_owned());
    }

    /// Adds a definition from the file.
    pub(super) fn define(&mut self, name: &str, value: &str, position: Position) {
        self.set(name, value);
        self.unused
            .borrow_mut()
            .entry(name.to_owned())
            .or_insert(position);
    }

    /// Returns the definitions that were never used.
    pub(super) fn unused(&self) -> Vec<(String, Position)> {
        let unused = self.unused.borrow();
        unused
            .iter()
            .map(|(name, position)| (name.clone(), *position))
            .collect()
    }

    /// Returns the value of a name and marks it as used.
    fn lookup(&self, name: &str) -> Option<&String> {
        self.unused.borrow_mut().remove(name);
        self.values.get(name)
    }

    /// Expands every defined name in a line. A multi-line definition yields several lines. Names in them are not
    /// expanded yet, because the lines may contain definitions.
    ///
    /// # Errors
    /// Returns why the line cannot be expanded.
    pub(super) fn expand(&self, line: &str) -> Result<Vec<String>, String> {
        let mut line = line.to_owned();
        // Values may refer to other names. Recursion is limited because a value may refer to itself.
        for _ in 0..32 {
            match self.expand_once(&line)? {
                None => return Ok(vec![line]),
                Some(replaced) if replaced.contains(LINE_END) => {
                    return Ok(replaced.split(LINE_END).map(str::to_owned).collect());
                }
                Some(replaced) => line = replaced,
            }
        }
        Err("the definition refers to itself".to_owned())
    }

    /// Expands each name in a line once. Returns `None` if there is nothing to expand.
    fn expand_once(&self, line: &str) -> Result<Option<String>, String> {
        let mut out = String::new();
        let mut changed = false;
        let mut rest = line;
        while let Some(offset) = rest.find('$') {
            let (prefix, tail) = rest.split_at(offset);
            out.push_str(prefix);
            match self.expand_name(&tail[1..])? {
                Some((value, length)) => {
                    out.push_str(&value);
                    rest = &tail[1 + length..];
                    changed = true;
                }
                None => {
                    out.push('$');
                    rest = &tail[1..];
                }
            }
            if out.len() > MAX_LINE_BYTES {
                return Err("the line is too long after its definitions are expanded".to_owned());
            }
        }
        out.push_str(rest);
        Ok(changed.then_some(out))
    }

    /// Returns the value of the name at the start of `text`, and the length of the name including braces. Returns
    /// `None` if the name is not defined.
    fn expand_name(&self, text: &str) -> Result<Option<(String, usize)>, String> {
        let name_length = |text: &str| {
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            text.find(|c| !is_word(c)).unwrap_or(text.len())
        };
        let Some(inner) = text.strip_prefix('{') else {
            let length = name_length(text);
            let value = self.lookup(&text[..length]);
            return Ok(value.map(|value| (value.clone(), length)));
        };
        let Some(end) = inner.find('}') else {
            return Ok(None);
        };
        let inner = &inner[..end];
        let name = &inner[..name_length(inner)];
        let value = match self.lookup(name) {
            Some(value) if name.len() == inner.len() => Some(value.clone()),
            _ => self.predefined(name, inner[name.len()..].trim())?,
        };
        Ok(value.map(|value| (value, end + 2)))
    }

    /// Returns the value of a name that keepalived predefines.
    fn predefined(&self, name: &str, argument: &str) -> Result<Option<String>, String> {
        Ok(match name {
            "_PWD" => Some(self.directory.clone()),
            // The instance name defaults to the host name.
            "_INSTANCE" => Some(self.environment.host_name()),
            "_HASH" => Some("#".to_owned()),
            "_BANG" => Some("!".to_owned()),
            "_ENV" => match self.environment.variable(argument) {
                Some(value) => Some(value),
                None => return Err(format!("${{_ENV {argument}}} is not set here")),
            },
            "_RANDOM" => {
                return Err(
                    "${_RANDOM} is a different number each time keepalived starts".to_owned(),
                );
            }
            _ => None,
        })
    }
}

/// Splits `$NAME=value`. Returns `None` if the line is not a definition.
pub(super) fn split_definition(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.strip_prefix('$')?.split_once('=')?;
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_valid = name.starts_with(is_first) && name.chars().all(is_word);
    is_valid.then(|| (name, value.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EmptyEnvironment;

    #[test]
    fn names_are_expanded_recursively() {
        let mut definitions = Definitions::new(&EmptyEnvironment);
        definitions.set("NET", "10.0.0");
        definitions.set("VIP", "${NET}.1");
        definitions.set("TWO", "a $NET\nb");
        let expand = |line: &str| definitions.expand(line);
        assert_eq!(expand("v $VIP 80"), Ok(vec!["v 10.0.0.1 80".to_owned()]));
        assert_eq!(expand("$OTHER $"), Ok(vec!["$OTHER $".to_owned()]));
        assert_eq!(
            expand("$TWO c"),
            Ok(vec!["a $NET".to_owned(), "b c".to_owned()])
        );
        assert_eq!(expand("a${_HASH}${_BANG}"), Ok(vec!["a#!".to_owned()]));
    }

    #[test]
    fn recursive_definitions_and_random_numbers_are_rejected() {
        let mut definitions = Definitions::new(&EmptyEnvironment);
        definitions.set("A", "$A");
        definitions.set("B", "$B$B");
        assert!(definitions.expand("$A").is_err());
        assert!(definitions.expand("$B").is_err());
        assert!(definitions.expand("${_RANDOM 1 2}").is_err());
    }

    #[test]
    fn definition_requires_a_valid_name() {
        assert_eq!(split_definition("$A_1= x y"), Some(("A_1", "x y")));
        assert_eq!(split_definition("$1=x"), None);
        assert_eq!(split_definition("$A =x"), None);
    }
}
