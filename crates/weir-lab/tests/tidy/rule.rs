//! Defines the style rules.

use super::scan::{Piece, Region};

/// Maximum line width, in columns.
pub(crate) const COLUMNS: usize = 120;

/// Maximum length of a source file, in lines.
pub(crate) const FILE_LINES: usize = 800;

/// A style rule. The variants are in the order of the columns in `allowed.txt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A banned word in an identifier.
    Names,
    /// A banned word in a string literal.
    Texts,
    /// A banned word in a module header (`//!`) or a document.
    Headers,
    /// A banned word in any other comment.
    Comments,
    /// A line longer than [`COLUMNS`].
    Width,
    /// A source file longer than [`FILE_LINES`].
    FileSize,
}

impl Rule {
    pub(crate) const ALL: [Self; 6] = [
        Self::Names,
        Self::Texts,
        Self::Headers,
        Self::Comments,
        Self::Width,
        Self::FileSize,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Names => "names",
            Self::Texts => "texts",
            Self::Headers => "headers",
            Self::Comments => "comments",
            Self::Width => "width",
            Self::FileSize => "file-size",
        }
    }

    /// Returns the rule for banned words in a region.
    pub(crate) const fn for_region(region: Region) -> Self {
        match region {
            Region::Name => Self::Names,
            Region::Text => Self::Texts,
            Region::Header => Self::Headers,
            Region::Comment => Self::Comments,
        }
    }
}

/// Banned words (CONTRIBUTING.md, Language).
const WORDS: &[&str] = &[
    "octet", "octets", "mend", "mends", "mended", "mending", "anew", "nobody", "somebody",
    "anybody", "stands", "told", "hears", "beside", "besides",
];

/// Prefixes of British spellings.
const BRITISH: &[&str] = &[
    "analyse",
    "artefact",
    "authoris",
    "behaviour",
    "cancelled",
    "cancelling",
    "catalogue",
    "centre",
    "colour",
    "defence",
    "deserialis",
    "favour",
    "fulfils",
    "grey",
    "honour",
    "initialis",
    "labelled",
    "labelling",
    "licence",
    "misspelt",
    "modelled",
    "modelling",
    "neighbour",
    "normalis",
    "recognis",
    "serialis",
    "synchronis",
    "towards",
    "travelled",
    "travelling",
    "unmodelled",
    "whilst",
];

/// Words and names that are accepted in a file, because they are parts of interfaces or of other programs.
const ACCEPTED: &[(&str, &[&str])] = &[
    // Label of `weir_drift_repaired_total`.
    (
        "crates/weir-control/src/metrics/mod.rs",
        &["neighbour", "neighbours"],
    ),
    ("crates/weir/tests/drift.rs", &["neighbour"]),
    ("docs/manual/operating.md", &["neighbour"]),
    // Fields of the stored state and of the status.
    ("crates/weir-engine/src/clean.rs", &["neighbours"]),
    ("crates/weir-engine/src/engine/attach.rs", &["neighbours"]),
    ("crates/weir-engine/src/engine/drift.rs", &["neighbours"]),
    ("crates/weir-engine/src/snapshot.rs", &["neighbours"]),
    ("crates/weir-engine/src/state/tests.rs", &["neighbours"]),
    ("crates/weir-engine/src/stored_state.rs", &["neighbours"]),
    ("docs/manual/status-json.md", &["neighbours"]),
    // Names from the kernel's files and from the netlink crates.
    (
        "crates/weir-netlink/src/neighbor.rs",
        &[
            "neighbour",
            "DelNeighbour",
            "GetNeighbour",
            "NeighbourAddress",
            "NeighbourAttribute",
            "NeighbourExtFlags",
            "NeighbourFlags",
            "NeighbourMessage",
            "NeighbourState",
            "NewNeighbour",
        ],
    ),
    (
        "crates/weir-netlink/src/watch.rs",
        &["DelNeighbour", "NewNeighbour"],
    ),
    (
        "crates/weir-netlink/tests/namespace/neighbor.rs",
        &["neighbours"],
    ),
    // A line of another program's file.
    ("docs/manual/import.md", &["colour"]),
];

/// Banned phrases.
const PHRASES: &[&str] = &[
    "in force",
    "by and by",
    "comes about",
    "came about",
    "goes over to",
    "what is left",
    "no longer told",
];

