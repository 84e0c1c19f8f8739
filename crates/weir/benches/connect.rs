//! Measures the cost of connect(), send() and sendto() with `forward = "socket"`.
//!
//! The costs are the calling thread's CPU time and the elapsed time, compared with the same calls to a server's own
//! address. The values are medians of rounds that alternate between the two addresses, so that the load of the machine
//! affects both equally. No hook runs for packets of a connected socket, so the row of send() must show no difference.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

const ROUNDS: u32 = 15;
const VIP: &str = "198.51.100.77";

/// A daemon with its own directories and its own mounts of cgroup2 and bpffs.
struct Rig {
    directory: PathBuf,
    daemon: Option<Child>,
}

impl Rig {
    fn weir(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command
            .env("WEIR_RUNTIME_DIR", self.directory.join("run"))
            .env("WEIR_PIN_DIR", self.directory.join("bpf/weir"));
        command
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        let _ = self.weir().args(["clean", "--force"]).output();
        // A cgroup with processes cannot be removed.
        let root = self.directory.join("cgroup2");
        let _ = fs::write(root.join("cgroup.procs"), std::process::id().to_string());
        let _ = fs::remove_dir(root.join(unique_name()));
        for mount in ["cgroup2", "bpf"] {
            let _ = Command::new("umount")
                .arg(self.directory.join(mount))
                .status();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn unique_name() -> String {
    format!("weir-bench-{}", std::process::id())
}

fn main() -> io::Result<()> {
    if !weir_testing::require_root() {
        return Ok(());
    }
    let directory = std::env::temp_dir().join(unique_name());
    let mut rig = Rig {
        directory: directory.clone(),
        daemon: None,
    };
    for kind in ["cgroup2", "bpf"] {
        let mount = directory.join(kind);
        fs::create_dir_all(&mount)?;
        let status = Command::new("mount")
            .args(["-t", kind, "none"])
            .arg(mount)
            .status()?;
        assert!(status.success(), "mount {kind}: {status}");
    }
    let cgroup = directory.join("cgroup2").join(unique_name());
    fs::create_dir(&cgroup)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    // A full accept queue would delay a connection by a second.
    rustix::net::listen(&listener, 4096)?;
    let server = listener.local_addr()?;
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let _udp_server = UdpSocket::bind(server)?;
    start_daemon(&mut rig, &cgroup, server)?;
    fs::write(cgroup.join("cgroup.procs"), std::process::id().to_string())?;
    let vip = SocketAddr::new(VIP.parse().expect("parse the VIP"), server.port());

    println!("Cost of a call, direct and through the VIP: CPU time, then elapsed time");
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    print_row("connect(), UDP", [server, vip], 20_000, |to| {
        socket.connect(to)
    });
    print_row("socket, connect, close, TCP", [server, vip], 1_000, |to| {
        let stream = TcpStream::connect(to)?;
        // Close with a reset. Otherwise, thousands of connections in TIME_WAIT would occupy the local ports, and the
        // kernel's search for a free port would dominate the cost.
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
        Ok(())
    });
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    print_row("sendto(), unconnected UDP", [server, vip], 20_000, |to| {
        socket.send_to(b"x", to).map(drop)
    });
    let connected = [server, vip].map(|to| {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect(to)?;
        Ok::<_, io::Error>(socket)
    });
    let [direct, balanced] = connected;
    let connected = [direct?, balanced?];
    print_row("send(), connected UDP", [server, vip], 20_000, |to| {
        connected[usize::from(to == vip)].send(b"x").map(drop)
    });
    Ok(())
}

fn start_daemon(rig: &mut Rig, cgroup: &Path, server: SocketAddr) -> io::Result<()> {
    let path = rig.directory.join("weir.toml");
    let port = server.port();
    let text = format!(
        "[pool.web]\nservers = [\"{server}\"]\n[service.web]\nlisten = [\"{VIP}:{port}\", \"udp/{VIP}:{port}\"]\n\
         forward = \"socket\"\ncgroup = \"{}\"\npool = \"web\"\n",
        cgroup.display()
    );
    fs::write(&path, text)?;
    let mut command = rig.weir();
    command.args(["run", "-c"]).arg(&path);
    rig.daemon = Some(command.stderr(Stdio::null()).spawn()?);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !rig
        .weir()
        .args(["status", "--json"])
        .output()?
        .status
        .success()
    {
        assert!(Instant::now() < deadline, "the daemon does not respond");
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn print_row(
    label: &str,
    targets: [SocketAddr; 2],
    calls: u32,
    call: impl Fn(SocketAddr) -> io::Result<()>,
) {
    let (mut cpu, mut elapsed) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
    for _ in 0..ROUNDS {
        for (index, to) in targets.into_iter().enumerate() {
            let (cpu_before, started) = (cpu_time(), Instant::now());
            for _ in 0..calls {
                call(to).expect("make the call");
            }
            cpu[index].push(cpu_time() - cpu_before);
            elapsed[index].push(started.elapsed());
        }
    }
    let per_call = |mut rounds: Vec<Duration>| {
        rounds.sort_unstable();
        rounds[rounds.len() / 2].as_secs_f64() * 1e9 / f64::from(calls)
    };
    let ([direct, vip], [direct_elapsed, vip_elapsed]) = (cpu.map(per_call), elapsed.map(per_call));
    println!(
        "  {label:<28} {direct:>7.0} ns {vip:>7.0} ns   {:+.0} ns, {:.2} x   {direct_elapsed:>7.0} ns \
         {vip_elapsed:>7.0} ns   {:+.0} ns",
        vip - direct,
        vip / direct,
        vip_elapsed - direct_elapsed
    );
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
