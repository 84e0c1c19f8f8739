//! Tests the normal form of paths, and its properties for random paths.

use proptest::prelude::*;

use super::*;

fn rules(merge_slashes: bool, encoded_slash: EncodedSlash) -> NormalizePath {
    NormalizePath {
        merge_slashes,
        encoded_slash,
        ..NormalizePath::default()
    }
}

fn normal_by(text: &[u8], rules: &NormalizePath) -> Result<Vec<u8>, ParseError> {
    let mut buffer = b"of an earlier request".to_vec();
    normalize(text, rules, &mut buffer).map(|target| target.as_bytes().to_vec())
}

fn normal(text: &str) -> String {
    let normal_path = normal_by(text.as_bytes(), &NormalizePath::default()).expect("path is valid");
    String::from_utf8(normal_path).expect("ASCII")
}

#[test]
fn equivalent_spellings_have_one_normal_form() {
    for spelling in [
        "/admin/x",
        "//admin/x",
        "///admin//x",
        "/%61dmin/x",
        "/%61%64%6D%69%6e/x",
        "/x/../admin/x",
        "/./admin/x",
        "/x/%2e%2e/admin/x",
        "/x/.%2E/admin/x",
        "/%2e/admin/x",
        "/admin//x",
        "/admin/./x",
        "/../../admin/x",
        "/a//../admin/x",
        "/a/b/../../admin/x",
        "/admin/y/../x",
    ] {
        assert_eq!(normal(spelling), "/admin/x", "{spelling}");
    }
}

#[test]
fn decode_fully_decodes_all_escapes_and_merges_slashes() {
    let decoded = |text: &str| {
        let mut buffer = b"of an earlier request".to_vec();
        let target = RequestPath::as_received(text.as_bytes());
        let found = decode_fully(&target, &mut buffer)?;
        Some(String::from_utf8(found.as_bytes().to_vec()).expect("ASCII"))
    };
    for path in [
        "/a/b?x=%2F//",
        "/a%20b",
        "/%C3%A4",
        "/a%25b",
        "/a%3Fb",
        "/%",
        "/%zz",
    ] {
        assert_eq!(decoded(path), None, "{path}");
    }
    for (spelling, expected) in [
        ("/admin%2Fx?q", "/admin/x?q"),
        ("/%2fadmin%2F%2fx", "/admin/x"),
        ("//admin///x", "/admin/x"),
        ("/%61dmin/x", "/admin/x"),
        ("/%40admin/%2B", "/@admin/+"),
        ("/a%7cb%2f", "/a%7Cb/"),
    ] {
        assert_eq!(decoded(spelling).as_deref(), Some(expected), "{spelling}");
    }
}

#[test]
fn rfc_3986_examples_are_normalized() {
    // RFC 3986 section 5.2.4, and the examples with dot segments in section 5.4.
    assert_eq!(normal("/a/b/c/./../../g"), "/a/g");
    for (path, expected) in [
        ("/b/c/.", "/b/c/"),
        ("/b/c/./", "/b/c/"),
        ("/b/c/..", "/b/"),
        ("/b/c/../", "/b/"),
        ("/b/c/../..", "/"),
        ("/b/c/../../../g", "/g"),
        ("/b/c/../../../../g", "/g"),
        ("/g.", "/g."),
        ("/.g", "/.g"),
        ("/g..", "/g.."),
        ("/..g", "/..g"),
        ("/...", "/..."),
        ("/b/c/./g/.", "/b/c/g/"),
        ("/b/c/g/./h", "/b/c/g/h"),
        ("/b/c/g/../h", "/b/c/h"),
        ("/b/c/g;x=1/./y", "/b/c/g;x=1/y"),
        ("/b/c/g;x=1/../y", "/b/c/y"),
    ] {
        assert_eq!(normal(path), expected, "{path}");
    }
}

