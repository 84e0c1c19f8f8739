//! Measures, in `make bench`, one process that checks ten thousand servers over HTTP every two seconds.
//!
//! Prints the CPU share of the checks, compared with a floor (a plain connection and exchange per check), and the
//! lateness of the probes. A separate process acts as all servers, on 127.0.0.0/8; its CPU time is not counted.
//! `WEIR_BENCH_CHECKS` (default 10000) sets the number of servers, `WEIR_BENCH_SECONDS` (default 20) the duration.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use weir_health::SuspendedServers;
use weir_model::Desired;
use weir_probing::{Checks, ProbeStats};

const SERVE: &str = "--serve";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nUp";
const INTERVAL: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().any(|argument| argument == SERVE) {
        return serve();
    }
    let read_number = |name: &str, default: u32| -> Result<u32, Box<dyn Error>> {
        Ok(std::env::var(name).map_or(Ok(default), |text| text.parse())?)
    };
    let count = read_number("WEIR_BENCH_CHECKS", 10_000)?;
    let duration = Duration::from_secs(read_number("WEIR_BENCH_SECONDS", 20)?.into());
    weir_sys::raise_nofile()?;
    let mut servers = Servers::start()?;
    let desired = configuration(count, servers.port)?;
    let floor = floor(&desired, servers.port)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let (cpu_share, probing) = runtime.block_on(async { measure(&desired, duration).await });
    servers.stop();
    let rate = f64::from(count) / INTERVAL.as_secs_f64();
    let percentile = |percent| match probing.lateness.quantile_ms(percent) {
        Some(bound) => format!("<= {bound} ms"),
        None => "above 1 s".to_owned(),
    };
    println!(
        "{count} servers, http every {INTERVAL:?}, {} probes in {duration:?}",
        probing.probes
    );
    println!("  CPU share              {:6.1} %", cpu_share * 100.0);
    println!(
        "  floor                  {:6.1} %  (sequential: connect, write, read, close)",
        floor * rate * 100.0
    );
    println!(
        "  ratio                  {:6.2}",
        cpu_share / (floor * rate)
    );
    println!("  lateness p50           {}", percentile(50));
    println!(
        "  lateness p99           {}  (goal: < 50 ms)",
        percentile(99)
    );
    println!(
        "  probes by lateness, ms {:?}: {:?}",
        weir_health::Lateness::BOUNDS_MS,
        probing.lateness.counts()
    );
    Ok(())
}

/// Serves HTTP on one port of all addresses in 127.0.0.0/8.
fn serve() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    rustix::net::listen(&listener, 4096)?;
    println!("{}", listener.local_addr()?.port());
    let respond = |mut stream: TcpStream| {
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(RESPONSE);
    };
    loop {
        let (stream, _) = listener.accept()?;
        respond(stream);
    }
}

/// The process that acts as the servers.
struct Servers {
    child: Child,
    port: u16,
}

impl Servers {
    fn start() -> Result<Self, Box<dyn Error>> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(SERVE)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.take().ok_or("no output")?;
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line)?;
        Ok(Self {
            child,
            port: line.trim().parse()?,
        })
    }

    fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.stop();
    }
}

fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 1, 0, 1)) + number)
}

fn configuration(count: u32, port: u16) -> Result<Desired, Box<dyn Error>> {
    let servers: Vec<String> = (0..count).map(|n| format!("\"{}\"", address(n))).collect();
    let text = format!(
        "[node]\nmax_servers = 65536\n[pool.many]\nservers = [{}]\n[pool.many.check]\nkind = \"http\"\nport = {port}\n\
         interval = \"2s\"\nexpect = {{ body = \"Up\" }}\n\
         [service.many]\nlisten = [\"192.0.2.10:80\"]\nforward = \"nat\"\npool = \"many\"\n",
        servers.join(",")
    );
    let parsed = weir_config::parse(&text, &weir_config::Host::default());
    Ok(parsed
        .map_err(|diagnostics| format!("{diagnostics:?}"))?
        .desired)
}

/// Measures the CPU time of one plain connection and exchange, in seconds.
fn floor(desired: &Desired, port: u16) -> Result<f64, Box<dyn Error>> {
    const EXCHANGES: u32 = 2000;
    let count = u32::try_from(desired.pools[0].servers.len())?;
    let before = cpu_time();
    for n in 0..EXCHANGES {
        let mut stream = TcpStream::connect((address(n % count), port))?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
        let mut response = Vec::new();
        stream.read_to_end(&mut response)?;
        if response != RESPONSE {
            return Err("unexpected response".into());
        }
    }
    Ok((cpu_time() - before).as_secs_f64() / f64::from(EXCHANGES))
}

/// Runs the checks and measures them for `duration`. Returns their CPU share and counters.
async fn measure(desired: &Desired, duration: Duration) -> (f64, ProbeStats) {
    let checks = Checks::start();
    checks.configure(desired, &SuspendedServers::new(), &|_, _| None, None);
    // Skip the first round, in which all servers are new.
    tokio::time::sleep(INTERVAL * 2).await;
    let (before, started) = (cpu_time(), Instant::now());
    tokio::time::sleep(duration).await;
    let share = (cpu_time() - before).as_secs_f64() / started.elapsed().as_secs_f64();
    (share, checks.probe_stats())
}

/// Returns the CPU time of this process.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}
