//! Implements `weir real-server`.

use std::process::ExitCode;

use weir_real_server::{DownRequest, Options, Step, UpRequest};

use super::{Outcome, block_on};
use crate::arguments::{GlobalOptions, RealServer, Up};
use crate::failure::Failure;
use crate::terminal;

pub(super) fn real_server(global: &GlobalOptions, command: &RealServer) -> Outcome {
    let options = Options {
        runtime_dir: global.runtime_dir.clone(),
        pin_dir: global.pin_dir.clone(),
    };
    let steps = match command {
        RealServer::Up(arguments) => {
            block_on(weir_real_server::up(&options, &up_request(arguments)))?
                .map_err(Failure::failed)?
        }
        RealServer::Down { vips } => {
            let request = DownRequest { vips: vips.clone() };
            block_on(weir_real_server::down(&options, &request))?.map_err(Failure::failed)?
        }
        RealServer::Show { json } => return show(&options, *json),
        RealServer::Doctor(arguments) => return super::doctor::server(&options, arguments),
    };
    print_steps(&steps)
}

fn up_request(arguments: &Up) -> UpRequest {
    UpRequest {
        forward: arguments.forward,
        vips: arguments.vips.clone(),
        tunnel: arguments.tunnel,
        dscp: arguments.dscp,
        except: arguments.except.clone(),
        interfaces: arguments.interfaces.clone(),
    }
}

fn show(options: &Options, json: bool) -> Outcome {
    let report = block_on(weir_real_server::show(options))?.map_err(Failure::failed)?;
    let text = if json {
        serde_json::to_string_pretty(&report).map_err(Failure::failed)?
    } else {
        report.to_string()
    };
    terminal::print(&(text + "\n"))?;
    Ok(ExitCode::SUCCESS)
}

fn print_steps(steps: &[Step]) -> Outcome {
    let mut text: String = steps.iter().map(|step| format!("{step}\n")).collect();
    if steps.is_empty() {
        text.push_str("nothing to do\n");
    }
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
