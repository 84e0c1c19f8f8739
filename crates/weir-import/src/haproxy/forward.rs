//! `option forwardfor` and its words: a field other than `X-Forwarded-For`, or only for requests without the field.

use super::line::Line;
use crate::layer7::Condition;

/// The options of `forwardfor`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ForwardFor {
    /// `except NETWORK`.
    pub(super) except: Option<String>,
    /// `header NAME`; `None` = X-Forwarded-For.
    field: Option<String>,
    /// `if-none`.
    if_none: bool,
}

/// The field if `header` is not given.
const DEFAULT_FIELD: &str = "X-Forwarded-For";

/// Reads the words; `None` = haproxy rejects one of them.
pub(super) fn read(line: &Line) -> Option<ForwardFor> {
    let mut found = ForwardFor::default();
    let mut words = line.words.iter().skip(2);
    while let Some(word) = words.next() {
        match word.as_str() {
            "except" => found.except = Some(words.next()?.clone()),
            "header" => found.field = words.next().cloned(),
            "if-none" => found.if_none = true,
            _ => return None,
        }
    }
    found
        .field
        .take_if(|name| name.eq_ignore_ascii_case(DEFAULT_FIELD));
    Some(found)
}

impl ForwardFor {
    /// Returns whether `x_forwarded` of a service can express the options.
    pub(super) fn fits_service(&self) -> bool {
        self.field.is_none() && !self.if_none
    }

    fn field(&self) -> &str {
        self.field.as_deref().unwrap_or(DEFAULT_FIELD)
    }

    /// Returns the condition for requests that get the field; `None` = all requests.
    pub(super) fn condition(&self) -> Option<Condition> {
        let mut condition = Condition::default();
        if let Some(network) = &self.except {
            condition.not.insert("source", vec![network.clone()]);
        }
        if self.if_none {
            let name = self.field().to_owned();
            condition.not.insert("header", vec![name]);
        }
        (!condition.not.is_empty()).then_some(condition)
    }

    /// Returns the rule that adds the field to these requests.
    pub(super) fn rule(&self, line: &Line) -> Line {
        let words = ["http-request", "add-header", self.field(), "%[src]"];
        Line {
            words: words.map(str::to_owned).to_vec(),
            ..line.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::note::Position;

    fn found(text: &str) -> Option<ForwardFor> {
        read(&Line {
            position: Position::new(0, 1),
            words: text.split_whitespace().map(str::to_owned).collect(),
            uses_capture: false,
        })
    }

    #[test]
    fn options_determine_field_and_condition() {
        let usual = found("option forwardfor header x-forwarded-for except 10.0.0.0/8").unwrap();
        assert!(usual.fits_service());
        let own = found("option forwardfor if-none header X-Client").unwrap();
        assert!(!own.fits_service());
        assert_eq!(own.condition().unwrap().not["header"], ["X-Client"]);
        assert_eq!(found("option forwardfor sometimes"), None);
        assert_eq!(
            found("option forwardfor header X-A").unwrap().condition(),
            None
        );
    }
}
