//! Provides a deliberately lenient server for the smuggling tests.
//!
//! It treats `_` as `-`, ends lines at a bare LF, joins folded lines, accepts any coding that contains `chunk`, and
//! reads the leading digits of a number. It responds with the requested path.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The test server.
pub(super) struct LenientServer {
    pub(super) address: SocketAddr,
    paths: Arc<Mutex<Vec<String>>>,
}

impl LenientServer {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
        let address = listener.local_addr().expect("get local address");
        let paths = Arc::default();
        let shared = Arc::clone(&paths);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let paths = Arc::clone(&shared);
                // The test closes connections intentionally.
                std::thread::spawn(move || serve(&stream, &paths).unwrap_or(()));
            }
        });
        Self { address, paths }
    }

    /// Returns the paths of the received requests.
    pub(super) fn paths(&self) -> Vec<String> {
        self.paths.lock().expect("lock poisoned").clone()
    }
}

/// Reads a line and returns it without its line ending, or `None` if the connection was closed.
fn read_line(reader: &mut impl BufRead) -> std::io::Result<Option<String>> {
    let mut bytes = Vec::new();
    if reader.read_until(b'\n', &mut bytes)? == 0 {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&bytes);
    Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
}

/// Parses the digits at the beginning of a text, after spaces, tabs and plus signs. Without digits, returns 0.
fn parse_number(text: &str, radix: u32) -> u64 {
    let digits: String = text
        .trim_start_matches([' ', '\t', '+'])
        .chars()
        .take_while(|char| char.is_digit(radix))
        .collect();
    u64::from_str_radix(&digits, radix).unwrap_or(0)
}

fn serve(stream: &TcpStream, paths: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream.try_clone()?;
    writer.set_nodelay(true)?;
    loop {
        let Some(request_line) = read_line(&mut reader)? else {
            return Ok(());
        };
        if request_line.is_empty() {
            continue;
        }
        let mut words = request_line.split_whitespace();
        let method = words.next().unwrap_or_default().to_owned();
        let path = words.next().unwrap_or_default().to_owned();
        paths.lock().expect("lock poisoned").push(path.clone());
        let mut fields: Vec<(String, String)> = Vec::new();
        while let Some(text) = read_line(&mut reader)? {
            if text.is_empty() {
                break;
            }
            if text.starts_with([' ', '\t'])
                && let Some((_, value)) = fields.last_mut()
            {
                value.push_str(&text);
                continue;
            }
            let (name, value) = text.split_once(':').unwrap_or((&text, ""));
            let name = name.trim().to_ascii_lowercase().replace('_', "-");
            fields.push((name, value.to_ascii_lowercase()));
        }
        let value = |field_name: &str| {
            let mut all = fields.iter().rev();
            all.find(|(name, _)| name == field_name)
                .map(|(_, value)| value.as_str())
        };
        if value("expect").is_some() {
            writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        if value("transfer-encoding").is_some_and(|coding| coding.contains("chunk")) {
            skip_chunks(&mut reader)?;
        } else {
            let length = value("content-length").map_or(0, |length| parse_number(length, 10));
            std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink())?;
        }
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", path.len());
        let body = if method.eq_ignore_ascii_case("head") {
            ""
        } else {
            &path
        };
        writer.write_all(format!("{head}{body}").as_bytes())?;
    }
}

fn skip_chunks(reader: &mut impl BufRead) -> std::io::Result<()> {
    while let Some(text) = read_line(reader)? {
        let size = parse_number(&text, 16);
        if size > 0 {
            std::io::copy(&mut reader.by_ref().take(size), &mut std::io::sink())?;
            read_line(reader)?;
            continue;
        }
        while let Some(trailer) = read_line(reader)? {
            if trailer.is_empty() {
                return Ok(());
            }
        }
    }
    Ok(())
}
