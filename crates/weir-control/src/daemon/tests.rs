//! Tests the daemon over a real Unix socket, with a plane that only records the calls to it.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use weir_health::{SavedState, SuspendedServers};
use weir_model::Desired;
use weir_netlink::Event;

use super::*;
use crate::api::{ApiError, Override, ServerUpdate};
use crate::client::{self, Client};
use crate::explain::{ExplainResponse, Packet, ServerInService};
use crate::ipvsadm_message as ipvsadm;
use crate::plane::PlaneConfiguration;
use crate::snapshot::Snapshot;
use weir_discovery::Lists;
use weir_engine::ListenerConflict;

const FILE: &str = r#"
[pool.images]
servers = ["10.0.0.5", "[2001:db8::5]:80"]
"#;

/// Recorded calls to the plane, shared with the test.
#[derive(Debug, Default)]
struct Calls {
    applied: Vec<Desired>,
    servers: Vec<(String, String, ServerUpdate)>,
    reject: bool,
    added_vips: Vec<(String, IpAddr)>,
}

#[derive(Debug, Clone, Default)]
struct FakePlane(Rc<RefCell<Calls>>);

impl Plane for FakePlane {
    type Error = io::Error;

    async fn apply(
        &mut self,
        plane_configuration: PlaneConfiguration<'_>,
    ) -> Result<u64, io::Error> {
        // Yield as the real plane does. Requests must still be executed one at a time.
        tokio::task::yield_now().await;
        let mut calls = self.0.borrow_mut();
        if calls.reject {
            return Err(io::Error::other("rejected by the engine"));
        }
        calls.applied.push(plane_configuration.desired.clone());
        Ok(calls.applied.len() as u64)
    }

    async fn update_server(
        &mut self,
        pool: &str,
        address: &str,
        request: ServerUpdate,
    ) -> Result<(), io::Error> {
        let request = (pool.to_owned(), address.to_owned(), request);
        self.0.borrow_mut().servers.push(request);
        Ok(())
    }

    fn active_override(&self, pool: &str, address: &str) -> Option<Override> {
        let calls = self.0.borrow();
        let mut updates = calls.servers.iter().rev();
        let last =
            updates.find(|(updated_pool, server, _)| updated_pool == pool && server == address);
        last.and_then(|(_, _, update)| update.0)
    }

    fn apply_health(&mut self, _: Vec<weir_state::HealthEvent>) -> Result<(), io::Error> {
        Ok(())
    }

    fn saved_state(&self, _: &str, _: &str) -> Option<SavedState> {
        None
    }

    fn suspended(&self) -> SuspendedServers {
        SuspendedServers::default()
    }

    fn listener_conflict(&self, _: &Desired) -> Option<ListenerConflict> {
        None
    }

    async fn ipvsadm(&mut self, _: &ipvsadm::Request) -> Result<ipvsadm::Response, io::Error> {
        Err(io::Error::other("not supported by this plane"))
    }

    fn snapshot(&self) -> Result<Snapshot, io::Error> {
        Ok(Snapshot {
            revision: self.0.borrow().applied.len() as u64,
            ..Snapshot::default()
        })
    }

    fn services(&self) -> Result<Snapshot, io::Error> {
        self.snapshot()
    }

    fn added_vips(&self) -> Vec<(String, IpAddr)> {
        self.0.borrow().added_vips.clone()
    }

    fn live_flows(&self, _: &str, _: Option<&str>) -> u64 {
        0
    }

