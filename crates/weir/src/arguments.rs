//! The command line's grammar.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use weir_control::api::Role;
use weir_control::real_server::{PrefixArgument, TunnelArgument, VipArgument};
use weir_lab::LabCommand;

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
    subcommand_required = true
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) places: Places,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where things are; so that several directors run on one machine.
#[derive(Debug, Args)]
pub(crate) struct Places {
    /// The configuration [default: /etc/weir/weir.toml; reload and plan: the file in force]
    #[arg(
        short,
        long,
        global = true,
        value_name = "FILE",
        env = "WEIR_CONFIG",
        hide_env_values = true
    )]
    pub(crate) config: Option<PathBuf>,
    /// Socket and state
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "WEIR_RUNTIME_DIR",
        hide_env_values = true,
        default_value = DEFAULT_RUNTIME_DIR
    )]
    pub(crate) runtime_dir: PathBuf,
    /// Pinned programs and maps
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

impl Places {
    /// The configuration, by default the system's.
    pub(crate) fn config(&self) -> &Path {
        self.config.as_deref().unwrap_or(Path::new(DEFAULT_CONFIG))
    }

    /// What the environment says, without a command line.
    pub(crate) fn from_environment() -> Self {
        let named = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let or = |path: Option<PathBuf>, default: &str| path.unwrap_or_else(|| default.into());
        Self {
            config: named("WEIR_CONFIG"),
            runtime_dir: or(named("WEIR_RUNTIME_DIR"), DEFAULT_RUNTIME_DIR),
            pin_dir: or(named("WEIR_PIN_DIR"), DEFAULT_PIN_DIR),
        }
    }

