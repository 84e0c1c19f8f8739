//! Which octets may stand where: tokens, targets, field values (RFC 9110 section 5.6.2, RFC 3986 section 2).

/// One bit for each class that an octet belongs to.
static CLASS: [u8; 256] = classes();

const TOKEN: u8 = 1;
const VALUE: u8 = 2;
const TARGET: u8 = 4;
const HOST: u8 = 8;

const fn classes() -> [u8; 256] {
    let mut table = [0u8; 256];
    let mut at = 0usize;
    while at < 256 {
        let octet = at as u8;
        let alphanumeric = octet.is_ascii_alphanumeric();
        if alphanumeric || is_one_of(octet, b"!#$%&'*+-.^_`|~") {
            table[at] |= TOKEN;
        }
        // VCHAR, SP, HTAB and obs-text; never CR, LF or NUL.
        if octet == b'\t' || (octet >= 0x20 && octet != 0x7f) {
            table[at] |= VALUE;
        }
        // Visible ASCII without `#`: a fragment is never sent.
        if octet > 0x20 && octet < 0x7f && octet != b'#' {
            table[at] |= TARGET;
        }
        if alphanumeric || is_one_of(octet, b"-._~%!$&'()*+,;=:[]") {
            table[at] |= HOST;
        }
        at += 1;
    }
    table
}

const fn is_one_of(octet: u8, set: &[u8]) -> bool {
    let mut at = 0;
    while at < set.len() {
        if set[at] == octet {
            return true;
        }
        at += 1;
    }
    false
}

fn all(text: &[u8], class: u8) -> bool {
    text.iter()
        .fold(class, |seen, octet| seen & CLASS[usize::from(*octet)])
        == class
}

/// A method or a field name: at least one `tchar`, nothing else.
pub(crate) fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && all(text, TOKEN)
}

/// A `tchar`.
pub(crate) fn is_token_octet(octet: u8) -> bool {
    CLASS[usize::from(octet)] & TOKEN != 0
}

/// What a field value may hold, its surrounding blanks included.
pub(crate) fn is_value(text: &[u8]) -> bool {
    all(text, VALUE)
}

/// What a field value may hold at one place.
pub(crate) fn is_value_octet(octet: u8) -> bool {
    CLASS[usize::from(octet)] & VALUE != 0
}

/// What a request target may hold.
pub(crate) fn is_target(text: &[u8]) -> bool {
    !text.is_empty() && all(text, TARGET)
}

/// What `Host` may hold; user information (`@`) is not part of it.
pub(crate) fn is_host(text: &[u8]) -> bool {
    all(text, HOST)
}

/// The text without blanks around it.
pub(crate) fn trim(text: &[u8]) -> &[u8] {
    let blank = |octet: &u8| matches!(octet, b' ' | b'\t');
    let start = text.iter().position(|o| !blank(o)).unwrap_or(text.len());
    let end = text
        .iter()
        .rposition(|o| !blank(o))
        .map_or(start, |at| at + 1);
    &text[start..end]
}

/// The members of a comma-separated list, trimmed; empty ones are left out.
pub(crate) fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|octet| *octet == b',')
        .map(trim)
        .filter(|member| !member.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_class_takes_what_ends_a_line() {
        for octet in [b'\r', b'\n', 0] {
            let text = [b'a', octet];
            assert!(!is_token(&text) && !is_value(&text) && !is_target(&text) && !is_host(&text));
        }
    }

    #[test]
    fn blanks_are_taken_off_both_ends_only() {
        assert_eq!(trim(b" \t a b\t "), b"a b");
        assert_eq!(trim(b" \t"), b"");
    }

    #[test]
    fn empty_members_do_not_count() {
        let found: Vec<&[u8]> = members(b", close ,,keep-alive,").collect();
        assert_eq!(found, [b"close".as_slice(), b"keep-alive"]);
    }
}
