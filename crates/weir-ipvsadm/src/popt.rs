//! Option parsing as in popt 1.19.
//!
//! Long names are not abbreviated (`--numeric`, `--weight=3`), short ones can be combined (`-Ln`, `-w3`, `-w=3`),
//! options and other arguments may be mixed, `--` ends options. Aliases of `/etc/popt` are not read.

/// Whether an option has an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Argument {
    None,
    Required,
    /// Takes the next word unless it begins with a dash.
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
pub(crate) enum Problem {
    Unknown,
    Missing,
    Unexpected,
}

impl Problem {
    /// poptStrerror(3).
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown option",
            Self::Missing => "missing argument",
            Self::Unexpected => "option does not take an argument",
        }
    }
}

/// An iterator over a command line.
#[derive(Debug)]
pub(crate) struct Options<'a, T: 'static> {
    options: &'static [OptionSpec<T>],
    arguments: &'a [String],
    next: usize,
    /// The remaining short options of a combined word.
    cluster: &'a str,
    only_arguments: bool,
    others: Vec<&'a str>,
}

impl<'a, T: Copy> Options<'a, T> {
    /// Parses everything after the program's name.
    pub(crate) fn new(options: &'static [OptionSpec<T>], arguments: &'a [String]) -> Self {
        Self {
            options,
            arguments,
            next: 0,
            cluster: "",
            only_arguments: false,
            others: Vec::new(),
        }
    }

    /// Returns the next option and its argument.
    pub(crate) fn next_option(&mut self) -> Option<Result<(T, Option<&'a str>), Problem>> {
        if self.cluster.is_empty()
            && let Some(long) = self.advance()?
        {
            return Some(self.long(long));
        }
        Some(self.short())
    }

    /// Advances to the next option word: returns a long option's name, or `None` with `cluster` set.
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
        let spec = self.options.iter().find(|spec| spec.long == name);
        self.with_argument(*spec.ok_or(Problem::Unknown)?, attached)
    }

    fn short(&mut self) -> Result<(T, Option<&'a str>), Problem> {
        let mut letters = self.cluster.chars();
        let letter = letters.next();
        let rest = letters.as_str();
        let spec = self.options.iter().find(|spec| spec.short == letter);
        let Some(spec) = spec.copied() else {
            self.cluster = "";
            return Err(Problem::Unknown);
        };
        if spec.argument == Argument::None {
            self.cluster = rest;
            if rest.starts_with('=') {
                self.cluster = "";
                return Err(Problem::Unexpected);
            }
            return Ok((spec.tag, None));
        }
        self.cluster = "";
        let attached = (!rest.is_empty()).then(|| rest.strip_prefix('=').unwrap_or(rest));
        self.with_argument(spec, attached)
    }

    fn with_argument(
        &mut self,
        spec: OptionSpec<T>,
        attached: Option<&'a str>,
    ) -> Result<(T, Option<&'a str>), Problem> {
        if spec.argument == Argument::None {
            return match attached {
                Some(_) => Err(Problem::Unexpected),
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
            (_, None) => Err(Problem::Missing),
        }
    }

    /// The last parsed word, as named in messages.
    pub(crate) fn last_word(&self) -> &'a str {
        let last = self.next.checked_sub(1);
        last.and_then(|last| self.arguments.get(last))
            .map_or("", String::as_str)
    }

    /// Returns the arguments that are not options; call at the end.
    pub(crate) fn others(self) -> Vec<&'a str> {
        self.others
    }
}
