//! Starts nginx as the servers' web server, as an HTTP balancer, or as the third field report's FastCGI balancer.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use crate::error::{LabError, Result};
use crate::peer::START_LIMIT;
use crate::process::{Daemon, Launcher};
use crate::requirement::{self, NGINX};
use crate::topology::BACKLOG;

/// Port on which every nginx in the lab listens.
pub(crate) const PORT: u16 = 80;
/// Name of the file that experiment 1 requests.
pub(crate) const IMAGE: &str = "image.bmp";
/// Name of a page with one line.
pub(crate) const HELLO: &str = "hello";
/// Name of a page of several kilobytes, like a typical response.
pub(crate) const REST: &str = "rest";
/// Length of this page.
pub(crate) const REST_BYTES: usize = 4096;

/// Width and height of the image. With 24 bits per pixel, its size is 4 MB, as in the report.
const IMAGE_SIZE: (u32, u32) = (1024, 1365);

/// The way nginx handles a request.
pub(crate) enum Role<'a> {
    /// Serves the document root.
    Files,
    /// Forwards `*.php` to FPM workers: local workers (`127.0.0.1`), or workers on several hosts.
    FastCgi {
        /// Directive inside `upstream`: `hash $remote_port;`, `least_conn;`, or empty.
        method: &'a str,
        /// Addresses of the hosts that run the workers.
        workers: &'a [Ipv4Addr],
    },
    /// Balances requests as an HTTP proxy.
    Proxy {
        /// Directive inside `upstream`; empty = round robin.
        method: &'a str,
        /// Addresses of the servers.
        servers: &'a [Ipv4Addr],
    },
}

/// Starts nginx through `launcher` and waits until it listens. `root` is the document root.
pub(crate) fn start(launcher: &Launcher<'_>, root: &Path, role: &Role<'_>) -> Result<Daemon> {
    let file = write(launcher, root, role)?;
    let program = requirement::locate(NGINX).unwrap_or_else(|| PathBuf::from(NGINX.name));
    let directory = launcher.directory.as_os_str();
    let arguments = [
        "-p".as_ref(),
        directory,
        "-c".as_ref(),
        file.as_os_str(),
        "-e".as_ref(),
        "stderr".as_ref(),
    ];
    let mut daemon = launcher.start("nginx", &program, &arguments)?;
    // nginx writes its PID file after its sockets are listening.
    let pid = launcher.directory.join("nginx.pid");
    daemon.wait_ready("nginx to start", START_LIMIT, || Ok(pid.exists()))?;
    Ok(daemon)
}

/// Writes the configuration, for [`start`] or for a reload with SIGHUP.
pub(crate) fn write(launcher: &Launcher<'_>, root: &Path, role: &Role<'_>) -> Result<PathBuf> {
    let file = launcher.directory.join("nginx.conf");
    std::fs::write(&file, configuration(launcher.directory, root, role))
        .map_err(LabError::file(&file))?;
    Ok(file)
}

fn configuration(directory: &Path, root: &Path, role: &Role<'_>) -> String {
    let temporary_paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("  {kind}_temp_path {}/{kind};\n", directory.display()))
        .collect();
    let (upstream, location) = match role {
        Role::Files => (String::new(), String::new()),
        Role::FastCgi { method, workers } => fast_cgi(method, workers),
        Role::Proxy { method, servers } => proxy(method, servers),
    };
    format!(
        "daemon off;\nuser root;\nworker_processes 1;\nworker_rlimit_nofile 65536;\npid {directory}/nginx.pid;\n\
         error_log stderr error;\nevents {{ worker_connections 16384; }}\n\
         http {{\n{temporary_paths}  access_log off;\n  sendfile on;\n  tcp_nopush on;\n{upstream}  server {{\n    \
         listen {PORT} backlog={BACKLOG};\n    root {root};\n{location}  }}\n}}\n",
        directory = directory.display(),
        root = root.display(),
    )
}

