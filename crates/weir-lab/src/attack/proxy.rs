//! Finds, configures and starts the proxies under comparison, all with the same settings.
//!
//! The settings are one worker on one CPU, the same timeouts, connection limits and certificate, 32 idle connections to
//! the server, 128 streams per connection, and no logs. The proxies abort a request when its client disconnects. All
//! other settings are the defaults of the program. Root starts each program, which then drops root privileges: HAProxy
//! and nginx use the unprivileged account (65534), Weir uses `weir`.

use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Resource, getrlimit};

use super::catalog::Target;
use super::origin;
use crate::error::{LabError, Result};
use crate::peer::START_LIMIT;
use crate::process::{self, Daemon, Launcher};
use crate::requirement::{self, HAPROXY, NGINX};

const HTTP2_PORT: u16 = 8080;
const HTTP1_PORT: u16 = 8081;
const TLS_PORT: u16 = 8443;

/// User and group ID of the account that [`account_command_prefix`] adds. The ID is in the range of system accounts.
const WEIR_ID: u32 = 991;
/// User and group ID of the unprivileged account.
const UNPRIVILEGED_ID: u32 = 65534;

/// Releases that were current when the limits were defined. Older releases lack some of the defenses that the lab
/// compares.
const EXPECTED_RELEASES: [(Kind, u32, u32); 2] = [(Kind::Haproxy, 3, 4), (Kind::Nginx, 1, 30)];

/// A proxy program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Weir,
    Haproxy,
    Nginx,
}

impl Kind {
    pub(crate) const ALL: [Kind; 3] = [Kind::Weir, Kind::Haproxy, Kind::Nginx];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Weir => "weir",
            Kind::Haproxy => "haproxy",
            Kind::Nginx => "nginx",
        }
    }
}

/// An installed proxy program.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) kind: Kind,
    pub(crate) program: PathBuf,
    /// The program's version output: version, TLS library, build options.
    pub(crate) version: Vec<String>,
}

impl Candidate {
    /// Finds the program at the given path or in `PATH`, and reads its version.
    pub(crate) fn find(kind: Kind, specified: Option<&Path>) -> Result<Self> {
        let program = match (kind, specified) {
            (Kind::Weir, specified) => requirement::find_weir(specified)?,
            (_, Some(path)) => fs::canonicalize(path).map_err(LabError::file(path))?,
            (Kind::Haproxy, None) => locate(HAPROXY)?,
            (Kind::Nginx, None) => locate(NGINX)?,
        };
        let (argument, prefixes): (_, &[&str]) = match kind {
            Kind::Weir => ("--version", &["weir "]),
            Kind::Haproxy => ("-vv", &["HAProxy version", "Running on "]),
            Kind::Nginx => (
                "-V",
                &["nginx version", "built with OpenSSL", "configure arguments"],
            ),
        };
        let output = Command::new(&program).arg(argument).output();
        let output = output.map_err(|source| LabError::Start {
            program: program.display().to_string(),
            source,
        })?;
        let text = [output.stdout, output.stderr].concat();
        let version = String::from_utf8_lossy(&text)
            .lines()
            .filter(|line| prefixes.iter().any(|start| line.starts_with(start)))
            .map(str::to_owned)
            .collect();
        Ok(Self {
            kind,
            program,
            version,
        })
    }

    /// Returns a note if the program is older than the expected release.
    pub(crate) fn note(&self) -> Option<String> {
        let (_, major, minor) = EXPECTED_RELEASES
            .iter()
            .find(|release| release.0 == self.kind)?;
        let version = self.number()?;
        (version < (*major, *minor)).then(|| {
            format!(
                "{} {}.{} is older than {major}.{minor}; use {}=PATH for another version",
                self.kind.name(),
                version.0,
                version.1,
                self.kind.name().to_uppercase()
            )
        })
    }

    fn number(&self) -> Option<(u32, u32)> {
        self.version.first().and_then(|line| version_number(line))
    }

    /// Starts the program on `cpu` and waits until it listens on all addresses. Call this inside the namespace.
    pub(crate) fn start(
        &self,
        launcher: &Launcher<'_>,
        cpu: usize,
        certificate: &Path,
    ) -> Result<Daemon> {
        let directory = launcher.directory;
        let file = directory.join(format!("{}.conf", self.kind.name()));
        let text = self.configuration(directory, certificate);
        fs::write(&file, text).map_err(LabError::file(&file))?;
        let file = file.into_os_string();
        let mut arguments: Vec<OsString> = match self.kind {
            Kind::Weir => account_command_prefix(directory)?,
            Kind::Haproxy | Kind::Nginx => Vec::new(),
        };
        arguments.extend(["taskset".into(), "-c".into(), cpu.to_string().into()]);
        arguments.push(self.program.clone().into_os_string());
        match self.kind {
            Kind::Weir => {
                arguments.extend(["run".into(), "-c".into(), file]);
                for (option, name) in [("--runtime-dir", "run"), ("--pin-dir", "pins")] {
                    arguments.extend([option.into(), directory.join(name).into_os_string()]);
                }
            }
            Kind::Haproxy => arguments.extend(["-db".into(), "-f".into(), file]),
            Kind::Nginx => {
                arguments.extend(["-p".into(), directory.as_os_str().into(), "-c".into(), file]);
                arguments.extend(["-e".into(), "stderr".into()]);
            }
        }
        let mut daemon = launcher.start(self.kind.name(), Path::new("env"), &arguments)?;
        let event = format!("{} to start", self.kind.name());
        daemon.wait_ready(&event, START_LIMIT, || {
            let ports = [HTTP2_PORT, HTTP1_PORT, TLS_PORT];
            Ok(ports
                .iter()
                .all(|port| TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).is_ok()))
        })?;
        Ok(daemon)
    }

    /// Returns the text of the configuration file.
    pub(crate) fn configuration(&self, directory: &Path, certificate: &Path) -> String {
        let limit = connections();
        match self.kind {
            Kind::Weir => weir_configuration(limit, certificate),
            Kind::Haproxy => haproxy_configuration(limit, certificate),
            Kind::Nginx => nginx_configuration(limit, directory, certificate, self.number()),
        }
    }
}

