//! TLS of probes: whom a check takes for the server, and the handshake.
//!
//! What a check asks for is made ready once for all of its probes, and anew with each configuration, since files may be
//! others then.

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

/// By what a check asks for and whether it is for HTTP/2.
type Key = (CheckTls, bool);

/// What checks by TLS need, made when it is first needed.
#[derive(Debug, Default)]
pub(super) struct Clients(Mutex<HashMap<Key, Result<Arc<ClientConfig>, String>>>);

impl Clients {
    /// Reads files again.
    pub(super) fn forget(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    /// What a target needs; `Err` = the director cannot ask so.
    fn of(&self, tls: &CheckTls, http2: bool) -> Result<Arc<ClientConfig>, String> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || client(tls, http2).map(Arc::new);
        made.entry((tls.clone(), http2)).or_insert_with(new).clone()
    }
}

/// What a handshake came to.
pub(super) enum Shaken {
    /// The server is who it should be.
    Done(Box<TlsStream<TcpStream>>),
    /// The server is not, or broke off.
    Failed(io::Error),
    /// The director cannot ask so.
    Unable(String),
}

/// Comes to terms with a server; the caller holds the deadline.
pub(super) async fn shake(
    clients: &Clients,
    tls: &CheckTls,
    target: &Target,
    stream: TcpStream,
) -> Shaken {
    let http2 = matches!(target.probe, Probe::Grpc { .. });
    let name = match &tls.server_name {
        Some(name) => ServerName::try_from(name.clone()),
        None => Ok(ServerName::IpAddress(target.address.into())),
    };
    match (clients.of(tls, http2), name) {
        (Ok(client), Ok(name)) => match TlsConnector::from(client).connect(name, stream).await {
            Ok(stream) => Shaken::Done(Box::new(stream)),
            Err(error) => Shaken::Failed(error),
        },
        (Err(why), _) => Shaken::Unable(why),
        (_, Err(error)) => Shaken::Unable(error.to_string()),
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
