//! Issues TLS session tickets (RFC 5077, RFC 8446 section 4.6.1) with keys that can be handed over to another process.
//!
//! A ticket consists of the key's name, a random nonce, and rustls' session state, encrypted with AES-256-GCM. A key
//! encrypts tickets for six hours and decrypts them for six more hours, so a ticket is valid for at most twelve hours.
//! A key from the configuration does not expire; its tickets contain the time at which they were issued.

use std::fmt;
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::{hkdf, rand};
use rustls::server::ProducesTickets;
use weir_model::{ClientAuth, ServiceTls};

/// How long a key encrypts tickets, and how much longer it decrypts them.
const KEY_PERIOD: Duration = Duration::from_secs(6 * 3600);
const NAME_LEN: usize = 16;

/// A ticket key, as processes hand it over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TicketKey {
    /// Identifies the key in tickets; not secret.
    pub name: [u8; NAME_LEN],
    /// The AES-256 key.
    pub secret: [u8; 32],
    /// When the key was generated.
    pub created: SystemTime,
}

/// Omits the secret.
impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let created = &self.created;
        f.debug_struct("TicketKey")
            .field("created", created)
            .finish_non_exhaustive()
    }
}

/// A service's ticket keys, and the client authentication that its tickets imply, because a client that resumes a
/// session sends no certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceTickets {
    /// Service name.
    pub service: String,
    /// Path to the CA file for client certificates.
    pub client_ca: Option<String>,
    /// Whether clients had to present a certificate.
    pub client_auth: ClientAuth,
    /// The key that encrypts, then the previous one.
    pub keys: Vec<TicketKey>,
}

/// A service's ticket keys; shared by all workers.
pub(crate) struct Tickets {
    keys: RwLock<Vec<TicketKey>>,
    /// Whether the keys come from the configuration. Such keys are not rotated here.
    is_configured: bool,
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets").finish_non_exhaustive()
    }
}

impl TicketKey {
    fn new(now: SystemTime) -> Result<Self, rustls::Error> {
        let mut key = Self {
            name: [0; NAME_LEN],
            secret: [0; 32],
            created: now,
        };
        let filled = rand::fill(&mut key.name).and_then(|()| rand::fill(&mut key.secret));
        filled.map_err(|_| rustls::Error::FailedToGetRandomBytes)?;
        Ok(key)
    }

    /// Derives a key from a secret that other directors share. `info` binds the key to a service.
    fn derive(secret: &[u8], info: &[&[u8]], now: SystemTime) -> Option<Self> {
        let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, b"weir session tickets").extract(secret);
        let mut key = Self {
            name: [0; NAME_LEN],
            secret: [0; 32],
            created: now,
        };
        let mut bytes = [0; NAME_LEN + 32];
        prk.expand(info, Length(bytes.len()))
            .ok()?
            .fill(&mut bytes)
            .ok()?;
        let (name, secret_bytes) = bytes.split_at(NAME_LEN);
        key.name.copy_from_slice(name);
        key.secret.copy_from_slice(secret_bytes);
        Some(key)
    }

    /// Returns the age of the key; zero if the clock was set back.
    fn age(&self, now: SystemTime) -> Duration {
        now.duration_since(self.created).unwrap_or_default()
    }

    fn cipher(&self) -> Option<RandomizedNonceKey> {
        RandomizedNonceKey::new(&AES_256_GCM, &self.secret).ok()
    }
}

/// Number of bytes to derive.
struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl Tickets {
    /// Returns the keys for a service: configured or generated. Keys that are derived from one secret differ by service
    /// and by client authentication, because a client that resumes a session is not authenticated again.
    ///
    /// # Errors
    /// Fails if a key cannot be generated or derived.
    pub(crate) fn for_service(service: &str, tls: &ServiceTls) -> Result<Self, rustls::Error> {
        if tls.ticket_keys.is_empty() {
            return Self::new(Vec::new());
        }
        let ca = tls.client_ca.as_deref().unwrap_or_default();
        let auth = tls.client_auth.as_str();
        let info: [&[u8]; 5] = [
            service.as_bytes(),
            &[0],
            ca.as_bytes(),
            &[0],
            auth.as_bytes(),
        ];
        let now = SystemTime::now();
        let derive = |key: &weir_model::Secret| TicketKey::derive(key.expose(), &info, now);
        let keys: Option<Vec<TicketKey>> = tls.ticket_keys.iter().map(derive).collect();
        let keys = keys.ok_or(rustls::Error::FailedToGetRandomBytes)?;
        Ok(Self {
            keys: RwLock::new(keys),
            is_configured: true,
        })
    }

    /// Returns whether the keys are configured.
    pub(crate) const fn has_configured_keys(&self) -> bool {
        self.is_configured
    }

    /// Uses the keys that another process handed over and that have not expired. Generates a key if none remains.
    ///
    /// # Errors
    /// Fails if the random number generator fails.
    pub(crate) fn new(keys: Vec<TicketKey>) -> Result<Self, rustls::Error> {
        let now = SystemTime::now();
        let mut keys = keys;
        keys.retain(|key| key.age(now) < 2 * KEY_PERIOD);
        if keys.is_empty() {
            keys.push(TicketKey::new(now)?);
        }
        Ok(Self {
            keys: RwLock::new(keys),
            is_configured: false,
        })
    }

    /// Returns the keys, for another process.
    pub(crate) fn keys(&self) -> Vec<TicketKey> {
        self.keys
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns the key that currently encrypts tickets. Rotates the keys if its period is over.
    fn encryption_key(&self, now: SystemTime) -> Option<TicketKey> {
        let first = self.keys().first().copied()?;
        if self.is_configured || first.age(now) < KEY_PERIOD {
            return Some(first);
        }
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have rotated the keys in the meantime.
        if keys.first().is_some_and(|key| key.age(now) >= KEY_PERIOD) {
            keys.insert(0, TicketKey::new(now).ok()?);
            keys.truncate(2);
        }
        keys.first().copied()
    }

    fn seal(&self, message: &[u8], now: SystemTime) -> Option<Vec<u8>> {
        let key = self.encryption_key(now)?;
        // A configured key does not expire, so its tickets contain the time.
        let sealed_at = self.is_configured.then(|| seconds(now).to_be_bytes());
        let mut sealed = [sealed_at.as_ref().map_or(&[][..], |bytes| bytes), message].concat();
        let nonce = key
            .cipher()?
            .seal_in_place_append_tag(Aad::from(key.name), &mut sealed)
            .ok()?;
        Some([&key.name, nonce.as_ref().as_slice(), &sealed].concat())
    }

    fn open(&self, ticket: &[u8], now: SystemTime) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_at_checked(NAME_LEN)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN)?;
        let keys = self.keys();
        let is_valid = |key: &TicketKey| self.is_configured || key.age(now) < 2 * KEY_PERIOD;
        let is_match = |key: &&TicketKey| key.name == name && is_valid(key);
        let key = keys.iter().find(is_match)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut buffer = sealed.to_vec();
        let length = key
            .cipher()?
            .open_in_place(nonce, Aad::from(key.name), &mut buffer)
            .ok()?
            .len();
        buffer.truncate(length);
        if self.is_configured {
            let (sealed_at, message) = buffer.split_first_chunk()?;
            let age = seconds(now).saturating_sub(u64::from_be_bytes(*sealed_at));
            return (age < (2 * KEY_PERIOD).as_secs()).then(|| message.to_vec());
        }
        Some(buffer)
    }
}

