//! Parses and writes the `traceparent` field of W3C Trace Context, level 1, which identifies a request's trace.
//!
//! `tracestate` is not interpreted: a proxy that adds no entry forwards the field unchanged.

/// Name of the field.
pub const TRACEPARENT: &[u8] = b"traceparent";
/// Name of the field with vendor-specific data; it belongs to `traceparent`.
pub const TRACESTATE: &[u8] = b"tracestate";

/// Length of a version 00 value, in bytes.
const VALUE_LEN: usize = 55;

/// The value of `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// Identifier of the trace; never 0.
    pub trace_id: u128,
    /// Identifier of the sender's span; never 0.
    pub span_id: u64,
    /// Whether the sender records its span.
    pub is_sampled: bool,
}

impl TraceContext {
    /// Parses a field's value. Returns `None` if it is invalid: the receiver must start a new trace (section 3.2.2).
    /// Values of versions above 00 may be longer.
    pub fn parse(field: &[u8]) -> Option<Self> {
        let version = hexadecimal(field.get(..2)?)?;
        let is_longer = field.len() > VALUE_LEN;
        let is_valid_length = match version {
            0 => field.len() == VALUE_LEN,
            0xff => false,
            _ => field.len() >= VALUE_LEN && (!is_longer || field[VALUE_LEN] == b'-'),
        };
        let has_separators = || [2, 35, 52].iter().all(|index| field[*index] == b'-');
        if !is_valid_length || !has_separators() {
            return None;
        }
        let trace_id = hexadecimal(&field[3..35])?;
        let span_id = u64::try_from(hexadecimal(&field[36..52])?).ok()?;
        let flags = hexadecimal(&field[53..55])?;
        (trace_id != 0 && span_id != 0).then_some(Self {
            trace_id,
            span_id,
            is_sampled: flags & 1 == 1,
        })
    }

    /// Appends the field's line, with CRLF.
    pub fn write_line(&self, out: &mut Vec<u8>) {
        let flags = u8::from(self.is_sampled);
        let line = format!(
            "traceparent: 00-{:032x}-{:016x}-{flags:02x}\r\n",
            self.trace_id, self.span_id
        );
        out.extend_from_slice(line.as_bytes());
    }
}

/// Parses lower-case digits; upper case is invalid (section 3.2.2.2).
fn hexadecimal(digits: &[u8]) -> Option<u128> {
    let mut number = 0;
    for digit in digits {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        number = (number << 4) + u128::from(value);
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn field_is_parsed_and_written() {
        let context = TraceContext::parse(FIELD.as_bytes()).unwrap();
        assert_eq!(context.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(context.span_id, 0x00f0_67aa_0ba9_02b7);
        assert!(context.is_sampled);
        let mut line = Vec::new();
        context.write_line(&mut line);
        assert_eq!(line, format!("traceparent: {FIELD}\r\n").into_bytes());
    }

    #[test]
    fn only_the_lowest_flag_bit_means_sampled() {
        let sampled = |flags: &str| {
            let field = format!("{}{flags}", &FIELD[..53]);
            TraceContext::parse(field.as_bytes()).map(|it| it.is_sampled)
        };
        assert_eq!(sampled("00"), Some(false));
        assert_eq!(sampled("02"), Some(false));
        assert_eq!(sampled("03"), Some(true));
        assert_eq!(sampled("ff"), Some(true));
    }

    #[test]
    fn later_versions_may_be_longer() {
        let is_valid = |field: String| TraceContext::parse(field.as_bytes()).is_some();
        assert!(is_valid(format!("01{}", &FIELD[2..])));
        assert!(is_valid(format!("cc{}-what", &FIELD[2..])));
        assert!(!is_valid(format!("cc{}what", &FIELD[2..])));
        assert!(!is_valid(format!("ff{}", &FIELD[2..])));
        assert!(!is_valid(format!("{FIELD}-what")));
    }

    #[test]
    fn invalid_fields_are_rejected() {
        for field in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g",
        ] {
            assert_eq!(TraceContext::parse(field.as_bytes()), None, "{field}");
        }
    }
}
