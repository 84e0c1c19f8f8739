//! Drives ExaBGP: writes commands to ExaBGP's named pipe.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use super::{Change, prefix};
use crate::error::Result;
use crate::{Error, Quality};

/// Writes the commands for a change to the pipe.
pub(super) fn apply(pipe: &Path, change: &Change<'_>) -> Result<()> {
    let failed = |source| Error::File {
        path: pipe.to_owned(),
        source,
    };
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(flags.bits().cast_signed());
    // This fails if no process reads the pipe, for example because ExaBGP is not running.
    let mut file = options.open(pipe).map_err(failed)?;
    if !file.metadata().map_err(failed)?.file_type().is_fifo() {
        return Err(failed(std::io::Error::other("not a named pipe")));
    }
    for line in commands(change) {
        file.write_all(line.as_bytes()).map_err(failed)?;
    }
    Ok(())
}

/// Returns the commands for a change, one per line. Lines are shorter than `PIPE_BUF`, so each write is atomic.
pub(super) fn commands(change: &Change<'_>) -> Vec<String> {
    let removed = change.removed.iter();
    let removed = removed.map(|vip| format!("withdraw route {}\n", route(*vip)));
    let added = change.added.iter();
    let added = added.map(|(vip, quality)| announce_command(change, *vip, *quality));
    removed.chain(added).collect()
}

fn announce_command(change: &Change<'_>, vip: IpAddr, quality: Quality) -> String {
    let communities: Vec<String> = change
        .communities(quality)
        .map(|it| it.to_string())
        .collect();
    let communities = match communities.as_slice() {
        [] => String::new(),
        communities => format!(" community [{}]", communities.join(" ")),
    };
    format!("announce route {} origin igp{communities}\n", route(vip))
}

fn route(vip: IpAddr) -> String {
    format!("{} next-hop self", prefix(vip))
}
