//! Reads `error_pages`: files that replace the default text of responses that Weir generates.
//!
//! A file that starts with a status line is a whole response, like HAProxy's error files. Only its body and its
//! `Content-Type` are used.

use std::io::{self, Read};
use std::path::Path;

use weir_model::{Desired, ErrorResponse, Proxy};

use crate::error::{Error, Result};
use crate::tls::Problem;

/// Maximum size of a page in bytes. A page is kept in memory and sent as a whole.
const SIZE_MAX: u64 = 64 << 10;

/// An error page, as read when the plan was built.
#[derive(Debug)]
pub(crate) struct Page {
    status: Vec<(u16, u16)>,
    pub(crate) content: Content,
}

/// The content of an error page.
#[derive(Debug)]
pub(crate) enum Content {
    /// A body and its media type.
    Body { media_type: String, body: Vec<u8> },
    /// A redirect.
    Redirect { to: String, status: u16 },
    /// Nothing: the connection is closed.
    Close,
}

impl Page {
    /// Reads a service's pages, in configuration order.
    ///
    /// # Errors
    /// Fails if a file cannot be read, is too large, or is not a valid response.
    pub(crate) fn read_all(proxy: &Proxy) -> Result<Vec<Self>> {
        let pages = proxy.error_pages.iter().map(|page| {
            let content = match &page.response {
                ErrorResponse::File(file) => {
                    let (media_type, body) = read_page(file).map_err(|source| Error::Page {
                        service: proxy.name.clone(),
                        file: file.clone(),
                        source,
                    })?;
                    Content::Body { media_type, body }
                }
                ErrorResponse::Redirect { to, status } => Content::Redirect {
                    to: to.clone(),
                    status: *status,
                },
                ErrorResponse::Close => Content::Close,
            };
            Ok(Self {
                status: page.status.clone(),
                content,
            })
        });
        pages.collect()
    }

    /// Returns whether Weir closes the connection instead of sending a response.
    pub(crate) const fn is_close(&self) -> bool {
        matches!(self.content, Content::Close)
    }

    /// Returns the first page for a status.
    pub(crate) fn find(pages: &[Self], status: u16) -> Option<&Self> {
        pages.iter().find(|page| {
            let mut ranges = page.status.iter();
            ranges.any(|(first, last)| (*first..=*last).contains(&status))
        })
    }
}

/// Reads a page's media type and body.
fn read_page(file: &str) -> io::Result<(String, Vec<u8>)> {
    let mut body = Vec::new();
    weir_sys::privileged::open(Path::new(file))?
        .take(SIZE_MAX + 1)
        .read_to_end(&mut body)?;
    if body.len() as u64 > SIZE_MAX {
        return Err(io::Error::other("the file is larger than 64 KiB"));
    }
    if !body.starts_with(b"HTTP/1.") {
        return Ok((media_type(file).to_owned(), body));
    }
    parse_response(&body).ok_or_else(|| {
        io::Error::other("the file begins with a status line but is not a valid HTTP response")
    })
}

/// Parses a whole response. Its lines may end in LF or CR LF. Returns the media type and the body.
fn parse_response(text: &[u8]) -> Option<(String, Vec<u8>)> {
    const TYPE: &str = "content-type:";
    let (mut media_type, mut offset) = (None, 0);
    loop {
        let len = text[offset..].iter().position(|byte| *byte == b'\n')?;
        let line = std::str::from_utf8(&text[offset..offset + len])
            .ok()?
            .trim_end();
        offset += len + 1;
        if line.is_empty() {
            break;
        }
        if line.contains(|byte: char| byte.is_control() && byte != '\t') {
            return None;
        }
        if let Some(name) = line.get(..TYPE.len())
            && name.eq_ignore_ascii_case(TYPE)
        {
            media_type = Some(line[TYPE.len()..].trim().to_owned());
        }
    }
    let media_type = media_type.filter(|media_type| !media_type.is_empty())?;
    Some((media_type, text[offset..].to_vec()))
}

/// Returns the media type for the file's extension.
fn media_type(file: &str) -> &'static str {
    match file.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html" | "htm") => "text/html; charset=utf-8",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

/// Returns a problem for each page that would make a start or reload fail.
pub(crate) fn problems(desired: &Desired) -> Vec<Problem> {
    let services = desired.proxies.iter();
    let pages = services.flat_map(|proxy| proxy.error_pages.iter().map(move |page| (proxy, page)));
    let problems = pages.filter_map(|(proxy, page)| {
        let ErrorResponse::File(file) = &page.response else {
            return None;
        };
        let error = read_page(file).err()?;
        Some(Problem {
            fatal: true,
            message: format!("service {}: {file}: {error}", proxy.name),
            cause: "the daemon cannot start or reload with this configuration".to_owned(),
            fix: "use a file of at most 64 KiB that the daemon can read".to_owned(),
            source: page.source,
        })
    });
    problems.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_response_is_split_into_type_and_body() {
        let file = b"HTTP/1.0 503 Service Unavailable\r\nCache-Control: no-cache\r\ncontent-TYPE:  text/html\r\n\r\n<p>\r\n\r\nlater";
        let (media_type, body) = parse_response(file).unwrap();
        assert_eq!(
            (media_type.as_str(), body.as_slice()),
            ("text/html", &b"<p>\r\n\r\nlater"[..])
        );
        let unix = b"HTTP/1.0 503 No\nContent-Type: text/plain\n\nlater";
        assert_eq!(parse_response(unix).unwrap().1, b"later");
        for invalid in [
            &b"HTTP/1.0 503 No\r\nContent-Type: text/html"[..],
            b"HTTP/1.0 503 No\r\n\r\nno type",
            b"HTTP/1.0 503 No\r\nContent-Type: a\rX: y\r\n\r\n",
            b"HTTP/1.\xff\n\n",
        ] {
            assert_eq!(parse_response(invalid), None);
        }
    }
}
