//! Requests to etcd.
//!
//! Requests of leases and all other requests have a connection each, with one request at a time; a listing and a watch
//! open one of their own. A large configuration that is being written or read therefore never delays the renewal of
//! the lease. The time limit of a request grows with its size and with the size of its answer.

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
const ANSWER_MAX: usize = 128 << 20;
/// The slowest transfer that is not a failure, bytes per second.
const RATE_MIN: usize = 128 << 10;

/// The time that this number of bytes may take.
fn transfer(bytes: usize) -> Duration {
    Duration::from_secs(bytes as u64) / u32::try_from(RATE_MIN).unwrap_or(u32::MAX)
}

/// A watch has nothing to send for a long time: the kernel finds out whether the host of etcd is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_COUNT: u32 = 3;
/// The metadata `hasleader` of gRPC: etcd ends the watch when its member has no leader for some time (etcd's
/// `rpctypes.MetadataRequireLeaderKey`). Without it, the watch of a member that is cut off stays and reports nothing.
const REQUIRE_LEADER: &str = "grpc-metadata-hasleader";

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection.
    #[error("{endpoint}: {source}")]
    Connect {
        /// The member of etcd.
        endpoint: String,
        /// The error.
        source: io::Error,
    },
    /// No answer in time.
    #[error("{endpoint}: no answer within {} ms", limit.as_millis())]
    Timeout {
        /// The member of etcd.
        endpoint: String,
        /// The limit.
        limit: Duration,
    },
    /// etcd rejects the request.
    #[error("{endpoint}: {message}")]
    Refused {
        /// The member of etcd.
        endpoint: String,
        /// Its message.
        message: String,
        /// The status of gRPC; 16 = the token is invalid.
        code: i64,
    },
    /// The answer is invalid.
    #[error("{endpoint}: {reason}")]
    Protocol {
        /// The member of etcd.
        endpoint: String,
        /// What is wrong.
        reason: String,
    },
}

/// gRPC's UNAUTHENTICATED.
const UNAUTHENTICATED: i64 = 16;

pub(crate) type Sender = SendRequest<Full<Bytes>>;

/// A connection with the index of its endpoint.
type Connection = Option<(usize, Sender)>;

/// What a kept connection is for.
#[derive(Clone, Copy, Debug)]
enum Use {
    /// Reads and writes of keys.
    Keys,
    /// Leases: never behind a large write.
    Leases,
}

/// A client of one etcd cluster.
pub struct Client {
    endpoints: Vec<Endpoint>,
    tls: Option<Arc<ClientConfig>>,
    /// User and password.
    user: Option<(String, String)>,
    limit: Duration,
    /// Index of the endpoint in use; grows with each failure.
    active: AtomicUsize,
    /// By [`Use`].
    connections: [Mutex<Connection>; 2],
    token: Mutex<Option<String>>,
}

