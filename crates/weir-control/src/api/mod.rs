//! Implements the HTTP API of the daemon, on a Unix socket and over TCP.
//!
//! The paths are `/` (the dashboard), `/v1/caller`, `/v1/ipvsadm`, `/v1/status`, `/v1/history`, `/metrics`,
//! `/v1/reload`, `/v1/plan`, `/v1/explain`, `/v1/node`, `/v1/cluster`, `/v1/cluster/publish`, `/v1/log`,
//! `/v1/upgrade`, `/v1/tap/SERVICE` and `/v1/servers/POOL/ADDRESS`.
//!
//! Most requests are converted to [`Command`]s. Responses are JSON, except the dashboard, the metrics and taps. The
//! size of a body and the time to receive it are limited. On the Unix socket, the kernel identifies the caller; over
//! TCP, [`Policy`] checks `Host`, `Origin` and the token. Only owners may specify files and programs (see
//! [`Caller::is_owner`]).

mod body;
mod caller;
mod command;
mod command_line;
mod connection_limit;
mod failure;
mod host;
mod message;
mod policy;
mod rejection;
mod serve;
mod tap;
mod token;
mod write_timeout;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Extension, FromRef, Path, Query, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::dashboard::dashboard;
use crate::explain::Request;
use crate::log_filter::{self, Filter};
use crate::metrics::{self, Format, Process};
use body::collect;
use failure::{Failure, json};
use policy::Gate;
use weir_proxy::tap::{Tap, TapError};

pub use body::{MAX_BODY_BYTES, MAX_TEXT_BODY_BYTES};
pub use caller::{Caller, Role, UnknownRole};
pub use command::{Command, CommandSender, Reply, command_queue};
pub use message::{
    ApiError, ExplainRequest, FileRequest, NodeState, NodeUpdate, PublishRequest, PublishResponse,
    ReloadResponse, ServerStatus, UpgradeRequest, UpgradeResponse,
};
pub use policy::{Policy, SharedPolicy};
pub use rejection::RejectionCounters;
pub use serve::{Listener, serve};
pub use token::{NamedToken, Token, TokenFileError, Tokens, add_token, named_tokens};
pub use weir_state::{Override, ServerUpdate};

/// How access to a listener is restricted.
#[derive(Clone, Debug)]
pub enum Access {
    /// The mode of the Unix socket restricts access.
    Unix,
    /// The policy of the TCP listener restricts access.
    Tcp(SharedPolicy),
}

/// The state that the handlers share.
#[derive(Clone)]
struct Api {
    commands: CommandSender,
    rejections: Arc<RejectionCounters>,
}

impl FromRef<Api> for CommandSender {
    fn from_ref(api: &Api) -> Self {
        api.commands.clone()
    }
}

impl FromRef<Api> for Arc<RejectionCounters> {
    fn from_ref(api: &Api) -> Self {
        Arc::clone(&api.rejections)
    }
}

/// Returns the routes for a listener. All listeners share the counters in `rejections`.
pub fn router(
    commands: CommandSender,
    access: &Access,
    rejections: &Arc<RejectionCounters>,
) -> Router {
    let api = Api {
        commands,
        rejections: Arc::clone(rejections),
    };
    let router = Router::new()
        .route("/", get(page))
        .route("/v1/caller", get(caller))
        .route("/v1/status", get(status))
        .route("/v1/history", get(history))
        .route("/metrics", get(export))
        .route("/v1/log", get(log).post(set_log))
        .route("/v1/tap/{service}", get(tap))
        .route("/v1/explain", post(explain))
        .route("/v1/reload", post(reload))
        .route("/v1/plan", post(plan))
        .route("/v1/ipvsadm", post(ipvsadm))
        .route("/v1/node", post(node))
        .route("/v1/cluster", get(cluster))
        .route("/v1/cluster/publish", post(publish))
        .route(
            "/v1/servers/{pool}/{address}",
            get(server_status).post(server).put(add).delete(remove),
        )
        .route("/v1/upgrade", post(upgrade))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .with_state(api)
        .layer(from_fn(serve::receive_body));
    match access {
        // The gate is needed because a browser can reach the socket through a forwarded port, without a token.
        Access::Unix => router.layer(from_fn(policy::socket_gate)),
        // This layer is outermost, so the body of a rejected request is not read.
        Access::Tcp(policy) => {
            let gate = Gate {
                policy: policy.clone(),
                rejections: Arc::clone(rejections),
            };
            router.layer(from_fn_with_state(gate, policy::gate))
        }
    }
}

type HandlerResult = Result<Response, Failure>;

