//! The HTTP API: `/` (the dashboard), `/v1/caller`, `/v1/ipvsadm`, `/v1/status`, `/v1/history`, `/metrics`,
//! `/v1/reload`, `/v1/plan`, `/v1/explain`, `/v1/node`, `/v1/cluster`, `/v1/cluster/publish`, `/v1/log`,
//! `/v1/tap/SERVICE`, `/v1/servers/POOL/ADDRESS`.
//!
//! Requests become [`Order`]s and responses are JSON. Bodies are limited in size and time. On the unix socket the
//! kernel identifies the caller; over TCP [`Policy`] checks `Host` and token. Only the owner of the daemon may name
//! files and programs, see [`Caller::is_owner`].

mod body;
mod caller;
mod command_line;
mod connection_limit;
mod failure;
mod host;
mod live;
mod message;
mod order;

mod policy;
mod refusal;
mod serve;
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
pub use message::{
    ExplainRequest, FileRequest, NodeOrder, NodeState, PublishRequest, Published, Refusal,
    Reloaded, ServerNow, UpgradeRequest, Upgraded,
};
pub use order::{Order, Orders, Reply, orders};
pub use policy::{Policy, SharedPolicy};
pub use refusal::Refused;
pub use serve::{Listener, serve};
pub use token::{NamedToken, Token, TokenFileError, Tokens, add_token, named_tokens};
pub use weir_state::{Override, ServerOrder};

/// Access rights of a listener's clients.
#[derive(Clone, Debug)]
pub enum Access {
    /// The unix socket: its mode decides who may connect.
    Unix,
    /// TCP: the policy decides.
    Tcp(SharedPolicy),
}

/// The shared state of the handlers.
#[derive(Clone)]
struct Api {
    orders: Orders,
    refused: Arc<Refused>,
}

impl FromRef<Api> for Orders {
    fn from_ref(api: &Api) -> Self {
        api.orders.clone()
    }
}

impl FromRef<Api> for Arc<Refused> {
    fn from_ref(api: &Api) -> Self {
        Arc::clone(&api.refused)
    }
}

/// The routes for one kind of listener; `refused` counts for all of them.
pub fn router(orders: Orders, access: &Access, refused: &Arc<Refused>) -> Router {
    let api = Api {
        orders,
        refused: Arc::clone(refused),
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
            get(server_now).post(server).put(add).delete(remove),
        )
        .route("/v1/upgrade", post(upgrade))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .with_state(api)
        .layer(from_fn(serve::take_in));
    match access {
        // A browser reaches the socket through a forwarded port; there is no token then.
        Access::Unix => router.layer(from_fn(policy::socket_gate)),
        // Outermost layer: the body of a rejected request is not read.
        Access::Tcp(policy) => {
            let gate = Gate {
                policy: policy.clone(),
                refused: Arc::clone(refused),
            };
            router.layer(from_fn_with_state(gate, policy::gate))
        }
    }
}

type Answered = Result<Response, Failure>;

/// Changes of the configuration may contain what only operators should see, such as header values.
async fn status(State(orders): State<Orders>, Extension(caller): Extension<Caller>) -> Answered {
    let mut report = orders.send(Order::Status).await?;
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

/// Selects the history to return.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HistoryQuery {
    /// A service; without it all services together.
    service: Option<String>,
}

async fn history(
    State(orders): State<Orders>,
    query: Result<Query<HistoryQuery>, QueryRejection>,
) -> Answered {
    let Query(query) = query?;
    let order = |reply| Order::History(query.service, reply);
    Ok(json(&orders.send(order).await?))
}

async fn export(
    State(orders): State<Orders>,
    State(refused): State<Arc<Refused>>,
    headers: HeaderMap,
) -> Answered {
    let report = orders.send(Order::Status).await?;
    let accept = headers.get(header::ACCEPT);
    let accept = accept.and_then(|value| value.to_str().ok());
    let format = Format::accepted(accept.unwrap_or_default());
    let process = Process::of_this_process();
    let text = metrics::render(&report, process, refused.counts(), format);
    Ok(([(header::CONTENT_TYPE, format.content_type())], text).into_response())
}

