//! Amounts as they are written: a whole number and a unit.

/// How many of the smallest unit the text says, or what is wrong with it: `too_much` where 64 bits do not hold it.
pub(crate) fn parse(text: &str, units: &[(&str, u64)], too_much: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err("it does not begin with a whole number".to_owned());
    }
    let unit = unit.trim_start();
    let Some((_, worth)) = units.iter().find(|(name, _)| *name == unit) else {
        return Err(match unit {
            "" => "it has no unit".to_owned(),
            unit if unit.starts_with('.') => {
                "fractions are not taken; use a smaller unit".to_owned()
            }
            unit => format!("`{unit}` is no unit"),
        });
    };
    let number = number.parse::<u64>().ok();
    let amount = number.and_then(|number| number.checked_mul(*worth));
    amount.ok_or_else(|| too_much.to_owned())
}
