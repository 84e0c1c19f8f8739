//! Implements TLS for probes: the handshake, and verification of the server's certificate.
//!
//! The TLS configuration of a check is built once for all its probes, and rebuilt after each reload and after the files
//! have changed. If it cannot be rebuilt, the previous one remains in use.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use weir_health::Target;
use weir_model::{CheckTls, Probe};
use weir_proxy::{NoCertificateVerification, server_verifier};

use crate::stream::Stream;

/// TLS settings of a check, and whether it uses HTTP/2.
type ConfigKey = (CheckTls, bool);

/// Client configurations; each is built on first use.
#[derive(Debug, Default)]
pub(crate) struct ClientConfigs(Mutex<HashMap<ConfigKey, CachedConfig>>);

/// A client configuration, or the reason why there is none.
#[derive(Debug)]
struct CachedConfig {
    config: Result<Arc<ClientConfig>, String>,
    /// Whether the files must be read again.
    is_stale: bool,
}

impl ClientConfigs {
    /// Makes the next probe of each check read the files again.
    pub(crate) fn reload(&self) {
        let mut configs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Configurations that no probe has used since the last call are removed.
        configs.retain(|_, cached| !std::mem::replace(&mut cached.is_stale, true));
    }

    /// Returns the configuration for these settings, or the reason why it cannot be built.
    fn get(&self, tls: &CheckTls, uses_http2: bool) -> Result<Arc<ClientConfig>, String> {
        let mut configs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (tls.clone(), uses_http2);
        if let Some(cached) = configs.get_mut(&key) {
            // A failed attempt is repeated: the file may exist by now.
            if cached.is_stale || cached.config.is_err() {
                cached.replace(client_config(tls, uses_http2).map(Arc::new));
            }
            return cached.config.clone();
        }
        let config = client_config(tls, uses_http2).map(Arc::new);
        if let Err(error) = &config {
            tracing::error!(
                error,
                "a check cannot run, so its servers keep their states"
            );
        }
        let cached = CachedConfig {
            config,
            is_stale: false,
        };
        configs.entry(key).or_insert(cached).config.clone()
    }
}

impl CachedConfig {
    /// Uses a rebuilt configuration, or keeps the previous one if it could not be rebuilt.
    fn replace(&mut self, built: Result<Arc<ClientConfig>, String>) {
        self.is_stale = false;
        if let (Ok(_), Err(error)) = (&self.config, &built) {
            tracing::error!(
                error,
                "failed to load the CA file of a check; the previous CA certificates remain in use"
            );
            return;
        }
        self.config = built;
    }
}

/// The outcome of a handshake.
pub(crate) enum Handshake {
    /// The handshake completed. The server was verified, unless verification is disabled.
    Done(Box<TlsStream<Stream>>),
    /// The handshake failed, for example because of the server's certificate.
    Failed(io::Error),
    /// The director cannot probe with these settings.
    InvalidSettings(String),
}

/// Performs a handshake. The caller enforces the deadline.
pub(crate) async fn handshake(
    configs: &ClientConfigs,
    tls: &CheckTls,
    target: &Target,
    stream: Stream,
) -> Handshake {
    let uses_http2 = matches!(target.probe, Probe::Grpc { .. });
    let name = match &tls.server_name {
        Some(name) => ServerName::try_from(name.clone()),
        None => Ok(ServerName::IpAddress(target.address.into())),
    };
    match (configs.get(tls, uses_http2), name) {
        (Ok(config), Ok(name)) => match TlsConnector::from(config).connect(name, stream).await {
            Ok(stream) => Handshake::Done(Box::new(stream)),
            Err(error) => Handshake::Failed(error),
        },
        (Err(error), _) => Handshake::InvalidSettings(error),
        (_, Err(error)) => Handshake::InvalidSettings(error.to_string()),
    }
}

/// Builds the configuration for these settings.
fn client_config(tls: &CheckTls, uses_http2: bool) -> Result<ClientConfig, String> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous();
    let builder = if tls.verify {
        let verifier = server_verifier(tls.ca.as_deref()).map_err(|error| error.to_string())?;
        builder.with_custom_certificate_verifier(verifier)
    } else {
        builder
            .with_custom_certificate_verifier(Arc::new(NoCertificateVerification::new(&provider)))
    };
    let mut config = builder.with_no_client_auth();
    if uses_http2 {
        config.alpn_protocols = vec![b"h2".to_vec()];
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_ca_file_is_retried_and_never_replaces_usable_certificates() {
        let path = std::env::temp_dir().join(format!("weir-check-ca-{}", std::process::id()));
        let certificates = include_bytes!("../../weir-proxy/testdata/certificate.pem");
        let tls = CheckTls {
            ca: Some(path.display().to_string()),
            ..CheckTls::default()
        };
        let configs = ClientConfigs::default();
        let error = configs.get(&tls, false).expect_err("the file is missing");
        assert!(error.contains("No such file"), "{error}");
        std::fs::write(&path, certificates).expect("write the file");
        let config = configs.get(&tls, false).expect("the file exists");
        std::fs::remove_file(&path).expect("remove the file");
        configs.reload();
        let previous = configs.get(&tls, false).expect("the file was usable");
        assert!(Arc::ptr_eq(&config, &previous));
    }
}
