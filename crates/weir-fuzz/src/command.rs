//! Implements the commands that list the fuzz targets and convert a corpus to libFuzzer's form and back.
//!
//! libFuzzer reads a directory with one file per input.
//!
//! The commands are `list`, `longest TARGET`, `unpack TARGET DIRECTORY` and `pack TARGET DIRECTORY`. `pack` keeps the
//! smallest inputs, up to [`MAX_CORPUS_BYTES`] of text, to limit the size of the repository.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use crate::corpus::{format_input, parse_corpus};
use crate::{TARGETS, Target, find};

/// Maximum size of a corpus file that `pack` writes, in bytes.
pub const MAX_CORPUS_BYTES: usize = 128 * 1024;

/// Runs a command, and prints its result to standard output.
///
/// # Errors
/// Fails if the command or the target does not exist, or a file cannot be read or written.
pub fn run(command: &str) -> Result<(), Box<dyn Error>> {
    let words: Vec<&str> = command.split_whitespace().collect();
    match words.as_slice() {
        ["list"] => {
            for target in TARGETS {
                println!("{}", target.name);
            }
            Ok(())
        }
        ["longest", target] => {
            println!("{}", find_target(target)?.max_bytes);
            Ok(())
        }
        ["unpack", target, directory] => unpack(target, Path::new(directory)),
        ["pack", target, directory] => pack(target, Path::new(directory)),
        _ => Err(
            "usage: list | longest TARGET | unpack TARGET DIRECTORY | pack TARGET DIRECTORY".into(),
        ),
    }
}

fn find_target(name: &str) -> Result<&'static Target, Box<dyn Error>> {
    find(name).ok_or_else(|| format!("the target {name} does not exist").into())
}

fn corpus_file(target: &str) -> Result<PathBuf, Box<dyn Error>> {
    let name = format!("corpus/{}.txt", find_target(target)?.name);
    Ok(Path::new(env!("CARGO_MANIFEST_DIR")).join(name))
}

fn unpack(target: &str, directory: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(directory)?;
    let corpus_inputs =
        parse_corpus(&fs::read_to_string(corpus_file(target)?).unwrap_or_default())?;
    let seeds = (find_target(target)?.seeds)();
    for (number, input) in seeds.into_iter().chain(corpus_inputs).enumerate() {
        fs::write(directory.join(format!("input-{number:05}")), input)?;
    }
    Ok(())
}

fn pack(target: &str, directory: &Path) -> Result<(), Box<dyn Error>> {
    let mut inputs = Vec::new();
    for entry in fs::read_dir(directory)? {
        inputs.push(fs::read(entry?.path())?);
    }
    inputs.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    inputs.dedup();
    let mut text = String::new();
    for input in inputs {
        let line = format_input(&input);
        if text.len() + line.len() + 1 > MAX_CORPUS_BYTES {
            break;
        }
        text.push_str(&line);
        text.push('\n');
    }
    fs::write(corpus_file(target)?, text)?;
    Ok(())
}
