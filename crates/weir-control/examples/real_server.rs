//! `weir real-server` by hand, as long as the program has no such command: `up|down|show` in the calling namespace, with
//! `WEIR_RUNTIME_DIR` and `WEIR_PIN_DIR`.

use std::env;
use std::process::ExitCode;

use weir_control::real_server::{self, DownRequest, Options, UpRequest};
use weir_model::Forward;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let variable = |name, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    let options = Options {
        runtime_dir: variable("WEIR_RUNTIME_DIR", "/run/weir").into(),
        pin_dir: variable("WEIR_PIN_DIR", "/sys/fs/bpf/weir").into(),
    };
    let mut words = env::args().skip(1);
    let verb = words.next().unwrap_or_default();
    let mut request = UpRequest {
        forward: Forward::Direct,
        vips: Vec::new(),
        tunnel: None,
        dscp: None,
        except: Vec::new(),
        interfaces: Vec::new(),
    };
    while let (Some(option), Some(value)) = (words.next(), words.next()) {
        match option.as_str() {
            "--forward" => {
                let known = Forward::ALL
                    .into_iter()
                    .find(|forward| forward.as_str() == value);
                request.forward = known.ok_or("unknown forward")?;
            }
            "--vip" => request.vips.push(value.parse()?),
            "--tunnel" => request.tunnel = Some(value.parse()?),
            "--dscp" => request.dscp = Some(value.parse()?),
            "--except" => request.except.push(value.parse()?),
            "--interface" => request.interfaces.push(value),
            _ => return Err(format!("unknown option {option}").into()),
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let steps = match verb.as_str() {
        "up" => runtime.block_on(real_server::up(&options, &request))?,
        "down" => {
            let request = DownRequest { vips: request.vips };
            runtime.block_on(real_server::down(&options, &request))?
        }
        "show" => {
            println!("{}", runtime.block_on(real_server::show(&options))?);
            return Ok(());
        }
        _ => return Err("up, down or show".into()),
    };
    steps.iter().for_each(|step| println!("{step}"));
    Ok(())
}