    /// The configuration if one was named, as another process finds it.
    pub(crate) fn named_config(&self) -> Result<Option<PathBuf>, Failure> {
        let absolute = self.config.as_deref().map(std::path::absolute);
        Ok(absolute.transpose()?)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the daemon in the foreground
    Run,
    /// Validate a configuration; changes nothing
    Check {
        /// Warnings fail
        #[arg(long)]
        strict: bool,
        /// Print the findings as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what a reload would change, and how many live flows it touches
    Plan {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Apply a configuration
    Reload {
        /// Wait this long, and take it back when errors or failed checks rise
        #[arg(long, value_name = "TIME", value_parser = duration)]
        guard: Option<Duration>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show services, servers, their states and flows
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Again every second, with rates
        #[arg(long)]
        watch: bool,
    },
    /// Show which service, pool and server something gets, and why; or what the code of a diagnostic means
    Explain(Explain),
    /// Change a server at run time
    Server(Server),
    /// Remove what Weir left in the kernel
    Clean {
        /// Go on where what `real-server` remembers cannot be undone
        #[arg(long)]
        force: bool,
    },
    /// Print the JSON Schema of the configuration
    Schema,
    /// Prepare this machine as a server for direct, tunnel and l3dsr
    RealServer {
        #[command(subcommand)]
        command: RealServer,
    },
    /// The experiments, in network namespaces, beside the real peers
    Lab {
        #[command(subcommand)]
        command: LabCommand,
    },
    /// As ipvsadm: its commands, its table, beside the file's services
    Ipvsadm(Rest),
    /// Translate another balancer's configuration into weir.toml
    Import(Import),
    /// Hand over to another program file, with all connections that can go
    Upgrade {
        /// The program [default: the file of this one]
        path: Option<PathBuf>,
    },
    /// Hold new connections while a command runs
    Protect(Protect),
    /// Find what would break balancing here
    Doctor(Doctor),
    /// Tokens of the API over TCP
    Token {
        #[command(subcommand)]
        action: TokenAction,
    },
    /// A live view (not built yet)
    Top(Rest),
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenAction {
    /// Make a token, print it, and add its hash to the file
    Add {
        /// Who uses it: appears in the log
        name: String,
        /// read, operate or write
        #[arg(long)]
        role: Role,
        /// `tokens` of [node.admin]
        #[arg(long, value_name = "FILE", default_value = "/etc/weir/tokens")]
        file: PathBuf,
    },
}

/// Arguments that another grammar reads, or none.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Rest {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub(crate) rest: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Protect {
    /// Connections to this address are held [default: to all that listen now]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Vec<SocketAddr>,
    /// The longest that a connection is held
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5s")]
    pub(crate) max: Duration,
    /// The command, such as another program's reload
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// Whose configuration it is
    #[arg(value_enum)]
    pub(crate) from: ImportFrom,
    /// The file; - = standard input
    pub(crate) file: PathBuf,
    /// End with 0 although behaviour changes
    #[arg(long)]
    pub(crate) accept_losses: bool,
    /// Files that it names by absolute paths are below this directory: a copy of another machine's
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
}

/// What can be translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImportFrom {
    /// A table as `ipvsadm -S` prints it
    Ipvsadm,
    /// keepalived.conf, with what it includes
    Keepalived,
    /// ldirectord.cf
    Ldirectord,
    /// haproxy.cfg
    Haproxy,
    /// nginx.conf, with what it includes; also a file of conf.d
    Nginx,
}

#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Explain {
    /// A code that a diagnostic has, as E016
    #[arg(value_name = "CODE", conflicts_with_all = ["packet", "request"])]
    pub(crate) code: Option<String>,
    /// A packet: 'tcp SRC:PORT VIP:PORT'
    #[arg(long, value_name = "PACKET", conflicts_with = "request")]
    pub(crate) packet: Option<weir_control::explain::Packet>,
    /// A request: 'GET http://host/path'
    #[arg(long, value_name = "REQUEST")]
    pub(crate) request: Option<String>,
    /// A header of the request
    #[arg(short = 'H', value_name = "HEADER", requires = "request")]
    pub(crate) headers: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The verbs are in the usage line: an unknown one is answered by it.
#[derive(Debug, Args)]
#[command(subcommand_value_name = "drain|maint|ready|weight N")]
pub(crate) struct Server {
    /// POOL/ADDRESS, the address as in the file, with or without the port
    #[arg(value_name = "POOL/ADDRESS", value_parser = server_name)]
    pub(crate) server: ServerName,
    #[command(subcommand)]
    pub(crate) word: ServerWord,
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
pub(crate) enum ServerWord {
    /// No new flows
    Drain {
        /// Return when its last connection has ended
        #[arg(long)]
        wait: bool,
        /// With --wait: fail when connections are left after this time; the server stays drained
        #[arg(long, value_name = "TIME", value_parser = duration, requires = "wait")]
        timeout: Option<Duration>,
    },
    /// No new flows and no checks
    Maint,
    /// As configured
    Ready,
    /// Another weight; 0 quiesces
    Weight {
        /// 0 to 65535
        #[arg(value_parser = clap::value_parser!(u32).range(0..=i64::from(weir_model::MAX_WEIGHT)))]
        weight: u32,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum RealServer {
    /// Take a VIP
    Up(Up),
    /// Undo everything that this runtime directory remembers, or some VIPs
    Down {
        /// Only this VIP
        #[arg(long = "vip", value_name = "ADDRESS[:PORT[-PORT]]")]
        vips: Vec<VipArgument>,
    },
    /// Show what is set up, and whether it still is
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Find what keeps this machine from serving its VIPs
    Doctor(Doctor),
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Repair what `real-server` has set up on this machine; of a director's findings it changes nothing
    #[arg(long)]
    pub(crate) fix: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Up {
    /// How packets come here
    #[arg(long, value_enum, value_name = "FORWARD")]
    pub(crate) forward: ServerForward,
    /// The VIP and its ports
    #[arg(long = "vip", required = true, value_name = "ADDRESS[:PORT[-PORT]]")]
    pub(crate) vips: Vec<VipArgument>,
    /// ipip, gre, gue or gue:PORT [default: ipip]
    #[arg(long)]
    pub(crate) tunnel: Option<TunnelArgument>,
    /// The director's mark, 0 to 63 [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) dscp: Option<u8>,
    /// With --dscp 0: replies to these are left alone
    #[arg(long, value_name = "ADDRESS[/N]")]
    pub(crate) except: Vec<PrefixArgument>,
    /// Only this interface [default: all that have an address]
    #[arg(long = "interface", value_name = "NAME")]
    pub(crate) interfaces: Vec<String>,
}

/// The methods that need something of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ServerForward {
    Direct,
    Tunnel,
    L3dsr,
}

/// The last slash divides: pools that ipvsadm made have one in their names, addresses none.
fn server_name(text: &str) -> Result<ServerName, String> {
    match text.rsplit_once('/') {
        Some((pool, address)) if !pool.is_empty() && !address.is_empty() => Ok(ServerName {
            pool: pool.to_owned(),
            address: address.to_owned(),
        }),
        _ => Err("expected POOL/ADDRESS".to_owned()),
    }
}

/// `500ms`, `30s`, `5m`, `1h`, `1d`, as in the configuration.
fn duration(text: &str) -> Result<Duration, String> {
    let example = "expected a time as 500ms, 30s, 5m, 1h or 1d";
    weir_config::duration(text).map_err(|cause| format!("{example}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_grammar_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn common_flags_may_stand_behind_the_command() {
        let line = "weir server images/10.0.0.5:80 weight 3 --runtime-dir /tmp/r --pin-dir /sys/fs/bpf/x -c f";
        let parsed = Arguments::try_parse_from(line.split(' ')).unwrap();
        assert_eq!(parsed.places.runtime_dir, Path::new("/tmp/r"));
        assert_eq!(parsed.places.config(), Path::new("f"));
        let Command::Server(server) = parsed.command else {
            panic!("{:?}", parsed.command)
        };
        assert_eq!(server.server.address, "10.0.0.5:80");
        assert!(matches!(server.word, ServerWord::Weight { weight: 3 }));
    }

    #[test]
    fn an_unknown_verb_is_answered_with_those_that_there_are() {
        let command = Arguments::command();
        let server = command.find_subcommand("server").expect("a command");
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
    fn a_pool_may_have_slashes_in_its_name() {
        let name = server_name("ipvsadm:tcp/192.0.2.10:80/10.0.0.5:80").unwrap();
        assert_eq!(name.pool, "ipvsadm:tcp/192.0.2.10:80");
        assert_eq!(name.address, "10.0.0.5:80");
        for wrong in ["images", "/10.0.0.5", "images/"] {
            assert!(server_name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_have_units() {
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("1h"), Ok(Duration::from_secs(3600)));
        assert_eq!(duration("1d"), Ok(Duration::from_secs(86_400)));
        for wrong in [
            "",
            "5",
            "s",
            "-1s",
            "99999999999999999999s",
            "18446744073709551615m",
        ] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
