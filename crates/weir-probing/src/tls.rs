//! Implements TLS for probes: the handshake, and verification of the server's certificate.
//!
//! The TLS configuration of a check is built once for all its probes, and rebuilt after each reload, because the files
//! may have changed.

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
pub(crate) struct ClientConfigs(Mutex<HashMap<ConfigKey, Result<Arc<ClientConfig>, String>>>);

impl ClientConfigs {
    /// Removes all configurations, so the files are read again.
    pub(crate) fn clear(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    /// Returns the configuration for these settings, or the reason why it cannot be built.
    fn get(&self, tls: &CheckTls, uses_http2: bool) -> Result<Arc<ClientConfig>, String> {
        let mut configurations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let build = || client_config(tls, uses_http2).map(Arc::new);
        configurations
            .entry((tls.clone(), uses_http2))
            .or_insert_with(build)
            .clone()
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
