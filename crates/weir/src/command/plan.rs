//! `weir plan`.

use std::process::ExitCode;

use weir_control::api::FileRequest;
use weir_control::client::{self, Client};
use weir_control::configuration;
use weir_control::plan::{self, Plan};
use weir_model::Desired;

use super::{ANSWER, Outcome, patiently};
use crate::arguments::Places;
use crate::failure::Failure;
use crate::terminal;

pub(super) fn plan(places: &Places, json: bool) -> Outcome {
    let request = FileRequest {
        path: places.named_config()?,
        text: None,
        color: terminal::color(),
        guard_ms: None,
    };
    let client = Client::new(&places.runtime_dir).within(ANSWER);
    let plan = match patiently("the plan", client.plan(&request))? {
        Err(error @ client::Error::NoDaemon { .. }) => {
            terminal::complain(&format!("weir: {error}: everything is new\n"));
            from_nothing(places)?
        }
        other => other?,
    };
    let text = if json {
        serde_json::to_string_pretty(&plan).map_err(Failure::failed)? + "\n"
    } else {
        plan.to_string()
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn from_nothing(places: &Places) -> Result<Plan, Failure> {
    let file = places.config();
    let loaded = configuration::load(file, terminal::color())
        .and_then(|loaded| configuration::with_usable_files(loaded, file))
        .map_err(|rejected| Failure::Findings {
            findings: rejected.diagnostics,
        })?;
    let no_flows = |_: &str, _: Option<&str>| 0;
    let new = &loaded.desired;
    Ok(plan::plan(&Desired::default(), new, &no_flows, &[]))
}
