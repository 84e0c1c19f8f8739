//! Defines the command line.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, Args, Parser, Subcommand, ValueEnum};
use weir_control::api::Role;
use weir_lab::LabCommand;
use weir_model::Forward;
use weir_real_server::{PrefixArgument, TunnelArgument, VipArgument};

use crate::failure::Failure;

const DEFAULT_CONFIG: &str = "/etc/weir/weir.toml";
const DEFAULT_RUNTIME_DIR: &str = "/run/weir";
const DEFAULT_PIN_DIR: &str = "/sys/fs/bpf/weir";

/// One load balancer for Linux, from packet to request.
#[derive(Debug, Parser)]
#[command(
    name = "weir",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: GlobalOptions,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options for every command: the paths that one director uses. Several directors can run on one machine with different
/// paths.
#[derive(Debug, Args)]
pub(crate) struct GlobalOptions {
    /// Configuration file [default: /etc/weir/weir.toml; reload, plan and explain: the daemon's current file]
    #[arg(
        short,
        long,
        global = true,
        value_name = "FILE",
        env = "WEIR_CONFIG",
        hide_env_values = true
    )]
    pub(crate) config: Option<PathBuf>,
    /// Directory of the control socket and the state files
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "WEIR_RUNTIME_DIR",
        hide_env_values = true,
        default_value = DEFAULT_RUNTIME_DIR
    )]
    pub(crate) runtime_dir: PathBuf,
    /// Directory of pinned BPF programs and maps
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "WEIR_PIN_DIR",
        hide_env_values = true,
        default_value = DEFAULT_PIN_DIR
    )]
    pub(crate) pin_dir: PathBuf,
}

impl GlobalOptions {
    /// Returns the configuration file path; the default is [`DEFAULT_CONFIG`].
    pub(crate) fn config(&self) -> &Path {
        self.config.as_deref().unwrap_or(Path::new(DEFAULT_CONFIG))
    }

    /// Returns the paths from environment variables only, without a command line.
    pub(crate) fn from_environment() -> Self {
        let path = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let or_default =
            |path: Option<PathBuf>, default: &str| path.unwrap_or_else(|| default.into());
        Self {
            config: path("WEIR_CONFIG"),
            runtime_dir: or_default(path("WEIR_RUNTIME_DIR"), DEFAULT_RUNTIME_DIR),
            pin_dir: or_default(path("WEIR_PIN_DIR"), DEFAULT_PIN_DIR),
        }
    }

    /// Returns the options that select this director's directories, for a command line in a message. The text is empty
    /// for the default directories.
    pub(crate) fn directory_options(&self) -> String {
        let option = |name: &str, path: &Path, default: &str| match path == Path::new(default) {
            true => String::new(),
            false => format!(" {name} {}", path.display()),
        };
        option("--runtime-dir", &self.runtime_dir, DEFAULT_RUNTIME_DIR)
            + &option("--pin-dir", &self.pin_dir, DEFAULT_PIN_DIR)
    }

