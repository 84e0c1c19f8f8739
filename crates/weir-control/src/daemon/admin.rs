//! Runs the TCP listener of the API (`[node] admin`).
//!
//! A reload can change its address, accepted names, certificates and tokens.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use weir_model as model;

use super::Error;
use crate::api::{
    self, Access, CommandSender, Listener, Policy, RejectionCounters, SharedPolicy, Token, Tokens,
    named_tokens,
};
use crate::keeper::{KeeperState, Link};
use crate::status::Certificate;

/// The kind under which the keeper stores these sockets.
const SOCKETS: &str = "admin";

/// Length of the accept queue; tokio's default.
const BACKLOG: i32 = 1024;

/// ALPN protocols.
const PROTOCOLS: &[&[u8]] = &[b"http/1.1"];

/// Listens on the address. If this process lacks the permission to bind the socket, the privileged helper binds it.
async fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            let socket = weir_sys::privileged::bind_stream(address)?;
            rustix::net::listen(&socket, BACKLOG)?;
            TcpListener::from_std(socket.into())
        }
        bound => bound,
    }
}

/// The admin listener with its active settings.
#[derive(Debug)]
pub struct Admin {
    commands: CommandSender,
    /// The token in the runtime directory.
    token: Token,
    rejections: Arc<RejectionCounters>,
    policy: SharedPolicy,
    listening: Option<(SocketAddr, JoinHandle<()>)>,
    keeper: Link,
    /// Listening sockets from the previous daemon.
    inherited: Vec<(SocketAddr, OwnedFd)>,
}

/// Settings that are ready to commit. Committing them cannot fail.
#[derive(Debug)]
pub struct PreparedAdmin {
    /// The new policy; `None` = no admin listener is configured.
    policy: Option<Policy>,
    change: ListenerChange,
}

#[derive(Debug)]
enum ListenerChange {
    /// The address is unchanged, or there is still no listener.
    Keep,
    /// The listener moves to a different address, or is closed.
    Replace(Option<(SocketAddr, TcpListener)>),
}

impl Admin {
    /// Creates the state without a listener.
    pub fn new(
        commands: CommandSender,
        token: Token,
        rejections: Arc<RejectionCounters>,
        keeper_state: &mut KeeperState,
    ) -> Self {
        let closed_policy = Policy {
            tokens: Tokens::default(),
            read_requires_token: true,
            hosts: Vec::new(),
            tls: None,
            certificates: Vec::new(),
        };
        Self {
            commands,
            token,
            rejections,
            policy: SharedPolicy::new(Arc::new(closed_policy)),
            listening: None,
            keeper: keeper_state.link.clone(),
            inherited: keeper_state.take_sockets(SOCKETS),
        }
    }

    /// Reads certificates and tokens, and binds the new address. Must be called before any other part of a
    /// configuration is applied, because it can fail.
    ///
    /// # Errors
    /// [`Error::Admin`] if the address cannot be bound, [`Error::AdminTls`] if a certificate file cannot be used,
    /// [`Error::AdminTokens`] if the token file cannot be used.
    pub async fn prepare(&mut self, admin: Option<&model::Admin>) -> Result<PreparedAdmin, Error> {
        let Some(admin) = admin else {
            let change = match self.listening {
                Some(_) => ListenerChange::Replace(None),
                None => ListenerChange::Keep,
            };
            return Ok(PreparedAdmin {
                policy: None,
                change,
            });
        };
        let policy = Some(self.policy(admin)?);
        let address = admin.listen;
        if self.listening.as_ref().map(|(address, _)| *address) == Some(address) {
            let change = ListenerChange::Keep;
            return Ok(PreparedAdmin { policy, change });
        }
        let failed = |source| Error::Admin { address, source };
        let inherited_index = self
            .inherited
            .iter()
            .position(|(other, _)| *other == address);
        let listener = match inherited_index.map(|index| self.inherited.swap_remove(index)) {
            Some((_, socket)) => {
                let socket = std::net::TcpListener::from(socket);
                socket.set_nonblocking(true).map_err(failed)?;
                TcpListener::from_std(socket).map_err(failed)?
            }
            None => bind(address).await.map_err(failed)?,
        };
        let change = ListenerChange::Replace(Some((address, listener)));
        Ok(PreparedAdmin { policy, change })
    }

    fn policy(&self, admin: &model::Admin) -> Result<Policy, Error> {
        let tls = admin.tls.as_ref();
        let tls = tls.map(|tls| weir_proxy::listener_tls(tls, PROTOCOLS));
        let tls = tls
            .transpose()
            .map_err(|source| Error::AdminTls { source })?;
        let (tls, certificates) = tls.unzip();
        let token_file = admin.tokens.as_ref();
        let named = token_file.map(|path| named_tokens(Path::new(path)));
        Ok(Policy {
            tokens: Tokens {
                runtime_dir_token: Some(self.token.clone()),
                named: named
                    .transpose()
                    .map_err(|source| Error::AdminTokens { source })?
                    .unwrap_or_default(),
            },
            read_requires_token: admin.read_requires_token,
            hosts: admin.hosts.clone(),
            tls,
            certificates: certificates.unwrap_or_default(),
        })
    }

    /// Returns the listener's certificates, in order of expiry.
    pub fn certificates(&self, now: SystemTime) -> Vec<Certificate> {
        let policy = self.policy.get();
        let certificates = policy.certificates.iter();
        certificates
            .map(|certificate| Certificate::new(certificate, now))
            .collect()
    }

    /// Stops accepting connections. The socket itself stays open in the keeper.
    pub fn stop(self) {
        if let Some((_, task)) = self.listening {
            task.abort();
        }
    }

    /// Commits prepared settings. Closes sockets of the previous daemon that are not used.
    pub fn commit(&mut self, prepared: PreparedAdmin) {
        for (address, _) in std::mem::take(&mut self.inherited) {
            self.keeper.remove_socket(SOCKETS, address, 0);
        }
        if let Some(policy) = prepared.policy {
            self.policy.set(Arc::new(policy));
        }
        let ListenerChange::Replace(new) = prepared.change else {
            return;
        };
        if let Some((address, task)) = self.listening.take() {
            task.abort();
            self.keeper.remove_socket(SOCKETS, address, 0);
        }
        self.listening = new.map(|(address, listener)| {
            let access = Access::Tcp(self.policy.clone());
            let router = api::router(self.commands.clone(), &access, &self.rejections);
            let encrypted = self.policy.get().tls.is_some();
            tracing::info!(%address, encrypted, "listening on the admin address");
            self.keeper
                .store_socket(SOCKETS, address, 0, listener.as_fd());
            let listener = Listener::Tcp {
                listener,
                policy: self.policy.clone(),
                rejections: Arc::clone(&self.rejections),
            };
            (address, tokio::spawn(api::serve(listener, router)))
        });
    }
}
