//! Corpora as text: one input per line, bytes outside of printable ASCII escaped as `\xNN`.
//!
//! Thousands of small binary files are of no use to a reader and slow to check out; a line can be read in a review, and
//! a difference shows what was added.

use std::fmt::Write as _;

/// An input as a line, without the line break.
pub fn line_of(input: &[u8]) -> String {
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

/// The input of a line.
///
/// # Errors
/// The line contains an invalid escape.
pub fn input_of(line: &str) -> Result<Vec<u8>, String> {
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
                value.ok_or_else(|| "\\x needs two hexadecimal digits".to_owned())?
            }
            other => return Err(format!("unknown escape \\{:?}", other.map(char::from))),
        });
    }
    Ok(input)
}

/// Every input of a corpus file's text.
///
/// # Errors
/// The first invalid line, with its number.
pub fn inputs_of(text: &str) -> Result<Vec<Vec<u8>>, String> {
    (1..)
        .zip(text.lines())
        .map(|(number, line)| input_of(line).map_err(|error| format!("line {number}: {error}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_the_text_form() {
        let all: Vec<u8> = (0..=255).collect();
        let line = line_of(&all);
        assert!(line.is_ascii() && !line.contains('\n'));
        assert_eq!(input_of(&line), Ok(all));
    }

    #[test]
    fn broken_escapes_are_errors() {
        for line in ["\\", "\\x", "\\x1", "\\xzz", "\\q"] {
            assert!(input_of(line).is_err(), "{line}");
        }
        assert_eq!(inputs_of("a\n\\q").unwrap_err().get(..6), Some("line 2"));
    }
}