/// Returns the status. Callers with the read role do not see the changes and errors of reloads, which can contain
/// confidential values such as header values.
async fn status(
    State(commands): State<CommandSender>,
    Extension(caller): Extension<Caller>,
) -> HandlerResult {
    let mut report = commands.send(Command::Status).await?;
    if caller.role() < Role::Operate {
        for reload in &mut report.reloads {
            reload.changes.clear();
            reload.error = reload
                .error
                .take()
                .map(|_| "the details require a token".to_owned());
        }
    }
    Ok(json(&report))
}

/// The parameters of `/v1/history`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HistoryQuery {
    /// The name of a service; absent = all services together.
    service: Option<String>,
}

async fn history(
    State(commands): State<CommandSender>,
    query: Result<Query<HistoryQuery>, QueryRejection>,
) -> HandlerResult {
    let Query(query) = query?;
    let command = |reply| Command::History(query.service, reply);
    Ok(json(&commands.send(command).await?))
}

async fn export(
    State(commands): State<CommandSender>,
    State(rejections): State<Arc<RejectionCounters>>,
    headers: HeaderMap,
) -> HandlerResult {
    let report = commands.send(Command::Status).await?;
    let accept = headers.get(header::ACCEPT);
    let accept = accept.and_then(|value| value.to_str().ok());
    let format = Format::accepted(accept.unwrap_or_default());
    let process = Process::current();
    let text = metrics::render(&report, process, rejections.counts(), format);
    Ok(([(header::CONTENT_TYPE, format.content_type())], text).into_response())
}

