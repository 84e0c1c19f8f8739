//! The variables that lines are expanded with: those of the environment, as `global` changes them.

use std::collections::HashMap;

use crate::Environment;

/// Environment variables, with the changes of `setenv` and similar lines.
pub(super) struct Scope<'e> {
    environment: &'e dyn Environment,
    /// `None` = removed.
    own: HashMap<String, Option<String>>,
}

impl<'e> Scope<'e> {
    pub(super) fn new(environment: &'e dyn Environment) -> Self {
        Self {
            environment,
            own: HashMap::new(),
        }
    }

    pub(super) fn variable(&self, name: &str) -> Option<String> {
        match self.own.get(name) {
            Some(value) => value.clone(),
            None => self.environment.variable(name),
        }
    }

    /// `setenv NAME VALUE`, `presetenv NAME VALUE`, `unsetenv NAME…`; haproxy applies them to the lines that follow.
    pub(super) fn apply(&mut self, words: &[String]) {
        match words {
            [keyword, name, value]
                if keyword == "setenv"
                    || keyword == "presetenv" && self.variable(name).is_none() =>
            {
                self.own.insert(name.clone(), Some(value.clone()));
            }
            [keyword, names @ ..] if keyword == "unsetenv" => {
                let names = names.iter().cloned();
                self.own.extend(names.map(|name| (name, None)));
            }
            _ => {}
        }
    }
}
