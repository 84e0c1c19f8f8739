//! Parses options as popt 1.19 does.
//!
//! Long names must not be abbreviated (`--numeric`, `--weight=3`). Short options can be combined (`-Ln`, `-w3`,
//! `-w=3`). Options and other arguments may be mixed; `--` ends the options. Aliases in `/etc/popt` are not read.

/// The argument of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Argument {
    None,
    Required,
    /// Uses the next word as the argument unless the word begins with a dash.
    Optional,
}

/// A known option.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OptionSpec<T: 'static> {
    pub(crate) long: &'static str,
    pub(crate) short: Option<char>,
    pub(crate) argument: Argument,
    pub(crate) tag: T,
}

/// popt's error for an invalid command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OptionError {
    Unknown,
    Missing,
    Unexpected,
}

impl OptionError {
    /// Returns the message of poptStrerror(3).
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown option",
            Self::Missing => "missing argument",
            Self::Unexpected => "option does not take an argument",
        }
    }
}

/// An iterator over the options of a command line.
#[derive(Debug)]
pub(crate) struct Options<'a, T: 'static> {
    options: &'static [OptionSpec<T>],
    arguments: &'a [String],
    next: usize,
    /// The remaining short options of a word with combined options.
    cluster: &'a str,
    /// Whether `--` has ended the options.
    is_after_options: bool,
    /// Arguments that are not options.
    others: Vec<&'a str>,
}

impl<'a, T: Copy> Options<'a, T> {
    /// Creates an iterator over the arguments after the program's name.
    pub(crate) fn new(options: &'static [OptionSpec<T>], arguments: &'a [String]) -> Self {
        Self {
            options,
            arguments,
            next: 0,
            cluster: "",
            is_after_options: false,
            others: Vec::new(),
        }
    }

    /// Returns the next option and its argument.
    pub(crate) fn next_option(&mut self) -> Option<Result<(T, Option<&'a str>), OptionError>> {
        if self.cluster.is_empty()
            && let Some(long) = self.advance()?
        {
            return Some(self.parse_long(long));
        }
        Some(self.parse_short())
    }

    /// Advances to the next word with options. Returns the text of a long option. For short options, sets `cluster` and
    /// returns `Some(None)`. Returns `None` at the end of the command line.
    fn advance(&mut self) -> Option<Option<&'a str>> {
        loop {
            let word = self.arguments.get(self.next)?.as_str();
            self.next += 1;
            match word.strip_prefix('-').filter(|_| !self.is_after_options) {
                None | Some("") => self.others.push(word),
                Some("-") => self.is_after_options = true,
                Some(remaining) => match remaining.strip_prefix('-') {
                    Some(long) => return Some(Some(long)),
                    None => {
                        self.cluster = remaining;
                        return Some(None);
                    }
                },
            }
        }
    }

    fn parse_long(&mut self, text: &'a str) -> Result<(T, Option<&'a str>), OptionError> {
        let (name, attached) = match text.split_once('=') {
            Some((name, attached)) => (name, Some(attached)),
            None => (text, None),
        };
        let spec = self.options.iter().find(|spec| spec.long == name);
        self.complete_option(*spec.ok_or(OptionError::Unknown)?, attached)
    }

    fn parse_short(&mut self) -> Result<(T, Option<&'a str>), OptionError> {
        let mut letters = self.cluster.chars();
        let letter = letters.next();
        let remaining = letters.as_str();
        let spec = self.options.iter().find(|spec| spec.short == letter);
        let Some(spec) = spec.copied() else {
            self.cluster = "";
            return Err(OptionError::Unknown);
        };
        if spec.argument == Argument::None {
            self.cluster = remaining;
            if remaining.starts_with('=') {
                self.cluster = "";
                return Err(OptionError::Unexpected);
            }
            return Ok((spec.tag, None));
        }
        self.cluster = "";
        let attached =
            (!remaining.is_empty()).then(|| remaining.strip_prefix('=').unwrap_or(remaining));
        self.complete_option(spec, attached)
    }

    fn complete_option(
        &mut self,
        spec: OptionSpec<T>,
        attached: Option<&'a str>,
    ) -> Result<(T, Option<&'a str>), OptionError> {
        if spec.argument == Argument::None {
            return match attached {
                Some(_) => Err(OptionError::Unexpected),
                None => Ok((spec.tag, None)),
            };
        }
        if attached.is_some() {
            return Ok((spec.tag, attached));
        }
        let following = self.arguments.get(self.next).map(String::as_str);
        match (spec.argument, following) {
            (Argument::Optional, None) => Ok((spec.tag, None)),
            (Argument::Optional, Some(word)) if word.starts_with('-') => Ok((spec.tag, None)),
            (_, Some(word)) => {
                self.next += 1;
                Ok((spec.tag, Some(word)))
            }
            (_, None) => Err(OptionError::Missing),
        }
    }

    /// Returns the last parsed word, for messages.
    pub(crate) fn last_word(&self) -> &'a str {
        let last = self.next.checked_sub(1);
        last.and_then(|last| self.arguments.get(last))
            .map_or("", String::as_str)
    }

    /// Returns the arguments that are not options. Must be called after the last option.
    pub(crate) fn others(self) -> Vec<&'a str> {
        self.others
    }
}
