//! `~SEQ(…)` and `~LST(…)`: repeat one line.

/// The variables of each repetition: names and values.
pub(super) type Repetitions = Vec<Vec<(String, String)>>;

/// Maximum number of repetitions.
const MAX_REPETITIONS: usize = 65_536;

/// Parses a sequence into its repetitions and the repeated line.
///
/// # Errors
/// Returns why the sequence is invalid.
pub(super) fn sequence(line: &str) -> Result<(Repetitions, &str), String> {
    let wrong = || "keepalived rejects this sequence".to_owned();
    if let Some(rest) = line.strip_prefix("~LST") {
        return list(rest).ok_or_else(wrong);
    }
    let rest = line.strip_prefix("~SEQ").ok_or_else(wrong)?;
    let (hex, rest) = match rest.strip_prefix('x') {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let rest = rest.trim_start().strip_prefix('(').ok_or_else(wrong)?;
    let (inside, text) = rest.split_once(')').ok_or_else(wrong)?;
    let mut parts = inside.split(',').map(str::trim);
    let name = parts
        .next()
        .filter(|name| !name.is_empty())
        .ok_or_else(wrong)?;
    let numbers: Option<Vec<i64>> = parts.map(number).collect();
    let (start, step, end) = match numbers.as_deref() {
        Some([end]) => (
            if *end < 0 { -1 } else { 1 },
            if *end < 1 { -1 } else { 1 },
            *end,
        ),
        Some([start, end]) => (*start, if start <= end { 1 } else { -1 }, *end),
        Some([start, step, end]) => (*start, *step, *end),
        _ => return Err(wrong()),
    };
    if step == 0 || start < end && step < 0 || start > end && step > 0 {
        return Err("the sequence never reaches its end".to_owned());
    }
    if hex && (start < 0 || end < 0) {
        return Err("~SEQx does not support negative numbers".to_owned());
    }
    let mut rounds = Repetitions::new();
    let mut at = start;
    while if step > 0 { at <= end } else { at >= end } {
        if rounds.len() == MAX_REPETITIONS {
            return Err(format!(
                "the sequence has more than {MAX_REPETITIONS} lines"
            ));
        }
        let value = if hex {
            format!("{at:x}")
        } else {
            at.to_string()
        };
        rounds.push(vec![(name.to_owned(), value)]);
        match at.checked_add(step) {
            Some(next) => at = next,
            None => break,
        }
    }
    Ok((rounds, text.trim_start()))
}

/// Parses a number like strtol with base 0.
fn number(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
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
    Some(if negative {
        value.checked_neg()?
    } else {
        value
    })
}

/// Parses `(var, a, b)` or `({v1, v2}, {a, b}, {c, d})`.
fn list(rest: &str) -> Option<(Repetitions, &str)> {
    let rest = rest.trim_start().strip_prefix('(')?;
    let (names, mut rest) = group(rest)?;
    let mut rounds = Repetitions::new();
    loop {
        rest = rest.trim_start();
        if let Some(text) = rest.strip_prefix(')') {
            return (!rounds.is_empty()).then(|| (rounds, text.trim_start()));
        }
        let (values, tail) = group(rest.strip_prefix(',')?)?;
        if values.len() > names.len() || rounds.len() == MAX_REPETITIONS {
            return None;
        }
        let value = |at: usize| values.get(at).cloned().unwrap_or_default();
        let named = names.iter().enumerate();
        rounds.push(named.map(|(at, name)| (name.clone(), value(at))).collect());
        rest = tail;
    }
}

/// Parses `{a, b}` or one word; returns the rest too.
fn group(text: &str) -> Option<(Vec<String>, &str)> {
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
        let (rounds, _) = sequence(line).unwrap();
        rounds.into_iter().map(|round| round[0].1.clone()).collect()
    }

    #[test]
    fn sequences_are_expanded() {
        assert_eq!(values("~SEQ(n, 3) x"), ["1", "2", "3"]);
        assert_eq!(values("~SEQ(n, 4, 2) x"), ["4", "3", "2"]);
        assert_eq!(values("~SEQ(n, 0, 5, 10) x"), ["0", "5", "10"]);
        assert_eq!(values("~SEQx(n, 9, 0xb) x"), ["9", "a", "b"]);
        for wrong in [
            "~SEQ(n)",
            "~SEQ(n, 1, -1, 5)",
            "~SEQ(n, 1, 0, 1)",
            "~SEQ(n, a)",
            "~SEQ",
        ] {
            assert!(sequence(wrong).is_err(), "{wrong}");
        }
        assert!(sequence("~SEQ(n, 1, 9999999999)").is_err());
    }

    #[test]
    fn lists_take_one_or_several_names() {
        assert_eq!(values("~LST(n, a, b) text"), ["a", "b"]);
        let (rounds, text) = sequence("~LST({a,b},{1, 2},{3}) line $a").unwrap();
        let pair = |a: &str, b: &str| vec![("a".to_owned(), a.into()), ("b".to_owned(), b.into())];
        assert_eq!(rounds, [pair("1", "2"), pair("3", "")]);
        assert_eq!(text, "line $a");
        assert!(sequence("~LST(n)").is_err());
        assert!(sequence("~LST(n, {a, b})").is_err());
    }
}
