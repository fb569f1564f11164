//! `throng command …`: the node's ad-hoc commands for its operator, through the admin socket. XEP-0050 uses the same
//! declarations; help, checks and errors follow from them.
//!
//! # Pitfalls
//!
//! A password on the command line is visible to other users of the machine. Missing required secrets are read from
//! standard input, one per line.

use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;
use throng_commands::{
    Caller, CommandOutput, FieldNaming, OutputValue, RawArguments, commands_of, run_command,
};
use throng_core::Node;

use crate::admin::{self, AdminRequest, AdminResponse};
use crate::cli::AdHocArgs;
use crate::config::NodeConfig;
use crate::{output, prompt, runtime};

/// Runs a command, or lists the commands.
pub(crate) fn command(line: AdHocArgs) -> Result<()> {
    let config = NodeConfig::load(line.file.config.as_deref())?;
    runtime::start()?.block_on(run(&config, line))
}

async fn run(config: &NodeConfig, line: AdHocArgs) -> Result<()> {
    let mut stream = admin::connect_running(config).await?;
    let domain = line.domain.unwrap_or_else(|| config.domain().to_owned());
    let known = admin::send_request(&mut stream, &AdminRequest::Commands { domain: domain.clone() }).await?;
    let all = known.status.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
    let Some(name) = line.name.filter(|_| !line.list) else {
        return list(&all, line.json);
    };
    let about = all.iter().find(|c| c["name"] == name.as_str());
    let Some(about) = about else {
        let names = all.iter().filter_map(|c| c["name"].as_str());
        bail!("unknown command \"{name}\"{}", features::registry::did_you_mean(&name, names));
    };
    let mut values = Vec::new();
    for text in &line.values {
        let (key, value) = text.split_once('=').with_context(|| {
            format!(
                "\"{text}\" is not valid; write FIELD=VALUE. To list the fields, run: throng command --list"
            )
        })?;
        values.push((key.to_owned(), value.to_owned()));
    }
    for field in about["input"].as_array().into_iter().flatten() {
        let key = field["name"].as_str().unwrap_or_default();
        let missing =
            field["kind"] == "secret" && field["required"] == true && !values.iter().any(|v| v.0 == key);
        if missing {
            values.push((key.to_owned(), prompt::secret(field["label"].as_str().unwrap_or(key))?));
        }
    }
    let answer = admin::send_request(&mut stream, &AdminRequest::Command { domain, name, values }).await?;
    match answer.status.filter(|_| line.json) {
        Some(value) => output::line(&value.to_string()),
        None => answer.lines.iter().for_each(|line| output::line(line)),
    }
    Ok(())
}

/// Lists every command with its fields.
fn list(all: &[Value], as_json: bool) -> Result<()> {
    if as_json {
        output::line(&serde_json::to_string(all)?);
        return Ok(());
    }
    for command in all {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        output::line(&format!("{:<28}{}", text(&command["name"]), text(&command["doc"])));
        for field in command["input"].as_array().into_iter().flatten() {
            let must = if field["required"] == true { "" } else { ", optional" };
            let name = format!("{}=", text(&field["name"]));
            output::line(&format!(
                "    {name:<24}{} ({}{must})",
                text(&field["label"]),
                text(&field["kind"])
            ));
        }
    }
    Ok(())
}

/// Describes the commands of a domain as JSON.
pub(crate) fn describe(node: &Arc<Node>, domain: &str) -> Result<AdminResponse> {
    let host = host(node, domain)?;
    Ok(AdminResponse {
        status: Some(Value::Array(api::commands::describe(&host))),
        ..AdminResponse::default()
    })
}

fn host(node: &Arc<Node>, domain: &str) -> Result<Arc<throng_core::Host>> {
    node.host(domain).with_context(|| format!("{domain} is not served here"))
}

/// Runs a command with the operator's rights.
pub(crate) async fn carry_out(
    node: &Arc<Node>,
    domain: &str,
    name: &str,
    values: Vec<(String, String)>,
) -> Result<AdminResponse> {
    let host = host(node, domain)?;
    let entry = commands_of(&host).by_name(name).with_context(|| format!("unknown command \"{name}\""))?;
    let mut given = RawArguments::default();
    for (key, value) in values {
        given.add(&key, value);
    }
    let input = entry.command.parse_input(&given, FieldNaming::Name).map_err(|error| anyhow!("{error}"))?;
    let output = run_command(node, &host, entry, Caller::operator(), input).await;
    let output = output.map_err(|error| anyhow!("{error}"))?;
    Ok(AdminResponse {
        lines: lines(&output),
        status: Some(api::commands::output_json(&output)),
        ..AdminResponse::default()
    })
}

/// Output for people: a list that comes first one value per line, tables with tabs, other values with their label.
fn lines(output: &CommandOutput) -> Vec<String> {
    let mut lines = Vec::new();
    for (at, (field, shown)) in output.values.iter().enumerate() {
        match shown {
            OutputValue::Texts(texts) if at == 0 => lines.extend(texts.iter().cloned()),
            OutputValue::Rows(rows) => {
                lines.extend(rows.iter().map(|row| {
                    row.iter().map(|cell| cell.texts().join(", ")).collect::<Vec<_>>().join("\t")
                }));
            }
            OutputValue::Bool(on) => {
                lines.push(format!("{}: {}", field.label, if *on { "yes" } else { "no" }))
            }
            other => lines.push(format!("{}: {}", field.label, other.texts().join(", "))),
        }
    }
    if !output.note.is_empty() {
        lines.push(output.note.clone());
    }
    lines
}
