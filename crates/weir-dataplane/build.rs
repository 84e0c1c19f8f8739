//! Compiles every `bpf/*.bpf.c` for the BPF target and lists the objects for embedding.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let manifest = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let root = manifest.join("../../bpf");
    let out = PathBuf::from(variable("OUT_DIR"));
    println!("cargo::rerun-if-changed={}", root.display());
    println!("cargo::rerun-if-env-changed=CLANG");
    println!("cargo::rerun-if-env-changed=WEIR_WITHOUT_METRICS");

    // The tests must not find an object whose source was removed.
    for stale in files(&out, ".bpf.o") {
        let _ = fs::remove_file(stale);
    }
    // This source references every shared struct, so that a test finds all of them in one object's BTF; the real
    // objects omit unused structs.
    let layout = manifest.join("tests/bpf/abi_layout.bpf.c");
    println!("cargo::rerun-if-changed={}", layout.display());
    compile(&root, &layout, &out.join("abi_layout.bpf.o"));

    let mut list = String::from("pub(crate) const OBJECTS: &[(&str, &[u8])] = &[\n");
    for source in files(&root, ".bpf.c") {
        let file = source
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        let name = file.trim_end_matches(".bpf.c");
        let object = out.join(format!("{name}.bpf.o"));
        compile(&root, &source, &object);
        writeln!(list, "    ({name:?}, aya::include_bytes_aligned!(concat!(env!(\"OUT_DIR\"), \"/{name}.bpf.o\"))),")
            .expect("write to a string");
    }
    list.push_str("];\n");
    let path = out.join("objects.rs");
    fs::write(&path, list)
        .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}

/// Returns the files in a directory whose names have this suffix, sorted.
fn files(directory: &Path, suffix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", directory.display()));
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.to_string_lossy().ends_with(suffix))
        .collect();
    files.sort();
    files
}

fn compile(root: &Path, source: &Path, object: &Path) {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    // Debian installs asm/types.h in the directory of the host's architecture, which the BPF target does not search.
    // The types that the programs use are the same on all 64-bit architectures, so a cross build needs no other
    // headers.
    let multiarch = format!("/usr/include/{}-linux-gnu", env::consts::ARCH);
    // Objects contain the names of their source files: make the names independent of the build directory.
    let names = format!("-ffile-prefix-map={}=.", variable("CARGO_MANIFEST_DIR"));
    let without_metrics = env::var_os("WEIR_WITHOUT_METRICS").map(|_| "-DWEIR_WITHOUT_METRICS");
    let run = Command::new(&clang)
        .args(without_metrics)
        .args([
            "-target", "bpf", "-O2", "-g", "-mcpu=v3", "-Wall", "-Werror", &names,
        ])
        .arg("-I")
        .arg(root)
        .arg("-I")
        .arg(&multiarch)
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(object)
        .output();
    let output = match run {
        Ok(output) => output,
        Err(error) => panic!(
            "cannot run {clang}: {error}; `make deps` installs clang and the kernel's headers"
        ),
    };
    if output.status.success() {
        return strip(object);
    }
    let messages = String::from_utf8_lossy(&output.stderr);
    let hint = if messages.contains("file not found") {
        "; `make deps` installs the headers (libbpf-dev, linux-libc-dev)"
    } else {
        ""
    };
    panic!("{} does not compile{hint}\n{messages}", source.display());
}

/// Removes DWARF, which only debuggers read; the loader needs BTF. Without llvm-strip, the object is larger but works.
fn strip(object: &Path) {
    let program = env::var("LLVM_STRIP").unwrap_or_else(|_| "llvm-strip".to_owned());
    match Command::new(&program).arg("-g").arg(object).status() {
        Ok(status) => assert!(
            status.success(),
            "{program} -g {}: {status}",
            object.display()
        ),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => panic!("cannot run {program}: {error}"),
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