/// Returns the address that attackers connect to.
pub(crate) fn attack_address(target: Target) -> SocketAddrV4 {
    let port = match target {
        Target::Http2 => HTTP2_PORT,
        Target::Http1 => HTTP1_PORT,
        Target::Tls => TLS_PORT,
    };
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
}

/// Returns the address that the other clients connect to.
pub(crate) fn probe_address(target: Target) -> SocketAddrV4 {
    attack_address(if target == Target::Tls {
        Target::Http1
    } else {
        target
    })
}

/// Returns the first part of a command line that runs a program with the account `weir`. If this machine lacks the
/// account, the program runs in a mount namespace with copies of `passwd` and `group` that contain it.
fn account_command_prefix(directory: &Path) -> Result<Vec<OsString>> {
    let read = |file: &str| fs::read_to_string(file).map_err(LabError::file(file));
    let accounts = read("/etc/passwd")?;
    if accounts.lines().any(|line| line.starts_with("weir:")) {
        return Ok(Vec::new());
    }
    let (passwd, group) = (directory.join("passwd"), directory.join("group"));
    let entry = format!("weir:x:{WEIR_ID}:{WEIR_ID}::/nonexistent:/usr/sbin/nologin\n");
    fs::write(&passwd, accounts + &entry).map_err(LabError::file(&passwd))?;
    let entry = format!("weir:x:{WEIR_ID}:\n");
    fs::write(&group, read("/etc/group")? + &entry).map_err(LabError::file(&group))?;
    let script = "mount --bind \"$1\" /etc/passwd && mount --bind \"$2\" /etc/group && shift 2 && exec \"$@\"";
    let args = ["unshare", "--mount", "sh", "-c", script, "sh"].map(OsString::from);
    let mut args = Vec::from(args);
    args.extend([passwd.into_os_string(), group.into_os_string()]);
    Ok(args)
}

/// Returns the name of an ID in `/etc/passwd` or `/etc/group`; `root` if the file does not contain the ID.
fn name_of(file: &str, number: u32) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let entry = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(number)).then(|| name.to_owned())
    };
    text.lines()
        .find_map(entry)
        .unwrap_or_else(|| "root".to_owned())
}

fn locate(program: requirement::Program) -> Result<PathBuf> {
    requirement::require_programs([program])?;
    Ok(requirement::locate(program).unwrap_or_else(|| program.name.into()))
}

/// Returns the maximum number of clients. Each client needs two descriptors, and the program itself needs some.
fn connections() -> u64 {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (limit.saturating_sub(500) / 2).clamp(100, 8_000)
}

