//! Chooses free loopback addresses for programs under test, which bind them some time later.
//!
//! A port that the kernel has assigned to a socket can be assigned to another one once the first socket is closed.
//! These ports therefore come from a range that the kernel does not assign from, and each test process locks a block of
//! the range.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Ports of all blocks: below the kernel's default range for automatically assigned ports (32768 to 60999).
const PORTS: Range<u16> = 10_000..32_000;

/// Number of ports in a block. A process that needs more ports locks another block.
const BLOCK_PORTS: u16 = 250;

/// The blocks of this process; the last one is in use. The lock files stay open until the process exits.
static BLOCKS: Mutex<Vec<Block>> = Mutex::new(Vec::new());

struct Block {
    unused: Range<u16>,
    _lock: File,
}

/// Returns an address on 127.0.0.1 that has no listener. No two calls return the same address, even in two processes
/// that run at the same time.
///
/// # Panics
/// All blocks are locked, or a lock file cannot be created.
#[must_use]
pub fn free_address() -> SocketAddr {
    let mut blocks = BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let unused = blocks.last_mut().and_then(|block| block.unused.next());
        let Some(port) = unused else {
            blocks.push(lock_block());
            continue;
        };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        // A program that is not a test may be listening on this port.
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// Locks a block that no process has locked.
fn lock_block() -> Block {
    let user = rustix::process::geteuid().as_raw();
    let directory = std::env::temp_dir().join(format!("weir-test-ports-{user}"));
    fs::create_dir_all(&directory).expect("create the directory of the locks");
    let first = first_ephemeral_port().min(PORTS.end);
    for start in (PORTS.start..first).step_by(usize::from(BLOCK_PORTS)) {
        let lock = File::create(directory.join(start.to_string())).expect("create a lock file");
        if lock.try_lock().is_ok() {
            let unused = start..first.min(start + BLOCK_PORTS);
            return Block {
                unused,
                _lock: lock,
            };
        }
    }
    panic!("all ports of {PORTS:?} below {first} are locked by other tests");
}

/// Returns the first port that the kernel assigns automatically.
fn first_ephemeral_port() -> u16 {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first = range.split_whitespace().next();
    first
        .and_then(|port| port.parse().ok())
        .unwrap_or(PORTS.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_differ_and_can_be_bound() {
        let count = usize::from(BLOCK_PORTS) + 10;
        let addresses: Vec<SocketAddr> = (0..count).map(|_| free_address()).collect();
        let listeners: Vec<_> = addresses.iter().map(TcpListener::bind).collect();
        assert!(listeners.iter().all(Result::is_ok), "{listeners:?}");
        assert!(
            addresses
                .iter()
                .all(|address| PORTS.contains(&address.port()))
        );
    }

    #[test]
    fn locked_blocks_are_not_shared() {
        let (first, second) = (lock_block(), lock_block());
        assert!(first.unused.end <= second.unused.start || second.unused.end <= first.unused.start);
    }
}
