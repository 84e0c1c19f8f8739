//! What Weir answers itself, when it has no server's response to pass on.

/// The reason phrase of a status that Weir sends: all that are registered, since routes answer with any.
pub const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        208 => "Already Reported",
        226 => "IM Used",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        305 => "Use Proxy",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        418 => "I'm a Teapot",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        423 => "Locked",
        424 => "Failed Dependency",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        506 => "Variant Also Negotiates",
        507 => "Insufficient Storage",
        508 => "Loop Detected",
        511 => "Network Authentication Required",
        _ => "Unnamed",
    }
}

/// An answer of Weir's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer<'a> {
    /// 200 to 599.
    pub status: u16,
    /// Value of `Location`, of a redirect.
    pub location: Option<&'a [u8]>,
    /// The body; `None` = the status in words.
    pub body: Option<&'a [u8]>,
    /// What the body is, as `Content-Type` has it.
    pub kind: &'a str,
    /// Seconds after which it is worth asking again.
    pub retry_after: Option<u32>,
    /// The connection ends with it.
    pub close: bool,
    /// It answers HEAD: the length is told, the body is not sent.
    pub to_head: bool,
    /// The client speaks HTTP/1.0 and must be told that the connection stays.
    pub http10: bool,
}

impl<'a> Answer<'a> {
    /// Text, as its kind.
    pub const PLAIN: &'static str = "text/plain; charset=utf-8";

    /// The status in words, after which the connection ends.
    pub const fn closing(status: u16) -> Self {
        Answer {
            status,
            location: None,
            body: None,
            kind: Self::PLAIN,
            retry_after: None,
            close: true,
            to_head: false,
            http10: false,
        }
    }

    /// Appends it.
    pub fn write(&self, out: &mut Vec<u8>) {
        let line = format!("{} {}", self.status, reason(self.status));
        let own = format!("{line}\n");
        let body = self.body.unwrap_or(own.as_bytes());
        out.extend_from_slice(format!("HTTP/1.1 {line}\r\n").as_bytes());
        if let Some(location) = self.location {
            out.extend_from_slice(b"Location: ");
            out.extend_from_slice(location);
            out.extend_from_slice(b"\r\n");
        }
        if let Some(seconds) = self.retry_after {
            out.extend_from_slice(format!("Retry-After: {seconds}\r\n").as_bytes());
        }
        if self.status != 204 {
            let length = body.len();
            out.extend_from_slice(
                format!(
                    "Content-Type: {}\r\nContent-Length: {length}\r\n",
                    self.kind
                )
                .as_bytes(),
            );
        }
        if self.status == 405 {
            // RFC 9110 section 15.5.6 wants it; CONNECT is the only method that Weir refuses.
            out.extend_from_slice(
                b"Allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, TRACE\r\n",
            );
        }
        match (self.close, self.http10) {
            (true, _) => out.extend_from_slice(b"Connection: close\r\n"),
            (false, true) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
            (false, false) => {}
        }
        out.extend_from_slice(b"\r\n");
        if !self.to_head && self.status != 204 {
            out.extend_from_slice(body);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(answer: &Answer<'_>) -> String {
        let mut out = Vec::new();
        answer.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_error_tells_its_length_and_closes() {
        assert_eq!(
            written(&Answer::closing(503)),
            "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 24\r\n\
             Connection: close\r\n\r\n503 Service Unavailable\n"
        );
    }

    #[test]
    fn an_answer_to_head_has_no_body() {
        let answer = Answer {
            to_head: true,
            close: false,
            ..Answer::closing(404)
        };
        assert!(written(&answer).ends_with("Content-Length: 14\r\n\r\n"));
    }

    #[test]
    fn what_a_route_may_answer_has_its_phrase() {
        for (status, line) in [
            (401, "HTTP/1.1 401 Unauthorized\r\n"),
            (451, "HTTP/1.1 451 Unavailable For Legal Reasons\r\n"),
            (599, "HTTP/1.1 599 Unnamed\r\n"),
        ] {
            let text = written(&Answer::closing(status));
            assert!(text.starts_with(line), "{text}");
        }
    }

    #[test]
    fn no_content_has_no_length() {
        let answer = Answer {
            close: false,
            ..Answer::closing(204)
        };
        assert_eq!(written(&answer), "HTTP/1.1 204 No Content\r\n\r\n");
    }
}