async fn reload(
    State(commands): State<CommandSender>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> HandlerResult {
    let request = file_request(body, &caller).await?;
    let response = commands
        .send(|reply| Command::Reload(request, caller, reply))
        .await?;
    Ok(json(&response))
}

async fn upgrade(
    State(commands): State<CommandSender>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> HandlerResult {
    if !caller.is_owner() {
        return Err(owner_only("an upgrade may be requested"));
    }
    let request: UpgradeRequest = read(body).await?;
    let response = commands
        .send(|reply| Command::Upgrade(request, reply))
        .await?;
    Ok(json(&response))
}

async fn plan(
    State(commands): State<CommandSender>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> HandlerResult {
    let request = file_request(body, &caller).await?;
    let command = |reply| Command::Plan(request, caller, reply);
    Ok(json(&commands.send(command).await?))
}

async fn explain(
    State(commands): State<CommandSender>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> HandlerResult {
    let request: ExplainRequest = read(body).await?;
    let explanation = match (request.packet, request.request) {
        (Some(packet), None) => {
            let packet = packet.parse().map_err(ApiError::new)?;
            commands
                .send(|reply| Command::Explain(packet, reply))
                .await?
        }
        (None, Some(text)) => {
            let parsed = Request::parse(&text, &request.headers).map_err(ApiError::new)?;
            let parsed = parsed.from_client(request.client);
            let request = match caller.role() {
                Role::Read => parsed.for_reader(),
                Role::Operate | Role::Write => parsed,
            };
            commands
                .send(|reply| Command::ExplainRequest(request, reply))
                .await?
        }
        _ => return Err(ApiError::new("specify exactly one of packet and request").into()),
    };
    Ok(json(&explanation))
}

/// Pool and address in the path `/v1/servers/POOL/ADDRESS`.
type ServerPath = Result<Path<(String, String)>, PathRejection>;

async fn server(
    State(commands): State<CommandSender>,
    server: ServerPath,
    body: Body,
) -> HandlerResult {
    let Path((pool, address)) = server?;
    let request: ServerUpdate = read(body).await?;
    let command = |reply| Command::Server {
        pool,
        address,
        request,
        reply,
    };
    Ok(json(&commands.send(command).await?))
}

async fn server_status(State(commands): State<CommandSender>, server: ServerPath) -> HandlerResult {
    let Path((pool, address)) = server?;
    let command = |reply| Command::ServerStatus {
        pool,
        address,
        reply,
    };
    Ok(json(&commands.send(command).await?))
}

/// Adds or changes a server. The body contains the keys of a list entry; an empty body selects the defaults.
async fn add(
    State(commands): State<CommandSender>,
    server: ServerPath,
    body: Body,
) -> HandlerResult {
    let Path((pool, address)) = server?;
    let bytes = collect(body, MAX_BODY_BYTES).await?;
    let keys = if bytes.is_empty() {
        serde_json::Map::new()
    } else {
        parse(&bytes)?
    };
    member(&commands, pool, address, Some(keys)).await
}

async fn remove(State(commands): State<CommandSender>, server: ServerPath) -> HandlerResult {
    let Path((pool, address)) = server?;
    member(&commands, pool, address, None).await
}

async fn member(
    commands: &CommandSender,
    pool: String,
    address: String,
    keys: Option<serde_json::Map<String, serde_json::Value>>,
) -> HandlerResult {
    let command = |reply| Command::Member {
        pool,
        address,
        keys,
        reply,
    };
    commands.send(command).await?;
    Ok(json(&serde_json::json!({})))
}

async fn node(State(commands): State<CommandSender>, body: Body) -> HandlerResult {
    let request: NodeUpdate = read(body).await?;
    let command = |reply| Command::Node(request, reply);
    Ok(json(&commands.send(command).await?))
}

/// Returns only the group's status. Clients poll it during a rollout, and the full status takes much longer if there
/// are many services.
async fn cluster(State(commands): State<CommandSender>) -> HandlerResult {
    Ok(json(&commands.send(Command::Cluster).await?))
}

async fn publish(State(commands): State<CommandSender>, body: Body) -> HandlerResult {
    let request: PublishRequest = parse(&collect(body, MAX_TEXT_BODY_BYTES).await?)?;
    let command = |reply| Command::Publish(request, reply);
    Ok(json(&commands.send(command).await?))
}

async fn ipvsadm(State(commands): State<CommandSender>, body: Body) -> HandlerResult {
    let request: crate::ipvsadm_message::Request = read(body).await?;
    let command = |reply| Command::Ipvsadm(request, reply);
    Ok(json(&commands.send(command).await?))
}

async fn log() -> HandlerResult {
    let filter = log_filter::active().ok_or_else(|| ApiError::new("this process has no log"))?;
    Ok(json(&filter))
}

async fn set_log(body: Body) -> HandlerResult {
    let filter: Filter = read(body).await?;
    log_filter::change(&filter).map_err(ApiError::new)?;
    Ok(json(&filter))
}

/// Sends a tap's lines until the client disconnects.
async fn tap(
    service: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> HandlerResult {
    let Path(service) = service?;
    let (is_json, matches) =
        tap::parse(query.as_deref().unwrap_or_default()).map_err(ApiError::new)?;
    let tap = Tap::open(&service, is_json, matches).map_err(|error| {
        let status = match error {
            TapError::UnknownService { .. } => StatusCode::NOT_FOUND,
            TapError::TooMany => StatusCode::SERVICE_UNAVAILABLE,
        };
        Failure::new(status, format!("{service}: {error}"))
    })?;
    let kind = if is_json {
        "application/x-ndjson"
    } else {
        "text/plain; charset=utf-8"
    };
    Ok(([(header::CONTENT_TYPE, kind)], tap::body(tap)).into_response())
}

async fn page() -> Response {
    let dashboard = dashboard();
    let mut response = dashboard.page.as_str().into_response();
    for (name, value) in &dashboard.headers {
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// Returns the caller's role, for the dashboard.
async fn caller(Extension(caller): Extension<Caller>) -> Response {
    json(&serde_json::json!({ "role": caller.role().to_string() }))
}

async fn unknown() -> Failure {
    let error =
        "not found; the status is at /v1/status, the metrics at /metrics, the dashboard at /";
    Failure::new(StatusCode::NOT_FOUND, error)
}

async fn wrong_method() -> Failure {
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, "method not allowed")
}

/// Parses a [`FileRequest`]. An empty body selects the active file. Only owners may specify a path, because the daemon
/// reads the file with its own privileges.
async fn file_request(body: Body, caller: &Caller) -> Result<FileRequest, Failure> {
    let bytes = collect(body, MAX_TEXT_BODY_BYTES).await?;
    if bytes.is_empty() {
        return Ok(FileRequest::default());
    }
    let request: FileRequest = parse(&bytes)?;
    if request.path.is_some() && request.text.is_some() {
        return Err(Failure::new(
            StatusCode::BAD_REQUEST,
            "invalid body: `path` and `text` are mutually exclusive",
        ));
    }
    if request.path.is_some() && !caller.is_owner() {
        return Err(owner_only("a path may be specified"));
    }
    Ok(request)
}

fn owner_only(operation: &str) -> Failure {
    let condition = "only on the Unix socket, by root or the daemon's user";
    Failure::new(StatusCode::FORBIDDEN, format!("{operation} {condition}"))
}

async fn read<T: DeserializeOwned>(body: Body) -> Result<T, Failure> {
    parse(&collect(body, MAX_BODY_BYTES).await?)
}

/// Parses a JSON document. Rejects a list, because serde would use its items as the fields of a struct.
fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    if bytes.trim_ascii_start().starts_with(b"[") {
        let error = "invalid body: expected an object, found a list";
        return Err(Failure::new(StatusCode::BAD_REQUEST, error));
    }
    serde_json::from_slice(bytes)
        .map_err(|error| Failure::new(StatusCode::BAD_REQUEST, format!("invalid body: {error}")))
}