    /// Returns the absolute configuration file path, to pass to another process; `None` = no file was specified.
    pub(crate) fn absolute_config(&self) -> Result<Option<PathBuf>, Failure> {
        let absolute = self.config.as_deref().map(std::path::absolute);
        Ok(absolute.transpose()?)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the daemon in the foreground
    Run,
    /// Validate a configuration without applying it
    Check {
        /// Also exit with 1 on warnings
        #[arg(long)]
        strict: bool,
        /// Print the findings as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what a reload would change, and how many live flows it would affect
    Plan {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Apply a configuration
    Reload {
        /// Watch for this long, and roll back if errors or failed checks increase
        #[arg(long, value_name = "TIME", value_parser = parse_duration)]
        guard: Option<Duration>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show services and servers, with their states and flows
    Status {
        /// Show only this pool, with the reason for the state of each server
        pool: Option<String>,
        /// Show only servers that are down or ejected
        #[arg(long)]
        down: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Refresh every second, and show rates
        #[arg(long)]
        watch: bool,
    },
    /// Show which service, pool and server handle a packet or request, and why; or explain the code of a diagnostic
    Explain(Explain),
    /// Change a server's state or weight at run time
    Server(Server),
    /// Remove the programs, maps and addresses that Weir left in the kernel
    Clean {
        /// Continue if a change made by `real-server` cannot be undone, or if the daemon ran in a different network
        /// namespace (its objects there are not removed)
        #[arg(long)]
        force: bool,
    },
    /// Print the JSON Schema of the configuration
    Schema,
    /// Configure this machine as a server for direct, tunnel and l3dsr
    RealServer {
        #[command(subcommand)]
        command: RealServer,
    },
    /// Run experiments that compare Weir with other programs, in network namespaces
    #[command(args(hidden_global_options()))]
    Lab {
        #[command(subcommand)]
        command: LabCommand,
    },
    /// ipvsadm-compatible command line
    Ipvsadm(UnparsedArguments),
    /// Translate another load balancer's configuration into weir.toml
    Import(Import),
    /// Upgrade the running daemon to another binary without dropping connections
    Upgrade {
        /// The new binary [default: this program's file]
        path: Option<PathBuf>,
    },
    /// Hold new connections while a command runs
    Protect(Protect),
    /// Find problems that would break load balancing on this machine
    Doctor(DirectorDoctor),
    /// Manage tokens for the HTTP API over TCP
    Token {
        #[command(subcommand)]
        action: TokenAction,
    },
    /// Show virtual routers; release or resume one
    Vrrp(Vrrp),
    /// Run virtual routers; started by `weir run`
    #[command(hide = true)]
    VrrpAgent {
        /// Wait for SIGUSR1 before doing anything
        #[arg(long)]
        standby: bool,
    },
    /// Perform privileged operations for another process; started by `weir run`
    #[command(hide = true)]
    Helper {
        /// Keep the addresses of a previous helper
        #[arg(long)]
        adopt: bool,
        /// Serve the daemon instead of the VRRP agent
        #[arg(long)]
        daemon: bool,
        /// Run the daemon's layer 4 engine
        #[arg(long)]
        engine: bool,
        /// Start helpers for an unprivileged keeper; started by the service manager
        #[arg(long)]
        service: bool,
    },
    /// Announce VIPs over BGP; started by `weir run`
    #[command(hide = true)]
    Announcer,
    /// Print the completion script for a shell, or write man pages
    Generate {
        #[command(subcommand)]
        output: Generate,
    },
    /// Show a live view of services, pools and servers, with keys to drain servers
    Top,
    /// Show requests to a proxy service as they complete
    Tap(Tap),
    /// Show or change the levels of the daemon's log
    Log {
        /// LEVEL or LEVEL,TARGET=LEVEL,…: off, error, warn, info, debug or trace; a target is a crate or module
        #[arg(value_name = "LEVEL[,TARGET=LEVEL…]")]
        filter: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Rewrite a configuration file in canonical form; comments are kept
    Fmt {
        /// File to change; - = from standard input to standard output [default: the configuration file]
        file: Option<PathBuf>,
        /// Change nothing; exit with 1 if the file is not in canonical form
        #[arg(long)]
        check: bool,
    },
    /// Move traffic away from this director: withdraw announced routes, release virtual routers
    Node {
        /// drain: move traffic away until `ready`, even across restarts; ready: accept traffic again
        action: NodeAction,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Manage the group of directors: its members and its configuration
    Cluster {
        #[command(subcommand)]
        command: Cluster,
    },
}

/// Returns [`GlobalOptions`] for a command that ignores them: the command accepts them, but its help does not list
/// them.
fn hidden_global_options() -> [Arg; 3] {
    let hidden = |id: &'static str, long: &'static str| {
        let value = clap::value_parser!(PathBuf);
        let option = Arg::new(id).long(long).value_parser(value);
        option.global(true).hide(true)
    };
    [
        hidden("config", "config").short('c'),
        hidden("runtime_dir", "runtime-dir"),
        hidden("pin_dir", "pin-dir"),
    ]
}

#[derive(Debug, Subcommand)]
pub(crate) enum Cluster {
    /// Show members, versions and differences
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Validate a configuration, and roll it out director by director
    Publish {
        /// The configuration; - = standard input
        file: PathBuf,
        /// How long each director watches the configuration before the next one applies it; a director rolls back if
        /// errors or failed checks increase
        #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "5s")]
        guard: Duration,
        /// Do not publish the certificate files that the configuration names; each director uses its own files
        #[arg(long)]
        local_files: bool,
        /// Return when the configuration is published, before the directors have applied it
        #[arg(long)]
        no_wait: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum NodeAction {
    Drain,
    Ready,
}

/// Files that are generated from the command line definition.
#[derive(Debug, Subcommand)]
pub(crate) enum Generate {
    /// Print the completion script for a shell
    Completion {
        /// Shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Write man pages into a directory
    Man {
        /// Existing directory
        directory: PathBuf,
    },
    /// Print the manual's command reference
    #[command(hide = true)]
    Commands,
}

#[derive(Debug, Args)]
pub(crate) struct Tap {
    /// Name of the service; if it is omitted, the daemon's proxy services are listed
    pub(crate) service: Option<String>,
    /// Show only requests in which an access log variable matches the pattern; * matches any text; if the option is
    /// repeated, all patterns must match
    #[arg(long = "match", value_name = "NAME=PATTERN")]
    pub(crate) matches: Vec<String>,
    /// Print JSON, one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Vrrp {
    /// Virtual router to release or resume
    #[arg(requires = "action")]
    pub(crate) name: Option<String>,
    /// release: let another director take over until `resume`
    #[arg(value_enum)]
    pub(crate) action: Option<VrrpAction>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Actions on a virtual router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum VrrpAction {
    /// Become backup, and do not become active until `resume`
    Release,
    /// Undo a release
    Resume,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenAction {
    /// Create a token, print it, and add its hash to the file
    Add {
        /// Name of the token's user, shown in the log
        name: String,
        /// read, operate or write
        #[arg(long)]
        role: Role,
        /// Token file that `tokens` in [node.admin] names
        #[arg(long, value_name = "FILE", default_value = "/etc/weir/tokens")]
        file: PathBuf,
    },
}

/// Arguments that clap does not parse.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct UnparsedArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub(crate) rest: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Protect {
    /// Hold connections to this address [default: the addresses of all listening sockets]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Vec<SocketAddr>,
    /// Maximum time that a connection is held
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "5s")]
    pub(crate) max: Duration,
    /// Command to run, such as another program's reload
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// Program that the configuration is for
    #[arg(value_enum)]
    pub(crate) from: ImportFrom,
    /// Configuration file; - = standard input
    pub(crate) file: PathBuf,
    /// Exit with 0 even if behavior changes
    #[arg(long)]
    pub(crate) accept_losses: bool,
    /// Resolve absolute paths in the file below this directory (a copy of another machine's files)
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
}

/// Formats that can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImportFrom {
    /// Output of `ipvsadm -S`
    Ipvsadm,
    /// keepalived.conf, with the files it includes
    Keepalived,
    /// ldirectord.cf
    Ldirectord,
    /// haproxy.cfg
    Haproxy,
    /// nginx.conf, with the files it includes; or a file from conf.d
    Nginx,
}

#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Explain {
    /// Code of a diagnostic, such as E016
    #[arg(value_name = "CODE", conflicts_with_all = ["packet", "request"])]
    pub(crate) code: Option<String>,
    /// Packet: 'tcp SRC:PORT VIP:PORT'
    #[arg(long, value_name = "PACKET", conflicts_with = "request")]
    pub(crate) packet: Option<weir_control::explain::Packet>,
    /// Request: 'GET http://host/path'
    #[arg(long, value_name = "REQUEST")]
    pub(crate) request: Option<String>,
    /// Header of the request; may be repeated
    #[arg(short = 'H', value_name = "HEADER", requires = "request")]
    pub(crate) headers: Vec<String>,
    /// Address of the client that sends the request, for conditions on it
    #[arg(long, value_name = "ADDRESS", requires = "request")]
    pub(crate) client: Option<std::net::IpAddr>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The usage line lists the actions, so the error about an unknown action shows them.
#[derive(Debug, Args)]
#[command(subcommand_value_name = "drain|maint|ready|weight N")]
pub(crate) struct Server {
    /// POOL/ADDRESS; the address as in the configuration file, with or without the port
    #[arg(value_name = "POOL/ADDRESS", value_parser = parse_server_name)]
    pub(crate) server: ServerName,
    #[command(subcommand)]
    pub(crate) action: ServerAction,
    /// Print the server as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerName {
    pub(crate) pool: String,
    pub(crate) address: String,
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum ServerAction {
    /// Send no new flows to the server
    Drain {
        /// Return only after the server's last connection has ended
        #[arg(long)]
        wait: bool,
        /// With --wait: fail if connections remain after this time; the server stays drained
        #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "wait")]
        timeout: Option<Duration>,
    },
    /// Send no new flows to the server, and do not check it
    Maint,
    /// Remove the override: restore the configured weight and the checks
    Ready,
    /// Override the weight; 0 quiesces the server
    Weight {
        /// 0 to 65535
        #[arg(value_parser = clap::value_parser!(u32).range(0..=i64::from(weir_model::MAX_WEIGHT)))]
        weight: u32,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum RealServer {
    /// Configure VIPs on this server
    Up(Up),
    /// Undo all changes recorded in the runtime directory, or only those for some VIPs
    Down {
        /// Only these VIPs
        #[arg(long = "vip", num_args = 1.., value_name = "ADDRESS[:PORT[-PORT]]")]
        vips: Vec<VipArgument>,
    },
    /// Show what is configured, and whether it is still in place
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Find problems that keep this machine from serving its VIPs
    Doctor(Doctor),
}

#[derive(Debug, Args)]
pub(crate) struct DirectorDoctor {
    #[command(flatten)]
    pub(crate) common: Doctor,
    /// Examine this machine as a router in front of directors: whether it distributes packets for these VIPs
    /// [default: all single addresses with more than one BGP path]
    #[arg(long, value_name = "VIP", num_args = 0.., conflicts_with = "fix")]
    pub(crate) router: Option<Vec<IpAddr>>,
    /// With --router: the command of the BGP speaker, with options [default: birdc or vtysh, whichever responds]
    #[arg(long, value_name = "COMMAND", requires = "router")]
    pub(crate) speaker: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Repair settings made by `real-server`; has no effect on a director's findings
    #[arg(long)]
    pub(crate) fix: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Up {
    /// Forwarding method of the director
    #[arg(long, value_parser = forward_parser(), value_name = "FORWARD")]
    pub(crate) forward: Forward,
    /// VIPs and their ports
    #[arg(long = "vip", required = true, num_args = 1.., value_name = "ADDRESS[:PORT[-PORT]]")]
    pub(crate) vips: Vec<VipArgument>,
    /// ipip, gre, gue or gue:PORT [default: ipip]
    #[arg(long)]
    pub(crate) tunnel: Option<TunnelArgument>,
    /// DSCP that the director sets, 0 to 63 [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) dscp: Option<u8>,
    /// With --dscp 0: do not change replies to these addresses
    #[arg(long, value_name = "ADDRESS[/N]")]
    pub(crate) except: Vec<PrefixArgument>,
    /// Only this interface [default: all interfaces that have an address]
    #[arg(long = "interface", value_name = "NAME")]
    pub(crate) interfaces: Vec<String>,
}

/// Returns a parser for the names of the forwarding methods that need configuration on the server.
fn forward_parser() -> impl TypedValueParser<Value = Forward> {
    let methods = || Forward::ALL.into_iter();
    let names = methods().filter(|it| it.needs_server_configuration());
    let names = PossibleValuesParser::new(names.map(Forward::as_str));
    names.try_map(move |name| {
        let method = methods().find(|it| it.as_str() == name);
        method.ok_or("unknown forwarding method")
    })
}

/// Splits the text at the last slash, because pool names created by ipvsadm contain a slash. The address of a Unix
/// socket begins at `unix:/`.
fn parse_server_name(text: &str) -> Result<ServerName, String> {
    // The path of a Unix socket also contains slashes.
    let unix_socket = text
        .find("/unix:/")
        .map(|index| (&text[..index], &text[index + 1..]));
    match unix_socket.or_else(|| text.rsplit_once('/')) {
        Some((pool, address)) if !pool.is_empty() && !address.is_empty() => Ok(ServerName {
            pool: pool.to_owned(),
            address: address.to_owned(),
        }),
        _ => Err("expected POOL/ADDRESS".to_owned()),
    }
}

/// Parses a duration in the format of the configuration: `500ms`, `30s`, `5m`, `1h`, `1d`.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let expected = "expected a duration such as 500ms, 30s, 5m, 1h or 1d";
    weir_config::duration(text).map_err(|cause| format!("{expected}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn clap_accepts_the_definition() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn global_flags_are_accepted_after_the_command() {
        let line = "weir server images/10.0.0.5:80 weight 3 --runtime-dir /tmp/r --pin-dir /sys/fs/bpf/x -c f";
        let parsed = Arguments::try_parse_from(line.split(' ')).unwrap();
        assert_eq!(parsed.global.runtime_dir, Path::new("/tmp/r"));
        assert_eq!(parsed.global.config(), Path::new("f"));
        let Command::Server(server) = parsed.command else {
            panic!("{:?}", parsed.command)
        };
        assert_eq!(server.server.address, "10.0.0.5:80");
        assert!(matches!(server.action, ServerAction::Weight { weight: 3 }));
    }

    #[test]
    fn lab_help_omits_global_options() {
        for line in ["weir lab --help", "weir lab run --help"] {
            let help = Arguments::try_parse_from(line.split(' ')).unwrap_err();
            let help = help.to_string();
            assert!(help.contains("Usage: weir lab"), "{help}");
            for option in ["WEIR_", "--config", "--runtime-dir", "--pin-dir"] {
                assert!(!help.contains(option), "{line}: {help}");
            }
        }
        let line = "weir --runtime-dir /tmp/r lab list -c f --pin-dir /tmp/p";
        let parsed = Arguments::try_parse_from(line.split(' ')).unwrap();
        assert!(matches!(parsed.command, Command::Lab { .. }));
        assert_eq!(parsed.global.runtime_dir, Path::new("/tmp/r"));
    }

    #[test]
    fn error_about_an_unknown_action_lists_the_actions() {
        let command = Arguments::command();
        let server = command
            .find_subcommand("server")
            .expect("no command `server`");
        for line in ["weir server web/10.0.0.5 up", "weir server web/10.0.0.5"] {
            let error = Arguments::try_parse_from(line.split(' ')).unwrap_err();
            let text = error.to_string();
            let usage = text.lines().find(|it| it.starts_with("Usage:"));
            let usage = usage.unwrap_or_else(|| panic!("{text}"));
            for verb in server.get_subcommands() {
                assert!(usage.contains(verb.get_name()), "{line}: {text}");
            }
        }
    }

    #[test]
    fn pool_names_may_contain_slashes() {
        let name = parse_server_name("ipvsadm:tcp/192.0.2.10:80/10.0.0.5:80").unwrap();
        assert_eq!(name.pool, "ipvsadm:tcp/192.0.2.10:80");
        assert_eq!(name.address, "10.0.0.5:80");
        for invalid in ["images", "/10.0.0.5", "images/"] {
            assert!(parse_server_name(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn invalid_durations_are_rejected() {
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_duration("1h"), Ok(Duration::from_secs(3600)));
        assert_eq!(parse_duration("1d"), Ok(Duration::from_secs(86_400)));
        for invalid in [
            "",
            "5",
            "s",
            "-1s",
            "99999999999999999999s",
            "18446744073709551615m",
        ] {
            assert!(parse_duration(invalid).is_err(), "{invalid}");
        }
    }
}