#[test]
fn query_parameters_and_reserved_escapes_are_kept() {
    for path in [
        "/a?b=/../c//%61%zz%00\\",
        "/a;b=/..;/c",
        "/a%2Fb%3B%40%25",
        "/a:b@c!$&'()*+,=[1]",
        "/",
        "/?",
        "*",
        "/a%252e%252e/b",
        "/caf%C3%A9",
    ] {
        assert_eq!(normal(path), path);
    }
    assert_eq!(normal("/a%2fb%c3%a9"), "/a%2Fb%C3%A9");
    assert_eq!(normal("//a?x//y/.."), "/a?x//y/..");
    assert_eq!(normal("/a|b\"{c}^`<d>"), "/a%7Cb%22%7Bc%7D%5E%60%3Cd%3E");
    assert_eq!(normal(""), "/");
    assert_eq!(normal("?x"), "/?x");
}

#[test]
fn encoded_slashes_are_handled_as_configured() {
    let normal_with = |text: &str, encoded_slash| {
        let normal_path = normal_by(text.as_bytes(), &rules(true, encoded_slash));
        normal_path.map(|text| String::from_utf8(text).expect("ASCII"))
    };
    let path = "/x%2f..%5C..\\admin";
    assert_eq!(
        normal_with(path, EncodedSlash::Keep).unwrap(),
        "/x%2F..%5C..%5Cadmin"
    );
    assert_eq!(normal_with(path, EncodedSlash::Decode).unwrap(), "/admin");
    assert_eq!(
        normal_with(path, EncodedSlash::Reject),
        Err(ParseError::EncodedSlash)
    );
    assert_eq!(
        normal_with("/a%5cb", EncodedSlash::Reject),
        Err(ParseError::EncodedSlash)
    );
    assert_eq!(
        normal_with("/a\\b", EncodedSlash::Reject),
        Err(ParseError::EncodedSlash)
    );
    assert_eq!(normal_with("/%2F%2fa", EncodedSlash::Decode).unwrap(), "/a");
    assert_eq!(
        normal_with("/a?%2F", EncodedSlash::Reject).unwrap(),
        "/a?%2F"
    );
}

#[test]
fn slashes_are_merged_before_dot_segments_are_removed() {
    let normalized = |text: &str| {
        let normal_path = normal_by(text.as_bytes(), &rules(false, EncodedSlash::Keep));
        String::from_utf8(normal_path.expect("path is valid")).expect("ASCII")
    };
    assert_eq!(normalized("//a//b"), "//a//b");
    assert_eq!(normalized("/a//../b"), "/a/b");
    assert_eq!(normalized("/a/.//b"), "/a//b");
    assert_eq!(normalized("//../b"), "/b");
    assert_eq!(normal("/a//../b"), "/b");
}

#[test]
fn invalid_escapes_are_rejected() {
    for wrong in [
        "/%", "/%4", "/%zz", "/a%0", "/%00", "/%4g/x", "/a%?41", "/%u0041",
    ] {
        let normal_path = normal_by(wrong.as_bytes(), &NormalizePath::default());
        assert_eq!(normal_path, Err(ParseError::Escape), "{wrong}");
    }
}

#[test]
fn normal_path_is_not_copied() {
    let mut buffer = Vec::new();
    let text = b"/img/a.b/..c/x?y//";
    let target = normalize(text, &NormalizePath::default(), &mut buffer).expect("path is valid");
    assert!(!target.is_changed());
    assert!(std::ptr::eq(target.as_bytes(), text.as_slice()));
    assert_eq!(target.path(), b"/img/a.b/..c/x");
    assert_eq!(target.query(), b"y//");
    assert_eq!(target.query_part(), b"?y//");
    assert_eq!(buffer.capacity(), 0, "nothing must be written");
    // The buffer is written, but the path is unchanged.
    let text = b"/caf%C3%A9";
    let target = normalize(text, &NormalizePath::default(), &mut buffer).expect("path is valid");
    assert!(!target.is_changed());
}

