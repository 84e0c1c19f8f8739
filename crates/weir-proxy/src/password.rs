//! Reads the credentials of `basic_auth`, verifies passwords, and remembers the valid ones.
//!
//! A hash such as bcrypt takes tens of milliseconds by design. A valid password is remembered as a keyed hash of the
//! password and the user's configured hash, from which neither can be recovered. If the configured hash changes, the
//! password is verified again.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{LazyLock, Mutex, PoisonError};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use aws_lc_rs::{hmac, rand};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest as _, Md5};
use sha_crypt::{PasswordVerifier as _, ShaCrypt};
use weir_model::PasswordHashFormat;

/// Maximum number of remembered passwords.
const MAX_REMEMBERED: usize = 1 << 16;
/// Maximum length of a password, in bytes.
const MAX_LENGTH: usize = 1024;

/// The valid passwords of all services, as keyed hashes.
struct PasswordCache {
    key: hmac::Key,
    valid: Mutex<HashSet<[u8; 32]>>,
}

static REMEMBERED: LazyLock<Option<PasswordCache>> = LazyLock::new(|| {
    let mut secret = [0; 32];
    // Without random numbers, every request's password is verified.
    rand::fill(&mut secret).ok()?;
    Some(PasswordCache {
        key: hmac::Key::new(hmac::HMAC_SHA256, &secret),
        valid: Mutex::default(),
    })
});

impl PasswordCache {
    fn keyed_hash(&self, hash: &str, password: &[u8]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&(hash.len() as u64).to_le_bytes());
        context.update(hash.as_bytes());
        context.update(password);
        let mut out = [0; 32];
        out.copy_from_slice(context.sign().as_ref());
        out
    }
}

/// Returns a keyed hash of a user's name, which clients cannot compute.
pub(crate) fn user_hash(user: &str) -> u64 {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    KEY.hash_one(user)
}

/// Returns whether the password is remembered as valid for this hash.
pub(crate) fn is_remembered(hash: &str, password: &[u8]) -> bool {
    let Some(remembered) = REMEMBERED.as_ref() else {
        return false;
    };
    let keyed_hash = remembered.keyed_hash(hash, password);
    let valid = remembered.valid.lock();
    valid
        .unwrap_or_else(PoisonError::into_inner)
        .contains(&keyed_hash)
}

/// Verifies a password, and remembers it if it is valid. Blocks while the hash is computed.
pub(crate) fn verify(hash: &str, password: &[u8]) -> bool {
    let is_valid = matches(hash, password);
    if is_valid && let Some(remembered) = REMEMBERED.as_ref() {
        let keyed_hash = remembered.keyed_hash(hash, password);
        let mut valid = remembered
            .valid
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Clearing the set is acceptable: each password is then verified once more.
        if valid.len() >= MAX_REMEMBERED {
            valid.clear();
        }
        valid.insert(keyed_hash);
    }
    is_valid
}

fn matches(hash: &str, password: &[u8]) -> bool {
    if password.len() > MAX_LENGTH {
        return false;
    }
    match PasswordHashFormat::of(hash) {
        None => false,
        Some(PasswordHashFormat::Bcrypt) => bcrypt::verify(password, hash).unwrap_or(false),
        Some(PasswordHashFormat::Sha256Crypt | PasswordHashFormat::Sha512Crypt) => {
            let crypt = ShaCrypt::default();
            crypt.verify_password(password, hash).is_ok()
        }
        Some(PasswordHashFormat::Sha1) => {
            let computed = digest(&SHA1_FOR_LEGACY_USE_ONLY, password);
            is_same(hash, &format!("{{SHA}}{}", STANDARD.encode(computed)))
        }
        Some(PasswordHashFormat::Apr1) => {
            apr1(hash, password).is_some_and(|computed| is_same(hash, &computed))
        }
    }
}

fn is_same(a: &str, b: &str) -> bool {
    verify_slices_are_equal(a.as_bytes(), b.as_bytes()).is_ok()
}

