//! The HTTP API: `/v1/ipvsadm`, `/v1/status`, `/metrics`, `/v1/reload`, `/v1/plan`, `/v1/explain`, `/v1/servers/POOL/ADDRESS`.
//!
//! Requests become [`Order`]s and answers become JSON; nothing is decided here. Bodies are bounded in size and time. What
//! changes anything, or reads a file, is answered on the unix socket, and over TCP to who shows the token (RFC 6750).

mod message;
mod order;
mod serve;
mod token;

use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::explain::Request;
use crate::metrics::{self, Memory};

pub use message::{
    ExplainRequest, FileRequest, OperatorState, Refusal, Reloaded, ServerRequest, UpgradeRequest,
    Upgraded,
};
pub use order::{Order, Orders, Reply, orders};
pub use serve::{Listener, serve};
pub use token::Token;

/// Largest body of a request, bytes.
pub const MAX_BODY_BYTES: usize = 64 * 1024;

/// How long a client may take to send a body.
const BODY_DEADLINE: Duration = Duration::from_secs(10);

/// What the other end may do.
#[derive(Clone, Debug)]
pub enum Access {
    /// The unix socket, whose mode says who may connect.
    Full,
    /// TCP: whoever comes may read; to change something takes the token.
    Token(Token),
}

/// The routes for one kind of listener.
pub fn router(orders: Orders, access: &Access) -> Router {
    let writing = Router::new()
        .route("/v1/reload", post(reload))
        .route("/v1/plan", post(plan))
        .route("/v1/ipvsadm", post(ipvsadm))
        .route(
            "/v1/servers/{pool}/{address}",
            post(server).put(add).delete(take_out),
        );
    let writing = match access {
        // What runs as this user is started by this user alone.
        Access::Full => writing.route("/v1/upgrade", post(upgrade)),
        Access::Token(token) => {
            writing.route_layer(from_fn_with_state(token.clone(), token::required))
        }
    };
    Router::new()
        .route("/", get(dashboard))
        .route("/v1/status", get(status))
        .route("/metrics", get(export))
        .route("/v1/explain", post(explain))
        .merge(writing)
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .with_state(orders)
}

type Answered = Result<Response, Failure>;

/// A refusal with its status.
struct Failure(StatusCode, Refusal);

impl Failure {
    fn new(status: StatusCode, error: impl ToString) -> Self {
        Self(status, Refusal::new(error))
    }
}

/// What the daemon refuses is the fault of what was asked: a file, a name, a packet.
impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let status = if refusal.leaving {
            StatusCode::SERVICE_UNAVAILABLE
        } else {
            StatusCode::UNPROCESSABLE_ENTITY
        };
        Self(status, refusal)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, json(&self.1)).into_response()
    }
}

/// JSON with a line break at its end, kind to a terminal.
fn json(value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text + "\n").into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn status(State(orders): State<Orders>) -> Answered {
    Ok(json(&orders.ask(Order::Status).await?))
}

async fn export(State(orders): State<Orders>) -> Answered {
    let report = orders.ask(Order::Status).await?;
    let text = metrics::render(&report, Memory::of_this_process());
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

async fn reload(State(orders): State<Orders>, body: Body) -> Answered {
    let request = file_request(body).await?;
    let reloaded = orders.ask(|reply| Order::Reload(request, reply)).await?;
    Ok(json(&reloaded))
}

async fn upgrade(State(orders): State<Orders>, body: Body) -> Answered {
    let request: UpgradeRequest = read(body).await?;
    let upgraded = orders.ask(|reply| Order::Upgrade(request, reply)).await?;
    Ok(json(&upgraded))
}

async fn plan(State(orders): State<Orders>, body: Body) -> Answered {
    let request = file_request(body).await?;
    Ok(json(
        &orders.ask(|reply| Order::Plan(request, reply)).await?,
    ))
}

async fn explain(State(orders): State<Orders>, body: Body) -> Answered {
    let request: ExplainRequest = read(body).await?;
    let answer = match (request.packet, request.request) {
        (Some(packet), None) => {
            let packet = packet.parse().map_err(Refusal::new)?;
            orders.ask(|reply| Order::Explain(packet, reply)).await?
        }
        (None, Some(text)) => {
            let request = Request::parse(&text, &request.headers).map_err(Refusal::new)?;
            orders
                .ask(|reply| Order::ExplainRequest(request, reply))
                .await?
        }
        _ => return Err(Refusal::new("a packet or a request, one of them").into()),
    };
    Ok(json(&answer))
}

async fn server(
    State(orders): State<Orders>,
    Path((pool, address)): Path<(String, String)>,
    body: Body,
) -> Answered {
    let request: ServerRequest = read(body).await?;
    let order = |reply| Order::Server {
        pool,
        address,
        request,
        reply,
    };
    orders.ask(order).await?;
    Ok(json(&serde_json::json!({})))
}

/// `PUT`: the body is what a table in `servers` may hold; an empty one is a server with the defaults.
async fn add(
    State(orders): State<Orders>,
    Path((pool, address)): Path<(String, String)>,
    body: Body,
) -> Answered {
    let bytes = collect(body).await?;
    let keys = if bytes.is_empty() {
        serde_json::Map::new()
    } else {
        parse(&bytes)?
    };
    member(&orders, pool, address, Some(keys)).await
}

async fn take_out(
    State(orders): State<Orders>,
    Path((pool, address)): Path<(String, String)>,
) -> Answered {
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
    orders.ask(order).await?;
    Ok(json(&serde_json::json!({})))
}

async fn ipvsadm(State(orders): State<Orders>, body: Body) -> Answered {
    let request: crate::ipvsadm::Request = read(body).await?;
    let order = |reply| Order::Ipvsadm(request, reply);
    Ok(json(&orders.ask(order).await?))
}

async fn dashboard() -> Failure {
    Failure::new(
        StatusCode::NOT_IMPLEMENTED,
        "the dashboard is not built yet; /v1/status and /metrics are",
    )
}

async fn unknown() -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "no such thing")
}

async fn wrong_method() -> Failure {
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, "not by this method")
}

/// An empty body asks for the file in force.
async fn file_request(body: Body) -> Result<FileRequest, Failure> {
    let bytes = collect(body).await?;
    if bytes.is_empty() {
        return Ok(FileRequest::default());
    }
    parse(&bytes)
}

async fn read<T: DeserializeOwned>(body: Body) -> Result<T, Failure> {
    parse(&collect(body).await?)
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(bytes)
        .map_err(|error| Failure::new(StatusCode::BAD_REQUEST, format!("the body: {error}")))
}

async fn collect(body: Body) -> Result<axum::body::Bytes, Failure> {
    match tokio::time::timeout(BODY_DEADLINE, to_bytes(body, MAX_BODY_BYTES)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        // A client that left does not read this answer, so that size remains.
        Ok(Err(_)) => Err(Failure::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("a body has at most {MAX_BODY_BYTES} bytes"),
        )),
        Err(_) => Err(Failure::new(
            StatusCode::REQUEST_TIMEOUT,
            "the body did not come in time",
        )),
    }
}