async fn reload(
    State(orders): State<Orders>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Answered {
    let request = file_request(body, &caller).await?;
    let reloaded = orders
        .send(|reply| Order::Reload(request, caller, reply))
        .await?;
    Ok(json(&reloaded))
}

async fn upgrade(
    State(orders): State<Orders>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Answered {
    if !caller.is_owner() {
        return Err(owner_only("a program that takes over may be named"));
    }
    let request: UpgradeRequest = read(body).await?;
    let upgraded = orders.send(|reply| Order::Upgrade(request, reply)).await?;
    Ok(json(&upgraded))
}

async fn plan(
    State(orders): State<Orders>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Answered {
    let request = file_request(body, &caller).await?;
    let order = |reply| Order::Plan(request, caller, reply);
    Ok(json(&orders.send(order).await?))
}

async fn explain(
    State(orders): State<Orders>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Answered {
    let request: ExplainRequest = read(body).await?;
    let answer = match (request.packet, request.request) {
        (Some(packet), None) => {
            let packet = packet.parse().map_err(Refusal::new)?;
            orders.send(|reply| Order::Explain(packet, reply)).await?
        }
        (None, Some(text)) => {
            let parsed = Request::parse(&text, &request.headers).map_err(Refusal::new)?;
            let request = match caller.role() {
                Role::Read => parsed.for_reader(),
                Role::Operate | Role::Write => parsed,
            };
            orders
                .send(|reply| Order::ExplainRequest(request, reply))
                .await?
        }
        _ => return Err(Refusal::new("specify exactly one of packet and request").into()),
    };
    Ok(json(&answer))
}

/// `/v1/servers/POOL/ADDRESS`.
type ServerPath = Result<Path<(String, String)>, PathRejection>;

async fn server(State(orders): State<Orders>, server: ServerPath, body: Body) -> Answered {
    let Path((pool, address)) = server?;
    let request: ServerOrder = read(body).await?;
    let order = |reply| Order::Server {
        pool,
        address,
        request,
        reply,
    };
    Ok(json(&orders.send(order).await?))
}

async fn server_now(State(orders): State<Orders>, server: ServerPath) -> Answered {
    let Path((pool, address)) = server?;
    let order = |reply| Order::ServerNow {
        pool,
        address,
        reply,
    };
    Ok(json(&orders.send(order).await?))
}

/// `PUT`: the body contains the keys of a list entry; an empty one adds a server with default values.
async fn add(State(orders): State<Orders>, server: ServerPath, body: Body) -> Answered {
    let Path((pool, address)) = server?;
    let bytes = collect(body, MAX_BODY_BYTES).await?;
    let keys = if bytes.is_empty() {
        serde_json::Map::new()
    } else {
        parse(&bytes)?
    };
    member(&orders, pool, address, Some(keys)).await
}

async fn remove(State(orders): State<Orders>, server: ServerPath) -> Answered {
    let Path((pool, address)) = server?;
    member(&orders, pool, address, None).await
}

async fn member(
    orders: &Orders,
    pool: String,
    address: String,
    keys: Option<serde_json::Map<String, serde_json::Value>>,
) -> Answered {
    let order = |reply| Order::Member {
        pool,
        address,
        keys,
        reply,
    };
    orders.send(order).await?;
    Ok(json(&serde_json::json!({})))
}

async fn node(State(orders): State<Orders>, body: Body) -> Answered {
    let request: NodeOrder = read(body).await?;
    let order = |reply| Order::Node(request, reply);
    Ok(json(&orders.send(order).await?))
}

/// The group alone: the status of many services costs much more, and a rollout is watched by asking repeatedly.
async fn cluster(State(orders): State<Orders>) -> Answered {
    Ok(json(&orders.send(Order::Cluster).await?))
}

async fn publish(State(orders): State<Orders>, body: Body) -> Answered {
    let request: PublishRequest = parse(&collect(body, MAX_TEXT_BODY_BYTES).await?)?;
    let order = |reply| Order::Publish(request, reply);
    Ok(json(&orders.send(order).await?))
}

async fn ipvsadm(State(orders): State<Orders>, body: Body) -> Answered {
    let request: crate::ipvsadm_message::Request = read(body).await?;
    let order = |reply| Order::Ipvsadm(request, reply);
    Ok(json(&orders.send(order).await?))
}

async fn log() -> Answered {
    let filter = log_filter::active().ok_or_else(|| Refusal::new("this process has no log"))?;
    Ok(json(&filter))
}

async fn set_log(body: Body) -> Answered {
    let filter: Filter = read(body).await?;
    log_filter::change(&filter).map_err(Refusal::new)?;
    Ok(json(&filter))
}

/// Lines until the client disconnects.
async fn tap(service: Result<Path<String>, PathRejection>, RawQuery(query): RawQuery) -> Answered {
    let Path(service) = service?;
    let (is_json, matches) =
        live::parse(query.as_deref().unwrap_or_default()).map_err(Refusal::new)?;
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
    Ok(([(header::CONTENT_TYPE, kind)], live::body(tap)).into_response())
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

/// What the caller may do, for the dashboard.
async fn caller(Extension(caller): Extension<Caller>) -> Response {
    json(&serde_json::json!({ "role": caller.role().to_string() }))
}

async fn unknown() -> Failure {
    let error =
        "not found; the API begins with /v1/status, metrics are at /metrics, the dashboard is at /";
    Failure::new(StatusCode::NOT_FOUND, error)
}

async fn wrong_method() -> Failure {
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, "method not allowed")
}

/// An empty body selects the active file. The daemon reads it with its own privileges, which the caller may not have.
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
        return Err(owner_only(
            "a configuration may be named by its path (without one it is the active file)",
        ));
    }
    Ok(request)
}

fn owner_only(what: &str) -> Failure {
    let by = "only on the unix socket, by root or the user that the daemon runs as";
    Failure::new(StatusCode::FORBIDDEN, format!("{what} {by}"))
}

async fn read<T: DeserializeOwned>(body: Body) -> Result<T, Failure> {
    parse(&collect(body, MAX_BODY_BYTES).await?)
}

/// A list is no request: serde would take its items for the fields of one.
fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    if bytes.trim_ascii_start().starts_with(b"[") {
        let error = "the body: expected an object, found a list";
        return Err(Failure::new(StatusCode::BAD_REQUEST, error));
    }
    serde_json::from_slice(bytes)
        .map_err(|error| Failure::new(StatusCode::BAD_REQUEST, format!("the body: {error}")))
}
