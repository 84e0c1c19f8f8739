//! Queries the BGP speaker of a router with its command-line tool.
//!
//! Each command has a time limit, and its output a size limit.

use std::net::IpAddr;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::time::timeout;

use super::error::RouterError;
use super::path::{RouteEntry, Speaker};
use super::{bird, frr};

/// Time limit for a command. Listing a full table takes a few seconds.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Maximum size of a command's output, in bytes.
const MAX_OUTPUT_BYTES: usize = 16 << 20;
/// Maximum length of the part of the output that an error quotes, in characters.
const MAX_QUOTE_CHARS: usize = 200;

/// Runs the commands of a speaker.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) speaker: Speaker,
    /// FRR: the router's AS number; `None` = BGP is not configured.
    pub(super) as_number: Option<u32>,
    command: Vec<String>,
    /// Time limit for a command.
    time_limit: Duration,
}

impl Client {
    /// Finds the speaker. `command` is the command line of `birdc` or `vtysh`, split at spaces; `None` = the one that
    /// responds, BIRD first.
    ///
    /// # Errors
    /// Returns an error if no speaker responds, or if the command line contains neither `birdc` nor `vtysh`.
    pub(super) async fn connect(command: Option<&str>) -> Result<Self, RouterError> {
        if let Some(line) = command {
            let command: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let speaker = speaker_of(&command).ok_or_else(|| RouterError::UnknownCommand {
                command: line.to_owned(),
            })?;
            return Self::probe(speaker, command).await;
        }
        let bird = match Self::probe(Speaker::Bird, vec!["birdc".to_owned()]).await {
            Ok(client) => return Ok(client),
            Err(error) => error.to_string(),
        };
        match Self::probe(Speaker::Frr, vec!["vtysh".to_owned()]).await {
            Ok(client) => Ok(client),
            Err(error) => Err(RouterError::NoSpeaker {
                bird,
                frr: error.to_string(),
            }),
        }
    }

    async fn probe(speaker: Speaker, command: Vec<String>) -> Result<Self, RouterError> {
        let mut client = Self {
            speaker,
            as_number: None,
            command,
            time_limit: TIME_LIMIT,
        };
        match speaker {
            Speaker::Bird => {
                let text = client.run(&["show", "status"]).await?;
                if !text.contains("BIRD") {
                    return Err(client.rejection(&text));
                }
            }
            Speaker::Frr => {
                let text = client.run(&[frr::SUMMARY]).await?;
                let number = frr::parse_as_number(&text);
                client.as_number = number.map_err(|line| client.rejection(&line))?;
            }
        }
        Ok(client)
    }

    /// Returns the single addresses to which BGP has more than one path, in order.
    ///
    /// # Errors
    /// Returns an error if the speaker does not respond, if it rejects a command, or if its table is too large.
    pub(super) async fn vips(&self) -> Result<Vec<IpAddr>, RouterError> {
        let mut vips = match self.speaker {
            Speaker::Bird => {
                let text = self.run(&bird::LIST).await?;
                let entries = bird::parse(&text).map_err(|line| self.rejection(&line))?;
                let entries = entries.into_iter();
                let vips = entries.filter(|entry| entry.is_host() && entry.paths.len() > 1);
                vips.map(|entry| entry.address).collect::<Vec<_>>()
            }
            Speaker::Frr => {
                let mut vips = Vec::new();
                for command in frr::list_commands() {
                    let text = self.run(&[&command]).await?;
                    vips.extend(frr::parse_list(&text).map_err(|line| self.rejection(&line))?);
                }
                vips
            }
        };
        vips.sort_unstable();
        vips.dedup();
        Ok(vips)
    }

    /// Returns the routes to the longest prefix that contains a VIP. `None` = there is no route.
    ///
    /// # Errors
    /// Returns an error if the speaker does not respond, or if it rejects a command.
    pub(super) async fn route(&self, vip: IpAddr) -> Result<Option<RouteEntry>, RouterError> {
        match self.speaker {
            Speaker::Bird => {
                let arguments = bird::route_arguments(vip);
                let text = match self.run(&arguments.each_ref().map(String::as_str)).await {
                    Err(RouterError::Rejected { reply, .. }) if reply == bird::NOT_FOUND => {
                        return Ok(None);
                    }
                    text => text?,
                };
                let entries = bird::parse(&text).map_err(|line| self.rejection(&line))?;
                Ok(entries.into_iter().next())
            }
            Speaker::Frr => {
                let commands = frr::host_commands(vip);
                let text = self.run(&commands.each_ref().map(String::as_str)).await?;
                let entry = frr::parse_route(&text).map_err(|line| self.rejection(&line))?;
                if entry.is_some() {
                    return Ok(entry);
                }
                let text = self.run(&[&frr::covering_command(vip)]).await?;
                frr::parse_route(&text).map_err(|line| self.rejection(&line))
            }
        }
    }

    /// Returns the command line of the speaker's tool.
    pub(super) fn command_line(&self) -> String {
        self.command.join(" ")
    }

