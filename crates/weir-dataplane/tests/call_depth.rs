//! Tests that every call chain's stack stays within the limits of the oldest supported kernel, Linux 6.1.
//!
//! The limits (kernel/bpf/verifier.c, check_max_stack_depth) are 512 bytes, where each frame is rounded up to a
//! multiple of 32 and callbacks of bpf_loop count as calls; eight frames; and less than 256 bytes in the frames of the
//! callers of a function that makes a tail call. Newer kernels round up only to multiples of 16, so loading a program
//! on them does not test this.

#[path = "support/elf.rs"]
mod elf;

use std::collections::BTreeMap;

use elf::{Elf, Symbol};

const MAX_STACK: usize = 512;
const TAIL_CALL_STACK_LIMIT: usize = 256;
const MAX_FRAMES: usize = 8;
const FRAME_UNIT: usize = 32;

const INSTRUCTION_BYTES: usize = 8;
const OPCODE_CALL: u8 = 0x85;
const OPCODE_LOAD_IMM64: u8 = 0x18;
const OPCODE_MOVE: u8 = 0xbf;
const OPCODE_ADD_IMM: u8 = 0x07;
const PSEUDO_CALL: u8 = 1;
const FRAME_POINTER: u8 = 10;
const HELPER_TAIL_CALL: i32 = 12;
const HELPER_TIMER_SET_CALLBACK: i32 = 170;

/// Address of a function: its section and the offset of its first instruction.
type Address = (usize, usize);

#[derive(Debug)]
struct Function {
    name: String,
    /// Size of the function's own frame in bytes, rounded up.
    frame: usize,
    calls: Vec<Address>,
    /// Callbacks of timers, which run on a separate stack.
    timer_callbacks: Vec<Address>,
    tail_calls: bool,
}

#[derive(Clone, Copy)]
struct Instruction {
    opcode: u8,
    dst: u8,
    src: u8,
    offset: i16,
    imm: i32,
}

fn instructions(code: &[u8]) -> Vec<Instruction> {
    code.chunks_exact(INSTRUCTION_BYTES)
        .map(|bytes| Instruction {
            opcode: bytes[0],
            dst: bytes[1] & 0xf,
            src: bytes[1] >> 4,
            offset: i16::from_le_bytes([bytes[2], bytes[3]]),
            imm: i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        })
        .collect()
}

/// Returns how far below the frame pointer an instruction accesses memory. `next` is the next instruction.
fn stack_access_depth(instruction: Instruction, next: Option<&Instruction>) -> usize {
    let below = |offset: i64| usize::try_from(-offset).unwrap_or(0);
    match (instruction.opcode & 0x07, instruction.opcode) {
        // The frame pointer is the source of a load, and the destination of a store.
        (1, _) if instruction.src == FRAME_POINTER => below(i64::from(instruction.offset)),
        (2 | 3, _) if instruction.dst == FRAME_POINTER => below(i64::from(instruction.offset)),
        (_, OPCODE_MOVE) if instruction.src == FRAME_POINTER => match next {
            Some(add) if add.opcode == OPCODE_ADD_IMM && add.dst == instruction.dst => {
                below(i64::from(add.imm))
            }
            _ => panic!(
                "the frame pointer is copied without an immediate offset: the accessed range is unknown"
            ),
        },
        _ => 0,
    }
}

/// Returns whether instruction `index` loads the address of a timer callback. The next helper call shows this.
fn is_timer_callback(code: &[Instruction], index: usize) -> bool {
    let helper = code[index..]
        .iter()
        .find(|next| next.opcode == OPCODE_CALL && next.src == 0);
    helper.is_some_and(|helper| helper.imm == HELPER_TIMER_SET_CALLBACK)
}

fn function(elf: &Elf, symbols: &[Symbol], symbol: &Symbol) -> Function {
    let code = instructions(&elf.body(symbol.section)[symbol.value..][..symbol.size]);
    let relocations: BTreeMap<usize, usize> = elf.relocations(symbol.section).into_iter().collect();
    let mut result = Function {
        name: symbol.name.clone(),
        frame: 0,
        calls: Vec::new(),
        timer_callbacks: Vec::new(),
        tail_calls: false,
    };
    let mut depth = 1;
    for (index, instruction) in code.iter().enumerate() {
        let offset = symbol.value + index * INSTRUCTION_BYTES;
        depth = depth.max(stack_access_depth(*instruction, code.get(index + 1)));
        let target = relocations.get(&offset).map(|symbol| &symbols[*symbol]);
        let bytes = |instructions: i32| isize::try_from(instructions).unwrap() * 8;
        match (instruction.opcode, target) {
            // libbpf, bpf_object__reloc_code: `imm` is relative to the symbol, or to the instruction if the call has no
            // relocation.
            (OPCODE_CALL, target) if instruction.src == PSEUDO_CALL => {
                let start = target.map_or(offset, |target| target.value);
                let section = target.map_or(symbol.section, |target| target.section);
                let start = start
                    .checked_add_signed(bytes(instruction.imm + 1))
                    .unwrap();
                result.calls.push((section, start));
            }
            (OPCODE_LOAD_IMM64, Some(target)) if elf.name(target.section) == ".text" => {
                let start = target.value + usize::try_from(instruction.imm).unwrap();
                let list = if is_timer_callback(&code, index) {
                    &mut result.timer_callbacks
                } else {
                    &mut result.calls
                };
                list.push((target.section, start));
            }
            (OPCODE_CALL, _) if instruction.imm == HELPER_TAIL_CALL => result.tail_calls = true,
            _ => {}
        }
    }
    result.frame = depth.next_multiple_of(FRAME_UNIT);
    result
}