/// Computes Apache's MD5 hash with the salt of `hash` (`apr_md5_encode` of APR-util). No maintained library implements
/// it.
fn apr1(hash: &str, password: &[u8]) -> Option<String> {
    const MAGIC: &str = "$apr1$";
    let (salt, _) = hash.strip_prefix(MAGIC)?.split_once('$')?;
    let salt = &salt.as_bytes()[..salt.len().min(8)];
    let alternate = Md5::new()
        .chain_update(password)
        .chain_update(salt)
        .chain_update(password)
        .finalize();
    let mut context = Md5::new();
    context.update(password);
    context.update(MAGIC);
    context.update(salt);
    let mut remaining = password.len();
    while remaining > 0 {
        context.update(&alternate[..remaining.min(16)]);
        remaining = remaining.saturating_sub(16);
    }
    let mut bits = password.len();
    while bits > 0 {
        match bits & 1 {
            1 => context.update([0]),
            _ => context.update(&password[..1]),
        }
        bits >>= 1;
    }
    let mut sum = context.finalize();
    for round in 0..1000 {
        let mut context = Md5::new();
        let odd = round % 2 == 1;
        match odd {
            true => context.update(password),
            false => context.update(sum),
        }
        if round % 3 != 0 {
            context.update(salt);
        }
        if round % 7 != 0 {
            context.update(password);
        }
        match odd {
            true => context.update(sum),
            false => context.update(password),
        }
        sum = context.finalize();
    }
    const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut text = format!("{MAGIC}{}$", std::str::from_utf8(salt).ok()?);
    let groups = [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]];
    let mut push = |mut value: u32, digits: usize| {
        for _ in 0..digits {
            text.push(char::from(DIGITS[(value & 63) as usize]));
            value >>= 6;
        }
    };
    for [high, middle, low] in groups {
        let byte = |index: usize| u32::from(sum[index]);
        push(byte(high) << 16 | byte(middle) << 8 | byte(low), 4);
    }
    push(u32::from(sum[11]), 2);
    Some(text)
}

/// Parses the user and the password in the value of `Authorization` (RFC 7617 section 2).
pub(crate) fn parse_credentials(value: &[u8]) -> Option<(String, Vec<u8>)> {
    const SCHEME: &[u8] = b"basic ";
    let (scheme, encoded) = value.split_at_checked(SCHEME.len())?;
    if !scheme.eq_ignore_ascii_case(SCHEME) {
        return None;
    }
    let decoded = STANDARD.decode(encoded.trim_ascii()).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let user = String::from_utf8(decoded[..colon].to_vec()).ok()?;
    Some((user, decoded[colon + 1..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes of `password`, created by `openssl passwd` and `htpasswd -B`.
    const HASHES: [&str; 5] = [
        "$apr1$saltsalt$yAAkm4libquA.ZWLHbSBq/",
        "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=",
        "$5$saltsalt$gOjOtoMpVhru2uyjeJSEc/JaLQWOXMNmlOnj6T4AtC.",
        "$6$saltsalt$qFmFH.bQmmtXzyBY0s9v7Oicd2z4XSIecDzlB5KiA2/jctKu9YterLp8wwnSq.qc.eoxqOmSuNp2xS0ktL3nh/",
        "$2y$04$nDOO3m82/PuCZMWO2hWxSeYRVRNUxfnjHbLUYniELiKIrNuf0unvK",
    ];

    #[test]
    fn hashes_created_by_other_programs_are_verified() {
        for hash in HASHES {
            assert!(matches(hash, b"password"), "{hash}");
            assert!(!matches(hash, b"Password"), "{hash}");
        }
        let long = b"a much longer password than sixteen bytes";
        assert!(matches("$apr1$abcdefgh$Eqv4oIyMsS.tjfvQCJYY1/", long));
        assert!(matches("$apr1$ab$S8K6Sgp3W8c9Jb6LxgywZ.", b""));
    }

    #[test]
    fn valid_password_is_remembered_only_for_its_hash() {
        assert!(!is_remembered(HASHES[1], b"password"));
        assert!(!verify(HASHES[1], b"wrong"));
        assert!(verify(HASHES[1], b"password"));
        assert!(is_remembered(HASHES[1], b"password"));
        assert!(!is_remembered(HASHES[1], b"wrong"));
        assert!(!is_remembered(HASHES[0], b"password"));
    }

    #[test]
    fn credentials_are_split_at_first_colon() {
        let parse =
            |text: &str| parse_credentials(format!("Basic {}", STANDARD.encode(text)).as_bytes());
        assert_eq!(parse("a:b:c"), Some(("a".to_owned(), b"b:c".to_vec())));
        assert_eq!(parse(":"), Some((String::new(), Vec::new())));
        assert_eq!(parse("a"), None);
        assert_eq!(parse_credentials(b"Bearer x"), None);
        assert_eq!(parse_credentials(b"Basic ?"), None);
        assert_eq!(parse_credentials(b"Basic"), None);
    }

    #[test]
    fn truncated_hashes_never_match() {
        for hash in HASHES {
            for end in [0, 1, 3, 6, hash.len() / 2, hash.len() - 1] {
                assert!(!matches(&hash[..end], b"password"), "{}", &hash[..end]);
                assert!(!matches(&hash[..end], b""), "{}", &hash[..end]);
            }
        }
    }
}
