//! Expands `~SEQ(…)` and `~LST(…)`, which repeat one line.

use std::cmp::Ordering;

/// The variables of each repetition: names and values.
pub(super) type Repetitions = Vec<Vec<(String, String)>>;

/// Maximum number of repetitions.
const MAX_REPETITIONS: usize = 65_536;

/// Parses a sequence or list into its repetitions and the repeated line.
///
/// # Errors
/// Returns why the sequence or list is invalid.
pub(super) fn parse_sequence(line: &str) -> Result<(Repetitions, &str), String> {
    let invalid = || "keepalived rejects this sequence".to_owned();
    if let Some(rest) = line.strip_prefix("~LST") {
        return parse_list(rest);
    }
    let rest = line.strip_prefix("~SEQ").ok_or_else(invalid)?;
    let (is_hex, rest) = match rest.strip_prefix('x') {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let rest = rest.trim_start().strip_prefix('(').ok_or_else(invalid)?;
    let (inside, text) = rest.split_once(')').ok_or_else(invalid)?;
    let mut parts = inside.split(',').map(str::trim);
    let name = parts
        .next()
        .filter(|name| !name.is_empty())
        .ok_or_else(invalid)?;
    let numbers: Option<Vec<i64>> = parts.map(parse_number).collect();
    let default_step = |start: i64, end: i64| if start <= end { 1 } else { -1 };
    let (start, step, end) = match numbers.as_deref() {
        Some([end]) => {
            let start = if *end < 0 { -1 } else { 1 };
            (start, default_step(start, *end), *end)
        }
        Some([start, end]) => (*start, default_step(*start, *end), *end),
        Some([start, step, end]) => (*start, *step, *end),
        _ => return Err(invalid()),
    };
    let reaches_end = match start.cmp(&end) {
        Ordering::Less => step > 0,
        Ordering::Equal => step != 0,
        Ordering::Greater => step < 0,
    };
    if !reaches_end {
        return Err("the sequence never reaches its end".to_owned());
    }
    if is_hex && (start < 0 || end < 0) {
        return Err("~SEQx does not support negative numbers".to_owned());
    }
    let mut repetitions = Repetitions::new();
    let mut current = start;
    while if step.is_positive() {
        current <= end
    } else {
        current >= end
    } {
        if repetitions.len() == MAX_REPETITIONS {
            return Err(format!(
                "the sequence has more than {MAX_REPETITIONS} lines"
            ));
        }
        let value = if is_hex {
            format!("{current:x}")
        } else {
            current.to_string()
        };
        repetitions.push(vec![(name.to_owned(), value)]);
        match current.checked_add(step) {
            Some(next) => current = next,
            None => break,
        }
    }
    Ok((repetitions, text.trim_start()))
}

/// Parses a decimal, octal (`0…`) or hexadecimal (`0x…`) number.
fn parse_number(text: &str) -> Option<i64> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let value = if let Some(hex) = digits.strip_prefix("0x") {
        i64::from_str_radix(hex, 16)
    } else if digits.len() > 1 && digits.starts_with('0') {
        i64::from_str_radix(&digits[1..], 8)
    } else {
        digits.parse()
    };
    let value = value.ok()?;
    Some(if is_negative {
        value.checked_neg()?
    } else {
        value
    })
}

/// Parses `(var, a, b)` or `({v1, v2}, {a, b}, {c, d})`.
fn parse_list(rest: &str) -> Result<(Repetitions, &str), String> {
    let invalid = || "keepalived rejects this list".to_owned();
    let rest = rest.trim_start().strip_prefix('(').ok_or_else(invalid)?;
    let (names, mut rest) = parse_group(rest).ok_or_else(invalid)?;
    let mut repetitions = Repetitions::new();
    loop {
        rest = rest.trim_start();
        if let Some(text) = rest.strip_prefix(')') {
            if repetitions.is_empty() {
                return Err(invalid());
            }
            return Ok((repetitions, text.trim_start()));
        }
        let group = rest.strip_prefix(',').and_then(parse_group);
        let (values, tail) = group.ok_or_else(invalid)?;
        if values.len() > names.len() {
            return Err(invalid());
        }
        if repetitions.len() == MAX_REPETITIONS {
            return Err(format!("the list has more than {MAX_REPETITIONS} lines"));
        }
        let value = |index: usize| values.get(index).cloned().unwrap_or_default();
        let indexed_names = names.iter().enumerate();
        repetitions.push(
            indexed_names
                .map(|(index, name)| (name.clone(), value(index)))
                .collect(),
        );
        rest = tail;
    }
}