/// Never shows the password.
impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("endpoints", &self.endpoints)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// `endpoints` are not empty; `limit` is for each request, in addition to the time that its bytes may take.
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

    /// The endpoint in use.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoints[self.active.load(Ordering::Relaxed) % self.endpoints.len()]
    }

    /// Uses the next endpoint from now on.
    pub fn rotate(&self) {
        self.active.fetch_add(1, Ordering::Relaxed);
    }

    /// All keys of a range, with the store's revision.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn range(&self, key: &str, end: &str) -> Result<(i64, Vec<Entry>), Error> {
        let request = message::range(key, end);
        let answer = self.call(None, "/v3/kv/range", &request).await?;
        Ok((message::revision(&answer), message::entries(&answer)))
    }

    /// Executes a transaction.
    ///
    /// # Errors
    /// See [`Error`]; it may have been executed.
    pub async fn txn(&self, txn: &Txn, lease: Option<i64>) -> Result<TxnResult, Error> {
        let answer = self
            .call(Some(Use::Keys), "/v3/kv/txn", &message::txn(txn, lease))
            .await?;
        let revision = message::revision(&answer);
        if answer["succeeded"] == true {
            return Ok(TxnResult::Done { revision });
        }
        let responses = answer["responses"].as_array();
        let found = responses.into_iter().flatten();
        Ok(TxnResult::Conflict {
            found: found
                .flat_map(|it| message::entries(&it["response_range"]))
                .collect(),
            revision,
        })
    }

    /// Grants a lease. Returns its number and time to live.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn grant(&self, ttl: Duration) -> Result<(i64, Duration), Error> {
        let request = json!({ "TTL": ttl.as_secs().to_string(), "ID": "0" });
        let answer = self
            .call(Some(Use::Leases), "/v3/lease/grant", &request)
            .await?;
        let ttl = u64::try_from(message::integer(&answer["TTL"])).unwrap_or_default();
        Ok((message::integer(&answer["ID"]), Duration::from_secs(ttl)))
    }

    /// Renews a lease. Returns whether it still exists.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn renew(&self, lease: i64) -> Result<bool, Error> {
        let request = json!({ "ID": lease.to_string() });
        let answer = self
            .call(Some(Use::Leases), "/v3/lease/keepalive", &request)
            .await?;
        Ok(message::integer(&answer["result"]["TTL"]) > 0)
    }

    /// Ends a lease, and removes its keys.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn revoke(&self, lease: i64) -> Result<(), Error> {
        let request = json!({ "ID": lease.to_string() });
        self.call(Some(Use::Leases), "/v3/lease/revoke", &request)
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
        from: i64,
    ) -> Result<Response<Incoming>, Error> {
        let open = async {
            let mut sender = self.connect().await?;
            let token = self.token().await?;
            let body = Bytes::from(message::watch(key, end, from).to_string());
            let mut request = self.request("/v3/watch", body, token)?;
            let value = header::HeaderValue::from_static("true");
            request.headers_mut().insert(REQUIRE_LEADER, value);
            self.send(&mut sender, request).await
        };
        self.within(self.limit, open).await
    }

    pub(crate) fn protocol(&self, reason: impl ToString) -> Error {
        Error::Protocol {
            endpoint: self.endpoint().to_string(),
            reason: reason.to_string(),
        }
    }

    async fn within<T>(
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

    /// Sends a request on a kept connection; `None` = on a separate one.
    async fn call(&self, used: Option<Use>, path: &str, body: &Value) -> Result<Value, Error> {
        let body = Bytes::from(body.to_string());
        let token = self.token().await?;
        let answer = self.once(used, path, body.clone(), token).await;
        if let Err(Error::Refused { code, .. }) = &answer
            && *code == UNAUTHENTICATED
            && self.user.is_some()
        {
            // Tokens expire.
            *self.token.lock().await = None;
            let token = self.token().await?;
            return self.once(used, path, body, token).await;
        }
        answer
    }

    async fn token(&self) -> Result<Option<String>, Error> {
        let Some((name, password)) = &self.user else {
            return Ok(None);
        };
        let mut token = self.token.lock().await;
        if token.is_none() {
            let request = json!({ "name": name, "password": password });
            let request = Bytes::from(request.to_string());
            let answer = self
                .once(None, "/v3/auth/authenticate", request, None)
                .await?;
            let new = answer["token"].as_str().unwrap_or_default();
            *token = Some(new.to_owned());
        }
        Ok(token.clone())
    }

    async fn once(
        &self,
        used: Option<Use>,
        path: &str,
        body: Bytes,
        token: Option<String>,
    ) -> Result<Value, Error> {
        let Some(used) = used else {
            let sender = self.within(self.limit, self.connect()).await?;
            return Ok(self.exchange(sender, path, body, token).await?.0);
        };
        // Each request that is ahead has its own time limit. A cancelled call leaves no connection behind whose
        // answer belongs to another request.
        let mut held = self.connections[used as usize].lock().await;
        let active = self.active.load(Ordering::Relaxed) % self.endpoints.len();
        let kept = held.take().filter(|(index, _)| *index == active);
        let sender = match kept {
            Some((_, sender)) if !sender.is_closed() => sender,
            _ => self.within(self.limit, self.connect()).await?,
        };
        let (answer, sender) = self.exchange(sender, path, body, token).await?;
        *held = Some((active, sender));
        Ok(answer)
    }

    /// Sends a request and reads its answer. Returns the connection as well.
    async fn exchange(
        &self,
        mut sender: Sender,
        path: &str,
        body: Bytes,
        token: Option<String>,
    ) -> Result<(Value, Sender), Error> {
        let limit = self.limit + transfer(body.len());
        let begin = Instant::now();
        let request = self.request(path, body, token)?;
        let sent = self.send(&mut sender, request);
        let response = self.within(limit, sent).await?;
        let status = response.status();
        let bytes = self.read(response.into_body(), begin + limit).await?;
        let answer = serde_json::from_slice::<Value>(&bytes);
        let answer = answer.map_err(|_| {
            let text = String::from_utf8_lossy(&bytes);
            self.protocol(format!("{status}: {:.200}", text.trim()))
        })?;
        let error = match answer.get("error") {
            // In a stream.
            Some(Value::Object(error)) => Some(Value::Object(error.clone())),
            Some(_) => Some(answer.clone()),
            None => None,
        };
        match error {
            None if status == StatusCode::OK => Ok((answer, sender)),
            None => Err(self.protocol(status)),
            Some(error) => Err(Error::Refused {
                endpoint: self.endpoint().to_string(),
                message: error["message"].as_str().unwrap_or("an error").to_owned(),
                code: message::integer(&error["code"]).max(message::integer(&error["grpc_code"])),
            }),
        }
    }

    /// Reads an answer. The deadline moves with each byte.
    async fn read(&self, mut body: Incoming, mut deadline: Instant) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        loop {
            let Ok(frame) = timeout_at(deadline, body.frame()).await else {
                return Err(Error::Timeout {
                    endpoint: self.endpoint().to_string(),
                    limit: self.limit + transfer(bytes.len()),
                });
            };
            let Some(frame) = frame else {
                return Ok(bytes);
            };
            let frame = frame.map_err(|error| self.protocol(error))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if bytes.len() + data.len() > ANSWER_MAX {
                return Err(self.protocol("the answer is too large"));
            }
            deadline += transfer(data.len());
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
        request.map_err(|error| self.protocol(error))
    }

    async fn send(
        &self,
        sender: &mut Sender,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Error> {
        sender.ready().await.map_err(|error| self.protocol(error))?;
        let sent = sender.send_request(request).await;
        sent.map_err(|error| self.protocol(error))
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
        keep_alive(&stream).map_err(|error| failed(error.into()))?;
        if !endpoint.tls {
            return self.handshake(stream).await;
        }
        let Some(tls) = &self.tls else {
            return Err(self.protocol("TLS is not configured"));
        };
        let name = ServerName::try_from(endpoint.host.clone());
        let name = name.map_err(|error| self.protocol(error))?;
        let connector = TlsConnector::from(Arc::clone(tls));
        let stream = connector.connect(name, stream).await.map_err(failed)?;
        self.handshake(stream).await
    }

    async fn handshake<S>(&self, stream: S) -> Result<Sender, Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connected = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = connected.map_err(|error| self.protocol(error))?;
        // The request reports errors as well.
        tokio::spawn(connection);
        Ok(sender)
    }
}

fn keep_alive(stream: &TcpStream) -> rustix::io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_COUNT)
}