/// Parses the version: `3.5` from `HAProxy version 3.5-dev5 …`, `1.31` from `nginx version: nginx/1.31.5`.
fn version_number(line: &str) -> Option<(u32, u32)> {
    let start = line.find(|character: char| character.is_ascii_digit())?;
    let mut numbers = line[start..].split(|character: char| !character.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Creates a self-signed P-256 certificate. All three programs can read the file, `certificate.pem` with chain and key.
pub(crate) fn make_certificate(directory: &Path) -> Result<PathBuf> {
    let path = |name: &str| directory.join(name).display().to_string();
    let (key, certificate) = (path("key.tmp"), path("certificate.tmp"));
    let key_options = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
    let other_options = [
        "-nodes",
        "-days",
        "30",
        "-subj",
        "/CN=attack.example",
        "-addext",
        "subjectAltName=DNS:attack.example",
        "-keyout",
        &key,
        "-out",
        &certificate,
    ];
    process::run(
        "openssl",
        &[&["req", "-x509"][..], &key_options, &other_options].concat(),
    )?;
    let read = |file: &str| fs::read_to_string(file).map_err(LabError::file(file));
    let chain_and_key = read(&certificate)? + &read(&key)?;
    let file = directory.join("certificate.pem");
    fs::write(&file, chain_and_key).map_err(LabError::file(&file))?;
    Ok(file)
}

fn weir_configuration(limit: u64, certificate: &Path) -> String {
    let mut text = format!("[pool.origin]\nservers = [\"{}\"]\n", origin::ADDRESS);
    for (name, target) in [
        ("http2", Target::Http2),
        ("http1", Target::Http1),
        ("tls", Target::Tls),
    ] {
        text += &format!(
            "\n[service.{name}]\nlisten = [\"{}\"]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \"origin\"\n\
             timeouts = {{ request = \"3s\", idle = \"60s\", client = \"30s\", connect = \"5s\", server = \"60s\" }}\n\
             limits = {{ connections = {limit}, idle_servers = 32, streams = 128 }}\n",
            attack_address(target)
        );
        if target == Target::Tls {
            text += &format!("tls = {{ certificates = \"{}\" }}\n", certificate.display());
        }
    }
    text
}

fn haproxy_configuration(limit: u64, certificate: &Path) -> String {
    format!(
        "global\n  uid {UNPRIVILEGED_ID}\n  gid {UNPRIVILEGED_ID}\n  maxconn {limit}\n  nbthread 1\n  \
         tune.h2.max-concurrent-streams 128\n\
         defaults\n  mode http\n  option abortonclose\n  timeout http-request 3s\n  timeout http-keep-alive 60s\n  \
         timeout client 30s\n  timeout connect 5s\n  timeout server 60s\n  maxconn {limit}\n  default_backend origin\n\
         frontend http2\n  bind {} proto h2\nfrontend http1\n  bind {}\n\
         frontend tls\n  bind {} ssl crt {} alpn h2,http/1.1\n\
         backend origin\n  http-reuse always\n  server origin {} pool-max-conn 32\n",
        attack_address(Target::Http2),
        attack_address(Target::Http1),
        attack_address(Target::Tls),
        certificate.display(),
        origin::ADDRESS
    )
}

fn nginx_configuration(
    limit: u64,
    directory: &Path,
    certificate: &Path,
    version: Option<(u32, u32)>,
) -> String {
    let directory = directory.display();
    let certificate = certificate.display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("  {kind}_temp_path {directory}/{kind};\n"))
        .concat();
    // nginx 1.25.1 and later have `http2 on`; the patch level is unknown here. In older versions, `http2` is an option
    // of `listen`.
    let is_new = version.is_none_or(|version| version >= (1, 26));
    let (listen_option, directive) = if is_new {
        ("", "http2 on; ")
    } else {
        (" http2", "")
    };
    let server = |listen: String, directives: &str| {
        format!(
            "  server {{ listen {listen}; {directives}location / {{ proxy_pass http://origin; }} }}\n"
        )
    };
    let servers = [
        server(
            format!("{}{listen_option}", attack_address(Target::Http2)),
            directive,
        ),
        server(attack_address(Target::Http1).to_string(), ""),
        server(
            format!("{} ssl{listen_option}", attack_address(Target::Tls)),
            &format!(
                "{directive}ssl_certificate {certificate}; ssl_certificate_key {certificate}; "
            ),
        ),
    ]
    .concat();
    format!(
        "daemon off;\nuser {user} {group};\nworker_processes 1;\npid {directory}/nginx.pid;\nerror_log stderr emerg;\n\
         events {{ worker_connections {workers}; }}\n\
         http {{\n{temporary}  access_log off;\n  client_header_timeout 3s;\n  client_body_timeout 30s;\n  \
         send_timeout 30s;\n  keepalive_timeout 60s;\n  keepalive_requests 1000000;\n  \
         proxy_connect_timeout 5s;\n  proxy_read_timeout 60s;\n  proxy_send_timeout 60s;\n  proxy_http_version 1.1;\n  \
         proxy_set_header Connection \"\";\n  proxy_max_temp_file_size 0;\n  http2_max_concurrent_streams 128;\n  \
         upstream origin {{ server {origin}; keepalive 32; }}\n{servers}}}\n",
        user = name_of("/etc/passwd", UNPRIVILEGED_ID),
        group = name_of("/etc/group", UNPRIVILEGED_ID),
        workers = 2 * limit,
        origin = origin::ADDRESS
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_parsed_from_version_output() {
        for (line, number) in [
            ("HAProxy version 2.6.12-1+deb12u4 2026/10/17", (2, 6)),
            ("HAProxy version 3.5-dev5-50872d 2026/08/21", (3, 5)),
            ("nginx version: nginx/1.31.5", (1, 31)),
        ] {
            assert_eq!(version_number(line), Some(number), "{line}");
        }
        assert_eq!(version_number("no number"), None);
    }

    #[test]
    fn old_program_has_a_note() {
        let candidate = |kind, line: &str| Candidate {
            kind,
            program: PathBuf::new(),
            version: vec![line.to_owned()],
        };
        let old = candidate(Kind::Nginx, "nginx version: nginx/1.22.1").note();
        let note = "nginx 1.22 is older than 1.30; use NGINX=PATH for another version";
        assert_eq!(old.as_deref(), Some(note));
        assert_eq!(
            candidate(Kind::Nginx, "nginx version: nginx/1.31.0").note(),
            None
        );
        assert_eq!(candidate(Kind::Weir, "weir 0.1.0").note(), None);
    }
}
