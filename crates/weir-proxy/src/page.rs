//! `error_pages`: files that stand in place of the status in words.

use std::fs::File;
use std::io::{self, Read};

use weir_model::{Desired, ErrorPage, Proxy};

use crate::{Doubt, Error, Result};

/// Octets of a page; it is sent whole, from memory.
const SIZE_MAX: u64 = 64 << 10;

/// A page as it was when the plan was made.
#[derive(Debug)]
pub(crate) struct Page {
    status: Vec<(u16, u16)>,
    /// Its media type.
    pub(crate) kind: &'static str,
    pub(crate) body: Vec<u8>,
}

impl Page {
    /// Those of a service, in its order.
    ///
    /// # Errors
    /// A file cannot be read, or is too large.
    pub(crate) fn read_all(proxy: &Proxy) -> Result<Vec<Self>> {
        let pages = proxy.error_pages.iter().map(|page| {
            let body = read(page).map_err(|source| Error::Page {
                service: proxy.name.clone(),
                file: page.file.clone(),
                source,
            })?;
            Ok(Self {
                status: page.status.clone(),
                kind: kind(&page.file),
                body,
            })
        });
        pages.collect()
    }

    /// The first of them for a status.
    pub(crate) fn of(pages: &[Self], status: u16) -> Option<&Self> {
        pages.iter().find(|page| {
            let mut ranges = page.status.iter();
            ranges.any(|(from, to)| (*from..=*to).contains(&status))
        })
    }
}

fn read(page: &ErrorPage) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    File::open(&page.file)?
        .take(SIZE_MAX + 1)
        .read_to_end(&mut body)?;
    if body.len() as u64 > SIZE_MAX {
        return Err(io::Error::other("it is larger than 64 KiB"));
    }
    Ok(body)
}

/// The media type, as the name says.
fn kind(file: &str) -> &'static str {
    match file.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html" | "htm") => "text/html; charset=utf-8",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

/// Pages of a configuration that neither start nor reload would take.
pub(crate) fn doubts(desired: &Desired) -> Vec<Doubt> {
    let services = desired.proxies.iter();
    let pages = services.flat_map(|proxy| proxy.error_pages.iter().map(move |page| (proxy, page)));
    let doubts = pages.filter_map(|(proxy, page)| {
        let error = read(page).err()?;
        Some(Doubt {
            fatal: true,
            message: format!("service {}: {}: {error}", proxy.name, page.file),
            cause: "neither start nor reload would take it".to_owned(),
            fix: "name a file that the daemon may read, of 64 KiB at most".to_owned(),
            source: page.source,
        })
    });
    doubts.collect()
}
