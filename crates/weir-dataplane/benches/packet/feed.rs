//! Controls bpf/bench/feed.bpf.c: compiles it if necessary, loads it for each plan, sets its target, and runs it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use aya::maps::{MapData, PerCpuArray, ProgramArray};
use aya::programs::links::FdLink;
use aya::programs::{
    Program, ProgramFd, ProgramInfo, TestRun, TestRunAttrs, TestRunOptions, Xdp, XdpMode,
};
use aya::{Ebpf, EbpfLoader};

use crate::Outcome;
use crate::frame::Frame;

/// The kernel's batch of live frames; larger ones overflow a veth's ring.
const BATCH: u32 = 64;
/// struct xdp_md.
const CONTEXT: usize = 24;
/// What a program may add to a frame.
const ROOM: usize = 256;

/// Compiled generators by frame length.
pub(crate) struct Objects {
    directory: PathBuf,
    bytes: BTreeMap<(usize, &'static str), Vec<u8>>,
}

/// Sections: a program array holds programs of one kind only, with or without multi-buffer packets.
const FRAGS: &str = "xdp.frags";
const PLAIN: &str = "xdp";

impl Objects {
    /// Compiles into `directory`.
    pub(crate) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            bytes: BTreeMap::new(),
        }
    }

    fn of(&mut self, length: usize, section: &'static str) -> Outcome<&[u8]> {
        let key = (length, section);
        if !self.bytes.contains_key(&key) {
            let object = self.directory.join(format!("feed-{length}-{section}.o"));
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf/bench/feed.bpf.c");
            let arguments = [
                format!("-DFRAME_LENGTH={length}"),
                format!("-DSECTION=\"{section}\""),
            ];
            compile(&source, &object, &[&arguments[0], &arguments[1]])?;
            self.bytes.insert(key, std::fs::read(object)?);
        }
        Ok(&self.bytes[&key])
    }
}

/// Compiles one BPF source as the build script does.
pub(crate) fn compile(source: &Path, object: &Path, arguments: &[&str]) -> Outcome<()> {
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let multiarch = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(&clang)
        .args([
            "-target", "bpf", "-O2", "-g", "-mcpu=v3", "-Wall", "-Werror",
        ])
        .args(["-I", &multiarch])
        .args(arguments)
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(object)
        .output()
        .map_err(|error| format!("cannot run {clang}: {error}; `make deps` installs it"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "{} does not compile\n{}",
        source.display(),
        String::from_utf8_lossy(&output.stderr)
    )
    .into())
}

/// The generator's task: `struct plan` of bpf/bench/feed.bpf.c.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Every packet, or the even-numbered ones.
    pub(crate) frame: Frame,
    /// The odd-numbered packets, of the same flow.
    pub(crate) alternate: Option<Frame>,
    /// A power of two.
    pub(crate) flows: u32,
    /// First client address, host order.
    pub(crate) client: u32,
    /// Random clients and ports.
    pub(crate) random: bool,
    /// The device for live frames.
    pub(crate) ifindex: u32,
    /// Bytes that the null program adds to a packet.
    pub(crate) growth: u32,
}

impl Plan {
    fn encode(&self) -> Vec<u8> {
        let mut out = self.frame.encode();
        out.extend(self.alternate.as_ref().unwrap_or(&self.frame).encode());
        let words = [
            u32::from(self.alternate.is_some()),
            self.flows - 1,
            self.client,
            u32::from(self.random),
            self.ifindex,
            self.growth,
        ];
        words.iter().for_each(|word| out.extend(word.to_ne_bytes()));
        out
    }
}

/// The result of a test run.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    /// Mean of one run, without the time that other tasks used the CPU.
    pub(crate) ns: f64,
    /// XDP_TX and the like, of the last run.
    pub(crate) verdict: u32,
    /// The frame after the last run.
    pub(crate) frame: Vec<u8>,
}

/// A loaded generator.
pub(crate) struct Feed {
    object: Ebpf,
    target: ProgramArray<MapData>,
    tallies: PerCpuArray<MapData, [u64; 2]>,
    length: usize,
}

