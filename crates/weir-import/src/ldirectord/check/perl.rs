//! Converts negotiate checks to perl scripts, for protocols that Weir does not support.
//!
//! The protocols are SQL with a password and a query, LDAP, and files over FTP. A script takes the same steps and uses
//! the same modules as ldirectord.
//!
//! The scripts set `$0` to hide the command line of the process, which contains the password. They do so before perl
//! loads the modules, which takes most of a probe's time.

use super::PERL;
use super::negotiate::Request;
use crate::document::{Entry, Item};
use crate::note::{Notes, Position};
use crate::probe::Probe;

/// `check_sql`: the query must return a row.
const SQL: &str = r#"BEGIN { $0="weir-sql-check" } use DBI;
my ($driver, $name, $database, $user, $password, $query) = @ARGV;
my $db = DBI->connect("dbi:$driver:$name=$database;host=$ENV{WEIR_ADDRESS};port=$ENV{WEIR_PORT}",
  $user, $password) or exit 1;
my $rows = $db->prepare($query) or exit 1;
$rows->execute or exit 1;
$rows->fetchrow_hashref if $driver eq "Oracle";
exit($rows->rows > 0 ? 0 : 1);"#;

/// `check_ldap`: the entry must exist, and its name must match.
const LDAP: &str = r#"BEGIN { $0="weir-ldap-check" } use Net::LDAP;
my ($scheme, $user, $password, $base, $receive) = @ARGV;
my $ldap = Net::LDAP->new($ENV{WEIR_ADDRESS}, port => $ENV{WEIR_PORT}, scheme => $scheme) or exit 1;
my $bind = $user ne "" && $password ne "" ? $ldap->bind($user, password => $password) : $ldap->bind;
exit 1 if $bind->is_error;
my $found = $ldap->search(base => $base, scope => "base", filter => "(objectClass=*)");
exit 1 if $found->count != 1;
exit($receive eq "" || $found->entry(0)->dn =~ /$receive/ ? 0 : 1);"#;

/// `check_ftp`: the content of the file must match.
const FTP: &str = r#"BEGIN { $0="weir-ftp-check" } use Net::FTP;
my ($user, $password, $file, $receive) = @ARGV;
open(my $out, "+>", undef) or exit 1;
my $ftp = Net::FTP->new($ENV{WEIR_ADDRESS}, Port => $ENV{WEIR_PORT}, Passive => 1) or exit 1;
$ftp->login($user, $password); $ftp->cwd("/"); $ftp->binary;
$ftp->get($file, $out); $ftp->quit;
seek($out, 0, 0); local $/; my $text = <$out>;
exit($text =~ /$receive/ ? 0 : 1);"#;

/// A text and its source line, or `None` for a constant or missing text.
type Argument<'a> = (&'a str, Option<Position>);

/// Returns the argument for a text that may be missing.
fn argument(text: Option<&(String, Position)>) -> Argument<'_> {
    text.map_or(("", None), |(text, position)| {
        (text.as_str(), Some(*position))
    })
}

/// Returns a check that runs a perl program.
fn script_check(
    program: &str,
    arguments: &[Argument<'_>],
    (modules, position): (&str, Position),
    notes: &mut Notes,
) -> Probe {
    let mut probe = Probe::new("script", position);
    let constant_words = [PERL, "-e", program].map(|word| Item::new(word, None));
    let argument_words = arguments
        .iter()
        .map(|(text, position)| Item::new(*text, *position));
    let command: Vec<Item> = constant_words.into_iter().chain(argument_words).collect();
    probe.push(Entry::new("command", command, position).essential());
    let reason = format!("each probe runs perl with {modules}, which ldirectord also uses");
    notes.remark(position, reason);
    probe
}

impl Request<'_> {
    /// Returns the check with a query, if there are a user and a query; without them, ldirectord never connects.
    pub(super) fn query(&self, service: &str, notes: &mut Notes) -> Option<Probe> {
        let section = self.section;
        let (driver, name) = match service {
            "mysql" => ("mysql", "database"),
            "pgsql" => ("Pg", "dbname"),
            _ => ("Oracle", "sid"),
        };
        let (query, position) = self.request.as_ref()?;
        let login = section.login.as_ref()?;
        let arguments = [
            (driver, None),
            (name, None),
            argument(section.database.as_ref()),
            argument(Some(login)),
            argument(section.passwd.as_ref()),
            (query.trim_start_matches('/'), Some(*position)),
        ];
        Some(script_check(SQL, &arguments, ("DBI", self.position), notes))
    }

    /// Returns the LDAP check.
    pub(super) fn ldap(&self, scheme: &str, notes: &mut Notes) -> Probe {
        let section = self.section;
        let (base, position) = argument(self.request.as_ref());
        let arguments = [
            (scheme, None),
            argument(section.login.as_ref()),
            argument(section.passwd.as_ref()),
            (base.strip_prefix('/').unwrap_or(base), position),
            argument(self.receive.as_ref()),
        ];
        script_check(LDAP, &arguments, ("Net::LDAP", self.position), notes)
    }

    /// Returns a check of the content of the file that `request` names. Returns `None` if `request` or `receive` is not
    /// set: then only the login can be checked.
    pub(super) fn ftp_file_check(
        &self,
        user: Argument<'_>,
        password: Argument<'_>,
        notes: &mut Notes,
    ) -> Option<Probe> {
        let (file, position) = self.request.as_ref()?;
        let receive = self.receive.as_ref()?;
        let arguments = [
            user,
            password,
            (file.as_str(), Some(*position)),
            argument(Some(receive)),
        ];
        Some(script_check(
            FTP,
            &arguments,
            ("Net::FTP", self.position),
            notes,
        ))
    }
}