    fn explain(
        &self,
        packet: &Packet,
        _: &dyn Fn(&ServerInService<'_>) -> Option<String>,
    ) -> Result<ExplainResponse, io::Error> {
        Ok(ExplainResponse {
            packet: packet.to_string(),
            ..ExplainResponse::default()
        })
    }

    async fn network_event(&mut self, _: &Event) -> Result<(), io::Error> {
        Ok(())
    }

    async fn tick(&mut self) -> Result<(), io::Error> {
        Ok(())
    }
}

/// A daemon with its runtime directory. The daemon stops when the test's runtime stops.
struct TestDaemon {
    directory: PathBuf,
    client: Client,
    calls: FakePlane,
}

impl TestDaemon {
    /// Starts a daemon. Must be called inside a `LocalSet`.
    fn new(name: &str) -> Self {
        let process = std::process::id();
        let directory = std::env::temp_dir().join(format!("weir-daemon-{name}-{process}"));
        let runtime_dir = RuntimeDir::acquire(&directory).unwrap();
        let file = directory.join("weir.toml");
        fs::write(&file, FILE).unwrap();
        let loaded_configuration = configuration::load(&file, false).unwrap();
        let calls = FakePlane::default();
        let (commands, mut receiver) = api::command_queue();
        let rejections = Arc::new(RejectionCounters::default());
        let admin = Admin::new(
            commands.clone(),
            runtime_dir.token().unwrap(),
            Arc::clone(&rejections),
            &mut KeeperState::default(),
        );
        let listener = runtime_dir.listen().unwrap();
        runtime_dir.publish_socket().unwrap();
        let membership = (Membership::new(&directory), Lists::default());
        let mut director = Director::new(
            calls.clone(),
            loaded_configuration,
            file,
            admin,
            runtime_dir,
            membership,
        );
        let router = api::router(commands, &Access::Unix, &rejections);
        tokio::spawn(api::serve(Listener::Unix(listener), router));
        tokio::task::spawn_local(async move {
            while let Some(command) = receiver.recv().await {
                director.execute(command).await;
            }
        });
        Self {
            client: Client::new(&directory),
            directory,
            calls,
        }
    }

    fn write(&self, name: &str, text: &str) -> FileRequest {
        let path = self.directory.join(name);
        fs::write(&path, text).unwrap();
        FileRequest {
            guard_ms: None,
            group: None,
            path: Some(path),
            text: None,
            color: false,
        }
    }