#[test]
fn rewritten_path_is_changed_and_has_a_first_route() {
    let received = RequestPath::as_received(b"/a?b");
    assert_eq!(
        (
            received.is_changed(),
            received.is_rewritten(),
            received.first_route()
        ),
        (false, false, 0)
    );
    let rewritten = RequestPath::from_rewrite(b"/a?b", 7);
    assert_eq!(
        (
            rewritten.is_changed(),
            rewritten.is_rewritten(),
            rewritten.first_route()
        ),
        (true, true, 7)
    );
    let mut buffer = Vec::new();
    let normalized = normalize(b"/a/../b?c", &NormalizePath::default(), &mut buffer).unwrap();
    assert!(normalized.is_changed() && !normalized.is_rewritten());
}

#[test]
fn patterns_are_checked_and_normalized() {
    let check = |pattern: &str| check_pattern(pattern, &NormalizePath::default());
    let normalized = |text: &str| Pattern::Normalized(text.to_owned());
    let unmatchable = |text: &str| Pattern::Unmatchable(Some(text.to_owned()));
    for pattern in [
        "/img/*", "*.png", "*", "/a*/..b", "/a/..*", "/a%*", "/a%4*", "*//x/",
    ] {
        if pattern == "*//x/" {
            assert_eq!(check(pattern), Pattern::Unmatchable(None));
        } else {
            assert_eq!(check(pattern), Pattern::Normal, "{pattern}");
        }
    }
    assert_eq!(check("/caf%c3%a9/*"), normalized("/caf%C3%A9/*"));
    assert_eq!(check("/%7Euser/*"), normalized("/~user/*"));
    assert_eq!(check("/{id}|*"), normalized("/%7Bid%7D%7C*"));
    assert_eq!(check("//admin/*"), unmatchable("/admin/*"));
    assert_eq!(check("/x/../admin/*"), unmatchable("/admin/*"));
    assert_eq!(check("/%2e%2E/admin"), unmatchable("/admin"));
    assert_eq!(check("/./*"), unmatchable("/*"));
    assert_eq!(check("/a/.."), unmatchable("/"));
    assert_eq!(check("/a//..*"), unmatchable("/a/..*"));
    assert_eq!(check("*/../*"), Pattern::Unmatchable(None));
    assert_eq!(check("/a/*/../b"), Pattern::Unmatchable(None));
    assert_eq!(check("*/.."), Pattern::Unmatchable(None));
    assert_eq!(check("a//b"), Pattern::Unmatchable(None));
    assert_eq!(check("/100%"), Pattern::Unmatchable(None));
    assert_eq!(check("/a%00*"), Pattern::Unmatchable(None));
    let raw = rules(false, EncodedSlash::Keep);
    assert_eq!(check_pattern("//admin/*", &raw), Pattern::Normal);
}

/// Implements the definition directly, and therefore slowly.
fn reference(path: &[u8], rules: &NormalizePath) -> Option<Vec<u8>> {
    let mut decoded: Vec<Vec<u8>> = Vec::new();
    let mut rest = path;
    while let Some((byte, tail)) = rest.split_first() {
        let (byte, is_plain) = match byte {
            b'%' => {
                let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
                if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                    return None;
                }
                rest = &tail[2..];
                let value = u8::from_str_radix(digits, 16).ok()?;
                if value == 0 {
                    return None;
                }
                (
                    value,
                    value.is_ascii_alphanumeric() || b"-._~".contains(&value),
                )
            }
            byte => {
                rest = tail;
                let allowed = b"-._~!$&'()*+,;=:@[]/";
                (
                    *byte,
                    byte.is_ascii_alphanumeric() || allowed.contains(byte),
                )
            }
        };
        let is_slash = !is_plain && matches!(byte, b'/' | b'\\');
        decoded.push(match (is_plain, rules.encoded_slash) {
            (true, _) => vec![byte],
            (false, EncodedSlash::Decode) if is_slash => b"/".to_vec(),
            (false, EncodedSlash::Reject) if is_slash => return None,
            (false, _) => format!("%{byte:02X}").into_bytes(),
        });
    }
    let mut path = String::from_utf8(decoded.concat()).ok()?;
    while rules.merge_slashes && path.contains("//") {
        path = path.replace("//", "/");
    }
    // RFC 3986 section 5.2.4.
    let (mut input, mut output) = (path, String::new());
    while !input.is_empty() {
        if input.starts_with("/./") || input == "/." {
            input = format!("/{}", input.get(3..).unwrap_or_default());
        } else if input.starts_with("/../") || input == "/.." {
            input = format!("/{}", input.get(4..).unwrap_or_default());
            output.truncate(output.rfind('/').unwrap_or(0));
        } else {
            let end = input[1..].find('/').map_or(input.len(), |index| index + 1);
            output.push_str(&input[..end]);
            input = input[end..].to_owned();
        }
    }
    Some(output.into_bytes())
}

