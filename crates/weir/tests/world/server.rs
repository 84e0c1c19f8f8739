//! Starts programs on the servers: nginx, a UDP echo server and a TCP sink.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{Family, World, sh, wait_for};

impl World {
    /// Starts nginx on port 80 of every server: `/name` returns the server's name, `/big` returns `big_bytes` bytes.
    pub fn start_nginx(&mut self, big_bytes: usize) {
        // Fill eight bytes at a time, because tests are compiled without optimization and some files are large.
        let mut big = Vec::with_capacity(big_bytes + 8);
        while big.len() < big_bytes {
            let word = (big.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            big.extend_from_slice(&word.to_be_bytes());
        }
        big.truncate(big_bytes);
        fs::write(self.path("big"), &big).expect("write the file");
        for n in 0..self.servers {
            self.start_nginx_on(&format!("server{n}"), n, "");
            let url = format!("http://{}/name", Family::V4.server(n));
            wait_for("nginx", Duration::from_secs(10), || {
                self.output("client", &format!("curl -s -m 2 {url}"))
                    .status
                    .success()
            });
        }
    }

    /// Makes each server process all packets of a flow on one CPU, as the queues of a network card do. Without this,
    /// two CPUs may process two consecutive packets from a veth, and the server resets the connection if it looks up
    /// the socket for the request while the last packet of the handshake is replacing the request socket with the
    /// connection (`inet_ehash_insert`). On Linux 6.18 without Weir, with a plain router between client and server on a
    /// busy machine, 5 of 620,000 connections were reset, each when the request arrived 4 µs after the handshake; with
    /// this setting, none of 760,000.
    pub(super) fn pin_server_flows_to_one_cpu(&self) {
        for n in 0..self.servers {
            // `ip netns exec` mounts the namespace's own /sys.
            sh(&format!(
                "ip netns exec {} sh -c 'echo 1 > /sys/class/net/eth0/queues/rx-0/rps_cpus'",
                self.namespace(&format!("server{n}"))
            ));
        }
    }

    /// Starts nginx on `host`, with the name of server `n`. `port` is, for example, `":8080"`, or empty for port 80.
    pub fn start_nginx_on(&mut self, host: &str, n: usize, port: &str) {
        let root = self.path(&format!("www{n}"));
        fs::create_dir_all(root.join("html")).expect("create a directory");
        fs::write(root.join("html/name"), format!("server{n}\n")).expect("write the page");
        let link = root.join("html/big");
        if !link.exists() {
            fs::hard_link(self.path("big"), link).expect("create a hard link");
        }
        let path = root.display();
        let port = if port.is_empty() { ":80" } else { port };
        fs::write(
            root.join("nginx.conf"),
            format!(
                "daemon off; master_process off; user root; pid {path}/pid; error_log {path}/error.log;\n\
                 events {{ worker_connections 2048; }}\n\
                 http {{ access_log off; sendfile on; keepalive_requests 1000000;\n\
                   client_body_temp_path {path}/b; proxy_temp_path {path}/p; fastcgi_temp_path {path}/f; \
                   uwsgi_temp_path {path}/u; scgi_temp_path {path}/s;\n\
                   server {{ listen 0.0.0.0{port} backlog=4096; listen [::]{port} backlog=4096; root {path}/html; }} \
                   }}\n"
            ),
        )
        .expect("write the configuration");
        let child = self
            .command(host, "nginx")
            .arg("-c")
            .arg(root.join("nginx.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("start nginx");
        self.children.push(child);
        let url = format!("http://127.0.0.1{port}/name");
        wait_for("nginx", Duration::from_secs(10), || {
            self.output(host, &format!("curl -s -m 2 {url}"))
                .status
                .success()
        });
    }

    /// Kills `child` when the world is dropped.
    pub fn kill_on_drop(&mut self, child: std::process::Child) {
        self.children.push(child);
    }

    /// Kills the nginx with the name of server `n`.
    pub fn kill_nginx(&self, n: usize) {
        let path = self.path(&format!("www{n}/pid"));
        let pid = fs::read_to_string(path).expect("read nginx's process id");
        let pid = pid.trim().parse().ok().and_then(Pid::from_raw);
        kill_process(pid.expect("parse the process id"), Signal::KILL)
            .expect("send a signal to the process");
    }

    /// Starts a UDP echo server on every server host, bound to `address(n)`. Each reply starts with the server's
    /// number.
    pub fn start_udp_echo(&mut self, port: u16, address: impl Fn(usize) -> IpAddr) {
        for n in 0..self.servers {
            let (local, stop) = (SocketAddr::new(address(n), port), Arc::clone(&self.stop));
            self.threads
                .push(self.spawn_on(&format!("server{n}"), move || {
                    let socket = UdpSocket::bind(local).expect("bind to the address");
                    socket
                        .set_read_timeout(Some(Duration::from_millis(100)))
                        .expect("set the read timeout");
                    let mut buffer = vec![0; 65536];
                    while !stop.load(Ordering::Relaxed) {
                        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                            let mut reply = vec![
                                b'0' + u8::try_from(n).expect("number does not fit in 8 bits"),
                            ];
                            reply.extend_from_slice(&buffer[..length]);
                            let _ = socket.send_to(&reply, from);
                        }
                    }
                }));
        }
    }

    /// Starts a TCP server on every server host. It reads to the end, and then sends the number of bytes and their
    /// hash.
    pub fn start_sink(&mut self, port: u16, family: Family) {
        for n in 0..self.servers {
            let any: IpAddr = if family == Family::V4 {
                Ipv4Addr::UNSPECIFIED.into()
            } else {
                Ipv6Addr::UNSPECIFIED.into()
            };
            let stop = Arc::clone(&self.stop);
            self.threads
                .push(self.spawn_on(&format!("server{n}"), move || {
                    let listener =
                        TcpListener::bind(SocketAddr::new(any, port)).expect("bind a listener");
                    listener
                        .set_nonblocking(true)
                        .expect("set the listener to non-blocking mode");
                    while !stop.load(Ordering::Relaxed) {
                        let Ok((stream, _)) = listener.accept() else {
                            std::thread::sleep(Duration::from_millis(5));
                            continue;
                        };
                        let _ = digest(stream);
                    }
                }));
        }
    }
}

/// Reads a stream to the end, and then sends the number of bytes and their hash.
fn digest(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let (mut count, mut hash, mut buffer) = (0_u64, 0_u64, vec![0; 65536]);
    loop {
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            break;
        }
        count += length as u64;
        hash = buffer[..length].iter().fold(hash, |hash, byte| {
            hash.wrapping_mul(31).wrapping_add(u64::from(*byte))
        });
    }
    stream.write_all(&count.to_be_bytes())?;
    stream.write_all(&hash.to_be_bytes())
}
