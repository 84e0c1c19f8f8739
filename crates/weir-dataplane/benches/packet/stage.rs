//! Measures the cost of each processing step by comparing builds that return before and after it (`--stages`).
//!
//! The results are the second table of `--stages`.
//!
//! Each build is a copy of bpf/ with an inserted early return ([`crate::edit`]). It uses the values computed before the
//! return, because the compiler would omit their computation otherwise.

use std::fs;
use std::path::{Path, PathBuf};

use aya::programs::{Program, ProgramFd};
use aya::{Ebpf, EbpfLoader};
use weir_abi::Bucket;
use weir_dataplane::PinKind;

use crate::Result;
use crate::case::{Case, established};
use crate::director::Director;
use crate::edit::{CUTS, Edit};
use crate::feed::{Feed, Objects, compile};
use crate::measure::Effort;
use crate::network::TestNetwork;
use crate::report::{Summary, Table};

const MAIN: &str = "weir_xdp.bpf.c";
const LAST_STEP: &str = "frame addresses, transmit";

/// Measures the steps of `direct` with one flow and with 16 K flows.
pub(crate) fn run(
    network: &mut TestNetwork,
    objects: &mut Objects,
    scratch: &Path,
    effort: Effort,
) -> Result<()> {
    println!(
        "\n5. The same in steps: a build that ends after the stage minus one that ends before it, ns\n"
    );
    let builds = CUTS
        .iter()
        .enumerate()
        .map(|(number, cut)| {
            build_edited(&scratch.join(format!("stage-{number}")), &[cut.edit()])
                .map_err(|error| format!("stage {:?}: {error}", cut.step).into())
        })
        .collect::<Result<Vec<PathBuf>>>()?;
    let columns = [1, 1 << 14]
        .map(|flows| measure_steps(network, objects, &builds, &established(flows), effort));
    let [one, many] = columns;
    let (one, many) = (one?, many?);
    let table = Table::new(&["stage", "1 flow", "16 K flows"]);
    table.print_header();
    let names = CUTS.iter().map(|cut| cut.step).chain([LAST_STEP, "whole"]);
    for ((name, one), many) in names.zip(&one).zip(&many) {
        table.print_row(&[name.to_owned(), format!("{one:.0}"), format!("{many:.0}")]);
    }
    Ok(())
}

/// Returns the net nanoseconds of each step, then of the whole program.
fn measure_steps(
    network: &mut TestNetwork,
    objects: &mut Objects,
    builds: &[PathBuf],
    case: &Case,
    effort: Effort,
) -> Result<Vec<f64>> {
    let director = Director::open(network.pin_dir(), network.director, case.setup)?;
    director.limit_syns(false)?;
    let whole = director.program()?;
    let (plans, flows) = case.setup_plans();
    for plan in &plans {
        let mut feed = Feed::load(objects, plan)?;
        feed.set_target(&whole)?;
        feed.run(flows, network.director)?;
    }
    let times = measure_times(network, objects, &director, builds, case, effort)?;
    director.close()?;
    let medians: Vec<f64> = times.iter().map(|times| times.median).collect();
    let mut stages: Vec<f64> = medians.windows(2).map(|pair| pair[1] - pair[0]).collect();
    stages.push(stages.iter().sum());
    Ok(stages)
}

/// Measures, in alternating rounds, the floor, each build with the director's maps and flows, and the whole program.
pub(crate) fn measure_times(
    network: &TestNetwork,
    objects: &mut Objects,
    director: &Director,
    builds: &[PathBuf],
    case: &Case,
    effort: Effort,
) -> Result<Vec<Summary>> {
    let loaded_builds = builds
        .iter()
        .map(|object| load(object, director))
        .collect::<Result<Vec<Ebpf>>>()?;
    let mut feed = Feed::load(objects, &case.measured_plan())?;
    let mut targets = vec![feed.null()?];
    for object in &loaded_builds {
        targets.push(program(object)?);
    }
    targets.push(director.program()?);
    let mut times = vec![Vec::new(); targets.len()];
    for _ in 0..effort.rounds {
        for (target, times) in targets.iter().zip(&mut times) {
            feed.set_target(target)?;
            let result = feed.run(effort.packets, network.director)?;
            if result.verdict != XDP_TX {
                return Err(format!("a build returned the verdict {}", result.verdict).into());
            }
            times.push(result.ns);
        }
    }
    Ok(times.into_iter().map(Summary::from_values).collect())
}

const XDP_TX: u32 = 3;

/// Copies the sources to `root`, edits them there, and compiles them. Returns the path of the object.
pub(crate) fn build_edited<'a>(
    root: &Path,
    edits: impl IntoIterator<Item = &'a Edit>,
) -> Result<PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf");
    for directory in ["", "lib", "abi"] {
        fs::create_dir_all(root.join(directory))?;
        for entry in fs::read_dir(sources.join(directory))? {
            let path = entry?.path();
            if let (true, Some(name)) = (path.is_file(), path.file_name()) {
                fs::copy(&path, root.join(directory).join(name))?;
            }
        }
    }
    for edit in edits {
        let edited = root.join(edit.file);
        let text = fs::read_to_string(&edited)?;
        fs::write(&edited, edit.apply(&text)?)?;
    }
    let object = root.join("weir_xdp.o");
    compile(
        &root.join(MAIN),
        &object,
        &["-Wno-unused", "-I", &root.to_string_lossy()],
    )?;
    Ok(object)
}

/// Loads a build that uses the director's maps.
pub(crate) fn load(object: &Path, director: &Director) -> Result<Ebpf> {
    let dataplane = &director.dataplane;
    let pinned = dataplane.pins().list()?;
    let names: Vec<(String, &Path)> = pinned
        .iter()
        .filter(|pinned| pinned.kind == PinKind::Map)
        .filter_map(|pinned| {
            let name = pinned.path.file_name()?.to_str()?;
            // Each build needs its own program array.
            (name != "weir_stages").then(|| (name.to_owned(), pinned.path.as_path()))
        })
        .collect();
    let (sizes, [secret0, secret1]) = (dataplane.sizes(), dataplane.secret());
    let homes = Bucket::home_count(sizes.buckets());
    let mut loader = EbpfLoader::new();
    for (name, path) in &names {
        loader.map_pin_path(name, *path);
    }
    let words = [
        ("weir_bucket_count", homes),
        ("weir_stash_count", sizes.buckets() - homes),
        ("weir_dest_count", sizes.dests),
        ("weir_service_count", sizes.services),
        ("weir_table_count", sizes.elements),
        ("weir_live_count", sizes.live_rows()),
    ];
    for (name, value) in &words {
        loader.override_global(name, value, false);
    }
    loader.override_global("weir_secret0", &secret0, true);
    loader.override_global("weir_secret1", &secret1, true);
    let mut object = loader.load(&fs::read(object)?)?;
    match object.program_mut(PROGRAM) {
        Some(Program::Xdp(program)) => program.load()?,
        _ => return Err(format!("no program {PROGRAM}").into()),
    }
    Ok(object)
}

const PROGRAM: &str = "weir_xdp";

/// Returns the main program of a loaded build.
pub(crate) fn program(object: &Ebpf) -> Result<ProgramFd> {
    let program = object.program(PROGRAM).ok_or("no program")?;
    Ok(program.fd()?.try_clone()?)
}
