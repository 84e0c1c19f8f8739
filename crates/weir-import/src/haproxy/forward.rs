//! Parses `option forwardfor`: the field, the excluded network, and whether only requests without the field get it.

use super::line::Line;
use crate::layer7::Condition;

/// The options of `forwardfor`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ForwardFor {
    /// Network in `except NETWORK`.
    pub(super) except: Option<String>,
    /// Field in `header NAME`, or `None` for X-Forwarded-For.
    field: Option<String>,
    /// Whether `if-none` is set.
    if_none: bool,
}

/// The default field.
const DEFAULT_FIELD: &str = "X-Forwarded-For";

/// Parses the parameters of the option. Returns `None` if haproxy rejects one of them.
pub(super) fn parse(line: &Line) -> Option<ForwardFor> {
    let mut options = ForwardFor::default();
    let mut words = line.words.iter().skip(2);
    while let Some(word) = words.next() {
        match word.as_str() {
            "except" => options.except = Some(words.next()?.clone()),
            "header" => options.field = words.next().cloned(),
            "if-none" => options.if_none = true,
            _ => return None,
        }
    }
    options
        .field
        .take_if(|name| name.eq_ignore_ascii_case(DEFAULT_FIELD));
    Some(options)
}

impl ForwardFor {
    /// Returns whether a service's `x_forwarded` can express the options.
    pub(super) fn is_supported_by_service(&self) -> bool {
        self.field.is_none() && !self.if_none
    }

    fn field(&self) -> &str {
        self.field.as_deref().unwrap_or(DEFAULT_FIELD)
    }

    /// Returns the condition for requests that get the field, or `None` if all requests do.
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

    /// Returns a rule that adds the field, without its condition.
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

    fn parse_line(text: &str) -> Option<ForwardFor> {
        parse(&Line {
            position: Position::new(0, 1),
            words: text.split_whitespace().map(str::to_owned).collect(),
            uses_capture: false,
            follows_source_change: false,
        })
    }

    #[test]
    fn options_determine_field_and_condition() {
        let default_field =
            parse_line("option forwardfor header x-forwarded-for except 10.0.0.0/8").unwrap();
        assert!(default_field.is_supported_by_service());
        let other_field = parse_line("option forwardfor if-none header X-Client").unwrap();
        assert!(!other_field.is_supported_by_service());
        assert_eq!(other_field.condition().unwrap().not["header"], ["X-Client"]);
        assert_eq!(parse_line("option forwardfor sometimes"), None);
        assert_eq!(
            parse_line("option forwardfor header X-A")
                .unwrap()
                .condition(),
            None
        );
    }
}