    async fn send_raw(&self, request: &str) -> String {
        let mut stream = UnixStream::connect(self.directory.join(SOCKET))
            .await
            .unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }
}

impl Drop for TestDaemon {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

async fn with_daemon(name: &str, test: impl AsyncFnOnce(&TestDaemon)) {
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async {
            let daemon = TestDaemon::new(name);
            test(&daemon).await;
        })
        .await;
}

fn api_error(error: client::Error) -> ApiError {
    match error {
        client::Error::Refused(error) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn reloaded_file_is_applied_and_stays_active() {
    with_daemon("reload", async |daemon| {
        let request = daemon.write("other.toml", "[pool.images]\nservers = [\"10.0.0.5\"]\n");
        let reloaded = daemon.client.reload(&request).await.unwrap();
        assert_eq!(reloaded.revision, 1);
        assert_eq!(reloaded.changes, ["- server images/[2001:db8::5]:80"]);
        let second_response = daemon.client.reload(&FileRequest::default()).await.unwrap();
        assert_eq!(second_response.changes, [] as [String; 0]);
        assert_eq!(daemon.calls.0.borrow().applied.len(), 2);
        assert_eq!(daemon.client.status().await.unwrap().revision, 2);
        assert_eq!(last_configuration(&daemon.directory), request.path);
    })
    .await;
}

#[tokio::test]
async fn reload_reports_the_planned_changes() {
    with_daemon("planned", async |daemon| {
        let vip = "192.0.2.10".parse().unwrap();
        daemon.calls.0.borrow_mut().added_vips = vec![("lo".to_owned(), vip)];
        let text = format!("[node]\nvip_interface = \"lo\"\n{FILE}");
        let request = daemon.write("interface.toml", &text);
        daemon.client.reload(&request).await.unwrap();
        let request = daemon.write("other.toml", "[pool.images]\nservers = [\"10.0.0.5\"]\n");
        let planned = daemon.client.plan(&request).await.unwrap().changes;
        let planned: Vec<String> = planned.into_iter().map(|it| it.change).collect();
        assert_eq!(planned[2..], ["- address 192.0.2.10 on lo"]);
        assert_eq!(
            daemon.client.reload(&request).await.unwrap().changes,
            planned
        );
    })
    .await;
}

#[tokio::test]
async fn plan_and_reload_report_problems_of_this_machine() {
    with_daemon("machine", async |daemon| {
        let text = "[pool.images]\nservers = [\"10.0.0.5\", \"[2001:db8::5]:80\"]\n\
            [service.images]\nlisten = [\"192.0.2.10:8080\"]\nforward = \"proxy\"\nprotocol = \"http\"\n\
            pool = \"images\"\naccess_log = { path = \"/nonexistent/a.log\" }\n";
        let request = daemon.write("other.toml", text);
        let reloaded = daemon.client.reload(&request).await.unwrap();
        let planned = daemon.client.plan(&FileRequest::default()).await;
        let file = request.path.unwrap().display().to_string();
        let log = "service images: /nonexistent/a.log cannot be written";
        let vip = "no interface of this machine has 192.0.2.10 of service images";
        for message in [log, vip] {
            let expected = format!("warning: {message}\n --> {file}:3:10\n");
            assert!(reloaded.findings.contains(&expected), "{}", reloaded.findings);
        }
        let warnings = planned.unwrap().warnings;
        let expected = [
            format!("{vip}: connections cannot reach the service"),
            format!(
                "{log}: /nonexistent: No such file or directory (os error 2); lines would be dropped and counted"
            ),
        ];
        assert_eq!(warnings, expected);
    })
    .await;
}

/// Without `snat`, the servers' replies need a route through the director, which a reload cannot create.
#[tokio::test]
async fn plan_and_reload_warn_about_removed_snat() {
    with_daemon("return-path", async |daemon| {
        let text = "[pool.images]\nservers = [\"10.0.0.5\", \"10.0.0.6\"]\n\
            [service.images]\nlisten = [\"192.0.2.10:80\"]\nforward = \"nat\"\npool = \"images\"\n";
        let with_snat = daemon.write("snat.toml", &format!("{text}snat = true\n"));
        let message = "service images now uses `nat` without `snat`, and it is not known whether the replies of these \
                       servers return through this machine: 10.0.0.5, 10.0.0.6";
        let reloaded = daemon.client.reload(&with_snat).await.unwrap();
        assert!(!reloaded.findings.contains(message), "{}", reloaded.findings);
        let without = daemon.write("without.toml", text);
        let warnings = daemon.client.plan(&without).await.unwrap().warnings;
        assert!(warnings.iter().any(|it| it.starts_with(message)), "{warnings:?}");
        let reloaded = daemon.client.reload(&without).await.unwrap();
        assert!(reloaded.findings.contains(message), "{}", reloaded.findings);
        let second_response = daemon.client.reload(&without).await.unwrap();
        assert!(!second_response.findings.contains(message), "{}", second_response.findings);
    })
    .await;
}

#[tokio::test]
async fn reload_of_invalid_file_changes_nothing_and_returns_diagnostics() {
    with_daemon("bad", async |daemon| {
        let request = daemon.write("bad.toml", "[pool.images]\nserver = [\"10.0.0.5\"]\n");
        let error = api_error(daemon.client.reload(&request).await.unwrap_err());
        assert!(error.error.contains("bad.toml:2:1: "), "{error}");
        assert!(error.diagnostics.unwrap().contains("servers"));
        assert!(daemon.calls.0.borrow().applied.is_empty());
        // The first file must still be active.
        assert!(
            daemon
                .client
                .plan(&FileRequest::default())
                .await
                .unwrap()
                .changes
                .is_empty()
        );
    })
    .await;
}

#[tokio::test]
async fn configuration_rejected_by_engine_does_not_become_active() {
    with_daemon("refused", async |daemon| {
        let request = daemon.write("other.toml", "[pool.other]\nservers = [\"10.0.0.5\"]\n");
        daemon.calls.0.borrow_mut().reject = true;
        let error = api_error(daemon.client.reload(&request).await.unwrap_err());
        assert_eq!(error.error, "rejected by the engine");
        assert_eq!(daemon.client.plan(&request).await.unwrap().changes.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn reload_fails_without_changes_if_admin_address_is_in_use() {
    with_daemon("admin", async |daemon| {
        let occupied = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let text = format!("[node]\nadmin = \"{}\"\n", occupied.local_addr().unwrap());
        let error = api_error(
            daemon
                .client
                .reload(&daemon.write("a.toml", &text))
                .await
                .unwrap_err(),
        );
        assert!(
            error.error.starts_with("[node] admin 127.0.0.1:"),
            "{error}"
        );
        assert!(daemon.calls.0.borrow().applied.is_empty());
    })
    .await;
}

#[tokio::test]
async fn admin_changes_require_the_token() {
    with_daemon("tcp", async |daemon| {
        let free_listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free_listener.local_addr().unwrap();
        drop(free_listener);
        let text = format!("[node]\nadmin = \"{address}\"\n");
        daemon.client
            .reload(&daemon.write("a.toml", &text))
            .await
            .unwrap();
        let send = async |head: &str, token: &str| {
            let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
            let request = format!(
                "{head} HTTP/1.1\r\nHost: {address}\r\n{token}Content-Length: 0\r\nConnection: close\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut response = String::new();
            stream.read_to_string(&mut response).await.unwrap();
            response
        };
        assert!(send("GET /v1/status", "").await.starts_with("HTTP/1.1 200"));
        assert!(send("GET /metrics", "").await.contains("weir_revision 1"));
        let invalid_token = "Authorization: Bearer 0123456789abcdef\r\n";
        for path in ["reload", "plan", "ipvsadm", "servers/a/b"] {
            let head = format!("POST /v1/{path}");
            let without_token = send(&head, "").await;
            assert!(without_token.starts_with("HTTP/1.1 401"), "{without_token}");
            assert!(without_token.contains("www-authenticate: Bearer"), "{without_token}");
            let refused = send(&head, invalid_token).await;
            assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
            assert!(refused.contains("invalid_token"), "{refused}");
        }
        assert_eq!(daemon.calls.0.borrow().applied.len(), 1);

        let token_file = daemon.directory.join("token");
        assert_eq!(fs::metadata(&token_file).unwrap().mode() & 0o777, 0o600);
        let valid_token = format!(
            "Authorization: bearer {}\r\n",
            fs::read_to_string(&token_file).unwrap()
        );
        let response = send("POST /v1/reload", &valid_token).await;
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        assert_eq!(daemon.calls.0.borrow().applied.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn server_requests_with_unknown_names_or_excessive_weights_are_rejected() {
    with_daemon("server", async |daemon| {
        let drain = ServerUpdate(Some(Override::Drain));
        let ipv6_server = "[2001:db8::5]:80";
        daemon
            .client
            .server("images", ipv6_server, drain)
            .await
            .unwrap();
        let expected = ("images".to_owned(), ipv6_server.to_owned(), drain);
        assert_eq!(daemon.calls.0.borrow().servers, [expected]);
        for (pool, address, request) in [
            ("none", ipv6_server, drain),
            ("images", "10.0.0.9", drain),
            (
                "images",
                ipv6_server,
                ServerUpdate(Some(Override::Weight(65_536))),
            ),
        ] {
            let error = daemon
                .client
                .server(pool, address, request)
                .await
                .unwrap_err();
            api_error(error);
        }
        assert_eq!(daemon.calls.0.borrow().servers.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn concurrent_reloads_are_executed_one_at_a_time() {
    with_daemon("queue", async |daemon| {
        let request = FileRequest::default();
        let (a, b, c) = tokio::join!(
            daemon.client.reload(&request),
            daemon.client.reload(&request),
            daemon.client.reload(&request)
        );
        let mut revisions = [a, b, c].map(|reloaded| reloaded.unwrap().revision);
        revisions.sort_unstable();
        assert_eq!(revisions, [1, 2, 3]);
    })
    .await;
}

#[tokio::test]
async fn malformed_requests_are_rejected_and_later_ones_served() {
    with_daemon("bodies", async |daemon| {
        let post_to = |path: &str, length: usize, body: &str| {
            format!(
                "POST /v1/{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
            )
        };
        let post = |length, body: &str| post_to("reload", length, body);
        let large_body = " ".repeat(api::MAX_BODY_BYTES + 1);
        let response = daemon.send_raw(&post_to("explain", large_body.len(), &large_body)).await;
        assert!(response.starts_with("HTTP/1.1 413"), "{response}");
        let response = daemon.send_raw(&post(6, "[1, 2]")).await;
        assert!(response.starts_with("HTTP/1.1 400"), "{response}");
        let response = daemon.send_raw(&post(17, r#"{"path": "x.tom"}"#)).await;
        assert!(response.contains("the path must be absolute"), "{response}");
        let response = daemon.send_raw("NO HTTP\r\n\r\n").await;
        assert!(response.starts_with("HTTP/1.1 400"), "{response}");
        let response = daemon.send_raw("no command\r\n\r\n").await;
        assert!(response.starts_with("Unknown command: \"no command\""), "{response}");
        let response = daemon.send_raw("show info\nmore").await;
        assert!(response.starts_with("Name: Weir\n"), "{response}");
        let response = daemon.send_raw("GET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
        assert!(response.starts_with("HTTP/1.1 404"), "{response}");
        daemon.client.status().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn client_reports_a_missing_daemon() {
    let client = Client::new(Path::new("/nonexistent"));
    let error = client.status().await.unwrap_err();
    assert!(matches!(error, client::Error::NoDaemon { .. }), "{error}");
}
