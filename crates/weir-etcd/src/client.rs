//! Sends requests to etcd.
//!
//! Transactions and lease requests each use a persistent connection, for one request at a time; every other request
//! opens its own connection. Writing or reading a large configuration therefore never delays the renewal of the lease.
//! The time limit of a request grows with its size and with the size of its response.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use weir_cluster::{Entry, Txn, TxnResult};

use crate::message;
use weir_model::EtcdEndpoint as Endpoint;

/// Maximum size of a response, in bytes.
const MAX_RESPONSE_BYTES: usize = 128 << 20;
/// The slowest transfer rate that is not a failure.
const MIN_BYTES_PER_SECOND: usize = 128 << 10;

/// Returns the maximum transfer time for this number of bytes.
fn transfer_time(bytes: usize) -> Duration {
    Duration::from_secs(bytes as u64) / u32::try_from(MIN_BYTES_PER_SECOND).unwrap_or(u32::MAX)
}

/// TCP keepalive: a watch can be silent for a long time, so the kernel checks whether etcd's host is still reachable.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_COUNT: u32 = 3;
/// gRPC metadata `hasleader` (etcd's `rpctypes.MetadataRequireLeaderKey`): a member without a leader ends the watch.
/// Without this metadata, a watch on a member that is cut off from the cluster would stay open and report nothing.
const REQUIRE_LEADER: &str = "grpc-metadata-hasleader";

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection failed.
    #[error("{endpoint}: {source}")]
    Connect {
        /// The etcd member.
        endpoint: String,
        /// The error.
        source: io::Error,
    },
    /// The response did not arrive within the time limit.
    #[error("{endpoint}: no response within {} ms", limit.as_millis())]
    Timeout {
        /// The etcd member.
        endpoint: String,
        /// The time limit.
        limit: Duration,
    },
    /// etcd rejected the request.
    #[error("{endpoint}: {message}")]
    Refused {
        /// The etcd member.
        endpoint: String,
        /// etcd's error message.
        message: String,
        /// The gRPC status; 16 = the token is invalid.
        code: i64,
    },
    /// The response is invalid, or the connection broke.
    #[error("{endpoint}: {reason}")]
    Protocol {
        /// The etcd member.
        endpoint: String,
        /// A description of the error.
        reason: String,
    },
}

/// The gRPC status UNAUTHENTICATED.
const UNAUTHENTICATED: i64 = 16;
/// etcd's error message for a JSON web token that it issued before a user or role was changed (`ErrGRPCAuthOldRevision`
/// in etcd's rpctypes, with the gRPC status INVALID_ARGUMENT).
const OLD_REVISION: &str = "revision of auth store is old";

/// Returns whether an error means that another token must be requested, as etcd's own client does.
fn is_invalid_token(code: i64, message: &str) -> bool {
    code == UNAUTHENTICATED || message.contains(OLD_REVISION)
}

pub(crate) type Sender = SendRequest<Full<Bytes>>;

/// A persistent connection and the index of its endpoint; `None` = not connected.
type Connection = Option<(usize, Sender)>;

/// The purpose of a persistent connection.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    /// Transactions.
    Keys,
    /// Lease requests, which must not wait for a large write.
    Leases,
}

/// A client of one etcd cluster.
pub struct Client {
    endpoints: Vec<Endpoint>,
    tls: Option<Arc<ClientConfig>>,
    /// User name and password.
    user: Option<(String, String)>,
    limit: Duration,
    /// Number of failures; modulo the number of endpoints, the index of the endpoint in use.
    active: AtomicUsize,
    /// Persistent connections, by [`Purpose`].
    connections: [Mutex<Connection>; 2],
    /// Authentication token; `None` = a token must be requested.
    token: Mutex<Option<String>>,
}

