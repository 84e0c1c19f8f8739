//! Sends POST requests to notification webhooks and trace collectors.
//!
//! Each request uses a new connection. Only the status line of the response is read.

use std::io;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use weir_model::HttpReceiver;
use weir_proxy::server_verifier;

/// Maximum length of a status line, in bytes.
const MAX_STATUS_LINE_BYTES: u64 = 1_024;

/// Sends POST requests to one receiver.
#[derive(Debug)]
pub struct PostClient {
    receiver: HttpReceiver,
    /// TLS configuration; built on first use.
    tls: Option<Arc<ClientConfig>>,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    /// The connection or the TLS handshake failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The TLS configuration cannot be built, for example because the file of CA certificates is invalid.
    #[error("{0}")]
    TlsConfig(String),
    /// The status is not 2xx, or the response is invalid.
    #[error("the server responded {line:?}")]
    Refused {
        /// The status code; 0 = the response is invalid.
        status: u16,
        /// The status line.
        line: String,
    },
}

impl PostError {
    /// Returns whether the same request can succeed later (OTLP/HTTP, "Retryable Response Codes").
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Io(_) => true,
            Self::TlsConfig(_) => false,
            Self::Refused { status, .. } => matches!(status, 429 | 502 | 503 | 504),
        }
    }
}

impl PostClient {
    /// Creates a client for one receiver. Does not connect.
    pub const fn new(receiver: HttpReceiver) -> Self {
        Self {
            receiver,
            tls: None,
        }
    }

    /// Sends a JSON body. Any 2xx status is a success. The caller enforces the deadline.
    ///
    /// # Errors
    /// Returns a [`PostError`] if the connection or the TLS configuration fails, or if the status is not 2xx.
    pub async fn post(&mut self, body: &str) -> Result<(), PostError> {
        let stream = TcpStream::connect(&self.receiver.authority).await?;
        if !self.receiver.is_secure {
            return send_request(stream, &self.receiver, body).await;
        }
        let name =
            ServerName::try_from(self.receiver.host().to_owned()).map_err(io::Error::other)?;
        let connector = TlsConnector::from(self.tls()?);
        send_request(connector.connect(name, stream).await?, &self.receiver, body).await
    }

    fn tls(&mut self) -> Result<Arc<ClientConfig>, PostError> {
        if let Some(tls) = &self.tls {
            return Ok(Arc::clone(tls));
        }
        let config_error = |error: &dyn std::fmt::Display| PostError::TlsConfig(error.to_string());
        let verifier =
            server_verifier(self.receiver.ca.as_deref()).map_err(|error| config_error(&error))?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| config_error(&error))?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        let config = Arc::new(config);
        self.tls = Some(Arc::clone(&config));
        Ok(config)
    }
}

/// Sends a request and checks the status of the response.
async fn send_request(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    receiver: &HttpReceiver,
    body: &str,
) -> Result<(), PostError> {
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: weir\r\nContent-Type: application/json\r\nContent-Length: \
         {}\r\nConnection: close\r\n\r\n",
        receiver.path,
        receiver.authority,
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.flush().await?;
    let mut line = String::new();
    BufReader::new(stream.take(MAX_STATUS_LINE_BYTES))
        .read_line(&mut line)
        .await?;
    let status = line.split(' ').nth(1).and_then(|it| it.parse().ok());
    let status: u16 = status.filter(|_| line.starts_with("HTTP/1.")).unwrap_or(0);
    if (200..300).contains(&status) {
        return Ok(());
    }
    let line = line.trim().to_owned();
    Err(PostError::Refused { status, line })
}
