//! Starts a daemon with an admin address on loopback and sends requests to it.

#![allow(unreachable_pub, reason = "a module of a test")]

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use weir_testing::free_address;

static DAEMONS: AtomicU32 = AtomicU32::new(0);

/// Time limit for a response. It is shorter than the time for which the daemon waits for the rest of a header.
const TIMEOUT: Duration = Duration::from_secs(8);

/// A complete response.
pub struct Response(pub String);

impl Response {
    /// Returns the status code.
    pub fn code(&self) -> u16 {
        let code = self.0.split(' ').nth(1).and_then(|code| code.parse().ok());
        code.unwrap_or_else(|| panic!("no status: {}", self.0))
    }

    /// Returns the value of the header field with this name, ignoring case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let head = self.0.split("\r\n\r\n").next().unwrap_or_default();
        let mut fields = head.lines().filter_map(|line| line.split_once(':'));
        let field = fields.find(|(field, _)| field.eq_ignore_ascii_case(name));
        field.map(|(_, value)| value.trim())
    }

    /// Returns the body.
    pub fn body(&self) -> &str {
        self.0.split_once("\r\n\r\n").map_or("", |(_, body)| body)
    }
}

pub struct AdminDaemon {
    pub directory: PathBuf,
    pub admin: SocketAddr,
    child: Child,
}