impl Feed {
    /// Loads the generator for a plan.
    pub(crate) fn load(objects: &mut Objects, plan: &Plan) -> Outcome<Self> {
        Self::load_in(objects, plan, FRAGS)
    }

    /// The same for a target that accepts single-buffer packets only.
    pub(crate) fn load_plain(objects: &mut Objects, plan: &Plan) -> Outcome<Self> {
        Self::load_in(objects, plan, PLAIN)
    }

    fn load_in(objects: &mut Objects, plan: &Plan, section: &'static str) -> Outcome<Self> {
        let encoded = plan.encode();
        let length = plan.frame.bytes.len();
        let mut object = EbpfLoader::new()
            .override_global("plan", encoded.as_slice(), true)
            .load(objects.of(length, section)?)?;
        for (_, program) in object.programs_mut() {
            xdp(program)?.load()?;
        }
        let mut map = |name: &str| object.take_map(name).ok_or(format!("no map {name}"));
        let target = ProgramArray::try_from(map("target")?)?;
        let tallies = PerCpuArray::try_from(map("tallies")?)?;
        Ok(Self {
            object,
            target,
            tallies,
            length,
        })
    }

    /// The floor, as a target.
    pub(crate) fn null(&self) -> Outcome<ProgramFd> {
        self.descriptor("null_tx")
    }

    fn descriptor(&self, name: &str) -> Outcome<ProgramFd> {
        let program = self.object.program(name).ok_or("no such program")?;
        Ok(program.fd()?.try_clone()?)
    }

    /// The target of the next test runs.
    pub(crate) fn aim(&mut self, program: &ProgramFd) -> Outcome<()> {
        Ok(self.target.set(0, program, 0)?)
    }

    /// Runs the target with the next `packets` packets, with a given ingress device.
    pub(crate) fn run(&mut self, packets: u32, ifindex: u32) -> Outcome<Ran> {
        let packet = vec![0; self.length];
        let mut frame = vec![0; self.length + ROOM];
        let mut context = [0; CONTEXT];
        context[4..8].copy_from_slice(&(self.length as u32).to_ne_bytes());
        context[12..16].copy_from_slice(&ifindex.to_ne_bytes());
        let result = self.program("feed")?.test_run(TestRunOptions {
            data_in: Some(&packet),
            data_out: Some(&mut frame),
            ctx_in: Some(&context),
            repeat: packets,
            ..TestRunOptions::new()
        })?;
        frame.truncate(result.data_size_out as usize);
        Ok(Ran {
            ns: result.duration.as_nanos() as f64,
            verdict: result.return_value,
            frame,
        })
    }

    /// Sends the next `packets` packets from the plan's device.
    pub(crate) fn send(&mut self, packets: u32) -> Outcome<()> {
        let packet = vec![0; self.length];
        self.program("generate")?.test_run(TestRunOptions {
            data_in: Some(&packet),
            repeat: packets,
            attrs: TestRunAttrs::new().xdp_live_frames(BATCH),
            ..TestRunOptions::new()
        })?;
        Ok(())
    }

    /// Attaches one of the programs to a device in native mode, until the link is dropped.
    pub(crate) fn attach(&mut self, name: &str, device: &str) -> Outcome<FdLink> {
        let program = self.program(name)?;
        let id = program.attach(device, XdpMode::Driver)?;
        Ok(program.take_link(id)?.try_into()?)
    }

    /// Packets and bytes that reached the sink so far.
    pub(crate) fn received(&self) -> Outcome<[u64; 2]> {
        let values = self.tallies.get(&0, 0)?;
        Ok(values
            .iter()
            .fold([0, 0], |sum, value| [sum[0] + value[0], sum[1] + value[1]]))
    }

    fn program(&mut self, name: &str) -> Outcome<&mut Xdp> {
        let program = self.object.program_mut(name).ok_or("no such program")?;
        xdp(program)
    }
}

fn xdp(program: &mut Program) -> Outcome<&mut Xdp> {
    Ok(program.try_into()?)
}

/// A descriptor of a pinned program.
pub(crate) fn pinned_program(path: &Path) -> Outcome<ProgramFd> {
    Ok(ProgramInfo::from_pin(path)?.fd()?)
}
