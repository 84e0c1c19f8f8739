//! Parses amounts that consist of an integer and a unit.

/// Parses an amount. Returns the amount in the smallest unit, or the reason why the text is invalid (`overflow_message`
/// on overflow).
pub(crate) fn parse(
    text: &str,
    units: &[(&str, u64)],
    overflow_message: &str,
) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err("it does not start with an integer".to_owned());
    }
    let unit = unit.trim_start();
    let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) else {
        return Err(match unit {
            "" => "the unit is missing".to_owned(),
            unit if unit.starts_with('.') => {
                "fractions are not supported; use a smaller unit".to_owned()
            }
            unit => format!("unknown unit `{unit}`"),
        });
    };
    let number = number.parse::<u64>().ok();
    let amount = number.and_then(|number| number.checked_mul(*factor));
    amount.ok_or_else(|| overflow_message.to_owned())
}