/// Prints only the endpoints, because the other fields contain the password and the token.
impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("endpoints", &self.endpoints)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Creates a client. `endpoints` must not be empty. `limit` is the time limit of each request, in addition to the
    /// transfer time of its bytes.
    pub fn new(
        endpoints: Vec<Endpoint>,
        tls: Option<Arc<ClientConfig>>,
        user: Option<(String, String)>,
        limit: Duration,
    ) -> Self {
        Self {
            endpoints,
            tls,
            user,
            limit,
            active: AtomicUsize::new(0),
            connections: [Mutex::new(None), Mutex::new(None)],
            token: Mutex::new(None),
        }
    }

    /// Returns the endpoint in use.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoints[self.active.load(Ordering::Relaxed) % self.endpoints.len()]
    }

    /// Selects the next endpoint for further requests.
    pub fn rotate(&self) {
        self.active.fetch_add(1, Ordering::Relaxed);
    }

    /// Reads all keys of a range. Returns the store's revision and the entries.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn range(&self, key: &str, end: &str) -> Result<(i64, Vec<Entry>), Error> {
        let request = message::range_request(key, end);
        let response = self.call(None, "/v3/kv/range", &request).await?;
        Ok((
            message::parse_revision(&response),
            message::parse_entries(&response),
        ))
    }

    /// Executes a transaction.
    ///
    /// # Errors
    /// See [`Error`]. etcd may have executed the transaction despite the error.
    pub async fn txn(&self, txn: &Txn, lease: Option<i64>) -> Result<TxnResult, Error> {
        let response = self
            .call(
                Some(Purpose::Keys),
                "/v3/kv/txn",
                &message::txn_request(txn, lease),
            )
            .await?;
        let revision = message::parse_revision(&response);
        if response["succeeded"] == true {
            return Ok(TxnResult::Done { revision });
        }
        let responses = response["responses"].as_array();
        let ranges = responses.into_iter().flatten();
        Ok(TxnResult::Conflict {
            found: ranges
                .flat_map(|it| message::parse_entries(&it["response_range"]))
                .collect(),
            revision,
        })
    }

    /// Requests a lease. Returns its number and time to live.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn grant(&self, ttl: Duration) -> Result<(i64, Duration), Error> {
        let request = json!({ "TTL": ttl.as_secs().to_string(), "ID": "0" });
        let response = self
            .call(Some(Purpose::Leases), "/v3/lease/grant", &request)
            .await?;
        let ttl = u64::try_from(message::parse_integer(&response["TTL"])).unwrap_or_default();
        Ok((
            message::parse_integer(&response["ID"]),
            Duration::from_secs(ttl),
        ))
    }

    /// Renews a lease. Returns whether it still exists.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn renew(&self, lease: i64) -> Result<bool, Error> {
        let request = json!({ "ID": lease.to_string() });
        let response = self
            .call(Some(Purpose::Leases), "/v3/lease/keepalive", &request)
            .await?;
        Ok(message::parse_integer(&response["result"]["TTL"]) > 0)
    }

    /// Revokes a lease, which deletes its keys.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn revoke(&self, lease: i64) -> Result<(), Error> {
        let request = json!({ "ID": lease.to_string() });
        self.call(Some(Purpose::Leases), "/v3/lease/revoke", &request)
            .await
            .map(drop)
    }

    /// Opens a watch on a separate connection. Returns the streamed response.
    ///
    /// # Errors
    /// See [`Error`].
    pub(crate) async fn watch(
        &self,
        key: &str,
        end: &str,
        start_revision: i64,
    ) -> Result<Response<Incoming>, Error> {
        let open = async {
            let mut sender = self.connect().await?;
            let token = self.token().await?;
            let body = Bytes::from(message::watch_request(key, end, start_revision).to_string());
            let mut request = self.request("/v3/watch", body, token)?;
            let value = header::HeaderValue::from_static("true");
            request.headers_mut().insert(REQUIRE_LEADER, value);
            self.send(&mut sender, request).await
        };
        self.with_limit(self.limit, open).await
    }

    pub(crate) fn protocol_error(&self, reason: impl ToString) -> Error {
        Error::Protocol {
            endpoint: self.endpoint().to_string(),
            reason: reason.to_string(),
        }
    }

    /// Runs a future with a time limit.
    async fn with_limit<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        timeout(limit, work).await.unwrap_or_else(|_| {
            Err(Error::Timeout {
                endpoint: self.endpoint().to_string(),
                limit,
            })
        })
    }

    /// Sends a request on the persistent connection for `purpose`, or on a separate connection if it is `None`. If the
    /// token has become invalid, requests another token and repeats the request.
    async fn call(
        &self,
        purpose: Option<Purpose>,
        path: &str,
        body: &Value,
    ) -> Result<Value, Error> {
        let body = Bytes::from(body.to_string());
        let token = self.token().await?;
        let result = self.call_once(purpose, path, body.clone(), token).await;
        if let Err(Error::Refused { code, message, .. }) = &result
            && is_invalid_token(*code, message)
            && self.user.is_some()
        {
            *self.token.lock().await = None;
            let token = self.token().await?;
            return self.call_once(purpose, path, body, token).await;
        }
        result
    }

    /// Returns the token, and requests it first if necessary; `None` = no user is configured.
    async fn token(&self) -> Result<Option<String>, Error> {
        let Some((name, password)) = &self.user else {
            return Ok(None);
        };
        let mut token = self.token.lock().await;
        if token.is_none() {
            let request = json!({ "name": name, "password": password });
            let request = Bytes::from(request.to_string());
            let response = self
                .call_once(None, "/v3/auth/authenticate", request, None)
                .await?;
            let value = response["token"].as_str().unwrap_or_default();
            *token = Some(value.to_owned());
        }
        Ok(token.clone())
    }

    /// Sends a request once, on the connection for its purpose.
    async fn call_once(
        &self,
        purpose: Option<Purpose>,
        path: &str,
        body: Bytes,
        token: Option<String>,
    ) -> Result<Value, Error> {
        let Some(purpose) = purpose else {
            let sender = self.with_limit(self.limit, self.connect()).await?;
            return Ok(self.exchange(sender, path, body, token).await?.0);
        };
        // Waiting for the connection needs no time limit, because the request that uses it has one. The connection is
        // taken out, so a canceled call does not leave a connection behind that would deliver its response to another
        // request.
        let mut guard = self.connections[purpose as usize].lock().await;
        let active = self.active.load(Ordering::Relaxed) % self.endpoints.len();
        let existing = guard.take().filter(|(index, _)| *index == active);
        let sender = match existing {
            Some((_, sender)) if !sender.is_closed() => sender,
            _ => self.with_limit(self.limit, self.connect()).await?,
        };
        let (response, sender) = self.exchange(sender, path, body, token).await?;
        *guard = Some((active, sender));
        Ok(response)
    }

    /// Sends a request and reads its response. Returns the connection as well.
    async fn exchange(
        &self,
        mut sender: Sender,
        path: &str,
        body: Bytes,
        token: Option<String>,
    ) -> Result<(Value, Sender), Error> {
        let limit = self.limit + transfer_time(body.len());
        let start = Instant::now();
        let request = self.request(path, body, token)?;
        let sent = self.send(&mut sender, request);
        let head = self.with_limit(limit, sent).await?;
        let status = head.status();
        let bytes = self.read(head.into_body(), start + limit).await?;
        let response = serde_json::from_slice::<Value>(&bytes);
        let response = response.map_err(|_| {
            let text = String::from_utf8_lossy(&bytes);
            self.protocol_error(format!("{status}: {:.200}", text.trim()))
        })?;
        match message::error_of(&response) {
            None if status == StatusCode::OK => Ok((response, sender)),
            None => Err(self.protocol_error(status)),
            Some(error) => Err(Error::Refused {
                endpoint: self.endpoint().to_string(),
                message: error["message"]
                    .as_str()
                    .unwrap_or("etcd returned an error without a message")
                    .to_owned(),
                code: message::parse_integer(&error["code"])
                    .max(message::parse_integer(&error["grpc_code"])),
            }),
        }
    }

    /// Reads a response body. Each byte extends the deadline.
    async fn read(&self, mut body: Incoming, mut deadline: Instant) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        loop {
            let Ok(frame) = timeout_at(deadline, body.frame()).await else {
                return Err(Error::Timeout {
                    endpoint: self.endpoint().to_string(),
                    limit: self.limit + transfer_time(bytes.len()),
                });
            };
            let Some(frame) = frame else {
                return Ok(bytes);
            };
            let frame = frame.map_err(|error| self.protocol_error(error))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if bytes.len() + data.len() > MAX_RESPONSE_BYTES {
                return Err(self.protocol_error("the response is too large"));
            }
            deadline += transfer_time(data.len());
            bytes.extend_from_slice(&data);
        }
    }

    fn request(
        &self,
        path: &str,
        body: Bytes,
        token: Option<String>,
    ) -> Result<Request<Full<Bytes>>, Error> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(header::HOST, self.endpoint().host.as_str())
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request = request.body(Full::new(body));
        request.map_err(|error| self.protocol_error(error))
    }

    async fn send(
        &self,
        sender: &mut Sender,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Error> {
        sender
            .ready()
            .await
            .map_err(|error| self.protocol_error(error))?;
        let sent = sender.send_request(request).await;
        sent.map_err(|error| self.protocol_error(error))
    }

    async fn connect(&self) -> Result<Sender, Error> {
        let endpoint = self.endpoint();
        let failed = |source| Error::Connect {
            endpoint: endpoint.to_string(),
            source,
        };
        let address = (endpoint.host.as_str(), endpoint.port);
        let stream = TcpStream::connect(address).await.map_err(failed)?;
        let _ = stream.set_nodelay(true);
        enable_keepalive(&stream).map_err(|error| failed(error.into()))?;
        if !endpoint.tls {
            return self.handshake(stream).await;
        }
        let Some(tls) = &self.tls else {
            return Err(self.protocol_error("TLS is not configured"));
        };
        let name = ServerName::try_from(endpoint.host.clone());
        let name = name.map_err(|error| self.protocol_error(error))?;
        let connector = TlsConnector::from(Arc::clone(tls));
        let stream = connector.connect(name, stream).await.map_err(failed)?;
        self.handshake(stream).await
    }

    async fn handshake<S>(&self, stream: S) -> Result<Sender, Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connected = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = connected.map_err(|error| self.protocol_error(error))?;
        // The requests on the connection report its errors, too.
        tokio::spawn(connection);
        Ok(sender)
    }
}

/// Enables TCP keepalive.
fn enable_keepalive(stream: &TcpStream) -> rustix::io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_COUNT)
}