/// Former type names without a clear meaning.
const TYPES: &[&str] = &[
    "Place",
    "Places",
    "Fate",
    "Moved",
    "Farewell",
    "Overhears",
    "Strand",
    "Census",
    "Errand",
    "Errands",
    "Anybody",
    "Giver",
    "Kid",
];

/// Banned words that are identifiers of other crates, such as `Ipv4Addr::octets`.
const FOREIGN: &[&str] = &["octets", "from_octets"];

/// Path prefixes that are exempt from the rules, each with the reason.
const EXEMPT: &[(&str, &str)] = &[
    ("crates/weir-lab/tests/tidy", "contains the banned words"),
    ("crates/weir-import/tests/corpus", "files of other programs"),
    ("crates/weir-import/corpus", "files of other programs"),
    ("crates/weir-fuzz/corpus", "generated"),
    ("docs/manual/codes.md", "generated from weir-config"),
    ("docs/manual/configuration/", "generated from weir-config"),
    ("LICENSE-", "external text"),
    ("Cargo.lock", "generated"),
    ("CHANGELOG.md", "contains former names"),
];

pub(crate) fn is_exempt(path: &str) -> bool {
    EXEMPT.iter().any(|(prefix, _)| path.starts_with(prefix))
}

/// Returns whether a finding in a file is accepted.
pub(crate) fn is_accepted(path: &str, word: &str) -> bool {
    let mut accepted = ACCEPTED.iter().filter(|(file, _)| *file == path);
    accepted.any(|(_, words)| words.contains(&word))
}

/// Returns the banned words in a piece of source text.
pub(crate) fn banned_words(piece: &Piece<'_>) -> Vec<String> {
    if piece.region == Region::Name {
        return banned_in_name(piece.text);
    }
    // `application/octet-stream` is the name of a media type.
    let lower = piece.text.to_lowercase().replace("octet-stream", "");
    let words = lower.split(|c: char| !c.is_alphanumeric() && c != '_');
    let words = words.filter(|word| is_banned(word)).map(str::to_owned);
    let prose = lower.split_whitespace().collect::<Vec<_>>().join(" ");
    let phrases = PHRASES.iter().filter(|phrase| prose.contains(**phrase));
    words.chain(phrases.map(ToString::to_string)).collect()
}

/// Returns whether a word in lower case is banned.
fn is_banned(word: &str) -> bool {
    WORDS.contains(&word) || BRITISH.iter().any(|prefix| word.starts_with(prefix))
}

fn banned_in_name(name: &str) -> Vec<String> {
    if FOREIGN.contains(&name) {
        return Vec::new();
    }
    let is_banned = TYPES.contains(&name) || parts(name).iter().any(|part| is_banned(part));
    is_banned.then(|| name.to_owned()).into_iter().collect()
}

/// Returns the words of an identifier in lower case, split at `_` and before each capital letter that does not follow
/// another one.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut before = '_';
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && !before.is_uppercase()) {
            parts.push(String::new());
        }
        if c != '_' {
            parts.last_mut().expect("no parts").extend(c.to_lowercase());
        }
        before = c;
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[test]
fn banned_words_are_found_in_names() {
    assert_eq!(parts("toldOff_ANEW_x"), ["told", "off", "anew", "x"]);
    assert_eq!(banned_in_name("is_told"), ["is_told"]);
    assert_eq!(banned_in_name("Mended"), ["Mended"]);
    assert!(banned_in_name("octets").is_empty() && banned_in_name("amendment").is_empty());
    assert_eq!(banned_in_name("Place"), ["Place"]);
    assert_eq!(banned_in_name("DEFAULT_COLOUR"), ["DEFAULT_COLOUR"]);
    assert_eq!(banned_in_name("NewNeighbours"), ["NewNeighbours"]);
    let file = "crates/weir-netlink/src/watch.rs";
    assert!(is_accepted(file, "NewNeighbour") && !is_accepted(file, "Neighbour"));
}

#[test]
fn words_and_phrases_are_found_in_prose() {
    let found = |text| {
        banned_words(&Piece {
            region: Region::Comment,
            line: 1,
            text,
        })
    };
    assert_eq!(found("Nobody is told, anew"), ["nobody", "told", "anew"]);
    assert_eq!(found("the file in\n/// force"), Vec::<String>::new());
    assert_eq!(found("the file in  force"), ["in force"]);
    assert_eq!(found("The BEHAVIOUR of `h3_cancelled`"), ["behaviour"]);
    assert!(found("amended, understands").is_empty());
}
