//! Sends client requests: downloads, uploads and datagrams.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use super::{Family, World};

impl World {
    /// Sends a GET request with curl. Returns the body, or curl's error.
    pub fn get(&self, url: &str) -> Result<Vec<u8>, String> {
        self.get_within(20, url)
    }

    /// Sends six requests to the VIP. Returns the sorted names of the servers that responded.
    pub fn responding_servers(&self) -> Vec<String> {
        let url = format!("http://{}/name", Family::V4.vip());
        let name = |_| {
            let body = self.get(&url).expect("get a response");
            String::from_utf8_lossy(&body).trim().to_owned()
        };
        let names: BTreeSet<String> = (0..6).map(name).collect();
        names.into_iter().collect()
    }

    /// Like [`World::get`], with a different time limit.
    pub fn get_within(&self, seconds: u32, url: &str) -> Result<Vec<u8>, String> {
        let output = self.output("client", &format!("curl -sS -g --max-time {seconds} {url}"));
        if output.status.success() {
            Ok(output.stdout)
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// Sends a datagram from a new port, up to three times, until a reply arrives. Returns the reply.
    pub fn udp_exchange(&self, to: SocketAddr, payload: Vec<u8>) -> Option<Vec<u8>> {
        self.spawn_on("client", move || {
            let any: IpAddr = if to.is_ipv4() {
                Ipv4Addr::UNSPECIFIED.into()
            } else {
                Ipv6Addr::UNSPECIFIED.into()
            };
            let socket = UdpSocket::bind((any, 0)).ok()?;
            socket.connect(to).ok()?;
            socket.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
            let mut buffer = vec![0; 65536];
            for _ in 0..3 {
                socket.send(&payload).ok()?;
                if let Ok(length) = socket.recv(&mut buffer) {
                    buffer.truncate(length);
                    return Some(buffer);
                }
            }
            None
        })
        .join()
        .expect("client thread panicked")
    }

    /// Opens `count` connections one after another and closes all of them at the end. Returns the number that
    /// succeeded.
    pub fn open_connections(&self, to: SocketAddr, count: usize) -> usize {
        self.spawn_on("client", move || {
            let mut streams = Vec::new();
            for _ in 0..count {
                streams.extend(TcpStream::connect_timeout(&to, Duration::from_millis(700)).ok());
            }
            streams.len()
        })
        .join()
        .expect("client thread panicked")
    }

    /// Sends `bytes` bytes to a sink. Returns the sink's byte count and hash.
    pub fn upload(&self, to: SocketAddr, bytes: usize) -> std::io::Result<(u64, u64)> {
        self.spawn_on("client", move || -> std::io::Result<(u64, u64)> {
            let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(5))?;
            stream.set_write_timeout(Some(Duration::from_secs(20)))?;
            stream.set_read_timeout(Some(Duration::from_secs(20)))?;
            let data: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
            stream.write_all(&data)?;
            stream.shutdown(std::net::Shutdown::Write)?;
            let mut reply = [0; 16];
            stream.read_exact(&mut reply)?;
            let number = |offset: usize| {
                u64::from_be_bytes(
                    reply[offset..offset + 8]
                        .try_into()
                        .expect("slice has eight bytes"),
                )
            };
            Ok((number(0), number(8)))
        })
        .join()
        .expect("client thread panicked")
    }
}

/// Returns the expected result of [`World::upload`] for `bytes` bytes.
pub fn upload_digest(bytes: usize) -> (u64, u64) {
    let sum = (0..bytes).fold(0_u64, |sum, i| {
        sum.wrapping_mul(31).wrapping_add((i % 251) as u64)
    });
    (bytes as u64, sum)
}