/// Connects from 127.0.0.`last`.
pub fn connect_from(last: u8, to: SocketAddr) -> TcpStream {
    let from = SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0));
    let start = Instant::now();
    loop {
        match connect(from, to) {
            Ok(stream) => return stream,
            Err(error) if start.elapsed() > TIMEOUT => panic!("{from}: {error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn connect(from: SocketAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket_fd = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    // Use a small buffer, so that most of an unread response stays in the daemon.
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket_fd, 4096)?;
    bind(&socket_fd, &from)?;
    connect(&socket_fd, &to)?;
    Ok(TcpStream::from(socket_fd))
}

impl AdminDaemon {
    /// Starts a daemon. `extra` contains keys of `[node.admin]`, in which `TOKENS` is replaced with the path of the
    /// file `tokens`.
    pub fn start(extra: &str) -> Self {
        Self::start_with(extra, "\"127.0.0.1:1\"")
    }

    /// Like [`Self::start`], with these servers in the pool.
    pub fn start_with(extra: &str, servers: &str) -> Self {
        let number = DAEMONS.fetch_add(1, Ordering::Relaxed);
        let pid = std::process::id();
        let directory = std::env::temp_dir().join(format!("weir-admin-{pid}-{number}"));
        fs::create_dir_all(&directory).expect("create a directory");
        let (admin, listen) = (free_address(), free_address());
        let node = if extra.is_empty() {
            format!("[node]\nadmin = \"{admin}\"\n")
        } else {
            let tokens = directory.join("tokens").display().to_string();
            let extra = extra.replace("TOKENS", &format!("\"{tokens}\""));
            format!("[node.admin]\nlisten = \"{admin}\"\n{extra}")
        };
        let config = format!(
            "{node}\n[pool.p]\nservers = [{servers}]\n\n[service.s]\nlisten = [\"{listen}\"]\nforward = \
             \"proxy\"\nprotocol = \"http\"\npool = \"p\"\n"
        );
        fs::write(directory.join("weir.toml"), config).expect("write the file");
        let mut tokens = fs::OpenOptions::new();
        tokens.write(true).create(true).mode(0o600);
        tokens
            .open(directory.join("tokens"))
            .expect("open the file");
        let log = fs::File::create(directory.join("log")).expect("create the log file");
        let child = program(&directory)
            .args(["run", "-c"])
            .arg(directory.join("weir.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("start the daemon");
        let daemon = Self {
            directory,
            admin,
            child,
        };
        let start = Instant::now();
        while !daemon.weir(&["status", "--json"]).0 {
            let waited = start.elapsed();
            assert!(
                waited < Duration::from_secs(30),
                "the daemon does not respond: {}",
                daemon.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        daemon
    }

    pub fn config(&self) -> PathBuf {
        self.directory.join("weir.toml")
    }

    /// Returns the daemon's log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Writes a file in the daemon's directory. Returns its path.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.join(name);
        fs::write(&path, text).expect("write the file");
        path
    }

    /// Returns the token in the runtime directory.
    pub fn runtime_token(&self) -> String {
        fs::read_to_string(self.directory.join("run/token")).expect("read the token")
    }

    /// Creates a token in the tokens file and returns it.
    pub fn token(&self, name: &str, role: &str) -> String {
        let file = self.directory.join("tokens");
        let output = program(&self.directory)
            .args(["token", "add", name, "--role", role, "--file"])
            .arg(file)
            .output()
            .expect("run weir");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Runs `weir ARGUMENTS`. Returns whether it succeeded, and its output.
    pub fn weir(&self, arguments: &[&str]) -> (bool, String) {
        let output = program(&self.directory).args(arguments).output();
        let output = output.expect("run weir");
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }

    /// Sends one request and returns everything received before the connection ends.
    pub fn send_raw(&self, request: &str) -> String {
        let mut stream = connect_from(1, self.admin);
        stream
            .set_read_timeout(Some(TIMEOUT))
            .expect("set the read timeout");
        stream
            .write_all(request.as_bytes())
            .expect("send the request");
        let mut response = Vec::new();
        if let Err(error) = stream.read_to_end(&mut response) {
            response.extend_from_slice(format!("<{error}>").as_bytes());
        }
        String::from_utf8_lossy(&response).into_owned()
    }

    /// Sends a request, with a token if one is given. Returns the response.
    pub fn fetch(&self, method: &str, path: &str, token: Option<&str>, body: &str) -> Response {
        let token = token.map_or_else(String::new, |token| {
            format!("Authorization: Bearer {token}\r\n")
        });
        let (host, length) = (self.admin, body.len());
        Response(self.send_raw(&format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{token}Content-Length: {length}\r\n\r\n\
             {body}"
        )))
    }

    /// Sends a GET request. Returns the response as text.
    pub fn get(&self, path: &str, token: Option<&str>) -> String {
        self.fetch("GET", path, token, "").0
    }

    /// Sends a POST request. Returns the response as text.
    pub fn post(&self, path: &str, token: Option<&str>, body: &str) -> String {
        self.fetch("POST", path, token, body).0
    }
}

fn program(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command
        .env("WEIR_RUNTIME_DIR", directory.join("run"))
        .env("WEIR_PIN_DIR", directory.join("pins"))
        .env("NO_COLOR", "1");
    command
}

impl Drop for AdminDaemon {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A certificate authority, and the directory that contains it and the certificates that it signs.
pub struct Authority(PathBuf);

impl Authority {
    pub fn new(directory: &Path) -> Self {
        fs::create_dir_all(directory).expect("create a directory");
        let authority = Self(directory.to_owned());
        authority.openssl("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=authority \
         -keyout ca.key -out ca.pem");
        authority
    }

    fn openssl(&self, arguments: &str) {
        let output = Command::new("openssl")
            .args(arguments.split(' '))
            .current_dir(&self.0)
            .stdin(Stdio::null())
            .output()
            .expect("run openssl");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {arguments}: {errors}");
    }

    pub fn ca(&self) -> String {
        self.0.join("ca.pem").display().to_string()
    }

    /// Creates `FILE.pem`, which contains a certificate for these names and its key. Returns the path of the file.
    pub fn sign(&self, file: &str, names: &str) -> String {
        self.openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={file} -keyout {file}.key -out {file}.csr"
        ));
        let extensions = format!("subjectAltName={names}\n");
        fs::write(self.0.join("extensions"), extensions).expect("write the file");
        self.openssl(&format!(
            "x509 -req -in {file}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile extensions -out \
             {file}.crt"
        ));
        let read =
            |name: String| fs::read_to_string(self.0.join(name)).expect("read a generated file");
        let path = self.0.join(format!("{file}.pem"));
        let pem = read(format!("{file}.crt")) + &read(format!("{file}.key"));
        fs::write(&path, pem).expect("write the file");
        path.display().to_string()
    }
}
