//! Implements `weir explain`.

use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use weir_config::{Code, Explanation};
use weir_control::client::{self, Client};
use weir_control::configuration;
use weir_control::daemon;
use weir_control::explain::{ExplainResponse, Request};

use super::{Outcome, REPLY_TIMEOUT, with_progress};
use crate::arguments::{Explain, GlobalOptions};
use crate::failure::Failure;
use crate::terminal;

/// The error message if no argument is specified.
const NOTHING_TO_EXPLAIN: &str = "explain: specify a code, a packet or a request, for example
  weir explain E016
  weir explain --packet 'tcp 198.51.100.7:40000 192.0.2.10:80'
  weir explain --request 'GET http://www.example/img/a.png' -H 'Cookie: a=b'";

pub(super) fn explain(global: &GlobalOptions, arguments: &Explain) -> Outcome {
    if let Some(number) = &arguments.code {
        return explain_code(number, arguments.json);
    }
    let client = Client::new(&global.runtime_dir).within(REPLY_TIMEOUT);
    let progress_label = "the explanation";
    let explanation = match (&arguments.packet, &arguments.request) {
        (Some(packet), _) => with_progress(progress_label, client.explain(packet))??,
        (None, Some(request)) => {
            // The daemon also parses the request. Parsing it here makes an invalid request a usage error even without a
            // daemon.
            let parsed = Request::parse(request, &arguments.headers);
            let parsed = parsed.map_err(|error| Failure::Usage {
                message: format!("explain: {error}"),
            })?;
            let parsed = parsed.from_client(arguments.client);
            let specified = global.absolute_config()?;
            let active = daemon::last_configuration(&global.runtime_dir);
            match specified.filter(|file| active.as_ref() != Some(file)) {
                Some(file) => explain_from_file(&parsed, &file)?,
                None => {
                    let reply =
                        client.explain_request(request, &arguments.headers, arguments.client);
                    match (with_progress(progress_label, reply)?, &global.config) {
                        (Err(client::Error::NoDaemon { .. }), Some(file)) => {
                            explain_from_file(&parsed, file)?
                        }
                        (reply, _) => reply?,
                    }
                }
            }
        }
        (None, None) => {
            return Err(Failure::Usage {
                message: NOTHING_TO_EXPLAIN.to_owned(),
            });
        }
    };
    let text = if arguments.json {
        serde_json::to_string_pretty(&explanation).map_err(Failure::failed)? + "\n"
    } else {
        explanation.to_string()
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Explains how a configuration file handles a request. Requires no daemon.
fn explain_from_file(request: &Request, file: &Path) -> Result<ExplainResponse, Failure> {
    let loaded = configuration::load(file, terminal::color());
    let loaded = loaded.map_err(|rejected| Failure::Findings {
        findings: rejected.diagnostics,
    })?;
    Ok(request.explain(&loaded.desired, None, file))
}

/// Explains the code of a diagnostic. Requires no daemon.
fn explain_code(number: &str, json: bool) -> Outcome {
    let Some(code) = Code::parse(number) else {
        let message = format!(
            "explain: unknown code {}; docs/manual/codes.md lists all codes. Use --packet for packets, --request for \
             requests",
            number.escape_debug()
        );
        return Err(Failure::Usage { message });
    };
    let Explanation { title, cause, fix } = code.explanation();
    let severity = code.severity().as_str();
    let text = if json {
        let value = json!({
            "code": code.as_str(), "severity": severity, "title": title, "cause": cause, "fix": fix,
        });
        serde_json::to_string_pretty(&value).map_err(Failure::failed)? + "\n"
    } else {
        format!("{severity}[{code}]: {title}\n\n{cause}\n\nFix: {fix}\n")
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
