//! Encodes bytes as hexadecimal.

/// Returns two lowercase digits for each byte.
pub(crate) fn encode_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