/// Parses `{a, b}` or one word. Returns the words and the text after them.
fn parse_group(text: &str) -> Option<(Vec<String>, &str)> {
    let text = text.trim_start();
    if let Some(inner) = text.strip_prefix('{') {
        let (inside, rest) = inner.split_once('}')?;
        let words = inside.split(',').map(|word| word.trim().to_owned());
        return Some((words.collect(), rest));
    }
    let end = text.find([',', ')'])?;
    Some((vec![text[..end].trim().to_owned()], &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(line: &str) -> Vec<String> {
        let (repetitions, _) = parse_sequence(line).unwrap();
        repetitions
            .into_iter()
            .map(|repetition| repetition[0].1.clone())
            .collect()
    }

    #[test]
    fn sequences_are_expanded() {
        assert_eq!(values("~SEQ(n, 3) x"), ["1", "2", "3"]);
        assert_eq!(values("~SEQ(n, 4, 2) x"), ["4", "3", "2"]);
        assert_eq!(values("~SEQ(n, 0, 5, 10) x"), ["0", "5", "10"]);
        assert_eq!(values("~SEQx(n, 9, 0xb) x"), ["9", "a", "b"]);
        assert_eq!(values("~SEQ(n, -2) x"), ["-1", "-2"]);
        // With one value, the direction of the step has no effect.
        for sequence in [
            "~SEQ(n, 2, 2) x",
            "~SEQ(n, 2, 1, 2) x",
            "~SEQ(n, 2, -1, 2) x",
        ] {
            assert_eq!(values(sequence), ["2"], "{sequence}");
        }
        for invalid in [
            "~SEQ(n)",
            "~SEQ(n, 1, -1, 5)",
            "~SEQ(n, 1, 0, 1)",
            "~SEQ(n, a)",
            "~SEQ",
        ] {
            assert!(parse_sequence(invalid).is_err(), "{invalid}");
        }
        assert!(parse_sequence("~SEQ(n, 1, 9999999999)").is_err());
    }

    #[test]
    fn start_and_step_of_a_sequence_have_defaults() {
        for (line, expected) in [
            ("~SEQ(n, 1)", "1"),
            ("~SEQ(n, 0)", "1 0"),
            ("~SEQ(n, -1)", "-1"),
            ("~SEQ(n, -3)", "-1 -2 -3"),
            ("~SEQ(n, 3, 3)", "3"),
            ("~SEQ(n, -1, 1)", "-1 0 1"),
            ("~SEQ(n, 1, -1)", "1 0 -1"),
            ("~SEQ(n, 9, -4, 0)", "9 5 1"),
            ("~SEQ(n, 9, -4, 1)", "9 5 1"),
            ("~SEQ(n, 1, 4, 9)", "1 5 9"),
            ("~SEQ (n, 1, 4, 10)", "1 5 9"),
            (
                "~SEQ(n, 9223372036854775806, 9223372036854775807)",
                "9223372036854775806 9223372036854775807",
            ),
            // Numbers can be octal and hexadecimal; the values are decimal.
            ("~SEQ(n, 010, 011)", "8 9"),
            ("~SEQ(n, 0, 01)", "0 1"),
            ("~SEQ(n, 10, 11)", "10 11"),
            ("~SEQ(n, -0x10, -017)", "-16 -15"),
            // Only ~SEQx formats the values in hexadecimal.
            ("~SEQx(n, 0, 1)", "0 1"),
            ("~SEQx(n, 1, 0)", "1 0"),
            ("~SEQx (n, 0x90, 0x10, 0xc0)", "90 a0 b0 c0"),
        ] {
            assert_eq!(values(line).join(" "), expected, "{line}");
        }
        for (line, reason) in [
            ("~SEQ(n, 1, 0, 5)", "the sequence never reaches its end"),
            ("~SEQ(n, 5, 0, 1)", "the sequence never reaches its end"),
            ("~SEQ(n, 5, 1, 1)", "the sequence never reaches its end"),
            ("~SEQ(n, 1, -1, 5)", "the sequence never reaches its end"),
            ("~SEQx(n, -1, 2)", "~SEQx does not support negative numbers"),
            ("~SEQx(n, 2, -1)", "~SEQx does not support negative numbers"),
            (
                "~SEQx(n, -2, -1)",
                "~SEQx does not support negative numbers",
            ),
            ("~SEQ(n, 65537)", "the sequence has more than 65536 lines"),
            ("~SEQ(, 1)", "keepalived rejects this sequence"),
            ("~SEQ(n, 1, 2, 3, 4)", "keepalived rejects this sequence"),
            ("~SEQ(n, 08)", "keepalived rejects this sequence"),
            ("~SEQ n, 1)", "keepalived rejects this sequence"),
            ("~SEQ(n, 1", "keepalived rejects this sequence"),
            ("~ROW(n, 1)", "keepalived rejects this sequence"),
        ] {
            assert_eq!(parse_sequence(line), Err(reason.to_owned()), "{line}");
        }
        assert_eq!(values("~SEQ(n, 65536)").len(), 65_536);
        let (repetitions, text) = parse_sequence("~SEQ(n, 1)  a (b) ").unwrap();
        assert_eq!(repetitions, [[("n".to_owned(), "1".to_owned())]]);
        assert_eq!(text, "a (b) ");
    }

    #[test]
    fn invalid_lists_are_rejected() {
        for line in [
            "~LST",
            "~LST n, a)",
            "~LST(n",
            "~LST(n, a",
            "~LST(n a)",
            "~LST({a, b)",
            "~LST({a, b}, {1, 2, 3})",
            "~LST({a, b}, {1, 2} {3, 4})",
            "~LST({a, b})",
        ] {
            let expected = Err("keepalived rejects this list".to_owned());
            assert_eq!(parse_sequence(line), expected, "{line}");
        }
        assert_eq!(values("~LST (n , a b , c ) text"), ["a b", "c"]);
    }

    #[test]
    fn lists_take_one_or_several_names() {
        assert_eq!(values("~LST(n, a, b) text"), ["a", "b"]);
        let (repetitions, text) = parse_sequence("~LST({a,b},{1, 2},{3}) line $a").unwrap();
        let pair = |a: &str, b: &str| vec![("a".to_owned(), a.into()), ("b".to_owned(), b.into())];
        assert_eq!(repetitions, [pair("1", "2"), pair("3", "")]);
        assert_eq!(text, "line $a");
        assert!(parse_sequence("~LST(n)").is_err());
        assert!(parse_sequence("~LST(n, {a, b})").is_err());
    }
}
