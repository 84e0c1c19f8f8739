//! Options as popt 1.19 takes them from a command line.
//!
//! Long names are whole (`--numeric`, `--weight=3`), short ones cluster (`-Ln`, `-w3`, `-w=3`), options and other arguments
//! may be mixed, `--` ends options. Aliases of `/etc/popt` are not read.

/// Whether an option has an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Argument {
    None,
    Needed,
    /// Taken when one is there that does not begin with a dash.
    Optional,
}

/// One option that is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<T: 'static> {
    pub(crate) long: &'static str,
    pub(crate) short: Option<char>,
    pub(crate) argument: Argument,
    pub(crate) tag: T,
}

/// What popt says of a command line that it cannot take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    Unknown,
    Missing,
    Unwanted,
}

impl Problem {
    /// poptStrerror(3).
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown option",
            Self::Missing => "missing argument",
            Self::Unwanted => "option does not take an argument",
        }
    }
}

/// A walk over a command line.
#[derive(Debug)]
pub(crate) struct Options<'a, T: 'static> {
    known: &'static [Known<T>],
    arguments: &'a [String],
    next: usize,
    /// What is left of a cluster of short options.
    cluster: &'a str,
    only_arguments: bool,
    others: Vec<&'a str>,
}

impl<'a, T: Copy> Options<'a, T> {
    /// Over what follows the program's name.
    pub(crate) fn new(known: &'static [Known<T>], arguments: &'a [String]) -> Self {
        Self {
            known,
            arguments,
            next: 0,
            cluster: "",
            only_arguments: false,
            others: Vec::new(),
        }
    }

    /// The next option and its argument.
    pub(crate) fn next_option(&mut self) -> Option<Result<(T, Option<&'a str>), Problem>> {
        if self.cluster.is_empty()
            && let Some(long) = self.advance()?
        {
            return Some(self.long(long));
        }
        Some(self.short())
    }

    /// Goes to the next option word: a long one's name, or `None` with `cluster` set.
    fn advance(&mut self) -> Option<Option<&'a str>> {
        loop {
            let word = self.arguments.get(self.next)?.as_str();
            self.next += 1;
            match word.strip_prefix('-').filter(|_| !self.only_arguments) {
                None | Some("") => self.others.push(word),
                Some("-") => self.only_arguments = true,
                Some(rest) => match rest.strip_prefix('-') {
                    Some(long) => return Some(Some(long)),
                    None => {
                        self.cluster = rest;
                        return Some(None);
                    }
                },
            }
        }
    }

    fn long(&mut self, text: &'a str) -> Result<(T, Option<&'a str>), Problem> {
        let (name, attached) = match text.split_once('=') {
            Some((name, attached)) => (name, Some(attached)),
            None => (text, None),
        };
        let known = self.known.iter().find(|known| known.long == name);
        self.with_argument(*known.ok_or(Problem::Unknown)?, attached)
    }

    fn short(&mut self) -> Result<(T, Option<&'a str>), Problem> {
        let mut letters = self.cluster.chars();
        let letter = letters.next();
        let rest = letters.as_str();
        let known = self.known.iter().find(|known| known.short == letter);
        let Some(known) = known.copied() else {
            self.cluster = "";
            return Err(Problem::Unknown);
        };
        if known.argument == Argument::None {
            self.cluster = rest;
            if rest.starts_with('=') {
                self.cluster = "";
                return Err(Problem::Unwanted);
            }
            return Ok((known.tag, None));
        }
        self.cluster = "";
        let attached = (!rest.is_empty()).then(|| rest.strip_prefix('=').unwrap_or(rest));
        self.with_argument(known, attached)
    }

    fn with_argument(
        &mut self,
        known: Known<T>,
        attached: Option<&'a str>,
    ) -> Result<(T, Option<&'a str>), Problem> {
        if known.argument == Argument::None {
            return match attached {
                Some(_) => Err(Problem::Unwanted),
                None => Ok((known.tag, None)),
            };
        }
        if attached.is_some() {
            return Ok((known.tag, attached));
        }
        let following = self.arguments.get(self.next).map(String::as_str);
        match (known.argument, following) {
            (Argument::Optional, None) => Ok((known.tag, None)),
            (Argument::Optional, Some(word)) if word.starts_with('-') => Ok((known.tag, None)),
            (_, Some(word)) => {
                self.next += 1;
                Ok((known.tag, Some(word)))
            }
            (_, None) => Err(Problem::Missing),
        }
    }

    /// The word that was looked at last, which messages name.
    pub(crate) fn last_word(&self) -> &'a str {
        let last = self.next.checked_sub(1);
        last.and_then(|last| self.arguments.get(last))
            .map_or("", String::as_str)
    }

    /// What is no option, once there is no further one.
    pub(crate) fn others(self) -> Vec<&'a str> {
        self.others
    }
}
