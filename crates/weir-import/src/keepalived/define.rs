//! `$NAME=value`, and what replaces `$NAME` and `${NAME}`.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::World;
use crate::note::Place;

/// Ends a line inside a definition of several.
const LINE_END: char = '\n';

/// A line that grew beyond this is given up, as keepalived does.
const LONGEST: usize = 4096;

/// What may replace a word.
pub(super) struct Definitions<'w> {
    world: &'w dyn World,
    values: HashMap<String, String>,
    /// Definitions of the file that nothing has named so far.
    unused: RefCell<HashMap<String, Place>>,
    /// The directory of the file that is read, for `${_PWD}`.
    pub(super) directory: String,
    pub(super) instance: String,
}

impl<'w> Definitions<'w> {
    pub(super) fn new(world: &'w dyn World) -> Self {
        Self {
            world,
            values: HashMap::new(),
            unused: RefCell::default(),
            directory: String::new(),
            instance: String::new(),
        }
    }

    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.values.insert(name.to_owned(), value.to_owned());
    }

    /// A definition that stands in the file.
    pub(super) fn define(&mut self, name: &str, value: &str, place: Place) {
        self.set(name, value);
        self.unused
            .borrow_mut()
            .entry(name.to_owned())
            .or_insert(place);
    }

    /// Definitions that nothing named.
    pub(super) fn unused(&self) -> Vec<(String, Place)> {
        let unused = self.unused.borrow();
        unused
            .iter()
            .map(|(name, place)| (name.clone(), *place))
            .collect()
    }

    /// The value of a name, which counts as used.
    fn known(&self, name: &str) -> Option<&String> {
        self.unused.borrow_mut().remove(name);
        self.values.get(name)
    }

    /// The line with every known name replaced; several lines where a definition has them.
    ///
    /// # Errors
    /// Why it cannot be replaced.
    pub(super) fn replace(&self, line: &str) -> Result<Vec<String>, String> {
        let mut line = line.to_owned();
        // A value may name others; one that names itself never ends.
        for _ in 0..32 {
            match self.once(&line)? {
                None => return Ok(line.split(LINE_END).map(str::to_owned).collect()),
                Some(replaced) => line = replaced,
            }
        }
        Err("a definition stands in itself".to_owned())
    }

    /// `None` = there is nothing to replace.
    fn once(&self, line: &str) -> Result<Option<String>, String> {
        let mut out = String::new();
        let mut changed = false;
        let mut rest = line;
        while let Some(at) = rest.find('$') {
            let (before, from) = rest.split_at(at);
            out.push_str(before);
            match self.value(&from[1..])? {
                Some((value, length)) => {
                    out.push_str(&value);
                    rest = &from[1 + length..];
                    changed = true;
                }
                None => {
                    out.push('$');
                    rest = &from[1..];
                }
            }
            if out.len() > LONGEST {
                return Err("with its definitions the line is too long".to_owned());
            }
        }
        out.push_str(rest);
        Ok(changed.then_some(out))
    }

    /// What stands for the name at the start of `text`, and how much of it the name takes.
    fn value(&self, text: &str) -> Result<Option<(String, usize)>, String> {
        let word = |text: &str| {
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            text.find(|c| !is_word(c)).unwrap_or(text.len())
        };
        let Some(inner) = text.strip_prefix('{') else {
            let length = word(text);
            let value = self.known(&text[..length]);
            return Ok(value.map(|value| (value.clone(), length)));
        };
        let Some(end) = inner.find('}') else {
            return Ok(None);
        };
        let inner = &inner[..end];
        let name = &inner[..word(inner)];
        let value = match self.known(name) {
            Some(value) if name.len() == inner.len() => Some(value.clone()),
            _ => self.standard(name, inner[name.len()..].trim())?,
        };
        Ok(value.map(|value| (value, end + 2)))
    }

    /// keepalived's own names.
    fn standard(&self, name: &str, argument: &str) -> Result<Option<String>, String> {
        Ok(match name {
            "_PWD" => Some(self.directory.clone()),
            "_INSTANCE" => Some(self.instance.clone()),
            "_HASH" => Some("#".to_owned()),
            "_BANG" => Some("!".to_owned()),
            "_ENV" => Some(self.world.variable(argument).unwrap_or_default()),
            "_RANDOM" => return Err("${_RANDOM} is another number at each start".to_owned()),
            _ => None,
        })
    }
}

/// `$NAME=value`, and the value of it.
pub(super) fn definition(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.strip_prefix('$')?.split_once('=')?;
    let starts = |c: char| c.is_ascii_alphabetic() || c == '_';
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let valid = name.starts_with(starts) && name.chars().all(is_word);
    valid.then(|| (name, value.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Alone;

    #[test]
    fn names_are_replaced_until_none_is_left() {
        let mut definitions = Definitions::new(&Alone);
        definitions.set("NET", "10.0.0");
        definitions.set("VIP", "${NET}.1");
        definitions.set("TWO", "a $NET\nb");
        let replaced = |line: &str| definitions.replace(line);
        assert_eq!(replaced("v $VIP 80"), Ok(vec!["v 10.0.0.1 80".to_owned()]));
        assert_eq!(replaced("$OTHER $"), Ok(vec!["$OTHER $".to_owned()]));
        assert_eq!(
            replaced("$TWO c"),
            Ok(vec!["a 10.0.0".to_owned(), "b c".to_owned()])
        );
        assert_eq!(replaced("a${_HASH}${_BANG}"), Ok(vec!["a#!".to_owned()]));
    }

    #[test]
    fn what_never_ends_is_refused() {
        let mut definitions = Definitions::new(&Alone);
        definitions.set("A", "$A");
        definitions.set("B", "$B$B");
        assert!(definitions.replace("$A").is_err());
        assert!(definitions.replace("$B").is_err());
        assert!(definitions.replace("${_RANDOM 1 2}").is_err());
    }

    #[test]
    fn a_definition_begins_with_a_name() {
        assert_eq!(definition("$A_1= x y"), Some(("A_1", "x y")));
        assert_eq!(definition("$1=x"), None);
        assert_eq!(definition("$A =x"), None);
    }
}