fn proxy(method: &str, servers: &[Ipv4Addr]) -> (String, String) {
    let method = directive(method);
    let servers: String = servers
        .iter()
        .map(|address| format!("    server {address}:{PORT};\n"))
        .collect();
    (
        format!("  upstream app {{\n{method}{servers}  }}\n"),
        "    location / {\n      proxy_pass http://app;\n    }\n".into(),
    )
}

/// Returns a line inside `upstream`.
fn directive(method: &str) -> String {
    if method.is_empty() {
        String::new()
    } else {
        format!("    {method}\n")
    }
}

fn fast_cgi(method: &str, workers: &[Ipv4Addr]) -> (String, String) {
    let port = super::php::PORT;
    let servers: String = workers
        .iter()
        .map(|address| format!("    server {address}:{port};\n"))
        .collect();
    let method = directive(method);
    let upstream = format!("  upstream workers {{\n{method}{servers}  }}\n");
    let parameters: String = [
        ("SCRIPT_FILENAME", "$document_root$fastcgi_script_name"),
        ("QUERY_STRING", "$query_string"),
        ("REQUEST_METHOD", "$request_method"),
        ("REMOTE_ADDR", "$remote_addr"),
    ]
    .iter()
    .map(|(name, value)| format!("      fastcgi_param {name} {value};\n"))
    .collect();
    (
        upstream,
        format!("    location ~ \\.php$ {{\n{parameters}      fastcgi_pass workers;\n    }}\n"),
    )
}

/// Writes the document root of experiments 1 and 5.
pub(crate) fn write_pages(root: &Path) -> Result<()> {
    let write = |name: &str, bytes: &[u8]| {
        let path = root.join(name);
        std::fs::write(&path, bytes).map_err(LabError::file(path))
    };
    write(HELLO, b"Up\n")?;
    write(REST, &[b'r'; REST_BYTES])?;
    write(IMAGE, &image(IMAGE_SIZE.0, IMAGE_SIZE.1))
}

/// Returns the length of the image in bytes.
pub(crate) fn image_bytes() -> u64 {
    u64::from(BMP_HEADER) + u64::from(IMAGE_SIZE.0) * u64::from(IMAGE_SIZE.1) * 3
}

/// Bytes before the first pixel: file header and BITMAPINFOHEADER.
const BMP_HEADER: u32 = 54;

/// Returns an uncompressed 24-bit BMP whose pixels form no pattern. `width` must be a multiple of 4, so rows need no
/// padding.
fn image(width: u32, height: u32) -> Vec<u8> {
    let pixels = width * height * 3;
    let mut bytes = Vec::with_capacity((BMP_HEADER + pixels) as usize);
    bytes.extend(b"BM");
    for word in [
        BMP_HEADER + pixels,
        0,
        BMP_HEADER,
        40,
        width,
        height,
        24 << 16 | 1,
        0,
        pixels,
        2835,
        2835,
        0,
        0,
    ] {
        bytes.extend(u32::to_le_bytes(word));
    }
    // A linear congruential sequence makes the image incompressible and reproducible.
    let mut state = 1_u32;
    bytes.extend((0..pixels).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    }));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_is_a_bitmap_with_the_expected_length() {
        let bytes = image(8, 2);
        assert_eq!(bytes.len(), 54 + 48);
        assert_eq!(&bytes[..6], [b'B', b'M', 102, 0, 0, 0]);
        assert_eq!(
            image(IMAGE_SIZE.0, IMAGE_SIZE.1).len() as u64,
            image_bytes()
        );
    }

    #[test]
    fn fastcgi_configuration_contains_all_workers() {
        let workers = [Ipv4Addr::new(10, 0, 0, 5), Ipv4Addr::new(10, 0, 0, 6)];
        let role = Role::FastCgi {
            method: "least_conn;",
            workers: &workers,
        };
        insta::assert_snapshot!(configuration(
            Path::new("/run/lab/director"),
            Path::new("/run/lab/pages"),
            &role
        ));
    }
}
