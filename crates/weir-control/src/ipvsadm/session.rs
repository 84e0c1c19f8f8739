//! Executes one invocation of the command, from its arguments to its exit code.

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::time::Duration;

use weir_ipvsadm::{
    Columns, Command, Edit, EditError, Errno, Exit, List, Listing, Names, ServiceKey,
    format_connections, format_timeouts, parse, read_error, words,
};

use super::direct::OfflineTable;
use crate::client::{self, Client};
use crate::configuration::forwards;
use crate::ipvsadm_message::{Request, Response};
use crate::runtime_dir;
use weir_engine::Paths;
use weir_engine_host::permit_edits;
use weir_model::Family;

/// Maximum number of edits per request. Even a batch of the largest edits fits within the API's body limit.
const MAX_BATCH: usize = 100;

/// Timeout for the daemon's response. The daemon may have to finish a reload first.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The input and output streams of an invocation.
pub struct Streams<'a> {
    /// The input of `-R`.
    pub input: &'a mut dyn BufRead,
    /// The destination for listings.
    pub output: &'a mut dyn Write,
    /// The destination for messages.
    pub errors: &'a mut dyn Write,
}

impl std::fmt::Debug for Streams<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Streams")
    }
}

/// Executes one command line and returns its exit code. `program` is the name under which the command was invoked.
///
/// # Errors
/// Fails if a stream cannot be written.
pub async fn run<'a>(
    paths: &'a Paths,
    program: &'a str,
    arguments: &[String],
    names: &'a dyn Names,
    streams: Streams<'a>,
) -> io::Result<u8> {
    let mut session = Session {
        client: Client::new(&paths.runtime_dir).within(TIMEOUT),
        paths,
        offline: None,
        is_started: false,
        program,
        names,
        streams,
    };
    match session.execute(arguments).await {
        Ok(code) | Err(End::Code(code)) => Ok(code),
        Err(End::Stream(error)) => Err(error),
    }
}

/// The reason why execution ends early.
enum End {
    Code(u8),
    Stream(io::Error),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Stream(error)
    }
}

struct Session<'a> {
    client: Client,
    paths: &'a Paths,
    /// The pinned data plane, once it is known that no daemon is running.
    offline: Option<OfflineTable>,
    /// Whether a request has been sent to the daemon, which opens the layer 4 engine at the first request.
    is_started: bool,
    program: &'a str,
    names: &'a dyn Names,
    streams: Streams<'a>,
}

