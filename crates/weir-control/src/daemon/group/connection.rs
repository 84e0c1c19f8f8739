//! Converts `[cluster]` to settings for the etcd driver, and reads the files that the section references.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use weir_cluster::{GroupKey, SavedState, check_name};
use weir_etcd::{Client, Settings};
use weir_model::Cluster;
use weir_sys::privileged;

/// Limits for the request timeout, which is half the lease time.
const MIN_REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns a random number that is not 0, and below 2^53 so that it is exact in JSON.
pub(super) fn random_nonzero() -> Result<u64, String> {
    let mut bytes = [0; 8];
    ::aws_lc_rs::rand::fill(&mut bytes)
        .map_err(|_| "the system's random number generator failed".to_owned())?;
    Ok(u64::from_le_bytes(bytes) >> 11 | 1)
}

/// Returns the driver's settings, without this director's recorded state.
pub(super) fn settings(config: &Cluster, identity: u64) -> Result<Settings, String> {
    let member = match &config.member {
        Some(member) => member.clone(),
        None => rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned(),
    };
    check_name(&member).map_err(|error| format!("[cluster] `member` {member}: {error}"))?;
    let key = config.group_key.as_ref();
    let key = key.map(|key| GroupKey::new(key.expose())).transpose();
    let user = config.user.clone().zip(config.password.as_ref());
    let user = user.map(|(user, password)| {
        let password = String::from_utf8_lossy(password.expose()).into_owned();
        (user, password)
    });
    let tls = match config.etcd.iter().any(|endpoint| endpoint.tls) {
        true => Some(Arc::new(client_config(config)?)),
        false => None,
    };
    let limit = (config.lease / 2).clamp(MIN_REQUEST_TIMEOUT, MAX_REQUEST_TIMEOUT);
    Ok(Settings {
        machine: weir_cluster::Settings {
            group: config.name.clone(),
            member,
            identity,
            instance: random_nonzero()?,
            ttl: config.lease,
            key: key.map_err(|error| error.to_string())?,
            agreement: config.agreement,
        },
        saved: SavedState::default(),
        client: Client::new(config.etcd.clone(), tls, user, limit),
    })
}

fn client_config(config: &Cluster) -> Result<ClientConfig, String> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = weir_proxy::server_verifier(config.ca.as_deref());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(verifier.map_err(|error| error.to_string())?);
    let Some(certificate) = &config.certificate else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = read(certificate)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&chain).collect();
    let chain = chain.map_err(|error| format!("{certificate}: {error}"))?;
    let path = config.key.as_ref().unwrap_or(certificate);
    let key = PrivateKeyDer::from_pem_slice(&read(path)?);
    let key = key.map_err(|error| format!("{path}: {error}"))?;
    builder
        .with_client_auth_cert(chain, key)
        .map_err(|error| format!("{certificate}: {error}"))
}

fn read(path: &str) -> Result<Vec<u8>, String> {
    privileged::read(Path::new(path)).map_err(|error| format!("{path}: {error}"))
}
