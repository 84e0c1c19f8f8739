//! Controls the packet generator bpf/bench/feed.bpf.c: compiles, loads and runs it, and sets its target.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use aya::maps::{MapData, PerCpuArray, ProgramArray};
use aya::programs::links::FdLink;
use aya::programs::{
    Program, ProgramFd, ProgramInfo, TestRun, TestRunAttrs, TestRunOptions, Xdp, XdpMode,
};
use aya::{Ebpf, EbpfLoader};
use rustix::time::{ClockId, clock_gettime};

use crate::Result;
use crate::frame::Frame;

/// Number of live frames that the kernel sends at once; larger batches overflow a veth's ring.
const BATCH: u32 = 64;
/// Size of `struct xdp_md` in bytes.
const CONTEXT_BYTES: usize = 24;
/// The largest number of bytes that a program may add to a frame.
const MAX_GROWTH: usize = 256;

/// Compiled generators by frame length and section.
pub(crate) struct Objects {
    directory: PathBuf,
    bytes: BTreeMap<(usize, &'static str), Vec<u8>>,
}

/// The ELF sections of the two kinds of programs: with and without support for multi-buffer packets. A program array
/// contains programs of only one kind.
const FRAGS: &str = "xdp.frags";
const SINGLE_BUFFER: &str = "xdp";

impl Objects {
    /// Returns an empty set whose objects are compiled into `directory`.
    pub(crate) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            bytes: BTreeMap::new(),
        }
    }

    /// Returns the generator for a frame length and a section; compiles it if necessary.
    fn get(&mut self, length: usize, section: &'static str) -> Result<&[u8]> {
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
pub(crate) fn compile(source: &Path, object: &Path, arguments: &[&str]) -> Result<()> {
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
        .map_err(|error| format!("failed to run {clang}: {error}; `make deps` installs it"))?;
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

/// The packets to generate: `struct plan` of bpf/bench/feed.bpf.c.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Every packet, or every even-numbered packet if there is an `alternate`.
    pub(crate) frame: Frame,
    /// Every odd-numbered packet, which is of the same flow as the previous packet.
    pub(crate) alternate: Option<Frame>,
    /// Number of flows; a power of two.
    pub(crate) flows: u32,
    /// The first client address, in host byte order.
    pub(crate) client: u32,
    /// Whether the client addresses and ports are random.
    pub(crate) random: bool,
    /// The interface index of the device for live frames.
    pub(crate) ifindex: u32,
    /// Number of bytes that the null program adds to a packet.
    pub(crate) overhead_bytes: u32,
}

impl Plan {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = self.frame.encode();
        bytes.extend(self.alternate.as_ref().unwrap_or(&self.frame).encode());
        let words = [
            u32::from(self.alternate.is_some()),
            self.flows - 1,
            self.client,
            u32::from(self.random),
            self.ifindex,
            self.overhead_bytes,
        ];
        words
            .iter()
            .for_each(|word| bytes.extend(word.to_ne_bytes()));
        bytes
    }
}

/// The result of a test run.
#[derive(Clone, Debug)]
pub(crate) struct RunResult {
    /// Mean nanoseconds of this thread's CPU time per packet.
    pub(crate) ns: f64,
    /// The XDP verdict for the last packet.
    pub(crate) verdict: u32,
    /// The last packet's frame after the run.
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
    /// Loads the generator for a plan, with a target that accepts multi-buffer packets.
    pub(crate) fn load(objects: &mut Objects, plan: &Plan) -> Result<Self> {
        Self::load_in(objects, plan, FRAGS)
    }

    /// Loads the generator for a plan, with a target that accepts only single-buffer packets.
    pub(crate) fn load_single_buffer(objects: &mut Objects, plan: &Plan) -> Result<Self> {
        Self::load_in(objects, plan, SINGLE_BUFFER)
    }

    fn load_in(objects: &mut Objects, plan: &Plan, section: &'static str) -> Result<Self> {
        let encoded = plan.encode();
        let length = plan.frame.bytes.len();
        let mut object = EbpfLoader::new()
            .override_global("plan", encoded.as_slice(), true)
            .load(objects.get(length, section)?)?;
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

    /// Returns the null program, which is the target when the floor is measured.
    pub(crate) fn null(&self) -> Result<ProgramFd> {
        self.descriptor("null_tx")
    }

    fn descriptor(&self, name: &str) -> Result<ProgramFd> {
        let program = self.object.program(name).ok_or("program not found")?;
        Ok(program.fd()?.try_clone()?)
    }

    /// Sets the target of the next test runs.
    pub(crate) fn set_target(&mut self, program: &ProgramFd) -> Result<()> {
        Ok(self.target.set(0, program, 0)?)
    }

    /// Runs the target with the next `packets` packets, which arrive at the device `ifindex`.
    pub(crate) fn run(&mut self, packets: u32, ifindex: u32) -> Result<RunResult> {
        let packet = vec![0; self.length];
        let mut frame = vec![0; self.length + MAX_GROWTH];
        let mut context = [0; CONTEXT_BYTES];
        context[4..8].copy_from_slice(&(self.length as u32).to_ne_bytes());
        context[12..16].copy_from_slice(&ifindex.to_ne_bytes());
        let feed = self.program("feed")?;
        // The duration that the kernel returns is rounded down to nanoseconds per packet.
        let start = clock_gettime(ClockId::ThreadCPUTime);
        let result = feed.test_run(TestRunOptions {
            data_in: Some(&packet),
            data_out: Some(&mut frame),
            ctx_in: Some(&context),
            repeat: packets,
            ..TestRunOptions::new()
        })?;
        let cpu_time = clock_gettime(ClockId::ThreadCPUTime) - start;
        frame.truncate(result.data_size_out as usize);
        Ok(RunResult {
            ns: (cpu_time.tv_sec as f64 * 1e9 + cpu_time.tv_nsec as f64) / f64::from(packets),
            verdict: result.return_value,
            frame,
        })
    }

    /// Sends the next `packets` packets through the plan's device.
    pub(crate) fn send(&mut self, packets: u32) -> Result<()> {
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
    pub(crate) fn attach(&mut self, name: &str, device: &str) -> Result<FdLink> {
        let program = self.program(name)?;
        let id = program.attach(device, XdpMode::Driver)?;
        Ok(program.take_link(id)?.try_into()?)
    }

    /// Returns the number of packets and the number of bytes that have reached the sink.
    pub(crate) fn received(&self) -> Result<[u64; 2]> {
        let values = self.tallies.get(&0, 0)?;
        Ok(values
            .iter()
            .fold([0, 0], |sum, value| [sum[0] + value[0], sum[1] + value[1]]))
    }

    fn program(&mut self, name: &str) -> Result<&mut Xdp> {
        let program = self.object.program_mut(name).ok_or("program not found")?;
        xdp(program)
    }
}

fn xdp(program: &mut Program) -> Result<&mut Xdp> {
    Ok(program.try_into()?)
}

/// Returns a file descriptor of a pinned program.
pub(crate) fn pinned_program(path: &Path) -> Result<ProgramFd> {
    Ok(ProgramInfo::from_pin(path)?.fd()?)
}
