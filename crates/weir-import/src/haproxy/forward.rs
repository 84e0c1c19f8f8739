//! `option forwardfor` with its words: another field than `X-Forwarded-For`, or only if the client sent none.

use super::line::Line;
use crate::layer7::Condition;

/// The words of the option.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ForwardFor {
    /// `except NETWORK`.
    pub(super) except: Option<String>,
    /// `header NAME`; `None` = X-Forwarded-For.
    field: Option<String>,
    /// `if-none`.
    if_none: bool,
}

/// The field without `header`.
const USUAL: &str = "X-Forwarded-For";

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
    found.field.take_if(|name| name.eq_ignore_ascii_case(USUAL));
    Some(found)
}

impl ForwardFor {
    /// Whether `x_forwarded` of a service does the same.
    pub(super) fn is_of_service(&self) -> bool {
        self.field.is_none() && !self.if_none
    }

    fn field(&self) -> &str {
        self.field.as_deref().unwrap_or(USUAL)
    }

    /// The requests that get the field; `None` = all.
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

    /// The rule that does the same for these requests.
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
            keeps_request: false,
        })
    }

    #[test]
    fn words_decide_field_and_condition() {
        let usual = found("option forwardfor header x-forwarded-for except 10.0.0.0/8").unwrap();
        assert!(usual.is_of_service());
        let own = found("option forwardfor if-none header X-Client").unwrap();
        assert!(!own.is_of_service());
        assert_eq!(own.condition().unwrap().not["header"], ["X-Client"]);
        assert_eq!(found("option forwardfor sometimes"), None);
        assert_eq!(
            found("option forwardfor header X-A").unwrap().condition(),
            None
        );
    }
}
