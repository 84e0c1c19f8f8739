//! Commands of the fuzzer's program that do not fuzz: the corpora as libFuzzer wants them, files in a directory, and
//! back.
//!
//! `list`, `longest TARGET`, `unpack TARGET DIRECTORY`, `pack TARGET DIRECTORY`. `pack` keeps the smallest inputs, up
//! to [`MOST_BYTES`] of text, so that the repository does not grow with every night of fuzzing.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use crate::corpus::{inputs_of, line_of};
use crate::{TARGETS, Target, find};

/// Text of one corpus file that `pack` writes at most, bytes.
pub const MOST_BYTES: usize = 128 * 1024;

/// Carries a command out; what it prints goes to standard output.
///
/// # Errors
/// An unknown command or target, and files that cannot be read or written.
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
            println!("{}", known(target)?.longest);
            Ok(())
        }
        ["unpack", target, directory] => unpack(target, Path::new(directory)),
        ["pack", target, directory] => pack(target, Path::new(directory)),
        _ => Err("list | longest TARGET | unpack TARGET DIRECTORY | pack TARGET DIRECTORY".into()),
    }
}

fn known(name: &str) -> Result<&'static Target, Box<dyn Error>> {
    find(name).ok_or_else(|| format!("there is no target {name}").into())
}

fn file_of(target: &str) -> Result<PathBuf, Box<dyn Error>> {
    let name = format!("corpus/{}.txt", known(target)?.name);
    Ok(Path::new(env!("CARGO_MANIFEST_DIR")).join(name))
}

fn unpack(target: &str, directory: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(directory)?;
    let kept = inputs_of(&fs::read_to_string(file_of(target)?).unwrap_or_default())?;
    let seeds = (known(target)?.seeds)();
    for (number, input) in seeds.into_iter().chain(kept).enumerate() {
        fs::write(directory.join(format!("kept-{number:05}")), input)?;
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
        let line = line_of(&input);
        if text.len() + line.len() + 1 > MOST_BYTES {
            break;
        }
        text.push_str(&line);
        text.push('\n');
    }
    fs::write(file_of(target)?, text)?;
    Ok(())
}
