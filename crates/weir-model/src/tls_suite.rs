//! Defines the cipher suites and key exchange groups of TLS, with their IANA and OpenSSL names.

use crate::TlsVersion;

named_enum! {
    /// A cipher suite (IANA "TLS Cipher Suites"). Weir offers the suites in this order.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum CipherSuite {
        /// TLS 1.3.
        Aes256Gcm = "TLS_AES_256_GCM_SHA384",
        /// TLS 1.3.
        Aes128Gcm = "TLS_AES_128_GCM_SHA256",
        /// TLS 1.3.
        ChaCha20 = "TLS_CHACHA20_POLY1305_SHA256",
        /// TLS 1.2, for ECDSA certificates.
        EcdsaAes256Gcm = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        /// TLS 1.2, for ECDSA certificates.
        EcdsaAes128Gcm = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        /// TLS 1.2, for ECDSA certificates.
        EcdsaChaCha20 = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        /// TLS 1.2, for RSA certificates.
        RsaAes256Gcm = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        /// TLS 1.2, for RSA certificates.
        RsaAes128Gcm = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        /// TLS 1.2, for RSA certificates.
        RsaChaCha20 = "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    }
}

impl CipherSuite {
    /// Returns the name in OpenSSL's `ciphers`, which is the IANA name for a TLS 1.3 suite.
    pub const fn openssl_name(self) -> &'static str {
        match self {
            Self::Aes256Gcm | Self::Aes128Gcm | Self::ChaCha20 => self.as_str(),
            Self::EcdsaAes256Gcm => "ECDHE-ECDSA-AES256-GCM-SHA384",
            Self::EcdsaAes128Gcm => "ECDHE-ECDSA-AES128-GCM-SHA256",
            Self::EcdsaChaCha20 => "ECDHE-ECDSA-CHACHA20-POLY1305",
            Self::RsaAes256Gcm => "ECDHE-RSA-AES256-GCM-SHA384",
            Self::RsaAes128Gcm => "ECDHE-RSA-AES128-GCM-SHA256",
            Self::RsaChaCha20 => "ECDHE-RSA-CHACHA20-POLY1305",
        }
    }

    /// Parses an IANA or an OpenSSL name.
    pub fn from_text(text: &str) -> Option<Self> {
        let has_name = |suite: &Self| suite.as_str() == text || suite.openssl_name() == text;
        Self::ALL.into_iter().find(has_name)
    }

    /// Returns the only TLS version that uses the suite.
    pub const fn version(self) -> TlsVersion {
        match self {
            Self::Aes256Gcm | Self::Aes128Gcm | Self::ChaCha20 => TlsVersion::V13,
            Self::EcdsaAes256Gcm
            | Self::EcdsaAes128Gcm
            | Self::EcdsaChaCha20
            | Self::RsaAes256Gcm
            | Self::RsaAes128Gcm
            | Self::RsaChaCha20 => TlsVersion::V12,
        }
    }
}

named_enum! {
    /// A key exchange group (IANA "TLS Supported Groups").
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum TlsGroup {
        /// X25519 with ML-KEM-768, TLS 1.3 only.
        X25519MlKem768 = "X25519MLKEM768",
        /// P-256 with ML-KEM-768, TLS 1.3 only.
        P256MlKem768 = "SecP256r1MLKEM768",
        /// X25519.
        X25519 = "X25519",
        /// NIST P-256.
        P256 = "secp256r1",
        /// NIST P-384.
        P384 = "secp384r1",
    }
}

impl TlsGroup {
    /// Other group names, including OpenSSL's.
    pub const ALIASES: [(&'static str, Self); 4] = [
        ("x25519", Self::X25519),
        ("P-256", Self::P256),
        ("prime256v1", Self::P256),
        ("P-384", Self::P384),
    ];

    /// Parses a name.
    pub fn from_text(text: &str) -> Option<Self> {
        let named = Self::ALL.into_iter().find(|group| group.as_str() == text);
        let mut aliases = Self::ALIASES.into_iter();
        named.or_else(|| Some(aliases.find(|(name, _)| *name == text)?.1))
    }

    /// Returns whether TLS 1.2 can use the group.
    pub const fn is_for_tls12(self) -> bool {
        match self {
            Self::X25519MlKem768 | Self::P256MlKem768 => false,
            Self::X25519 | Self::P256 | Self::P384 => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iana_and_openssl_names_are_parsed() {
        for suite in CipherSuite::ALL {
            assert_eq!(CipherSuite::from_text(suite.as_str()), Some(suite));
            assert_eq!(CipherSuite::from_text(suite.openssl_name()), Some(suite));
        }
        assert_eq!(CipherSuite::from_text("ECDHE-RSA-AES128-SHA"), None);
        for group in TlsGroup::ALL {
            assert_eq!(TlsGroup::from_text(group.as_str()), Some(group));
        }
        assert_eq!(TlsGroup::from_text("prime256v1"), Some(TlsGroup::P256));
        assert_eq!(TlsGroup::from_text("secp521r1"), None);
    }
}