fn any_rules() -> impl Strategy<Value = NormalizePath> {
    (any::<bool>(), 0..3_usize).prop_map(|(merge, index)| rules(merge, EncodedSlash::ALL[index]))
}

/// Generates paths from significant parts and from arbitrary bytes.
fn paths() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        6 => Just(b"/".to_vec()),
        4 => Just(b".".to_vec()),
        2 => Just(b"%2e".to_vec()),
        2 => Just(b"%2F".to_vec()),
        1 => Just(b"\\".to_vec()),
        1 => Just(b"%61".to_vec()),
        1 => Just(b"%c3".to_vec()),
        1 => Just(b"%25".to_vec()),
        1 => Just(b"%".to_vec()),
        4 => Just(b"a".to_vec()),
        1 => prop::collection::vec(1..=255_u8, 0..4),
    ];
    prop::collection::vec(part, 0..16).prop_map(|parts| {
        let mut path = vec![b'/'];
        path.extend(parts.concat());
        path.retain(|byte| *byte != b'?');
        path
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8 * ProptestConfig::default().cases))]

    #[test]
    fn normal_form_matches_the_definition(path in paths(), rules in any_rules()) {
        prop_assert_eq!(normal_by(&path, &rules).ok(), reference(&path, &rules));
    }

    #[test]
    fn normalization_is_idempotent(path in paths(), rules in any_rules()) {
        let Ok(found) = normal_by(&path, &rules) else { return Ok(()) };
        let repeated = normal_by(&found, &rules);
        prop_assert_eq!(repeated.as_ref(), Ok(&found));
        prop_assert_eq!(found.first(), Some(&b'/'));
        prop_assert!(found.split(|byte| *byte == b'/').all(|segment| !is_dots(segment)));
        prop_assert!(!rules.merge_slashes || memchr::memmem::find(&found, b"//").is_none());
        for offset in memchr::memchr_iter(b'%', &found) {
            let value = decode_escape(&found[offset..]).expect("escape is valid");
            prop_assert!(!is_unreserved(value));
            prop_assert!(!found[offset + 1..offset + 3].iter().any(u8::is_ascii_lowercase));
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(text in prop::collection::vec(any::<u8>(), 0..64), rules in any_rules()) {
        let mut buffer = Vec::new();
        if let Ok(target) = normalize(&text, &rules, &mut buffer) {
            prop_assert!(!target.path().is_empty());
            let query = memchr::memchr(b'?', &text).map_or(&b""[..], |offset| &text[offset..]);
            prop_assert_eq!(target.query_part(), query);
        }
        if let Ok(text) = std::str::from_utf8(&text) {
            let _ = check_pattern(text, &rules);
        }
    }

    /// A normalized pattern is normal. As a path, a normal pattern without stars is its own normal form; an unmatchable
    /// pattern without stars is reported with its normal form.
    #[test]
    fn patterns_agree_with_paths(path in "/[a./%2Ef*]{0,10}", rules in any_rules()) {
        match check_pattern(&path, &rules) {
            Pattern::Normalized(other) => prop_assert_eq!(check_pattern(&other, &rules), Pattern::Normal),
            Pattern::Unmatchable(Some(other)) if !path.contains('*') => {
                prop_assert_eq!(normal_by(path.as_bytes(), &rules), Ok(other.into_bytes()));
            }
            Pattern::Normal if !path.contains('*') => {
                prop_assert_eq!(normal_by(path.as_bytes(), &rules), Ok(path.into_bytes()));
            }
            Pattern::Normal | Pattern::Unmatchable(_) => {}
        }
    }
}
