//! Builds RADIUS checks with the datagram that `Authen::Radius` sends to check a password (RFC 2865 section 4.1).

use md5::{Digest, Md5};

use super::negotiate::datagram_check;
use crate::ldirectord::service::Section;
use crate::note::{Notes, Position};
use crate::probe::Probe;

const ACCESS_REQUEST: u8 = 1;
const ACCESS_ACCEPT: u8 = 2;
const USER_NAME: u8 = 1;
const USER_PASSWORD: u8 = 2;
const NAS_IDENTIFIER: u8 = 32;
/// Maximum length of an attribute's value, in bytes.
const MAX_VALUE_BYTES: usize = 253;
/// Maximum length of a password, in bytes (RFC 2865 section 5.2).
const MAX_PASSWORD_BYTES: usize = 128;

/// Returns a check that passes if the server accepts the password.
pub(super) fn radius_check(section: &Section, position: Position, notes: &mut Notes) -> Probe {
    let text = |text: &Option<(String, Position)>| {
        let text = text.as_ref().map(|(text, _)| text.clone());
        text.unwrap_or_default()
    };
    let (login, password) = (text(&section.login), text(&section.passwd));
    let request = access_request(&login, &password, text(&section.secret).as_bytes());
    let texts = [&section.login, &section.passwd, &section.secret];
    for (_, position) in texts.into_iter().flatten() {
        notes.mark_covered(*position);
    }
    datagram_check((&request, position), &[ACCESS_ACCEPT], position)
}

/// Returns an Access-Request with a password that is hidden with the secret.
fn access_request(login: &str, password: &str, secret: &[u8]) -> Vec<u8> {
    // Every probe sends the same request, so the authenticator need not be random.
    let authenticator: [u8; 16] = Md5::digest([login.as_bytes(), secret].concat()).into();
    let mut attributes = Vec::new();
    push_attribute(&mut attributes, USER_NAME, login.as_bytes());
    let hidden = hide_password(password.as_bytes(), secret, authenticator);
    push_attribute(&mut attributes, USER_PASSWORD, &hidden);
    push_attribute(&mut attributes, NAS_IDENTIFIER, b"weir");
    let length = u16::try_from(20 + attributes.len()).unwrap_or(u16::MAX);
    let mut packet = vec![ACCESS_REQUEST, 1];
    packet.extend(length.to_be_bytes());
    packet.extend(authenticator);
    packet.extend(attributes);
    packet
}

fn push_attribute(packet: &mut Vec<u8>, kind: u8, value: &[u8]) {
    let value = &value[..value.len().min(MAX_VALUE_BYTES)];
    packet.push(kind);
    packet.push(u8::try_from(value.len() + 2).unwrap_or(u8::MAX));
    packet.extend_from_slice(value);
}

/// Hides a password (RFC 2865 section 5.2).
fn hide_password(password: &[u8], secret: &[u8], authenticator: [u8; 16]) -> Vec<u8> {
    let password = &password[..password.len().min(MAX_PASSWORD_BYTES)];
    let mut padded = password.to_vec();
    padded.resize(password.len().max(1).next_multiple_of(16), 0);
    let mut hidden = Vec::with_capacity(padded.len());
    let mut previous: [u8; 16] = authenticator;
    for block in padded.chunks(16) {
        let mask: [u8; 16] = Md5::digest([secret, &previous].concat()).into();
        for (index, byte) in block.iter().enumerate() {
            previous[index] = byte ^ mask[index];
        }
        hidden.extend(previous);
    }
    hidden
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example in RFC 2865 section 7.1.
    #[test]
    fn hidden_password_matches_rfc_example() {
        let authenticator = [
            0x0f, 0x40, 0x3f, 0x94, 0x73, 0x97, 0x80, 0x57, 0xbd, 0x83, 0xd5, 0xcb, 0x98, 0xf4,
            0x22, 0x7a,
        ];
        let hidden = [
            0x0d, 0xbe, 0x70, 0x8d, 0x93, 0xd4, 0x13, 0xce, 0x31, 0x96, 0xe4, 0x3f, 0x78, 0x2a,
            0x0a, 0xee,
        ];
        assert_eq!(
            hide_password(b"arctangent", b"xyzzy5461", authenticator),
            hidden
        );
    }

    #[test]
    fn request_contains_its_length_and_attributes() {
        let packet = access_request("nemo", "a password of more than 16 bytes", b"xyzzy5461");
        assert_eq!(packet[0], 1);
        let length = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
        assert_eq!(length, packet.len());
        assert_eq!(&packet[20..26], b"\x01\x06nemo");
        assert_eq!(&packet[26..28], &[2, 34]);
        assert_eq!(&packet[60..], b"\x20\x06weir");
        let mut attribute = Vec::new();
        push_attribute(&mut attribute, 1, &[b'x'; 300]);
        assert_eq!((attribute.len(), attribute[1]), (255, 255));
        assert_eq!(hide_password(b"", b"s", [0; 16]).len(), 16);
        assert_eq!(hide_password(&[b'x'; 200], b"s", [0; 16]).len(), 128);
    }
}