    /// Runs one BIRD command or several FRR commands, and returns the output.
    async fn run(&self, arguments: &[&str]) -> Result<String, RouterError> {
        let (program, options) = self.command.split_first().expect("the command is empty");
        let mut command = Command::new(program);
        command.args(options);
        match self.speaker {
            // Restricted: BIRD rejects commands that change something.
            Speaker::Bird => command.arg("-r").args(arguments),
            Speaker::Frr => command.args(arguments.iter().flat_map(|it| ["-c", it])),
        };
        let program_error = |source| RouterError::Program {
            program: program.clone(),
            source,
        };
        let output = timeout(self.time_limit, run_bounded(command)).await;
        let output = output.map_err(|_| RouterError::Timeout {
            program: program.clone(),
            limit: self.time_limit,
        })?;
        let Some((status, stdout, stderr)) = output.map_err(program_error)? else {
            return Err(RouterError::TooLong {
                speaker: self.speaker.to_string(),
                mebibytes: MAX_OUTPUT_BYTES >> 20,
            });
        };
        let text = String::from_utf8_lossy(&stdout).into_owned();
        if status.success() {
            return Ok(text);
        }
        let errors = String::from_utf8_lossy(&stderr);
        Err(match (errors.trim(), text.trim()) {
            ("", "") => self.rejection(&status.to_string()),
            ("", text) => self.rejection(text),
            (errors, _) => self.rejection(errors),
        })
    }

    fn rejection(&self, reply: &str) -> RouterError {
        let line = reply.trim().lines().next_back().unwrap_or_default();
        RouterError::Rejected {
            program: self.command[0].clone(),
            reply: line
                .trim_end_matches('.')
                .chars()
                .take(MAX_QUOTE_CHARS)
                .collect(),
        }
    }
}

/// Returns the speaker of a command line, which can begin with another program, such as `docker exec frr vtysh`.
fn speaker_of(command: &[String]) -> Option<Speaker> {
    let mut names = command
        .iter()
        .filter_map(|word| Path::new(word).file_name());
    names.find_map(|name| match name.to_str()? {
        "birdc" | "birdcl" => Some(Speaker::Bird),
        "vtysh" => Some(Speaker::Frr),
        _ => None,
    })
}

/// Runs a command and returns its exit status, its output and its errors. `None` = the output is too long. Kills the
/// program if the future is dropped or the output is too long.
async fn run_bounded(
    mut command: Command,
) -> Result<Option<(ExitStatus, Vec<u8>, Vec<u8>)>, std::io::Error> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let outputs = tokio::try_join!(read_bounded(stdout), read_bounded(stderr));
    match outputs {
        Ok((stdout, stderr)) => Ok(Some((child.wait().await?, stdout, stderr))),
        Err(ReadFailure::TooLong) => Ok(None),
        Err(ReadFailure::Io(error)) => Err(error),
    }
}

/// Why the output was not read.
enum ReadFailure {
    TooLong,
    Io(std::io::Error),
}

async fn read_bounded(pipe: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, ReadFailure> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        let mut reader = pipe.take(MAX_OUTPUT_BYTES as u64 + 1);
        let result = reader.read_to_end(&mut bytes).await;
        result.map_err(ReadFailure::Io)?;
    }
    match bytes.len() > MAX_OUTPUT_BYTES {
        true => Err(ReadFailure::TooLong),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speaker_is_recognized_by_program_name() {
        for (line, speaker) in [
            ("birdc -s /run/bird/b.ctl", Some(Speaker::Bird)),
            ("/usr/sbin/birdcl", Some(Speaker::Bird)),
            ("docker exec frr vtysh", Some(Speaker::Frr)),
            ("gobgp", None),
            ("", None),
        ] {
            let command: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            assert_eq!(speaker_of(&command), speaker, "{line:?}");
        }
    }

    /// Returns a client of FRR. Its command is a shell script that gets the arguments of vtysh.
    fn client(script: &str) -> Client {
        Client {
            speaker: Speaker::Frr,
            as_number: None,
            command: ["sh", "-c", script].map(str::to_owned).into(),
            time_limit: TIME_LIMIT,
        }
    }

    #[tokio::test]
    async fn output_is_bounded() {
        let error = client("exec cat /dev/zero").run(&[]).await.unwrap_err();
        assert!(matches!(error, RouterError::TooLong { .. }), "{error}");
    }

    #[tokio::test]
    async fn hanging_command_times_out() {
        let client = Client {
            time_limit: Duration::from_millis(50),
            ..client("exec sleep 1000")
        };
        let error = client.run(&[]).await.unwrap_err();
        assert!(matches!(error, RouterError::Timeout { .. }), "{error}");
    }

    #[tokio::test]
    async fn errors_of_the_program_are_reported() {
        let error = client("echo 'Exiting: failed to connect to any daemons.' >&2; exit 1");
        let error = error.run(&[]).await.unwrap_err().to_string();
        assert_eq!(error, "sh: Exiting: failed to connect to any daemons");
        let missing = Client::connect(Some("/nonexistent/birdc")).await;
        let missing = missing.unwrap_err().to_string();
        assert!(
            missing.starts_with("/nonexistent/birdc: No such file"),
            "{missing}"
        );
        let unknown = Client::connect(Some("gobgp"))
            .await
            .unwrap_err()
            .to_string();
        assert!(unknown.contains("\"gobgp\""), "{unknown}");
    }
}