impl Session<'_> {
    async fn execute(&mut self, arguments: &[String]) -> Result<u8, End> {
        match parse(self.program, arguments, self.names) {
            Ok(Command::Restore) => self.restore().await,
            Ok(Command::Edit(edit)) => self.edits(&[edit]).await,
            Ok(command) => self.show(&command).await,
            Err(exit) => Ok(self.exit(&exit)?),
        }
    }

    fn exit(&mut self, exit: &Exit) -> io::Result<u8> {
        self.streams.output.write_all(exit.stdout.as_bytes())?;
        self.streams.errors.write_all(exit.stderr.as_bytes())?;
        Ok(exit.code)
    }

    /// Asks the engine process of an unprivileged daemon to permit the edits. A privileged daemon has no such process.
    ///
    /// # Errors
    /// Returns a message if the engine process rejects the edits.
    async fn permit(&mut self, edits: &[Edit]) -> Result<(), String> {
        if self.offline.is_some() || permit_edits(&self.paths.runtime_dir, edits)? {
            return Ok(());
        }
        if !std::mem::replace(&mut self.is_started, true)
            && self.client.ipvsadm(&Request::Timeouts).await.is_ok()
        {
            permit_edits(&self.paths.runtime_dir, edits)?;
        }
        Ok(())
    }

    /// Executes edits in order. Returns the exit code of the last edit, or 255 if the edits are not permitted.
    async fn edits(&mut self, edits: &[Edit]) -> Result<u8, End> {
        if let Err(reason) = self.permit(edits).await {
            writeln!(self.streams.errors, "{reason}")?;
            return Ok(255);
        }
        let Response::Edits(results) = self.send(Request::Edits(edits.to_vec())).await? else {
            return Err(self.unavailable("the daemon sent an unexpected response"));
        };
        let mut code = 0;
        for (edit, response) in edits.iter().zip(&results) {
            code = match response {
                Ok(()) => {
                    self.note_disabled_forwarding(edit)?;
                    0
                }
                Err(error) => {
                    writeln!(self.streams.errors, "{}", error.message(edit))?;
                    255
                }
            };
        }
        Ok(code)
    }

    /// Prints a note to the message stream if packets for a new firewall mark service will not reach the service.
    fn note_disabled_forwarding(&mut self, edit: &Edit) -> io::Result<()> {
        let Edit::AddService(service) = edit else {
            return Ok(());
        };
        if !matches!(service.key, ServiceKey::Mark { .. }) {
            return Ok(());
        }
        let (family, key) = match service.key.is_v6() {
            true => (Family::V6, "net.ipv6.conf.all.forwarding"),
            false => (Family::V4, "net.ipv4.ip_forward"),
        };
        if forwards(family) == Some(false) {
            let note = format!(
                "note: {family} forwarding is disabled: packets with the mark are not balanced; set {key} = 1"
            );
            writeln!(self.streams.errors, "{}: {note}", self.program)?;
        }
        Ok(())
    }

    async fn show(&mut self, command: &Command) -> Result<u8, End> {
        let text = match command {
            Command::List(List::Connections, columns) => {
                match self.send(Request::Connections).await? {
                    Response::Connections(rows) => format_connections(&rows, *columns, self.names),
                    _ => return Err(self.unavailable("the daemon sent an unexpected response")),
                }
            }
            Command::List(List::Timeouts, _) => match self.send(Request::Timeouts).await? {
                Response::Timeouts(seconds) => format_timeouts(seconds),
                _ => return Err(self.unavailable("the daemon sent an unexpected response")),
            },
            Command::List(List::Daemons, _) => match self.send(Request::Daemons).await? {
                Response::Daemons(text) => text,
                _ => return Err(self.unavailable("the daemon sent an unexpected response")),
            },
            Command::List(List::Service(key), columns) => {
                let listing = self.listing().await?;
                let Some(text) = listing.format_service(key, *columns, self.names) else {
                    let error = EditError::from(Errno::NoService);
                    let message = error.message(&Edit::Zero(None)).to_owned();
                    writeln!(self.streams.errors, "{message}")?;
                    return Ok(1);
                };
                self.note_sctp_services(&listing, Some(key))?;
                text
            }
            Command::List(List::All, columns) => {
                let listing = self.listing().await?;
                self.note_sctp_services(&listing, None)?;
                listing.format_all(*columns, self.names)
            }
            Command::Save(Columns { numeric, .. }) => {
                self.listing().await?.save(*numeric, self.names)
            }
            Command::Edit(_) | Command::Restore => String::new(),
        };
        self.streams.output.write_all(text.as_bytes())?;
        Ok(0)
    }

    /// Prints a note about SCTP services to the message stream, because the listing itself must match ipvsadm's byte
    /// for byte.
    fn note_sctp_services(
        &mut self,
        listing: &Listing,
        key: Option<&ServiceKey>,
    ) -> io::Result<()> {
        const NOTE: &str =
            "note: SCTP services are kept and listed; their packets are not balanced";
        if listing.has_sctp(key) {
            writeln!(self.streams.errors, "{}: {NOTE}", self.program)?;
        }
        Ok(())
    }

    async fn listing(&mut self) -> Result<Listing, End> {
        match self.send(Request::Listing).await? {
            Response::Listing(listing) => Ok(listing),
            _ => Err(self.unavailable("the daemon sent an unexpected response")),
        }
    }

    /// Executes `-R`, whose input contains one command line per line. If the table rejects a command, or a line
    /// contains an invalid option, reports this and continues with the next line. Any other error ends the execution.
    /// Returns the exit code of the last line.
    async fn restore(&mut self) -> Result<u8, End> {
        let (mut code, mut edits) = (0, Vec::new());
        let mut line = Vec::new();
        loop {
            line.clear();
            match self.streams.input.read_until(b'\n', &mut line) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => {
                    let text = read_error(&error);
                    self.streams.errors.write_all(text.as_bytes())?;
                    return Err(End::Code(1));
                }
            }
            let arguments = words(&String::from_utf8_lossy(&line));
            if arguments.is_empty() {
                continue;
            }
            let command = parse(self.program, &arguments, self.names);
            if let Ok(Command::Edit(edit)) = command {
                edits.push(edit);
                if edits.len() == MAX_BATCH {
                    code = self.edits(&std::mem::take(&mut edits)).await?;
                }
                continue;
            }
            if !edits.is_empty() {
                self.edits(&std::mem::take(&mut edits)).await?;
            }
            code = match command {
                Ok(Command::Restore) => {
                    let exit = Exit::try_help(self.program);
                    return Err(End::Code(self.exit(&exit)?));
                }
                Ok(command) => self.show(&command).await?,
                Err(exit) if exit.continues => self.exit(&exit)?,
                Err(exit) => return Err(End::Code(self.exit(&exit)?)),
            };
        }
        if edits.is_empty() {
            return Ok(code);
        }
        self.edits(&edits).await
    }

    /// Sends a request to the daemon, or executes it on the pinned data plane.
    async fn send(&mut self, request: Request) -> Result<Response, End> {
        if self.offline.is_none() {
            match self.client.ipvsadm(&request).await {
                Ok(response) => return Ok(response),
                Err(client::Error::NoDaemon { path }) => match OfflineTable::open(self.paths) {
                    Ok(table) => self.offline = Some(table),
                    // A daemon that starts locks the directory before it listens.
                    Err(_) if runtime_dir::is_locked(&self.paths.runtime_dir) => {
                        return Err(self.starting(&path));
                    }
                    Err(cause) => {
                        let path = path.display();
                        return Err(self.unavailable(&format!(
                            "no daemon is listening on {path}, and the request cannot be executed \
                             without a daemon: {cause}"
                        )));
                    }
                },
                Err(client::Error::Denied { .. }) => {
                    let error = EditError::from(Errno::Permission);
                    let message = error.message(&Edit::Clear).to_owned();
                    return Err(self.unavailable(&message));
                }
                Err(error) => return Err(self.unavailable(&error.to_string())),
            }
        }
        let Some(table) = &mut self.offline else {
            return Err(End::Code(2));
        };
        match table.send(&request).await {
            Ok(response) => Ok(response),
            Err(cause) => Err(self.unavailable(&cause)),
        }
    }

    fn unavailable(&mut self, cause: &str) -> End {
        self.end_with(&format!(
            "{cause}\nAre you sure that Weir is or was running on this machine?"
        ))
    }

    fn starting(&mut self, socket: &Path) -> End {
        let socket = socket.display();
        self.end_with(&format!(
            "no daemon is listening on {socket} yet, but one is starting: try again when its log reports that it is \
             ready"
        ))
    }

    fn end_with(&mut self, cause: &str) -> End {
        match writeln!(self.streams.errors, "Can't initialize ipvs: {cause}") {
            Ok(()) => End::Code(2),
            Err(error) => End::Stream(error),
        }
    }
}
