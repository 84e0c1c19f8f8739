//! TLS of probes: verification of the server, and the handshake.
//!
//! The configuration of a check is built once for all its probes, and again with each Weir configuration, since the
//! files may have changed.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use weir_health::Target;
use weir_model::{CheckTls, Probe};
use weir_proxy::{NoCertificateVerification, server_verifier};

/// TLS settings of a check, and whether they are for HTTP/2.
type Key = (CheckTls, bool);

/// Client configurations, built on first use.
#[derive(Debug, Default)]
pub(crate) struct Clients(Mutex<HashMap<Key, Result<Arc<ClientConfig>, String>>>);

impl Clients {
    /// Drops all of them, so that files are read again.
    pub(crate) fn clear(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    /// The configuration of a target; `Err` = it cannot be built.
    fn of(&self, tls: &CheckTls, http2: bool) -> Result<Arc<ClientConfig>, String> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || client(tls, http2).map(Arc::new);
        made.entry((tls.clone(), http2)).or_insert_with(new).clone()
    }
}

/// The outcome of a handshake.
pub(crate) enum Handshake {
    /// The server was verified.
    Done(Box<TlsStream<TcpStream>>),
    /// The server was rejected, or closed the connection.
    Failed(io::Error),
    /// The director cannot probe with these settings.
    Unable(String),
}

/// Performs a handshake; the caller enforces the deadline.
pub(crate) async fn handshake(
    clients: &Clients,
    tls: &CheckTls,
    target: &Target,
    stream: TcpStream,
) -> Handshake {
    let http2 = matches!(target.probe, Probe::Grpc { .. });
    let name = match &tls.server_name {
        Some(name) => ServerName::try_from(name.clone()),
        None => Ok(ServerName::IpAddress(target.address.into())),
    };
    match (clients.of(tls, http2), name) {
        (Ok(client), Ok(name)) => match TlsConnector::from(client).connect(name, stream).await {
            Ok(stream) => Handshake::Done(Box::new(stream)),
            Err(error) => Handshake::Failed(error),
        },
        (Err(why), _) => Handshake::Unable(why),
        (_, Err(error)) => Handshake::Unable(error.to_string()),
    }
}

fn client(tls: &CheckTls, http2: bool) -> Result<ClientConfig, String> {
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
    let mut client = builder.with_no_client_auth();
    if http2 {
        client.alpn_protocols = vec![b"h2".to_vec()];
    }
    Ok(client)
}
