//! Reads and writes corpora as text: one input per line, with backslashes and all bytes that are not printable ASCII
//! escaped as `\\`, `\n`, `\r`, `\t` or `\xNN`.
//!
//! Reviewers can read such lines, and a diff shows the added inputs. Thousands of small binary files would also slow
//! down a checkout.

use std::fmt::Write as _;

/// Formats an input as a line, without the line break.
pub fn format_input(input: &[u8]) -> String {
    let mut line = String::with_capacity(input.len());
    for &byte in input {
        match byte {
            b'\\' => line.push_str("\\\\"),
            b'\n' => line.push_str("\\n"),
            b'\r' => line.push_str("\\r"),
            b'\t' => line.push_str("\\t"),
            b' '..=b'~' => line.push(char::from(byte)),
            other => {
                let _ = write!(line, "\\x{other:02x}");
            }
        }
    }
    line
}

/// Returns the input that a line contains.
///
/// # Errors
/// Fails if the line contains an invalid escape.
pub fn parse_input(line: &str) -> Result<Vec<u8>, String> {
    let mut input = Vec::with_capacity(line.len());
    let mut bytes = line.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            input.push(byte);
            continue;
        }
        input.push(match bytes.next() {
            Some(b'\\') => b'\\',
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'x') => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                let pair = digit().zip(digit());
                let value = pair.map(|(high, low)| high << 4 | low);
                let value = value.and_then(|value| u8::try_from(value).ok());
                value.ok_or_else(|| "\\x requires two hexadecimal digits".to_owned())?
            }
            Some(other) => return Err(format!("unknown escape \\{}", char::from(other))),
            None => return Err("the line ends within an escape".to_owned()),
        });
    }
    Ok(input)
}

/// Returns all inputs of a corpus file.
///
/// # Errors
/// Fails if a line contains an invalid escape; the error contains the number of the first such line.
pub fn parse_corpus(text: &str) -> Result<Vec<Vec<u8>>, String> {
    (1..)
        .zip(text.lines())
        .map(|(number, line)| parse_input(line).map_err(|error| format!("line {number}: {error}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_a_text_form() {
        let all: Vec<u8> = (0..=255).collect();
        let line = format_input(&all);
        assert!(line.is_ascii() && !line.contains('\n'));
        assert_eq!(parse_input(&line), Ok(all));
    }

    #[test]
    fn invalid_escapes_are_rejected() {
        for line in ["\\", "\\x", "\\x1", "\\xzz", "\\q"] {
            assert!(parse_input(line).is_err(), "{line}");
        }
        assert_eq!(parse_corpus("a\n\\q").unwrap_err().get(..6), Some("line 2"));
    }
}
