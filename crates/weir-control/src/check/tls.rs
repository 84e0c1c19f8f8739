//! TLS of probes: whom a check takes for the server, and the handshake.
//!
//! What a check asks for is made ready once for all of its probes, and anew with each configuration, since files may be others
//! then.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use weir_health::Target;
use weir_model::{CheckTls, Probe};
use weir_proxy::Anybody;

/// Where Debian keeps the authorities that everybody knows.
const SYSTEM: &str = "/etc/ssl/certs/ca-certificates.crt";

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
        .map_err(|error| error.to_string())?;
    let builder = if tls.verify {
        let roots = Arc::new(authorities(tls.ca.as_deref().unwrap_or(SYSTEM))?);
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider);
        builder.with_webpki_verifier(verifier.build().map_err(|error| error.to_string())?)
    } else {
        let anybody = Anybody::new(&provider);
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(anybody))
    };
    let mut client = builder.with_no_client_auth();
    if http2 {
        client.alpn_protocols = vec![b"h2".to_vec()];
    }
    Ok(client)
}

fn authorities(path: &str) -> Result<RootCertStore, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{path}: {error}");
    let mut store = RootCertStore::empty();
    let found = CertificateDer::pem_file_iter(path).map_err(|error| failed(&error))?;
    store.add_parsable_certificates(found.flatten());
    if store.is_empty() {
        return Err(format!("{path} holds no certificate"));
    }
    Ok(store)
}
