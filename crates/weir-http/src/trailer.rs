//! Decides which trailers of a request are forwarded.
//!
//! A server may merge trailers into the header section (RFC 9110 section 6.5.1). Fields that a rule removes or replaces
//! in the header section are therefore also removed from the trailers.

use weir_model::{ClientFields, FieldRule};

use crate::field::Name;

/// The trailers of a request that are not forwarded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrailerFilter {
    /// Names of fields that are removed or replaced.
    pub names: Vec<String>,
    /// Whether fields about the client are removed. This also applies to requests from a trusted proxy, because it
    /// forwards its clients' trailers.
    pub removes_client_fields: bool,
    /// Rules for individual fields about the client, which override `removes_client_fields`.
    pub rules: ClientFields,
}

impl TrailerFilter {
    /// Returns whether a trailer with this name is forwarded.
    fn keeps(&self, name: &[u8]) -> bool {
        let is_named = |removed: &String| removed.as_bytes().eq_ignore_ascii_case(name);
        if self.names.iter().any(is_named) {
            return false;
        }
        match self.rules.rule_of(name) {
            Some(rule) => rule == FieldRule::Keep,
            None => {
                let is_client_field =
                    matches!(Name::from_bytes(name), Name::ForwardedFor | Name::Forwarded);
                !(self.removes_client_fields && is_client_field)
            }
        }
    }

    /// Removes lines of a complete trailer section that [`Exchange`](crate::Exchange) has checked.
    pub fn apply(&self, trailers: &mut Vec<u8>) {
        let mut remaining = Vec::with_capacity(trailers.len());
        for line in trailers.split_inclusive(|byte| *byte == b'\n') {
            // The last line is empty and has no name.
            let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
            if self.keeps(name) {
                remaining.extend_from_slice(line);
            }
        }
        *trailers = remaining;
    }
}

#[cfg(test)]
mod tests {
    use weir_model::ClientField;

    use super::*;

    const TRAILERS: &[u8] =
        b"x-user: a:b\r\nX-Forwarded-For: 6.6.6.6\r\nX-Real-IP:6.6.6.6\r\nSum: X-User: 1\r\n\r\n";

    fn filter_text(filter: &TrailerFilter) -> String {
        let mut trailers = TRAILERS.to_vec();
        filter.apply(&mut trailers);
        String::from_utf8(trailers).unwrap()
    }

    #[test]
    fn trailers_are_filtered_by_name_and_by_client_field_rules() {
        let unchanged = String::from_utf8(TRAILERS.to_vec()).unwrap();
        assert_eq!(filter_text(&TrailerFilter::default()), unchanged);
        let mut filter = TrailerFilter {
            names: vec!["X-User".to_owned()],
            removes_client_fields: true,
            ..TrailerFilter::default()
        };
        assert_eq!(filter_text(&filter), "Sum: X-User: 1\r\n\r\n");
        filter.rules.set(ClientField::RealIp, Some(FieldRule::Keep));
        assert_eq!(
            filter_text(&filter),
            "X-Real-IP:6.6.6.6\r\nSum: X-User: 1\r\n\r\n"
        );
        filter.removes_client_fields = false;
        filter.rules.set(ClientField::For, Some(FieldRule::Append));
        assert_eq!(
            filter_text(&filter),
            "X-Real-IP:6.6.6.6\r\nSum: X-User: 1\r\n\r\n"
        );
    }
}
