//! Finds a generic netlink family by name and sends requests to it.
//!
//! Supports only the features that [`crate::xdp_feature`] uses: requests with one attribute, and replies without nested
//! attributes. Numbers are from `linux/genetlink.h`.

use std::fmt;

use rtnetlink::packet_core::{
    NetlinkDeserializable, NetlinkHeader, NetlinkSerializable, NlasIterator,
};
use rtnetlink::sys::protocols::NETLINK_GENERIC;
use rustix::io::Errno;

use crate::Result;
use crate::exchange::Exchange;

const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const HEADER_BYTES: usize = 4;
const ATTRIBUTE_HEADER_BYTES: usize = 4;

/// A message of a family: command and encoded attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GenericMessage {
    family: u16,
    command: u8,
    attributes: Vec<u8>,
}

impl GenericMessage {
    pub(crate) fn new(family: u16, command: u8) -> Self {
        Self {
            family,
            command,
            attributes: Vec::new(),
        }
    }

    /// Adds an attribute; `value` must have at most 65531 bytes.
    pub(crate) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        let length = (ATTRIBUTE_HEADER_BYTES + value.len()) as u16;
        self.attributes.extend(length.to_ne_bytes());
        self.attributes.extend(kind.to_ne_bytes());
        self.attributes.extend(value);
        let padded = self.attributes.len().next_multiple_of(4);
        self.attributes.resize(padded, 0);
        self
    }

    /// Returns the value of the first attribute of type `kind`.
    pub(crate) fn attribute(&self, kind: u16) -> Option<Vec<u8>> {
        NlasIterator::new(self.attributes.as_slice())
            .map_while(|attribute| attribute.ok())
            .find(|attribute| attribute.kind() == kind)
            .map(|attribute| attribute.value().to_vec())
    }
}

impl NetlinkSerializable for GenericMessage {
    fn message_type(&self) -> u16 {
        self.family
    }

    fn buffer_len(&self) -> usize {
        HEADER_BYTES + self.attributes.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer[..HEADER_BYTES].copy_from_slice(&[self.command, 1, 0, 0]);
        buffer[HEADER_BYTES..].copy_from_slice(&self.attributes);
    }
}

/// A message shorter than its header.
#[derive(Debug)]
pub(crate) struct TooShort;

impl fmt::Display for TooShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("shorter than a generic netlink header")
    }
}

impl std::error::Error for TooShort {}

impl NetlinkDeserializable for GenericMessage {
    type Error = TooShort;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> std::result::Result<Self, TooShort> {
        let (head, attributes) = payload.split_at_checked(HEADER_BYTES).ok_or(TooShort)?;
        Ok(Self {
            family: header.message_type,
            command: head[0],
            attributes: attributes.to_vec(),
        })
    }
}

/// A generic netlink socket.
pub(crate) struct GenericSocket {
    exchange: Exchange,
}

impl GenericSocket {
    /// Opens a socket in the calling thread's network namespace.
    pub(crate) fn open() -> Result<Self> {
        Ok(Self {
            exchange: Exchange::open(NETLINK_GENERIC)?,
        })
    }

    /// Returns the ID of the family `name`, or `None` if this kernel does not have it.
    pub(crate) async fn find_family(&mut self, name: &str) -> Result<Option<u16>> {
        let mut text = name.as_bytes().to_vec();
        text.push(0);
        let message = GenericMessage::new(GENL_ID_CTRL, CTRL_CMD_GETFAMILY)
            .with(CTRL_ATTR_FAMILY_NAME, &text);
        match self.transact(&format!("find family {name}"), message).await {
            Ok(replies) => Ok(replies.iter().find_map(|reply| {
                let number = reply.attribute(CTRL_ATTR_FAMILY_ID)?;
                Some(u16::from_ne_bytes(number.try_into().ok()?))
            })),
            Err(error) if error.has_errno(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn transact(
        &mut self,
        request: &str,
        message: GenericMessage,
    ) -> Result<Vec<GenericMessage>> {
        self.exchange.transact(request, message, 0).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_found() {
        let message = GenericMessage::new(20, 1)
            .with(2, b"abcde")
            .with(3, &7_u32.to_ne_bytes());
        assert_eq!(message.buffer_len(), 4 + 12 + 8);
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        let mut header = NetlinkHeader::default();
        header.message_type = 20;
        let parsed = GenericMessage::deserialize(&header, &bytes).unwrap();
        assert_eq!(parsed, message);
        assert_eq!(parsed.attribute(2), Some(b"abcde".to_vec()));
        assert_eq!(parsed.attribute(3), Some(7_u32.to_ne_bytes().to_vec()));
        assert_eq!(parsed.attribute(4), None);
        assert!(GenericMessage::deserialize(&header, &bytes[..3]).is_err());
    }
}
