//! Opens the connections of probes.
//!
//! A connection has the check's source address and interface, and a PROXY header if configured.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use socket2::{SockRef, Socket};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, UnixStream};
use weir_health::{Outcome, Target};
use weir_model::{Protocol, ProxyHeader};
use weir_proxy::{ErrorOrigin, describe_io_error};

use crate::context::Context;
use crate::path::PathProbe;
use crate::path_table::UnavailableError;
use crate::source::source;
use crate::stream::Stream;

/// A PROXY protocol version 2 header with the command LOCAL.
const PROXY_LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

/// An I/O error on a probe's connection.
#[derive(Debug)]
pub(crate) struct ConnectError(io::Error);

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> Self {
        Self(error)
    }
}

impl ConnectError {
    /// Returns the probe's outcome: unknown if the director itself lacks a resource or a permission, otherwise failed.
    pub(crate) fn outcome(&self) -> Outcome {
        const LOCAL_ERRORS: [Errno; 7] = [
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOBUFS,
            Errno::NOMEM,
            Errno::ADDRNOTAVAIL,
            Errno::NODEV,
            Errno::PERM,
        ];
        let errno = Errno::from_io_error(&self.0);
        let text = self.describe(errno);
        let is_unavailable = self
            .0
            .get_ref()
            .is_some_and(|error| error.is::<UnavailableError>());
        if is_unavailable || errno.is_some_and(|errno| LOCAL_ERRORS.contains(&errno)) {
            Outcome::unknown(format!("the director cannot probe: {text}"))
        } else {
            Outcome::failed(text)
        }
    }

    fn describe(&self, errno: Option<Errno>) -> String {
        match errno {
            Some(Errno::CONNREFUSED) => "connection refused".to_owned(),
            Some(Errno::CONNRESET) => "connection reset".to_owned(),
            Some(Errno::HOSTUNREACH) => "no route to host".to_owned(),
            Some(Errno::NETUNREACH) => "network unreachable".to_owned(),
            Some(Errno::TIMEDOUT) => "connection timed out".to_owned(),
            _ => describe_io_error(&self.0, ErrorOrigin::Server)
                .unwrap_or_else(|| self.0.to_string()),
        }
    }
}

/// Connects to a target, through `path` if it is set, and sends its PROXY header. The caller enforces the deadline.
pub(crate) async fn connect(
    context: &Context,
    target: &Target,
    path: Option<&PathProbe>,
) -> Result<Stream, ConnectError> {
    if let Some(path) = &target.unix {
        return connect_unix(path, target.proxy_protocol).await;
    }
    let destination = SocketAddr::new(target.address, target.port.unwrap_or(0));
    let socket = if destination.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    if let Some(interface) = &target.interface {
        SockRef::from(&socket).bind_device(Some(interface.as_bytes()))?;
    }
    match path {
        Some(path) => {
            let packets = path.bind(&SockRef::from(&socket), target, Protocol::Tcp)?;
            path.register(packets).await?;
        }
        None => bind(context, &SockRef::from(&socket), target)?,
    }
    let mut stream = socket.connect(destination).await?;
    stream.set_nodelay(true)?;
    if let Some(version) = target.proxy_protocol {
        let header = proxy_header(version, stream.local_addr()?, stream.peer_addr()?);
        stream.write_all(&header).await?;
    }
    Ok(Stream::Tcp(stream))
}

/// Connects to a server's Unix socket, and sends the PROXY header if one is configured.
async fn connect_unix(path: &str, header: Option<ProxyHeader>) -> Result<Stream, ConnectError> {
    let mut stream = match UnixStream::connect(path).await {
        Ok(stream) => stream,
        Err(error) => {
            let text = match Errno::from_io_error(&error) {
                Some(Errno::ACCESS) => {
                    let user = rustix::process::geteuid().as_raw();
                    format!("permission denied: user {user} needs write permission for the socket")
                }
                Some(Errno::NOENT) => "the socket does not exist".to_owned(),
                Some(Errno::AGAIN) => "the socket's accept queue is full".to_owned(),
                _ => return Err(error.into()),
            };
            return Err(io::Error::other(text).into());
        }
    };
    match header {
        None => {}
        Some(ProxyHeader::V1) => stream.write_all(b"PROXY UNKNOWN\r\n").await?,
        Some(ProxyHeader::V2) => stream.write_all(PROXY_LOCAL).await?,
    }
    Ok(Stream::Unix(stream))
}

/// Binds a socket to the check's source address. With `nat` without source translation, the source is the VIP, so the
/// server replies as it would to a client. If the director does not have the VIP, the kernel selects the source.
pub(crate) fn bind(context: &Context, socket: &Socket, target: &Target) -> io::Result<()> {
    let (source, is_optional) = local_address(context, target);
    let Some(source) = source else { return Ok(()) };
    match socket.bind(&SocketAddr::new(source, 0).into()) {
        Err(error) if is_optional && error.kind() == io::ErrorKind::AddrNotAvailable => Ok(()),
        bound => bound,
    }
}

/// Returns the source address for [`bind`], and whether the director may lack this address; `None` = the kernel selects
/// one.
pub(crate) fn local_address(context: &Context, target: &Target) -> (Option<IpAddr>, bool) {
    match (target.source, target.path) {
        (Some(address), _) => (Some(address), false),
        (None, Some(path)) if path.source_is_vip => (Some(path.vip), true),
        // If there is no address to bind to, the kernel selects one.
        (None, _) if target.address.is_ipv6() => (source(target, &context.vips()).ok(), false),
        (None, _) => (None, false),
    }
}

/// Builds a PROXY protocol header (HAProxy's proxy-protocol.txt). Version 1 contains the addresses; version 2 uses the
/// command LOCAL, for connections of the proxy itself.
fn proxy_header(
    version: ProxyHeader,
    source_address: SocketAddr,
    destination_address: SocketAddr,
) -> Vec<u8> {
    match version {
        ProxyHeader::V1 => {
            let family = if matches!(destination_address.ip(), IpAddr::V4(_)) {
                "TCP4"
            } else {
                "TCP6"
            };
            let (source, destination) = (source_address.ip(), destination_address.ip());
            format!(
                "PROXY {family} {source} {destination} {} {}\r\n",
                source_address.port(),
                destination_address.port()
            )
            .into_bytes()
        }
        ProxyHeader::V2 => PROXY_LOCAL.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_headers_match_specification() {
        let (source, destination) = (
            "10.0.0.1:4000".parse().unwrap(),
            "10.0.0.5:80".parse().unwrap(),
        );
        assert_eq!(
            proxy_header(ProxyHeader::V1, source, destination),
            b"PROXY TCP4 10.0.0.1 10.0.0.5 4000 80\r\n"
        );
        assert_eq!(
            proxy_header(ProxyHeader::V2, source, destination),
            [
                0x0d, 0x0a, 0x0d, 0x0a, 0, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a, 0x20, 0, 0, 0
            ]
        );
    }

    #[test]
    fn verdict_is_unknown_after_local_resource_error() {
        let verdict = |errno: Errno| ConnectError(errno.into()).outcome().verdict;
        assert_eq!(verdict(Errno::MFILE), weir_health::Verdict::Unknown);
        assert_eq!(verdict(Errno::CONNREFUSED), weir_health::Verdict::Failed);
    }
}
