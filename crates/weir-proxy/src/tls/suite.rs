//! Restricts rustls to the cipher suites and key exchange groups that `tls` lists.

use rustls::NamedGroup;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use weir_model::{CipherSuite, TlsGroup};

/// Returns the aws-lc-rs algorithms, restricted to these suites and groups. An empty list means rustls' defaults. If no
/// suite of a TLS version is listed, that version keeps its default suites.
pub(super) fn provider(ciphers: &[CipherSuite], groups: &[TlsGroup]) -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|suite| {
        let mut all = CipherSuite::ALL.into_iter();
        let Some(cipher_suite) = all.find(|cipher_suite| id(*cipher_suite) == suite.suite()) else {
            return ciphers.is_empty();
        };
        let has_version = ciphers
            .iter()
            .any(|cipher| cipher.version() == cipher_suite.version());
        !has_version || ciphers.contains(&cipher_suite)
    });
    if !groups.is_empty() {
        let all = || aws_lc_rs::ALL_KX_GROUPS.iter().copied();
        let kx_groups = groups
            .iter()
            .filter_map(|group| all().find(|kx_group| kx_group.name() == name(*group)));
        provider.kx_groups = kx_groups.collect();
    }
    provider
}

const fn id(suite: CipherSuite) -> rustls::CipherSuite {
    use rustls::CipherSuite as Id;
    match suite {
        CipherSuite::Aes256Gcm => Id::TLS13_AES_256_GCM_SHA384,
        CipherSuite::Aes128Gcm => Id::TLS13_AES_128_GCM_SHA256,
        CipherSuite::ChaCha20 => Id::TLS13_CHACHA20_POLY1305_SHA256,
        CipherSuite::EcdsaAes256Gcm => Id::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        CipherSuite::EcdsaAes128Gcm => Id::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        CipherSuite::EcdsaChaCha20 => Id::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        CipherSuite::RsaAes256Gcm => Id::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        CipherSuite::RsaAes128Gcm => Id::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        CipherSuite::RsaChaCha20 => Id::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    }
}

const fn name(group: TlsGroup) -> NamedGroup {
    match group {
        TlsGroup::X25519MlKem768 => NamedGroup::X25519MLKEM768,
        TlsGroup::P256MlKem768 => NamedGroup::secp256r1MLKEM768,
        TlsGroup::X25519 => NamedGroup::X25519,
        TlsGroup::P256 => NamedGroup::secp256r1,
        TlsGroup::P384 => NamedGroup::secp384r1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_and_group_exists_in_the_provider() {
        for suite in CipherSuite::ALL {
            let provider = provider(&[suite], &[]);
            let ids = provider.cipher_suites.iter().map(|suite| suite.suite());
            assert!(
                ids.clone().any(|suite_id| suite_id == id(suite)),
                "{suite:?}"
            );
            // This does not affect the suites of the other version.
            let others = CipherSuite::ALL.into_iter();
            let others = others
                .filter(|other| other.version() != suite.version())
                .count();
            assert_eq!(ids.count(), 1 + others, "{suite:?}");
        }
        let groups: Vec<TlsGroup> = TlsGroup::ALL.into_iter().rev().collect();
        let kx_groups = provider(&[], &groups).kx_groups;
        let names: Vec<NamedGroup> = kx_groups.iter().map(|group| group.name()).collect();
        let expected: Vec<NamedGroup> = groups.into_iter().map(name).collect();
        assert_eq!(names, expected);
        let default = aws_lc_rs::default_provider();
        let unchanged = provider(&[], &[]);
        assert_eq!(unchanged.cipher_suites, default.cipher_suites);
        assert_eq!(unchanged.kx_groups.len(), default.kx_groups.len());
    }
}