fn functions(elf: &Elf) -> BTreeMap<Address, Function> {
    let symbols = elf.symbols();
    symbols
        .iter()
        .filter(|symbol| symbol.is_function)
        .map(|symbol| {
            (
                (symbol.section, symbol.value),
                function(elf, &symbols, symbol),
            )
        })
        .collect()
}

struct CallChains<'a> {
    functions: &'a BTreeMap<Address, Function>,
    /// Names and frame sizes, from the program to the innermost function.
    chain: Vec<(&'a str, usize)>,
    deepest: usize,
    violations: Vec<String>,
}

impl<'a> CallChains<'a> {
    fn visit(&mut self, address: Address) {
        let function = self.functions.get(&address).unwrap_or_else(|| {
            panic!(
                "{:?} calls {address:?}, which is not a function",
                self.chain
            )
        });
        let above: usize = self.chain.iter().map(|(_, frame)| frame).sum();
        self.chain.push((&function.name, function.frame));
        let depth = above + function.frame;
        self.deepest = self.deepest.max(depth);
        let mut report =
            |excess: String| self.violations.push(format!("{excess}: {:?}", self.chain));
        if depth > MAX_STACK {
            report(format!("{depth} bytes"));
        }
        if function.tail_calls && self.chain.len() > 1 && above >= TAIL_CALL_STACK_LIMIT {
            report(format!("{above} bytes above a tail call"));
        }
        if self.chain.len() > MAX_FRAMES {
            report(format!("{} frames", self.chain.len()));
        }
        for callee in &function.calls {
            self.visit(*callee);
        }
        self.chain.pop();
    }
}

/// Returns the stack depth of the deepest call chain in an object, and every chain that exceeds the limits.
fn check_object(elf: &[u8]) -> (usize, Vec<String>) {
    let elf = Elf::new(elf);
    let functions = functions(&elf);
    let programs = functions
        .iter()
        .filter(|((section, _), _)| elf.name(*section) != ".text")
        .map(|(address, _)| *address);
    let timer_callbacks = functions
        .values()
        .flat_map(|function| function.timer_callbacks.clone());
    let mut chains = CallChains {
        functions: &functions,
        chain: Vec::new(),
        deepest: 0,
        violations: Vec::new(),
    };
    let mut roots = 0;
    for address in programs.chain(timer_callbacks) {
        chains.visit(address);
        roots += 1;
    }
    assert!(roots > 0, "the object contains no program");
    chains.violations.sort();
    chains.violations.dedup();
    (chains.deepest, chains.violations)
}

#[test]
fn every_call_chain_fits_the_stack_of_the_oldest_kernel() {
    for object in [
        "weir_xdp",
        "weir_tc",
        "weir_skb",
        "weir_real_server",
        "weir_socket",
    ] {
        let path = format!("{}/{object}.bpf.o", env!("OUT_DIR"));
        let (deepest, violations) = check_object(&std::fs::read(&path).unwrap());
        println!("{object}: {deepest} bytes");
        assert!(
            violations.is_empty(),
            "{object} has {} chains that Linux 6.1 rejects:\n{}",
            violations.len(),
            violations.join("\n")
        );
    }
}

/// Tests that callbacks count as calls: without them, the previous test would miss the deepest chain.
#[test]
fn callbacks_are_found() {
    let elf = std::fs::read(format!("{}/weir_xdp.bpf.o", env!("OUT_DIR"))).unwrap();
    let elf = Elf::new(&elf);
    let functions = functions(&elf);
    let called = |name: &str| {
        let (address, _) = functions
            .iter()
            .find(|(_, function)| function.name == name)
            .unwrap_or_else(|| panic!("no function {name}"));
        let by = |list: fn(&Function) -> &Vec<Address>| {
            functions
                .values()
                .any(|function| list(function).contains(address))
        };
        (
            by(|function| &function.calls),
            by(|function| &function.timer_callbacks),
        )
    };
    assert_eq!(called("climb_step"), (true, false), "callback of bpf_loop");
    assert_eq!(called("sweep_tick"), (false, true), "callback of a timer");
    assert_eq!(called("flow_release"), (true, false), "a function");
}
