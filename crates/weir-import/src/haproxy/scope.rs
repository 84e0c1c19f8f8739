//! Tracks the environment variables that lines can use, including the changes that `global` makes.

use std::collections::HashMap;

use crate::Environment;

/// Environment variables, with the changes of `setenv` and similar lines.
pub(super) struct Scope<'e> {
    environment: &'e dyn Environment,
    /// Changed variables; `None` if unset.
    changes: HashMap<String, Option<String>>,
}

impl<'e> Scope<'e> {
    pub(super) fn new(environment: &'e dyn Environment) -> Self {
        Self {
            environment,
            changes: HashMap::new(),
        }
    }

    /// Returns the value of a variable, or `None` if it is not set.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        match self.changes.get(name) {
            Some(value) => value.clone(),
            None => self.environment.variable(name),
        }
    }

    /// Applies `setenv NAME VALUE`, `presetenv NAME VALUE` or `unsetenv NAME…`, which affect the following lines.
    /// Ignores any other line.
    pub(super) fn apply(&mut self, words: &[String]) {
        match words {
            [keyword, name, value]
                if keyword == "setenv"
                    || keyword == "presetenv" && self.variable(name).is_none() =>
            {
                self.changes.insert(name.clone(), Some(value.clone()));
            }
            [keyword, names @ ..] if keyword == "unsetenv" => {
                let names = names.iter().cloned();
                self.changes.extend(names.map(|name| (name, None)));
            }
            _ => {}
        }
    }
}