/// Returns the number of seconds since 1970.
fn seconds(now: SystemTime) -> u64 {
    let since = now.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        u32::try_from((2 * KEY_PERIOD).as_secs()).unwrap_or(u32::MAX)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal(plain, SystemTime::now())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.open(cipher, SystemTime::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_decrypts_tickets_with_handed_over_keys() {
        let now = SystemTime::now();
        let first = Tickets::new(Vec::new()).expect("generate key");
        let ticket = first.seal(b"session", now).expect("seal ticket");
        let second = Tickets::new(first.keys()).expect("create tickets");
        assert_eq!(second.open(&ticket, now).as_deref(), Some(&b"session"[..]));
        let other_tickets = Tickets::new(Vec::new()).expect("generate key");
        assert_eq!(other_tickets.open(&ticket, now), None);
    }

    #[test]
    fn modified_ticket_is_rejected() {
        let now = SystemTime::now();
        let tickets = Tickets::new(Vec::new()).expect("generate key");
        let ticket = tickets.seal(b"session", now).expect("seal ticket");
        for index in 0..ticket.len() {
            let mut changed_ticket = ticket.clone();
            changed_ticket[index] ^= 1;
            assert_eq!(tickets.open(&changed_ticket, now), None, "{index}");
            assert_eq!(tickets.open(&ticket[..index], now), None, "{index}");
        }
    }

    #[test]
    fn key_encrypts_for_six_hours_and_decrypts_for_six_more() {
        let start = SystemTime::now();
        let tickets = Tickets::new(Vec::new()).expect("generate key");
        let ticket = tickets.seal(b"session", start).expect("seal ticket");
        let minute = Duration::from_secs(60);
        let later_time = start + KEY_PERIOD + minute;
        let second = tickets.seal(b"session", later_time).expect("seal ticket");
        assert_ne!(ticket[..NAME_LEN], second[..NAME_LEN]);
        assert!(tickets.open(&ticket, later_time).is_some());
        assert_eq!(tickets.keys().len(), 2);
        assert!(
            tickets
                .open(&ticket, start + 2 * KEY_PERIOD + minute)
                .is_none()
        );
        assert!(
            tickets
                .open(&second, start + 2 * KEY_PERIOD + minute)
                .is_some()
        );
    }

    #[test]
    fn directors_with_the_same_key_share_tickets_for_twelve_hours() {
        let secret =
            |text: &str| weir_model::Secret::new(weir_model::SecretSource::Text, text.into());
        let tickets = |service: &str, ca: Option<&str>, keys: &[&str]| {
            let tls = ServiceTls {
                certificates: Vec::new(),
                strict_sni: false,
                minimum: weir_model::TlsVersion::default(),
                ciphers: Vec::new(),
                groups: Vec::new(),
                sni_host: weir_model::SniHost::default(),
                client_ca: ca.map(str::to_owned),
                client_crl: None,
                client_auth: ClientAuth::default(),
                ticket_keys: keys.iter().map(|key| secret(key)).collect(),
                source: weir_model::Source::default(),
            };
            Tickets::for_service(service, &tls).expect("create tickets")
        };
        let now = SystemTime::now();
        let ticket = tickets("s", None, &["one"])
            .seal(b"session", now)
            .expect("seal ticket");
        let opens = |tickets: Tickets, at| tickets.open(&ticket, at).as_deref() == Some(b"session");
        assert!(opens(tickets("s", None, &["one"]), now));
        assert!(opens(tickets("s", None, &["two", "one"]), now + KEY_PERIOD));
        assert!(!opens(tickets("s", None, &["one"]), now + 2 * KEY_PERIOD));
        assert!(!opens(tickets("s", None, &["two"]), now));
        assert!(!opens(tickets("t", None, &["one"]), now));
        assert!(!opens(tickets("s", Some("ca"), &["one"]), now));
    }

    #[test]
    fn debug_output_hides_the_secret() {
        let key = TicketKey::new(SystemTime::now()).expect("generate key");
        assert!(!format!("{key:?}").contains("secret"));
    }
}
