//! Tickets of TLS sessions (RFC 5077, RFC 8446 section 4.6.1) under keys that another process can go on with.
//!
//! A ticket is the key's name, a random nonce, and what rustls wants to find again, sealed by AES-256-GCM. A key seals for six
//! hours, and opens for six more; so a ticket is good for twelve hours at the most, whichever process made it.

use std::fmt;
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::rand;
use rustls::server::ProducesTickets;
use weir_model::ClientAuth;

/// How long a key seals, and then opens.
const TURN: Duration = Duration::from_secs(6 * 3600);
const NAME_LEN: usize = 16;

/// A key as it goes from process to process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TicketKey {
    /// Which tickets are its own; no secret.
    pub name: [u8; NAME_LEN],
    /// The key itself.
    pub secret: [u8; 32],
    /// When it began to seal.
    pub made: SystemTime,
}

/// Never shows the secret.
impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let made = &self.made;
        f.debug_struct("TicketKey")
            .field("made", made)
            .finish_non_exhaustive()
    }
}

/// A service's keys, and what was asked of the clients that have its tickets: they do not prove it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceTickets {
    /// The service.
    pub service: String,
    /// Whose certificates clients had to have.
    pub client_ca: Option<String>,
    /// Whether they had to.
    pub client_auth: ClientAuth,
    /// The one that seals, and the one before.
    pub keys: Vec<TicketKey>,
}

/// See the module. Known to all workers.
pub(crate) struct Tickets {
    keys: RwLock<Vec<TicketKey>>,
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
            made: now,
        };
        let filled = rand::fill(&mut key.name).and_then(|()| rand::fill(&mut key.secret));
        filled.map_err(|_| rustls::Error::FailedToGetRandomBytes)?;
        Ok(key)
    }

    /// None for a clock that was set back: what cannot be judged goes on.
    fn age(&self, now: SystemTime) -> Duration {
        now.duration_since(self.made).unwrap_or_default()
    }

    fn cipher(&self) -> Option<RandomizedNonceKey> {
        RandomizedNonceKey::new(&AES_256_GCM, &self.secret).ok()
    }
}

impl Tickets {
    /// With keys of another process, as far as they are still good, or a new one.
    ///
    /// # Errors
    /// There is no randomness.
    pub(crate) fn new(keys: Vec<TicketKey>) -> Result<Self, rustls::Error> {
        let now = SystemTime::now();
        let mut keys = keys;
        keys.retain(|key| key.age(now) < 2 * TURN);
        if keys.is_empty() {
            keys.push(TicketKey::new(now)?);
        }
        Ok(Self {
            keys: RwLock::new(keys),
        })
    }

    /// For another process.
    pub(crate) fn keys(&self) -> Vec<TicketKey> {
        self.keys
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The key that seals now.
    fn sealing(&self, now: SystemTime) -> Option<TicketKey> {
        let first = self.keys().first().copied()?;
        if first.age(now) < TURN {
            return Some(first);
        }
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have been first.
        if keys.first().is_some_and(|key| key.age(now) >= TURN) {
            keys.insert(0, TicketKey::new(now).ok()?);
            keys.truncate(2);
        }
        keys.first().copied()
    }

    fn seal(&self, message: &[u8], now: SystemTime) -> Option<Vec<u8>> {
        let key = self.sealing(now)?;
        let mut sealed = message.to_vec();
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
        let good = |key: &&TicketKey| key.name == name && key.age(now) < 2 * TURN;
        let key = keys.iter().find(good)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut opened = sealed.to_vec();
        let length = key
            .cipher()?
            .open_in_place(nonce, Aad::from(key.name), &mut opened)
            .ok()?
            .len();
        opened.truncate(length);
        Some(opened)
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        u32::try_from((2 * TURN).as_secs()).unwrap_or(u32::MAX)
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
    fn another_process_opens_what_this_one_sealed() {
        let now = SystemTime::now();
        let one = Tickets::new(Vec::new()).expect("randomness");
        let ticket = one.seal(b"session", now).expect("sealed");
        let two = Tickets::new(one.keys()).expect("keys");
        assert_eq!(two.open(&ticket, now).as_deref(), Some(&b"session"[..]));
        let other = Tickets::new(Vec::new()).expect("randomness");
        assert_eq!(other.open(&ticket, now), None);
    }

    #[test]
    fn what_was_changed_is_not_opened() {
        let now = SystemTime::now();
        let tickets = Tickets::new(Vec::new()).expect("randomness");
        let ticket = tickets.seal(b"session", now).expect("sealed");
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(tickets.open(&changed, now), None, "{at}");
            assert_eq!(tickets.open(&ticket[..at], now), None, "{at}");
        }
    }

    #[test]
    fn a_key_seals_for_six_hours_and_opens_for_six_more() {
        let begun = SystemTime::now();
        let tickets = Tickets::new(Vec::new()).expect("randomness");
        let ticket = tickets.seal(b"session", begun).expect("sealed");
        let minute = Duration::from_secs(60);
        let later = begun + TURN + minute;
        let second = tickets.seal(b"session", later).expect("sealed");
        assert_ne!(ticket[..NAME_LEN], second[..NAME_LEN]);
        assert!(tickets.open(&ticket, later).is_some());
        assert_eq!(tickets.keys().len(), 2);
        assert!(tickets.open(&ticket, begun + 2 * TURN + minute).is_none());
        assert!(tickets.open(&second, begun + 2 * TURN + minute).is_some());
    }

    #[test]
    fn a_secret_is_never_shown() {
        let key = TicketKey::new(SystemTime::now()).expect("randomness");
        assert!(!format!("{key:?}").contains("secret"));
    }
}
